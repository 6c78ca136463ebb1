"""Parts of replies: read from what carriers deliver, decoded, and joined in any order."""

import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.delivery.replies.parts import GAP, TEXT_MAX, ReplyPart, decode_payload, join
from tumira.delivery.smpp.deliver_sm import read_receipt, read_reply
from tumira.delivery.smpp.encoding import encode
from tumira.delivery.smpp.pdu import MESSAGE_PAYLOAD, ShortMessage, read_short_message, short_message_body
from tumira.pricing.segments import BASIC, EXTENSION

SAR: Final = (0x020C, 0x020E, 0x020F)
# What a phone can type, without control characters, of which a reply keeps line ends only.
LETTERS: Final = "".join(sorted(set(BASIC + EXTENSION) - set("\r\n\f")))
TEXTS: Final = st.one_of(
    st.text(alphabet=LETTERS, min_size=1, max_size=700),
    st.text(
        alphabet=st.characters(exclude_categories=("Cs", "Cc", "Cf", "Zs", "Zl", "Zp")),
        min_size=1,
        max_size=300,
    ),
    st.text(alphabet="ab€{}[]\N{PARTY POPPER}š", min_size=1, max_size=400),
)


def reply(**fields: object) -> ReplyPart:
    message = ShortMessage(source="263771200001", destination="33123")._replace(**fields)  # type: ignore[arg-type]
    found = read_reply(read_short_message(short_message_body(message)))
    assert found is not None
    return found


def sent_as(text: str, way: str, reference: int) -> list[ReplyPart]:
    """Write a text as carriers deliver long ones: with a header of either width, or with SAR parameters."""
    encoded = encode(text, reference % 256)
    total = len(encoded.payloads)
    parts = []
    for number, payload in enumerate(encoded.payloads, start=1):
        if total == 1:
            parts.append(reply(data_coding=encoded.data_coding, text=payload))
        elif way == "UDH of 8 bits":
            parts.append(reply(data_coding=encoded.data_coding, esm_class=encoded.esm_class, text=payload))
        elif way == "UDH of 16 bits":
            header = b"\x06\x08\x04" + reference.to_bytes(2) + bytes((total, number))
            parts.append(reply(data_coding=encoded.data_coding, esm_class=0x40, text=header + payload[6:]))
        else:
            values = (reference.to_bytes(2), bytes((total,)), bytes((number,)))
            tlvs = dict(zip(SAR, values, strict=True))
            parts.append(reply(data_coding=encoded.data_coding, text=payload[6:], tlvs=tlvs))
    return parts


@given(
    text=TEXTS,
    way=st.sampled_from(["UDH of 8 bits", "UDH of 16 bits", "SAR"]),
    reference=st.integers(0, 65535),
    seed=st.integers(0, 1000),
)
def test_a_text_is_the_same_whatever_its_parts_and_their_order(
    text: str, way: str, reference: int, seed: int
) -> None:
    parts = sent_as(text, way, reference)
    assert {(one.total, one.reference) for one in parts} == {(len(parts), parts[0].reference)}
    random.Random(seed).shuffle(parts)
    joined = join({one.part: (one.data_coding, one.payload) for one in parts}, len(parts))
    assert joined == text.strip()


@given(
    text=st.text(alphabet="abc ", min_size=400, max_size=1200), kept=st.sets(st.integers(1, 9), min_size=1)
)
def test_missing_parts_are_a_gap_and_the_others_stay_in_order(text: str, kept: set[int]) -> None:
    parts = {one.part: (one.data_coding, one.payload) for one in sent_as(text, "SAR", 7)}
    here = {number: part for number, part in parts.items() if number in kept}
    joined = join(here, len(parts))
    at = 0
    for number in sorted(here):
        piece = here[number][1].decode().strip()
        found = joined.find(piece, at)
        assert found >= at
        at = found
    assert (GAP.strip() in joined) == (len(here) < len(parts))


@given(coding=st.integers(0, 255), payload=st.binary(max_size=300))
def test_no_octets_make_decoding_fail(coding: int, payload: bytes) -> None:
    text = decode_payload(coding, payload)
    assert "\0" not in text
    text.encode("utf-8")


