"""How far was the chain read, and who reads it?"""

from dataclasses import dataclass
from typing import Final

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# A machine that is gone is noticed by the server within half a minute, which then lets go of its lock.
NOTICED_SOON: Final = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last block that was read, and what it was called then."""

    block_number: int
    block_hash: str


# Of the session and not of a transaction: reading the chain takes longer than a transaction should.
SQL_TRY_LOCK: Final = Statement(
    "SELECT pg_try_advisory_lock(hashtext('tumira chain'), hashtext(%(chain_id)s::bigint::text))"
)


async def try_lock(connection: Connection, chain_id: int) -> bool:
    """Become who reads the chain for as long as the connection lasts; False where somebody is."""
    return bool(await SQL_TRY_LOCK.value(connection, chain_id=chain_id))


SQL_FIND: Final = Statement("""
SELECT block_number, block_hash
  FROM usdt_cursors
 WHERE chain_id = %(chain_id)s
   AND contract = %(contract)s
""")


async def find(connection: Connection, chain_id: int, contract: str) -> Cursor | None:
    """Return how far a token was read on a chain; None where it never was."""
    row = await SQL_FIND.row(connection, chain_id=chain_id, contract=contract)
    return None if row is None else Cursor(*row)


SQL_INSERT: Final = Statement("""
INSERT INTO usdt_cursors (chain_id, contract, block_number, block_hash)
VALUES (%(chain_id)s, %(contract)s, %(block_number)s, %(block_hash)s)
    ON CONFLICT DO NOTHING
""")


async def insert(connection: Connection, chain_id: int, contract: str, cursor: Cursor) -> None:
    """Note from where on a token is read, unless that stands already."""
    await SQL_INSERT.rows(
        connection,
        chain_id=chain_id,
        contract=contract,
        block_number=cursor.block_number,
        block_hash=cursor.block_hash,
    )


# Only from where we began: whoever lost the lock meanwhile, unnoticed, moves nothing.
SQL_MOVE: Final = Statement("""
UPDATE usdt_cursors
   SET block_number = %(block_number)s, block_hash = %(block_hash)s, looked_at = clock_timestamp()
 WHERE chain_id = %(chain_id)s
   AND contract = %(contract)s
   AND block_number = %(from_number)s
   AND block_hash = %(from_hash)s
RETURNING 1
""")


async def move(connection: Connection, chain_id: int, contract: str, before: Cursor, after: Cursor) -> bool:
    """Note how far a token was read now; False where somebody else has noted something meanwhile."""
    moved = await SQL_MOVE.value(
        connection,
        chain_id=chain_id,
        contract=contract,
        block_number=after.block_number,
        block_hash=after.block_hash,
        from_number=before.block_number,
        from_hash=before.block_hash,
    )
    return moved is not None
