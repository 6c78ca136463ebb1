"""Lists as a file that is checked and sent, each contact once."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

from tumira.contacts import store
from tumira.contacts.list_rules import ListPart, join_lists, write_file
from tumira.contacts.store import ContactList
from tumira.postgres.connection import Connection
from tumira.uploads.csv_file import ROWS_MAX

_NAME_MAX: Final = 80


@dataclass(frozen=True, slots=True)
class Part:
    """Contacts that one send reaches: those behind the number `after`, counted from `first` to `last`."""

    after: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Lists that are chosen together, and the parts in which they are sent: one if they are short."""

    lists: Sequence[ContactList]
    parts: Sequence[Part]

    @property
    def contacts(self) -> int:
        """How many contacts the lists have together, each number counted once."""
        return self.parts[-1].last if self.parts else 0

    def name_file(self, part: Part) -> str:
        """Name the file after the lists, and after the part if there are several."""
        name = ", ".join(one.name for one in self.lists)
        name = name if len(name) <= _NAME_MAX else name[: _NAME_MAX - 1] + "…"
        return name if len(self.parts) == 1 else f"{name} ({part.first:,} to {part.last:,})"


async def select_lists(connection: Connection, chosen: Sequence[ContactList]) -> Selection:
    """Count the contacts of some lists together, and cut them into parts."""
    cuts = await store.list_cuts(connection, [one.id for one in chosen], ROWS_MAX) if chosen else []
    ends = [(0, ""), *cuts]
    parts = [Part(after, place + 1, last) for (place, after), (last, _end) in pairwise(ends)]
    return Selection(chosen, parts)


async def write_part(
    connection: Connection, selection: Selection, part: Part, message: str, others: Sequence[str] = ()
) -> bytes:
    """Write the file of a part, with numbers that are in no list before it.

    A MessageError says what is wrong with the message.
    """
    count = part.last - part.first + 1
    read = [
        ListPart(one.columns, await store.list_cells(connection, one.id, part.after, count))
        for one in selection.lists
    ]
    return await asyncio.to_thread(_write, read, count, message, others)


def _write(read: Sequence[ListPart], count: int, message: str, others: Sequence[str]) -> bytes:
    joined = join_lists(read)
    contacts = dict(islice(joined.contacts.items(), count))
    alone = [number for number in dict.fromkeys(others) if number not in contacts]
    return write_file(ListPart(joined.columns, contacts), message, alone)
