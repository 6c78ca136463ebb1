"""Latencies and outcomes, counted in slots of ten minutes.

Workers count in memory and add their counts every few seconds; maintenance adds its own with the change
itself. Rows are written in the order of their keys, so that no two writers deadlock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from tumira.postgres.columns import named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

SLOT: Final = timedelta(minutes=10)
DAYS_KEPT: Final = 14
# Who ended a message when no carrier did: we ourselves.
NO_CARRIER: Final = 0


class LatencyStep(StrEnum):
    SUBMISSION = "handover"
    """From the acceptance to the carrier's answer for the last segment."""

    RECEIPT = "receipt"
    """From the hand-over to the receipt that ended the message."""


# A step, a network, its country, the lane of the queue (0 for a receipt, which has none) and the bucket.
TimingKey = tuple[str, str, str, int, int]
# A carrier, a network, its country, and how a message ended, why it did, or what a carrier answered.
OutcomeKey = tuple[int, str, str, str]


def slot_of(at: datetime) -> datetime:
    return at - timedelta(
        minutes=at.minute % (SLOT // timedelta(minutes=1)), seconds=at.second, microseconds=at.microsecond
    )


SQL_ADD_TIMINGS: Final = Statement("""
INSERT INTO latencies (slot, step, network, country, lane, bucket, count)
SELECT %(slot)s, step, network, country, lane, bucket, count
  FROM unnest(%(steps)s::text[], %(networks)s::text[], %(countries)s::text[], %(lanes)s::smallint[],
              %(buckets)s::smallint[], %(counts)s::bigint[])
       WITH ORDINALITY AS timing (step, network, country, lane, bucket, count, place)
 ORDER BY place
    ON CONFLICT (slot, step, network, country, lane, bucket) DO UPDATE
   SET count = latencies.count + excluded.count
""")


async def add_timings(connection: Connection, slot: datetime, counts: Mapping[TimingKey, int]) -> None:
    timings = sorted(counts)
    await SQL_ADD_TIMINGS.rows(
        connection,
        slot=slot,
        **named_columns("steps networks countries lanes buckets", timings),
        counts=[counts[timing] for timing in timings],
    )


SQL_ADD_OUTCOMES: Final = Statement("""
INSERT INTO outcomes (slot, carrier_id, network, country, outcome, count)
SELECT %(slot)s, carrier_id, network, country, outcome, count
  FROM unnest(%(carrier_ids)s::integer[], %(networks)s::text[], %(countries)s::text[], %(outcomes)s::text[],
              %(counts)s::bigint[])
       WITH ORDINALITY AS ended (carrier_id, network, country, outcome, count, place)
 ORDER BY place
    ON CONFLICT (slot, carrier_id, network, country, outcome) DO UPDATE
   SET count = outcomes.count + excluded.count
""")


async def add_outcomes(connection: Connection, slot: datetime, counts: Mapping[OutcomeKey, int]) -> None:
    outcomes = sorted(counts)
    await SQL_ADD_OUTCOMES.rows(
        connection,
        slot=slot,
        **named_columns("carrier_ids networks countries outcomes", outcomes),
        counts=[counts[outcome] for outcome in outcomes],
    )


SQL_SENT_AT: Final = Statement("""
SELECT id, sent_at
  FROM messages
 WHERE id = ANY(%(ids)s::uuid[])
   AND id BETWEEN %(low)s AND %(high)s
   AND sent_at IS NOT NULL
""")


async def list_sent_at(connection: Connection, ids: Sequence[UUID]) -> Mapping[UUID, datetime]:
    rows = await SQL_SENT_AT.rows(connection, ids=ids, low=min(ids), high=max(ids))
    return {row["id"]: row["sent_at"] for row in rows}


@dataclass(frozen=True, slots=True)
class SubmissionCount:
    """Messages to one country with about the same latency: in the last slots, and in all slots read."""

    country: str
    lane: int
    bucket: int
    lately: int
    count: int


# In the last slots, and in all slots read. Where a range has an end too, it is planned as one, and found by
# its index.
_LATELY: Final = """
       coalesce(sum(count) FILTER (WHERE slot >= %(lately)s), 0)::bigint AS lately,
       sum(count)::bigint AS count
"""
_SINCE: Final = "slot BETWEEN %(since)s AND 'infinity'"

SQL_SUBMISSIONS: Final = Statement(f"""
SELECT country, lane, bucket, {_LATELY}
  FROM latencies
 WHERE {_SINCE}
   AND step = 'handover'
 GROUP BY country, lane, bucket
 ORDER BY country, lane, bucket
""")  # noqa: S608 - only constants are put in


async def list_submissions(
    connection: Connection, since: datetime, lately: datetime
) -> Sequence[SubmissionCount]:
    """Return the latencies of submissions since a slot, and since a later one."""
    return [
        SubmissionCount(*row) for row in await SQL_SUBMISSIONS.rows(connection, since=since, lately=lately)
    ]


@dataclass(frozen=True, slots=True)
class EndCount:
    """Messages to one country with the same end: in the last slots, and in all slots read."""

    country: str
    outcome: str
    lately: int
    count: int


SQL_ENDS: Final = Statement(f"""
SELECT country, outcome, {_LATELY}
  FROM outcomes
 WHERE {_SINCE}
 GROUP BY country, outcome
 ORDER BY country, outcome
""")  # noqa: S608 - only constants are put in


async def list_ends(connection: Connection, since: datetime, lately: datetime) -> Sequence[EndCount]:
    """Return the ends of messages since a slot, and since a later one."""
    return [EndCount(*row) for row in await SQL_ENDS.rows(connection, since=since, lately=lately)]


@dataclass(frozen=True, slots=True)
class CarrierTally:
    """Messages of one carrier with the same outcome: in the last slots, and in all slots read."""

    carrier_id: int
    outcome: str
    lately: int
    count: int


SQL_CARRIER_OUTCOMES: Final = Statement(f"""
SELECT carrier_id, outcome, {_LATELY}
  FROM outcomes
 WHERE {_SINCE}
   AND carrier_id <> %(no_carrier)s
 GROUP BY carrier_id, outcome
 ORDER BY carrier_id, count DESC, outcome
""")  # noqa: S608 - only constants are put in


async def list_carrier_outcomes(
    connection: Connection, since: datetime, lately: datetime
) -> Sequence[CarrierTally]:
    """Return the outcomes of each carrier since a slot, and since a later one, most frequent first."""
    rows = await SQL_CARRIER_OUTCOMES.rows(connection, since=since, lately=lately, no_carrier=NO_CARRIER)
    return [CarrierTally(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Windows:
    """The times for which networks are compared: three that last until now, and the usual ones."""

    first: datetime
    second: datetime
    third: datetime
    # Slots from before the third window.
    usual: Sequence[datetime]

    @classmethod
    def until(cls, now: datetime, hours: tuple[int, int, int], days: int) -> "Windows":
        """Return the last hours, and the same time of day on the days before."""
        first, second, third = (slot_of(now - timedelta(hours=one)) for one in hours)
        same = [slot - timedelta(days=day) for day in range(1, days + 1) for slot in _slots(first, now)]
        return cls(first, second, third, [slot for slot in same if slot < third])

    def parameters(self, now: datetime) -> Mapping[str, Any]:
        slots = [*self.usual, *_slots(self.third, now)]
        return {"first": self.first, "second": self.second, "third": self.third, "slots": slots}


def _slots(first: datetime, now: datetime) -> Sequence[datetime]:
    return [first + SLOT * place for place in range((now - first) // SLOT + 1)]


_COUNTS: Final = """
       coalesce(sum(count) FILTER (WHERE slot >= %(first)s), 0)::bigint AS first,
       coalesce(sum(count) FILTER (WHERE slot >= %(second)s), 0)::bigint AS second,
       coalesce(sum(count) FILTER (WHERE slot >= %(third)s), 0)::bigint AS third,
       coalesce(sum(count) FILTER (WHERE slot < %(third)s), 0)::bigint AS usual
"""


@dataclass(frozen=True, slots=True)
class NetworkTimes:
    """Messages to a network with about the same latency, in each window."""

    step: LatencyStep
    network: str
    country: str
    bucket: int
    counts: tuple[int, int, int, int]


# Of the submissions only lane 0's: how long bulk waits for its turn says nothing of the network.
SQL_NETWORK_TIMES: Final = Statement(f"""
SELECT step, network, country, bucket, {_COUNTS}
  FROM latencies
 WHERE slot = ANY(%(slots)s::timestamptz[])
   AND lane = 0
 GROUP BY step, network, country, bucket
 ORDER BY step, network, country, bucket
""")  # noqa: S608 - only constants are put in


async def list_network_times(
    connection: Connection, windows: Windows, now: datetime
) -> Sequence[NetworkTimes]:
    rows = await SQL_NETWORK_TIMES.rows(connection, **windows.parameters(now))
    return [
        NetworkTimes(LatencyStep(row["step"]), row["network"], row["country"], row["bucket"], tuple(row)[4:])
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class NetworkEnds:
    """Messages to a network with the same outcome, in each window."""

    network: str
    country: str
    outcome: str
    counts: tuple[int, int, int, int]


SQL_NETWORK_ENDS: Final = Statement(f"""
SELECT network, country, outcome, {_COUNTS}
  FROM outcomes
 WHERE slot = ANY(%(slots)s::timestamptz[])
   AND outcome = ANY(%(outcomes)s::text[])
 GROUP BY network, country, outcome
 ORDER BY network, country, outcome
""")  # noqa: S608 - only constants are put in


async def list_network_ends(
    connection: Connection, windows: Windows, now: datetime, outcomes: Sequence[str]
) -> Sequence[NetworkEnds]:
    rows = await SQL_NETWORK_ENDS.rows(connection, **windows.parameters(now), outcomes=outcomes)
    return [NetworkEnds(row["network"], row["country"], row["outcome"], tuple(row)[3:]) for row in rows]


_DELETE: Final = """
WITH old AS MATERIALIZED (
    SELECT ctid
      FROM {table}
     WHERE slot BETWEEN '-infinity' AND %(before)s
     ORDER BY slot
     LIMIT %(count_max)s
), deleted AS (
    DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM old))
)
SELECT count(*) FROM old
"""

# Old slots are not written any more, so a ctid stays valid.
SQL_DELETE_OLD: Final = Statement(_DELETE.format(table="latencies"))
SQL_DELETE_OLD_OUTCOMES: Final = Statement(_DELETE.format(table="outcomes"))


async def delete_old(connection: Connection, now: datetime, count_max: int) -> int:
    """Delete old slots, at most `count_max` rows of each table, and return how many."""
    before = now - timedelta(days=DAYS_KEPT)
    return int(await SQL_DELETE_OLD.value(connection, before=before, count_max=count_max)) + int(
        await SQL_DELETE_OLD_OUTCOMES.value(connection, before=before, count_max=count_max)
    )
