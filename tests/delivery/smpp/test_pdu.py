"""PDUs and texts as SMPP 3.4 defines them, octet by octet."""

import random
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.carriers.url import ASCII, LATIN_1
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.encoding import decode, encode, split_udh
from tumira.delivery.smpp.pdu import (
    MESSAGE_PAYLOAD,
    MESSAGE_STATE,
    RECEIPTED_MESSAGE_ID,
    BindRequest,
    BrokenError,
    Command,
    Pdu,
    ShortMessage,
    Splitter,
    SubmitBodies,
    bind_body,
    read_bind,
    read_data_sm,
    read_short_message,
    read_text,
    relative_validity,
    short_message_body,
    write,
)
from tumira.pricing.segments import BASIC, EXTENSION, Encoding, measure

GSM_7_CHARACTERS = "aZ 09@£_ñ\n€{[~|\f"
SHARED_WITH_ASCII = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "$@[\\]^_`{|}~")
OTHER_CHARACTERS = "я漢\N{GRINNING FACE}\N{FAMILY}\u200d`"

latin_1 = st.text(st.characters(min_codepoint=1, max_codepoint=255), max_size=20)
octet = st.integers(0, 255)
# A tag of its own in each; the payload's is made by the text.
tlvs = st.dictionaries(st.sampled_from([0x001E, 0x0204, 0x0423, 0x0427, 0x1400]), st.binary(max_size=40))
pdus = st.builds(
    Pdu,
    st.sampled_from([int(command) for command in Command]),
    st.integers(0, 0xFFFF_FFFF),
    st.integers(0, 0xFFFF_FFFF),
    st.binary(max_size=300),
)
short_messages = st.builds(
    ShortMessage,
    service_type=latin_1,
    source_ton=octet,
    source_npi=octet,
    source=latin_1,
    destination_ton=octet,
    destination_npi=octet,
    destination=latin_1,
    esm_class=octet,
    protocol_id=octet,
    priority=octet,
    schedule=latin_1,
    validity=latin_1,
    registered_delivery=octet,
    replace=octet,
    data_coding=octet,
    default_id=octet,
    text=st.binary(max_size=254),
    tlvs=tlvs,
)
texts = st.one_of(
    st.text(st.sampled_from(GSM_7_CHARACTERS), max_size=800),
    st.text(st.sampled_from(GSM_7_CHARACTERS + OTHER_CHARACTERS), max_size=400),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=400),
)


def test_numbers_are_those_of_the_standard() -> None:
    requests = {command.name: int(command) for command in Command if command < 0x8000_0000}
    assert requests == {
        "BIND_RECEIVER": 0x01,
        "BIND_TRANSMITTER": 0x02,
        "QUERY_SM": 0x03,
        "SUBMIT_SM": 0x04,
        "DELIVER_SM": 0x05,
        "UNBIND": 0x06,
        "BIND_TRANSCEIVER": 0x09,
        "ENQUIRE_LINK": 0x15,
        "SUBMIT_MULTI": 0x21,
        "DATA_SM": 0x103,
    }
    answers = {command.name: int(command) for command in Command if command > 0x8000_0000}
    assert answers == {f"{name}_RESP": 0x8000_0000 | number for name, number in requests.items()}
    assert int(Command.GENERIC_NACK) == 0x8000_0000
    written = write(Command.SUBMIT_SM_RESP, 7, b"10001\0", CommandStatus.RTHROTTLED)
    assert written == bytes.fromhex("00000016 80000004 00000058 00000007 313030303100")


def test_a_bind_carries_names_and_version() -> None:
    body = bind_body("tumira", "secret")
    assert body == b"tumira\0secret\0\0\x34\0\0\0"
    assert read_bind(body) == BindRequest("tumira", "secret", "", 0x34)
    for short in (b"", b"tumira", b"tumira\0secret\0", b"tumira\0secret\0\0"):
        with pytest.raises(BrokenError):
            read_bind(short)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"10001\0", "10001"),
        (b"10001", "10001"),
        (b"", ""),
        (b"\0", ""),
        (b" 10001 \0\0", "10001"),
        (b"10001\0\x02\x10\x00\x01\x34", "10001"),
        (b"1" * 5000, "1" * 255),
    ],
)
def test_the_string_of_an_answer_is_read_with_or_without_its_end(body: bytes, text: str) -> None:
    assert read_text(body) == text


@given(st.lists(pdus, max_size=8), st.randoms(use_true_random=False))
def test_pdus_are_found_however_the_stream_is_cut(sent: list[Pdu], chance: random.Random) -> None:
    stream = b"".join(write(pdu.command, pdu.sequence, pdu.body, pdu.status) for pdu in sent)
    cuts = sorted({0, len(stream), *(chance.randint(0, len(stream)) for _ in range(chance.randint(0, 9)))})
    splitter = Splitter()
    found = [pdu for start, end in pairwise(cuts) for pdu in splitter.feed(stream[start:end])]
    assert found == sent


