"""What does an API key look like? `tmr_<public id>_<secret>`: the id finds it, the secret proves it."""

import re
from typing import Final

from msgspec import Struct

from tumira.core.ids import KEY, KeyId, read_id, write_id

_SHAPE: Final = re.compile(r"tmr_([0-9a-z]{26})_([0-9a-z]{32})")


class ParsedKey(Struct, frozen=True):
    """The two halves of a key."""

    key_id: KeyId
    secret: str


def parse_key(text: str) -> ParsedKey | None:
    """Take a key apart, or return None for what cannot be one."""
    match = _SHAPE.fullmatch(text)
    key_id = None if match is None else read_id(KEY, KEY + match[1])
    return None if match is None or key_id is None else ParsedKey(KeyId(key_id), match[2])


def write_key(key: ParsedKey) -> str:
    """Put a key together, to be shown once."""
    return f"tmr_{write_id('', key.key_id)}_{key.secret}"
