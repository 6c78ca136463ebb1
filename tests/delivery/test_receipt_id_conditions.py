"""The conditions under which two carrier ids are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.delivery.receipt_rules import SAME_ID, id_condition


@pytest.mark.parametrize(
    ("in_receipt", "in_answer", "words"),
    [
        ("4660", "1234", "the id were written in hexadecimal"),
        ("1234", "4660", "the id were read as hexadecimal"),
        ("00AB12", "ab12", SAME_ID),
        (" 77001 \0", "77001", SAME_ID),
        ("0xAB12", "ab12", "0x in front of the id did not count"),
        ("0x1234", "4660", "the id were read as hexadecimal, and its 0x did not count"),
        ("12ab-34cd", "12AB34CD", "only the letters and digits of the id counted"),
        ("smsc1:770012", "770012", "the id had not “smsc1:” in front"),
        ("770012", "770012@smsc1", "the id had “@smsc1” at its end"),
        ("-5", "4294967291", "only the last 32 bits of the id counted"),
        ("2882400001", "9abcdef01", "only the last 32 bits of the id counted"),
        ("fedcba9876543210", "76543210", "only the last 32 bits of the id counted"),
        ("a1b2c3d4", "d4c3b2a1", "the octets of the id were read in reverse"),
        ("770012", "770013", None),
        ("a12", "12", None),
        ("", "770012", None),
    ],
)
def test_what_would_have_to_be_so_is_said(in_receipt: str, in_answer: str, words: str | None) -> None:
    assert id_condition(in_receipt, in_answer) == words


@given(st.text(max_size=300), st.text(max_size=300))
def test_whatever_carriers_send_is_compared_in_bounds(in_receipt: str, in_answer: str) -> None:
    words = id_condition(in_receipt, in_answer)
    assert words is None or len(words) < 120


@given(st.integers(16, 2**64))
def test_every_number_is_known_again_in_the_other_base(number: int) -> None:
    assert id_condition(str(number), f"{number:X}") not in {None, SAME_ID}
    assert id_condition(f"{number:x}", str(number)) not in {None, SAME_ID}
