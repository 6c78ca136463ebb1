"""Which entries of the ledger and which transactions on the chain belong to a top-up?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tumira.core.ids import AccountId, TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

SQL_LIST_NAMED: Final = Statement("""
SELECT transfers.id AS transfer_id, top_ups.id AS top_up_id, top_ups.provider
  FROM transfers
  JOIN top_ups ON top_ups.id = transfers.top_up_id
 WHERE transfers.account_id = %(account_id)s
   AND transfers.id = ANY(%(transfer_ids)s::bigint[])
""")


@dataclass(frozen=True, slots=True)
class Named:
    """The top-up that an entry is for, and who took the money."""

    id: TopUpId
    provider: str


async def list_named(
    connection: Connection, account_id: AccountId, transfer_ids: Sequence[int]
) -> Mapping[int, Named]:
    """Return the top-ups of an account's entries, by the entry."""
    if not transfer_ids:
        return {}
    rows = await SQL_LIST_NAMED.rows(connection, account_id=account_id, transfer_ids=list(transfer_ids))
    return {row["transfer_id"]: Named(TopUpId(row["top_up_id"]), row["provider"]) for row in rows}


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
    """Return the transactions on the chain that a top-up of an account was credited for."""
    rows = await SQL_LIST_TRANSACTIONS.rows(
        connection, account_id=account_id, top_up_id=top_up_id, count_max=count_max
    )
    return [row["tx_hash"] for row in rows]
