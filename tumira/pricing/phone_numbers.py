"""Phone numbers as people write them, as messages hold them, and what is left of them after erasure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from msgspec import Struct

from tumira.core.errors import RecipientCode
from tumira.core.translation import _
from tumira.pricing.destinations import RECIPIENTS_MAX, Destination, Tariff, is_mobile, sort_recipients

CHANNEL: Final = "sms"

# Numbers copied from a contact list contain direction marks.
_BLANK: Final = "\t \x1f\xa0\u1680\u2000-\u200f\u202a-\u202f\u205f\u2060\u2066-\u2069\u3000\ufeff"
_END: Final = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_PUNCTUATION: Final = "().\\-\u2010-\u2015/"
_ENDS: Final = re.compile(f"[,;{_END}]")
_BLANKS: Final = re.compile(f"[{_BLANK}]+")
_SEPARATORS: Final = re.compile(f"[{_BLANK}{_END}{_PUNCTUATION}]+")
_BEGINNING: Final = re.compile(r"\+?[0-9]*")
_DIGITS: Final = re.compile("[0-9]*")
# Fewer digits are not a number; they belong to the piece before them.
_NUMBER_MIN: Final = 7
_DIGITS_MAX: Final = 15
# After the 00.
_NUMBER_MAX: Final = 17
_LOOK_ALIKES: Final = str.maketrans("OoIl", "0011")
_SUGGESTED_MAX: Final = 3
# As people group the mobile numbers of both countries.
_GROUPS: Final = re.compile(r"(\+263|\+27)([0-9]{2})([0-9]{3})([0-9]{4})")

# Counted from acceptance; after that only the country and the last digits of the number are kept.
NUMBERS_KEPT: Final = timedelta(days=90)
DIGITS_LEFT: Final = 3
# Stands in place of removed digits. No number that can be searched for contains it.
MARK: Final = "•"
GAP: Final = MARK * 6

_BETWEEN_DIGITS: Final = re.compile(r"[\s()./-]+")
_NOT_DIGITS: Final = re.compile(r"[^0-9]")


def digits(address: str) -> str:
    return address if address.isdecimal() and address.isascii() else _NOT_DIGITS.sub("", address)


def read_phone(tariff: Tariff, text: str, country: str | None = None) -> str | None:
    """Read a number as people write it; None if we cannot send to it.

    One without a country code, `077 120 0001`, is one of `country`.
    """
    number = complete(tariff, text, country)
    return number if _is_reached(tariff, number) else None


def complete(tariff: Tariff, text: str, country: str | None) -> str:
    """Write a number in international form, as far as it can be read; then only `+` and digits are left.

    What is not a number loses its blanks and punctuation.
    """
    return _complete(tariff, _find_home(tariff, country), _SEPARATORS.sub("", text))


def _find_home(tariff: Tariff, country: str | None) -> Destination | None:
    return next((one for one in tariff.destinations if one.country == country), None)


def _complete(tariff: Tariff, home: Destination | None, plain: str) -> str:
    """Choose the first reading that can be sent to, or else the likeliest."""
    plain = _write_plus(plain)
    if not _BEGINNING.fullmatch(plain):
        return plain
    readings = _list_readings(tariff, home, plain)
    for number in readings:
        if _is_reached(tariff, number):
            return number
    shaped = tariff.shape.match(readings[0])
    return readings[0] if shaped is not None and shaped[1] else plain


def _write_plus(plain: str) -> str:
    return "+" + plain[2:] if plain.startswith("00") else plain


def _list_readings(tariff: Tariff, home: Destination | None, plain: str) -> Sequence[str]:
    if plain.startswith("+"):
        shaped = tariff.shape.match(plain)
        # The zero that is dialled within the country is often left in: +263 (0)77 120 0001.
        if shaped is not None and plain.startswith("0", shaped.end()):
            return plain, shaped[0] + plain[shaped.end() + 1 :]
        return (plain,)
    if home is None:
        return (plain,) if plain.startswith("0") else _list_readings(tariff, None, "+" + plain)
    code = "+" + home.calling_code
    if plain.startswith("0"):
        # A few countries keep the zero after the calling code.
        return code + plain[1:], code + plain
    if plain.startswith(home.calling_code):
        # Never a national number, even if it has the length of one: a digit of a full one may be missing.
        return _list_readings(tariff, None, "+" + plain)
    return code + plain, *_list_readings(tariff, None, "+" + plain)


def country_of(tariff: Tariff, number: str) -> str | None:
    """Return the country of a number; its owner's local numbers are completed for it."""
    accepted = sort_recipients(tariff, CHANNEL, [number]).accepted
    if accepted:
        return accepted[0].country
    shaped = tariff.shape.match(number)
    known = (one.country for one in tariff.destinations if shaped and one.calling_code == shaped[1])
    return next(known, None)


