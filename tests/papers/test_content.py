"""Numbers, months and tax as papers write them."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as some
from msgspec import structs

from tumira.papers import fonts
from tumira.papers.content import (
    PaperContent,
    PaperSeries,
    Party,
    month_after,
    month_before,
    read_month,
    read_number,
    tax_in,
    write_month,
    write_number,
)
from tumira.papers.fonts import BOLD, LETTERS, PLAIN, choose_font, load_wide, printable
from tumira.papers.pdf import draw_paper

PAPER: Final = PaperContent(
    series=PaperSeries.INVOICE,
    number=1,
    heading="Invoice",
    at=datetime(2026, 10, 1, tzinfo=UTC),
    seller=Party("Sanganai SMS"),
    buyer=Party("Moyo Stores"),
    description="Top-up",
    total=Decimal(10),
    tax_rate=None,
    facts=(),
)


@given(some.sampled_from(PaperSeries), some.integers(1, 10**18 - 1))
def test_a_number_is_read_as_it_was_written(series: PaperSeries, number: int) -> None:
    assert read_number(write_number(series, number)) == (series, number)


def test_numbers_have_six_digits_at_least() -> None:
    assert write_number(PaperSeries.INVOICE, 7) == "INV-000007"
    assert write_number(PaperSeries.ENTRY, 1_234_567) == "1234567"


@pytest.mark.parametrize(
    "text", ["", "INV-", "INV-1", "inv-000001", "XX-000001", "INV-000001 ", "-000001", "\u0660" * 6]
)
def test_what_is_no_number_names_nothing(text: str) -> None:
    assert read_number(text) is None


@given(some.dates(date(2001, 1, 1), date(2098, 12, 31)))
def test_months_follow_each_other(day: date) -> None:
    month = day.replace(day=1)
    assert month_before(month_after(month)) == month
    assert 28 <= (month_after(month) - month).days <= 31
    assert read_month(write_month(month)) == month


@pytest.mark.parametrize("text", ["", "2026", "2026-13", "2026-00", "2026-1", "1999-01", "2026-10-01", "x"])
def test_what_is_no_month_is_refused(text: str) -> None:
    assert read_month(text) is None


def test_tax_is_a_part_of_the_amount() -> None:
    assert tax_in(Decimal(10), Decimal(15)) == Decimal("1.30")
    assert tax_in(Decimal("8.1081"), Decimal(15)) == Decimal("1.06")
    assert tax_in(Decimal(10), Decimal("15.5")) == Decimal("1.34")


def test_names_keep_their_letters_as_far_as_the_standard_fonts_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fonts, "load_wide", frozenset)
    assert printable("City of Tšhwane & Müller, €5") == "City of Tšhwane & Müller, €5"
    assert printable("Makha\u1e13o, Tshiven\u1e13a \u5317\n\u2212US$1") == "Makhado, Tshivenda ? -US$1"


def test_other_letters_are_drawn_with_a_font_of_the_system() -> None:
    if not load_wide():
        pytest.skip("DejaVu Sans is missing: install fonts-dejavu-core")
    # Venda, Polish, Turkish, Greek, Cyrillic; letters written with a mark of their own become one.
    names = "\u1e12\u1e13\u1e3c\u1e3d\u1e4a\u1e4b\u1e70\u1e71\u1e44\u1e45 Łódź Şişli Αθήνα Омск n\u032d"
    assert printable(names) == names.replace("n\u032d", "\u1e4b")
    assert choose_font("Łódź", BOLD) == "DejaVuSans-Bold"
    assert choose_font("Harare", PLAIN) == PLAIN
    # Neither has Chinese; letters from right to left would stand in the wrong order.
    assert printable("\u5317 \u05d0\u0628") == "? ??"


def test_a_font_that_cannot_be_read_is_done_without(tmp_path: Path) -> None:
    for end in ("", "-Bold"):
        (tmp_path / f"DejaVuSans{end}.ttf").write_bytes(b"not a font")
    assert load_wide((tmp_path,)) == frozenset()
    assert load_wide((tmp_path / "nowhere",)) == frozenset()


@given(some.text())
def test_any_text_is_written_in_letters_that_a_font_has(text: str) -> None:
    written = printable(text)
    assert set(written) - load_wide() <= set(written.encode(LETTERS, "ignore").decode(LETTERS))


# Each embeds its letters, which takes a twentieth of a second.
@pytest.mark.long
@given(some.text())
@example("\x00\ud800\U0001f600\u202e\u1e13\u0301\ufffe")
def test_any_text_can_be_drawn(text: str) -> None:
    assert draw_paper(structs.replace(PAPER, buyer=Party(text, text))).endswith(b"%%EOF\n")
