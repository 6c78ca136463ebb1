"""Papers as PDF, drawn by ReportLab.

Text is drawn as it is and never parsed as markup. The same paper gives the same bytes.
"""

import asyncio
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import cache
from typing import Any, Final

from tumira.accounts.ledger import LedgerEntry
from tumira.core.translation import _
from tumira.html.page import write_count, write_exact_usd, write_moment
from tumira.html.top_up_words import write_day
from tumira.papers import words
from tumira.papers.content import PaperContent, Party
from tumira.papers.fonts import BOLD, PLAIN, choose_font, printable
from tumira.papers.statement_store import MonthStatement
from tumira.papers.statements import list_days, totals_by_kind

WIDTH: Final = 595.3
HEIGHT: Final = 841.9
MARGIN: Final = 50.0
RIGHT: Final = WIDTH - MARGIN
BOTTOM: Final = 60.0
LEADING: Final = 1.35
GREY: Final = 0.35
LINES_OF_FIELD_MAX: Final = 8


@cache
def _thread(_process: int) -> ThreadPoolExecutor:
    """Return the one thread of a process that draws, so that drawing leaves time for other requests."""
    return ThreadPoolExecutor(1, "pdf")


async def make(draw: Callable[..., bytes], *what: object) -> bytes:
    """Draw a PDF beside the event loop."""
    # A fork has none of the threads of the process that it was made from.
    return await asyncio.get_running_loop().run_in_executor(_thread(os.getpid()), draw, *what)


class _Sheet:
    """The pages of a PDF, drawn from top to bottom."""

    def __init__(self, title: str, author: str) -> None:
        # Loaded with the first PDF: it takes a tenth of a second, and few processes draw one.
        from reportlab.pdfbase.pdfmetrics import stringWidth  # noqa: PLC0415
        from reportlab.pdfgen.canvas import Canvas  # noqa: PLC0415

        self._file = io.BytesIO()
        self._width_of: Callable[[str, str, float], float] = stringWidth
        # Invariant: no time and no random number in the file.
        self._canvas: Any = Canvas(self._file, pagesize=(WIDTH, HEIGHT), invariant=1, lang="en")
        self._canvas.setTitle(printable(title))
        self._canvas.setAuthor(printable(author))
        self._canvas.setCreator("Tumira")
        self._foot = printable(title)
        self._page = 1
        self.y = HEIGHT - MARGIN

    def finish(self) -> bytes:
        self._draw_foot()
        self._canvas.save()
        return self._file.getvalue()

    def need(self, height: float) -> bool:
        """Begin another page where so much does not fit any more; tell whether it did."""
        if self.y - height >= BOTTOM:
            return False
        self._draw_foot()
        self._canvas.showPage()
        self._page += 1
        self.y = HEIGHT - MARGIN
        return True

    def _draw_foot(self) -> None:
        self._write(MARGIN, BOTTOM - 25, self._foot, choose_font(self._foot, PLAIN), 8, GREY)
        page = printable(_("Page {number}").format(number=self._page))
        self._write(RIGHT - self._width_of(page, PLAIN, 8), BOTTOM - 25, page, PLAIN, 8, GREY)

    def _write(self, x: float, y: float, text: str, font: str, size: float, grey: float = 0.0) -> None:
        self._canvas.setFillGray(grey)
        self._canvas.setFont(font, size)
        self._canvas.drawString(x, y, text)

    def text(
        self, text: str, font: str = PLAIN, size: float = 10, *, x: float = MARGIN, width: float = 0
    ) -> None:
        """Write a text below what is there, in as many lines as it takes."""
        text = printable(text)
        font = choose_font(text, font)
        for line in self._wrap(text, font, size, width or RIGHT - x):
            self.need(size * LEADING)
            self.y -= size * LEADING
            self._write(x, self.y, line, font, size)

    def _wrap(self, text: str, font: str, size: float, width: float) -> Sequence[str]:
        """Break a text into lines that fit; a word that is too long is broken too."""
        lines: list[str] = []
        line = ""
        for word in text.split():
            tried = f"{line} {word}".strip()
            if self._width_of(tried, font, size) <= width:
                line = tried
                continue
            if line:
                lines.append(line)
            line = word
            while self._width_of(line, font, size) > width:
                cut = self._fitting(line, font, size, width)
                lines.append(line[:cut])
                line = line[cut:]
        lines.append(line)
        return lines[:LINES_OF_FIELD_MAX]

    def _fitting(self, word: str, font: str, size: float, width: float) -> int:
        """Return how many letters of a word fit; one at least."""
        count = 1
        while count < len(word) and self._width_of(word[: count + 1], font, size) <= width:
            count += 1
        return count

    def row(self, cells: Sequence[str], columns: Sequence[float], font: str = PLAIN, size: float = 9) -> None:
        """Write cells side by side; a column is its left edge, or as a negative number its right one."""
        self.y -= size * LEADING + 2
        for place, (cell, edge) in enumerate(zip(cells, columns, strict=True)):
            text = printable(cell)
            chosen = choose_font(text, font)
            if edge < 0:
                self._write(-edge - self._width_of(text, chosen, size), self.y, text, chosen, size)
                continue
            right = abs(columns[place + 1]) if place + 1 < len(columns) else RIGHT
            # Before a column that ends at its right edge there must be room for an amount.
            room = right - edge - (75 if place + 1 < len(columns) and columns[place + 1] < 0 else 8)
            if self._width_of(text, chosen, size) > room:
                text = text[: self._fitting(text, chosen, size, room - 8)] + "\N{HORIZONTAL ELLIPSIS}"
            self._write(edge, self.y, text, chosen, size)

    def rule(self, grey: float = 0.75) -> None:
        self.y -= 4
        self._canvas.setStrokeGray(grey)
        self._canvas.setLineWidth(0.6)
        self._canvas.line(MARGIN, self.y, RIGHT, self.y)

    def gap(self, height: float = 12) -> None:
        self.y -= height

    def table(
        self, names: Sequence[str], columns: Sequence[float], rows: Sequence[Sequence[str]], size: float = 9
    ) -> None:
        """Draw a table; its names stand on every page that it reaches."""

        def head() -> None:
            self.row(names, columns, BOLD, size)
            self.rule()

        self.need(4 * size)
        head()
        for cells in rows:
            if self.need(size * LEADING + 6):
                head()
            self.row(cells, columns, PLAIN, size)


