"""Which endpoints are in trouble: failing, far behind, or disabled?

Nobody looks at all endpoints for that. Those that fail or are disabled have indexes of their own; one that is
behind is being delivered to, rests, or has its bell rung.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId, EndpointId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# With so many events still to be told, an endpoint takes them too slowly.
BEHIND_MIN: Final = 1_000
RETRIES_MAX: Final = 10_000
# More than all workers together deliver to at a time.
LEASED_MAX: Final = 10_000


class Kind(IntEnum):
    """What is wrong, in the order in which it is shown."""

    FAILING = 0
    BEHIND = 1
    DISABLED = 2


@dataclass(frozen=True, slots=True)
class Place:
    """Where an endpoint stands in the list; the next ones come after it."""

    kind: Kind
    since: datetime
    endpoint_id: UUID


FIRST: Final = Place(Kind.FAILING, datetime(1970, 1, 1, tzinfo=UTC), UUID(int=0))


@dataclass(frozen=True, slots=True)
class Troubled:
    """An endpoint in trouble, whose it is, and what became of the last try."""

    kind: Kind
    # Since when nothing arrives; for one that is only behind, when it was last changed.
    since: datetime
    id: EndpointId
    account_id: AccountId
    business: str
    url: str
    state: str
    reason: str | None
    failures: int
    failing_since: datetime | None
    rest_until: datetime | None
    succeeded_at: datetime | None
    behind: int
    # What is tried again, or RETRIES_MAX where that is more.
    retries: int
    tried_at: datetime | None
    answered: int | None
    problem: str | None

    @property
    def place(self) -> Place:
        """Return where it stands in the list."""
        return Place(self.kind, self.since, self.id)


# A range with two ends, or an order with a limit, is found by its index in a table that nobody analysed too.
SQL_LIST: Final = Statement("""
WITH suspects AS MATERIALIZED (
    SELECT id FROM webhook_endpoints WHERE failing_since BETWEEN '-infinity' AND 'infinity'
     UNION
    SELECT id FROM webhook_endpoints WHERE state = 'disabled'
     UNION
    (SELECT id FROM webhook_endpoints WHERE worker IS NOT NULL ORDER BY worker LIMIT %(leased_max)s)
     UNION
    SELECT id FROM webhook_endpoints WHERE rest_until BETWEEN '-infinity' AND 'infinity'
     UNION
    SELECT endpoint_id FROM webhook_bells
), looked_at AS MATERIALIZED (
    SELECT e.id, e.account_id, e.url, e.state, e.reason, e.failures, e.failing_since, e.rest_until,
           e.succeeded_at, coalesce(e.failing_since, e.changed_at) AS since,
           coalesce((SELECT last FROM event_counters c WHERE c.account_id = e.account_id), 0) - e.position
               AS behind
      FROM suspects
     CROSS JOIN LATERAL (SELECT * FROM webhook_endpoints WHERE id = suspects.id OFFSET 0) AS e
     WHERE e.state <> 'paused'
), troubled AS (
    SELECT CASE WHEN state = 'disabled' THEN 2 WHEN failing_since IS NOT NULL THEN 0 ELSE 1 END AS kind,
           looked_at.*
      FROM looked_at
     WHERE state = 'disabled' OR failing_since IS NOT NULL OR behind >= %(behind_min)s
), shown AS MATERIALIZED (
    SELECT *
      FROM troubled
     WHERE (kind, since, id) > (%(after_kind)s::integer, %(after_since)s::timestamptz, %(after_id)s::uuid)
     ORDER BY kind, since, id
     LIMIT %(count_max)s
)
SELECT shown.kind, shown.since, shown.id, shown.account_id, a.business, shown.url, shown.state, shown.reason,
       shown.failures, shown.failing_since, shown.rest_until, shown.succeeded_at, shown.behind,
       (SELECT count(*)
          FROM (SELECT
                  FROM webhook_retries r
                 WHERE r.endpoint_id = shown.id
                 LIMIT %(retries_max)s) AS counted) AS retries,
       tried.at, tried.status, tried.problem
  FROM shown
  JOIN accounts a ON a.id = shown.account_id
  LEFT JOIN LATERAL (
       SELECT at, status, problem
         FROM webhook_attempts
        WHERE endpoint_id = shown.id
          AND id >= %(tried_since)s
        ORDER BY id DESC
        LIMIT 1
       ) AS tried ON true
 ORDER BY shown.kind, shown.since, shown.id
""")


async def list_after(
    connection: Connection, count_max: int, tried_since: UUID, after: Place = FIRST
) -> Sequence[Troubled]:
    """Return endpoints in trouble, the longest of each kind first, with the last try since this id."""
    rows = await SQL_LIST.rows(
        connection,
        behind_min=BEHIND_MIN,
        retries_max=RETRIES_MAX,
        leased_max=LEASED_MAX,
        after_kind=after.kind,
        after_since=after.since,
        after_id=after.endpoint_id,
        tried_since=tried_since,
        count_max=count_max,
    )
    return [Troubled(Kind(kind), *rest) for kind, *rest in rows]
