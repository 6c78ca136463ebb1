"""Rules of contact lists: names, columns and cells, what an import adds, and the file of a send.

A contact is a number in E.164 and a cell for each column of its list. A number is in a list once.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from tumira.core.translation import _
from tumira.pricing.destinations import Tariff
from tumira.uploads.csv_file import (
    COLUMNS_MAX as FILE_COLUMNS_MAX,
)
from tumira.uploads.csv_file import NUMBER_NAMES, CsvFile, can_be_number, name_key
from tumira.uploads.places import MessageError, read_places
from tumira.uploads.rows import RowFault, read_numbers

# Of an account: lists, and contacts in all of them together.
LISTS_MAX: Final = 50
CONTACTS_MAX: Final = 100_000
LIST_NAME_MAX: Final = 60
COLUMNS_MAX: Final = 20
COLUMN_NAME_MAX: Final = 40
# The characters in all cells of a contact together.
CELLS_MAX: Final = 400

# The place in a message that stands for the number itself.
NUMBER_COLUMN: Final = NUMBER_NAMES[0]
FIRST_COLUMNS: Final = ("name",)
TOO_LONG: Final = "TOO_LONG"
_NUL: Final = "\x00"

Cells = tuple[str, ...]


class ListError(ValueError):
    """A list cannot be changed so; the words say what to do."""


class ReadContacts(Struct, frozen=True):
    """The contacts of a file, each number once, with the columns of the list that they are for."""

    columns: Sequence[str]
    contacts: Mapping[str, Cells]
    faults: Sequence[RowFault]
    # How many rows had a number of a row before.
    repeated: int


def check_list_name(name: str) -> str | None:
    """Say what is wrong with the name of a list, or of a text; None if nothing is."""
    if not name:
        return _("Enter a name.")
    if len(name) > LIST_NAME_MAX:
        return _("Enter at most {length} characters.").format(length=LIST_NAME_MAX)
    return None


def check_column(name: str, others: Iterable[str]) -> str | None:
    """Say what is wrong with the name of a column beside the others of its list; None if nothing is."""
    if not name:
        return _("Enter a name.")
    if len(name) > COLUMN_NAME_MAX:
        return _("Enter at most {length} characters.").format(length=COLUMN_NAME_MAX)
    if "{" in name or "}" in name:
        return _("Leave out the braces. A message has them around the name of a column.")
    # Either would be taken for the numbers, and not for their heading, where a list becomes a file.
    if name_key(name) == NUMBER_COLUMN or can_be_number(name):
        return _("“{name}” stands for the phone number. Choose another name.").format(name=name)
    if name_key(name) in map(name_key, others):
        return _("This list already has a column “{name}”.").format(name=name)
    return None


def add_column(columns: Sequence[str], name: str) -> Sequence[str]:
    """Return the columns of a list with one more."""
    name = " ".join(name.split())
    fault = check_column(name, columns)
    if fault is not None:
        raise ListError(fault)
    if len(columns) >= COLUMNS_MAX:
        raise ListError(_("A list has at most {most} columns.").format(most=COLUMNS_MAX))
    return [*columns, name]


def clean_cells(cells: Sequence[str], width: int) -> Cells:
    """Write the cells of a contact as they are stored: without blanks around them, as many as columns."""
    plain = [cell.replace(_NUL, "").strip() for cell in cells[:width]]
    return (*plain, *[""] * (width - len(plain)))


def check_cells(cells: Sequence[str]) -> str | None:
    """Say what is wrong with the cells of a contact; None if nothing is."""
    length = sum(map(len, cells))
    if length <= CELLS_MAX:
        return None
    return _("This contact has {length} characters in its columns. At most {most} can be kept.").format(
        length=f"{length:,}", most=CELLS_MAX
    )


def merge_cells(before: Sequence[str], after: Sequence[str]) -> Cells:
    """Return the later cells, and the earlier ones where the later are empty."""
    width = max(len(before), len(after))
    return tuple(
        new or old for old, new in zip(clean_cells(before, width), clean_cells(after, width), strict=True)
    )


def read_contacts(tariff: Tariff, country: str | None, columns: Sequence[str], file: CsvFile) -> ReadContacts:
    """Read the contacts of a file for a list with these columns; a ListError says why it cannot be.

    Its columns are found by name, and new ones are added, unless they are empty. Where a number stands in
    several rows, a later row completes and corrects the earlier ones.
    """
    places, columns = _place_columns(columns, file)
    contacts: dict[str, Cells] = {}
    faults: list[RowFault] = []
    repeated = 0
    for row, number in zip(file.rows, read_numbers(tariff, file, country), strict=True):
        if isinstance(number, RowFault):
            faults.append(number)
            continue
        cells = [""] * len(columns)
        for place, column in places.items():
            cells[column] = row.cells[place] if place < len(row.cells) else ""
        merged = merge_cells(contacts.get(number, ()), cells)
        problem = check_cells(merged)
        if problem is not None:
            faults.append(RowFault(row.line, row.cells, TOO_LONG, problem, _("Shorten the cells.")))
            continue
        repeated += number in contacts
        contacts[number] = merged
    return ReadContacts(columns, contacts, faults, repeated)


def _place_columns(columns: Sequence[str], file: CsvFile) -> tuple[Mapping[int, int], Sequence[str]]:
    """Return for each column of a file that counts its place in the list, and the columns of the list."""
    places: dict[int, int] = {}
    for place, name in enumerate(file.columns):
        if place == file.number_column:
            continue
        known = {name_key(one): column for column, one in enumerate(columns)}
        if name_key(name) not in known:
            if not any(row.cells[place].strip() for row in file.rows if place < len(row.cells)):
                continue
            try:
                columns = add_column(columns, name)
            except ListError as error:
                said = _("Column “{name}”: {problem} Change the heading, or remove the column.")
                raise ListError(said.format(name=name[:COLUMN_NAME_MAX], problem=error)) from None
        places[place] = known.get(name_key(name), len(columns) - 1)
    return places, columns


class ListPart(Struct, frozen=True):
    """The contacts of a list, or some of them, in the order of their numbers."""

    columns: Sequence[str]
    contacts: Mapping[str, Sequence[str]]


def join_lists(parts: Sequence[ListPart]) -> ListPart:
    """Return the contacts of several lists, each number once.

    Columns with the same name are one. The first list in which a contact has a value counts.
    """
    columns: dict[str, str] = {}
    for part in parts:
        for name in part.columns:
            columns.setdefault(name_key(name), name)
    order = {key: place for place, key in enumerate(columns)}
    contacts: dict[str, Cells] = {}
    for part in parts:
        places = [order[name_key(name)] for name in part.columns]
        for number, cells in part.contacts.items():
            laid = [""] * len(columns)
            for place, cell in zip(places, clean_cells(cells, len(places)), strict=True):
                laid[place] = cell
            contacts[number] = merge_cells(laid, contacts.get(number, ()))
    return ListPart(list(columns.values()), dict(sorted(contacts.items())))


def find_unknown_places(message: str, columns: Sequence[str]) -> Sequence[str]:
    """Return the places of a message for which lists have no column; a MessageError if it has faulty ones."""
    known = {name_key(name) for name in (NUMBER_COLUMN, *columns)}
    return list(dict.fromkeys(name for name in read_places(message).names if name_key(name) not in known))


def write_file(part: ListPart, message: str, others: Sequence[str] = ()) -> bytes:
    """Write contacts as the file in which they are sent, behind `others`: numbers that are in no list.

    A MessageError says what is wrong with the places of the message.
    """
    unknown = find_unknown_places(message, part.columns)
    if unknown:
        raise MessageError(
            _(
                "The lists have no column {unknown}. Their columns are {known}. To send a brace, write it "
                "twice."
            ).format(
                unknown=", ".join(f"{{{name[:COLUMN_NAME_MAX]}}}" for name in unknown),
                known=", ".join(f"{{{name}}}" for name in (NUMBER_COLUMN, *part.columns)),
            )
        )
    used = {name_key(name) for name in read_places(message).names}
    # A file has fewer columns than lists may have together: those that are used come first.
    order = sorted(range(len(part.columns)), key=lambda place: name_key(part.columns[place]) not in used)
    order = order[: FILE_COLUMNS_MAX - 1]
    text = io.StringIO()
    # Said, so that no cell can be taken for another delimiter.
    text.write("sep=,\r\n")
    writer = csv.writer(text)
    writer.writerow([NUMBER_COLUMN, *(part.columns[place] for place in order)])
    writer.writerows([number, *[""] * len(order)] for number in others)
    for number, cells in part.contacts.items():
        writer.writerow([number, *(cells[place] for place in order)])
    return text.getvalue().encode()
