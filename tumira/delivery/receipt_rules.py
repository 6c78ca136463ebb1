"""The content of delivery receipts, and the spellings of a carrier's ids."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from tumira.core.translation import _
from tumira.pricing.destinations import Destination
from tumira.pricing.phone_numbers import MARK, digits
from tumira.sending.lifecycle import FAILURE_REASONS

TEXT_MAX: Final = 500

_REF_MAX: Final = 255
# Longer than a UUID as a number: a carrier could send a number of any length.
_NUMBER_MAX: Final = 40
# The last digits of a number are the same however a carrier writes it; an index holds them.
NUMBER_END: Final = 8
_DIGITS_MIN: Final = 5


class Receipt(Struct, frozen=True):
    """The state of one segment; `recipient` is digits without a plus."""

    carrier_ref: str | None
    recipient: str
    state: str
    error: str | None
    text: str
    # The network of the recipient by MCC and MNC, as in `65510`, if the carrier names it.
    network: str | None = None


class UnmatchedReceipt(Struct, frozen=True):
    """A receipt that matched nothing when it came; the time is the database's."""

    id: int
    carrier_id: int
    receipt: Receipt
    received_at: datetime


class ParsedText(Struct, frozen=True):
    """The fields of a receipt's text; `standard` when it begins as in the standard's appendix B."""

    carrier_ref: str | None
    state: str | None
    error: str | None
    standard: bool


# What nearly every carrier sends, read in one go.
_COMMON: Final = re.compile(
    r"id:(\S+) sub:\d+ dlvrd:\d+ submit date:\d{10,14} done date:\d{10,14} "
    r"stat:([A-Z]{5,8}) err:([0-9A-Za-z]{1,8})(?:\s+[Tt]ext:|\s*\Z)"
)

_FIELD: Final = r"(?:sub|dlvrd|submit|done|stat|err|text)\b"
_STANDARD: Final = re.compile(r"\s*id:\s*\S+\s+sub:\s*\d+\s+dlvrd:\s*\d+", re.IGNORECASE)
_ID: Final = re.compile(rf"(?<![a-z])id:\s*(?!{_FIELD})(\S+)", re.IGNORECASE)
_STATE: Final = re.compile(r"\bstat:\s*([a-z]{5,16})", re.IGNORECASE)
_ERROR: Final = re.compile(rf"\berr:\s*(?!{_FIELD})([0-9a-z]{{1,8}})", re.IGNORECASE)
_TEXT: Final = re.compile(r"\btext:", re.IGNORECASE)

# Words of more than seven letters, which the standard does not know and carriers write all the same.
_LONG_WORDS: Final = {
    "DELIVERED": "DELIVRD",
    "UNDELIVERED": "UNDELIV",
    "UNDELIVERABLE": "UNDELIV",
    "REJECTED": "REJECTD",
    "ACCEPTED": "ACCEPTD",
    "BUFFERED": "BUFFERD",
    "SCHEDULED": "SCHEDLD",
}


def parse_text(text: str) -> ParsedText | None:
    common = _COMMON.match(text)
    if common:
        reference, state, error = common.groups()
        return ParsedText(reference[:_REF_MAX], state, error, standard=True)
    # What follows `text:` is the customer's, who may write `stat:` too; it is looked at only when the
    # carrier's own words are not in front of it.
    ours = _TEXT.split(text, maxsplit=1)[0]
    return _search(ours) or _search(text)


def _search(text: str) -> ParsedText | None:
    reference = _ID.search(text)
    state = _STATE.search(text)
    if not reference and not state:
        return None
    error = _ERROR.search(text)
    word = state[1].upper() if state else None
    return ParsedText(
        reference[1][:_REF_MAX] if reference else None,
        _LONG_WORDS.get(word, word) if word else None,
        error[1] if error else None,
        standard=_STANDARD.match(text) is not None,
    )


_DECIMAL: Final = re.compile(r"[0-9]+")
_HEXADECIMAL: Final = re.compile(r"[0-9a-f]+")


def without_quote(text: str) -> str:
    """Return a receipt text without its end, which repeats the beginning of the message."""
    for word in ("text:", "Text:", "TEXT:"):
        at = text.find(word)
        if at >= 0:
            return text[:at].rstrip()
    return text


def key(carrier_ref: str) -> str:
    """Return the spelling under which an id is stored."""
    return carrier_ref.strip("\0 \t\r\n").casefold().lstrip("0")[:_REF_MAX] or "0"


