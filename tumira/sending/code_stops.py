"""Ranges of numbers that get no passcodes, the record of what was stopped, and the alert about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from msgspec import Struct

from tumira.core.days import local_day
from tumira.core.ids import AccountId
from tumira.core.translation import _
from tumira.postgres.columns import columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending.code_guard import StopKind, range_of
from tumira.sending.owner_notices import NoticeKind, OwnerNotice, notify_owners

STOPS_KEPT_DAYS: Final = 30
# A code counts for a day, and a stop lasts for half of one; by local days that is at most two.
RANGES_KEPT_DAYS: Final = 2
# Of an account; who wants more should switch the guard off.
LIFTED_MAX: Final = 100


class NewStop(Struct, frozen=True):
    """A passcode that was stopped: the number or the range that was over its limit."""

    account_id: AccountId
    day: date
    prefix: str
    kind: str
    at: datetime


def new_stop(account_id: AccountId, number: str, kind: StopKind, at: datetime) -> NewStop:
    prefix = number if kind is StopKind.NUMBER else range_of(number)
    return NewStop(account_id, local_day(at), prefix, kind.value, at)


# In the order of the primary key, so that two groups never wait for each other in a circle.
SQL_RECORD: Final = Statement("""
INSERT INTO code_stops AS s (account_id, day, prefix, kind, count, first_at, last_at)
SELECT account_id, day, prefix, min(kind), count(*), min(at), max(at)
  FROM unnest(%(account_id)s::uuid[], %(day)s::date[], %(prefix)s::text[], %(kind)s::text[],
              %(at)s::timestamptz[]) AS stop (account_id, day, prefix, kind, at)
 GROUP BY account_id, day, prefix
 ORDER BY account_id, day, prefix
    ON CONFLICT (account_id, day, prefix) DO UPDATE
   SET count = s.count + excluded.count,
       last_at = excluded.last_at
RETURNING account_id, prefix, kind, first_at = last_at AS is_first
""")


async def tell_stops(connection: Connection, stops: Sequence[NewStop], at: datetime) -> None:
    """Record passcodes that were stopped, and alert the owners of numbers and ranges that are new today."""
    rows = await SQL_RECORD.rows(connection, **columns(NewStop, stops))
    news: dict[AccountId, OwnerNotice] = {}
    for row in rows:
        if row["is_first"]:
            news.setdefault(row["account_id"], _notice(row["account_id"], row["prefix"], row["kind"]))
    if news:
        await notify_owners(connection, NoticeKind.PASSCODES, list(news.values()), at)


def _notice(account_id: AccountId, prefix: str, kind: str) -> OwnerNotice:
    text = (
        _("Too many passcodes went to {number} in a short time. For now, more are not sent or charged.")
        if kind == StopKind.NUMBER
        else _(
            "Too many passcodes went to numbers beginning with {number}. A script may be using your sign-up "
            "form. Passcodes to them are not sent or charged for 12 hours."
        )
    )
    hint = _("See Passcode guard in the dashboard.")
    return OwnerNotice(account_id, _("Passcodes were stopped"), f"{text.format(number=prefix)} {hint}")


@dataclass(frozen=True, slots=True)
class StoppedCodes:
    """The passcodes of one day that were stopped, to a number or a range."""

    day: date
    prefix: str
    kind: str
    count: int
    first_at: datetime
    last_at: datetime


SQL_LIST_STOPS: Final = Statement("""
SELECT day, prefix, kind, count, first_at, last_at
  FROM code_stops
 WHERE account_id = %(account_id)s
 ORDER BY day DESC, prefix
 LIMIT %(count_max)s
""")


async def list_stops(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[StoppedCodes]:
    rows = await SQL_LIST_STOPS.rows(connection, account_id=account_id, count_max=count_max)
    return [StoppedCodes(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class GuardedRange:
    """A range that is stopped until a time, or that the owner has lifted."""

    prefix: str
    stopped_until: datetime | None
    lifted_at: datetime | None


SQL_LIST_RANGES: Final = Statement("""
SELECT prefix, CASE WHEN lifted_at IS NULL THEN stopped_until END AS stopped_until, lifted_at
  FROM code_ranges
 WHERE account_id = %(account_id)s
   AND (lifted_at IS NOT NULL OR stopped_until > clock_timestamp())
 ORDER BY prefix
 LIMIT %(count_max)s
