"""USDT addresses, derived from the operator's public key so that no private key is here, and payment links.

The operator keeps the seed offline and gives the public key of the account level, m/44'/60'/0'. The addresses
0/0, 0/1, … follow from it (BIP-32, public derivation), and nothing can be spent with it. Few wallets
understand a payment link (ERC-681) and exchanges only the address, so the address is shown first.
"""

import hmac
import re
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256, sha512
from typing import Final

from coincurve import PublicKey
from Crypto.Hash import keccak

from tumira.core.errors import OperatorError
from tumira.core.translation import _
from tumira.topups.usdt.deposit_rules import to_units

PLACES_MAX: Final = 2**31

_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
# The length of a written extended key.
_LENGTH: Final = 111
_VERSION: Final = bytes.fromhex("0488b21e")
_PRIVATE_VERSION: Final = bytes.fromhex("0488ade4")
_ACCOUNT_DEPTH: Final = 3
_PAYLOAD: Final = 78
_CHECKSUM: Final = 4
# The branch of a wallet for addresses that are given out.
_RECEIVING: Final = 0
_UPPER_FROM: Final = 8
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]{40}")

_WRONG: Final = (
    "TUMIRA_USDT_XPUB is no public key of the account level: give the xpub of m/44'/60'/0' that the wallet "
    "shows."
)
_PRIVATE: Final = (
    "TUMIRA_USDT_XPUB is a private key (xprv), with which everything can be spent: keep it offline, take it "
    "out of the settings, and give the xpub that belongs to it."
)


@dataclass(frozen=True, slots=True)
class ExtendedKey:
    """A public key from which further keys are derived."""

    public_key: bytes = field(repr=False)
    chain_code: bytes = field(repr=False)

    @property
    def sha256(self) -> bytes:
        """Return an identifier that does not reveal the key."""
        return sha256(self.public_key + self.chain_code).digest()


def read_xpub(text: str) -> ExtendedKey:
    """Read the operator's public key; raises OperatorError, which never repeats it."""
    if text.startswith("xprv"):
        raise OperatorError(_PRIVATE)
    payload = _read_base58(text)
    if payload is None:
        raise OperatorError(_WRONG)
    if payload.startswith(_PRIVATE_VERSION):
        raise OperatorError(_PRIVATE)
    if not payload.startswith(_VERSION) or payload[4] != _ACCOUNT_DEPTH:
        raise OperatorError(_WRONG)
    key = ExtendedKey(public_key=payload[45:], chain_code=payload[13:45])
    try:
        PublicKey(key.public_key)
    except ValueError:
        raise OperatorError(_WRONG) from None
    return key


def _read_base58(text: str) -> bytes | None:
    """Decode base58 with its checksum; None where it is misspelt."""
    if len(text) != _LENGTH or not set(text) <= set(_ALPHABET):
        return None
    number = 0
    for letter in text:
        number = number * len(_ALPHABET) + _ALPHABET.index(letter)
    data = number.to_bytes(_PAYLOAD + _CHECKSUM)
    payload, checksum = data[:_PAYLOAD], data[_PAYLOAD:]
    return payload if sha256(sha256(payload).digest()).digest()[:_CHECKSUM] == checksum else None


def _child(parent: ExtendedKey, index: int) -> ExtendedKey:
    """Derive the child public key at an index (BIP-32, CKDpub)."""
    assert 0 <= index < PLACES_MAX
    digest = hmac.digest(parent.chain_code, parent.public_key + index.to_bytes(4), sha512)
    # One in 2^127 indexes has no key, and raises here.
    public_key = PublicKey(parent.public_key).add(digest[:32])
    return ExtendedKey(public_key.format(), digest[32:])


def derive_address(key: ExtendedKey, place: int) -> str:
    """Return the address at a place, in lower case, as it is stored."""
    child = _child(_child(key, _RECEIVING), place)
    point = PublicKey(child.public_key).format(compressed=False)
    return "0x" + _keccak(point[1:])[-20:].hex()


def with_checksum(address: str) -> str:
    """Write an address with the capitals of EIP-55, which reveal a mistyped character."""
    digits = address.removeprefix("0x").lower()
    nibbles = _keccak(digits.encode()).hex()
    return "0x" + "".join(
        digit.upper() if int(nibble, 16) >= _UPPER_FROM else digit
        for digit, nibble in zip(digits, nibbles, strict=False)
    )


def read_address(text: str) -> str | None:
    """Read an address as people give it, into lower case; None for a misspelt one.

    An address in a single case carries no checksum and is accepted.
    """
    if not _ADDRESS.fullmatch(text):
        return None
    digits = text.removeprefix("0x")
    has_checksum = digits not in {digits.lower(), digits.upper()}
    if has_checksum and with_checksum(text) != text:
        return None
    return text.lower()


def _keccak(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


NETWORKS: Final = {56: "BNB Smart Chain (BEP20)", 97: "BNB Smart Chain testnet (BEP20)"}


def network_name(chain_id: int) -> str:
    """Return the name of a chain in wallets, so that nobody pays on another one."""
    return NETWORKS.get(chain_id) or _("chain {number}").format(number=chain_id)


def payment_link(contract: str, chain_id: int, address: str, amount: Decimal | None = None) -> str:
    """Return a link with which a wallet pays USDT: it calls the token, not the address."""
    link = f"ethereum:{with_checksum(contract)}@{chain_id}/transfer?address={with_checksum(address)}"
    if amount is None:
        return link
    assert amount > 0
    return f"{link}&uint256={to_units(amount)}"
