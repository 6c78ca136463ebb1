"""Senders that carriers refused, for the operators' start page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

KEPT: Final = timedelta(days=30)

# The carrier, the sender and the country.
SenderRefusalKey = tuple[int, str, str]


@dataclass(frozen=True, slots=True)
class SenderRefusal:
    carrier: str
    sender: str
    country: str
    count: int
    first_at: datetime
    last_at: datetime


SQL_ADD: Final = Statement("""
INSERT INTO sender_refusals AS old (carrier_id, sender, country, count)
SELECT carrier_id, sender, country, count
  FROM unnest(%(carrier_ids)s::integer[], %(senders)s::text[], %(countries)s::text[], %(counts)s::bigint[])
       AS refusal (carrier_id, sender, country, count)
 ORDER BY carrier_id, sender, country
    ON CONFLICT (carrier_id, sender, country) DO UPDATE
   SET count = old.count + excluded.count, last_at = clock_timestamp()
""")


async def add_refusals(connection: Connection, counts: Mapping[SenderRefusalKey, int]) -> None:
    carrier_ids, senders, countries = zip(*counts, strict=True)
    await SQL_ADD.rows(
        connection,
        carrier_ids=carrier_ids,
        senders=senders,
        countries=countries,
        counts=list(counts.values()),
    )


SQL_LIST: Final = Statement("""
SELECT c.name, r.sender, r.country, r.count, r.first_at, r.last_at
  FROM sender_refusals r
  JOIN carriers c ON c.id = r.carrier_id
 WHERE r.last_at > statement_timestamp() - %(age)s::interval
 ORDER BY r.last_at DESC
 LIMIT %(count_max)s
""")


async def list_refusals(connection: Connection, age: timedelta, count_max: int) -> Sequence[SenderRefusal]:
    """Return the senders that a carrier refused within this time, the latest first."""
    rows = await SQL_LIST.rows(connection, age=age, count_max=count_max)
    return [SenderRefusal(*row) for row in rows]


SQL_DELETE_OLD: Final = Statement("""
WITH old AS MATERIALIZED (
    SELECT carrier_id, sender, country
      FROM sender_refusals
     WHERE last_at < statement_timestamp() - %(kept)s::interval
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
)
DELETE FROM sender_refusals
 WHERE (carrier_id, sender, country) IN (SELECT carrier_id, sender, country FROM old)
RETURNING 1
""")


async def delete_old(connection: Connection, count_max: int) -> int:
    return len(await SQL_DELETE_OLD.rows(connection, kept=KEPT, count_max=count_max))
