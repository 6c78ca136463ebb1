"""What the totals of the margin must be, computed from the messages and segments themselves."""

from decimal import Decimal
from typing import Final

from tests.support.delivery.engine import Engine

_COUNTED: Final = """
SELECT carrier_id, country, network, account_id, sum(segments)::bigint, sum(unpriced)::bigint, sum(cost_usd)
  FROM margin_days
 GROUP BY 1, 2, 3, 4
HAVING sum(segments) > 0
 ORDER BY 1, 2, 3, 4
"""
_PARTS: Final = """
SELECT p.carrier_id, m.country, coalesce(m.network, 'other'), m.account_id, sum(cut.count)::bigint,
       coalesce(sum(cut.count) FILTER (WHERE p.cost_usd IS NULL), 0)::bigint, coalesce(sum(p.cost_usd), 0)
  FROM parts p
  JOIN messages m ON m.id = p.message_id
 CROSS JOIN LATERAL (SELECT CASE WHEN p.number = 0 THEN m.segments ELSE 1 END AS count) AS cut
 GROUP BY 1, 2, 3, 4
 ORDER BY 1, 2, 3, 4
"""
_REVENUE: Final = """
SELECT account_id, network, sum(charged - refunded)
  FROM margin_days
 GROUP BY 1, 2
HAVING sum(charged - refunded) <> 0
 ORDER BY 1, 2
"""
_PAID: Final = """
SELECT account_id, coalesce(network, 'other'), sum(cost)
  FROM messages
 WHERE status NOT IN ('queued', 'sending')
   AND refunded_at IS NULL
 GROUP BY 1, 2
HAVING sum(cost) <> 0
 ORDER BY 1, 2
"""


async def check_margins(engine: Engine) -> Decimal:
    """Compare the totals with every segment and message, and return the margin."""
    assert await engine.rows(_COUNTED) == await engine.rows(_PARTS)
    assert await engine.rows(_REVENUE) == await engine.rows(_PAID)
    (row,) = await engine.rows("SELECT coalesce(sum(charged - refunded - cost_usd), 0) FROM margin_days")
    return Decimal(row[0])