def write_phone(number: str) -> str:
    """Write a number in groups that stay on one line, `+263 77 120 0001`; an erased one as it is."""
    grouped = _GROUPS.fullmatch(number)
    return number if grouped is None else "\xa0".join(grouped.groups())


class Entry(Struct, frozen=True):
    written: str
    number: str


def read_recipients(
    tariff: Tariff, text: str, country: str | None = None, count_max: int = RECIPIENTS_MAX
) -> Sequence[Entry]:
    """Find the numbers in typed or pasted text; those without a country code are numbers of `country`.

    Commas, semicolons and line ends separate them, and so do blanks, unless a number is only complete
    with the pieces behind it: `+263 77 120 0001`. The one after `count_max` is the last that is read: there
    are too many then, however many more the text holds.
    """
    home = _find_home(tariff, country)
    sizes = _list_sizes(tariff, home)
    entries: list[Entry] = []
    for line in _ENDS.split(text):
        # Each recipient takes a few of the pieces, so those behind are never looked at.
        pieces_max = _NUMBER_MAX * (count_max + 1)
        pieces = [piece for piece in _BLANKS.split(line, pieces_max) if piece]
        place = 0
        while place < len(pieces):
            if len(entries) > count_max:
                return entries
            end = place + _span(tariff, home, sizes, pieces, place)
            plain = _SEPARATORS.sub("", "".join(pieces[place:end]))
            entries.append(Entry(" ".join(pieces[place:end]), _complete(tariff, home, plain)))
            place = end
    return entries


def _list_sizes(tariff: Tariff, home: Destination | None) -> frozenset[int]:
    """Return how long numbers can be as they are typed: a quick look before one is read in several ways."""
    # A national number has neither plus nor calling code; 00 and the zero after the code may be typed too.
    fewer = 1 if home is None else 1 + len(home.calling_code)
    return frozenset(size for most in tariff.lengths for size in range(most - fewer, most + 3))


def _span(
    tariff: Tariff, home: Destination | None, sizes: frozenset[int], pieces: Sequence[str], place: int
) -> int:
    """Count the pieces of the recipient that begins at this place."""
    joined = _SEPARATORS.sub("", pieces[place])
    if not _BEGINNING.fullmatch(joined) or (len(joined) in sizes and _can_be_sent_to(tariff, home, joined)):
        return 1
    number, glued, short = 0, 1, True
    for count in range(2, min(_NUMBER_MAX, len(pieces) - place) + 1):
        piece = pieces[place + count - 1]
        if not piece.isalnum():
            piece = _SEPARATORS.sub("", piece)
        joined += piece
        if not _DIGITS.fullmatch(piece) or len(joined) > _NUMBER_MAX:
            break
        if len(joined) in sizes and _can_be_sent_to(tariff, home, joined):
            number = count
        short = short and len(piece) < _NUMBER_MIN
        glued = count if short else glued
    return number or glued


def _can_be_sent_to(tariff: Tariff, home: Destination | None, plain: str) -> bool:
    return any(_is_reached(tariff, one) for one in _list_readings(tariff, home, _write_plus(plain)))


