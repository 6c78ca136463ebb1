"""USDT deposits seen on the chain: seen, final, credited, or orphaned with their block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import asyncpg

from tumira.core.ids import AccountId, TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.topups.states import TOP_UP_MIN
from tumira.topups.usdt.deposit_rules import ChainDeposit, Deposit, DepositState, depth, to_units, to_usdt


def _select(rest: str) -> Statement:
    return Statement(f"""
SELECT d.tx_hash, d.log_index, d.block_number, d.block_hash, d.sender, d.address, d.units,
       d.account_id, d.state, d.top_up_id, d.seen_at,
       coalesce((SELECT max(c.block_number) FROM usdt_cursors c WHERE c.chain_id = d.chain_id), 0) AS head
  FROM usdt_deposits d
{rest}""")  # noqa: S608 - only constants are put in


def _facts(row: asyncpg.Record) -> ChainDeposit:
    values = {name: row[name] for name in ChainDeposit.__slots__}
    return ChainDeposit(**(values | {"units": int(row["units"])}))


async def _list(statement: Statement, connection: Connection, **parameters: Any) -> Sequence[Deposit]:
    return [
        Deposit(
            _facts(row),
            account_id=AccountId(row["account_id"]),
            state=DepositState(row["state"]),
            top_up_id=row["top_up_id"],
            seen_at=row["seen_at"],
            depth=depth(row["block_number"], row["head"]),
        )
        for row in await statement.rows(connection, **parameters)
    ]


SQL_LIST_SINCE: Final = _select("""
 WHERE d.chain_id = %(chain_id)s
   AND d.block_number >= %(first_block)s
   AND d.state <> 'orphaned'
 ORDER BY d.block_number, d.log_index
 LIMIT %(count_max)s
""")


async def list_since(
    connection: Connection, chain_id: int, first_block: int, count_max: int
) -> Sequence[Deposit]:
    return await _list(
        SQL_LIST_SINCE, connection, chain_id=chain_id, first_block=first_block, count_max=count_max
    )


SQL_LIST_SEEN: Final = _select("""
 WHERE d.chain_id = %(chain_id)s
   AND d.state = 'seen'
   AND d.block_number > %(after)s
   AND d.block_number <= %(last_block)s
 ORDER BY d.block_number, d.log_index
 LIMIT %(count_max)s
""")


async def list_seen(
    connection: Connection, chain_id: int, after: int, last_block: int, count_max: int
) -> Sequence[Deposit]:
    """Return deposits in a block range that are not final yet."""
    parameters = {"chain_id": chain_id, "after": after, "last_block": last_block, "count_max": count_max}
    return await _list(SQL_LIST_SEEN, connection, **parameters)


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
    """Return accounts whose final deposits reach the smallest top-up."""
    rows = await SQL_LIST_ENOUGH.rows(
        connection, chain_id=chain_id, units=Decimal(to_units(TOP_UP_MIN)), count_max=count_max
    )
    return [AccountId(row["account_id"]) for row in rows]


SQL_LOCK_FINAL: Final = _select("""
 WHERE d.account_id = %(account_id)s
   AND d.chain_id = %(chain_id)s
   AND d.state = 'final'
 ORDER BY d.block_number, d.log_index
   FOR NO KEY UPDATE OF d
""")


async def lock_final(connection: Connection, chain_id: int, account_id: AccountId) -> Sequence[Deposit]:
    return await _list(SQL_LOCK_FINAL, connection, account_id=account_id, chain_id=chain_id)


SQL_LIST_OF_ACCOUNT: Final = _select("""
 WHERE d.account_id = %(account_id)s
 ORDER BY d.seen_at DESC, d.tx_hash, d.log_index
 LIMIT %(count_max)s
""")


async def list_of_account(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Deposit]:
    """Return an account's deposits, newest first, orphaned ones included."""
    return await _list(SQL_LIST_OF_ACCOUNT, connection, account_id=account_id, count_max=count_max)


SQL_LIST_OF_TOP_UP: Final = _select("""
 WHERE d.top_up_id = %(top_up_id)s
 ORDER BY d.block_number, d.log_index
 LIMIT %(count_max)s
""")


