"""Parts of replies as carriers deliver them, and the texts that they make."""

import itertools
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from tumira.carriers.url import GSM_7, LATIN_1
from tumira.delivery.smpp.encoding import DEFAULT_ALPHABET, UCS_2, decode

# Far longer than anything that a phone sends in 255 parts of which the last ones are missing.
TEXT_MAX: Final = 10_000
ADDRESS_MAX: Final = 40
# Stands for parts that did not come.
GAP: Final = " […] "

_ENCODE: Final = msgspec.msgpack.Encoder().encode
# Groups of 3GPP TS 23.038, section 4, by the high half of data_coding.
_GENERAL_MAX: Final = 0x0F
_CLASS: Final = 0xF0
_CLASS_8_BIT: Final = 0x04
_WAITING_GSM_7: Final = (0xC0, 0xD0)
_WAITING_UCS_2: Final = 0xE0
_CODING_LATIN_1: Final = 3


class ReplyPart(Struct, frozen=True):
    """A text that a person sent, or a part of it; the addresses are as the carrier wrote them."""

    number: str
    destination: str
    # None for a text that comes as UTF-8.
    data_coding: int | None
    payload: bytes
    reference: int = 0
    total: int = 1
    part: int = 1
    # The carrier's own id of it.
    carrier_ref: str | None = None

    @property
    def digest(self) -> bytes:
        """Return what the carrier sends again if it delivers the same part again."""
        if self.carrier_ref:
            return sha256(_ENCODE((self.carrier_ref, self.total, self.part))).digest()
        return sha256(_ENCODE(self)).digest()


def join(pieces: Mapping[int, tuple[int | None, bytes]], total: int, alphabet: str = GSM_7) -> str:
    """Return the text of the parts that came, by their numbers; a gap stands for those that did not.

    `alphabet` is what data_coding 0 means to the carrier.
    """
    runs: list[tuple[int | None, bytes]] = []
    texts: list[str] = []
    for number in range(1, total + 2):
        piece = pieces.get(number)
        if piece is not None:
            runs.append(piece)
            continue
        if runs:
            texts.append(_decode_run(runs, alphabet))
            runs = []
        # One gap, however many parts are missing.
        if number <= total and texts[-1:] != [GAP]:
            texts.append(GAP)
    return "".join(texts).strip()[:TEXT_MAX]


def _decode_run(run: list[tuple[int | None, bytes]], alphabet: str) -> str:
    """Decode neighbouring parts; together where they can be, because a character may be cut in two."""
    return "".join(
        decode_payload(coding, b"".join(payload for _, payload in same), alphabet)
        for coding, same in itertools.groupby(run, key=lambda piece: piece[0])
    )


def decode_payload(data_coding: int | None, payload: bytes, alphabet: str = GSM_7) -> str:
    """Decode a text without its header; no octets make this fail."""
    if data_coding is None:
        text = payload.decode("utf-8", "replace")
    else:
        text = _decode_octets(_coding(data_coding), payload, alphabet)
    # PostgreSQL refuses NUL, and other control characters mean nothing in a text.
    return "".join(one if one >= " " or one in "\n\t" else "\n" if one == "\r" else "" for one in text)


def _decode_octets(coding: int, payload: bytes, alphabet: str) -> str:
    # Some carriers say UCS-2 and send one octet a letter, which then is rarely an even number of them.
    if coding == UCS_2 and len(payload) % 2 == 0:
        return decode(UCS_2, payload).removeprefix("\ufeff")
    if coding != DEFAULT_ALPHABET or alphabet == LATIN_1:
        return payload.decode("latin-1")
    if payload.isascii():
        return decode(DEFAULT_ALPHABET, payload, alphabet)
    # The default alphabet has seven bits; a carrier that sends eight means another one.
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        return payload.decode("latin-1")


def _coding(data_coding: int) -> int:
    """Return the general coding that a data_coding stands for."""
    if data_coding <= _GENERAL_MAX:
        return data_coding
    group = data_coding & _CLASS
    if group == _WAITING_UCS_2:
        return UCS_2
    if group in _WAITING_GSM_7 or (group == _CLASS and not data_coding & _CLASS_8_BIT):
        return DEFAULT_ALPHABET
    return _CODING_LATIN_1
