"""Does everything add up? Each check is a query for the rows that break a promise."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from tumira.operations.check import Check
from tumira.operations.event_checks import EVENT_CHECKS
from tumira.operations.message_checks import (
    ALL_KEPT,
    HAND_OVER_CHECK,
    IDEMPOTENCY_CHECK,
    SENDING_CHECK,
    WAITING_CHECKS,
    settled_checks,
)
from tumira.operations.top_up_checks import TOP_UP_CHECKS
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

ROWS_SHOWN_MAX: Final = 20
AUDIT_TIMEOUT_S: Final = 6 * 3600
CLOSE_S: Final = 5

CHECKS: Final = (
    Check(
        "balance",
        "Every balance is the sum of the account's transfers.",
        Statement("""
SELECT a.id AS account_id, a.balance, coalesce(t.total, 0) AS transfers
  FROM accounts a
  LEFT JOIN (
       SELECT account_id, sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END) AS total
         FROM transfers
        GROUP BY account_id
       ) t ON t.account_id = a.id
 WHERE a.balance <> coalesce(t.total, 0)
    OR a.balance < 0
"""),
    ),
    *settled_checks(ALL_KEPT),
    *WAITING_CHECKS,
    SENDING_CHECK,
    HAND_OVER_CHECK,
    *EVENT_CHECKS,
    IDEMPOTENCY_CHECK,
    *TOP_UP_CHECKS,
)


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: Check
    rows: Sequence[Mapping[str, Any]]


# Held for as long as the connection lives, because one moment of the database is not one moment of its weeks:
# of a week that is dropped meanwhile, an older snapshot would see the batches and miss the messages.
SQL_HOLD_WEEKS: Final = Statement("""
SELECT pg_advisory_lock_shared(hashtext('tumira retention'), hashtext(kind)) FROM kept_from ORDER BY kind
""")


@asynccontextmanager
async def one_moment(connection: Connection) -> AsyncIterator[None]:
    """Have a connection of the caller's own see one moment of the database, however long the checks take."""
    # Not in the transaction, which would see the moment before the wait.
    await connection.fetch(SQL_HOLD_WEEKS.text, timeout=AUDIT_TIMEOUT_S)
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        yield


@asynccontextmanager
async def snapshot(database: Database) -> AsyncIterator[Connection]:
    """Lend a connection that sees one moment of the database, and is closed afterwards."""
    connection = await database.connect()
    try:
        async with one_moment(connection):
            yield connection
        await connection.close(timeout=CLOSE_S)
    finally:
        # Also while it is still busy with a check that nobody waits for any more.
        connection.terminate()


async def run(connection: Connection, check: Check) -> Finding:
    """Carry out one check; of the rows that break it the first few are enough."""
    first = f"SELECT * FROM ({check.statement.text}) AS broken LIMIT {ROWS_SHOWN_MAX}"  # noqa: S608 - our own text
    rows = await connection.fetch(first, timeout=AUDIT_TIMEOUT_S)
    return Finding(check, [dict(row) for row in rows])
