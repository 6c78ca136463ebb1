"""Contact lists and the contacts in them.

A number stands in a list once, and contacts are read in the order of their numbers, by the primary key.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tumira.contacts.list_rules import Cells
from tumira.core.ids import AccountId, ContactListId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# Rows that one statement writes.
PIECE: Final = 1_000


@dataclass(frozen=True, slots=True)
class ContactList:
    """A list, with the names of its columns beside the number, and how many contacts it has."""

    id: ContactListId
    account_id: AccountId
    name: str
    columns: Sequence[str]
    created_at: datetime
    contacts: int


@dataclass(frozen=True, slots=True)
class Contact:
    number: str
    cells: Sequence[str]
    opted_out: bool


SQL_LOCK: Final = Statement(
    "SELECT pg_advisory_xact_lock(hashtextextended('tumira contacts' || %(account_id)s::uuid::text, 0))"
)


async def lock(connection: Connection, account_id: AccountId) -> None:
    """Let nobody else change lists or texts of an account until the transaction ends."""
    await SQL_LOCK.rows(connection, account_id=account_id)


_LIST: Final = """
SELECT l.id, l.account_id, l.name, l.columns, l.created_at,
       (SELECT count(*) FROM contacts c WHERE c.list_id = l.id) AS contacts
  FROM contact_lists l
 WHERE l.account_id = %(account_id)s
"""

SQL_LIST_LISTS: Final = Statement(_LIST + "ORDER BY lower(l.name)")

SQL_FIND_LIST: Final = Statement(_LIST + "AND l.id = %(list_id)s")


async def list_lists(connection: Connection, account_id: AccountId) -> Sequence[ContactList]:
    """Return all lists of an account, by name."""
    return [ContactList(*row) for row in await SQL_LIST_LISTS.rows(connection, account_id=account_id)]


async def find_list(
    connection: Connection, account_id: AccountId, list_id: ContactListId
) -> ContactList | None:
    """Return a list; None for an unknown one and for another account's."""
    row = await SQL_FIND_LIST.row(connection, account_id=account_id, list_id=list_id)
    return None if row is None else ContactList(*row)


SQL_INSERT_LIST: Final = Statement("""
INSERT INTO contact_lists (id, account_id, name, columns)
VALUES (%(list_id)s, %(account_id)s, %(name)s, %(columns)s)
""")


async def insert_list(
    connection: Connection, account_id: AccountId, list_id: ContactListId, name: str, columns: Sequence[str]
) -> None:
    await SQL_INSERT_LIST.rows(connection, account_id=account_id, list_id=list_id, name=name, columns=columns)


SQL_RENAME_LIST: Final = Statement("UPDATE contact_lists SET name = %(name)s WHERE id = %(list_id)s")


async def rename_list(connection: Connection, list_id: ContactListId, name: str) -> None:
    await SQL_RENAME_LIST.rows(connection, list_id=list_id, name=name)


SQL_SET_COLUMNS: Final = Statement("UPDATE contact_lists SET columns = %(columns)s WHERE id = %(list_id)s")


async def set_columns(connection: Connection, list_id: ContactListId, columns: Sequence[str]) -> None:
    await SQL_SET_COLUMNS.rows(connection, list_id=list_id, columns=columns)


SQL_REMOVE_CELLS: Final = Statement("""
UPDATE contacts
   SET cells = cells[:%(place)s::integer] || cells[%(place)s::integer + 2:]
 WHERE list_id = %(list_id)s
   AND cardinality(cells) > %(place)s::integer
""")


async def remove_cells(connection: Connection, list_id: ContactListId, place: int) -> None:
    """Delete what all contacts of a list have in a column, counted from 0."""
    await SQL_REMOVE_CELLS.rows(connection, list_id=list_id, place=place)


# Its contacts go with it.
SQL_DELETE_LIST: Final = Statement("DELETE FROM contact_lists WHERE id = %(list_id)s")


async def delete_list(connection: Connection, list_id: ContactListId) -> None:
    await SQL_DELETE_LIST.rows(connection, list_id=list_id)


SQL_DELETE_OF_ACCOUNT: Final = Statement("DELETE FROM contact_lists WHERE account_id = %(account_id)s")


async def delete_of_account(connection: Connection, account_id: AccountId) -> None:
    """Delete all lists of an account that is closed."""
    await SQL_DELETE_OF_ACCOUNT.rows(connection, account_id=account_id)


SQL_COUNT_CONTACTS: Final = Statement("""
SELECT count(*)
  FROM contact_lists l
  JOIN contacts c ON c.list_id = l.id
 WHERE l.account_id = %(account_id)s
""")


async def count_contacts(connection: Connection, account_id: AccountId) -> int:
    """Return how many contacts all lists of an account have together."""
    return int(await SQL_COUNT_CONTACTS.value(connection, account_id=account_id))


SQL_FIND_CELLS: Final = Statement("""
SELECT number, cells
  FROM contacts
 WHERE list_id = %(list_id)s
   AND number = ANY(%(numbers)s::text[])
""")


