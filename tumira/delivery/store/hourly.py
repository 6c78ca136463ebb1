"""Latencies and outcomes by the hour, for charts."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import asyncpg

from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

HOUR: Final = timedelta(hours=1)

# Where a range has an end too, it is planned as one, and found by its index.
SQL_SUBMISSION_TIMES: Final = Statement("""
SELECT date_trunc('hour', slot, 'UTC') AS hour, bucket, sum(count)::bigint AS count
  FROM latencies
 WHERE slot BETWEEN %(since)s AND 'infinity'
   AND step = 'handover'
 GROUP BY 1, 2
""")


async def list_submission_times(
    connection: Connection, since: datetime
) -> Mapping[datetime, Mapping[int, int]]:
    """Return how many messages took how long from acceptance to submission, by hour and bucket."""
    return _by_hour(await SQL_SUBMISSION_TIMES.rows(connection, since=since))


SQL_OUTCOMES: Final = Statement("""
SELECT date_trunc('hour', slot, 'UTC') AS hour, outcome, sum(count)::bigint AS count
  FROM outcomes
 WHERE slot BETWEEN %(since)s AND 'infinity'
   AND (%(carrier_id)s::integer IS NULL OR carrier_id = %(carrier_id)s)
 GROUP BY 1, 2
""")


async def list_outcomes(
    connection: Connection, since: datetime, carrier_id: int | None = None
) -> Mapping[datetime, Mapping[str, int]]:
    """Return outcomes of all messages, or of those of one carrier, by hour."""
    return _by_hour(await SQL_OUTCOMES.rows(connection, since=since, carrier_id=carrier_id))


def _by_hour(rows: list[asyncpg.Record]) -> dict[datetime, dict[Any, int]]:
    found: dict[datetime, dict[Any, int]] = {}
    for hour, key, count in rows:
        found.setdefault(hour, {})[key] = count
    return found
