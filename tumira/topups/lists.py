"""Which top-ups does an operator look at? First those in doubt, taken back, or paid too late; then all."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

import asyncpg

from tumira.core.ids import AccountId, TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.topups.states import Currency, Method, State
from tumira.topups.store import LAST


@dataclass(frozen=True, slots=True)
class Listed:
    """A top-up in a list, and whose it is."""

    id: TopUpId
    account_id: AccountId
    method: Method
    provider: str
    state: State
    currency: Currency
    asked: Decimal | None
    paid: Decimal | None
    amount: Decimal | None
    provider_reference: str | None
    problem: str | None
    reason: str | None
    owed: Decimal
    due_at: datetime | None
    created_at: datetime
    business: str
    is_suspended: bool


_COLUMNS: Final = ", ".join(Listed.__slots__[:-2])


# Which index leads the way does not depend on what PostgreSQL believes of the table: only one has the order.
def _walk(condition: str, order: str) -> Statement:
    return Statement(f"""
SELECT top_up.*, account.business, account.suspended_at IS NOT NULL AS is_suspended
  FROM (SELECT {_COLUMNS}
          FROM top_ups
         WHERE {condition}
         ORDER BY {order}
         LIMIT %(count_max)s) AS top_up
 CROSS JOIN LATERAL (
       SELECT business, suspended_at
         FROM accounts
        WHERE id = top_up.account_id
       OFFSET 0
       ) AS account
 ORDER BY top_up.id DESC
""")  # noqa: S608 - only constants are put in


SQL_ALL: Final = _walk("id < %(before)s", "id DESC")
# Not `state = …`: a column that is known to be equal counts for nothing in an order, and a walk down all ids
# that drops those of other states would fit as well. PostgreSQL takes it as soon as it has statistics.
SQL_OF_STATE: Final = _walk(
    "state >= %(state)s AND (state, id) < (%(state)s, %(before)s)", "state DESC, id DESC"
)
# As the index says it, and as `topups/settle` writes it.
SQL_PAID_LATE: Final = _walk(
    "state IN ('failed', 'expired') AND problem LIKE '%was paid after it had%' AND id < %(before)s", "id DESC"
)


async def list_all(
    connection: Connection, count_max: int, before: TopUpId = LAST
) -> tuple[Sequence[Listed], bool]:
    """Return everybody's top-ups, newest first, and whether there are older ones."""
    rows = await SQL_ALL.rows(connection, before=before, count_max=count_max + 1)
    return _listed(rows, count_max)


async def list_of_state(
    connection: Connection, state: State, count_max: int, before: TopUpId = LAST
) -> tuple[Sequence[Listed], bool]:
    """Return top-ups in one state, newest first, and whether there are older ones."""
    rows = await SQL_OF_STATE.rows(connection, state=state, before=before, count_max=count_max + 1)
    return _listed(rows, count_max)


async def list_paid_late(
    connection: Connection, count_max: int, before: TopUpId = LAST
) -> tuple[Sequence[Listed], bool]:
    """Return top-ups that were paid after they had ended, newest first, and whether there are older ones."""
    rows = await SQL_PAID_LATE.rows(connection, before=before, count_max=count_max + 1)
    return _listed(rows, count_max)


def _listed(rows: Sequence[asyncpg.Record], count_max: int) -> tuple[Sequence[Listed], bool]:
    return [_one(row) for row in rows[:count_max]], len(rows) > count_max


def _one(row: asyncpg.Record) -> Listed:
    values = dict(row)
    values["method"] = Method(values["method"])
    values["state"] = State(values["state"])
    values["currency"] = Currency(values["currency"])
    return Listed(**values)


@dataclass(frozen=True, slots=True)
class Movement:
    """What a top-up moved: to the customer, or with a negative amount back."""

    amount: Decimal
    created_at: datetime


SQL_MOVEMENTS: Final = Statement("""
SELECT CASE WHEN to_book = 'customer' THEN amount ELSE -amount END AS amount, created_at
  FROM transfers
 WHERE top_up_id = %(top_up_id)s
 ORDER BY id
 LIMIT 2
""")


async def list_movements(connection: Connection, top_up_id: TopUpId) -> Sequence[Movement]:
    """Return the transfers of a top-up: one to the customer, and at most one back."""
    return [Movement(*row) for row in await SQL_MOVEMENTS.rows(connection, top_up_id=top_up_id)]