async def find_cells(
    connection: Connection, list_id: ContactListId, numbers: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    """Return the cells of those numbers that are in a list."""
    rows = await SQL_FIND_CELLS.rows(connection, list_id=list_id, numbers=numbers)
    return {row["number"]: row["cells"] for row in rows}


# Contacts differ in how many cells they have, which an array of arrays may not, so cells travel as JSON.
SQL_PUT: Final = Statement("""
INSERT INTO contacts (list_id, number, cells)
SELECT %(list_id)s, number, ARRAY(SELECT jsonb_array_elements_text(cells::jsonb))
  FROM unnest(%(numbers)s::text[], %(cells)s::text[]) AS given (number, cells)
 ORDER BY number
    ON CONFLICT (list_id, number) DO UPDATE
   SET cells = excluded.cells
""")


async def put_contacts(connection: Connection, list_id: ContactListId, contacts: Mapping[str, Cells]) -> None:
    """Store contacts of a list, in place of those with the same number."""
    given = [(number, json.dumps(cells, ensure_ascii=False)) for number, cells in sorted(contacts.items())]
    for start in range(0, len(given), PIECE):
        piece = given[start : start + PIECE]
        await SQL_PUT.rows(
            connection,
            list_id=list_id,
            numbers=[number for number, _ in piece],
            cells=[cells for _, cells in piece],
        )


SQL_DELETE_CONTACT: Final = Statement("""
DELETE FROM contacts WHERE list_id = %(list_id)s AND number = %(number)s RETURNING 1
""")


async def delete_contact(connection: Connection, list_id: ContactListId, number: str) -> bool:
    return await SQL_DELETE_CONTACT.value(connection, list_id=list_id, number=number) is not None


_CONTACT: Final = """
SELECT c.number, c.cells,
       EXISTS (SELECT FROM opt_outs o
                WHERE o.account_id = %(account_id)s AND o.number = c.number) AS opted_out
  FROM contacts c
 WHERE c.list_id = %(list_id)s
"""

SQL_FIND_CONTACT: Final = Statement(_CONTACT + "AND c.number = %(number)s")

# A search looks through one list at most.
SQL_LIST_CONTACTS: Final = Statement(
    _CONTACT
    + """
   AND c.number > %(after)s
   AND (%(text)s::text = ''
        OR EXISTS (SELECT FROM unnest(c.cells) AS cell WHERE strpos(lower(cell), lower(%(text)s)) > 0)
        OR (%(digits)s::text <> '' AND strpos(c.number, %(digits)s) > 0))
 ORDER BY c.number
 LIMIT %(count_max)s
"""
)


async def find_contact(connection: Connection, of: ContactList, number: str) -> Contact | None:
    row = await SQL_FIND_CONTACT.row(connection, account_id=of.account_id, list_id=of.id, number=number)
    return None if row is None else Contact(*row)


async def list_contacts(
    connection: Connection,
    of: ContactList,
    count_max: int,
    *,
    after: str = "",
    text: str = "",
    digits: str = "",
) -> Sequence[Contact]:
    """Return contacts behind a number, in order: those whose cells hold a text, or whose number digits."""
    rows = await SQL_LIST_CONTACTS.rows(
        connection,
        account_id=of.account_id,
        list_id=of.id,
        after=after,
        text=text,
        digits=digits,
        count_max=count_max,
    )
    return [Contact(*row) for row in rows]


SQL_LIST_NUMBERS: Final = Statement("""
SELECT number, cells
  FROM contacts
 WHERE list_id = %(list_id)s
   AND number > %(after)s
 ORDER BY number
 LIMIT %(count_max)s
""")


async def list_cells(
    connection: Connection, list_id: ContactListId, after: str, count_max: int
) -> Mapping[str, Sequence[str]]:
    """Return the cells of the first contacts behind a number, by number, in order."""
    rows = await SQL_LIST_NUMBERS.rows(connection, list_id=list_id, after=after, count_max=count_max)
    return {row["number"]: row["cells"] for row in rows}


# The last number of each part, and of all.
SQL_LIST_CUTS: Final = Statement("""
SELECT place, number
  FROM (SELECT number, row_number() OVER (ORDER BY number) AS place, count(*) OVER () AS contacts
          FROM (SELECT DISTINCT number FROM contacts WHERE list_id = ANY(%(list_ids)s::uuid[])) AS once
       ) AS numbered
 WHERE place % %(size)s::integer = 0 OR place = contacts
 ORDER BY place
""")


async def list_cuts(
    connection: Connection, list_ids: Sequence[ContactListId], size: int
) -> Sequence[tuple[int, str]]:
    """Cut the numbers of some lists, each counted once, into parts: place and number of each one's end."""
    rows = await SQL_LIST_CUTS.rows(connection, list_ids=list_ids, size=size)
    return [(row["place"], row["number"]) for row in rows]


@dataclass(frozen=True, slots=True)
class Membership:
    """A list that holds a number."""

    account_id: AccountId
    list_name: str
    columns: Sequence[str]
    cells: Sequence[str]
    added_at: datetime


SQL_LIST_MEMBERSHIPS: Final = Statement("""
SELECT l.account_id, l.name, l.columns, c.cells, c.added_at
  FROM contacts c
  JOIN contact_lists l ON l.id = c.list_id
 WHERE c.number = %(number)s
 ORDER BY c.added_at
 LIMIT %(count_max)s
""")


async def list_memberships(connection: Connection, number: str, count_max: int) -> Sequence[Membership]:
    """Return the lists of all accounts that hold a number, with what they say about it."""
    rows = await SQL_LIST_MEMBERSHIPS.rows(connection, number=number, count_max=count_max)
    return [Membership(*row) for row in rows]
