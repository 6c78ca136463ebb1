"""SMPP 3.4 PDUs, encoded and decoded octet by octet.

A busy connection carries more than a hundred thousand PDUs a second, so what is built here for each of them
is a tuple or bytes, never more. Strings are read as Latin-1, which cannot fail.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

RESPONSE: Final = 0x8000_0000
SEQUENCE_MAX: Final = 0x7FFF_FFFF

RECEIPTED_MESSAGE_ID: Final = 0x001E
NETWORK_ERROR_CODE: Final = 0x0423
MESSAGE_PAYLOAD: Final = 0x0424
MESSAGE_STATE: Final = 0x0427
DEST_NETWORK_ID: Final = 0x060E
# Of a carrier's own: the network in which a handset was found, as text.
MCC: Final = 0x1503
MNC: Final = 0x1504

_VERSION: Final = 0x34
_HEADER: Final = Struct(">IIII")
_HEADER_OCTETS: Final = 16
_PDU_OCTETS_MAX: Final = 64 * 1024
_SHORT_MESSAGE_MAX: Final = 254
# An id of 65 octets is the standard's longest; more is cut, so that no carrier can fill an index of ours.
_TEXT_MAX: Final = 255
_TLV_HEADER: Final = Struct(">HH")
_TLV_HEADER_OCTETS: Final = 4

_SHORT_CODE_DIGITS_MAX: Final = 6
_VALIDITY_MAX_S: Final = 30 * 86_400


class Command(IntEnum):
    """The command ids; a response has the id of its request with RESPONSE set."""

    BIND_RECEIVER = 0x01
    BIND_TRANSMITTER = 0x02
    QUERY_SM = 0x03
    SUBMIT_SM = 0x04
    DELIVER_SM = 0x05
    UNBIND = 0x06
    BIND_TRANSCEIVER = 0x09
    ENQUIRE_LINK = 0x15
    SUBMIT_MULTI = 0x21
    DATA_SM = 0x103
    GENERIC_NACK = 0x8000_0000
    BIND_RECEIVER_RESP = 0x8000_0001
    BIND_TRANSMITTER_RESP = 0x8000_0002
    QUERY_SM_RESP = 0x8000_0003
    SUBMIT_SM_RESP = 0x8000_0004
    DELIVER_SM_RESP = 0x8000_0005
    UNBIND_RESP = 0x8000_0006
    BIND_TRANSCEIVER_RESP = 0x8000_0009
    ENQUIRE_LINK_RESP = 0x8000_0015
    SUBMIT_MULTI_RESP = 0x8000_0021
    DATA_SM_RESP = 0x8000_0103


class BrokenError(Exception): ...


class Pdu(NamedTuple):
    command: int
    status: int
    sequence: int
    body: bytes


class BindRequest(NamedTuple):
    system_id: str
    password: str
    system_type: str
    version: int


class ShortMessage(NamedTuple):
    """A submit_sm, deliver_sm or data_sm; `text` is the message_payload where short_message is empty."""

    service_type: str = ""
    source_ton: int = 0
    source_npi: int = 0
    source: str = ""
    destination_ton: int = 0
    destination_npi: int = 0
    destination: str = ""
    esm_class: int = 0
    protocol_id: int = 0
    priority: int = 0
    schedule: str = ""
    validity: str = ""
    registered_delivery: int = 0
    replace: int = 0
    data_coding: int = 0
    default_id: int = 0
    text: bytes = b""
    tlvs: dict[int, bytes] = {}  # noqa: RUF012 - never changed: whoever has TLVs passes a dict of their own


class Splitter:
    """Splits a stream into PDUs; `broken` is set as soon as the next octets cannot be one.

    It holds at most one unfinished PDU of 64 kB and what came with it.
    """

    def __init__(self) -> None:
        self.broken: BrokenError | None = None
        self._rest = bytearray()
        self._needed = 0

    def feed(self, data: bytes) -> list[Pdu]:
        if self.broken is not None:
            raise self.broken
        if self._rest:
            self._rest += data
            # Nothing is read again before a PDU is whole, so one that comes octet by octet costs no more.
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
        found: list[Pdu] = []
        at = 0
        end = len(data)
        self._needed = _HEADER_OCTETS
        while at + _HEADER_OCTETS <= end:
            length, command, status, sequence = _HEADER.unpack_from(data, at)
            if not _HEADER_OCTETS <= length <= _PDU_OCTETS_MAX:
                self.broken = BrokenError(f"a PDU says that it has {length} octets")
                break
            following = at + length
            if following > end:
                self._needed = length
                break
            found.append(Pdu(command, status, sequence, data[at + _HEADER_OCTETS : following]))
            at = following
        self._rest = bytearray(data[at:])
        if self.broken is not None and not found:
            raise self.broken
        return found


def write(command: int, sequence: int, body: bytes = b"", status: int = 0) -> bytes:
    return _HEADER.pack(_HEADER_OCTETS + len(body), command, status, sequence) + body


def bind_body(system_id: str, password: str, system_type: str = "") -> bytes:
    """Return the body of the three binds, and of a response to one when only `system_id` matters."""
    names = (_c_string(system_id), _c_string(password), _c_string(system_type))
    return b"".join((*names, bytes((_VERSION, 0, 0)), b"\0"))


def read_bind(body: bytes) -> BindRequest:
    system_id, at = _read_c_string(body, 0)
    password, at = _read_c_string(body, at)
    system_type, at = _read_c_string(body, at)
    if at >= len(body):
        raise BrokenError("a bind is cut short")
    return BindRequest(system_id, password, system_type, body[at])


def read_text(body: bytes) -> str:
    """Read the one string of a response; empty where the body is missing, as it may be in an error."""
    return body[:_TEXT_MAX].partition(b"\0")[0].strip().decode("latin-1")


def read_short_message(body: bytes) -> ShortMessage:
    try:
        end = body.index(0)
        service_type = body[:end].decode("latin-1")
        source_ton, source_npi = body[end + 1], body[end + 2]
        start, end = end + 3, body.index(0, end + 3)
        source = body[start:end].decode("latin-1")
        destination_ton, destination_npi = body[end + 1], body[end + 2]
        start, end = end + 3, body.index(0, end + 3)
        destination = body[start:end].decode("latin-1")
        esm_class, protocol_id, priority = body[end + 1], body[end + 2], body[end + 3]
        start, end = end + 4, body.index(0, end + 4)
        schedule = body[start:end].decode("latin-1")
        start, end = end + 1, body.index(0, end + 1)
        validity = body[start:end].decode("latin-1")
        registered, replace, coding, default_id, length = body[end + 1 : end + 6]
    except (ValueError, IndexError):
        raise BrokenError("a message is cut short") from None
    start = end + 6
    end = start + length
    if end > len(body):
        raise BrokenError("a message's text is cut short")
    tlvs = _read_tlvs(body, end)
    text = body[start:end]
    return ShortMessage(
        service_type,
        source_ton,
        source_npi,
        source,
        destination_ton,
        destination_npi,
        destination,
        esm_class,
        protocol_id,
        priority,
        schedule,
        validity,
        registered,
        replace,
        coding,
        default_id,
        text or tlvs.get(MESSAGE_PAYLOAD, b""),
        tlvs,
    )


def read_data_sm(body: bytes) -> ShortMessage:
    """Read a data_sm, which has fewer fields and its text in message_payload."""
    service_type, at = _read_c_string(body, 0)
    source, after_source = _read_c_string(body, at + 2)
    destination, end = _read_c_string(body, after_source + 2)
    if end + 3 > len(body):
        raise BrokenError("a data_sm is cut short")
    tlvs = _read_tlvs(body, end + 3)
    return ShortMessage(
        service_type=service_type,
        source_ton=body[at],
        source_npi=body[at + 1],
        source=source,
        destination_ton=body[after_source],
        destination_npi=body[after_source + 1],
        destination=destination,
        esm_class=body[end],
        registered_delivery=body[end + 1],
        data_coding=body[end + 2],
        text=tlvs.get(MESSAGE_PAYLOAD, b""),
        tlvs=tlvs,
    )


def short_message_body(message: ShortMessage) -> bytes:
    """Return the body of a submit_sm or a deliver_sm; a long text goes into message_payload."""
    text, tlvs = message.text, message.tlvs
    if MESSAGE_PAYLOAD in tlvs or len(text) > _SHORT_MESSAGE_MAX:
        text, tlvs = b"", {**tlvs, MESSAGE_PAYLOAD: text}
    return b"".join(
        (
            _c_string(message.service_type),
            bytes((message.source_ton, message.source_npi)),
            _c_string(message.source),
            bytes((message.destination_ton, message.destination_npi)),
            _c_string(message.destination),
            bytes((message.esm_class, message.protocol_id, message.priority)),
            _c_string(message.schedule),
            _c_string(message.validity),
            bytes((message.registered_delivery, message.replace, message.data_coding, message.default_id)),
            bytes((len(text),)),
            text,
            *(_TLV_HEADER.pack(tag, len(value)) + value for tag, value in tlvs.items()),
        )
    )


class SubmitBodies:
    def __init__(self, source: str) -> None:
        digits = source.removeprefix("+")
        if not digits.isdecimal():
            ton, npi, written = 5, 0, source
        elif len(digits) <= _SHORT_CODE_DIGITS_MAX:
            ton, npi, written = 3, 0, digits
        else:
            ton, npi, written = 1, 1, digits
        # No service_type; the destination is an international number.
        self._head = b"\0" + bytes((ton, npi)) + _c_string(written) + b"\x01\x01"

    def body(
        self, destination_digits: str, payload: bytes, esm_class: int, data_coding: int, validity: str
    ) -> bytes:
        """Return the body of one segment; a final receipt is requested."""
        length = len(payload)
        assert length <= _SHORT_MESSAGE_MAX
        return b"".join(
            (
                self._head,
                destination_digits.encode("ascii"),
                # The protocol, the priority and the time to send at are left to the carrier.
                b"\0%c\0\0\0" % esm_class,
                validity.encode("ascii"),
                b"\0\x01\0%c\0%c" % (data_coding, length),
                payload,
            )
        )


def relative_validity(seconds: int) -> str:
    # Nothing but zeros would ask for the carrier's own validity, which is days.
    minutes, second = divmod(min(max(1, seconds), _VALIDITY_MAX_S), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"0000{day:02}{hour:02}{minute:02}{second:02}000R"


def _c_string(text: str) -> bytes:
    return text.encode("latin-1", "replace").replace(b"\0", b"") + b"\0"


def _read_c_string(body: bytes, at: int) -> tuple[str, int]:
    end = body.find(0, at)
    if end < 0:
        raise BrokenError("a string has no end")
    return body[at:end].decode("latin-1"), end + 1


def _read_tlvs(body: bytes, at: int) -> dict[int, bytes]:
    """Read the optional parameters; fewer than four octets at the end are some carriers' padding."""
    tlvs: dict[int, bytes] = {}
    while at + _TLV_HEADER_OCTETS <= len(body):
        tag, length = _TLV_HEADER.unpack_from(body, at)
        at += _TLV_HEADER_OCTETS
        if at + length > len(body):
            raise BrokenError("an optional parameter is cut short")
        tlvs[tag] = body[at : at + length]
        at += length
    return tlvs
