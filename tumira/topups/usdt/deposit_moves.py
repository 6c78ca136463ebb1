"""How does a deposit move: seen, final, credited, or gone with its block?"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from tumira.core.ids import TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.topups.usdt.deposit_rules import ChainDeposit


def _columns(deposits: Sequence[ChainDeposit]) -> dict[str, list[Any]]:
    return {
        "tx_hashes": [one.tx_hash for one in deposits],
        "log_indexes": [one.log_index for one in deposits],
        "block_hashes": [one.block_hash for one in deposits],
    }


# What is known stays as it is. A payment that comes back in another block is seen again, with all that is
# told of it there, because the numbers of logs are those of the block. Where its transaction was credited in
# another block, it is not recorded at all: that would credit it again.
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
    """Note deposits as seen, and return which of them are news."""
    # Where two providers tell different things under one name, none is ever confirmed; the first is shown.
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
    """Return the transactions among these that were credited as they stood in another block."""
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
    """Note that deposits stay as they are, and return how many were not known to."""
    return len(await SQL_MARK_FINAL.rows(connection, chain_id=chain_id, **_columns(deposits)))


async def mark_orphaned(connection: Connection, chain_id: int, deposits: Sequence[ChainDeposit]) -> int:
    """Note that the blocks of deposits were replaced, and return how many were there; credited ones stay."""
    return len(await SQL_MARK_ORPHANED.rows(connection, chain_id=chain_id, **_columns(deposits)))


async def mark_credited(
    connection: Connection, chain_id: int, deposits: Sequence[ChainDeposit], top_up_id: TopUpId
) -> int:
    """Note by which top-up deposits that we hold were credited, and return how many."""
    return len(
        await SQL_MARK_CREDITED.rows(connection, chain_id=chain_id, top_up_id=top_up_id, **_columns(deposits))
    )
