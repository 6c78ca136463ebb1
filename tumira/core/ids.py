"""Identifiers: how they are made, written and read.

An id is a UUIDv7: its first 48 bits are the milliseconds at which it was made, so ids sort by age and a
table can be cut into weeks by its key. Outside the database it is written as a prefix that says what it
names and 26 digits of lower-case base32, such as `msg_06dkxr2j0e3z0…`.

The messages of a batch share all but the last 38 bits of the batch's id, and of those the first ten number
the recipients. So the primary key alone finds a batch's messages, in order, with no index of their own.
"""

import re
import secrets
from collections.abc import Sequence
from typing import Final, NewType
from uuid import UUID

from asyncpg.pgproto import pgproto

# The class that asyncpg returns: made, and passed to the database, in a fraction of the time.
FastUUID: Final = pgproto.UUID

AccountId = NewType("AccountId", UUID)
KeyId = NewType("KeyId", UUID)
BatchId = NewType("BatchId", UUID)
MessageId = NewType("MessageId", UUID)
EventId = NewType("EventId", UUID)
EndpointId = NewType("EndpointId", UUID)
TemplateId = NewType("TemplateId", UUID)
UploadId = NewType("UploadId", UUID)
ReplyId = NewType("ReplyId", UUID)
TopUpId = NewType("TopUpId", UUID)
VoucherId = NewType("VoucherId", UUID)
OperatorId = NewType("OperatorId", UUID)
SenderNameId = NewType("SenderNameId", UUID)
ContactListId = NewType("ContactListId", UUID)
SavedTextId = NewType("SavedTextId", UUID)
ScheduleId = NewType("ScheduleId", UUID)

ACCOUNT: Final = "acc_"
KEY: Final = "key_"
BATCH: Final = "bat_"
MESSAGE: Final = "msg_"
EVENT: Final = "evt_"
ENDPOINT: Final = "end_"
TEMPLATE: Final = "tpl_"
UPLOAD: Final = "upl_"
REPLY: Final = "rpl_"
TOP_UP: Final = "top_"
VOUCHER: Final = "vch_"
OPERATOR: Final = "opr_"
SENDER_NAME: Final = "snd_"
CONTACT_LIST: Final = "lst_"
SAVED_TEXT: Final = "txt_"
SCHEDULE: Final = "sch_"
REQUEST: Final = "req_"

MESSAGES_MAX: Final = 1024

# Crockford's alphabet: no i, l, o or u, in the order of the code points, so text sorts as the ids do.
_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = [high + low for high in _DIGITS for low in _DIGITS]
_PYTHON_DIGITS: Final = str.maketrans(_DIGITS, "0123456789abcdefghijklmnopqrstuv")
_ALL_DIGITS: Final = re.compile(f"[{_DIGITS}]{{26}}")
_VERSION_7: Final = 0x70
_VARIANT: Final = 0x80
# One digit for each random octet.
_RANDOM_DIGITS: Final = bytes(ord(_DIGITS[octet % 32]) for octet in range(256))
_FORTY_BITS: Final = (1 << 40) - 1
_TAIL_BITS: Final = 38
_PLACE_SHIFT: Final = 28


def _from_int(value: int) -> UUID:
    return FastUUID(value.to_bytes(16))


def new_id(at_ms: int) -> UUID:
    random = secrets.token_bytes(10)
    version, variant = _VERSION_7 | random[0] & 0x0F, _VARIANT | random[2] & 0x3F
    return FastUUID(at_ms.to_bytes(6) + bytes((version, random[1], variant)) + random[3:])


def new_request_id(at_ms: int) -> str:
    """Make the id of a request, as text: the time and 80 random bits. Nothing is stored by it."""
    random = secrets.token_bytes(16).translate(_RANDOM_DIGITS).decode()
    return f"{REQUEST}{_write_time(at_ms)}{random}"


def message_ids(batch_id: BatchId, count: int) -> Sequence[UUID]:
    """Make the ids of a batch's messages, ascending in the order of its recipients."""
    assert count <= MESSAGES_MAX
    head = batch_id.int >> _TAIL_BITS << _TAIL_BITS
    random = secrets.token_bytes(4 * count)
    return [
        _from_int(head | place << _PLACE_SHIFT | int.from_bytes(random[4 * place : 4 * place + 4]) >> 4)
        for place in range(count)
    ]


def message_bounds(batch_id: BatchId) -> tuple[UUID, UUID]:
    """Return the lowest and highest id that a message of this batch can have."""
    low = batch_id.int >> _TAIL_BITS << _TAIL_BITS
    return UUID(int=low), UUID(int=low | ((1 << _TAIL_BITS) - 1))


def first_id(at_ms: int) -> UUID:
    """Return the lower bound of all ids made at this moment or later."""
    return UUID(int=at_ms << 80)


def made_at_ms(identifier: UUID) -> int:
    return identifier.int >> 80


def write_id(prefix: str, identifier: UUID) -> str:
    value = identifier.int
    # In parts, because Python is faster with smaller integers; spelt out, because each call writes two.
    high, low = value >> 40 & _FORTY_BITS, value & _FORTY_BITS
    return (
        f"{prefix}{_write_time(value >> 80)}"
        f"{_PAIRS[high >> 30]}{_PAIRS[high >> 20 & 1023]}{_PAIRS[high >> 10 & 1023]}{_PAIRS[high & 1023]}"
        f"{_PAIRS[low >> 30]}{_PAIRS[low >> 20 & 1023]}{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"
    )


def _write_time(at_ms: int) -> str:
    low = at_ms & _FORTY_BITS
    return (
        f"{_PAIRS[at_ms >> 40]}"
        f"{_PAIRS[low >> 30]}{_PAIRS[low >> 20 & 1023]}{_PAIRS[low >> 10 & 1023]}{_PAIRS[low & 1023]}"
    )


def read_id(prefix: str, text: str) -> UUID | None:
    """Read an id as it was written, or None: a misspelt id names nothing."""
    digits = text.removeprefix(prefix)
    if not text.startswith(prefix) or not _ALL_DIGITS.fullmatch(digits):
        return None
    value = int(digits.translate(_PYTHON_DIGITS), 32)
    return UUID(int=value) if value < 1 << 128 else None