async def list_of_top_up(connection: Connection, top_up_id: TopUpId, count_max: int) -> Sequence[Deposit]:
    """Return the deposits that a top-up was credited from; the caller has checked whose top-up it is."""
    return await _list(SQL_LIST_OF_TOP_UP, connection, top_up_id=top_up_id, count_max=count_max)


SQL_LIST_BETWEEN: Final = _select("""
 WHERE d.chain_id = %(chain_id)s
   AND d.block_number BETWEEN %(first_block)s AND %(last_block)s
""")


async def list_between(
    connection: Connection, chain_id: int, first_block: int, last_block: int
) -> Sequence[Deposit]:
    return await _list(
        SQL_LIST_BETWEEN, connection, chain_id=chain_id, first_block=first_block, last_block=last_block
    )


SQL_ADD_UP: Final = Statement("""
SELECT coalesce(sum(units) FILTER (WHERE state = 'seen'), 0) AS seen,
       coalesce(sum(units) FILTER (WHERE state = 'final'), 0) AS final
  FROM usdt_deposits
 WHERE account_id = %(account_id)s
   AND chain_id = %(chain_id)s
""")


@dataclass(frozen=True, slots=True)
class Outstanding:
    """What an account has paid that is not credited: unconfirmed, and held until it is enough."""

    coming: Decimal
    held: Decimal

    @property
    def missing(self) -> Decimal:
        """Return how much more the account has to pay until all of it is credited."""
        return max(Decimal(0), TOP_UP_MIN - self.held - self.coming)


async def add_up(connection: Connection, chain_id: int, account_id: AccountId) -> Outstanding:
    row = await SQL_ADD_UP.row(connection, account_id=account_id, chain_id=chain_id)
    assert row is not None
    return Outstanding(coming=to_usdt(int(row["seen"])), held=to_usdt(int(row["final"])))


def _columns(deposits: Sequence[ChainDeposit]) -> dict[str, list[Any]]:
    return {
        "tx_hashes": [one.tx_hash for one in deposits],
        "log_indexes": [one.log_index for one in deposits],
        "block_hashes": [one.block_hash for one in deposits],
    }


# Known deposits stay unchanged. A payment that comes back in another block is seen again with all its new
# columns, because log numbers belong to the block. Where its transaction was credited from another block,
# it is not recorded at all: that would credit it again.
SQL_RECORD: Final = Statement("""
INSERT INTO usdt_deposits (chain_id, tx_hash, log_index, account_id, address, sender, units, block_number,
                           block_hash)
SELECT %(chain_id)s, n.tx_hash, n.log_index, a.account_id, a.address, n.sender, n.units, n.block_number,
       n.block_hash
  FROM unnest(%(tx_hashes)s::text[], %(log_indexes)s::integer[], %(block_hashes)s::text[],
              %(block_numbers)s::bigint[], %(addresses)s::text[], %(senders)s::text[], %(units)s::numeric[])
       AS n (tx_hash, log_index, block_hash, block_number, address, sender, units)
  JOIN usdt_addresses a ON a.address = n.address
 WHERE NOT EXISTS (
       SELECT
         FROM usdt_deposits c
        WHERE c.chain_id = %(chain_id)s
          AND c.tx_hash = n.tx_hash
          AND c.state = 'credited'
          AND c.block_hash <> n.block_hash
       )
    ON CONFLICT (chain_id, tx_hash, log_index) DO UPDATE
   SET account_id = excluded.account_id,
       address = excluded.address,
       sender = excluded.sender,
       units = excluded.units,
       block_number = excluded.block_number,
       block_hash = excluded.block_hash,
       state = 'seen'
 WHERE usdt_deposits.state <> 'credited'
   AND (usdt_deposits.state = 'orphaned'
        OR usdt_deposits.block_hash <> excluded.block_hash
        OR usdt_deposits.units <> excluded.units
        OR usdt_deposits.address <> excluded.address)
RETURNING tx_hash, log_index
""")


