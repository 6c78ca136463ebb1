"""Rows of a CSV file: the text and price of each that can be sent, and what is wrong with the others."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Final

from msgspec import Struct

from tumira.core.errors import ContentRejected, RecipientCode, Refusal
from tumira.core.translation import _, mark, ngettext
from tumira.pricing.destinations import Recipient, Tariff, sort_recipients
from tumira.pricing.gsm7 import is_blank
from tumira.pricing.gsm7 import name as show_character
from tumira.pricing.phone_numbers import CHANNEL, complete, explain, suggest
from tumira.pricing.segments import SEGMENTS_MAX, Encoding, measure, ucs2_characters
from tumira.uploads.csv_file import CsvFile, CsvRow, can_be_number, name_key
from tumira.uploads.places import MessageError, read_places

# No longer text fits: 153 characters in each segment.
TEXT_MAX: Final = 153 * SEGMENTS_MAX

_LINE_END: Final = re.compile(r"\r\n?")

# What programs make of a number that they take for a quantity.
_FRACTION: Final = re.compile(r"\s*(\+?[0-9]{7,17})[.,]0+\s*")
_SCIENTIFIC: Final = re.compile(r"\s*\+?([0-9])(?:[.,]([0-9]{1,17}))?[eE]\+?([0-9]{1,2})\s*")
_GROUPED: Final = re.compile(r"\s*\+?[0-9]{1,3}(?:,[0-9]{3}){2,4}(?:\.0+)?\s*")
# What a spreadsheet shows where a formula has no result, or a column is too narrow.
_SHEET_ERROR: Final = re.compile(
    r"#(?:N/A|REF!|VALUE!|DIV/0!|NAME\?|NULL!|NUM!|CALC!|SPILL!|FIELD!|BLOCKED!|CONNECT!|UNKNOWN!"
    r"|GETTING_DATA)|#{3,}|Err:[0-9]{3}",
    re.IGNORECASE,
)
_SEVERAL: Final = re.compile(r"[,;/|&\n\r]|\bor\b|\band\b")

_SHOWN_MAX: Final = 3
_SENTENCE_MAX: Final = 60
_NO_TEXT: Final = mark("This row has no text.")


class RowCode(StrEnum):
    INVALID_NUMBER = "INVALID_NUMBER"
    UNSUPPORTED_DESTINATION = "UNSUPPORTED_DESTINATION"
    MISSING_VALUE = "MISSING_VALUE"
    EMPTY_TEXT = "EMPTY_TEXT"
    TOO_MANY_SEGMENTS = "TOO_MANY_SEGMENTS"
    CONTENT_REJECTED = "CONTENT_REJECTED"
    DUPLICATE = "DUPLICATE"
    # Found after the check, when templates had changed or the recipient had opted out.
    NO_LONGER_ALLOWED = "NO_LONGER_ALLOWED"
    RECIPIENT_OPTED_OUT = "RECIPIENT_OPTED_OUT"
    # Found when it was sent.
    RECIPIENT_LIMIT = "RECIPIENT_LIMIT"


class Good(Struct, frozen=True):
    """A row that can be sent."""

    line: int
    number: str
    country: str
    text: str
    segments: int
    cost: Decimal


class RowFault(Struct, frozen=True):
    """A row that cannot be sent, as in the file; `suggestion` is its probable correction."""

    line: int
    cells: Sequence[str]
    code: str
    reason: str
    suggestion: str | None


class Checked(Struct, frozen=True):
    """Every row of a file, good or bad, in its order; `texts` is how many differ among the good ones."""

    good: Sequence[Good]
    bad: Sequence[RowFault]
    texts: int


class _Fault(Struct, frozen=True):
    """What is wrong with a number, or with a text wherever it stands."""

    code: str
    reason: str
    suggestion: str | None = None


def check(
    tariff: Tariff,
    file: CsvFile,
    message: str,
    country: str | None,
    screen: Callable[[str], Refusal | None],
    passed: Callable[[int], None],
    bar: Callable[[str, str], RecipientCode | None] = lambda _number, _text: None,
) -> Checked:
    """Give every row of a file its verdict; numbers without a country code are those of `country`.

    A MessageError says what is wrong with the message, whatever the rows hold. `screen` checks each text
    once, and `passed` gets the count of checked rows before each row; either may end the check by raising
    something. `bar` says why a number may not get a text.
    """
    form = _read_form(message, file.columns)
    numbers = [_read_number(tariff, country, _cell(row, file.number_column)) for row in file.rows]
    recipients = sort_recipients(tariff, CHANNEL, numbers)
    accepted = {one.number: one for one in recipients.accepted}
    refused = {one.to: one.code for one in recipients.rejected}
    texts = _Texts(screen)
    lines: dict[tuple[str, str], int] = {}
    good: list[Good] = []
    bad: list[RowFault] = []
    for place, (row, number) in enumerate(zip(file.rows, numbers, strict=True)):
        passed(place)
        recipient = accepted.get(number)
        outcome: Good | _Fault
        if recipient is None:
            outcome = _fault_of_number(
                tariff, country, _cell(row, file.number_column), number, refused[number]
            )
        else:
            outcome = _write(row, recipient, form, texts, lines)
            barred = bar(number, outcome.text) if isinstance(outcome, Good) else None
            if barred is not None:
                outcome = _Fault(barred, explain(tariff, number, barred))
        if isinstance(outcome, Good):
            good.append(outcome)
        else:
            bad.append(RowFault(row.line, row.cells, str(outcome.code), outcome.reason, outcome.suggestion))
    return Checked(good, bad, len({text for _number, text in lines}))


def read_numbers(tariff: Tariff, file: CsvFile, country: str | None) -> Sequence[str | RowFault]:
    """Return the number of every row of a file as it is sent to, or what is wrong with it."""
    cells = [_cell(row, file.number_column) for row in file.rows]
    numbers = [_read_number(tariff, country, cell) for cell in cells]
    refused = {one.to: one.code for one in sort_recipients(tariff, CHANNEL, numbers).rejected}
    read: list[str | RowFault] = []
    for row, cell, number in zip(file.rows, cells, numbers, strict=True):
        if number not in refused:
            read.append(number)
            continue
        fault = _fault_of_number(tariff, country, cell, number, refused[number])
        read.append(RowFault(row.line, row.cells, str(fault.code), fault.reason, fault.suggestion))
    return read


def _cell(row: CsvRow, column: int) -> str:
    return row.cells[column] if column < len(row.cells) else ""


class _Form(Struct, frozen=True):
    """A message between whose pieces the cells of a row are put."""

    # The text between the places, one piece more than there are places, and the column of each place.
    pieces: Sequence[str]
    columns: Sequence[int]
    # How often each column is used, and its name.
    uses: Mapping[int, int]
    names: Mapping[int, str]
    # How long the pieces are together, and whether they say anything.
    length: int
    is_blank: bool


def _read_form(message: str, columns: Sequence[str]) -> _Form:
    """Take a message apart at its places, each of which names a column."""
    by_key = {name_key(column): place for place, column in enumerate(columns)}
    found = read_places(message)
    unknown = [f"{{{name}}}" for name in found.names if name_key(name) not in by_key]
    if unknown:
        named = ", ".join(dict.fromkeys(unknown))
        known = ", ".join(f"{{{_shorten(column)}}}" for column in columns)
        raise MessageError(
            _(
                "The file has no column {unknown}. Its columns are {known}. To send a brace, write it twice."
            ).format(unknown=_shorten(named), known=known)
        )
    used = [by_key[name_key(name)] for name in found.names]
    names = {column: columns[column] for column in used}
    own = "".join(found.pieces)
    return _Form(found.pieces, used, Counter(used), names, len(own), is_blank(own))


class _Texts:
    """The segments of every text met so far, or what is wrong with it; each is looked at once."""

    def __init__(self, screen: Callable[[str], Refusal | None]) -> None:
        self._screen = screen
        self._known: dict[str, int | _Fault] = {}

    def look_at(self, text: str) -> int | _Fault:
        """Return how many segments a text takes, or why it cannot be sent."""
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._check_length(text)
        return known

    def _check_length(self, text: str) -> int | _Fault:
        if is_blank(text):
            return _Fault(RowCode.EMPTY_TEXT, _(_NO_TEXT))
        size = measure(text)
        if size.segments > SEGMENTS_MAX:
            return _too_many_segments(text, size.segments, size.encoding)
        refusal = self._screen(text)
        return size.segments if refusal is None else _refused(refusal)


def _write(
    row: CsvRow, recipient: Recipient, form: _Form, texts: _Texts, lines: dict[tuple[str, str], int]
) -> Good | _Fault:
    """Write the text of a row whose number is good."""
    values = {column: _LINE_END.sub("\n", _cell(row, column).strip()) for column in form.uses}
    if not all(values.values()):
        return _missing(form, values)
    for column, value in values.items():
        if _SHEET_ERROR.fullmatch(value):
            return _Fault(RowCode.MISSING_VALUE, _shows_error(value, form.names[column]))
    length = form.length + sum(len(values[column]) * uses for column, uses in form.uses.items())
    # Before it is written: a place that stands there a thousand times makes a very long text.
    if length > TEXT_MAX:
        return _too_many_characters(length)
    text = form.pieces[0] + "".join(
        values[column] + piece for column, piece in zip(form.columns, form.pieces[1:], strict=True)
    )
    segments = texts.look_at(text)
    if isinstance(segments, _Fault):
        return segments
    first = lines.setdefault((recipient.number, text), row.line)
    if first != row.line:
        return _Fault(
            RowCode.DUPLICATE, _("Row {row} sends the same text to this number.").format(row=f"{first:,}")
        )
    return Good(row.line, recipient.number, recipient.country, text, segments, recipient.price_usd * segments)


def _missing(form: _Form, values: Mapping[int, str]) -> _Fault:
    if form.is_blank and not any(values.values()):
        return _Fault(RowCode.EMPTY_TEXT, _(_NO_TEXT))
    names = ", ".join(f"“{form.names[column]}”" for column, value in values.items() if not value)
    return _Fault(RowCode.MISSING_VALUE, _("This row has no value for {columns}.").format(columns=names))


def _shows_error(shown: str, column: str) -> str:
    said = _("“{column}” shows {error}. Correct this cell in your spreadsheet and save the file again.")
    return said.format(column=column, error=shown)


def _too_many_characters(length: int) -> _Fault:
    excess = length - TEXT_MAX
    return _Fault(
        RowCode.TOO_MANY_SEGMENTS,
        _("The text has {length} characters. At most {most} ({segments} segments) can be sent.").format(
            length=f"{length:,}", most=TEXT_MAX, segments=SEGMENTS_MAX
        ),
        ngettext("Shorten it by {excess} character.", "Shorten it by {excess} characters.", excess).format(
            excess=f"{excess:,}"
        ),
    )


def _too_many_segments(text: str, segments: int, encoding: Encoding) -> _Fault:
    reason = _("The text has {segments} segments. At most {most} can be sent.").format(
        segments=segments, most=SEGMENTS_MAX
    )
    if encoding is Encoding.GSM_7:
        return _Fault(RowCode.TOO_MANY_SEGMENTS, reason, _("Shorten it."))
    characters = ucs2_characters(text)
    shown = _name_first([show_character(one) for one in characters])
    return _Fault(
        RowCode.TOO_MANY_SEGMENTS,
        reason,
        _("Shorten it, or remove {characters}: they more than halve the length of a segment.").format(
            characters=shown
        ),
    )


def _refused(refusal: Refusal) -> _Fault:
    """Say why a text was not let through, and which sentences to leave out."""
    if not isinstance(refusal, ContentRejected) or not refusal.details:
        return _Fault(refusal.code, refusal.message)
    if refusal.detail["category"] == ContentRejected.BLOCKED:
        return _Fault(refusal.code, _("We have blocked texts like this one."))
    drop: Sequence[str] = refusal.detail["drop"]
    if not drop:
        said = _("This is marketing, which we do not send. Send only what people asked for or need to know.")
        return _Fault(refusal.code, said)
    shown = _name_first([f"“{_shorten(sentence)}”" for sentence in drop])
    return _Fault(
        refusal.code,
        _("Part of the text is marketing, which we do not send."),
        _("Remove {sentences}.").format(sentences=shown),
    )


def _name_first(names: Sequence[str]) -> str:
    """List the first of some names, and say how many more there are."""
    shown = ", ".join(names[:_SHOWN_MAX])
    if len(names) <= _SHOWN_MAX:
        return shown
    return _("{shown} and {count} more").format(shown=shown, count=len(names) - _SHOWN_MAX)


def _shorten(sentence: str) -> str:
    sentence = " ".join(sentence.split())
    return sentence if len(sentence) <= _SENTENCE_MAX else sentence[: _SENTENCE_MAX - 1].rstrip() + "…"


def _read_number(tariff: Tariff, country: str | None, cell: str) -> str:
    """Write a number as it would be sent to, if it is one; one without a country code is one of `country`."""
    if "," in cell and _GROUPED.fullmatch(cell):
        cell = cell.replace(",", "")
    whole = _FRACTION.fullmatch(cell)
    return complete(tariff, whole[1] if whole else cell, country)


def _fault_of_number(
    tariff: Tariff, country: str | None, cell: str, number: str, code: RecipientCode
) -> _Fault:
    """Say why a cell is no number to send to, and which it probably should be."""
    if not number:
        return _Fault(code, _("This row has no number."))
    if _SHEET_ERROR.fullmatch(cell.strip()):
        return _Fault(
            code, _("This cell shows an error. Correct it in your spreadsheet and save the file again.")
        )
    pieces = [piece for piece in _SEVERAL.split(cell) if can_be_number(piece)]
    if len(pieces) > 1:
        reason = _("This cell has {count} numbers.").format(count=len(pieces))
        return _Fault(code, reason, _("Put each number in its own row."))
    rounded = _SCIENTIFIC.fullmatch(cell)
    if rounded:
        digits = rounded[1] + (rounded[2] or "")
        # With all its digits it is only written strangely; otherwise nobody can tell what they were.
        whole = digits if len(digits) == int(rounded[3]) + 1 else ""
        reason = _("The spreadsheet has changed this number. Format the column as text and enter it again.")
        return _Fault(code, reason, suggest(tariff, whole, country))
    return _Fault(code, explain(tariff, number, code), suggest(tariff, cell, country))
