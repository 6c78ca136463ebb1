"""Does a camera read what was drawn? Read here by the standard's own steps, the other way round."""

from collections.abc import Callable, Sequence
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.html import qr_code
from tumira.identity import totp

SIZE = 37
# What each of the eight words of the lowest correction looks like (ISO/IEC 18004, table C.1).
FORMATS: dict[int, Callable[[int, int], bool]] = {
    0b111011111000100: lambda y, x: (y + x) % 2 == 0,
    0b111001011110011: lambda y, x: y % 2 == 0,  # noqa: ARG005 - all have the same arguments
    0b111110110101010: lambda y, x: x % 3 == 0,  # noqa: ARG005 - as above
    0b111100010011101: lambda y, x: (y + x) % 3 == 0,
    0b110011000101111: lambda y, x: (y // 2 + x // 3) % 2 == 0,
    0b110001100011000: lambda y, x: (y * x) % 2 + (y * x) % 3 == 0,
    0b110110001000001: lambda y, x: ((y * x) % 2 + (y * x) % 3) % 2 == 0,
    0b110100101110110: lambda y, x: ((y + x) % 2 + (y * x) % 3) % 2 == 0,
}
# Made once by another encoder (segno 1.6.6, version 5, level L, mask 3), of a text that fills the code.
FULL = "otpauth://totp/Tumira:%2B263771200001?secret=" + "A" * 47 + "&issuer=Tumira"
FULL_DIGEST = "602d1a619a3e86d9635f7ce2a5d0ad96878a75754a4d0b9281c683a80f852c40"
# The same with version 7, of a text that fills that.
LARGE_FULL = "ethereum:0x" + "5" * 40 + "@56/transfer?address=0x" + "7" * 40 + "&uint256=" + "3" * 31
LARGE_FULL_DIGEST = "5a24f6d01eae3b481b22d48a8412ab1302bf53e47f7c36c4075c38a4400b9337"

Rows = Sequence[Sequence[bool]]


def read(rows: Rows) -> bytes:
    """Read a code, and check that its Reed-Solomon words fit."""
    beside = [rows[y][8] for y in [*range(6), 7, 8]] + [rows[8][x] for x in [7, *range(5, -1, -1)]]
    away = [rows[8][SIZE - 1 - place] for place in range(8)] + [rows[y][8] for y in range(SIZE - 7, SIZE)]
    assert beside == away
    mask = FORMATS[sum(bit << place for place, bit in enumerate(beside))]
    bits = []
    for column, right in enumerate(x if x > 6 else x - 1 for x in range(SIZE - 1, 0, -2)):
        for y in range(SIZE) if column % 2 else reversed(range(SIZE)):
            bits += [rows[y][x] != mask(y, x) for x in (right, right - 1) if not is_function(y, x)]
    assert len(bits) == 134 * 8 + 7
    words = [int("".join("01"[bit] for bit in bits[at : at + 8]), 2) for at in range(0, 134 * 8, 8)]
    check_words(words)
    text = "".join(f"{word:08b}" for word in words[:108])
    assert text.startswith("0100")
    length = int(text[4:12], 2)
    return bytes(int(text[at : at + 8], 2) for at in range(12, 12 + 8 * length, 8))


def is_function(y: int, x: int) -> bool:
    finders = any(y in ys and x in xs for ys, xs in FINDERS)
    return finders or 6 in {y, x} or (28 <= y <= 32 and 28 <= x <= 32)


LOW, HIGH = range(9), range(SIZE - 8, SIZE)
FINDERS = ((LOW, LOW), (LOW, HIGH), (HIGH, LOW))


def check_words(words: Sequence[int]) -> None:
    """Evaluate the words as a polynomial at the 26 powers of two at which it must vanish."""
    powers = [1]
    for _ in range(254):
        powers.append(powers[-1] * 2 ^ (0x11D if powers[-1] >= 128 else 0))
    logarithms = {power: place for place, power in enumerate(powers)}
    for root in range(26):
        value = 0
        for word in words:
            value = (powers[(logarithms[value] + root) % 255] if value else 0) ^ word
        assert value == 0


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=qr_code.SMALL.bytes_max))
def test_what_is_drawn_can_be_read(text: str) -> None:
    assert read(qr_code.draw(text)) == text.encode()


def test_the_longest_link_of_a_second_factor_fits() -> None:
    uri = totp.write_uri(totp.new_secret(), "+999999999999999")
    assert len(uri) <= qr_code.SMALL.bytes_max
    assert read(qr_code.draw(uri)) == uri.encode()


def test_the_patterns_that_a_camera_looks_for_are_there() -> None:
    rows = qr_code.draw("x")
    assert (len(rows), {len(row) for row in rows}) == (SIZE, {SIZE})
    finder = ["1111111", "1000001", "1011101", "1011101", "1011101", "1000001", "1111111"]
    for top, left in ((0, 0), (0, SIZE - 7), (SIZE - 7, 0)):
        assert ["".join("01"[one] for one in row[left : left + 7]) for row in rows[top : top + 7]] == finder
    assert ["".join("01"[one] for one in row[28:33]) for row in rows[28:33]] == [
        "11111",
        "10001",
        "10101",
        "10001",
        "11111",
    ]
    assert [rows[6][x] for x in range(8, SIZE - 8)] == [x % 2 == 0 for x in range(8, SIZE - 8)]
    assert rows[SIZE - 8][8]


@pytest.mark.parametrize(
    ("version", "text", "digest"),
    [(qr_code.SMALL, FULL, FULL_DIGEST), (qr_code.LARGE, LARGE_FULL, LARGE_FULL_DIGEST)],
    ids=["small", "large"],
)
def test_another_encoder_draws_the_same(version: qr_code.Version, text: str, digest: str) -> None:
    assert len(text) == version.bytes_max
    codewords = qr_code._with_checks(version, qr_code._codewords(version, text.encode()))
    bits = [bool(word >> place & 1) for word in codewords for place in range(7, -1, -1)]
    drawn = "".join("01"[one] for row in qr_code._draw(version, bits, 3) for one in row)
    assert sha256(drawn.encode()).hexdigest() == digest


def test_a_long_link_of_a_payment_fits_into_the_larger_code() -> None:
    rows = qr_code.draw("ethereum:" + "x" * 137)
    assert (len(rows), {len(row) for row in rows}) == (45, {45})


def test_a_text_that_does_not_fit_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        qr_code.draw("x" * (qr_code.BYTES_MAX + 1))


def test_the_path_covers_the_dark_modules_and_no_others() -> None:
    path = qr_code.write_path(
        [[True, True, False, True], [False, False, False, False], [False, True, True, True]]
    )
    assert path == "M0 0.5h2M3 0.5h1M1 2.5h3"
