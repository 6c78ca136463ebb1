"""Daily totals of costs, charges and refunds, by carrier, network and account.

They are counted in the transaction that records a segment or settles a message, so they are exactly those of
the hand-overs, and a month is read from a few rows however many messages it had.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.carriers.routes.rules import SegmentCost
from tumira.core.days import local_day
from tumira.core.ids import AccountId
from tumira.delivery.outcomes import WHOLE
from tumira.delivery.store.margins import MarginRow
from tumira.delivery.store.settlement import LockedMessage, NewPart
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.pricing.networks import OTHER, write_network

# Where no carrier is known to have had a message, as when it was left in doubt.
NO_CARRIER: Final = 0
ROWS_MAX: Final = 1_000


def set_cost(
    part: NewPart, cost: SegmentCost, segments: int, told: tuple[Decimal, str] | None = None
) -> None:
    """Give a segment its cost; the only part of a message that the carrier cuts has that of all segments."""
    part.cost = cost.add_up(segments if part.number == WHOLE else 1, told)


class Sale(Struct, frozen=True):
    """A message that its customer pays for because a carrier has it, or whose price was given back."""

    carrier_id: int | None
    message: LockedMessage
    is_refund: bool


def add_up(
    parts: Iterable[NewPart], messages: Mapping[UUID, LockedMessage], sales: Iterable[Sale], now: datetime
) -> Sequence[MarginRow]:
    """Return the totals of some new segments and sales, in the order of their keys."""
    rows: dict[tuple[int, str, str, AccountId], MarginRow] = {}
    day = local_day(now)

    def row_of(carrier_id: int, message: LockedMessage) -> MarginRow:
        key = (carrier_id, message.country, message.network or OTHER, message.account_id)
        return rows.get(key) or rows.setdefault(key, MarginRow(day, *key))

    for part in parts:
        message = messages[part.message_id]
        row = row_of(part.carrier_id, message)
        # A carrier that cuts texts itself has all segments in one part.
        count = message.segments if part.number == WHOLE else 1
        row.segments += count
        if part.cost is None:
            row.unpriced += count
        else:
            row.cost_usd += part.cost[-1]
    for sale in sales:
        row = row_of(NO_CARRIER if sale.carrier_id is None else sale.carrier_id, sale.message)
        if sale.is_refund:
            row.refunded += sale.message.cost
        else:
            row.charged += sale.message.cost
    return [rows[key] for key in sorted(rows)]


class MarginBy(StrEnum):
    CARRIER = "carrier"
    NETWORK = "network"
    ACCOUNT = "account"


class Margin(Struct, frozen=True):
    """The totals of some days for one carrier, network or account.

    `key` is the number of a carrier, the id of an account, or a network with its country, as in `ZW-econet`.
    """

    key: str
    name: str | None
    segments: int
    unpriced: int
    cost_usd: Decimal
    charged: Decimal
    refunded: Decimal

    @property
    def revenue(self) -> Decimal:
        return self.charged - self.refunded

    @property
    def margin(self) -> Decimal:
        return self.revenue - self.cost_usd


def account_of(one: Margin) -> AccountId:
    return AccountId(UUID(one.key))


def write_name(one: Margin, by: MarginBy) -> str:
    """Write the carrier, network or account of some totals."""
    if by is MarginBy.NETWORK:
        country, _, network = one.key.partition("-")
        return f"{country} {write_network(network)}"
    return one.name or ("none" if one.key == str(NO_CARRIER) else one.key)


_MONTH: Final = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])")


def month_of(text: str) -> date | None:
    """Read a month such as `2027-01`, and return its first day."""
    found = _MONTH.fullmatch(text)
    return None if found is None else date(int(found[1]), int(found[2]), 1)


def end_of_month(first_day: date) -> date:
    return (first_day + timedelta(days=31)).replace(day=1) - timedelta(days=1)


_READ: Final = """
SELECT totals.key, {name} AS name, segments::bigint, unpriced::bigint, cost_usd, charged, refunded
  FROM (SELECT {key} AS key, sum(segments) AS segments, sum(unpriced) AS unpriced, sum(cost_usd) AS cost_usd,
               sum(charged) AS charged, sum(refunded) AS refunded
          FROM margin_days
         WHERE day BETWEEN %(first_day)s AND %(last_day)s
         GROUP BY 1) AS totals
  {join}
 ORDER BY charged - refunded - cost_usd, totals.key
 LIMIT %(rows_max)s
"""
SQL_BY_CARRIER: Final = Statement(
    _READ.format(
        key="carrier_id::text",
        name="carriers.name",
        join="LEFT JOIN carriers ON carriers.id::text = totals.key",
    )
)
SQL_BY_NETWORK: Final = Statement(_READ.format(key="country || '-' || network", name="NULL", join=""))
SQL_BY_ACCOUNT: Final = Statement(
    _READ.format(
        key="account_id::text",
        name="accounts.name",
        join="LEFT JOIN accounts ON accounts.id = totals.key::uuid",
    )
)
_STATEMENTS: Final[Mapping[MarginBy, Statement]] = {
    MarginBy.CARRIER: SQL_BY_CARRIER,
    MarginBy.NETWORK: SQL_BY_NETWORK,
    MarginBy.ACCOUNT: SQL_BY_ACCOUNT,
}


async def read(
    connection: Connection, first_day: date, last_day: date, by: MarginBy, rows_max: int = ROWS_MAX
) -> Sequence[Margin]:
    """Return the totals of these days, the lowest margin first."""
    rows = await _STATEMENTS[by].rows(connection, first_day=first_day, last_day=last_day, rows_max=rows_max)
    return [Margin(*row) for row in rows]


SQL_TOTAL: Final = Statement("""
SELECT '', NULL, coalesce(sum(segments), 0)::bigint, coalesce(sum(unpriced), 0)::bigint,
       coalesce(sum(cost_usd), 0), coalesce(sum(charged), 0), coalesce(sum(refunded), 0)
  FROM margin_days
 WHERE day BETWEEN %(first_day)s AND %(last_day)s
""")


async def read_total(connection: Connection, first_day: date, last_day: date) -> Margin:
    row = await SQL_TOTAL.row(connection, first_day=first_day, last_day=last_day)
    assert row is not None
    return Margin(*row)
