"""Delivery receipts and replies in deliver_sm and data_sm."""

import re
from typing import Final

from tumira.delivery.receipt_rules import TEXT_MAX, ParsedText, Receipt, parse_text, without_quote
from tumira.delivery.replies.parts import ADDRESS_MAX, ReplyPart
from tumira.delivery.smpp.encoding import split_segment
from tumira.delivery.smpp.pdu import (
    DEST_NETWORK_ID,
    MCC,
    MESSAGE_STATE,
    MNC,
    NETWORK_ERROR_CODE,
    RECEIPTED_MESSAGE_ID,
    ShortMessage,
    read_text,
)
from tumira.pricing.phone_numbers import digits

# The bits of esm_class that say what kind of message it is.
_KIND: Final = 0x3C
_PLAIN: Final = 0x00
_RECEIPT: Final = 0x04
_INTERMEDIATE: Final = 0x20
_UDH: Final = 0x40
_UCS_2: Final = 8
_NETWORK_ERROR_OCTETS: Final = 3
_PARTS_MAX: Final = 255
_CODE: Final = re.compile("[0-9]{5,6}")

_STATES: Final = (
    "SCHEDLD",
    "ENROUTE",
    "DELIVRD",
    "EXPIRED",
    "DELETED",
    "UNDELIV",
    "ACCEPTD",
    "UNKNOWN",
    "REJECTD",
    "SKIPPED",
)


def read_receipt(message: ShortMessage) -> Receipt | None:
    kind = message.esm_class & _KIND
    if kind not in {_PLAIN, _RECEIPT, _INTERMEDIATE}:
        return None
    text = _text(message)
    parsed = parse_text(text)
    if kind == _PLAIN and not _is_unmarked_receipt(message, parsed):
        return None
    reference = state = error = None
    if message.tlvs:
        reference, state, error = _optional(message.tlvs)
    if parsed is not None:
        reference = reference or parsed.carrier_ref
        state = state or parsed.state
        error = error or parsed.error
    # An intermediate notification reports an attempt; whatever its state, the carrier continues.
    if kind == _INTERMEDIATE:
        state = "ENROUTE"
    network = _network(message.tlvs) if message.tlvs else None
    return Receipt(
        reference, digits(message.source), state or "UNKNOWN", error, without_quote(text)[:TEXT_MAX], network
    )


def read_reply(message: ShortMessage) -> ReplyPart | None:
    """Return what a person sent; None for the acknowledgements of other kinds."""
    if message.esm_class & _KIND != _PLAIN:
        return None
    place, payload = split_segment(message.esm_class, message.text, message.tlvs)
    reference, total, part = place or (0, 1, 1)
    if not 1 <= part <= total <= _PARTS_MAX:
        reference, total, part = 0, 1, 1
    return ReplyPart(
        _address(message.source),
        _address(message.destination),
        message.data_coding,
        payload,
        reference if total > 1 else 0,
        total,
        part,
    )


def _address(text: str) -> str:
    return text.replace("\0", "").strip()[:ADDRESS_MAX]


def _is_unmarked_receipt(message: ShortMessage, parsed: ParsedText | None) -> bool:
    """Tell an unmarked receipt from a text that a person wrote to look like one."""
    if parsed is None or parsed.carrier_ref is None or parsed.state is None:
        return False
    return parsed.standard or RECEIPTED_MESSAGE_ID in message.tlvs


def _optional(tlvs: dict[int, bytes]) -> tuple[str | None, str | None, str | None]:
    reference = read_text(tlvs.get(RECEIPTED_MESSAGE_ID, b"")) or None
    state = tlvs.get(MESSAGE_STATE)
    word = _STATES[state[0]] if state and state[0] < len(_STATES) else None
    network_error = tlvs.get(NETWORK_ERROR_CODE, b"")
    # The first octet names the kind of network; zero in the others means that there was no error.
    code = int.from_bytes(network_error[1:], "big") if len(network_error) == _NETWORK_ERROR_OCTETS else 0
    return reference, word, str(code) if code else None


def _network(tlvs: dict[int, bytes]) -> str | None:
    """Return the MCC and MNC of the network; carriers use the tags for other things too."""
    code = read_text(tlvs.get(MCC, b"")) + read_text(tlvs.get(MNC, b"")) if MNC in tlvs else ""
    code = code or read_text(tlvs.get(DEST_NETWORK_ID, b""))
    return code if _CODE.fullmatch(code) else None


def _text(message: ShortMessage) -> str:
    """Return the text without NULs: they end some carriers' texts, and PostgreSQL refuses them."""
    payload = message.text
    if message.esm_class & _UDH and payload:
        payload = payload[1 + payload[0] :]
    # Some carriers say UCS-2 and send one octet a letter; two-octet letters have a zero near the front.
    if message.data_coding == _UCS_2 and 0 in payload[:4]:
        text = payload.decode("utf-16-be", "replace").removeprefix("\ufeff")
    else:
        text = payload.decode("latin-1")
    return text.replace("\0", "")
