"""Phone numbers as people write them, in international form."""

import re
from typing import Final

from tumira_client.errors import InvalidNumberError

# By country: the calling code, and how a number after it looks. The service decides which it sends to.
_COUNTRIES: Final = {"ZW": ("263", "7[0-9]{8}"), "ZA": ("27", "[1-9][0-9]{8}")}
_KNOWN: Final = re.compile("|".join(rf"\+{code}{shape}" for code, shape in _COUNTRIES.values()))
_TRUNK_ZERO: Final = re.compile(r"(\+(?:263|27))0(?=[0-9])")
_NUMBER: Final = re.compile(r"\+[1-9][0-9]{6,14}")
_OURS: Final = re.compile(r"\+(?:263|27)")
# Blanks and punctuation; numbers copied from a contact list contain direction marks.
_SEPARATORS: Final = re.compile(
    "[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200f\u2010-\u2015\u2028-\u202f\u205f\u2060\u2066-\u2069\u3000\ufeff"
    r"().\-/]+"
)


def e164(text: str, country: str | None = None) -> str:
    """Return a number in international form: `077 120 0001` in `ZW` is `+263771200001`.

    A number of another country is returned with its `+` and digits. Raises `InvalidNumberError`.
    """
    for number in _readings(_SEPARATORS.sub("", text), country):
        if _KNOWN.fullmatch(number) or (_NUMBER.fullmatch(number) and not _OURS.match(number)):
            return number
    raise InvalidNumberError(f"This is not a mobile number: {text[:40]!r}")


def complete(text: str, country: str | None) -> str:
    """Return the number in international form, or the text unchanged for the service to reject."""
    try:
        return e164(text, country)
    except InvalidNumberError:
        return text


def _readings(plain: str, country: str | None) -> list[str]:
    """Return what a number can mean, the likeliest first."""
    if country is not None and country not in _COUNTRIES:
        raise ValueError(f"The country is ZW or ZA, not {country!r}.")
    if plain.startswith("00"):
        plain = "+" + plain[2:]
    if plain.startswith("+"):
        # The zero that is dialled within the country is often left in: +263 (0)77 120 0001.
        return [plain, _TRUNK_ZERO.sub(r"\1", plain, count=1)]
    if country is None:
        return [] if plain.startswith("0") else _readings("+" + plain, None)
    code = _COUNTRIES[country][0]
    if plain.startswith("0"):
        return [f"+{code}{plain[1:]}"]
    if plain.startswith(code):
        return _readings("+" + plain, None)
    return [f"+{code}{plain}", *_readings("+" + plain, None)]
