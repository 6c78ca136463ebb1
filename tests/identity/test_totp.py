"""Authenticator codes and recovery codes."""

from base64 import b32decode
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.identity import totp

# RFC 6238, appendix B, whose codes have eight digits: the last six are ours.
SECRET = b"12345678901234567890"


@pytest.mark.parametrize(
    ("at", "code"), [(59, "94287082"), (1111111109, "07081804"), (20000000000, "65353130")]
)
def test_codes_are_those_of_the_standard(at: int, code: str) -> None:
    assert totp.matching_step(SECRET, code[2:], datetime.fromtimestamp(at, UTC), 0) == at // 30


@settings(max_examples=50)
@given(st.integers(300, 4_000_000_000), st.binary(min_size=20, max_size=20))
def test_a_code_is_valid_one_step_early_or_late_and_after_the_last_step_used(at: int, secret: bytes) -> None:
    now = datetime.fromtimestamp(at, UTC)
    step = at // 30
    codes = {around: totp.authenticator(secret).at(now, around) for around in (-2, -1, 0, 1, 2)}
    near = {codes[around] for around in (-1, 0, 1)}
    for around, code in codes.items():
        found = totp.matching_step(secret, code, now, 0)
        # Now and then two steps near each other have the same code.
        assert found in ({step - 1, step, step + 1} if code in near else {None}), around
        assert totp.matching_step(secret, code, now, step + 1) is None


@pytest.mark.parametrize("text", ["", "12345", "1234567", "\u0661\u0662\u0663\u0664\u0665\u0666"])
def test_other_texts_are_no_codes(text: str) -> None:
    assert totp.matching_step(SECRET, text, datetime.now(UTC), 0) is None


def test_an_app_gets_the_secret_as_text_and_as_a_link() -> None:
    assert b32decode(totp.write_secret(SECRET).replace(" ", "")) == SECRET
    assert totp.write_uri(SECRET, "+263771200001") == (
        "otpauth://totp/Tumira:%2B263771200001?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ&issuer=Tumira"
    )


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
