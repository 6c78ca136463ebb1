"""Lists of top-ups for the operator, and the transfers and transactions of a top-up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

import asyncpg

from tumira.core.ids import AccountId, TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.topups.reconcile_rules import Moved
from tumira.topups.states import Currency, Method, TopUpState
from tumira.topups.store import LAST


@dataclass(frozen=True, slots=True)
class ListedTopUp:
    id: TopUpId
    account_id: AccountId
    method: Method
    provider: str
    state: TopUpState
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


_COLUMNS: Final = ", ".join(ListedTopUp.__slots__[:-2])


# Only one index has this order, so the plan does not depend on statistics.
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
# Not `state = …`: PostgreSQL drops a constant column from the order, and then a scan of the primary key that
# filters by state fits as well. It takes that scan as soon as it has statistics.
SQL_OF_STATE: Final = _walk(
    "state >= %(state)s AND (state, id) < (%(state)s, %(before)s)", "state DESC, id DESC"
)
# As in the index, and as `topups/settle` writes it.
SQL_PAID_LATE: Final = _walk(
    "state IN ('failed', 'expired') AND problem LIKE '%was paid after it had%' AND id < %(before)s", "id DESC"
)


async def list_page(
    connection: Connection, part: str, count_max: int, before: TopUpId = LAST
) -> tuple[Sequence[ListedTopUp], bool]:
    """Return top-ups, newest first, and whether there are older ones.

    They are `all`, those in one state, or as `late` those that were paid after they had ended.
    """
    page = {"before": before, "count_max": count_max + 1}
    if part == "all":
        rows = await SQL_ALL.rows(connection, **page)
    elif part == "late":
        rows = await SQL_PAID_LATE.rows(connection, **page)
    else:
        rows = await SQL_OF_STATE.rows(connection, state=TopUpState(part), **page)
    return [_listed(row) for row in rows[:count_max]], len(rows) > count_max


def _listed(row: asyncpg.Record) -> ListedTopUp:
    values = dict(row)
    values["method"] = Method(values["method"])
    values["state"] = TopUpState(values["state"])
    values["currency"] = Currency(values["currency"])
    return ListedTopUp(**values)


@dataclass(frozen=True, slots=True)
class Movement:
    """A transfer of a top-up: to the customer, or with a negative amount back."""

    # Of the transfer; also the number of its receipt.
    id: int
    amount: Decimal
    created_at: datetime


SQL_MOVEMENTS: Final = Statement("""
SELECT id, CASE WHEN to_book = 'customer' THEN amount ELSE -amount END AS amount, created_at
  FROM transfers
 WHERE top_up_id = %(top_up_id)s
 ORDER BY id
 LIMIT 2
""")


async def list_movements(connection: Connection, top_up_id: TopUpId) -> Sequence[Movement]:
    """Return the transfers of a top-up: one to the customer, and at most one back."""
    return [Movement(*row) for row in await SQL_MOVEMENTS.rows(connection, top_up_id=top_up_id)]


SQL_LIST_BY_TRANSFER: Final = Statement("""
SELECT transfers.id AS transfer_id, top_ups.id AS top_up_id, top_ups.provider
  FROM transfers
  JOIN top_ups ON top_ups.id = transfers.top_up_id
 WHERE transfers.account_id = %(account_id)s
   AND transfers.id = ANY(%(transfer_ids)s::bigint[])
""")


@dataclass(frozen=True, slots=True)
class LedgerTopUp:
    """The top-up of a ledger entry, and its provider."""

    id: TopUpId
    provider: str


async def list_by_transfer(
    connection: Connection, account_id: AccountId, transfer_ids: Sequence[int]
) -> Mapping[int, LedgerTopUp]:
    """Return the top-ups of an account's ledger entries, by transfer."""
    if not transfer_ids:
        return {}
    rows = await SQL_LIST_BY_TRANSFER.rows(connection, account_id=account_id, transfer_ids=list(transfer_ids))
    return {row["transfer_id"]: LedgerTopUp(TopUpId(row["top_up_id"]), row["provider"]) for row in rows}


SQL_LIST_TRANSACTIONS: Final = Statement("""
SELECT DISTINCT tx_hash
  FROM usdt_deposits
 WHERE top_up_id = %(top_up_id)s
   AND account_id = %(account_id)s
 ORDER BY tx_hash
 LIMIT %(count_max)s
""")


async def list_transactions(
    connection: Connection, account_id: AccountId, top_up_id: TopUpId, count_max: int
) -> Sequence[str]:
    """Return the chain transactions that an account's top-up was credited for."""
    rows = await SQL_LIST_TRANSACTIONS.rows(
        connection, account_id=account_id, top_up_id=top_up_id, count_max=count_max
    )
    return [row["tx_hash"] for row in rows]


SQL_MOVED: Final = Statement("""
SELECT top_up_id,
       coalesce(sum(amount) FILTER (WHERE to_book = 'customer'), 0) AS came,
       coalesce(sum(amount) FILTER (WHERE from_book = 'customer'), 0) AS went
  FROM transfers
 WHERE top_up_id = ANY(%(top_up_ids)s::uuid[])
 GROUP BY top_up_id
""")


async def list_moved(connection: Connection, top_up_ids: Sequence[TopUpId]) -> Mapping[TopUpId, Moved]:
    """Return what the transfers of each top-up add up to; top-ups without transfers are left out."""
    rows = await SQL_MOVED.rows(connection, top_up_ids=top_up_ids)
    return {row["top_up_id"]: Moved(row["came"], row["went"]) for row in rows}
