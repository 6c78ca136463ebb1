"""The USDT address of each account, and how far the chain was read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tumira.core.ids import AccountId, TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Allotted:
    """An address in lower case, and the place at which it was derived."""

    address: str
    place: int


SQL_FIND_ADDRESS: Final = Statement("""
SELECT address, place
  FROM usdt_addresses
 WHERE account_id = %(account_id)s
   AND key_sha256 = %(key_sha256)s
""")


async def find_address(connection: Connection, account_id: AccountId, key_sha256: bytes) -> Allotted | None:
    row = await SQL_FIND_ADDRESS.row(connection, account_id=account_id, key_sha256=key_sha256)
    return None if row is None else Allotted(*row)


# Locked until commit: starts and credits of one account run one after the other.
SQL_LOCK_ADDRESS: Final = Statement("""
SELECT address, place
  FROM usdt_addresses
 WHERE account_id = %(account_id)s
   AND key_sha256 = %(key_sha256)s
   FOR NO KEY UPDATE
""")


async def lock_address(connection: Connection, account_id: AccountId, key_sha256: bytes) -> Allotted | None:
    row = await SQL_LOCK_ADDRESS.row(connection, account_id=account_id, key_sha256=key_sha256)
    return None if row is None else Allotted(*row)


# In order, so that two transactions never deadlock.
SQL_LOCK_ADDRESSES: Final = Statement("""
SELECT 1
  FROM usdt_addresses
 WHERE account_id = %(account_id)s
 ORDER BY address
   FOR NO KEY UPDATE
""")


async def lock_addresses(connection: Connection, account_id: AccountId) -> None:
    await SQL_LOCK_ADDRESSES.rows(connection, account_id=account_id)


SQL_LOCK_PLACES: Final = Statement("SELECT pg_advisory_xact_lock(hashtextextended('tumira usdt places', 0))")

SQL_NEXT_PLACE: Final = Statement(
    "SELECT coalesce(max(place) + 1, 0) FROM usdt_addresses WHERE key_sha256 = %(key_sha256)s"
)


async def next_place(connection: Connection, key_sha256: bytes) -> int:
    """Return the first free place of a public key; it stays free until the commit."""
    await SQL_LOCK_PLACES.rows(connection)
    return int(await SQL_NEXT_PLACE.value(connection, key_sha256=key_sha256))


SQL_INSERT_ADDRESS: Final = Statement("""
INSERT INTO usdt_addresses (address, account_id, key_sha256, place)
VALUES (%(address)s, %(account_id)s, %(key_sha256)s, %(place)s)
""")


async def insert_address(
    connection: Connection, account_id: AccountId, key_sha256: bytes, allotted: Allotted
) -> None:
    await SQL_INSERT_ADDRESS.rows(
        connection,
        address=allotted.address,
        account_id=account_id,
        key_sha256=key_sha256,
        place=allotted.place,
    )


SQL_LIST_ADDRESSES: Final = Statement("SELECT address FROM usdt_addresses ORDER BY address")


async def list_addresses(connection: Connection) -> Sequence[str]:
    """Return all addresses ever assigned: a customer may still pay there."""
    return [row["address"] for row in await SQL_LIST_ADDRESSES.rows(connection)]


SQL_FIND_OLDEST: Final = Statement("SELECT min(created_at) FROM usdt_addresses")


async def find_oldest_address(connection: Connection) -> datetime | None:
    moment = await SQL_FIND_OLDEST.value(connection)
    assert moment is None or isinstance(moment, datetime)
    return moment


SQL_FIND_OPEN_TOP_UP: Final = Statement("""
SELECT id
  FROM top_ups
 WHERE account_id = %(account_id)s
   AND method = 'usdt'
   AND state IN ('started', 'pending')
 ORDER BY id
 LIMIT 1
