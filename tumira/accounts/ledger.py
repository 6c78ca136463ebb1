"""The ledger: transfers between books.

An account's transfers are inserted while its row is locked, so their ids are in the order in which its
balance changed, and a reader that sees one sees all before it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

import asyncpg

from tumira.core.ids import AccountId, BatchId, MessageId, ScheduleId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

LOOK_MAX: Final = 10_000
ENTRIES_MAX: Final = 1_000
LAST: Final = (1 << 63) - 1

# One statement, so no balance is ever read and then written.
SQL_MOVE: Final = Statement("""
WITH moved AS (
    UPDATE accounts
       SET balance = balance + CASE WHEN %(to_book)s = 'customer' THEN 1 ELSE -1 END * %(amount)s::numeric
     WHERE id = %(account_id)s
 RETURNING id, balance
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, note, actor)
    SELECT id, %(from_book)s, %(to_book)s, %(amount)s, %(note)s, %(actor)s
      FROM moved
 RETURNING id
), due AS (
    INSERT INTO papers_due (transfer_id)
    SELECT id
      FROM recorded
     WHERE %(needs_paper)s
)
SELECT balance FROM moved
""")


async def adjust(
    connection: Connection,
    account_id: AccountId,
    amount: Decimal,
    *,
    note: str,
    actor: str,
    is_payment: bool = False,
) -> Decimal:
    """Credit or debit an account on the operator's order; return the balance after it.

    A credit that is a payment gets an invoice or a receipt.
    """
    assert amount != 0
    assert amount > 0 or not is_payment
    books = ("adjustment", "customer") if amount > 0 else ("customer", "adjustment")
    balance = await SQL_MOVE.value(
        connection,
        account_id=account_id,
        amount=abs(amount),
        from_book=books[0],
        to_book=books[1],
        note=note,
        actor=actor,
        needs_paper=is_payment,
    )
    assert isinstance(balance, Decimal)
    return balance


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer as the operator sees it."""

    id: int
    from_book: str
    to_book: str
    amount: Decimal
    batch_id: BatchId | None
    note: str | None
    actor: str | None
    created_at: datetime


