"""Which payments in USDT were seen on the chain, and what became of each?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

import asyncpg

from tumira.core.ids import AccountId, TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.topups.states import SMALLEST
from tumira.topups.usdt.deposit_rules import ChainDeposit, DepositState, depth, in_units, in_usdt


@dataclass(frozen=True, slots=True)
class Deposit:
    """A payment on the chain, whose it is, and how deep it lies by what was read last."""

    facts: ChainDeposit
    account_id: AccountId
    state: DepositState
    top_up_id: TopUpId | None
    seen_at: datetime
    depth: int

    @property
    def amount(self) -> Decimal:
        """Return how much it is, to the last decimal."""
        return in_usdt(self.facts.units)

    @property
    def tx_hash(self) -> str:
        """Return under which name explorers of the chain show it."""
        return self.facts.tx_hash


_SELECT: Final = """
SELECT d.tx_hash, d.log_index, d.block_number, d.block_hash, d.sender, d.address, d.units,
       d.account_id, d.state, d.top_up_id, d.seen_at,
       coalesce((SELECT max(c.block_number) FROM usdt_cursors c WHERE c.chain_id = d.chain_id), 0) AS head
  FROM usdt_deposits d
"""


def _deposit(row: asyncpg.Record) -> Deposit:
    return Deposit(
        facts=ChainDeposit(
            tx_hash=row["tx_hash"],
            log_index=row["log_index"],
            block_number=row["block_number"],
            block_hash=row["block_hash"],
            sender=row["sender"],
            address=row["address"],
            units=int(row["units"]),
        ),
        account_id=AccountId(row["account_id"]),
        state=DepositState(row["state"]),
        top_up_id=None if row["top_up_id"] is None else TopUpId(row["top_up_id"]),
        seen_at=row["seen_at"],
        depth=depth(row["block_number"], row["head"]),
    )


SQL_LIST_SINCE: Final = Statement(
    _SELECT
    + """
 WHERE d.chain_id = %(chain_id)s
   AND d.block_number >= %(first_block)s
   AND d.state <> 'orphaned'
 ORDER BY d.block_number, d.log_index
 LIMIT %(count_max)s
"""
)


async def list_since(
    connection: Connection, chain_id: int, first_block: int, count_max: int
) -> Sequence[Deposit]:
    """Return what is known of the blocks from one on."""
    rows = await SQL_LIST_SINCE.rows(
        connection, chain_id=chain_id, first_block=first_block, count_max=count_max
    )
    return [_deposit(row) for row in rows]


SQL_LIST_SEEN: Final = Statement(
    _SELECT
    + """
 WHERE d.chain_id = %(chain_id)s
   AND d.state = 'seen'
   AND d.block_number > %(after)s
   AND d.block_number <= %(last_block)s
 ORDER BY d.block_number, d.log_index
 LIMIT %(count_max)s
"""
)


async def list_seen(
    connection: Connection, chain_id: int, after: int, last_block: int, count_max: int
) -> Sequence[Deposit]:
    """Return deposits above one block and up to another of which it is not known yet that they stay."""
    rows = await SQL_LIST_SEEN.rows(
        connection, chain_id=chain_id, after=after, last_block=last_block, count_max=count_max
    )
    return [_deposit(row) for row in rows]


SQL_LIST_ENOUGH: Final = Statement("""
SELECT account_id
  FROM usdt_deposits
 WHERE chain_id = %(chain_id)s
   AND state = 'final'
 GROUP BY account_id
HAVING sum(units) >= %(units)s::numeric
 ORDER BY account_id
 LIMIT %(count_max)s
""")


async def list_accounts_with_enough(
    connection: Connection, chain_id: int, count_max: int
) -> Sequence[AccountId]:
    """Return accounts whose final deposits come to the smallest top-up."""
    rows = await SQL_LIST_ENOUGH.rows(
        connection, chain_id=chain_id, units=Decimal(in_units(SMALLEST)), count_max=count_max
    )
    return [AccountId(row["account_id"]) for row in rows]


SQL_HOLD_FINAL: Final = Statement(
    _SELECT
    + """
 WHERE d.account_id = %(account_id)s
   AND d.chain_id = %(chain_id)s
   AND d.state = 'final'
 ORDER BY d.block_number, d.log_index
   FOR NO KEY UPDATE OF d
"""
)


async def hold_final(connection: Connection, chain_id: int, account_id: AccountId) -> Sequence[Deposit]:
    """Lock an account's deposits that can be credited, oldest first."""
    rows = await SQL_HOLD_FINAL.rows(connection, account_id=account_id, chain_id=chain_id)
    return [_deposit(row) for row in rows]


SQL_LIST_OF_ACCOUNT: Final = Statement(
    _SELECT
    + """
 WHERE d.account_id = %(account_id)s
 ORDER BY d.seen_at DESC, d.tx_hash, d.log_index
 LIMIT %(count_max)s
"""
)


async def list_of_account(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Deposit]:
    """Return an account's deposits, newest first, also those whose block was replaced."""
    rows = await SQL_LIST_OF_ACCOUNT.rows(connection, account_id=account_id, count_max=count_max)
    return [_deposit(row) for row in rows]


SQL_LIST_OF_TOP_UP: Final = Statement(
    _SELECT + "WHERE d.top_up_id = %(top_up_id)s ORDER BY d.block_number, d.log_index"
)


async def list_of_top_up(connection: Connection, top_up_id: TopUpId) -> Sequence[Deposit]:
    """Return the deposits that a top-up was credited from; whoever asks has looked whose it is."""
    return [_deposit(row) for row in await SQL_LIST_OF_TOP_UP.rows(connection, top_up_id=top_up_id)]


SQL_ADD_UP: Final = Statement("""
SELECT coalesce(sum(units) FILTER (WHERE state = 'seen'), 0) AS seen,
       coalesce(sum(units) FILTER (WHERE state = 'final'), 0) AS final
  FROM usdt_deposits
 WHERE account_id = %(account_id)s
   AND chain_id = %(chain_id)s
""")


@dataclass(frozen=True, slots=True)
class Outstanding:
    """What an account has paid that is not credited: still coming, and held until it is enough."""

    coming: Decimal
    held: Decimal

    @property
    def missing(self) -> Decimal:
        """Return how much more it takes, beside what is coming, until all of it is credited."""
        return max(Decimal(0), SMALLEST - self.held - self.coming)


async def add_up(connection: Connection, chain_id: int, account_id: AccountId) -> Outstanding:
    """Return what an account has paid on a chain that is not credited yet."""
    row = await SQL_ADD_UP.row(connection, account_id=account_id, chain_id=chain_id)
    assert row is not None
    return Outstanding(coming=in_usdt(int(row["seen"])), held=in_usdt(int(row["final"])))