""")


async def list_ranges(
    connection: Connection, account_id: AccountId, count_max: int
) -> Sequence[GuardedRange]:
    """Return the ranges of an account that are stopped or lifted."""
    rows = await SQL_LIST_RANGES.rows(connection, account_id=account_id, count_max=count_max)
    return [GuardedRange(*row) for row in rows]


# A send that is accepted meanwhile may stop the range once more, but never ends the lift.
SQL_LIFT: Final = Statement("""
INSERT INTO code_ranges AS r (account_id, prefix, last_on, lifted_at)
SELECT %(account_id)s, %(prefix)s, %(today)s, clock_timestamp()
 WHERE (SELECT count(*) FROM code_ranges WHERE account_id = %(account_id)s AND lifted_at IS NOT NULL)
       < %(lifted_max)s
    ON CONFLICT (account_id, prefix) DO UPDATE
   SET lifted_at = coalesce(r.lifted_at, excluded.lifted_at), stopped_until = NULL
RETURNING 1
""")


async def lift_range(connection: Connection, account_id: AccountId, prefix: str, today: date) -> bool:
    """Let all passcodes to a range pass; False if the account has lifted too many."""
    lifted = await SQL_LIFT.value(
        connection, account_id=account_id, prefix=prefix, today=today, lifted_max=LIFTED_MAX
    )
    return lifted is not None


SQL_GUARD_AGAIN: Final = Statement("""
UPDATE code_ranges
   SET lifted_at = NULL, codes = '', last_on = %(today)s
 WHERE account_id = %(account_id)s
   AND prefix = %(prefix)s
   AND lifted_at IS NOT NULL
RETURNING 1
""")


async def guard_range(connection: Connection, account_id: AccountId, prefix: str, today: date) -> bool:
    """Guard a range again that was lifted; False if it was not."""
    guarded = await SQL_GUARD_AGAIN.value(connection, account_id=account_id, prefix=prefix, today=today)
    return guarded is not None


# By the day of UTC, which begins later than a local one.
SQL_DELETE_OLD_RANGES: Final = Statement("""
DELETE FROM code_ranges
 WHERE ctid = ANY(ARRAY(
       SELECT ctid
         FROM code_ranges
        WHERE last_on < current_date - %(days)s::integer
          AND lifted_at IS NULL
        ORDER BY last_on
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING 1
""")


async def delete_old_ranges(connection: Connection, count_max: int) -> int:
    """Delete up to `count_max` ranges whose codes count no more."""
    return len(await SQL_DELETE_OLD_RANGES.rows(connection, days=RANGES_KEPT_DAYS, count_max=count_max))


SQL_DELETE_OLD_STOPS: Final = Statement("""
DELETE FROM code_stops
 WHERE ctid = ANY(ARRAY(
       SELECT ctid
         FROM code_stops
        WHERE day < current_date - %(days)s::integer
        ORDER BY day
        LIMIT %(count_max)s
          FOR UPDATE SKIP LOCKED))
RETURNING 1
""")


async def delete_old_stops(connection: Connection, count_max: int) -> int:
    """Delete up to `count_max` old records of what was stopped."""
    return len(await SQL_DELETE_OLD_STOPS.rows(connection, days=STOPS_KEPT_DAYS, count_max=count_max))


# All counts of the range begin again, which harms nobody.
SQL_ERASE: Final = Statement("""
WITH held AS MATERIALIZED (
    SELECT account_id, prefix FROM code_ranges WHERE prefix = %(prefix)s ORDER BY account_id FOR UPDATE
), counted AS (
    UPDATE code_ranges r
       SET codes = ''
      FROM held
     WHERE r.account_id = held.account_id
       AND r.prefix = held.prefix
)
DELETE FROM code_stops WHERE prefix = %(number)s
""")


async def erase_number(connection: Connection, number: str) -> None:
    """Forget the passcodes to a number."""
    await SQL_ERASE.rows(connection, number=number, prefix=range_of(number))
