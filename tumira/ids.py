"""How does an identifier look, and how is one made?

An id is a UUIDv7: its first 48 bits are the milliseconds at which it was made, so ids sort by age
and a table can be cut into weeks by its key. Outside the database it is written as a prefix that says
what it names and 26 digits of lower-case base32, such as `msg_06dkxr2j0e3z0…`.
"""

import secrets
from collections.abc import Sequence
from typing import Final, NewType
from uuid import UUID

AccountId = NewType("AccountId", UUID)
KeyId = NewType("KeyId", UUID)
BatchId = NewType("BatchId", UUID)
MessageId = NewType("MessageId", UUID)

ACCOUNT: Final = "acc_"
KEY: Final = "key_"
BATCH: Final = "bat_"
MESSAGE: Final = "msg_"
REQUEST: Final = "req_"

# A run of ids numbers its members in the 12 bits after the milliseconds.
RUN_MAX: Final = 4096

# Crockford's alphabet: no i, l, o or u, in the order of the code points, so text sorts as the ids do.
_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS: Final = [high + low for high in _DIGITS for low in _DIGITS]
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_LENGTH: Final = 26
_VERSION_7: Final = 0x7 << 76
_VARIANT: Final = 0b10 << 62


def new_ids(at_ms: int, count: int) -> Sequence[UUID]:
    """Make `count` ids for one moment, in ascending order, none to be guessed from another."""
    assert 0 < count <= RUN_MAX
    head = (at_ms << 80) | _VERSION_7 | _VARIANT
    random = secrets.token_bytes(8 * count)
    return [
        UUID(int=head | (place << 64) | (int.from_bytes(random[8 * place : 8 * place + 8]) >> 2))
        for place in range(count)
    ]


def new_id(at_ms: int) -> UUID:
    """Make one id for this moment."""
    head = (at_ms << 80) | _VERSION_7 | _VARIANT
    random = secrets.randbits(74)
    return UUID(int=head | (random >> 62 << 64) | (random & ((1 << 62) - 1)))


def first_id(at_ms: int) -> UUID:
    """Return the lower bound of all ids made at this moment or later."""
    return UUID(int=at_ms << 80)


def made_at_ms(identifier: UUID) -> int:
    """Return the moment at which an id was made, in milliseconds since 1970."""
    return identifier.int >> 80


def write_id(prefix: str, identifier: UUID) -> str:
    """Write an id the way callers see it."""
    value = identifier.int
    pairs = [_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)]
    return prefix + "".join(pairs)


def read_id(prefix: str, text: str) -> UUID | None:
    """Read an id as it was written, or None: a misspelt id names nothing."""
    if len(text) != len(prefix) + _LENGTH or not text.startswith(prefix):
        return None
    value = 0
    for digit in text[len(prefix) :]:
        if digit not in _VALUES:
            return None
        value = value << 5 | _VALUES[digit]
    return UUID(int=value) if value < 1 << 128 else None
