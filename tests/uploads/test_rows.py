"""Verdicts on the rows of a file."""

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pricing.test_destinations import TARIFF
from tumira.core.errors import ContentRejected, Refusal
from tumira.pricing.destinations import Destination, Price, PriceStatus, Tariff
from tumira.pricing.segments import SEGMENTS_MAX, measure
from tumira.uploads.csv_file import ROWS_MAX, CsvFile, CsvRow, read_csv
from tumira.uploads.places import MessageError
from tumira.uploads.rows import TEXT_MAX, Checked, Good, RowCode, RowFault, check

NUMBER = "+263771200001"
OTHER = "+27821230001"
ZW_PRICE = Decimal("0.0400")
TEXT = "Your order is ready."
EMOJI = "\N{GRINNING FACE}"


class Screen:
    """Refuses texts with the word `sale`, and counts how often it was asked about each."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, text: str) -> Refusal | None:
        self.asked[text] += 1
        if "blocked" in text:
            return ContentRejected.blocked()
        if "sale" not in text:
            return None
        drop = [one for one in text.split(".") if "sale" in one] if "." in text else []
        return ContentRejected.of("marketing", 0.9, [], drop)


def file_of(rows: Sequence[Sequence[str]], columns: Sequence[str] = ("to", "name")) -> CsvFile:
    return CsvFile(tuple(columns), [CsvRow(line, tuple(cells)) for line, cells in enumerate(rows, 2)], 0)


def run(
    rows: Sequence[Sequence[str]],
    message: str = TEXT,
    country: str | None = None,
    *,
    columns: Sequence[str] = ("to", "name"),
    tariff: Tariff = TARIFF,
    screen: Callable[[str], Refusal | None] | None = None,
) -> Checked:
    return check(tariff, file_of(rows, columns), message, country, screen or Screen(), lambda _: None)


def bad_of(cell: str, country: str | None = None) -> RowFault:
    checked = run([[cell, "Moyo"]], country=country)
    assert not checked.good
    return checked.bad[0]


def problem_of(message: str, columns: Sequence[str] = ("to", "name")) -> str:
    with pytest.raises(MessageError) as refused:
        run([], message, columns=columns)
    return str(refused.value)


def test_good_rows_are_written_and_priced_by_country() -> None:
    assert run(
        [[NUMBER, "Moyo"], [OTHER, "Nkosi"], ["+263771200002", "Dube" * 40]], "Dear {name}"
    ) == Checked(
        good=[
            Good(2, NUMBER, "ZW", "Dear Moyo", 1, Decimal("0.0400")),
            Good(3, OTHER, "ZA", "Dear Nkosi", 1, Decimal("0.0200")),
            Good(4, "+263771200002", "ZW", "Dear " + "Dube" * 40, 2, Decimal("0.0800")),
        ],
        bad=[],
        texts=3,
    )


# Messages


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("{name}{name} {TO}", f"MoyoMoyo {NUMBER}"),
        ("Hi { Name }!", "Hi Moyo!"),
        ("{{name}} {{{name}}} }}{{", "{name} {Moyo} }{"),
        ("100% {name} %s \\1 {{0}}", "100% Moyo %s \\1 {0}"),
    ],
)
def test_places_are_filled_and_doubled_braces_are_braces(message: str, text: str) -> None:
    assert run([[NUMBER, " Moyo\t"]], message).good[0].text == text


def test_what_stands_in_a_cell_is_no_place_and_the_end_of_a_line_one_character() -> None:
    good = run([[NUMBER, "{to} {{x}} {"], [NUMBER, "a\r\nb\rc\nd"]], "Hi {name}").good
    assert [one.text for one in good] == ["Hi {to} {{x}} {", "Hi a\nb\nc\nd"]


@pytest.mark.parametrize("message", ["{name", "name}", "{name}}", "{{name}", "{a{name}", ":-{"])
def test_a_single_brace_is_refused_in_words_that_say_how_to_write_one(message: str) -> None:
    assert problem_of(message).endswith(("twice: {{.", "twice: }}."))


def test_a_blank_message_and_unknown_places_are_refused() -> None:
    assert problem_of("") == problem_of(" \n\t") == "Write the message."
    problem = problem_of("{nmae} {to} {x} {x} {}", ("to", "name", "amount due"))
    assert "no column {nmae}, {x}, {}. Its columns are {to}, {name}, {amount due}." in problem


# Numbers


@pytest.mark.parametrize(
    "cell",
    [
        *("0771200001", "771200001", "263771200001", NUMBER, "00263771200001", "077 120 0001"),
        *("(0)77-120-0001", "+263 (0)77 120 0001", "077/120/0001"),
        *(" +263 (77) 120-0001\u202c", "263771200001.0", "0771200001,00", "\u200e+263 77\xa0120\u20110001"),
    ],
)
def test_a_number_of_the_chosen_country_is_completed(cell: str) -> None:
    assert [one.number for one in run([[cell, ""]], country="ZW").good] == [NUMBER]


@pytest.mark.parametrize("country", ["ZA", None, "XX"])
def test_a_full_number_needs_no_country(country: str | None) -> None:
    for cell in (NUMBER, "00263771200001", "+263 77 120 0001", "263771200001", "+263 (0)77 120 0001"):
        assert [one.number for one in run([[cell, ""]], country=country).good] == [NUMBER]


@pytest.mark.parametrize(
    ("cell", "country", "reason", "suggestion"),
    [
        (" \t", "ZW", "no number", None),
        ("Moyo", "ZW", "This is not a phone number.", None),
        ("0771200001", None, "country code", "+263771200001 (Zimbabwe) or +27771200001 (South Africa)"),
        ("0821230001", "ZW", "not a mobile number in Zimbabwe", OTHER),
        ("0242000000", "ZW", "not a mobile number in Zimbabwe", None),
        ("077120001", "ZW", "Numbers in Zimbabwe have 9 digits after +263. This one has 8.", None),
        ("263771200", "ZW", "Numbers in Zimbabwe have 9 digits after +263. This one has 6.", None),
        ("+26377120000", "ZW", "Numbers in Zimbabwe have 9 digits after +263. This one has 8.", None),
        ("+0771200001", "ZW", "country code", NUMBER),
        ("O77l2OOOOI", "ZW", "not a phone number", NUMBER),
        ("+26377120000l", None, "not a phone number", NUMBER),
        ("2.63771E+11", "ZW", "Format the column as text", None),
        ("2.63771200001E+11", None, "Format the column as text", NUMBER),
        ("#N/A", "ZW", "This cell shows an error.", None),
        ("########", "ZW", "This cell shows an error.", None),
        ("0771200001/0771200002", "ZW", "2 numbers", "Put each number in its own row."),
        (f"{NUMBER}; {OTHER} or 0771200003", None, "3 numbers", "Put each number in its own row."),
        ("=1+1", "ZW", "not a phone number", None),
        ("\N{FULLWIDTH DIGIT ZERO}771200001", "ZW", "not a phone number", None),
    ],
)
def test_what_is_no_number_is_explained(
    cell: str, country: str | None, reason: str, suggestion: str | None
) -> None:
    bad = bad_of(cell, country)
    assert (bad.code, bad.cells) == (RowCode.INVALID_NUMBER, (cell, "Moyo"))
    assert reason in bad.reason
    assert bad.suggestion == suggestion


def test_a_number_of_another_country_or_of_one_without_a_price_is_an_unsupported_destination() -> None:
    zambia = Destination("ZM", "260", "Zambia", (9,))
    tariff = Tariff(2, [*TARIFF.destinations, zambia], TARIFF.prices)
    cells = ["+15550001234", "0015550001234", "+447911123456", "0955000000"]
    bad = run([[cell, ""] for cell in cells], country="ZM", tariff=tariff).bad
    assert [(one.code, one.suggestion) for one in bad] == [(RowCode.UNSUPPORTED_DESTINATION, None)] * 4


def test_countries_of_several_lengths_complete_each() -> None:
    zambia = Destination("ZM", "260", "Zambia", (8, 9))
    price = Price("sms", "ZM", Decimal("0.0300"), PriceStatus.ACTIVE)
    tariff = Tariff(2, [*TARIFF.destinations, zambia], [*TARIFF.prices, price])
    rows = [["095500000", ""], ["0955000000", ""], ["26095500000", ""], ["0955", ""], ["09550000001", ""]]
    checked = run(rows, country="ZM", tariff=tariff)
    assert [one.number for one in checked.good] == ["+26095500000", "+260955000000"]
    assert [one.code for one in checked.bad] == ["DUPLICATE", "INVALID_NUMBER", "INVALID_NUMBER"]
    assert checked.bad[-1].reason == "Numbers in Zambia have 8 or 9 digits after +260. This one has 10."


# Texts


def test_the_same_number_is_sent_the_same_text_once_and_the_first_place_is_kept() -> None:
    checked = run([["0771200001", ""], [OTHER, ""], [NUMBER, ""], ["771200001", ""]], country="ZW")
    assert [(one.line, one.number) for one in checked.good] == [(2, NUMBER), (3, OTHER)]
    assert [(one.line, one.code, one.reason) for one in checked.bad] == [
        (4, "DUPLICATE", "Row 2 sends the same text to this number."),
        (5, "DUPLICATE", "Row 2 sends the same text to this number."),
    ]
    # Another text is another message, and a row that is not sent is none that another repeats.
    checked = run([[NUMBER, "sale"], [NUMBER, ""], [NUMBER, "a"], [NUMBER, "b"], [NUMBER, "a "]], "Hi {name}")
    assert [one.text for one in checked.good] == ["Hi a", "Hi b"]
    assert [(one.line, one.code) for one in checked.bad][2:] == [(6, "DUPLICATE")]
    assert checked.texts == 2


def test_a_row_without_a_value_for_a_place_is_not_sent() -> None:
    rows = [[NUMBER, " ", "5"], [NUMBER, "Moyo", ""], [NUMBER], [NUMBER, "Moyo", "5"]]
    checked = run(rows, "{name} owes {sum}", columns=("to", "name", "sum"))
    assert [one.line for one in checked.good] == [5]
    assert [(one.code, one.reason) for one in checked.bad] == [
        ("MISSING_VALUE", "This row has no value for “name”."),
        ("MISSING_VALUE", "This row has no value for “sum”."),
        ("MISSING_VALUE", "This row has no value for “name”, “sum”."),
    ]


def test_a_row_whose_whole_text_is_missing_has_an_empty_text() -> None:
    assert [one.code for one in run([[NUMBER, " "]], " {name}\n").bad] == ["EMPTY_TEXT"]
    assert [one.code for one in run([[NUMBER, "\u200b"]], "\xa0{name}\u2060").bad] == ["EMPTY_TEXT"]


@pytest.mark.parametrize(
    ("value", "suggestion"),
    [
        ("x" * (TEXT_MAX + 1), "Shorten it by 1 character."),
        ("€" * 400, "Shorten it."),
        (EMOJI * 200, f"Shorten it, or remove {EMOJI}: "),
        ("ćšžđč" * 100, "Shorten it, or remove ć, š, ž and 2 more: "),
    ],
)
def test_a_text_that_is_too_long_says_how_it_fits(value: str, suggestion: str) -> None:
    screen = Screen()
    bad = run([[NUMBER, value]], "{name}", screen=screen).bad[0]
    assert bad.code == "TOO_MANY_SEGMENTS"
    assert "At most " in bad.reason
    assert f"{SEGMENTS_MAX} " in bad.reason
    assert (bad.suggestion or "").startswith(suggestion)
    assert not screen.asked


def test_the_longest_text_is_sent() -> None:
    assert run([[NUMBER, "x" * TEXT_MAX]], "{name}").good[0].segments == SEGMENTS_MAX


def test_a_place_that_is_named_ten_thousand_times_is_never_written_out() -> None:
    screen = Screen()
    bad = run([[NUMBER, "x" * 2000]] * 1000, "{name}" * 10_000, screen=screen).bad
    assert {one.code for one in bad} == {"TOO_MANY_SEGMENTS"}
    assert bad[0].reason.startswith("The text has 20,000,000 characters")


def test_a_refused_text_says_what_to_leave_out() -> None:
    values = ["A sale", "Paid. Big sale on. Bye", "blocked", ". ".join(f"sale {n}" for n in range(5))]
    bad = run([[NUMBER, value] for value in values], "{name}").bad
    assert {one.code for one in bad} == {"CONTENT_REJECTED"}
    assert [one.suggestion for one in bad] == [
        None,
        "Remove “Big sale on”.",
        None,
        "Remove “sale 0”, “sale 1”, “sale 2” and 2 more.",
    ]
    assert "marketing" in bad[0].reason
    assert "blocked" in bad[2].reason


def test_a_refused_message_without_places_makes_every_row_bad() -> None:
    screen = Screen()
    checked = run([[NUMBER, ""], ["x", ""], [OTHER, ""]], "Big sale", screen=screen)
    assert [one.code for one in checked.bad] == ["CONTENT_REJECTED", "INVALID_NUMBER", "CONTENT_REJECTED"]
    assert checked.texts == 0
    assert screen.asked == {"Big sale": 1}


def test_each_text_of_a_large_file_is_judged_once() -> None:
    lines = [f"077120{number:04d},Moyo {number // 2}" for number in range(ROWS_MAX)]
    file = read_csv("\n".join(["to,name", *lines]).encode())
    for message, texts in ((TEXT, 1), ("Dear {name}", ROWS_MAX // 2)):
        screen = Screen()
        checked = check(TARIFF, file, message, "ZW", screen, lambda _: None)
        assert [one.cost for one in checked.good] == [ZW_PRICE] * ROWS_MAX
        assert (checked.texts, len(screen.asked), screen.asked.total()) == (texts, texts, texts)


# Anything


CELL = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.builds(
        "".join,
        st.tuples(
            st.sampled_from(["", "+", "00", "0"]),
            st.sampled_from(["263", "27", ""]),
            st.text("0123456789 .-", min_size=7, max_size=10),
        ),
    ),
    st.sampled_from([NUMBER, OTHER, "0771200001", "", "sale", "blocked", EMOJI * 80, "x" * 800, "{name}"]),
)
MESSAGE = st.lists(st.sampled_from(["{to}", "{name}", "{x}", "{", "}", "{{", "}}", "Hi ", "sale", "\n"])).map(
    "".join
)


@given(
    rows=st.lists(st.tuples(CELL, CELL), max_size=8),
    message=MESSAGE,
    country=st.sampled_from(["ZW", "ZA", None, "XX", ""]),
)
@settings(max_examples=50)
def test_every_row_is_good_or_bad_exactly_once(
    rows: Sequence[Sequence[str]], message: str, country: str | None
) -> None:
    screen = Screen()
    file = file_of(rows)
    try:
        checked = check(TARIFF, file, message, country, screen, lambda _: None)
    except MessageError:
        assert not message.strip() or "{" in message or "}" in message
        return
    lines = [one.line for one in checked.good] + [one.line for one in checked.bad]
    assert sorted(lines) == [row.line for row in file.rows]
    assert [one.line for one in checked.bad] == sorted(one.line for one in checked.bad)
    assert [one.line for one in checked.good] == sorted(one.line for one in checked.good)
    assert len({(one.number, one.text) for one in checked.good}) == len(checked.good)
    assert all(one.segments == measure(one.text).segments <= SEGMENTS_MAX for one in checked.good)
    assert all("sale" not in one.text and one.text.strip() for one in checked.good)
    assert set(screen.asked.values()) <= {1}
    cells = {row.line: row.cells for row in file.rows}
    for bad in checked.bad:
        assert bad.cells == cells[bad.line]
        assert RowCode(bad.code)
        assert bad.reason.endswith(".")
        assert type(bad.code) is str
