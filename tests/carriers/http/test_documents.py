"""Documents of providers are read within bounds, whatever they are."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.carriers.http import documents
from tumira.carriers.http.documents import DocumentPath, DocumentPaths, as_id, as_money, as_time

NAMES = st.from_regex(r"\A[A-Za-z0-9_-]{1,12}\Z")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def places(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(path, value), *(one for name, part in inner for one in places(part, (*path, str(name))))]


@given(VALUES)
def test_every_value_is_found_at_its_path(document: Any) -> None:
    read = documents.parse_json(json.dumps(document).encode())
    for steps, value in places(document):
        if len(steps) <= documents.STEPS_MAX:
            assert DocumentPath(".".join(steps)).find(read) == value


@given(VALUES, st.lists(NAMES | st.integers(0, 9).map(str), max_size=8))
def test_a_path_through_any_document_finds_something_or_nothing(document: Any, steps: list[str]) -> None:
    DocumentPath(".".join(steps)).find(document, fold=True)


@given(st.binary(max_size=400))
def test_any_octets_are_a_document_or_none(body: bytes) -> None:
    for read in (documents.parse_json(body), documents.parse_text(body, ":")):
        documents.as_text(DocumentPath("0").find(read))
    documents.parse_form(body.decode("latin-1"))


def test_bounds() -> None:
    assert documents.parse_json(b"[" * 100_000 + b"]" * 100_000) is None
    assert documents.parse_json(b'"' + b"x" * documents.BODY_MAX + b'"') is None
    assert documents.parse_json(b"9" * 10_000) is None
    assert documents.parse_json(b"[NaN]") is None
    assert documents.parse_form("&".join(f"a{number}=1" for number in range(300))) is None
    assert documents.parse_form("id=1&id=2") is None
    with pytest.raises(ValueError, match="at most 8 steps"):
        DocumentPath(".".join("abcdefghi"))
    with pytest.raises(ValueError, match="no path"):
        DocumentPath("a..b")
    with pytest.raises(ValueError, match="at most 4 alternatives"):
        DocumentPath("a|b|c|d|e")
    with pytest.raises(ValueError, match="at most 4"):
        DocumentPaths(["a"] * 5)


def test_alternatives_and_case() -> None:
    path = DocumentPath("eventId|sendResponse.eventId")
    assert path.find({"sendResponse": {"eventId": 5}}) == 5
    assert path.find({"eventId": None, "sendResponse": {"eventId": 5}}) == 5
    assert path.find({"EVENTID": 7}) is None
    assert path.find({"EVENTID": 7}, fold=True) == 7


def test_plain_texts_are_split_into_fields() -> None:
    assert documents.parse_text(b"SUCCESS: 12345\r\n", ":") == ["SUCCESS", "12345"]
    assert documents.parse_text(b"OK", "") == ["OK"]
    assert documents.parse_text(b"\xff", ":") is None


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (7, "7"),
        ("abc", "abc"),
        ("None", None),
        ("null", None),
        ("", None),
        (None, None),
        ({}, None),
        ("x" * 256, None),
        ("a\nb", None),
        (True, "true"),
    ],
)
def test_ids(value: Any, read: str | None) -> None:
    assert as_id(value) == read


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("KES 0.8000", (Decimal("0.8000"), "KES")),
        ("1,785.50 usd", (Decimal("1785.50"), "USD")),
        (Decimal("0.011"), (Decimal("0.011"), "")),
        (-3, (Decimal(-3), "")),
        ("much", None),
        ("9" * 40, None),
    ],
)
def test_amounts(value: Any, read: tuple[Decimal, str] | None) -> None:
    assert as_money(value) == read


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (1_794_000_000, datetime(2026, 11, 6, 21, 20, tzinfo=UTC)),
        (1_794_000_000_000, datetime(2026, 11, 6, 21, 20, tzinfo=UTC)),
        ("2026-11-15T10:00:00.000+0200", datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("2026-11-15 10:00:00", datetime(2026, 11, 15, 10, tzinfo=UTC)),
        ("yesterday", None),
        ("9" * 15, None),
        (None, None),
    ],
)
def test_times(value: Any, read: datetime | None) -> None:
    assert as_time(value) == read
