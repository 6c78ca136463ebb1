"""Receipts are understood in every form, and nothing else is taken for one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.delivery.receipt_rules import (
    SAME_ID,
    ParsedText,
    Receipt,
    ReceiptResult,
    id_condition,
    key,
    parse_text,
    receipt_result,
    same_number,
    spellings,
    without_quote,
)
from tumira.delivery.smpp.deliver_sm import read_receipt
from tumira.delivery.smpp.pdu import ShortMessage
from tumira.sending.lifecycle import FAILURE_REASONS, MESSAGE_STATUSES

STANDARD = (
    "id:10001 sub:001 dlvrd:001 submit date:2611151200 done date:2611151201 stat:DELIVRD err:000 text:hello"
)
UUID = "01890a5d-ac96-774b-bcce-b302099a8057"


def read_standard(carrier_ref: str, state: str, error: str | None) -> ParsedText:
    return ParsedText(carrier_ref, state, error, standard=True)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        (STANDARD, read_standard("10001", "DELIVRD", "000")),
        (STANDARD.replace(" text:hello", ""), read_standard("10001", "DELIVRD", "000")),
        (STANDARD.replace("2611151200", "261115120000"), read_standard("10001", "DELIVRD", "000")),
        (STANDARD.replace("err:000", "err:EC_ABSENT"), read_standard("10001", "DELIVRD", "EC")),
        (STANDARD.replace("err:000", "err:0x1B"), read_standard("10001", "DELIVRD", "0x1B")),
        (STANDARD.replace("err:000", "err:"), read_standard("10001", "DELIVRD", None)),
        (STANDARD.replace("10001", UUID), read_standard(UUID, "DELIVRD", "000")),
        (STANDARD.upper(), read_standard("10001", "DELIVRD", "000")),
        (STANDARD.lower(), read_standard("10001", "DELIVRD", "000")),
        (STANDARD.replace(":", ": "), read_standard("10001", "DELIVRD", "000")),
        (STANDARD.replace(" ", "\n"), read_standard("10001", "DELIVRD", "000")),
        (STANDARD.replace("submit date", "submitdate"), read_standard("10001", "DELIVRD", "000")),
        (STANDARD.replace("DELIVRD", "UNDELIVERABLE"), read_standard("10001", "UNDELIV", "000")),
        ("id:10001 stat:DELIVRD", ParsedText("10001", "DELIVRD", None, standard=False)),
        ("err:27 stat:EXPIRED id:10001", ParsedText("10001", "EXPIRED", "27", standard=False)),
        ("text:hello id:10001 stat:DELIVRD", ParsedText("10001", "DELIVRD", None, standard=False)),
        ("id:10001 sub:001", ParsedText("10001", None, None, standard=False)),
        ("id: sub:001 stat:DELIVRD", ParsedText(None, "DELIVRD", None, standard=False)),
        ("paid:5 stat:DELIVRD", ParsedText(None, "DELIVRD", None, standard=False)),
        ("", None),
        ("you paid: 5", None),
    ],
)
def test_texts_are_read_in_every_known_variant(text: str, parsed: ParsedText | None) -> None:
    assert parse_text(text) == parsed


def test_what_the_customer_wrote_is_not_the_carriers_word() -> None:
    text = STANDARD.replace("DELIVRD", "UNDELIV").replace("text:hello", "text:id:6 stat:DELIVRD err:5")
    assert parse_text(text) == read_standard("10001", "UNDELIV", "000")
    assert parse_text("id:10001 err:001 text:stat:DELIVRD") == ParsedText(
        "10001", None, "001", standard=False
    )


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    parse_text(text)
    parse_text(f"id:{text} stat:{text} err:{text}")


@pytest.mark.parametrize(
    ("carrier_ref", "kept"),
    [
        ("0010001", "10001"),
        (" 10001 \0", "10001"),
        (UUID.upper(), UUID.lstrip("0")),
        ("000", "0"),
        ("", "0"),
    ],
)
def test_an_id_is_kept_under_one_spelling(carrier_ref: str, kept: str) -> None:
    assert key(carrier_ref) == kept
    assert spellings(carrier_ref)[0] == kept


@pytest.mark.parametrize(
    ("answered", "receipted"),
    [
        ("812FC7470000001B", str(0x812FC7470000001B)),
        ("27", "1b"),
        ("10001", "00010001"),
        (UUID, UUID.upper()),
        ("SAR-7", "sar-7"),
    ],
)
def test_a_receipt_finds_its_message_in_either_base_and_case(answered: str, receipted: str) -> None:
    assert key(answered) in spellings(receipted)


@given(st.integers(0, 2**64 - 1), st.integers(0, 4))
def test_every_number_is_found_in_the_other_base(number: int, zeros: int) -> None:
    decimal, hexadecimal = "0" * zeros + str(number), "0" * zeros + f"{number:X}"
    assert key(decimal) in spellings(hexadecimal)
    assert key(hexadecimal) in spellings(decimal)
    for receipt, answer in ((decimal, hexadecimal), (hexadecimal, decimal)):
        assert (id_condition(receipt, answer) == SAME_ID) is (key(decimal) == key(hexadecimal))


def test_the_end_of_a_receipt_that_repeats_the_message_is_left_out() -> None:
    assert without_quote("stat:DELIVRD Text:Your code") == "stat:DELIVRD"
    assert without_quote("text:Your code") == ""
    assert without_quote("stat:DELIVRD TEXT:Your code") == "stat:DELIVRD"
    assert without_quote("stat:DELIVRD") == "stat:DELIVRD"


def test_ids_as_long_as_the_longest_number_are_compared_as_numbers() -> None:
    longest = "9" * 40
    assert id_condition(longest, f"{int(longest):x}") == "the ID were converted to hexadecimal"
    assert len(spellings(longest)) == 3
    assert id_condition(f"9{longest}", f"{int(f'9{longest}'):x}") is None
    assert len(spellings(f"9{longest}")) == 1
    words = id_condition(f"-{longest[1:]}", str(-int(longest[1:]) % 2**32))
    assert words == "only the last 32 bits of the ID were compared"
    assert id_condition(f"-{longest}", str(-int(longest) % 2**32)) is None


@given(st.text(max_size=300), st.text(max_size=300))
def test_whatever_carriers_send_is_compared_in_bounds(in_receipt: str, in_answer: str) -> None:
    found = spellings(in_receipt)
    assert 1 <= len(set(found)) == len(found) <= 3
    assert spellings("9" * 5000) == ("9" * 255,)
    words = id_condition(in_receipt, in_answer)
    assert words is None or len(words) < 120


@pytest.mark.parametrize(
    ("in_receipt", "in_answer", "words"),
    [
        ("4660", "1234", "the ID were converted to hexadecimal"),
        ("1234", "4660", "the ID were read as hexadecimal"),
        ("00AB12", "ab12", SAME_ID),
        ("0xAB12", "ab12", "the 0x before the ID were ignored"),
        ("0x1234", "4660", "the ID were read as hexadecimal and its 0x were ignored"),
        ("12ab-34cd", "12AB34CD", "only the letters and digits of the ID were compared"),
        ("smsc1:770012", "770012", "the ID did not start with “smsc1:”"),
        ("770012", "770012@smsc1", "the ID ended with “@smsc1”"),
        ("-5", "4294967291", "only the last 32 bits of the ID were compared"),
        ("fedcba9876543210", "76543210", "only the last 32 bits of the ID were compared"),
        ("a1b2c3d4", "d4c3b2a1", "the bytes of the ID were reversed"),
        ("zb1c", "1czb", "the bytes of the ID were reversed"),
        ("zb1", "1zb", None),
        ("zb", "zb\0", SAME_ID),
        ("zb1cd", "cd1zb", None),
        ("zb" * 19 + "c1", "c1" + "zb" * 19, "the bytes of the ID were reversed"),
        ("zb" * 20 + "c1", "c1" + "zb" * 20, None),
        ("12-34", "4660", "the ID were read as hexadecimal and its separators were ignored"),
        ("46-60", "1234", "the ID were converted to hexadecimal and its separators were ignored"),
        ("4660", "0x1234", "the ID were converted to hexadecimal and its 0x were ignored"),
        ("--", "__", None),
        ("770012", "smsc770012", "the ID started with “smsc”"),
        ("770012@smsc1", "770012", "the ID did not end with “@smsc1”"),
        ("zx1234", "1234", "the ID did not start with “zx”"),
        ("zx123", "123", None),
        ("4294967296", "8589934592", None),
        ("zx" * 16 + "770012", "770012", "the ID did not start with “" + "zx" * 16 + "”"),
        ("zx" * 16 + "y770012", "770012", "the ID did not start with “" + "zx" * 16 + "…”"),
        ("770012", "770013", None),
        ("a12", "12", None),
        ("", "770012", None),
    ],
)
def test_the_condition_under_which_two_ids_are_the_same_is_said(
    in_receipt: str, in_answer: str, words: str | None
) -> None:
    assert id_condition(in_receipt, in_answer) == words


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("263771200001", "263771200001", True),
        ("+263771200001", "0771200001", True),
        ("263771200001", "263771200002", False),
        ("263771200001", "+27821230001", False),
        ("263771200001", "Tumira", True),
        ("1234", "263771200001", True),
        ("12345", "263771200001", False),
        ("200001", "263771200001", False),
        ("77120000…", "263771200001", False),
    ],
)
def test_numbers_are_compared_by_their_last_digits(a: str, b: str, same: bool) -> None:  # noqa: FBT001
    assert same_number(a, b) is same
    assert same_number(b, a) is same


@pytest.mark.parametrize(
    ("state", "error", "status", "reason"),
    [
        ("DELIVRD", None, "delivered", None),
        ("DELIVRD", "001", "delivered", None),
        ("UNDELIV", None, "undelivered", "UNKNOWN"),
        ("UNDELIV", "001", "undelivered", "UNKNOWN_SUBSCRIBER"),
        ("UNDELIV", "1", "undelivered", "UNKNOWN_SUBSCRIBER"),
        ("UNDELIV", "027", "undelivered", "ABSENT_SUBSCRIBER"),
        ("UNDELIV", "0x1B", "undelivered", "ABSENT_SUBSCRIBER"),
        ("UNDELIV", "01b", "undelivered", "ABSENT_SUBSCRIBER"),
        ("UNDELIV", "011", "undelivered", "SUBSCRIBER_BARRED"),
        ("UNDELIV", "032", "undelivered", "HANDSET_ERROR"),
        ("UNDELIV", "034", "undelivered", "UNKNOWN"),
        ("UNDELIV", "XYZ", "undelivered", "UNKNOWN"),
        ("DELETED", None, "undelivered", "UNKNOWN"),
        ("SKIPPED", None, "undelivered", "UNKNOWN"),
        ("REJECTD", "000", "undelivered", "CARRIER_REJECTED"),
        ("REJECTD", "013", "undelivered", "SUBSCRIBER_BARRED"),
        ("EXPIRED", "000", "expired", "VALIDITY_EXPIRED"),
        ("EXPIRED", "006", "expired", "ABSENT_SUBSCRIBER"),
        ("UNDELIV", "HANDSET_ERROR", "undelivered", "HANDSET_ERROR"),
        ("UNDELIV", " 0X1b ", "undelivered", "ABSENT_SUBSCRIBER"),
        ("UNDELIV", "0" * 60 + "27", "undelivered", "ABSENT_SUBSCRIBER"),
        ("UNDELIV", "", "undelivered", "UNKNOWN"),
        ("ENROUTE", "001", None, None),
        ("ACCEPTD", None, None, None),
        ("UNKNOWN", "001", None, None),
        ("", None, None, None),
    ],
)
def test_a_receipt_settles_its_message_or_leaves_it(
    state: str, error: str | None, status: str | None, reason: str | None
) -> None:
    settled = receipt_result(state, error)
    assert (settled.status, settled.reason) == (status, reason)


@given(st.sampled_from(["UNDELIV", "REJECTD", "EXPIRED", "ENROUTE", "DELIVRD"]), st.text(max_size=60))
def test_any_error_gives_a_reason_that_customers_know(state: str, error: str) -> None:
    settled: ReceiptResult = receipt_result(state, error)
    assert settled.status is None or MESSAGE_STATUSES[settled.status].final
    assert settled.reason is None or settled.reason in FAILURE_REASONS


def deliver(**fields: Any) -> ShortMessage:
    message = ShortMessage(source="+263771200001", esm_class=4, text=STANDARD.encode())
    return message._replace(**fields)


# What a receipt quotes of the message is not kept.
KEPT = STANDARD.removesuffix(" text:hello")
EXPECTED = Receipt("10001", "263771200001", "DELIVRD", "000", KEPT)


@pytest.mark.parametrize(
    ("message", "receipt"),
    [
        (deliver(), EXPECTED),
        (deliver(text=STANDARD.encode() + b"\0"), EXPECTED),
        (deliver(text=STANDARD.encode("utf-16-be"), data_coding=8), EXPECTED),
        (deliver(text=b"\xfe\xff" + STANDARD.encode("utf-16-be"), data_coding=8), EXPECTED),
        (deliver(data_coding=8), EXPECTED),
        (deliver(text=STANDARD.encode("utf-16-be")), EXPECTED),
        (deliver(text=b"\x05\x00\x03\x01\x01\x01" + STANDARD.encode(), esm_class=0x44), EXPECTED),
        (deliver(esm_class=0), EXPECTED),
        (
            deliver(tlvs={0x001E: b"ABC\0", 0x0427: b"\x05", 0x0423: b"\x03\x00\x06"}),
            Receipt("ABC", "263771200001", "UNDELIV", "6", KEPT),
        ),
        (
            deliver(text=b"", tlvs={0x001E: b"ABC\0", 0x0427: b"\x02"}),
            Receipt("ABC", "263771200001", "DELIVRD", None, ""),
        ),
        (deliver(tlvs={0x0423: b"\x03\x00\x00"}), EXPECTED),
        (deliver(tlvs={0x0427: b"\xff", 0x0423: b"\x03", 0x001E: b"\0"}), EXPECTED),
        (deliver(text=b"who knows"), Receipt(None, "263771200001", "UNKNOWN", None, "who knows")),
        (deliver(esm_class=0x20), Receipt("10001", "263771200001", "ENROUTE", "000", KEPT)),
        (
            deliver(esm_class=0, text=b"id:1 stat:DELIVRD", tlvs={0x001E: b"1\0"}),
            Receipt("1", "263771200001", "DELIVRD", None, "id:1 stat:DELIVRD"),
        ),
    ],
)
def test_receipts_are_recognised_in_every_known_form(message: ShortMessage, receipt: Receipt) -> None:
    assert read_receipt(message) == receipt


@pytest.mark.parametrize(
    "message",
    [
        deliver(esm_class=0, text=b"hello"),
        deliver(esm_class=0, text=b"id:10001 stat:DELIVRD"),
        deliver(esm_class=0, text=b"Look: " + STANDARD.encode()),
        deliver(esm_class=0, text=b"id:10001 sub:001 dlvrd:001 hello"),
        deliver(esm_class=0, text=b"hello", tlvs={0x001E: b"10001\0"}),
        deliver(esm_class=0x08),
    ],
)
def test_what_people_write_is_no_receipt(message: ShortMessage) -> None:
    assert read_receipt(message) is None


@given(st.integers(0, 255), st.integers(0, 255), st.binary(max_size=600), st.binary(max_size=8))
def test_any_delivery_can_be_read_and_kept(esm_class: int, coding: int, text: bytes, value: bytes) -> None:
    tlvs = {0x001E: value, 0x0427: value, 0x0423: value}
    receipt = read_receipt(deliver(esm_class=esm_class, data_coding=coding, text=text, tlvs=tlvs))
    if receipt is not None:
        written = f"{receipt.carrier_ref}{receipt.state}{receipt.error}{receipt.text}"
        assert "\0" not in written
        written.encode()
        assert len(receipt.text) <= 500


def test_each_error_of_the_mobile_network_has_its_reason() -> None:
    # By number, apart from the names in the code under test.
    expected = {
        "UNKNOWN_SUBSCRIBER": {1, 5},
        "ABSENT_SUBSCRIBER": {6, 27, 31},
        "SUBSCRIBER_BARRED": {8, 9, 10, 11, 13},
        "HANDSET_ERROR": {12, 21, 32},
    }
    found: dict[str, set[int]] = {}
    for code in range(100):
        reason = receipt_result("UNDELIV", f"{code:03}").reason
        if reason is not None and reason != "UNKNOWN":
            found.setdefault(reason, set()).add(code)
    assert found == expected
