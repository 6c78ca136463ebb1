"""What a sender name may be, and which papers are taken."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.delivery.smpp.pdu import SubmitBodies, read_short_message
from tumira.pricing import segments
from tumira.pricing.segments import Encoding
from tumira.sender_names.name_rules import check_name, list_rules, paper_type

GOOD = ("Moyo Stores", "A1B", "TM-Shop", "R&B Farm", "St. Anne", "7Eleven", "abc")
ALLOWED = "ABCxyz019 .&-"


@pytest.mark.parametrize("name", GOOD)
def test_a_name_that_keeps_the_rules_is_taken(name: str) -> None:
    assert check_name(name) is None


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", 0),
        ("AB", 0),
        ("Twelve chars", 0),
        ("Müller", 1),
        ("a_b_c", 1),
        ("a@b", 1),
        ("Tab\tname", 1),
        ("Line\n", 1),
        ("12345", 2),
        ("- . &", 2),
        (" Shop", 3),
        ("Shop ", 3),
        ("My  Shop", 3),
    ],
)
def test_a_name_that_breaks_a_rule_is_told_which(name: str, rule: int) -> None:
    fault = check_name(name)
    assert fault is not None
    assert not list_rules(name)[rule].is_kept
    assert list_rules(name)[rule].words in fault


@given(st.text(ALLOWED, max_size=13))
def test_a_name_that_is_taken_fits_the_address_field_of_a_message(name: str) -> None:
    is_taken = check_name(name) is None
    assert is_taken == bool(
        re.fullmatch(r"(?=.*[A-Za-z])[A-Za-z0-9.&-](?:[A-Za-z0-9.&-]| (?! )){1,9}[A-Za-z0-9.&-]", name)
    )
    if is_taken:
        size = segments.measure(name)
        assert (size.encoding, size.characters) == (Encoding.GSM_7, len(name))
        body = SubmitBodies(name).body("263771200001", b"Hello", 0, 0, "")
        message = read_short_message(body)
        assert (message.source, message.source_ton, message.source_npi) == (name, 5, 0)


def test_a_paper_is_known_by_its_content() -> None:
    assert paper_type(b"%PDF-1.7\n...") == "application/pdf"
    assert paper_type(b"\xff\xd8\xff\xe0JFIF") == "image/jpeg"
    assert paper_type(b"\x89PNG\r\n\x1a\n...") == "image/png"
    for data in (b"", b"<html>", b"GIF89a", b" %PDF-1.7", b"\x89PNG\n"):
        assert paper_type(data) is None
