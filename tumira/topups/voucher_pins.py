"""Voucher PINs and codes: their formats, their hashes, and how a stored PIN is encrypted.

The operator's own vouchers carry 80 random bits, so a plain hash of a code reveals nothing. The PINs of the
South African issuers are short: they are kept encrypted, with a keyed hash, by keys the database lacks.
"""

import hmac
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from hashlib import sha256
from typing import Final

from Crypto.Cipher import AES

from tumira.core.translation import mark

CODE_LENGTH: Final = 16
TAIL_LENGTH: Final = 4
# Longer input is refused unread.
TYPED_MAX: Final = 100

_PREFIX: Final = "TMR"
# Crockford's alphabet: letters that look like digits are left out, and read as those digits.
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ALIKE: Final = str.maketrans("OIL", "011")
_CODE: Final = re.compile(f"[{_ALPHABET}]{{{CODE_LENGTH}}}")
# Phones replace hyphens with dashes.
_BETWEEN: Final = re.compile("[\\s\\-\u2010-\u2015]+")
_DIGITS: Final = re.compile("[0-9]+")


class Issuer(StrEnum):
    ONE_VOUCHER = "onevoucher"
    OTT = "ott"
    BLU = "blu"
    # The operator of this gateway.
    OWN = "own"

    @property
    def title(self) -> str:  # type: ignore[override]
        """Return the name that customers know."""
        return _TITLES[self]

    @property
    def pin_length(self) -> int:
        """Return the number of digits of a PIN, or of characters of a code."""
        return 12 if self is Issuer.OTT else CODE_LENGTH

    @property
    def needs_value(self) -> bool:
        """Tell whether the customer has to say what it is worth, because its issuer does not."""
        return self is Issuer.ONE_VOUCHER

    @property
    def needs_phone(self) -> bool:
        """Tell whether the issuer requires a number to send change to."""
        return self is Issuer.OTT


_TITLES: Final[Mapping[Issuer, str]] = {
    Issuer.ONE_VOUCHER: "1Voucher",
    Issuer.OTT: mark("OTT voucher"),
    Issuer.BLU: mark("Blu Voucher"),
    Issuer.OWN: mark("Tumira voucher"),
}


class VoucherState(StrEnum):
    UNUSED = "unused"
    USED = "used"
    VOID = "void"
    EXPIRED = "expired"


def read_pin(issuer: Issuer, text: str) -> str | None:
    """Read a PIN or code as people type it; None where it cannot be valid."""
    if len(text) > TYPED_MAX:
        return None
    plain = _BETWEEN.sub("", text)
    if issuer is Issuer.OWN:
        return _read_code(plain)
    return plain if _DIGITS.fullmatch(plain) and len(plain) == issuer.pin_length else None


def _read_code(plain: str) -> str | None:
    plain = plain.upper()
    if len(plain) == len(_PREFIX) + CODE_LENGTH:
        plain = plain.removeprefix(_PREFIX)
    code = plain.translate(_ALIKE)
    return code if _CODE.fullmatch(code) else None


def new_code() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(CODE_LENGTH))


def write_code(code: str) -> str:
    """Write a code in groups that are easy to type: `TMR-XXXX-XXXX-XXXX-XXXX`."""
    return "-".join((_PREFIX, *(code[start : start + 4] for start in range(0, CODE_LENGTH, 4))))


def hash_code(code: str) -> bytes:
    return sha256(code.encode()).digest()


def tail_of(code: str) -> str:
    return code[-TAIL_LENGTH:]


def sign_for_ott(key: str, fields: Mapping[str, str]) -> str:
    """Return OTT's hash of a call: over its key and the values in the order of their names."""
    values = "".join(fields[name] for name in sorted(fields, key=str.lower))
    return sha256((key + values).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ChangeVoucher:
    """A new voucher for the unused rest of a voucher; it is the customer's money, in rand."""

    pin: str = field(repr=False)
    amount: Decimal | None
    expires: str | None = None


def write_change(change: ChangeVoucher) -> str:
    amount = None if change.amount is None else str(change.amount)
    return json.dumps({"pin": change.pin, "amount": amount, "expires": change.expires})


def read_change(text: str) -> ChangeVoucher | None:
    """Read a change voucher from its text; None where it is malformed."""
    try:
        told = json.loads(text)
        amount = None if told["amount"] is None else Decimal(told["amount"])
        return ChangeVoucher(str(told["pin"]), amount, told["expires"])
    except (ValueError, KeyError, TypeError, InvalidOperation):
        return None


_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16


class Seal:
    """Encrypts texts with a key derived from a secret, such as the credentials at the issuer."""

    def __init__(self, secret: str) -> None:
        assert secret
        self._key = sha256(b"tumira seal\0" + secret.encode()).digest()
        self._hash_key = sha256(b"tumira hash\0" + secret.encode()).digest()

    def close(self, text: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        cipher = AES.new(self._key, AES.MODE_GCM, nonce=nonce)
        sealed, tag = cipher.encrypt_and_digest(text.encode())
        return nonce + tag + sealed

    def open(self, closed: bytes) -> str | None:
        """Decrypt; None where the text was encrypted with another secret, or was changed."""
        nonce, tag = closed[:_NONCE_BYTES], closed[_NONCE_BYTES : _NONCE_BYTES + _TAG_BYTES]
        cipher = AES.new(self._key, AES.MODE_GCM, nonce=nonce)
        try:
            return cipher.decrypt_and_verify(closed[_NONCE_BYTES + _TAG_BYTES :], tag).decode()
        except ValueError:
            return None

    def hash(self, text: str) -> bytes:
        """Return a keyed hash: it tells two texts apart, and reveals nothing without the secret."""
        return hmac.digest(self._hash_key, text.encode(), "sha256")