def spellings(carrier_ref: str) -> Sequence[str]:
    """Return the keys under which a message may be stored, the likeliest first.

    A carrier may respond to a submit in hexadecimal and write its receipts in decimal, or the reverse.
    """
    same = key(carrier_ref)
    if len(same) > _NUMBER_MAX or not _HEXADECIMAL.fullmatch(same):
        return (same,)
    found = [same]
    if _DECIMAL.fullmatch(same):
        found.append(f"{int(same):x}")
    found.append(str(int(same, 16)))
    return tuple(dict.fromkeys(found))


def whole_numbers(address: str, destinations: Iterable[Destination]) -> frozenset[str]:
    """Return the numbers that a receipt may mean: carriers drop the country code or add leading zeros."""
    bare = digits(address).lstrip("0")
    if not bare:
        return frozenset()
    national = (f"+{one.calling_code}{bare}" for one in destinations if len(bare) in one.national_lengths)
    return frozenset({f"+{bare}", *national})


def same_number(a: str, b: str) -> bool:
    """Tell whether two numbers may be the same, with any prefix; too few digits match anything.

    A number that was erased or shortened matches nothing.
    """
    if MARK in a or MARK in b:
        return False
    a, b = digits(a), digits(b)
    if len(a) < _DIGITS_MIN or len(b) < _DIGITS_MIN:
        return True
    return a[-NUMBER_END:] == b[-NUMBER_END:]


class ReceiptResult(Struct, frozen=True):
    """A receipt's effect on its message; `status` is None when it settles nothing."""

    status: Literal["delivered", "undelivered", "expired"] | None
    reason: str | None


_NOTHING: Final = ReceiptResult(None, None)
_DELIVERED: Final = ReceiptResult("delivered", None)

# The `err` of a receipt is the carrier's own. Those that explain theirs pass on the error of the mobile
# network (MAP, 3GPP TS 29.002, section 17.6.6), written in decimal; codes that do not tell why a handset
# did not get a message (33 waiting list full, 34 system failure, 35 and 36 bad data) are not listed.
_REASONS: Final[Mapping[int, str]] = {
    1: "UNKNOWN_SUBSCRIBER",  # unknown subscriber
    5: "UNKNOWN_SUBSCRIBER",  # unidentified subscriber
    6: "ABSENT_SUBSCRIBER",  # absent subscriber, for short messages
    8: "SUBSCRIBER_BARRED",  # roaming not allowed
    9: "SUBSCRIBER_BARRED",  # illegal subscriber
    10: "SUBSCRIBER_BARRED",  # bearer service not provisioned
    11: "SUBSCRIBER_BARRED",  # teleservice not provisioned
    12: "HANDSET_ERROR",  # illegal equipment
    13: "SUBSCRIBER_BARRED",  # call barred
    21: "HANDSET_ERROR",  # facility not supported
    27: "ABSENT_SUBSCRIBER",  # absent subscriber
    31: "ABSENT_SUBSCRIBER",  # subscriber busy for short messages
    32: "HANDSET_ERROR",  # delivery failure, for example a full memory
}


def receipt_result(state: str, error: str | None) -> ReceiptResult:
    match state:
        case "DELIVRD":
            return _DELIVERED
        case "UNDELIV" | "DELETED" | "SKIPPED":
            return ReceiptResult("undelivered", _reason(error) or "UNKNOWN")
        case "REJECTD":
            return ReceiptResult("undelivered", _reason(error) or "CARRIER_REJECTED")
        case "EXPIRED":
            return ReceiptResult("expired", _reason(error) or "VALIDITY_EXPIRED")
        case _:
            return _NOTHING


def _reason(error: str | None) -> str | None:
    """Read an error code: decimal, with or without leading zeros, or hexadecimal where it has a letter.

    A carrier over HTTP has codes of its own, which its profile has turned into a reason.
    """
    if error in FAILURE_REASONS:
        return error
    code = (error or "").strip().casefold()
    if _DECIMAL.fullmatch(code):
        return _REASONS.get(int(code[-_NUMBER_MAX:]))
    code = code.removeprefix("0x")
    return _REASONS.get(int(code[-_NUMBER_MAX:], 16)) if _HEXADECIMAL.fullmatch(code) else None


