"""Delivery receipts as the simulator writes them."""

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from tumira.delivery.smpp.pdu import (
    MESSAGE_PAYLOAD,
    MESSAGE_STATE,
    NETWORK_ERROR_CODE,
    RECEIPTED_MESSAGE_ID,
    Command,
    ShortMessage,
    short_message_body,
)

ESM_RECEIPT: Final = 0x04
ESM_INTERMEDIATE: Final = 0x20
DATA_CODING_UCS2: Final = 8
DATE: Final = "%y%m%d%H%M"
DATE_WITH_SECONDS: Final = "%y%m%d%H%M%S"
# As much of the text as the standard repeats in a receipt.
TEXT_MAX: Final = 20

STATES: Final[Mapping[str, int]] = {
    "ENROUTE": 1,
    "DELIVRD": 2,
    "EXPIRED": 3,
    "DELETED": 4,
    "UNDELIV": 5,
    "ACCEPTD": 6,
    "UNKNOWN": 7,
    "REJECTD": 8,
}
_GSM: Final = b"\x03"
# A deliver_sm with esm_class 4, the text, and as optional parameters id, state and, maybe, the error.
_USUAL: Final = b"\0%c%c%b\0%c%c%b\0\x04\0\0\0\0\0\0\0\0%c%b\0\x1e\0%c%b\0\x04\x27\0\x01%c%b"
_NETWORK_ERROR: Final = b"\x04\x23\0\x03" + _GSM


class SimulatedReceipt(Struct, frozen=True):
    message_id: str
    # What it is about: its sender gets the receipt, its recipient is named as the source.
    about: ShortMessage
    state: str
    error: str
    submitted_s: float
    done_s: float
    esm_class: int = ESM_RECEIPT
    data_coding: int = 0
    date_format: str = DATE
    has_text: bool = True
    has_tlvs: bool = True
    in_payload: bool = False
    command: int = Command.DELIVER_SM


def write_usual_body(
    message_id: str, about: ShortMessage, state: str, error: str, submitted_s: float, done_s: float
) -> bytes:
    """Return what `write_body` does for a receipt of the usual format, in a third of the time."""
    identifier = message_id.encode("ascii")
    text = b"id:%b sub:001 dlvrd:00%c submit date:%b done date:%b stat:%b err:%b text:%b" % (
        identifier,
        b"1" if state == "DELIVRD" else b"0",
        _date(DATE, int(submitted_s)).encode("ascii"),
        _date(DATE, int(done_s)).encode("ascii"),
        state.encode("ascii"),
        error.encode("ascii"),
        _beginning(about),
    )
    network_error = b"" if error == "000" else _NETWORK_ERROR + int(error).to_bytes(2)
    return _USUAL % (
        about.destination_ton,
        about.destination_npi,
        about.destination.encode("latin-1"),
        about.source_ton,
        about.source_npi,
        about.source.encode("latin-1"),
        len(text),
        text,
        len(identifier) + 1,
        identifier,
        STATES[state],
        network_error,
    )


def write_body(receipt: SimulatedReceipt) -> bytes:
    about = receipt.about
    text = _text(receipt) if receipt.has_text else b""
    tlvs = _tlvs(receipt) if receipt.has_tlvs else {}
    if receipt.in_payload and text:
        tlvs = {**tlvs, MESSAGE_PAYLOAD: text}
    message = ShortMessage(
        "",
        about.destination_ton,
        about.destination_npi,
        about.destination,
        about.source_ton,
        about.source_npi,
        about.source,
        receipt.esm_class,
        data_coding=receipt.data_coding,
        text=text,
        tlvs=tlvs,
    )
    return _data_sm_body(message) if receipt.command == Command.DATA_SM else short_message_body(message)


def _text(receipt: SimulatedReceipt) -> bytes:
    delivered = 1 if receipt.state == "DELIVRD" else 0
    written = (
        f"id:{receipt.message_id} sub:001 dlvrd:00{delivered} "
        f"submit date:{_date(receipt.date_format, int(receipt.submitted_s))} "
        f"done date:{_date(receipt.date_format, int(receipt.done_s))} "
        f"stat:{receipt.state} err:{receipt.error} text:"
    )
    if receipt.data_coding == DATA_CODING_UCS2:
        return written.encode("utf-16-be")
    # Of the message's own text only what reads the same in ASCII.
    return written.encode("ascii") + _beginning(receipt.about)


def _beginning(about: ShortMessage) -> bytes:
    if about.data_coding or about.esm_class:
        return b""
    beginning = about.text[:TEXT_MAX]
    return beginning if beginning.isascii() and beginning.decode("ascii").isprintable() else b""


def _tlvs(receipt: SimulatedReceipt) -> dict[int, bytes]:
    tlvs = {
        RECEIPTED_MESSAGE_ID: receipt.message_id.encode("ascii") + b"\0",
        MESSAGE_STATE: bytes((STATES[receipt.state],)),
    }
    if receipt.error.isdecimal() and int(receipt.error):
        tlvs[NETWORK_ERROR_CODE] = _GSM + int(receipt.error).to_bytes(2)
    return tlvs


def _data_sm_body(message: ShortMessage) -> bytes:
    whole = short_message_body(message._replace(tlvs={}, text=b""))
    # A data_sm has the addresses of a deliver_sm, then three octets, then everything as TLVs.
    addresses = whole[: -len(b"\0\0\0\0\0\0\0\0\0\0")]
    tlvs = {**message.tlvs, MESSAGE_PAYLOAD: message.text} if message.text else message.tlvs
    return b"".join(
        (
            addresses,
            bytes((message.esm_class, message.registered_delivery, message.data_coding)),
            *(tag.to_bytes(2) + len(value).to_bytes(2) + value for tag, value in tlvs.items()),
        )
    )


@lru_cache(maxsize=16)
def _date(date_format: str, second: int) -> str:
    # Most are the same as the one before.
    return time.strftime(date_format, time.gmtime(second))
