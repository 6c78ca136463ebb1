"""Does a code count that the device shows now, and no other?"""

from base64 import b32decode
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.identity import totp

# RFC 6238, appendix B, whose codes have eight digits: the last six are ours.
SECRET = b"12345678901234567890"
VECTORS = {
    59: "94287082",
    1111111109: "07081804",
    1111111111: "14050471",
    1234567890: "89005924",
    2000000000: "69279037",
    20000000000: "65353130",
}


@pytest.mark.parametrize(("at", "code"), VECTORS.items())
def test_codes_are_those_of_the_standard(at: int, code: str) -> None:
    now = datetime.fromtimestamp(at, UTC)
    assert totp.code_at(SECRET, totp.step_at(now)) == code[2:]
    assert totp.matching_step(SECRET, code[2:], now, 0) == at // 30


@given(st.integers(0, 4_000_000_000), st.binary(min_size=20, max_size=20))
def test_a_code_counts_half_a_minute_early_or_late_and_only_after_the_last_one(
    at: int, secret: bytes
) -> None:
    now = datetime.fromtimestamp(at + 300, UTC)
    step = totp.step_at(now)
    for around in (-1, 0, 1):
        code = totp.code_at(secret, step + around)
        found = totp.matching_step(secret, code, now, 0)
        # Now and then two steps near each other have the same code.
        assert found is not None
        assert step - 1 <= found <= step + around
        assert totp.matching_step(secret, code, now, step + 1) is None
    codes = {totp.code_at(secret, step + around) for around in (-1, 0, 1)}
    for far in (-2, 2):
        code = totp.code_at(secret, step + far)
        assert (totp.matching_step(secret, code, now, 0) is not None) == (code in codes)


def test_nothing_else_is_a_code() -> None:
    now = datetime.now(UTC)
    for text in ("", "12345", "1234567", "\u0661\u0662\u0663\u0664\u0665\u0666"):
        assert totp.matching_step(SECRET, text, now, 0) is None


def test_the_step_moves_every_thirty_seconds() -> None:
    start = datetime.fromtimestamp(1_800_000_000, UTC)
    assert totp.step_at(start + timedelta(seconds=29.9)) == totp.step_at(start)
    assert totp.step_at(start + timedelta(seconds=30)) == totp.step_at(start) + 1


def test_a_device_reads_the_secret_in_both_writings() -> None:
    secret = totp.new_secret()
    assert b32decode(totp.write_secret(secret).replace(" ", "")) == secret
    uri = urlsplit(totp.write_uri(secret, "+263771200001"))
    assert (uri.scheme, uri.netloc, unquote(uri.path)) == ("otpauth", "totp", "/Tumira:+263771200001")
    fields = parse_qs(uri.query)
    assert b32decode(fields["secret"][0]) == secret
    assert fields["issuer"] == ["Tumira"]


def test_recovery_codes_differ_and_are_read_as_people_type_them() -> None:
    codes = totp.new_recovery_codes()
    assert len(set(codes)) == totp.RECOVERY_CODES
    for code in codes:
        for typed in (code, code.upper(), f" {code.replace('-', ' ')} ", code.replace("-", "")):
            read = totp.read_recovery_code(typed)
            assert read is not None
            assert totp.hash_recovery_code(read) == totp.hash_recovery_code(code)


@pytest.mark.parametrize("text", ["", "123456", "abcd-efgh-jkmn", "abcd-efgh-jkmn-pqr0", "a" * 17])
def test_other_texts_are_no_recovery_codes(text: str) -> None:
    assert totp.read_recovery_code(text) is None