""")


async def find_open_top_up(connection: Connection, account_id: AccountId) -> TopUpId | None:
    """Return the USDT top-up of an account that is waiting for money, or None."""
    top_up_id = await SQL_FIND_OPEN_TOP_UP.value(connection, account_id=account_id)
    return None if top_up_id is None else TopUpId(top_up_id)


SQL_LIST_UNPAID_TOP_UPS: Final = Statement("""
SELECT t.id
  FROM top_ups t
 WHERE t.state IN ('started', 'pending')
   AND t.method = 'usdt'
   AND t.id < %(before)s
   AND NOT EXISTS (
       SELECT FROM usdt_deposits d WHERE d.account_id = t.account_id AND d.state IN ('seen', 'final')
       )
 ORDER BY t.id
 LIMIT %(count_max)s
""")


async def list_unpaid_top_ups(connection: Connection, before: TopUpId, count_max: int) -> Sequence[TopUpId]:
    """Return open USDT top-ups older than an id whose account has no deposit."""
    rows = await SQL_LIST_UNPAID_TOP_UPS.rows(connection, before=before, count_max=count_max)
    return [TopUpId(row["id"]) for row in rows]


# The server notices a lost machine within half a minute, and releases its lock.
NOTICED_SOON: Final = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "4",
}


@dataclass(frozen=True, slots=True)
class ChainCursor:
    """The last block that was read, and its hash then."""

    block_number: int
    block_hash: str


# A session lock: reading the chain takes longer than a transaction should.
SQL_TRY_LOCK_CHAIN: Final = Statement(
    "SELECT pg_try_advisory_lock(hashtext('tumira chain'), hashtext(%(chain_id)s::bigint::text))"
)


async def try_lock_chain(connection: Connection, chain_id: int) -> bool:
    """Become the reader of a chain for as long as the connection lasts; False where there is one."""
    return bool(await SQL_TRY_LOCK_CHAIN.value(connection, chain_id=chain_id))


SQL_FIND_CURSOR: Final = Statement("""
SELECT block_number, block_hash
  FROM usdt_cursors
 WHERE chain_id = %(chain_id)s
   AND contract = %(contract)s
""")


async def find_cursor(connection: Connection, chain_id: int, contract: str) -> ChainCursor | None:
    row = await SQL_FIND_CURSOR.row(connection, chain_id=chain_id, contract=contract)
    return None if row is None else ChainCursor(*row)


SQL_INSERT_CURSOR: Final = Statement("""
INSERT INTO usdt_cursors (chain_id, contract, block_number, block_hash)
VALUES (%(chain_id)s, %(contract)s, %(block_number)s, %(block_hash)s)
    ON CONFLICT DO NOTHING
""")


async def insert_cursor(connection: Connection, chain_id: int, contract: str, cursor: ChainCursor) -> None:
    """Record where reading starts, unless that is recorded already."""
    await SQL_INSERT_CURSOR.rows(
        connection,
        chain_id=chain_id,
        contract=contract,
        block_number=cursor.block_number,
        block_hash=cursor.block_hash,
    )


# Only from where we began: a reader that lost its lock unnoticed moves nothing.
SQL_MOVE_CURSOR: Final = Statement("""
UPDATE usdt_cursors
   SET block_number = %(block_number)s, block_hash = %(block_hash)s, looked_at = clock_timestamp()
 WHERE chain_id = %(chain_id)s
   AND contract = %(contract)s
   AND block_number = %(from_number)s
   AND block_hash = %(from_hash)s
RETURNING 1
""")


async def move_cursor(
    connection: Connection, chain_id: int, contract: str, before: ChainCursor, after: ChainCursor
) -> bool:
    """Record how far the chain was read; False where another reader has moved the cursor."""
    moved = await SQL_MOVE_CURSOR.value(
        connection,
        chain_id=chain_id,
        contract=contract,
        block_number=after.block_number,
        block_hash=after.block_hash,
        from_number=before.block_number,
        from_hash=before.block_hash,
    )
    return moved is not None


SQL_LIST_OWNERS: Final = Statement("""
SELECT address, account_id
  FROM usdt_addresses
 WHERE address > %(after)s
 ORDER BY address
 LIMIT %(count_max)s
""")


async def list_owners(connection: Connection, after: str, count_max: int) -> Mapping[str, AccountId]:
    """Return a page of addresses in their order, with the account of each."""
    rows = await SQL_LIST_OWNERS.rows(connection, after=after, count_max=count_max)
    return {row["address"]: row["account_id"] for row in rows}
