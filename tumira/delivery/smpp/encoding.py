"""Texts as payloads of segments, and back.

GSM-7 goes unpacked, one septet in an octet, as nearly every carrier wants it (data_coding 0); all else as
UCS-2, which is UTF-16 with the high octet first (data_coding 8). Segments of a long text begin with a user
data header that joins them on the handset (3GPP TS 23.040, section 9.2.3.24.1).

To some carriers data_coding 0 means Latin-1 or ASCII. Texts are cut into the same segments for them.
"""

import unicodedata
from collections.abc import Mapping
from typing import Final, NamedTuple

from tumira.carriers.url import ASCII, GSM_7, LATIN_1
from tumira.pricing.segments import BASIC, EXTENSION, Encoding, measure, parts

DEFAULT_ALPHABET: Final = 0
UCS_2: Final = 8

_UCS_2_UNITS_MAX: Final = 70
_UDH: Final = 0x40
_SEGMENTS_MAX: Final = 255
# Length of the header, kind of its one element, length of that element.
_HEADER_START: Final = b"\x05\x00\x03"

_ESCAPE: Final = 0x1B
_EXTENSION_CODES: Final = (0x0A, 0x14, 0x28, 0x29, 0x2F, 0x3C, 0x3D, 0x3E, 0x40, 0x65)
# The code of the escape has no character, so those after it stand one further than in the alphabet.
_BASIC_CODES: Final = tuple(code for code in range(len(BASIC) + 1) if code != _ESCAPE)

_TO_SEPTETS: Final = {
    **{ord(character): chr(code) for character, code in zip(BASIC, _BASIC_CODES, strict=True)},
    **{
        ord(character): chr(_ESCAPE) + chr(code)
        for character, code in zip(EXTENSION, _EXTENSION_CODES, strict=True)
    },
}


def _has(alphabet: str, text: str) -> bool:
    return text.encode(alphabet, "ignore").decode(alphabet) == text


def _plain(character: str) -> str:
    """Return a letter without its accent; a question mark for what has no such spelling."""
    letter = unicodedata.normalize("NFKD", character)[0]
    return letter if letter.isascii() else "?"


# By alphabet, the spelling of the characters of GSM-7 that it does not have.
_PLAIN: Final = {
    alphabet: {ord(one): _plain(one) for one in BASIC + EXTENSION if not _has(alphabet, one)}
    for alphabet in (LATIN_1, ASCII)
}
_UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"
_ESCAPE_OCTET: Final = bytes((_ESCAPE,))
# By octet; those without a character are unreadable.
_FROM_BASIC: Final = BASIC[:_ESCAPE] + _UNREADABLE + BASIC[_ESCAPE:] + _UNREADABLE * 128
_FROM_EXTENSION: Final = {
    bytes((code,)): character for code, character in zip(_EXTENSION_CODES, EXTENSION, strict=True)
}

# The two elements that join segments: with a reference of one octet, and of two.
_JOIN_8: Final = 0x00
_JOIN_16: Final = 0x08
_JOIN_OCTETS: Final = {_JOIN_8: 3, _JOIN_16: 4}

_SAR_REFERENCE: Final = 0x020C
_SAR_TOTAL: Final = 0x020E
_SAR_NUMBER: Final = 0x020F


class EncodedText(NamedTuple):
    data_coding: int
    esm_class: int
    payloads: list[bytes]


class SegmentPlace(NamedTuple):
    reference: int
    total: int
    number: int


def encode(text: str, reference: int, alphabet: str = GSM_7) -> EncodedText:
    """Encode a text; `reference` (0 to 255) joins its segments on the handset.

    `alphabet` is what data_coding 0 means to the carrier. A text with a character that it lacks goes as UCS-2
    if that takes no more segments, because those are priced; a longer text gets that character spelt plainly.
    """
    measured = measure(text)
    pieces = parts(text) if measured.segments > 1 else (text,)
    is_gsm_7 = measured.encoding is Encoding.GSM_7
    if is_gsm_7 and alphabet == GSM_7:
        data_coding = DEFAULT_ALPHABET
        payloads = [piece.translate(_TO_SEPTETS).encode("latin-1") for piece in pieces]
    elif is_gsm_7 and (len(text) > _UCS_2_UNITS_MAX or _has(alphabet, text)):
        data_coding = DEFAULT_ALPHABET
        payloads = [piece.translate(_PLAIN[alphabet]).encode(alphabet) for piece in pieces]
    else:
        data_coding = UCS_2
        # The faces refuse lone surrogates; one that comes all the same costs what it was priced.
        payloads = [piece.encode("utf-16-be", "surrogatepass") for piece in pieces]
    total = len(payloads)
    if total == 1:
        return EncodedText(data_coding, 0, payloads)
    assert total <= _SEGMENTS_MAX
    headers = (_HEADER_START + bytes((reference, total, number)) for number in range(1, total + 1))
    return EncodedText(
        data_coding, _UDH, [header + payload for header, payload in zip(headers, payloads, strict=True)]
    )


def decode(data_coding: int, payload: bytes, alphabet: str = GSM_7) -> str:
    """Decode a payload without its header; invalid octets become replacement characters."""
    if data_coding == UCS_2:
        return payload.decode("utf-16-be", "replace")
    if data_coding == DEFAULT_ALPHABET:
        return _from_septets(payload) if alphabet == GSM_7 else payload.decode(alphabet, "replace")
    return payload.decode("latin-1")


def _from_septets(payload: bytes) -> str:
    first, *escaped = payload.split(_ESCAPE_OCTET)
    return _from_basic(first) + "".join(
        _FROM_EXTENSION.get(piece[:1], _UNREADABLE) + _from_basic(piece[1:]) for piece in escaped
    )


def _from_basic(payload: bytes) -> str:
    return payload.decode("latin-1").translate(_FROM_BASIC)


def split_segment(
    esm_class: int, payload: bytes, tlvs: Mapping[int, bytes]
) -> tuple[SegmentPlace | None, bytes]:
    """Return the place of a segment, by its header or by its optional parameters, and its text."""
    place, text = split_udh(esm_class, payload)
    if place is None and tlvs:
        values = [tlvs.get(tag) for tag in (_SAR_REFERENCE, _SAR_TOTAL, _SAR_NUMBER)]
        if all(values):
            place = SegmentPlace(*(int.from_bytes(value or b"") for value in values))
    return place, text


def split_udh(esm_class: int, payload: bytes) -> tuple[SegmentPlace | None, bytes]:
    if not esm_class & _UDH or not payload:
        return None, payload
    end = 1 + payload[0]
    header, text = payload[1:end], payload[end:]
    at = 0
    # Every element is at least two octets long, so this ends with the header.
    while at + 2 <= len(header):
        kind, length = header[at], header[at + 1]
        element = header[at + 2 : at + 2 + length]
        if _JOIN_OCTETS.get(kind) == length == len(element):
            return SegmentPlace(int.from_bytes(element[:-2], "big"), element[-2], element[-1]), text
        at += 2 + length
    return None, text
