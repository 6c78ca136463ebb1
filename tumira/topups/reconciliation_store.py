"""What did we write down about the money that came in, to be compared with what others say?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId, TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.topups.reconciliation import Moved, OurDeposit

SQL_MOVED: Final = Statement("""
SELECT top_up_id,
       coalesce(sum(amount) FILTER (WHERE to_book = 'customer'), 0) AS came,
       coalesce(sum(amount) FILTER (WHERE from_book = 'customer'), 0) AS went
  FROM transfers
 WHERE top_up_id = ANY(%(top_up_ids)s::uuid[])
 GROUP BY top_up_id
""")


async def list_moved(connection: Connection, top_up_ids: Sequence[TopUpId]) -> Mapping[TopUpId, Moved]:
    """Return what the transfers of top-ups came to; those without any are left out."""
    rows = await SQL_MOVED.rows(connection, top_up_ids=top_up_ids)
    return {row["top_up_id"]: Moved(row["came"], row["went"]) for row in rows}


SQL_VOUCHERS: Final = Statement("""
SELECT top_up_id, amount
  FROM vouchers
 WHERE top_up_id = ANY(%(top_up_ids)s::uuid[])
""")


async def list_voucher_amounts(
    connection: Connection, top_up_ids: Sequence[TopUpId]
) -> Mapping[TopUpId, Decimal]:
    """Return how much the vouchers of ours were for that top-ups used."""
    rows = await SQL_VOUCHERS.rows(connection, top_up_ids=top_up_ids)
    return {row["top_up_id"]: row["amount"] for row in rows}


SQL_UNITS: Final = Statement("""
SELECT top_up_id, sum(units) AS units
  FROM usdt_deposits
 WHERE top_up_id = ANY(%(top_up_ids)s::uuid[])
 GROUP BY top_up_id
""")


async def list_units(connection: Connection, top_up_ids: Sequence[TopUpId]) -> Mapping[TopUpId, int]:
    """Return what the deposits come to that top-ups credited, in the token's smallest unit."""
    rows = await SQL_UNITS.rows(connection, top_up_ids=top_up_ids)
    return {row["top_up_id"]: int(row["units"]) for row in rows}


SQL_ADDRESSES: Final = Statement("""
SELECT address, account_id
  FROM usdt_addresses
 WHERE address > %(after)s
 ORDER BY address
 LIMIT %(count_max)s
""")


async def list_addresses(connection: Connection, after: str, count_max: int) -> Mapping[str, AccountId]:
    """Return addresses above one, in their order, and whose each is."""
    rows = await SQL_ADDRESSES.rows(connection, after=after, count_max=count_max)
    return {row["address"]: row["account_id"] for row in rows}


SQL_DEPOSITS: Final = Statement("""
SELECT tx_hash, log_index, address, units, account_id, state, top_up_id
  FROM usdt_deposits
 WHERE chain_id = %(chain_id)s
   AND block_number BETWEEN %(first_block)s AND %(last_block)s
""")


async def list_deposits(
    connection: Connection, chain_id: int, first_block: int, last_block: int
) -> Sequence[OurDeposit]:
    """Return the deposits of some blocks, as we wrote them down."""
    rows = await SQL_DEPOSITS.rows(
        connection,
        chain_id=chain_id,
        first_block=first_block,
        last_block=last_block,
    )
    return [
        OurDeposit(
            row["tx_hash"],
            row["log_index"],
            row["address"],
            int(row["units"]),
            row["account_id"],
            row["state"] == "orphaned",
            row["top_up_id"],
        )
        for row in rows
    ]


SQL_DEPOSITS_OF: Final = Statement("""
SELECT tx_hash, log_index, address, sender, units, block_number, state, seen_at
  FROM usdt_deposits
 WHERE top_up_id = %(top_up_id)s
 ORDER BY block_number, log_index
 LIMIT %(count_max)s
""")


@dataclass(frozen=True, slots=True)
class ShownDeposit:
    """A deposit that a top-up credited."""

    tx_hash: str
    log_index: int
    address: str
    sender: str
    units: int
    block_number: int
    state: str
    seen_at: datetime


async def list_deposits_of(connection: Connection, top_up_id: UUID, count_max: int) -> Sequence[ShownDeposit]:
    """Return the deposits that a top-up credited."""
    rows = await SQL_DEPOSITS_OF.rows(connection, top_up_id=top_up_id, count_max=count_max)
    return [ShownDeposit(**{**dict(row), "units": int(row["units"])}) for row in rows]
