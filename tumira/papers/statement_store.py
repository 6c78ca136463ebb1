"""Rows of monthly statements, and the account's movements that they are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final

import asyncpg
import msgspec

from tumira.accounts.ledger import BOOK, KIND, LAST, SIGNED, EntryKind, LedgerEntry
from tumira.core.days import LOCAL_TIME
from tumira.core.ids import AccountId
from tumira.papers.content import DayMovements, StatementContent
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

_decode: Final = msgspec.json.Decoder(StatementContent).decode


@dataclass(frozen=True, slots=True)
class MonthStatement:
    """An account's month; `closed_at` is None for a month that has not ended and is not stored."""

    account_id: AccountId
    # Its first day, UTC+02:00.
    month: date
    # The account's transfers from `first_id` to below `next_id`.
    first_id: int
    next_id: int
    movements: int
    opening: Decimal
    closing: Decimal
    content: StatementContent
    closed_at: datetime | None = None


_COLUMNS: Final = ", ".join(MonthStatement.__slots__)


def _select(rest: str) -> Statement:
    return Statement(f"SELECT {_COLUMNS} FROM statements {rest}")  # noqa: S608 - only constants are put in


def _statement(row: asyncpg.Record) -> MonthStatement:
    return MonthStatement(**{**row, "content": _decode(row["content"])})


SQL_FIND: Final = _select("WHERE account_id = %(account_id)s AND month = %(month)s")


async def find(connection: Connection, account_id: AccountId, month: date) -> MonthStatement | None:
    row = await SQL_FIND.row(connection, account_id=account_id, month=month)
    return None if row is None else _statement(row)


SQL_FIND_LAST: Final = _select("""
 WHERE account_id = %(account_id)s
   AND month < %(before)s
 ORDER BY month DESC
 LIMIT 1
""")


async def find_last(connection: Connection, account_id: AccountId, before: date) -> MonthStatement | None:
    """Return the last stored statement before a month."""
    row = await SQL_FIND_LAST.row(connection, account_id=account_id, before=before)
    return None if row is None else _statement(row)


# Of two nodes that store the same month, the first one wins; both have the same figures.
SQL_INSERT: Final = Statement("""
INSERT INTO statements (account_id, month, first_id, next_id, movements, opening, closing, content)
VALUES (%(account_id)s, %(month)s, %(first_id)s, %(next_id)s, %(movements)s, %(opening)s, %(closing)s,
        %(content)s)
    ON CONFLICT DO NOTHING
""")


async def insert(connection: Connection, statement: MonthStatement) -> None:
    await SQL_INSERT.rows(
        connection,
        account_id=statement.account_id,
        month=statement.month,
        first_id=statement.first_id,
        next_id=statement.next_id,
        movements=statement.movements,
        opening=statement.opening,
        closing=statement.closing,
        content=msgspec.json.encode(statement.content).decode(),
    )


# Both columns of the index are compared and sorted by, as in accounts/ledger.py.
_STRETCH: Final = f"""
SELECT account_id, id, {KIND} AS kind, {SIGNED} AS amount, batch_id, message_id, {BOOK} AS book, note,
       created_at, schedule_id
  FROM transfers
 WHERE (account_id, id) >= (%(account_id)s, %(first_id)s)
   AND (account_id, id) < (%(account_id)s, %(next_id)s)
 ORDER BY account_id, id
 LIMIT %(count_max)s
"""  # noqa: S608 - only constants are put in

SQL_DAYS: Final = Statement(f"""
SELECT (created_at AT TIME ZONE 'UTC' + %(local_time)s::interval)::date AS day, kind, count(*) AS count,
       coalesce(sum(amount) FILTER (WHERE amount > 0), 0) AS came,
       coalesce(-sum(amount) FILTER (WHERE amount < 0), 0) AS went
  FROM ({_STRETCH}) AS near
 GROUP BY day, kind
 ORDER BY day, kind
""")  # noqa: S608 - only constants are put in


async def list_days(
    connection: Connection, account_id: AccountId, first_id: int, next_id: int
) -> Sequence[DayMovements]:
    """Return the movements by day and kind."""
    rows = await SQL_DAYS.rows(
        connection,
        account_id=account_id,
        first_id=first_id,
        next_id=next_id,
        count_max=LAST,
        local_time=LOCAL_TIME,
    )
    return [DayMovements(*row) for row in rows]


SQL_LAST_BEFORE: Final = Statement("""
SELECT id
  FROM transfers
 WHERE (account_id, id) >= (%(account_id)s, 0)
   AND (account_id, id) < (%(account_id)s, %(next_id)s)
 ORDER BY account_id DESC, id DESC
 LIMIT 1
""")


async def find_last_before(connection: Connection, account_id: AccountId, next_id: int) -> int | None:
    """Return the id of an account's last transfer below another."""
    found: int | None = await SQL_LAST_BEFORE.value(connection, account_id=account_id, next_id=next_id)
    return found


SQL_MOVEMENTS: Final = Statement(_STRETCH)


async def list_movements(
    connection: Connection, account_id: AccountId, first_id: int, next_id: int, count_max: int
) -> Sequence[LedgerEntry]:
    """Return at most `count_max` movements, oldest first."""
    rows = await SQL_MOVEMENTS.rows(
        connection, account_id=account_id, first_id=first_id, next_id=next_id, count_max=count_max
    )
    names = LedgerEntry.__slots__[2:]
    return [LedgerEntry(row["id"], EntryKind(row["kind"]), *(row[name] for name in names)) for row in rows]
