"""What did each carrier make of its messages lately? Read from what workers count by slots of ten minutes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tumira.delivery.store.latency import NO_CARRIER
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Tally:
    """How often one thing was counted for a carrier, in the last slots and in some before too."""

    carrier_id: int
    outcome: str
    lately: int
    count: int


# Where a range has an end too, it is planned as one, and found by its index.
SQL_LIST: Final = Statement("""
SELECT carrier_id, outcome,
       coalesce(sum(count) FILTER (WHERE slot >= %(lately)s), 0)::bigint AS lately,
       sum(count)::bigint AS count
  FROM outcomes
 WHERE slot BETWEEN %(since)s AND 'infinity'
   AND carrier_id <> %(no_carrier)s
 GROUP BY carrier_id, outcome
 ORDER BY carrier_id, count DESC, outcome
""")


async def list_since(connection: Connection, since: datetime, lately: datetime) -> Sequence[Tally]:
    """Return what was counted for each carrier since a slot, and of this since a later one, most first."""
    rows = await SQL_LIST.rows(connection, since=since, lately=lately, no_carrier=NO_CARRIER)
    return [Tally(*row) for row in rows]