# Fewer characters than these that two ids share at an end say nothing.
_SHARED_MIN: Final = 4
# A prefix or suffix of an id is shown, and a carrier may send anything.
_ADDED_MAX: Final = 32
_LOW_32_BITS: Final = 2**32 - 1
_OCTET_DIGITS: Final = 2

_SEPARATORS: Final = re.compile(r"[\W_]+")
_SIGNED_DECIMAL: Final = re.compile(r"-?[0-9]+")
_PREFIXED_HEXADECIMAL: Final = re.compile(r"(?:0x)?[0-9a-f]+")

SAME_ID: Final = ""


def id_condition(in_receipt: str, in_answer: str) -> str | None:
    """Return the condition under which two ids are the same, as in “the ID were read as hexadecimal”.

    SAME_ID when they are equal, None when they have nothing in common. Automatic matching tries only case,
    zeros and bases; the other conditions are shown to an operator.
    """
    receipt, answer = _fold(in_receipt), _fold(in_answer)
    if key(receipt) == key(answer):
        return SAME_ID
    return (
        _by_base(receipt, answer)
        or _by_separators(receipt, answer)
        or _by_bits(receipt, answer)
        or _by_octets(receipt, answer)
        or _by_ends(receipt, answer)
    )


def _fold(identifier: str) -> str:
    return identifier.strip("\0 \t\r\n").casefold()


def _by_base(receipt: str, answer: str) -> str | None:
    plain = key(answer)
    same, *others = spellings(receipt)
    if plain not in others:
        return None
    is_decimal = same.isdecimal() and plain == f"{int(same):x}"
    return _("the ID were converted to hexadecimal") if is_decimal else _("the ID were read as hexadecimal")


def _by_separators(receipt: str, answer: str) -> str | None:
    bare_receipt, bare_answer = _bare(receipt), _bare(answer)
    if (bare_receipt, bare_answer) == (receipt, answer) or not bare_receipt or not bare_answer:
        return None
    has_prefix = receipt.startswith("0x") or answer.startswith("0x")
    left_out = _("its 0x were ignored") if has_prefix else _("its separators were ignored")
    if key(bare_receipt) == key(bare_answer):
        return (
            _("the 0x before the ID were ignored")
            if has_prefix
            else _("only the letters and digits of the ID were compared")
        )
    base = _by_base(bare_receipt, bare_answer)
    return None if base is None else _("{one} and {other}").format(one=base, other=left_out)


def _bare(identifier: str) -> str:
    return _SEPARATORS.sub("", identifier).removeprefix("0x")


def _by_bits(receipt: str, answer: str) -> str | None:
    cut = {number & _LOW_32_BITS for number in _numbers(receipt)}
    if cut & {number & _LOW_32_BITS for number in _numbers(answer)} - {0}:
        return _("only the last 32 bits of the ID were compared")
    return None


def _numbers(identifier: str) -> set[int]:
    if len(identifier) > _NUMBER_MAX:
        return set()
    numbers = set()
    if _SIGNED_DECIMAL.fullmatch(identifier):
        numbers.add(int(identifier))
    if _PREFIXED_HEXADECIMAL.fullmatch(identifier):
        numbers.add(int(identifier, 16))
    return numbers


def _by_octets(receipt: str, answer: str) -> str | None:
    if len(receipt) != len(answer) or not _SHARED_MIN <= len(receipt) <= _NUMBER_MAX or len(receipt) % 2:
        return None
    octets = [receipt[at : at + _OCTET_DIGITS] for at in range(0, len(receipt), _OCTET_DIGITS)]
    return _("the bytes of the ID were reversed") if "".join(reversed(octets)) == answer else None


def _by_ends(receipt: str, answer: str) -> str | None:
    longer, shorter = (receipt, answer) if len(receipt) > len(answer) else (answer, receipt)
    if len(shorter) < _SHARED_MIN:
        return None
    if longer.endswith(shorter):
        added = longer.removesuffix(shorter)
        text = (
            _("the ID did not start with “{added}”")
            if longer is receipt
            else _("the ID started with “{added}”")
        )
    elif longer.startswith(shorter):
        added = longer.removeprefix(shorter)
        text = (
            _("the ID did not end with “{added}”") if longer is receipt else _("the ID ended with “{added}”")
        )
    else:
        return None
    if len(added) > _ADDED_MAX:
        added = added[:_ADDED_MAX] + "…"
    return text.format(added=added)
