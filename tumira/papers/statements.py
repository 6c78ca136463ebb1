"""Monthly statements: opening balance, movements, closing balance, and the proof that they add up.

A month begins and ends at midnight of Harare and Johannesburg. Once it has ended, its statement is stored
when it is first asked for, after those of the months before: each begins with the transfer and the
balance at which the one before it ended. What is stored never changes.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from tumira.accounts import ledger, ledger_proofs
from tumira.accounts import store as accounts
from tumira.accounts.ledger import EntryKind, LedgerEntry
from tumira.core import money
from tumira.core.days import local_day, local_midnight
from tumira.core.ids import BATCH, MESSAGE, AccountId, write_id
from tumira.html.page import write_machine_time
from tumira.html.tables import write_rows
from tumira.operations.audit.runs import snapshot
from tumira.papers import statement_store, store
from tumira.papers.content import DayMovements, StatementContent, month_after, write_month, write_number
from tumira.papers.issue import PaperIssuer, buyer_of
from tumira.papers.statement_store import MonthStatement
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

# Writing this many rows takes a few milliseconds, during which no other request is answered.
CSV_PIECE: Final = 250
# A statement with more movements has them by day in its PDF; its CSV has them all.
LINES_MAX: Final = 500
MONTHS_MAX: Final = 1_200

# What was paid and what came stand in columns of their own, as in the CSV of the ledger.
CSV_COLUMNS: Final = (
    "entry",
    "at_utc",
    "kind",
    "paid_usd",
    "received_usd",
    "balance_after_usd",
    "batch_id",
    "message_id",
    "paper",
    "note",
)


@dataclass(frozen=True, slots=True)
class ProvedStatement:
    """A statement, and whether the ledger comes to the same closing balance."""

    statement: MonthStatement
    # The balance after the last movement, from the ledger's checkpoints; None where they contradict.
    ledger_balance: Decimal | None

    @property
    def adds_up(self) -> bool:
        statement = self.statement
        moved = sum((one.amount for one in statement.content.days), Decimal(0))
        return statement.opening + moved == statement.closing == self.ledger_balance


def month_of(at: datetime) -> date:
    return local_day(at).replace(day=1)


async def list_months(connection: Connection, account_id: AccountId) -> Sequence[date]:
    """Return the months of an account from now back to its first."""
    account = await accounts.find(connection, account_id)
    assert account is not None, "accounts are never deleted"
    first, last = month_of(account.created_at), month_of(await clock.read_now(connection))
    months = [first]
    while months[-1] < last and len(months) < MONTHS_MAX:
        months.append(month_after(months[-1]))
    return months[::-1]


async def find_statement(
    database: Database, issuer: PaperIssuer, account_id: AccountId, month: date
) -> ProvedStatement | None:
    """Return the statement of a month; None before the account was opened, and for months to come."""
    async with database.connection() as connection:
        months = await list_months(connection, account_id)
        stored = await statement_store.find(connection, account_id, month)
    if month not in months:
        return None
    if stored is not None:
        async with database.connection() as connection:
            return ProvedStatement(stored, await _ledger_balance(connection, stored))
    if month != months[0]:
        # Transfers are inserted while the account is locked. Who gets the lock now, after the month has
        # ended, sees all of them.
        async with database.transaction() as connection:
            await accounts.lock(connection, account_id)
    return await _add_up(database, issuer, account_id, months[::-1], month)


async def _add_up(
    database: Database, issuer: PaperIssuer, account_id: AccountId, months: Sequence[date], wanted: date
) -> ProvedStatement:
    """Add up the months that are not stored, up to the wanted month, and store those that ended."""
    proved: list[ProvedStatement] = []
    # One moment, so that the movements and the balance of the current month are of the same.
    async with snapshot(database) as connection:
        before = await statement_store.find_last(connection, account_id, wanted)
        for month in months:
            if month > wanted or (before is not None and month <= before.month):
                continue
            statement = await _read(
                connection, issuer, account_id, month, before, is_open=month == months[-1]
            )
            proved.append(ProvedStatement(statement, await _ledger_balance(connection, statement)))
            before = statement
    async with database.transaction() as connection:
        for one in proved:
            if not one.adds_up or one.statement.month == months[-1]:
                # What does not add up is not made final, nor what follows it.
                break
            await statement_store.insert(connection, one.statement)
        stored = await statement_store.find(connection, account_id, wanted)
    return proved[-1] if stored is None else ProvedStatement(stored, proved[-1].ledger_balance)


async def _read(
    connection: Connection,
    issuer: PaperIssuer,
    account_id: AccountId,
    month: date,
    before: MonthStatement | None,
    *,
    is_open: bool,
) -> MonthStatement:
    first_id = 0 if before is None else before.next_id
    opening = Decimal(0) if before is None else before.closing
    next_id = ledger.LAST
    if not is_open:
        next_id = await ledger.first_since(connection, account_id, local_midnight(month_after(month)))
    next_id = max(first_id, next_id)
    days = await statement_store.list_days(connection, account_id, first_id, next_id)
    return MonthStatement(
        account_id=account_id,
        month=month,
        first_id=first_id,
        next_id=next_id,
        movements=sum(one.count for one in days),
        opening=opening,
        closing=opening + sum((one.amount for one in days), Decimal(0)),
        content=StatementContent(issuer.party, await buyer_of(connection, account_id), days),
    )


async def _ledger_balance(connection: Connection, statement: MonthStatement) -> Decimal | None:
    """Return what the ledger's checkpoints say that the balance was at the end of the statement."""
    last_id = await statement_store.find_last_before(connection, statement.account_id, statement.next_id)
    if last_id is None:
        return Decimal(0)
    after = await ledger_proofs.balances_after(connection, statement.account_id, [last_id])
    return None if after is None else after[last_id]


