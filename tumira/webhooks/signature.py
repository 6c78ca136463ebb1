"""Signatures of webhooks after Standard Webhooks, scheme `v1`."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _hashlib import HASH

SECRET_BYTES: Final = 32
# As many as the endpoints to which a worker delivers at once.
_SECRETS_CACHED: Final = 500
# Of SHA-256.
_BLOCK_BYTES: Final = 64

_PREFIX: Final = "whsec_"


def write_secret(secret: bytes) -> str:
    return _PREFIX + b64encode(secret).decode()


def read_secret(text: str) -> bytes:
    try:
        return b64decode(text.removeprefix(_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("A secret is whsec_ and base64.") from error


def sign(secrets: Sequence[bytes], event_id: str, at_s: int, body: bytes) -> str:
    """Return the value of `webhook-signature`: one signature for each secret."""
    signed = b"%s.%d.%s" % (event_id.encode(), at_s, body)
    return " ".join([_sign(secret, signed) for secret in secrets])


def _sign(secret: bytes, signed: bytes) -> str:
    """Return an HMAC (RFC 2104), in half of the time that `hmac.digest` takes to prepare each one."""
    inner, outer = _states(secret)
    inner, outer = inner.copy(), outer.copy()
    inner.update(signed)
    outer.update(inner.digest())
    return "v1," + b64encode(outer.digest()).decode()


@lru_cache(_SECRETS_CACHED)
def _states(secret: bytes) -> "tuple[HASH, HASH]":
    """Return the inner and the outer hash after the key."""
    assert len(secret) <= _BLOCK_BYTES
    key = secret.ljust(_BLOCK_BYTES, b"\0")
    return sha256(bytes(octet ^ 0x36 for octet in key)), sha256(bytes(octet ^ 0x5C for octet in key))