def _head(sheet: _Sheet, heading: str, seller: Party, buyer: Party, facts: Sequence[tuple[str, str]]) -> None:
    """Draw what stands above the figures: the heading, the two parties, and numbers and dates."""
    sheet.text(heading, BOLD, 20)
    sheet.gap()
    top = sheet.y
    ends = []
    for x, title, party in ((MARGIN, _("From"), seller), (WIDTH / 2 + 10, _("To"), buyer)):
        sheet.y = top
        width = WIDTH / 2 - MARGIN - 20
        sheet.text(title, PLAIN, 8, x=x, width=width)
        sheet.text(party.name, BOLD, 11, x=x, width=width)
        tax_number = _("Tax number: {number}").format(number=party.tax_number) if party.tax_number else ""
        for line in filter(None, (party.address, tax_number, *party.contacts)):
            sheet.text(line, PLAIN, 9, x=x, width=width)
        ends.append(sheet.y)
    sheet.y = min(ends)
    sheet.gap(18)
    for name, value in facts:
        _fact(sheet, name, value)
    sheet.gap()


def _fact(sheet: _Sheet, name: str, value: str) -> None:
    """Draw a name, and its value beside it."""
    sheet.need(2 * 10 * LEADING)
    top = sheet.y
    sheet.text(name, PLAIN, 9, width=120)
    end = sheet.y
    sheet.y = top
    sheet.text(value, PLAIN, 9, x=MARGIN + 130)
    sheet.y = min(end, sheet.y)


def draw_paper(content: PaperContent) -> bytes:
    """Draw an invoice, receipt or credit note."""
    number = content.written_number
    sheet = _Sheet(f"{content.heading} {number}", content.seller.name)
    facts = [
        (_("Number"), number),
        (_("Date"), f"{write_moment(content.at)} ({_('UTC+02:00')})"),
    ]
    _head(sheet, content.heading, content.seller, content.buyer, facts)
    columns = (MARGIN, -RIGHT)
    rows = [(content.description, write_exact_usd(content.net))]
    if content.tax is not None:
        rows.append((_("VAT {rate}%").format(rate=content.written_rate), write_exact_usd(content.tax)))
    sheet.table((_("Description"), _("Amount")), columns, rows, 10)
    sheet.rule(0.0)
    sheet.row((_("Total"), write_exact_usd(content.total)), columns, BOLD, 11)
    sheet.gap(20)
    for name, value in content.facts:
        _fact(sheet, name, value)
    return sheet.finish()


def draw_statement(statement: MonthStatement, lines: Sequence[LedgerEntry] | None) -> bytes:
    """Draw a statement with its movements; with None they are too many, and stand there by day."""
    content = statement.content
    name = words.name_month(statement.month)
    heading = _("Statement, {month}").format(month=name)
    sheet = _Sheet(heading, content.seller.name)
    facts = [(_("Period"), f"{name} ({_('UTC+02:00')})")]
    if statement.closed_at is None:
        facts.append((_("Note"), _("The month has not ended: this statement will change.")))
    _head(sheet, heading, content.seller, content.buyer, facts)
    columns = (MARGIN, -400.0, -RIGHT)
    sheet.row((_("Opening balance"), "", write_exact_usd(statement.opening)), columns, BOLD, 10)
    for kind, amount, count in totals_by_kind(statement):
        sheet.row((_(words.KINDS[kind]), write_count(count), write_exact_usd(amount)), columns, PLAIN, 10)
    sheet.rule(0.0)
    sheet.row((_("Closing balance"), "", write_exact_usd(statement.closing)), columns, BOLD, 10)
    sheet.gap(6)
    proof = _("The movements add up to the closing balance, and the ledger has the same balance.")
    sheet.text(proof, PLAIN, 9)
    sheet.gap(14)
    if lines is None:
        _draw_days(sheet, statement)
    else:
        _draw_lines(sheet, statement, lines)
    return sheet.finish()


def _draw_days(sheet: _Sheet, statement: MonthStatement) -> None:
    count = write_count(statement.movements)
    sheet.text(_("{count} movements, by day. The CSV file lists each of them.").format(count=count), PLAIN, 9)
    sheet.gap(6)
    rows = [
        (
            write_day(one.day),
            write_count(one.count),
            write_exact_usd(one.amount),
            write_exact_usd(one.balance),
        )
        for one in list_days(statement)
    ]
    names = (_("Day"), _("Movements"), _("Amount"), _("Balance after"))
    sheet.table(names, (MARGIN, -260.0, -400.0, -RIGHT), rows)


def _draw_lines(sheet: _Sheet, statement: MonthStatement, lines: Sequence[LedgerEntry]) -> None:
    balance: Decimal = statement.opening
    rows = []
    for entry in lines:
        balance += entry.amount
        at = write_moment(entry.created_at)[:-3]
        rows.append((at, words.describe(entry), write_exact_usd(entry.amount), write_exact_usd(balance)))
    names = (_("Time"), _("Movement"), _("Amount"), _("Balance after"))
    sheet.table(names, (MARGIN, MARGIN + 95, -455.0, -RIGHT), rows, 8)
