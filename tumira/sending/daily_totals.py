"""Daily totals of final statuses per account, and what open messages wait for.

Ends are counted when they happen, so a page that shows them reads a few rows however many messages there are.
What still waits is read from the batches that are open.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, Final

from tumira.core.days import LOCAL_TIME
from tumira.core.ids import AccountId, BatchId, message_bounds
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

DAYS_MAX: Final = 400
OPEN_BATCHES_MAX: Final = 10_000
WAITING_MAX: Final = 1_000
# Most messages of an open batch may have ended; this many are skipped for each that is counted.
PASSED_OVER_MAX: Final = 20

FINAL_STATUSES: Final = ("delivered", "undelivered", "expired", "failed", "unconfirmed")

# An account, the ordinal of a day, and a country.
DayKey = tuple[AccountId, int, str]

# Sorted, as all locks are taken, and after the event counters (`events.RECORD`): a transaction that counts
# here has locked the account's counter before, so two of them never meet here.
COUNT: Final = """
counted AS (
    INSERT INTO traffic (account_id, day, country, delivered, undelivered, expired, failed, unconfirmed)
    SELECT *
      FROM unnest(%(ended_account_ids)s::uuid[], %(days)s::date[], %(countries)s::text[],
                  %(delivered)s::bigint[], %(undelivered)s::bigint[], %(expired)s::bigint[],
                  %(failed)s::bigint[], %(unconfirmed)s::bigint[])
           AS ended (account_id, day, country, delivered, undelivered, expired, failed, unconfirmed)
     WHERE (SELECT count(*) FROM reserved) > 0
     ORDER BY account_id, day, country
        ON CONFLICT (account_id, day, country) DO UPDATE
       SET delivered = traffic.delivered + excluded.delivered,
           undelivered = traffic.undelivered + excluded.undelivered,
           expired = traffic.expired + excluded.expired,
           failed = traffic.failed + excluded.failed,
           unconfirmed = traffic.unconfirmed + excluded.unconfirmed
)"""


def parameters(ended: Mapping[DayKey, Mapping[str, int]]) -> dict[str, Any]:
    """Return the parameters of `COUNT`: what to add to each final status; a late receipt subtracts."""
    return {
        "ended_account_ids": [account_id for account_id, _, _ in ended],
        "days": [date.fromordinal(day) for _, day, _ in ended],
        "countries": [country for _, _, country in ended],
        **{status: [ends.get(status, 0) for ends in ended.values()] for status in FINAL_STATUSES},
    }


@dataclass(frozen=True, slots=True)
class Day:
    """Final statuses of the messages to one country that were accepted on one day."""

    day: date
    country: str
    delivered: int
    undelivered: int
    expired: int
    failed: int
    unconfirmed: int

    @property
    def lost(self) -> int:
        """Count the messages that certainly did not arrive."""
        return self.undelivered + self.expired + self.failed

    @property
    def ended(self) -> int:
        """Count all final messages."""
        return self.delivered + self.lost + self.unconfirmed


# A worker that is older than the table does not count what it leaves unconfirmed, and a late receipt then
# takes off one too many.
# By the first two columns of the key at once, so that no other index looks as good.
SQL_DAYS: Final = Statement("""
SELECT day, country, delivered, undelivered, expired, failed, greatest(unconfirmed, 0) AS unconfirmed
  FROM traffic
 WHERE (account_id, day) BETWEEN (%(account_id)s, %(first_day)s) AND (%(account_id)s, %(last_day)s)
 ORDER BY account_id, day, country
""")


async def days(
    connection: Connection, account_id: AccountId, first_day: date, last_day: date
) -> Sequence[Day]:
    """Return the totals of an account for these days, by day and country."""
    assert (last_day - first_day).days < DAYS_MAX
    rows = await SQL_DAYS.rows(connection, account_id=account_id, first_day=first_day, last_day=last_day)
    return [Day(*row) for row in rows]


# The newest first, so that a very long list omits old ones.
SQL_WAITING_BY_DAY: Final = Statement("""
SELECT (created_at AT TIME ZONE 'UTC' + %(local_time)s::interval)::date AS day,
       sum(pending)::bigint AS pending
  FROM (SELECT created_at, pending
          FROM batches
         WHERE account_id = %(account_id)s
           AND completed_at IS NULL
         ORDER BY id DESC
         LIMIT %(batches_max)s) AS open
 GROUP BY 1
 ORDER BY 1
