"""Signatures of webhooks after Standard Webhooks, scheme `v1`."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Sequence
from hmac import digest
from typing import Final

SECRET_BYTES: Final = 32

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
    return " ".join(["v1," + b64encode(digest(secret, signed, "sha256")).decode() for secret in secrets])
