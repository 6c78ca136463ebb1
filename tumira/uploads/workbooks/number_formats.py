"""Numbers of a workbook, written as their number format shows them.

The format is written as in English, whatever the language of the program that saved it: `#,##0.00`. One rule
goes beyond the look: where a format shows fewer digits than a whole number has, as `2.63771E+11`, all of its
digits are written, because they are a phone number or an id and not a quantity.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

from tumira.uploads.workbooks.date_formats import DateSection, Token, is_date_code

GENERAL: Final = "General"
# The formats that a workbook names by number only (ECMA-376, 18.8.30). 14 and 22 look different in each
# country; ours write the day first.
BUILT_IN: Final[Mapping[int, str]] = {
    0: GENERAL,
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    5: '"$"#,##0;-"$"#,##0',
    6: '"$"#,##0;-"$"#,##0',
    7: '"$"#,##0.00;-"$"#,##0.00',
    8: '"$"#,##0.00;-"$"#,##0.00',
    9: "0%",
    10: "0.00%",
    11: "0.00E+00",
    14: "dd/mm/yyyy",
    15: "d-mmm-yy",
    16: "d-mmm",
    17: "mmm-yy",
    18: "h:mm AM/PM",
    19: "h:mm:ss AM/PM",
    20: "h:mm",
    21: "h:mm:ss",
    22: "dd/mm/yyyy hh:mm",
    37: "#,##0 ;(#,##0)",
    38: "#,##0 ;(#,##0)",
    39: "#,##0.00;(#,##0.00)",
    40: "#,##0.00;(#,##0.00)",
    41: '_(* #,##0_);_(* (#,##0);_(* "-"_);_(@_)',
    42: '_("$"* #,##0_);_("$"* (#,##0);_("$"* "-"_);_(@_)',
    43: '_(* #,##0.00_);_(* (#,##0.00);_(* "-"??_);_(@_)',
    44: '_("$"* #,##0.00_);_("$"* (#,##0.00);_("$"* "-"??_);_(@_)',
    45: "mm:ss",
    46: "[h]:mm:ss",
    47: "mm:ss.0",
    48: "##0.0E+0",
    49: "@",
    # Dates of calendars that we do not write.
    **dict.fromkeys((*range(27, 37), *range(50, 59)), "dd/mm/yyyy"),
}

_CODE_MAX: Final = 255
_WIDTH_MAX: Final = 11
_DIGITS_KEPT: Final = 15
# Larger numbers are shown as 1E+11 unless their format says how.
_LARGE: Final = Decimal(10) ** _WIDTH_MAX
_SMALL: Final = Decimal("0.0001")
_EXACT: Final = Decimal(10) ** _DIGITS_KEPT
_EXPONENT_MAX: Final = 308
_TWO: Final = 2
_THREE: Final = 3
_FOUR: Final = 4

_AS_STORED: Final = Context(prec=_DIGITS_KEPT, rounding=ROUND_HALF_UP)
_WIDE: Final = Context(prec=2 * _EXPONENT_MAX, rounding=ROUND_HALF_UP)
_NUMBER: Final = re.compile(
    r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,3})?"
)
_SCIENTIFIC: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?E[+-]?[0-9]+")
_TOKEN: Final = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|_(?P<space>.)|\*(?P<fill>.)|\[\$(?P<currency>[^\]\-]*)[^\]]*\]'
    r"|(?P<code>;|\[[^\]]*\]|General|AM/PM|A/P|[yY]+|[mM]+|[dD]+|[hH]+|[sS]+|(?:(?<=s)|(?<=s\]))\.0+|E[+-]|[0#?]"
    r"|[.,%/@])"
    r"|(?P<other>.)",
    re.DOTALL | re.IGNORECASE,
)
_CONDITION: Final = re.compile(r"\[(<=|>=|<>|<|>|=)(-?[0-9]{1,15}(?:\.[0-9]{1,15})?)\]")
_COMPARE: Final[Mapping[str, Callable[[Decimal, Decimal], bool]]] = {
    "<": lambda value, bound: value < bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    ">=": lambda value, bound: value >= bound,
    "=": lambda value, bound: value == bound,
    "<>": lambda value, bound: value != bound,
}
_PLACES: Final = frozenset("0#?")


class _Section:
    """A part of a format, for positive or negative numbers, zero or texts."""

    def __init__(self, tokens: Sequence[Token], condition: tuple[str, Decimal] | None) -> None:
        self.condition = condition
        self.tokens = tokens
        codes = [None if one.is_literal else one.text for one in tokens]
        places = [place for place, code in enumerate(codes) if code in _PLACES]
        self.has_text = "@" in codes
        self.is_date = any(code and is_date_code(code) for code in codes)
        self._is_general = any(code == "@" or (code and code.lower() == "general") for code in codes)
        # Fractions, which nobody reads in a message, are written as decimals.
        self._is_fraction = bool(places) and "/" in codes[places[0] :]
        self._hundreds = Decimal(100) ** codes.count("%")
        self._exponent = next((place for place, code in enumerate(codes) if code and code[0] in "Ee"), None)
        self._codes = codes
        self._layout = _Layout(codes, places)
        self._dates = DateSection(tokens)

    def write_date(self, serial: Decimal) -> str:
        return self._dates.write(serial)

    def write_number(self, value: Decimal) -> str:
        if self._is_general:
            return "".join(
                one.text if one.is_literal else write_general(value) if one.text[0] in "@Gg" else ""
                for one in self.tokens
            )
        if self._is_fraction:
            return write_general(value)
        value = _WIDE.multiply(value, self._hundreds)
        if self._exponent is not None:
            return _write_with_exponent(value, self.tokens, self._codes, self._exponent)
        return self._layout.write(value, self.tokens)


class NumberFormat:
    """A format that was read; `date_shift` is added to dates of workbooks that count from 1904."""

    def __init__(self, code: str, date_shift: int = 0) -> None:
        self._sections = _read_sections(code[:_CODE_MAX])
        self._has_conditions = any(one.condition for one in self._sections[:_THREE])
        # For negative numbers and zero. A section with @ is for texts, wherever it stands behind the first.
        self._others = [one for one in self._sections[1:_THREE] if not one.has_text]
        self._date_shift = date_shift

    def write(self, value: Decimal) -> str:
        section, shown = self._choose(value)
        if section.is_date:
            return section.write_date(value + self._date_shift).strip()
        return section.write_number(shown).strip()

    def write_text(self, text: str) -> str:
        """Write a text, which only a fourth section, or one with `@` alone, changes."""
        *_others, last = self._sections
        if len(self._sections) < _FOUR and not last.has_text:
            return text
        return "".join(text if one.text == "@" and not one.is_literal else one.text for one in last.tokens)

    def _choose(self, value: Decimal) -> tuple[_Section, Decimal]:
        """Return the section for a number, and the number as that section writes it."""
        sections = self._sections[:_THREE]
        if self._has_conditions:
            for one in sections:
                if one.condition is None or _COMPARE[one.condition[0]](value, one.condition[1]):
                    return one, value
            return sections[-1], value
        if value < 0 and self._others:
            return self._others[0], value.copy_negate()
        if value == 0 and len(self._others) >= _TWO:
            return self._others[1], value
        return sections[0], value


def read_number(text: str) -> Decimal | None:
    """Read a stored number, with as many digits as spreadsheets keep; None if it is not one."""
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    value = _AS_STORED.create_decimal(text)
    return value if not value or abs(value.adjusted()) <= _EXPONENT_MAX else None


def write_general(value: Decimal) -> str:
    """Write a number as a cell without a format shows it."""
    size = abs(value)
    if not value:
        return "0"
    if size >= _LARGE or size < _SMALL:
        return keep_digits(_write_scientific(value, 0, 5, "E+", 2), value)
    whole_places = max(size.adjusted(), 0) + 1
    places = max(_WIDTH_MAX - 1 - whole_places, 0)
    return _trim(f"{_round(value, places):f}")


def keep_digits(shown: str, value: Decimal) -> str:
    """Return what is shown, or all digits of a whole number if what is shown has lost some of them."""
    is_whole = value == value.to_integral_value() and abs(value) < _EXACT
    if not is_whole or not _SCIENTIFIC.fullmatch(shown) or Decimal(shown) == value:
        return shown
    return f"{value:f}".partition(".")[0]


def _read_sections(code: str) -> Sequence[_Section]:
    sections: list[_Section] = []
    tokens: list[Token] = []
    condition: tuple[str, Decimal] | None = None
    for found in _TOKEN.finditer(code):
        kind = found.lastgroup
        piece = found[kind] if kind else ""
        if kind == "code" and piece == ";":
            sections.append(_Section(tokens, condition))
            tokens, condition = [], None
        elif kind == "code" and piece.startswith("[") and not is_date_code(piece):
            # Colours and alphabets are not shown in a text.
            if given := _CONDITION.fullmatch(piece):
                condition = (given[1], Decimal(given[2]))
        elif kind == "code":
            tokens.append(Token(piece))
        elif kind == "space":
            tokens.append(Token(" ", is_literal=True))
        elif kind != "fill" and piece:
            tokens.append(Token(piece, is_literal=True))
    return [*sections, _Section(tokens, condition)]


class _Layout:
    """Which codes of a section stand for which digits."""

    def __init__(self, codes: Sequence[str | None], places: Sequence[int]) -> None:
        last = places[-1] if places else -1
        self._point = next((place for place, code in enumerate(codes) if code == "."), len(codes))
        self._whole = [place for place in places if place < self._point]
        self._fraction = [place for place in places if place > self._point]
        self._codes = codes
        whole_end = self._whole[-1] if self._whole else -1
        self._commas = {place for place, code in enumerate(codes) if code == "," and places}
        scaling = {place for place in self._commas if whole_end < place < self._point or place > last}
        self._thousands = len(scaling)
        self._is_grouped = any(places[0] < place < whole_end for place in self._commas - scaling)
        zeros = [number for number, place in enumerate(self._fraction) if codes[place] == "0"]
        self._fraction_min = zeros[-1] + 1 if zeros else 0

    def write(self, value: Decimal, tokens: Sequence[Token]) -> str:
        """Put the digits of a number where the codes for them stand, with all that stands between."""
        if not self._whole and not self._fraction:
            return "".join(one.text for one in tokens)
        value = _round(value.scaleb(-3 * self._thousands, _WIDE), len(self._fraction))
        whole, _point, fraction = f"{value.copy_abs():f}".partition(".")
        pieces = ["" if place in self._commas else one.text for place, one in enumerate(tokens)]
        self._put_whole(pieces, whole.lstrip("0"))
        self._put_fraction(pieces, fraction)
        return ("-" if value < 0 else "") + "".join(pieces)

    def _put_whole(self, pieces: list[str], digits: str) -> None:
        count = len(self._whole)
        # The first place takes the digits that have no place of their own.
        extra = max(len(digits) - count, 0)
        digits = digits.rjust(count, " ")
        for number, place in enumerate(self._whole):
            mine = digits[: extra + 1] if number == 0 else digits[extra + number]
            blank = {"0": "0", "?": " "}.get(self._codes[place] or "", "")
            mine = mine.replace(" ", blank)
            if self._is_grouped:
                right = count - number - 1
                mine = "".join(
                    digit + ("," if (left := right + len(mine) - 1 - at) and left % 3 == 0 else "")
                    for at, digit in enumerate(mine)
                )
            pieces[place] = mine

    def _put_fraction(self, pieces: list[str], digits: str) -> None:
        kept = max(len(digits.rstrip("0")), self._fraction_min)
        for number, place in enumerate(self._fraction):
            blank = " " if self._codes[place] == "?" else ""
            pieces[place] = digits[number] if number < kept else blank


def _write_with_exponent(
    value: Decimal, tokens: Sequence[Token], codes: Sequence[str | None], exponent: int
) -> str:
    """Write `0.00E+00`, and what stands before and behind it."""
    places = [place for place, code in enumerate(codes) if code in _PLACES]
    before = [place for place in places if place < exponent]
    point = codes.index(".") if "." in codes else exponent
    fraction = sum(place > point for place in before)
    size = len(places) - len(before)
    core = _write_scientific(value, max(len(before) - fraction, 1), fraction, codes[exponent] or "", size)
    start, end = (places[0], places[-1] + 1) if places else (exponent, exponent + 1)
    ends = ("".join(one.text for one in tokens[:start]), "".join(one.text for one in tokens[end:]))
    return ends[0] + keep_digits(core, value) + ends[1]


def _write_scientific(value: Decimal, step: int, places: int, sign: str, size: int) -> str:
    """Write a number with an exponent that is a multiple of `step`; 0 is 1 without zeros at the end."""
    every = step or 1
    exponent = value.adjusted() // every * every if value else 0
    mantissa = _round(value.scaleb(-exponent, _WIDE), places)
    if mantissa and mantissa.adjusted() >= every:
        exponent += every
        mantissa = _round(value.scaleb(-exponent, _WIDE), places)
    shown = f"{mantissa:f}"
    plus = "-" if exponent < 0 else "+" if sign.endswith("+") else ""
    return f"{shown if step else _trim(shown)}E{plus}{abs(exponent):0{max(size, 1)}}"


def _round(value: Decimal, places: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-places), context=_WIDE)


def _trim(shown: str) -> str:
    return shown.rstrip("0").rstrip(".") if "." in shown else shown
