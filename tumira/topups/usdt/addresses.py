"""Where is each account paid USDT? At an address of its own, which is never given to another."""

from collections.abc import Sequence
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


# Held until the commit: whoever begins a top-up of this account, or credits one, does so one after the other.
SQL_HOLD: Final = Statement("""
SELECT address, place
  FROM usdt_addresses
 WHERE account_id = %(account_id)s
   AND key_sha256 = %(key_sha256)s
   FOR NO KEY UPDATE
""")


async def hold(connection: Connection, account_id: AccountId, key_sha256: bytes) -> Allotted | None:
    """Lock and return an account's address from a public key, or None."""
    row = await SQL_HOLD.row(connection, account_id=account_id, key_sha256=key_sha256)
    return None if row is None else Allotted(*row)


# In order, so that two who hold several never wait for each other in a circle.
SQL_HOLD_ALL: Final = Statement("""
SELECT 1
  FROM usdt_addresses
 WHERE account_id = %(account_id)s
 ORDER BY address
   FOR NO KEY UPDATE
""")


async def hold_all(connection: Connection, account_id: AccountId) -> None:
    """Lock all addresses of an account, from whichever public key."""
    await SQL_HOLD_ALL.rows(connection, account_id=account_id)


SQL_LOCK_PLACES: Final = Statement("SELECT pg_advisory_xact_lock(hashtextextended('tumira usdt places', 0))")

SQL_NEXT_PLACE: Final = Statement(
    "SELECT coalesce(max(place) + 1, 0) FROM usdt_addresses WHERE key_sha256 = %(key_sha256)s"
)


async def next_place(connection: Connection, key_sha256: bytes) -> int:
    """Return the first place of a public key that nobody has; nobody else takes it before the commit."""
    await SQL_LOCK_PLACES.rows(connection)
    return int(await SQL_NEXT_PLACE.value(connection, key_sha256=key_sha256))


SQL_INSERT: Final = Statement("""
INSERT INTO usdt_addresses (address, account_id, key_sha256, place)
VALUES (%(address)s, %(account_id)s, %(key_sha256)s, %(place)s)
""")


async def insert(
    connection: Connection, account_id: AccountId, key_sha256: bytes, allotted: Allotted
) -> None:
    """Give an address to an account, for ever."""
    await SQL_INSERT.rows(
        connection,
        address=allotted.address,
        account_id=account_id,
        key_sha256=key_sha256,
        place=allotted.place,
    )


SQL_LIST: Final = Statement("SELECT address FROM usdt_addresses ORDER BY address")


async def list_all(connection: Connection) -> Sequence[str]:
    """Return all addresses that were ever given to anybody: somebody may still pay there."""
    return [row["address"] for row in await SQL_LIST.rows(connection)]


SQL_OLDEST: Final = Statement("SELECT min(created_at) FROM usdt_addresses")


async def find_oldest(connection: Connection) -> datetime | None:
    """Return when the first address was given to somebody; None where none was."""
    moment = await SQL_OLDEST.value(connection)
    assert moment is None or isinstance(moment, datetime)
    return moment


SQL_FIND_OPEN: Final = Statement("""
SELECT id
  FROM top_ups
 WHERE account_id = %(account_id)s
   AND method = 'usdt'
   AND state IN ('started', 'pending')
 ORDER BY id
 LIMIT 1
""")


async def find_open_top_up(connection: Connection, account_id: AccountId) -> TopUpId | None:
    """Return the USDT top-up of an account that waits for money, or None."""
    top_up_id = await SQL_FIND_OPEN.value(connection, account_id=account_id)
    return None if top_up_id is None else TopUpId(top_up_id)


SQL_LIST_UNPAID: Final = Statement("""
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
    """Return USDT top-ups that wait since before an id for money of which nothing is to be seen."""
    rows = await SQL_LIST_UNPAID.rows(connection, before=before, count_max=count_max)
    return [TopUpId(row["id"]) for row in rows]
