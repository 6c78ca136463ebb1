"""Totals over all accounts: accepted messages, queues and their age, and how days ended.

However many rows there are, each statement reads a bounded number; only a day is read whole, which has a row
for each account that sent something.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final
from uuid import UUID

from tumira.core.days import LOCAL_TIME
from tumira.core.ids import first_id, made_at_ms
from tumira.postgres.columns import named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.networks import list_queues
from tumira.pricing.store import list_countries
from tumira.sending.daily_totals import DAYS_MAX, OPEN_BATCHES_MAX, Day

# Of what was accepted, the newest so many are counted one by one; the rest is concluded from them.
ACCEPTED_MAX: Final = 50_000
# Of the batches of an hour, the first so many are read; the rest is concluded from them.
HOUR_BATCHES_MAX: Final = 5_000
# A stand of the queue is counted up to here.
WAITING_MAX: Final = 20_000

_MS: Final = 1000
_HOUR: Final = timedelta(hours=1)

SQL_DAYS: Final = Statement("""
SELECT day, country, sum(delivered)::bigint, sum(undelivered)::bigint, sum(expired)::bigint,
       sum(failed)::bigint, greatest(sum(unconfirmed), 0)::bigint
  FROM traffic
 WHERE day BETWEEN %(first_day)s AND %(last_day)s
 GROUP BY day, country
 ORDER BY day, country
""")


async def days(connection: Connection, first_day: date, last_day: date) -> Sequence[Day]:
    """Return how the messages of these days ended, by day and country."""
    assert (last_day - first_day).days < DAYS_MAX
    rows = await SQL_DAYS.rows(connection, first_day=first_day, last_day=last_day)
    return [Day(*row) for row in rows]


# The newest first, so that what is left out of a very long list is old.
SQL_UNDER_WAY: Final = Statement("""
SELECT (created_at AT TIME ZONE 'UTC' + %(local_time)s::interval)::date AS day,
       sum(pending)::bigint AS pending
  FROM (SELECT created_at, pending
          FROM batches
         WHERE completed_at IS NULL
         ORDER BY id DESC
         LIMIT %(batches_max)s) AS open
 GROUP BY 1
 ORDER BY 1
""")


async def under_way_by_day(connection: Connection) -> Sequence[tuple[date, int]]:
    """Return how many messages have not ended, by the day on which they were accepted."""
    rows = await SQL_UNDER_WAY.rows(connection, local_time=LOCAL_TIME, batches_max=OPEN_BATCHES_MAX)
    return [(row["day"], row["pending"]) for row in rows]


@dataclass(frozen=True, slots=True)
class Accepted:
    """How many messages to one country were accepted since two moments."""

    country: str
    lately: int
    count: int
    # True when there were more than are counted, and this is what they would be at the same rate.
    is_estimate: bool


SQL_ACCEPTED: Final = Statement("""
WITH newest AS MATERIALIZED (
    SELECT id, country
      FROM messages
     WHERE id >= %(since)s
     ORDER BY id DESC
     LIMIT %(count_max)s
)
SELECT country, count(*) FILTER (WHERE id >= %(lately)s) AS lately, count(*) AS count,
       (SELECT id FROM newest ORDER BY id LIMIT 1) AS first_id
  FROM newest
 GROUP BY country
 ORDER BY country
""")


async def accepted(
    connection: Connection, since: datetime, lately: datetime, now: datetime, count_max: int = ACCEPTED_MAX
) -> Sequence[Accepted]:
    """Return how many messages were accepted since a moment, and of these since a later one, by country."""
    rows = await SQL_ACCEPTED.rows(
        connection, since=_first_id(since), lately=_first_id(lately), count_max=count_max
    )
    if sum(row["count"] for row in rows) < count_max:
        return [Accepted(row["country"], row["lately"], row["count"], is_estimate=False) for row in rows]
    covered_s = max(0.001, now.timestamp() - made_at_ms(rows[0]["first_id"]) / _MS)
    factors = [max(1.0, (now - at).total_seconds() / covered_s) for at in (lately, since)]
    return [
        Accepted(
            row["country"],
            round(row["lately"] * factors[0]),
            round(row["count"] * factors[1]),
            is_estimate=True,
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class HourAccepted:
    """How many messages were accepted in an hour."""

    hour: datetime
    count: int
    # True when there were more batches than are read, and this is what they would be at the same rate.
    is_estimate: bool


# A batch may have thousands of messages, so batches are read.
SQL_ACCEPTED_BY_HOUR: Final = Statement("""
SELECT hours.hour, stand.count, stand.batches, stand.last_at
  FROM unnest(%(hours)s::timestamptz[], %(firsts)s::uuid[], %(nexts)s::uuid[]) AS hours (hour, first, next)
 CROSS JOIN LATERAL (
       SELECT coalesce(sum(read.recipients), 0)::bigint AS count, count(*) AS batches,
              max(read.created_at) AS last_at
         FROM (SELECT recipients, created_at
                 FROM batches
                WHERE id >= hours.first
                  AND id < hours.next
                ORDER BY id
                LIMIT %(batches_max)s) AS read
       ) AS stand
 ORDER BY hours.hour
