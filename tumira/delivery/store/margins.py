"""Daily totals of costs, charges and refunds: what to add to them, and the clause that adds it."""

from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from tumira.core.ids import AccountId
from tumira.postgres.columns import by_place, column, named_columns
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

_NOTHING: Final = Decimal(0)


class MarginRow(Struct):
    """What to add to the total of a local day; the same fields as in the table."""

    day: date
    carrier_id: int
    country: str
    network: str
    account_id: AccountId
    segments: int = 0
    unpriced: int = 0
    cost_usd: Decimal = _NOTHING
    charged: Decimal = _NOTHING
    refunded: Decimal = _NOTHING


def adding(after: str) -> str:
    """Return the clause that adds rows to the totals, once a condition about another clause is evaluated.

    The rows are in the order of their keys, and nothing but them is locked later in the transaction, so two
    transactions never wait for each other in a circle.
    """
    return f"""
added AS (
    INSERT INTO margin_days (day, carrier_id, country, network, account_id, segments, unpriced, cost_usd,
                             charged, refunded)
    SELECT (%(margin_days)s::date[])[kind], (%(margin_carrier_ids)s::integer[])[kind],
           (%(margin_countries)s::text[])[kind], (%(margin_networks)s::text[])[kind], account_id, segments,
           coalesce(unpriced, 0), coalesce(cost_usd, 0), coalesce(charged, 0), coalesce(refunded, 0)
      FROM (SELECT *, coalesce(place, 1) AS kind
              FROM unnest(%(margin_kinds)s::integer[], %(margin_account_id)s::uuid[],
                          %(margin_segments)s::bigint[], %(margin_unpriced)s::bigint[],
                          %(margin_cost_usd)s::numeric[], %(margin_charged)s::numeric[],
                          %(margin_refunded)s::numeric[])
                   AS given (place, account_id, segments, unpriced, cost_usd, charged, refunded)) AS total
     WHERE {after}
        ON CONFLICT (day, carrier_id, country, network, account_id) DO UPDATE
       SET segments = margin_days.segments + excluded.segments,
           unpriced = margin_days.unpriced + excluded.unpriced,
           cost_usd = margin_days.cost_usd + excluded.cost_usd,
           charged = margin_days.charged + excluded.charged,
           refunded = margin_days.refunded + excluded.refunded
)"""  # noqa: S608 - put together from constants


def parameters(rows: Sequence[MarginRow]) -> dict[str, Any]:
    """Return the parameters of the clause: what rows share once, and NULL for nothing."""
    kinds, shared = by_place(map(_kind_of, rows))
    return {
        "margin_kinds": kinds,
        **named_columns("margin_days margin_carrier_ids margin_countries margin_networks", shared),
        "margin_account_id": [row.account_id for row in rows],
        "margin_segments": [row.segments for row in rows],
        **{f"margin_{name}": column([getattr(row, name) or None for row in rows]) for name in _SUMS},
    }


_kind_of: Final = attrgetter("day", "carrier_id", "country", "network")
_SUMS: Final = ("unpriced", "cost_usd", "charged", "refunded")


SQL_ADD: Final = Statement(f"WITH {adding('true')} SELECT 0")


async def add(connection: Connection, rows: Sequence[MarginRow]) -> None:
    await SQL_ADD.value(connection, **parameters(rows))
