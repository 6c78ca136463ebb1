"""Words of papers and statements that pages, PDF and mails share."""

from collections.abc import Mapping
from datetime import date
from typing import Final

from tumira.accounts.ledger import EntryKind, LedgerEntry
from tumira.core.ids import BATCH, SCHEDULE, write_id
from tumira.core.translation import _, mark
from tumira.html.top_up_words import name_of
from tumira.papers.content import PaperSeries

KINDS: Final[Mapping[EntryKind, str]] = {
    EntryKind.SENDS: mark("Batches"),
    EntryKind.REFUNDS: mark("Refunds"),
    EntryKind.TOP_UPS: mark("Top-ups"),
    EntryKind.ADJUSTMENTS: mark("Credits and deductions"),
    EntryKind.HOLDS: mark("Held for scheduled sends"),
}

SERIES: Final[Mapping[PaperSeries, str]] = {
    PaperSeries.INVOICE: mark("Invoices"),
    PaperSeries.RECEIPT: mark("Receipts"),
    PaperSeries.CREDIT_NOTE: mark("Credit notes"),
}


def name_month(month: date) -> str:
    """Name a month as in `October 2026`."""
    return f"{month:%B %Y}"


def describe(entry: LedgerEntry) -> str:
    """Say what a movement was for, by its ledger entry alone: that never changes."""
    match entry.kind:
        case EntryKind.SENDS:
            assert entry.batch_id is not None
            return _("Batch {id}").format(id=write_id(BATCH, entry.batch_id))
        case EntryKind.REFUNDS:
            assert entry.batch_id is not None
            return _("Refund, batch {id}").format(id=write_id(BATCH, entry.batch_id))
        case EntryKind.TOP_UPS:
            method = name_of(entry.book.partition(":")[2], "")
            text = _("Top-up with {method}") if entry.amount > 0 else _("Reversed top-up with {method}")
            return text.format(method=method)
        case EntryKind.ADJUSTMENTS:
            text = _("Credit: {note}") if entry.amount > 0 else _("Deduction: {note}")
            return text.format(note=entry.note or "")
        case EntryKind.HOLDS:
            assert entry.schedule_id is not None
            text = _("Released, scheduled send {id}") if entry.amount > 0 else _("Held, scheduled send {id}")
            return text.format(id=write_id(SCHEDULE, entry.schedule_id))
        case _:
            return _(KINDS.get(entry.kind, entry.kind.value))
