"""Contacts are read once each, lists are joined without loss, and the file of a send says what they say."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pricing.test_destinations import TARIFF
from tumira.contacts.list_rules import (
    CELLS_MAX,
    COLUMN_NAME_MAX,
    COLUMNS_MAX,
    LIST_NAME_MAX,
    NUMBER_COLUMN,
    TOO_LONG,
    ListError,
    ListPart,
    ReadContacts,
    add_column,
    check_column,
    check_list_name,
    join_lists,
    merge_cells,
    read_contacts,
    write_file,
)
from tumira.core.errors import Refusal
from tumira.uploads import rows
from tumira.uploads.csv_file import COLUMNS_MAX as FILE_COLUMNS_MAX
from tumira.uploads.csv_file import CsvError, name_key, read_csv
from tumira.uploads.places import MessageError, without_places
from tumira.uploads.rows import check

ONE: Final = "+263771200001"
TWO: Final = "+263771200002"


def read(text: str, columns: Sequence[str] = ("name",), country: str | None = "ZW") -> ReadContacts:
    return read_contacts(TARIFF, country, columns, read_csv(text.encode()))


def accept(_text: str) -> Refusal | None:
    return None


def nothing(_done: int) -> None:
    pass


def texts_of(
    data: bytes, message: str, screen: Callable[[str], Refusal | None] = accept
) -> Mapping[str, str]:
    """Return the text that each number gets, where a file is sent."""
    checked = check(TARIFF, read_csv(data), message, "ZW", screen, nothing)
    assert not checked.bad, checked.bad
    assert len({one.number for one in checked.good}) == len(checked.good)
    return {one.number: one.text for one in checked.good}


def test_local_numbers_are_completed_and_each_number_is_once() -> None:
    found = read(
        "phone,name,amount\n0771200001,Ada,\n+263 77 120 0001,,5\n0771200002,Ben,7\n263771200002,Benny,"
    )
    assert found.contacts == {ONE: ("Ada", "5"), TWO: ("Benny", "7")}
    assert (found.columns, found.repeated, found.faults) == (["name", "amount"], 2, [])


def test_columns_are_found_by_name_and_empty_ones_are_not_added() -> None:
    found = read("to, Name ,empty,Due Date\n0771200001,Ada,,Friday", ("due  date", "name"))
    assert list(found.columns) == ["due  date", "name"]
    assert found.contacts == {ONE: ("Friday", "Ada")}


def test_rows_without_a_number_or_with_too_much_are_left_out_with_the_reason() -> None:
    found = read(f"to,name\n12,Short\n0771200001,{'x' * (CELLS_MAX + 1)}\n0771200002,Ben")
    assert found.contacts == {TWO: ("Ben",)}
    assert [(one.line, one.code) for one in found.faults] == [(2, "INVALID_NUMBER"), (3, TOO_LONG)]


def test_a_file_without_a_header_has_columns_by_place() -> None:
    assert read("0771200001,Ada\n0771200002,Ben").columns == ["name", "column2"]


@pytest.mark.parametrize("heading", ["{name}", "x" * (COLUMN_NAME_MAX + 1)])
def test_a_heading_that_cannot_be_a_column_is_refused(heading: str) -> None:
    with pytest.raises(ListError, match="Change the heading"):
        read(f"to,{heading}\n0771200001,Ada")


def test_a_list_has_so_many_columns_at_most() -> None:
    columns = [f"c{place}" for place in range(COLUMNS_MAX)]
    with pytest.raises(ListError, match=f"at most {COLUMNS_MAX} columns"):
        add_column(columns, "more")
    assert add_column(columns[1:], " more  room ")[-1] == "more room"


@pytest.mark.parametrize(
    "name", ["", "to", "TO", " to ", "0771200001", "a{b", "Name", "x" * (COLUMN_NAME_MAX + 1)]
)
def test_names_of_columns_that_would_be_misread_are_refused(name: str) -> None:
    assert check_column(name, ["name"]) is not None


def test_a_name_is_not_empty_and_not_too_long() -> None:
    assert check_list_name("Members") is None
    assert check_list_name("") is not None
    assert check_list_name("x" * (LIST_NAME_MAX + 1)) is not None


CELLS = st.lists(st.sampled_from(["", "a", "b", " c "]), max_size=4).map(tuple)


@given(CELLS, CELLS)
def test_merging_loses_no_value_and_prefers_the_later(
    before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    merged = merge_cells(before, after)
    assert len(merged) == max(len(before), len(after))
    for place, value in enumerate(merged):
        old = before[place].strip() if place < len(before) else ""
        new = after[place].strip() if place < len(after) else ""
        assert value == (new or old)
    assert merge_cells(merged, after) == merged


NUMBERS = st.integers(0, 4).map(lambda digit: f"+26377120000{digit}")
WRITTEN = st.integers(0, 4).flatmap(
    lambda digit: st.sampled_from([f"077120000{digit}", f"+263 77 120 000{digit}", f"26377120000{digit}.0"])
)
# No NULs and no halves of pairs, as no form and no file brings them.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(st.lists(st.tuples(WRITTEN, st.sampled_from(["", "Ada", "Ben"])), min_size=1, max_size=12))
def test_an_import_has_each_number_once_with_its_last_value(rows: Sequence[tuple[str, str]]) -> None:
    found = read("\n".join(["to,name", *(f"{number},{name}" for number, name in rows)]))
    last: dict[str, str] = {}
    for number, name in rows:
        key = "+263" + number.removesuffix(".0").replace(" ", "")[-9:]
        last[key] = name or last.get(key, "")
    assert {number: cells[0] for number, cells in found.contacts.items()} == last
    assert found.repeated == len(rows) - len(last)


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["name", "NAME ", "amount", "town"]), unique_by=name_key, max_size=3),
            st.dictionaries(NUMBERS, st.lists(st.sampled_from(["", "x", "y"]), max_size=3), max_size=4),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_joined_lists_have_every_number_once_and_the_first_value(
    lists: Sequence[tuple[Sequence[str], Mapping[str, Sequence[str]]]],
) -> None:
    joined = join_lists([ListPart(columns, contacts) for columns, contacts in lists])
    assert list(joined.contacts) == sorted({number for _, contacts in lists for number in contacts})
    for number, cells in joined.contacts.items():
        for name, value in zip(joined.columns, cells, strict=True):
            given_values = [
                contacts[number][place]
                for columns, contacts in lists
                if number in contacts
                for place, column in enumerate(columns)
                if name_key(column) == name_key(name) and place < len(contacts[number])
            ]
            assert value == next(filter(None, given_values), "")


def value_of(cell: str) -> str:
    """Return a value that is sent; an empty one and the error of a spreadsheet are faults of the row."""
    value = cell.strip()
    return value if value and not rows._SHEET_ERROR.fullmatch(value) else "none"


@given(
    st.dictionaries(NUMBERS, st.tuples(TEXTS, TEXTS), min_size=1),
    TEXTS,
)
def test_every_contact_gets_the_text_with_its_own_values(
    contacts: Mapping[str, tuple[str, str]], own: str
) -> None:
    """A list that is written as a file and read again says the same, whatever its cells hold."""
    filled = {number: tuple(map(value_of, cells)) for number, cells in contacts.items()}
    message = f"{without_places(own)}: {{name}}, {{Due date}}, {{{NUMBER_COLUMN}}}"
    data = write_file(ListPart(["name", "due date"], filled), message)
    read_back = texts_of(data, message)
    for number, (name, due) in filled.items():
        lines = [one.replace("\r\n", "\n").replace("\r", "\n") for one in (name, due)]
        assert read_back[number] == f"{own}: {lines[0]}, {lines[1]}, {number}"


@pytest.mark.parametrize("cell", ["a;b;c;d", "a\tb\tc", '"', 'say "no"', "sep=;", "line\nline", "=1+1", "'0"])
def test_cells_are_sent_as_they_are_kept(cell: str) -> None:
    data = write_file(ListPart(["name"], {ONE: (cell,), TWO: ("Ben",)}), "Dear {name}", ["+27821230001"])
    assert texts_of(write_file(ListPart(["name"], {ONE: (cell,)}), "Dear {name}"), "Dear {name}") == {
        ONE: f"Dear {cell}"
    }
    # A number beside the list has no values.
    checked = check(TARIFF, read_csv(data), "Dear {name}", "ZW", accept, nothing)
    assert [(one.cells[0], one.code) for one in checked.bad] == [("+27821230001", "MISSING_VALUE")]


def test_a_place_that_no_list_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(MessageError, match=r"no column \{nmae\}\. Their columns are \{to\}, \{name\}"):
        write_file(ListPart(["name"], {ONE: ("Ada",)}), "Dear {nmae}")
    with pytest.raises(MessageError, match="write it twice"):
        write_file(ListPart(["name"], {ONE: ("Ada",)}), "Dear {name")


def test_more_columns_than_a_file_may_have_keep_those_that_are_used() -> None:
    columns = [f"c{place}" for place in range(FILE_COLUMNS_MAX + 10)]
    part = ListPart(columns, {ONE: tuple(columns)})
    message = f"{{{columns[-1]}}} {{c0}}"
    assert texts_of(write_file(part, message), message) == {ONE: f"{columns[-1]} c0"}


@pytest.mark.long
@given(
    st.lists(
        st.lists(
            st.text(max_size=60) | st.sampled_from(["0771200001", "+263771200002", "{x}", "to"]), max_size=25
        ),
        min_size=1,
        max_size=12,
    )
)
def test_no_file_breaks_an_import(rows: Sequence[Sequence[str]]) -> None:
    """Whatever a file holds, it is imported or refused with words, within the bounds of a list."""
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    try:
        file = read_csv(written.getvalue().encode(errors="replace"))
        read = read_contacts(TARIFF, "ZW", ["name"], file)
    except (CsvError, ListError):
        return
    assert len(read.columns) <= COLUMNS_MAX
    assert len(read.contacts) + len(read.faults) + read.repeated == len(file.rows)
    for number, cells in read.contacts.items():
        assert number.startswith("+263")
        assert sum(map(len, cells)) <= CELLS_MAX
        assert "\0" not in "".join(cells)