def totals_by_kind(statement: MonthStatement) -> Sequence[tuple[EntryKind, Decimal, int]]:
    """Return what the movements of each kind come to, and how many there are."""
    found = []
    for kind in EntryKind:
        days = [one for one in statement.content.days if one.kind == kind]
        if days:
            found.append(
                (kind, sum((one.amount for one in days), Decimal(0)), sum(one.count for one in days))
            )
    return found


@dataclass(frozen=True, slots=True)
class StatementDay:
    """A day of a statement, and the balance at its end."""

    day: date
    count: int
    by_kind: Sequence[DayMovements]
    amount: Decimal
    balance: Decimal


def list_days(statement: MonthStatement) -> Sequence[StatementDay]:
    """Return the days with movements, oldest first."""
    found: list[StatementDay] = []
    balance = statement.opening
    for day in sorted({one.day for one in statement.content.days}):
        moved = [one for one in statement.content.days if one.day == day]
        amount = sum((one.amount for one in moved), Decimal(0))
        balance += amount
        found.append(StatementDay(day, sum(one.count for one in moved), moved, amount, balance))
    return found


async def list_lines(database: Database, statement: MonthStatement) -> Sequence[LedgerEntry] | None:
    """Return all movements, oldest first; None where they are too many for a list."""
    if statement.movements > LINES_MAX:
        return None
    async with database.connection() as connection:
        return await statement_store.list_movements(
            connection, statement.account_id, statement.first_id, statement.next_id, LINES_MAX
        )


_NO_GATE: Final[AbstractAsyncContextManager[None]] = nullcontext()


async def write_csv(
    database: Database, statement: MonthStatement, gate: AbstractAsyncContextManager[None] = _NO_GATE
) -> AsyncIterator[bytes]:
    """Write all movements as CSV, a piece at a time, each with the balance after it.

    The gate lets few downloads at a time read from the database.
    """
    month = write_month(statement.month)
    yield write_rows([CSV_COLUMNS, _balance_row("opening", month, statement.opening)])
    balance, first_id, left = statement.opening, statement.first_id, statement.movements
    while left > 0:
        # The connection is released before a piece is sent, so a slow reader blocks nobody.
        async with gate, database.connection() as connection:
            entries = await statement_store.list_movements(
                connection, statement.account_id, first_id, statement.next_id, min(CSV_PIECE, left)
            )
            papers = await store.list_numbers(
                connection, statement.account_id, [one.id for one in entries if one.batch_id is None]
            )
        if not entries:
            break
        rows = []
        for entry in entries:
            balance += entry.amount
            paper = papers.get(entry.id)
            rows.append(_csv_row(entry, balance, None if paper is None else write_number(*paper)))
        yield write_rows(rows)
        first_id, left = entries[-1].id + 1, left - len(entries)
    yield write_rows([_balance_row("closing", month, balance)])


def _balance_row(kind: str, month: str, balance: Decimal) -> Sequence[object]:
    return (None, None, kind, None, None, money.write(balance), None, None, None, month)


def _csv_row(entry: LedgerEntry, balance: Decimal, paper: str | None) -> Sequence[object]:
    amount = money.write(abs(entry.amount))
    return (
        entry.id,
        write_machine_time(entry.created_at),
        entry.kind.value,
        amount if entry.amount < 0 else None,
        amount if entry.amount > 0 else None,
        money.write(balance),
        entry.batch_id and write_id(BATCH, entry.batch_id),
        entry.message_id and write_id(MESSAGE, entry.message_id),
        paper,
        entry.note or entry.book.partition(":")[2] or None,
    )