""")


async def accepted_by_hour(
    connection: Connection, hours: Sequence[datetime], now: datetime, batches_max: int = HOUR_BATCHES_MAX
) -> Sequence[HourAccepted]:
    """Return how many messages were accepted in each of these hours."""
    rows = await SQL_ACCEPTED_BY_HOUR.rows(
        connection,
        hours=hours,
        firsts=[_first_id(hour) for hour in hours],
        nexts=[_first_id(hour + _HOUR) for hour in hours],
        batches_max=batches_max,
    )
    found = []
    for hour, count, batches, last_at in rows:
        factor = 1.0
        if batches >= batches_max:
            covered_s = max(0.001, (last_at - hour).total_seconds())
            factor = max(1.0, (min(now, hour + _HOUR) - hour).total_seconds() / covered_s)
        found.append(HourAccepted(hour, round(count * factor), batches >= batches_max))
    return found


def _first_id(at: datetime) -> UUID:
    return first_id(int(at.timestamp() * _MS))


@dataclass(frozen=True, slots=True)
class Stand:
    """The queue of one lane to one country: its length, up to a bound, and the time of its oldest message."""

    country: str
    lane: int
    count: int
    oldest_ms: int


# Each stand is read in the order of its turns, and no further than the bound. Ids sort by age, as texts too.
SQL_STANDS: Final = Statement("""
SELECT names.country, lanes.lane, sum(stand.count)::bigint AS count, min(stand.oldest) AS oldest
  FROM unnest(%(countries)s::text[], %(queues)s::text[]) AS names (country, queue)
 CROSS JOIN unnest(ARRAY[0, 1]::smallint[]) AS lanes (lane)
 CROSS JOIN LATERAL (
       SELECT count(*) AS count, min(first.message_id::text COLLATE "C") AS oldest
         FROM (SELECT message_id
                 FROM queue
                WHERE queue.country = names.queue
                  AND queue.lane = lanes.lane
                ORDER BY queue.turn, queue.message_id
                LIMIT %(count_max)s) AS first
       ) AS stand
 WHERE stand.count > 0
 GROUP BY names.country, lanes.lane
 ORDER BY names.country, lanes.lane
""")


async def stands(connection: Connection, count_max: int = WAITING_MAX) -> Sequence[Stand]:
    """Return the queues, by country and lane; those of a country's networks together."""
    names = [
        (country, queue) for country in await list_countries(connection) for queue in list_queues(country)
    ]
    rows = await SQL_STANDS.rows(connection, **named_columns("countries queues", names), count_max=count_max)
    return [Stand(row["country"], row["lane"], row["count"], made_at_ms(UUID(row["oldest"]))) for row in rows]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Messages that are being submitted, wait for another attempt, or are in doubt; each up to a bound."""

    in_flight: int
    retries: int
    in_doubt: int


SQL_ELSEWHERE: Final = Statement("""
SELECT (SELECT count(*) FROM (SELECT FROM in_flight LIMIT %(count_max)s) AS counted) AS in_flight,
       count(*) FILTER (WHERE NOT in_doubt) AS retries,
       count(*) FILTER (WHERE in_doubt) AS in_doubt
  FROM (SELECT in_doubt FROM retries LIMIT %(count_max)s) AS counted
""")


async def elsewhere(connection: Connection, count_max: int = WAITING_MAX) -> Elsewhere:
    """Return how many messages wait outside the queue."""
    row = await SQL_ELSEWHERE.row(connection, count_max=count_max)
    assert row is not None
    return Elsewhere(*row)