SQL_LIST: Final = Statement("""
SELECT id, from_book, to_book, amount, batch_id, note, actor, created_at
  FROM transfers
 WHERE account_id = %(account_id)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_latest(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Transfer]:
    """Return an account's latest transfers, newest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    return [Transfer(*row) for row in rows]


SQL_BOOKS: Final = Statement("""
SELECT book, sum(amount) AS balance
  FROM (SELECT to_book AS book, amount FROM transfers
         UNION ALL
        SELECT from_book, -amount FROM transfers) AS side
 GROUP BY book
 ORDER BY book
""")


async def books(connection: Connection) -> Mapping[str, Decimal]:
    """Return the balance of each book; their sum is zero."""
    return {row["book"]: row["balance"] for row in await SQL_BOOKS.rows(connection)}


class EntryKind(StrEnum):
    ALL = "all"
    SENDS = "sends"
    REFUNDS = "refunds"
    TOP_UPS = "top-ups"
    ADJUSTMENTS = "adjustments"
    # Money that is held for scheduled sends, and its release.
    HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A transfer as the account's owner sees it; what was paid is negative."""

    id: int
    kind: EntryKind
    amount: Decimal
    batch_id: BatchId | None
    message_id: MessageId | None
    book: str
    note: str | None
    created_at: datetime
    schedule_id: ScheduleId | None


@dataclass(frozen=True, slots=True)
class Entries:
    """A page of entries; `older` is the id before which the next page begins.

    `stopped_at` tells how far back the search got before it had looked at too many others.
    """

    entries: Sequence[LedgerEntry]
    older: int | None
    stopped_at: datetime | None


SIGNED: Final = "CASE WHEN to_book = 'customer' THEN amount ELSE -amount END"
KIND: Final = """
CASE WHEN message_id IS NOT NULL THEN 'refunds'
     WHEN batch_id IS NOT NULL THEN 'sends'
     WHEN 'adjustment' IN (from_book, to_book) THEN 'adjustments'
     WHEN schedule_id IS NOT NULL THEN 'holds'
     ELSE 'top-ups' END"""
BOOK: Final = "CASE WHEN to_book = 'customer' THEN from_book ELSE to_book END"


# Planned without values, a plan depends on guesses, as that bounds of `id` alone are narrow. So both columns
# of the index are compared and sorted by.
#
# The last row that was looked at is returned even if it does not fit: from there the search goes on.
def _walk(condition: str) -> Statement:
    return Statement(f"""
SELECT id, kind, amount, batch_id, message_id, book, note, created_at, schedule_id, fits,
       place = %(look_max)s AS is_last
  FROM (SELECT account_id, id, {SIGNED} AS amount, batch_id, message_id, note, created_at, schedule_id,
               {BOOK} AS book,
               {KIND} AS kind,
               {KIND} = ANY(%(kinds)s::text[]) AS fits,
               row_number() OVER (ORDER BY account_id DESC, id DESC) AS place
          FROM transfers
         WHERE {condition}
           AND (account_id, id) >= (%(account_id)s, %(since)s)
           AND (account_id, id) < (%(account_id)s, %(before)s)
         ORDER BY account_id DESC, id DESC
         LIMIT %(look_max)s) AS near
 WHERE fits OR place = %(look_max)s
 ORDER BY account_id DESC, id DESC
 LIMIT %(count_max)s
""")  # noqa: S608 - only constants are put in


_WITHOUT_BATCH: Final = {EntryKind.TOP_UPS, EntryKind.ADJUSTMENTS, EntryKind.HOLDS}

SQL_WALK: Final = _walk("true")
SQL_WALK_WITHOUT_BATCH: Final = _walk("batch_id IS NULL")


async def list_entries(
    connection: Connection,
    account_id: AccountId,
    kind: EntryKind,
    count_max: int,
    *,
    since: int = 0,
    before: int = LAST,
    look_max: int = LOOK_MAX,
) -> Entries:
    """Return at most `count_max` of an account's entries of a kind, newest first."""
    assert 0 < count_max < look_max
    statement = SQL_WALK_WITHOUT_BATCH if kind in _WITHOUT_BATCH else SQL_WALK
    rows = await statement.rows(
        connection,
        account_id=account_id,
        kinds=list(EntryKind) if kind is EntryKind.ALL else [kind],
        since=since,
        before=before,
        look_max=look_max,
        # One more than is shown tells whether there are more.
        count_max=count_max + 1,
    )
    found = [_entry(row) for row in rows if row["fits"]]
    if len(found) > count_max:
        return Entries(found[:count_max], found[count_max - 1].id, None)
    if rows and rows[-1]["is_last"]:
        return Entries(found, rows[-1]["id"], rows[-1]["created_at"])
    return Entries(found, None, None)


def _entry(row: asyncpg.Record) -> LedgerEntry:
    return LedgerEntry(row["id"], EntryKind(row["kind"]), *(row[name] for name in LedgerEntry.__slots__[2:]))


SQL_FIND_ENTRY: Final = Statement(f"""
SELECT id, {KIND} AS kind, {SIGNED} AS amount, batch_id, message_id, {BOOK} AS book, note, created_at,
       schedule_id
  FROM transfers
 WHERE id = %(entry_id)s
   AND account_id = %(account_id)s
""")  # noqa: S608 - only constants are put in


async def find_entry(connection: Connection, account_id: AccountId, entry_id: int) -> LedgerEntry | None:
    """Return an account's entry; None for an unknown one and for another account's."""
    row = await SQL_FIND_ENTRY.row(connection, entry_id=entry_id, account_id=account_id)
    return None if row is None else _entry(row)


# Times are in the order of the ids, but no index knows them: the place is found by halving. A probe is the
# account's first transfer from the middle on, and there is one, because the middle is never above the last.
SQL_FIRST_SINCE: Final = Statement("""
WITH RECURSIVE halving (low, high) AS (
    SELECT 0::bigint, coalesce((
               SELECT id + 1
                 FROM transfers
                WHERE (account_id, id) BETWEEN (%(account_id)s, 0) AND (%(account_id)s, %(last)s)
                ORDER BY account_id DESC, id DESC
                LIMIT 1
           ), 0)
     UNION ALL
    SELECT CASE WHEN probe.created_at < %(at)s THEN probe.id + 1 ELSE low END,
           CASE WHEN probe.created_at < %(at)s THEN high ELSE (low + high) / 2 END
      FROM halving
     CROSS JOIN LATERAL (
           SELECT id, created_at
             FROM transfers
            WHERE (account_id, id) >= (%(account_id)s, (low + high) / 2)
            ORDER BY account_id, id
            LIMIT 1
           ) AS probe
     WHERE low < high
)
SELECT low FROM halving WHERE low = high
""")


async def first_since(connection: Connection, account_id: AccountId, at: datetime) -> int:
    """Return the first id that a transfer since this moment may have."""
    return int(await SQL_FIRST_SINCE.value(connection, account_id=account_id, at=at, last=LAST))