@pytest.mark.parametrize("length", [0, 15, 64 * 1024 + 1, 0xFFFF_FFFF])
def test_a_length_that_cannot_be_is_broken_after_what_came_before_it(length: int) -> None:
    good = write(Command.ENQUIRE_LINK, 1)
    bad = struct.pack(">IIII", length, 0x15, 0, 2)
    splitter = Splitter()
    assert splitter.feed(good + bad) == [Pdu(0x15, 0, 1, b"")]
    assert splitter.broken is not None
    for _ in range(2):
        with pytest.raises(BrokenError, match=str(length)):
            splitter.feed(good)
    with pytest.raises(BrokenError):
        Splitter().feed(bad)
    longest = b"x" * (64 * 1024 - 16)
    assert Splitter().feed(write(4, 1, longest)) == [Pdu(4, 0, 1, longest)]


@given(short_messages)
def test_a_message_is_read_as_it_was_written_and_broken_when_cut_short(message: ShortMessage) -> None:
    assert read_short_message(short_message_body(message)) == message
    whole = short_message_body(message._replace(tlvs={}))
    for end in range(len(whole)):
        with pytest.raises(BrokenError):
            read_short_message(whole[:end])


def test_a_long_text_travels_in_message_payload() -> None:
    message = ShortMessage(destination="263771200001", text=b"x" * 255)
    body = short_message_body(message)
    read = read_short_message(body)
    assert read.text == message.text
    assert read.tlvs == {MESSAGE_PAYLOAD: message.text}
    assert short_message_body(read) == body


def test_optional_parameters_cut_short_are_broken_and_padding_is_not() -> None:
    body = short_message_body(ShortMessage(text=b"x", tlvs={RECEIPTED_MESSAGE_ID: b"10001\0"}))
    with pytest.raises(BrokenError):
        read_short_message(body[:-1])
    assert read_short_message(body + b"\0").tlvs == {RECEIPTED_MESSAGE_ID: b"10001\0"}


def test_a_data_sm_has_its_text_in_message_payload() -> None:
    body = (
        b"\0\x01\x01" + b"263771200001\0" + b"\x05\0" + b"Tumira\0" + b"\x04\0\x08"
        b"\x04\x24\0\x02hi" + b"\x04\x27\0\x01\x02"
    )
    assert read_data_sm(body) == ShortMessage(
        source_ton=1,
        source_npi=1,
        source="263771200001",
        destination_ton=5,
        destination="Tumira",
        esm_class=4,
        data_coding=8,
        text=b"hi",
        tlvs={MESSAGE_PAYLOAD: b"hi", MESSAGE_STATE: b"\x02"},
    )
    for end in range(body.index(b"\x04\x24")):
        with pytest.raises(BrokenError):
            read_data_sm(body[:end])


@pytest.mark.parametrize(
    ("source", "ton", "npi", "written"),
    [
        ("Tumira", 5, 0, "Tumira"),
        ("24 Seven", 5, 0, "24 Seven"),
        ("33100", 3, 0, "33100"),
        ("3310000", 1, 1, "3310000"),
        ("+263771200001", 1, 1, "263771200001"),
    ],
)
def test_a_submit_names_its_source_by_what_it_is(source: str, ton: int, npi: int, written: str) -> None:
    validity = relative_validity(600)
    body = SubmitBodies(source).body("263771200001", b"hello", 0x40, 8, validity)
    expected = ShortMessage(
        source_ton=ton,
        source_npi=npi,
        source=written,
        destination_ton=1,
        destination_npi=1,
        destination="263771200001",
        esm_class=0x40,
        validity=validity,
        registered_delivery=1,
        data_coding=8,
        text=b"hello",
    )
    assert read_short_message(body) == expected
    assert body == short_message_body(expected)


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (600, "000000001000000R"),
        (-5, "000000000001000R"),
        (86_399, "000000235959000R"),
        (3 * 86_400, "000003000000000R"),
        (400 * 86_400, "000030000000000R"),
    ],
)
def test_a_validity_is_written_as_relative_time(seconds: int, written: str) -> None:
    assert relative_validity(seconds) == written


@pytest.mark.parametrize(
    ("text", "octets"),
    [
        ("@£_ñàÆ", "0001117d7f1c"),
        ("\f^{}\\[~]|€", "1b0a1b141b281b291b2f1b3c1b3d1b3e1b401b65"),
        (SHARED_WITH_ASCII, SHARED_WITH_ASCII.encode("ascii").hex()),
    ],
)
def test_characters_have_the_codes_of_the_alphabet(text: str, octets: str) -> None:
    assert encode(text, 0) == (0, 0, [bytes.fromhex(octets)])
    assert decode(0, bytes.fromhex(octets)) == text


