"""PINs and codes are read as people type them, and the answers of issuers strictly."""

from collections.abc import Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tumira.topups import voucher_pins
from tumira.topups.providers import voucher
from tumira.topups.voucher_pins import ChangeVoucher, Issuer, read_pin

KEY = "00000000-0000-4000-8000-000000000000"
REMIT = {
    "vendorID": "99",
    "account": "acct_1",
    "amount": "90.00",
    "clientID": "acct_1",
    "mobile": "27821234567",
    "pin": "123456789012",
    "uniqueReference": "tum-vch-000123",
}


def test_the_hash_is_that_of_the_sheet() -> None:
    assert (
        voucher_pins.sign_for_ott(KEY, REMIT)
        == "9a695997d0b7d52851ff1274b8ad77166e8341560b0aa2d634b3daf24b41f1ca"
    )
    assert (
        voucher_pins.sign_for_ott(KEY, {"voucherPIN": "123456789012", "vendorID": "99"})
        == "313c1cd01f7495f95b44e36828c2078e5cc96e427d76582409d333e7f5d278f9"
    )


def test_a_pin_is_read_with_what_people_put_between_its_digits() -> None:
    for text in (
        "1234567890123456",
        " 1234 5678 9012 3456\n",
        "1234-5678-9012-3456",
        "1234\u20135678\u201490123456",
    ):
        assert read_pin(Issuer.ONE_VOUCHER, text) == "1234567890123456"
        assert read_pin(Issuer.BLU, text) == "1234567890123456"
        assert read_pin(Issuer.OTT, text) is None
    assert read_pin(Issuer.OTT, "123 456 789 012") == "123456789012"
    for text in ("", "1" * 17, "1" * 15, "1" * 15 + "x", "\u0661" * 16, "1" * 16 + " " * 1000):
        assert read_pin(Issuer.ONE_VOUCHER, text) is None


@given(st.text(max_size=40), st.sampled_from(Issuer))
def test_whatever_is_typed_is_a_pin_of_the_right_form_or_none(text: str, issuer: Issuer) -> None:
    pin = read_pin(issuer, text)
    assert pin is None or (len(pin) == issuer.pin_length and pin.isascii() and pin.isalnum())


def test_a_code_is_read_however_it_was_copied() -> None:
    code = "0123456789ABCDEF"
    written = voucher_pins.write_code(code)
    assert written == "TMR-0123-4567-89AB-CDEF"
    for text in (
        written,
        written.lower(),
        code,
        "tmr 0123 4567 89ab cdef",
        "TMR-O123-4567-89AB-CDEF",
        "TMR-oi23-4567-89ab-cdef",
        "ol23456789abcdef",
    ):
        assert read_pin(Issuer.OWN, text) == code
    for text in ("TMR-U123-4567-89AB-CDEF", written[:-1], written + "0", "XYZ-0123-4567-89AB-CDEF", ""):
        assert read_pin(Issuer.OWN, text) is None
    # One that begins like the prefix is still itself.
    code = "TMR3456789ABCDEF"
    assert read_pin(Issuer.OWN, code) == read_pin(Issuer.OWN, voucher_pins.write_code(code)) == code


def test_new_codes_are_written_read_and_hashed_alike() -> None:
    codes = [voucher_pins.new_code() for _ in range(500)]
    assert len(set(codes)) == 500
    # Every place uses the whole alphabet.
    assert all(len({code[place] for code in codes}) == 32 for place in range(16))
    for code in codes:
        assert read_pin(Issuer.OWN, voucher_pins.write_code(code)) == code
    assert voucher_pins.hash_code(codes[0]) == sha256(codes[0].encode()).digest()
    assert voucher_pins.tail_of("0123456789ABCDEF") == "CDEF"


def test_change_comes_back_as_it_was_written_and_is_not_shown_by_accident() -> None:
    for change in (
        ChangeVoucher("1234567890123456", Decimal("50.00"), "2029-11-30"),
        ChangeVoucher("1234567890123456", None),
    ):
        text = voucher_pins.write_change(change)
        assert voucher_pins.read_change(text) == change
        assert change.pin not in repr(change)
    for text in ("", "[]", "{}", '{"pin": "1", "amount": "x", "expires": null}', "null"):
        assert voucher_pins.read_change(text) is None


def test_amounts_in_rand_are_read_to_the_cent_and_nothing_else() -> None:
    read: Sequence[tuple[Any, str]] = (
        ("90.00", "90.00"),
        ("30.0000", "30.00"),
        ("1,000.00", "1000.00"),
        ("1,234,567.8900", "1234567.89"),
        (150, "150.00"),
        (Decimal("99.5"), "99.50"),
    )
    for value, rand in read:
        assert voucher.read_rand(value) == Decimal(rand)
    texts = ("30.0050", "0.0001", "0", "", "-1", "1,00.00", "10,00", "1e3", "NaN", "\u0663\u0660", "9" * 30)
    for value in (*texts, None, True, 30.5, []):
        assert voucher.read_rand(value) is None
    assert voucher.read_cents(15_000) == voucher.read_cents("15000") == Decimal("150.00")
    for value in (0, -1, True, "", "1.5", Decimal("150.5"), None, 10**12):
        assert voucher.read_cents(value) is None
    assert all(voucher.is_true(value) for value in ("true", "True", " TRUE ", True))
    assert not any(voucher.is_true(value) for value in ("false", "", "1", 1, None, "yes", [True]))


@given(st.binary(max_size=200))
@example(b"[" * 500_000)
def test_whatever_is_answered_is_read_as_an_object(body: bytes) -> None:
    assert isinstance(voucher.read_object(body), dict)


def test_an_issuers_words_show_no_pin() -> None:
    pin = "1234567890123456"
    assert voucher.mask(f"Voucher {pin}\nunknown \u0661") == f"Voucher {'#' * 16} unknown #"
    assert voucher.mask(None) == ""
    assert voucher.read_reference(f"R{pin}", pin, "ours") == "ours"
    assert voucher.read_reference(70_000_001, pin, "ours") == "70000001"
    unfit: list[Any] = [None, "", True, "x" * 101, "a\nb", []]
    for value in unfit:
        assert voucher.read_reference(value, pin, "ours") == "ours"
