"""How is a voucher's PIN kept while it may be needed? Sealed, by a key that the database does not have."""

import hmac
import secrets
from hashlib import sha256
from typing import Final

from Crypto.Cipher import AES

_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


class Seal:
    """Closes and opens texts with a key made from a secret, such as the access to the voucher's issuer."""

    def __init__(self, secret: str) -> None:
        assert secret
        self._key = sha256(b"tumira seal\0" + secret.encode()).digest()
        self._hash_key = sha256(b"tumira hash\0" + secret.encode()).digest()

    def close(self, text: str) -> bytes:
        """Return a text that only who has the secret can read."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        cipher = AES.new(self._key, AES.MODE_GCM, nonce=nonce)
        sealed, tag = cipher.encrypt_and_digest(text.encode())
        return nonce + tag + sealed

    def open(self, closed: bytes) -> str | None:
        """Return the text, or None where it was closed with another secret, or was changed."""
        nonce, tag = closed[:_NONCE_BYTES], closed[_NONCE_BYTES : _NONCE_BYTES + _TAG_BYTES]
        cipher = AES.new(self._key, AES.MODE_GCM, nonce=nonce)
        try:
            return cipher.decrypt_and_verify(closed[_NONCE_BYTES + _TAG_BYTES :], tag).decode()
        except ValueError:
            return None

    def hash(self, text: str) -> bytes:
        """Return what tells two texts apart, and tells nobody without the secret what they are."""
        return hmac.digest(self._hash_key, text.encode(), "sha256")
