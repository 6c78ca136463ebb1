"""The ledger: every entry of an account, the balance after each, and whether they add up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import ledger
from tumira.accounts.ledger import EntryKind, LedgerEntry
from tumira.accounts.ledger_proofs import LedgerState, balances_after, get_state
from tumira.core import money
from tumira.core.days import local_day, local_midnight
from tumira.core.ids import ACCOUNT, BATCH, MESSAGE, AccountId, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.downloads import ROWS_MAX, Row, download_list
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Choice, PeriodForm
from tumira.html.page import LOCAL, write_machine_time
from tumira.html.top_up_words import name_of
from tumira.operations.audit.runs import snapshot
from tumira.papers import store as papers
from tumira.postgres.connection import Connection
from tumira.sending import batches
from tumira.sending.batches import Batch, Message
from tumira.sending.lifecycle import FAILURE_REASONS, MESSAGE_STATUSES
from tumira.topups import lists as top_up_proofs
from tumira.topups.lists import LedgerTopUp

LEDGER: Final = "/dashboard/ledger"

# So many rows are still a short page on a phone.
PAGE: Final = 20

_ID_DIGITS_MAX: Final = 18

KINDS: Final = {
    EntryKind.ALL: mark("All entries"),
    EntryKind.SENDS: mark("Batches"),
    EntryKind.REFUNDS: mark("Refunds"),
    EntryKind.TOP_UPS: mark("Top-ups"),
    EntryKind.ADJUSTMENTS: mark("Credits and deductions"),
    EntryKind.HOLDS: mark("Scheduled sends"),
}

# What was paid and what came back stand in columns of their own: a minus sign at the beginning of a cell is
# what a spreadsheet takes for a formula.
COLUMNS: Final = (
    "entry",
    "at_utc",
    "kind",
    "paid_usd",
    "received_usd",
    "balance_after_usd",
    "batch_id",
    "reference",
    "message_id",
    "number",
    "reason",
    "note",
)

_log: Final = structlog.get_logger()


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, LEDGER, show_ledger),
        private(services, LEDGER + ".csv", download_entries),
    ]


class EntryFilterForm(PeriodForm):
    kind = Choice(["", *EntryKind], clean=lambda text: "" if text.strip() == EntryKind.ALL else text.strip())

    @property
    def wanted(self) -> EntryKind:
        return EntryKind(self.kind.data or EntryKind.ALL)


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """An entry with what it was for, as far as that is kept, and the balance after it, if that is sure."""

    entry: LedgerEntry
    balance: Decimal | None
    sent: Batch | None
    returned: Message | None
    top_up: LedgerTopUp | None
    # Whether the operator's credit has an invoice or a receipt.
    has_paper: bool

    @property
    def method(self) -> str:
        method = self.entry.book.partition(":")[2]
        return name_of(method, self.top_up.provider if self.top_up is not None else "")

    @property
    def name(self) -> str:
        """Return what a top-up or its reversal is called."""
        text = _("Top-up with {method}") if self.entry.amount > 0 else _("Reversed top-up with {method}")
        return text.format(method=self.method)

    @property
    def why(self) -> str | None:
        if self.returned is None:
            return None
        reason = FAILURE_REASONS.get(self.returned.failure_reason or "")
        return reason or MESSAGE_STATUSES[self.returned.status].meaning


@dataclass(frozen=True, slots=True)
class Piece:
    """Some lines that follow each other; the marks are sound unless they contradict each other."""

    lines: Sequence[LedgerLine]
    older: int | None
    stopped_at: datetime | None
    is_sound: bool


async def show_ledger(session: CustomerSession) -> Response:
    asked = EntryFilterForm.parse_query(session.request)
    before = _read_before(session)
    account_id = session.account_id
    piece = None
    # One moment, or a message that is sent meanwhile would make the sums differ.
    async with snapshot(session.database) as connection:
        standing = await get_state(connection, account_id)
        if not asked.faults:
            bounds = await _bounds(connection, account_id, asked)
            bounds["before"] = min(bounds["before"], before or ledger.LAST)
            piece = await _read(
                connection, account_id, asked.wanted, PAGE, bounds, with_balances=standing.adds_up
            )
    is_sound = standing.adds_up and (piece is None or piece.is_sound)
    if not is_sound:
        _report(account_id, standing)
    return session.page(
        "ledger.html.jinja",
        422 if asked.faults else 200,
        asked=asked,
        piece=piece,
        standing=standing,
        is_sound=is_sound,
        is_first=before is None,
        pages=asked.pages(LEDGER, str(piece.older) if piece and piece.older else None),
        rows_max=ROWS_MAX,
        kinds=[("" if one is EntryKind.ALL else one.value, _(name)) for one, name in KINDS.items()],
        checked_at=None if standing.proved_at is None else write_check_time(standing.proved_at),
    )


def write_check_time(at: datetime) -> str:
    """Write the minute of a check, and its day unless that is today."""
    local = at.astimezone(LOCAL)
    is_today = local.date() == datetime.now(LOCAL).date()
    return local.strftime("%H:%M" if is_today else "%-d %b %Y, %H:%M")


def _report(account_id: AccountId, standing: LedgerState) -> None:
    """Report to the operator that a customer sees entries that do not add up."""
    _log.error(
        "ledger does not add up",
        account_id=write_id(ACCOUNT, account_id),
        balance=money.write(standing.balance),
        entries=money.write(standing.total),
    )


def _read_before(session: CustomerSession) -> int | None:
    text = session.request.query_params.get("before")
    return None if text is None else read_entry_id(text, _("This page does not exist"))


def read_entry_id(text: str, missing: str) -> int:
    """Read the number of an entry in an address; answer 404 with `missing` if it cannot be one."""
    if not (text.isascii() and text.isdigit() and len(text) <= _ID_DIGITS_MAX):
        raise HTTPException(404, missing)
    return int(text)


async def _bounds(connection: Connection, account_id: AccountId, asked: EntryFilterForm) -> dict[str, int]:
    """Return between which entries the days lie that were asked for."""
    bounds = {"since": 0, "before": ledger.LAST}
    if asked.from_.data is not None:
        bounds["since"] = await ledger.first_since(connection, account_id, local_midnight(asked.from_.data))
    if asked.to.data is not None:
        next_day = asked.to.data + timedelta(days=1)
        # Nothing later than the day is asked for, also if it has not come yet.
        bounds["before"] = await ledger.first_since(connection, account_id, local_midnight(next_day))
    return bounds


async def _read(
    connection: Connection,
    account_id: AccountId,
    kind: EntryKind,
    count_max: int,
    bounds: Mapping[str, int],
    *,
    with_balances: bool,
) -> Piece:
    found = await ledger.list_entries(connection, account_id, kind, count_max, **bounds)
    entries = found.entries
    balances: Mapping[int, Decimal] | None = {}
    if with_balances and entries:
        balances = await balances_after(connection, account_id, [entry.id for entry in entries])
    sent = await batches.list_named(
        connection,
        [entry.batch_id for entry in entries if entry.batch_id and not entry.message_id],
        account_id,
    )
    returned = await batches.list_named_messages(
        connection, [entry.message_id for entry in entries if entry.message_id], account_id
    )
    topped_up = await top_up_proofs.list_by_transfer(
        connection, account_id, [entry.id for entry in entries if entry.kind is EntryKind.TOP_UPS]
    )
    credits_ = [entry.id for entry in entries if entry.kind is EntryKind.ADJUSTMENTS and entry.amount > 0]
    with_paper = {
        *await papers.list_numbers(connection, account_id, credits_),
        *await papers.list_waiting(connection, credits_),
    }
    lines = [
        LedgerLine(
            entry,
            (balances or {}).get(entry.id),
            sent.get(entry.batch_id) if entry.batch_id else None,
            returned.get(entry.message_id) if entry.message_id else None,
            topped_up.get(entry.id),
            entry.id in with_paper,
        )
        for entry in entries
    ]
    return Piece(lines, found.older, found.stopped_at, balances is not None)


async def download_entries(session: CustomerSession) -> Response:
    asked = EntryFilterForm.parse_query(session.request)
    if asked.faults:
        raise HTTPException(422, _("This filter is not valid. Go back and change it"))
    account_id = session.account_id
    async with snapshot(session.database) as connection:
        standing = await get_state(connection, account_id)
        bounds = await _bounds(connection, account_id, asked)
    # Between entries of one kind lie many others, all of which would have to be added up.
    with_balances = asked.wanted is EntryKind.ALL and standing.adds_up

    async def read(before: int | None, count_max: int) -> tuple[Sequence[Row], int | None]:
        if before is not None:
            bounds["before"] = before
        async with snapshot(session.database) as connection:
            piece = await _read(
                connection, account_id, asked.wanted, count_max, bounds, with_balances=with_balances
            )
        if not piece.is_sound:
            _report(account_id, standing)
        return [_row(line) for line in piece.lines], piece.older

    return download_list(session, f"ledger-{local_day(datetime.now(UTC))}.csv", COLUMNS, read)


def _row(line: LedgerLine) -> Row:
    entry = line.entry
    amount = money.write(abs(entry.amount))
    return (
        entry.id,
        write_machine_time(entry.created_at),
        entry.kind.value,
        amount if entry.amount < 0 else None,
        amount if entry.amount > 0 else None,
        None if line.balance is None else money.write(line.balance),
        entry.batch_id and write_id(BATCH, entry.batch_id),
        line.sent and line.sent.reference,
        entry.message_id and write_id(MESSAGE, entry.message_id),
        line.returned and line.returned.recipient,
        line.why,
        entry.note or line.method or None,
    )