@pytest.mark.parametrize(
    ("coding", "payload", "text"),
    [
        (0, b"\x00 \x1b\x65 \x11", "@ € _"),
        (0, "Naïve £5".encode(), "Naïve £5"),
        (0, b"caf\xe9", "café"),
        (1, b"plain", "plain"),
        (3, "Größe".encode("latin-1"), "Größe"),
        (8, "Ndiri kuuya šŋ".encode("utf-16-be"), "Ndiri kuuya šŋ"),
        (8, "\ufeffyes".encode("utf-16-be"), "yes"),
        (8, b"odd", "odd"),
        (0xF0, b"flash\x00", "flash@"),
        (0xF4, b"eight", "eight"),
        (0xE0, "Ž".encode("utf-16-be"), "Ž"),
        (None, "déjà".encode(), "déjà"),
        (3, b"one\r\ntwo\0\x07", "one\n\ntwo"),
    ],
)
def test_every_alphabet_is_read(coding: int | None, payload: bytes, text: str) -> None:
    assert decode_payload(coding, payload) == text


@pytest.mark.parametrize(
    ("alphabet", "payload", "text"),
    [
        ("latin1", b"me@shop_1 $5", "me@shop_1 $5"),
        ("latin1", "Größe".encode("latin-1"), "Größe"),
        ("ascii", b"me@shop_1 $5", "me@shop_1 $5"),
        ("ascii", "Größe".encode(), "Größe"),
        ("gsm7", b"me@shop_1 $5", "me¡shop§1 ¤5"),
    ],
)
def test_data_coding_0_is_read_in_the_alphabet_of_the_carrier(
    alphabet: str, payload: bytes, text: str
) -> None:
    assert join({1: (0, payload)}, 1, alphabet) == text
    assert decode_payload(8, "Ž".encode("utf-16-be"), alphabet) == "Ž"


def test_a_letter_that_is_cut_in_two_is_joined() -> None:
    octets = "\N{PARTY POPPER} yes".encode("utf-16-be")
    assert join({1: (8, octets[:2]), 2: (8, octets[2:])}, 2) == "\N{PARTY POPPER} yes"


def test_a_text_in_message_payload_is_read_and_a_very_long_one_is_cut() -> None:
    long = reply(text=b"x" * (TEXT_MAX + 100), tlvs={MESSAGE_PAYLOAD: b""})
    assert join({1: (long.data_coding, long.payload)}, 1) == "x" * TEXT_MAX


def test_a_place_that_cannot_be_is_no_place() -> None:
    for total, number in ((0, 1), (2, 3), (1, 0)):
        header = b"\x05\x00\x03\x01" + bytes((total, number))
        found = reply(esm_class=0x40, text=header + b"text")
        assert (found.total, found.part, found.payload) == (1, 1, b"text")


def test_receipts_and_acknowledgements_of_other_kinds_are_no_replies() -> None:
    receipt = ShortMessage(esm_class=4, text=b"id:1 sub:001 dlvrd:001 stat:DELIVRD err:000")
    assert read_reply(receipt) is None
    assert read_reply(ShortMessage(esm_class=0x08, text=b"delivered to me")) is None
    unmarked = ShortMessage(text=b"Your id:5 stat:DELIVRD was odd")
    assert read_receipt(unmarked) is None
    assert read_reply(unmarked) is not None


def test_the_same_part_again_has_the_same_digest_and_another_has_not() -> None:
    first = reply(text=b"Yes")
    others = [
        reply(text=b"yes"),
        reply(text=b"Yes", source="263771200002"),
        reply(text=b"Yes", destination="33124"),
        reply(text=b"Yes", data_coding=3),
    ]
    assert first.digest == reply(text=b"Yes").digest
    assert len({one.digest for one in (first, *others)}) == 5
    named = ReplyPart("263771200001", "33123", None, b"Yes", carrier_ref="a-1")
    assert named.digest == ReplyPart("263771200001", "33123", None, b"yes", carrier_ref="a-1").digest
