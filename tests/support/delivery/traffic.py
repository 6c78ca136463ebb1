"""Daily totals, compared with the messages themselves."""

from typing import Final

from tests.support.delivery.settling import World

MISCOUNTED: Final = """
WITH ended AS (
    SELECT m.account_id, (b.created_at AT TIME ZONE 'Africa/Harare')::date AS day, m.country,
           count(*) FILTER (WHERE m.status = 'delivered') AS delivered,
           count(*) FILTER (WHERE m.status = 'undelivered') AS undelivered,
           count(*) FILTER (WHERE m.status = 'expired') AS expired,
           count(*) FILTER (WHERE m.status = 'failed') AS failed,
           count(*) FILTER (WHERE m.status = 'unconfirmed') AS unconfirmed
      FROM messages m
      JOIN batches b ON b.id = m.batch_id
     WHERE m.status NOT IN ('queued', 'sending', 'sent')
     GROUP BY 1, 2, 3
)
(TABLE ended EXCEPT TABLE traffic) UNION ALL (TABLE traffic EXCEPT TABLE ended)
"""


async def miscounted(world: World) -> list[tuple[object, ...]]:
    return [tuple(row) for row in await world.rows(MISCOUNTED)]