async def record(
    connection: Connection, chain_id: int, deposits: Sequence[ChainDeposit]
) -> Sequence[tuple[str, int]]:
    """Insert deposits as seen, and return which of them are new."""
    # Where two providers report different deposits under one key, none is ever confirmed; the first is shown.
    by_name = {(one.tx_hash, one.log_index): one for one in reversed(deposits)}
    named = [by_name[name] for name in sorted(by_name)]
    rows = await SQL_RECORD.rows(
        connection,
        chain_id=chain_id,
        block_numbers=[one.block_number for one in named],
        addresses=[one.address for one in named],
        senders=[one.sender for one in named],
        units=[Decimal(one.units) for one in named],
        **_columns(named),
    )
    return [(row["tx_hash"], row["log_index"]) for row in rows]


SQL_LIST_CREDITED_ELSEWHERE: Final = Statement("""
SELECT DISTINCT c.tx_hash
  FROM unnest(%(tx_hashes)s::text[], %(block_hashes)s::text[]) AS n (tx_hash, block_hash)
  JOIN usdt_deposits c
    ON c.chain_id = %(chain_id)s
   AND c.tx_hash = n.tx_hash
   AND c.state = 'credited'
   AND c.block_hash <> n.block_hash
""")


async def list_credited_elsewhere(
    connection: Connection, chain_id: int, deposits: Sequence[ChainDeposit]
) -> Sequence[str]:
    """Return the transactions that were credited from another block than they are in now."""
    rows = await SQL_LIST_CREDITED_ELSEWHERE.rows(
        connection,
        chain_id=chain_id,
        tx_hashes=[one.tx_hash for one in deposits],
        block_hashes=[one.block_hash for one in deposits],
    )
    return [row["tx_hash"] for row in rows]


_NAMED: Final = """
  FROM unnest(%(tx_hashes)s::text[], %(log_indexes)s::integer[], %(block_hashes)s::text[])
       AS n (tx_hash, log_index, block_hash)
 WHERE d.chain_id = %(chain_id)s
   AND d.tx_hash = n.tx_hash
   AND d.log_index = n.log_index
   AND d.block_hash = n.block_hash
"""

SQL_MARK_FINAL: Final = Statement(
    f"UPDATE usdt_deposits d SET state = 'final' {_NAMED} AND d.state = 'seen' RETURNING 1"  # noqa: S608 - our own text
)

SQL_MARK_ORPHANED: Final = Statement(
    "UPDATE usdt_deposits d SET state = 'orphaned' "  # noqa: S608 - our own text
    f"{_NAMED} AND d.state IN ('seen', 'final') RETURNING 1"
)

SQL_MARK_CREDITED: Final = Statement(
    "UPDATE usdt_deposits d SET state = 'credited', top_up_id = %(top_up_id)s "  # noqa: S608 - our own text
    f"{_NAMED} AND d.state = 'final' RETURNING 1"
)


async def mark_final(connection: Connection, chain_id: int, deposits: Sequence[ChainDeposit]) -> int:
    """Mark deposits as final, and return how many were not."""
    return len(await SQL_MARK_FINAL.rows(connection, chain_id=chain_id, **_columns(deposits)))


async def mark_orphaned(connection: Connection, chain_id: int, deposits: Sequence[ChainDeposit]) -> int:
    """Mark deposits whose blocks were replaced, and return how many; credited ones stay."""
    return len(await SQL_MARK_ORPHANED.rows(connection, chain_id=chain_id, **_columns(deposits)))


async def mark_credited(
    connection: Connection, chain_id: int, deposits: Sequence[ChainDeposit], top_up_id: TopUpId
) -> int:
    """Record which top-up credited locked deposits, and return how many."""
    return len(
        await SQL_MARK_CREDITED.rows(connection, chain_id=chain_id, top_up_id=top_up_id, **_columns(deposits))
    )


SQL_LIST_UNITS: Final = Statement("""
SELECT top_up_id, sum(units) AS units
  FROM usdt_deposits
 WHERE top_up_id = ANY(%(top_up_ids)s::uuid[])
 GROUP BY top_up_id
""")


async def list_units(connection: Connection, top_up_ids: Sequence[TopUpId]) -> Mapping[TopUpId, int]:
    """Return the sum of the deposits that each top-up credited, in the token's smallest unit."""
    rows = await SQL_LIST_UNITS.rows(connection, top_up_ids=top_up_ids)
    return {row["top_up_id"]: int(row["units"]) for row in rows}
