"""Money of all accounts by day: transfers added up by books.

Transfers have no index by time, and there are as many as batches and refunds. A task of the worker adds them
up in the order of their ids, and a reader adds the newest ones, which the task has not reached, in the same
statement: so the totals are those of the ledger at that moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final

from tumira.core.days import LOCAL_TIME
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

TRANSFERS_PER_TURN: Final = 20_000
# So many new transfers are added up while a page is made. More are there only while the task catches up.
TAIL_MAX: Final = 100_000
DAYS_MAX: Final = 366

CUSTOMER: Final = "customer"
REVENUE: Final = "revenue"
ADJUSTMENT: Final = "adjustment"
HELD: Final = "held"
TOP_UP: Final = "topup:"

_DAY: Final = "(created_at AT TIME ZONE 'UTC' + %(local_time)s::interval)::date"

# A transaction gets its number before it inserts a transfer, because it locks the account first. So those
# that may still commit a transfer below `ready_id` have numbers below `ready_xid`.
SQL_ADD_UP: Final = Statement(f"""
WITH place AS (
    SELECT transfer_id, ready_id
      FROM money_cursor
     WHERE ready_xid <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint
), near AS MATERIALIZED (
    SELECT id, {_DAY} AS day, from_book, to_book, amount
      FROM transfers
     WHERE id > (SELECT transfer_id FROM place)
       AND id <= (SELECT ready_id FROM place)
     ORDER BY id
     LIMIT %(transfers_max)s
), added AS (
    INSERT INTO money_days (day, from_book, to_book, transfers, amount)
    SELECT day, from_book, to_book, count(*), sum(amount)
      FROM near
     GROUP BY day, from_book, to_book
        ON CONFLICT (day, from_book, to_book) DO UPDATE
       SET transfers = money_days.transfers + excluded.transfers,
           amount = money_days.amount + excluded.amount
), moved AS (
    UPDATE money_cursor
       SET transfer_id = CASE
               WHEN (SELECT count(*) FROM near) < %(transfers_max)s THEN place.ready_id
               ELSE (SELECT max(id) FROM near)
           END
      FROM place
)
SELECT count(*) FROM near
""")  # noqa: S608 - only constants are put in

# After a restore from a dump the numbers of transactions begin anew, and all of its transfers are committed.
SQL_LOOK_AHEAD: Final = Statement("""
UPDATE money_cursor
   SET ready_id = greatest(ready_id, coalesce((SELECT max(id) FROM transfers), 0)),
       ready_xid = pg_snapshot_xmax(pg_current_snapshot())::text::bigint
 WHERE transfer_id >= ready_id
    OR ready_xid > pg_snapshot_xmax(pg_current_snapshot())::text::bigint
""")


async def add_up(connection: Connection, transfers_max: int = TRANSFERS_PER_TURN) -> int:
    """Add up transfers that have not been, and return how many."""
    count = await SQL_ADD_UP.value(connection, local_time=LOCAL_TIME, transfers_max=transfers_max)
    await SQL_LOOK_AHEAD.rows(connection)
    return int(count)


@dataclass(frozen=True, slots=True)
class DayTotal:
    """What went from one book to another on a day; `day` is None for all days before the first."""

    day: date | None
    from_book: str
    to_book: str
    transfers: int
    amount: Decimal


@dataclass(frozen=True, slots=True)
class MoneyTotals:
    totals: Sequence[DayTotal]
    # False while the task has not reached transfers of older days.
    is_complete: bool


SQL_READ: Final = Statement(f"""
WITH tail AS MATERIALIZED (
    SELECT {_DAY} AS day, from_book, to_book, amount
      FROM transfers
     WHERE id > (SELECT transfer_id FROM money_cursor)
     ORDER BY id
     LIMIT %(tail_max)s
), both_parts AS (
    SELECT day, from_book, to_book, transfers, amount FROM money_days WHERE day <= %(last_day)s
     UNION ALL
    SELECT day, from_book, to_book, count(*), sum(amount)
      FROM tail
     WHERE day <= %(last_day)s
     GROUP BY day, from_book, to_book
)
SELECT CASE WHEN day >= %(first_day)s THEN day END AS day, from_book, to_book,
       sum(transfers)::bigint AS transfers, sum(amount) AS amount,
       (SELECT count(*) FROM tail) AS tail
  FROM both_parts
 GROUP BY 1, from_book, to_book
 ORDER BY 1 NULLS FIRST, from_book, to_book
""")  # noqa: S608 - only constants are put in


async def read(
    connection: Connection, first_day: date, last_day: date, tail_max: int = TAIL_MAX
) -> MoneyTotals:
    """Return what was moved between books on each of these days, and on all days before them."""
    assert (last_day - first_day).days < DAYS_MAX
    rows = await SQL_READ.rows(
        connection, local_time=LOCAL_TIME, first_day=first_day, last_day=last_day, tail_max=tail_max
    )
    totals = [DayTotal(*row[:-1]) for row in rows]
    return MoneyTotals(totals, is_complete=not rows or rows[0]["tail"] < tail_max)
