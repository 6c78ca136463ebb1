"""How does a price begin to count at a moment that the operator chose? Once, and noted as theirs."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import asyncpg

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import Trouble
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing import store as price_schedule
from tumira.pricing.change_tariff import in_words, put
from tumira.pricing.destinations import Price, PriceStatus
from tumira.pricing.store import ScheduledPrice

SCHEDULED_MAX: Final = 200
AHEAD_MAX: Final = timedelta(days=366)


async def schedule_price(
    database: Database, *, channel: str, country: str, price_usd: Decimal, from_at: datetime, actor: Actor
) -> ScheduledPrice:
    """Have a price count from a moment on."""
    if from_at > datetime.now(UTC) + AHEAD_MAX:
        raise Trouble(f"That is more than {AHEAD_MAX.days} days ahead; choose an earlier moment.")
    if channel != "sms":
        raise Trouble(f"The channel {channel} cannot be priced; use sms.")
    try:
        async with database.transaction() as connection:
            if await price_schedule.hold_and_count(connection) >= SCHEDULED_MAX:
                raise Trouble(f"{SCHEDULED_MAX} prices wait already, the most there can be: withdraw one.")
            added = await price_schedule.insert(
                connection,
                channel=channel,
                country=country,
                price_usd=price_usd,
                from_at=from_at,
                set_by=actor.name,
            )
            if added is None:
                raise Trouble(
                    "That moment has passed, or another price counts from it: choose a later one, or "
                    "withdraw the other price first."
                )
            await audit_log.record_by_operator(connection, actor, "price scheduled", _described(added))
            return added
    except asyncpg.ForeignKeyViolationError:
        raise Trouble(
            f"{country} is not a destination; add it first with `tumira destination add`."
        ) from None


async def withdraw_price(
    database: Database, *, channel: str, country: str, from_at: datetime, actor: Actor
) -> ScheduledPrice:
    """Let a price that does not count yet never count."""
    async with database.transaction() as connection:
        withdrawn = await price_schedule.delete(connection, channel, country, from_at)
        if withdrawn is None:
            raise Trouble("There is no such price to come; it may count already. Look at the prices again.")
        await audit_log.record_by_operator(
            connection, actor, "scheduled price withdrawn", _described(withdrawn)
        )
        return withdrawn


async def put_due_into_force(connection: Connection) -> int:
    """Charge the prices whose moment has come, and return how many; each is taken out as it is set."""
    due = await price_schedule.take_due(connection, SCHEDULED_MAX)
    for one in due:
        price = Price(one.channel, one.country, one.price_usd, PriceStatus.ACTIVE)
        when = f", as scheduled for {_moment(one.from_at)}"
        await put(connection, price, Actor(one.set_by), "scheduled price in force", when)
        # What was announced has come true.
        await price_schedule.delete_announced(connection, one.channel, one.country, one.price_usd)
    return len(due)


def _described(one: ScheduledPrice) -> str:
    return f"{one.channel} to {one.country}: {in_words(one.price_usd)} USD from {_moment(one.from_at)}"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