def test_long_texts_begin_with_the_header_that_joins_them() -> None:
    encoded = encode("a" * 307, 0xAB)
    assert encoded.esm_class == 0x40
    assert [payload[:6].hex() for payload in encoded.payloads] == [
        "050003ab0301",
        "050003ab0302",
        "050003ab0303",
    ]
    assert [len(payload) for payload in encoded.payloads] == [159, 159, 7]
    assert encode("a" * 153 * 255, 1).payloads[-1][:6] == b"\x05\x00\x03\x01\xff\xff"
    # All else goes as UCS-2 with the high octet first.
    assert encode("я\N{GRINNING FACE}", 0) == (8, 0, [bytes.fromhex("044f d83d de00")])


@given(texts, octet)
def test_a_text_is_read_as_it_was_written_and_costs_what_was_priced(text: str, reference: int) -> None:
    data_coding, esm_class, payloads = encode(text, reference)
    measured = measure(text)
    assert len(payloads) == measured.segments
    assert (data_coding == 0) is (measured.encoding is Encoding.GSM_7)
    assert (esm_class == 0x40) is (len(payloads) > 1)
    pieces = []
    for number, payload in enumerate(payloads, 1):
        place, content = split_udh(esm_class, payload)
        assert place == ((reference, len(payloads), number) if len(payloads) > 1 else None)
        room = 140 - (len(payload) - len(content))
        assert len(content) <= (room * 8 // 7 if data_coding == 0 else room)
        # A pair that was cut would not be readable in either half.
        pieces.append(decode(data_coding, content))
    if "\N{REPLACEMENT CHARACTER}" not in text:
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
    assert "".join(pieces) == text


@given(st.text(alphabet=BASIC + EXTENSION, max_size=400), octet, st.sampled_from([LATIN_1, ASCII]))
def test_in_another_alphabet_a_text_has_the_same_segments(text: str, reference: int, alphabet: str) -> None:
    usual = encode(text, reference)
    data_coding, esm_class, payloads = encode(text, reference, alphabet)
    assert (len(payloads), esm_class) == (len(usual.payloads), usual.esm_class)
    read = "".join(decode(data_coding, split_udh(esm_class, one)[1], alphabet) for one in payloads)
    assert len(read) == len(text)
    if len(text) <= 70 or (not set(text) & set("€ΔΦΓΛΩΠΨΣΘΞ") and alphabet == LATIN_1):
        assert read == text
    else:
        # One character for each, and none of them is changed that the alphabet has.
        assert all(new == old or not old.isascii() for new, old in zip(read, text, strict=True))


@pytest.mark.parametrize(
    ("esm_class", "payload", "place", "text"),
    [
        (0x40, "05 00 03 AB 02 01 61", (0xAB, 2, 1), b"a"),
        (0x40, "06 08 04 AB CD 02 01 61", (0xABCD, 2, 1), b"a"),
        (0x40, "08 24 01 00 00 03 07 03 02 61", (7, 3, 2), b"a"),
        (0x40, "03 24 01 00 61", None, b"a"),
        (0x00, "05 00 03 AB 02 01 61", None, bytes.fromhex("050003AB020161")),
        (0x40, "05 00 03 AB", None, b""),
        (0x40, "05 00 05 AB 02 01 61", None, b"a"),
        (0x40, "FF", None, b""),
        (0x40, "", None, b""),
    ],
)
def test_headers_of_either_length_are_parted_from_the_text(
    esm_class: int, payload: str, place: tuple[int, int, int] | None, text: bytes
) -> None:
    assert split_udh(esm_class, bytes.fromhex(payload)) == (place, text)


@pytest.mark.parametrize(
    ("data_coding", "octets", "text"),
    [
        (0, "1b", "\N{REPLACEMENT CHARACTER}"),
        (0, "1b61", "\N{REPLACEMENT CHARACTER}"),
        (0, "1b1b65", "\N{REPLACEMENT CHARACTER}€"),
        (0, "61ff", "a\N{REPLACEMENT CHARACTER}"),
        (3, "e9", "é"),
        (8, "d83d", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_what_cannot_be_read_becomes_a_replacement(data_coding: int, octets: str, text: str) -> None:
    assert decode(data_coding, bytes.fromhex(octets)) == text


@given(octet, st.binary(max_size=200))
def test_any_octets_can_be_read(data_coding: int, payload: bytes) -> None:
    for esm_class in (0, 0x40):
        _, content = split_udh(esm_class, payload)
        decode(data_coding, content)