def _is_reached(tariff: Tariff, number: str) -> bool:
    return len(number) in tariff.lengths and bool(sort_recipients(tariff, CHANNEL, [number]).accepted)


def explain(tariff: Tariff, number: str, code: RecipientCode) -> str:
    """Say why a completed number cannot be sent to, and how to correct it."""
    if code is RecipientCode.UNSUPPORTED_DESTINATION:
        return _("We do not send to this country.")
    if code is RecipientCode.RECIPIENT_OPTED_OUT:
        return _("This recipient has opted out of your messages.")
    if code is RecipientCode.RECIPIENT_LIMIT:
        return _(
            "Too many passcodes went to this number, or to its neighbours. See Settings, Passcode guard."
        )
    shaped = tariff.shape.match(number)
    if shaped is None:
        return _explain_shape(number.removeprefix("+"))
    there = [one for one in tariff.destinations if one.calling_code == shaped[1]]
    lengths = [length for one in there for length in one.national_lengths]
    given = len(number) - shaped.end()
    if given in lengths and not is_mobile(number, shaped[1]):
        return _("This is not a mobile number in {country}.").format(country=there[0].name)
    return _("Numbers in {country} have {lengths} digits after {code}. This one has {given}.").format(
        country=there[0].name, lengths=_(" or ").join(map(str, lengths)), code=shaped[0], given=given
    )


def _explain_shape(digits: str) -> str:
    if not digits or not _DIGITS.fullmatch(digits):
        return _("This is not a phone number.")
    if len(digits) < _NUMBER_MIN:
        return _("This number is too short.")
    if len(digits) > _DIGITS_MAX:
        return _("This number is too long.")
    return _("Add the country code, for example +263 77 120 0001.")


def suggest(tariff: Tariff, text: str, country: str | None) -> str | None:
    """Return the number that was probably meant where a text cannot be read, or the few it could be."""
    likely = _SEPARATORS.sub("", text).translate(_LOOK_ALIKES)
    digits = likely.removeprefix("+")
    if digits.startswith("0"):
        likely = digits
    own = read_phone(tariff, likely, country)
    if own is not None:
        return own
    # What begins with a country's code is one of its numbers or none, though it may be as long as another's.
    named = [one for one in tariff.destinations if digits.startswith(one.calling_code)]
    found: dict[str, str] = {}
    for destination in named or tariff.destinations:
        meant = read_phone(tariff, likely, destination.country)
        if meant is not None:
            found.setdefault(meant, destination.name)
    if len(found) == 1:
        return next(iter(found))
    shown = [f"{meant} ({name})" for meant, name in found.items()][:_SUGGESTED_MAX]
    return _(" or ").join(shown) or None


@dataclass(frozen=True, slots=True)
class Subject:
    """A number to erase, split after its calling code."""

    calling_code: str
    national: str

    @property
    def number(self) -> str:
        return f"+{self.calling_code}{self.national}"

    @property
    def pseudonym(self) -> str:
        """Return the replacement, the same for all erased numbers of a country."""
        return f"+{self.calling_code}{MARK}erased"

    def is_in(self, text: str) -> bool:
        """Tell whether a text contains the number, whatever its prefix and the grouping of its digits."""
        return self.national in _NOT_DIGITS.sub("", text)


def read_subject(tariff: Tariff, text: str) -> Subject | None:
    """Read a number with its country code; None if no message can ever have gone to it."""
    number = _BETWEEN_DIGITS.sub("", text)
    shaped = tariff.shape.match(number)
    if shaped is None:
        return None
    calling_code, national = shaped[1], number[shaped.end() :]
    # Countries without a price count too: messages that went there are still stored.
    lengths = {
        length
        for one in tariff.destinations
        if one.calling_code == calling_code
        for length in one.national_lengths
    }
    return Subject(calling_code, national) if len(national) in lengths else None