""")


async def waiting_by_day(connection: Connection, account_id: AccountId) -> Sequence[tuple[date, int]]:
    """Count the open messages by the day on which they were accepted."""
    rows = await SQL_WAITING_BY_DAY.rows(
        connection, account_id=account_id, local_time=LOCAL_TIME, batches_max=OPEN_BATCHES_MAX
    )
    return [(row["day"], row["pending"]) for row in rows]


class WaitReason(StrEnum):
    TURN = "turn"
    """Its turn in the queue."""

    RETRY = "retry"
    """A retry, after a temporary error of a carrier."""

    DOUBT = "doubt"
    """A receipt or the end of the doubt: a carrier may have it."""

    SENDING = "sending"
    """A carrier's answer: it is being submitted."""

    RECEIPT = "receipt"
    """Its receipt: a carrier has it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Messages to one country that wait for the same thing."""

    country: str
    why: WaitReason
    count: int


SQL_OPEN_BATCHES: Final = Statement("""
SELECT id, recipients
  FROM batches
 WHERE account_id = %(account_id)s
   AND completed_at IS NULL
 ORDER BY id
 LIMIT %(batches_max)s
""")

# The bounds of each batch find its messages by the primary key, and the bounds of all batches find the weeks.
# The account is checked afterwards: an index that begins with the account is slower.
SQL_WAITING: Final = Statement("""
SELECT message.country, message.status, retry.in_doubt, count(*) AS count
  FROM (SELECT pending.id, pending.country, pending.status
          FROM unnest(%(batch_ids)s::uuid[], %(lows)s::uuid[], %(highs)s::uuid[]) AS batch (id, low, high)
         CROSS JOIN LATERAL (
               SELECT id, account_id, country, status
                 FROM messages
                WHERE id BETWEEN batch.low AND batch.high
                  AND id BETWEEN %(low)s AND %(high)s
                  AND batch_id = batch.id
                  AND status IN ('queued', 'sending', 'sent')
               OFFSET 0
               ) AS pending
         WHERE pending.account_id = %(account_id)s
         LIMIT %(count_max)s) AS message
  LEFT JOIN LATERAL (
       SELECT in_doubt
         FROM retries
        WHERE message_id = message.id
          AND message.status <> 'sent'
       OFFSET 0
       ) AS retry ON true
 GROUP BY message.country, message.status, retry.in_doubt
""")


async def waiting(
    connection: Connection, account_id: AccountId, count_max: int = WAITING_MAX
) -> Sequence[Waiting]:
    """Count what an account's open messages wait for, the oldest `count_max` of them."""
    rows = await SQL_OPEN_BATCHES.rows(connection, account_id=account_id, batches_max=count_max)
    if not rows:
        return []
    ids = list(_first([(row["id"], row["recipients"]) for row in rows], PASSED_OVER_MAX * count_max))
    bounds = [message_bounds(batch_id) for batch_id in ids]
    found = await SQL_WAITING.rows(
        connection,
        batch_ids=ids,
        lows=[low for low, _ in bounds],
        highs=[high for _, high in bounds],
        low=bounds[0][0],
        high=bounds[-1][1],
        account_id=account_id,
        count_max=count_max,
    )
    counts: dict[tuple[str, WaitReason], int] = {}
    for country, status, in_doubt, number in found:
        place = (country, _why(status, in_doubt))
        counts[place] = counts.get(place, 0) + number
    return [Waiting(country, why, counts[country, why]) for country, why in sorted(counts)]


def _first(batches: Sequence[tuple[BatchId, int]], messages_max: int) -> Iterator[BatchId]:
    """Yield the first batches until they have `messages_max` messages."""
    messages = 0
    for batch_id, recipients in batches:
        if messages >= messages_max:
            return
        messages += recipients
        yield batch_id


def _why(status: str, in_doubt: bool | None) -> WaitReason:  # noqa: FBT001 - a column; None without a row in `retries`
    if status == "sent":
        return WaitReason.RECEIPT
    if in_doubt is None:
        return WaitReason.TURN if status == "queued" else WaitReason.SENDING
    return WaitReason.DOUBT if in_doubt else WaitReason.RETRY
