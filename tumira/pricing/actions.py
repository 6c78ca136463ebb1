"""Changes to destinations and prices, each recorded in the audit log; they apply from the next call."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import asyncpg

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing import store
from tumira.pricing.destinations import Destination, Price, PriceStatus
from tumira.pricing.store import ScheduledPrice

SCHEDULED_MAX: Final = 200
AHEAD_MAX: Final = timedelta(days=366)


async def add_destination(database: Database, destination: Destination, actor: Actor) -> None:
    """Add a country; it can be sent to as soon as it has an active price."""
    try:
        async with database.transaction() as connection:
            if not await store.insert_destination(connection, destination):
                raise OperatorError(
                    f"{destination.country} is a destination already; `tumira destination list`."
                )
            lengths = ", ".join(map(str, destination.national_lengths))
            detail = (
                f"{destination.name} ({destination.country}), +{destination.calling_code}, {lengths} digits"
            )
            await audit_log.record_by_operator(connection, actor, "destination added", detail)
    except asyncpg.CheckViolationError:
        raise OperatorError(
            "A country is two capital letters and a calling code one to four digits, as in "
            "`--country ZM --calling-code 260`."
        ) from None


async def set_price(database: Database, price: Price, actor: Actor) -> None:
    """Set the price of a channel, country and status; it counts from the next call."""
    what = "price set" if price.status is PriceStatus.ACTIVE else "price announced"
    try:
        async with database.transaction() as connection:
            await _put(connection, price, actor, what)
    except asyncpg.ForeignKeyViolationError:
        raise _no_destination(price.country) from None
    except asyncpg.CheckViolationError:
        raise OperatorError(f"The channel {price.channel} cannot be priced; use sms.") from None


async def schedule_price(
    database: Database, *, channel: str, country: str, price_usd: Decimal, from_at: datetime, actor: Actor
) -> ScheduledPrice:
    if from_at > datetime.now(UTC) + AHEAD_MAX:
        raise OperatorError(f"That is more than {AHEAD_MAX.days} days ahead; choose an earlier moment.")
    if channel != "sms":
        raise OperatorError(f"The channel {channel} cannot be priced; use sms.")
    try:
        async with database.transaction() as connection:
            if await store.lock_schedule(connection) >= SCHEDULED_MAX:
                raise OperatorError(
                    f"{SCHEDULED_MAX} prices wait already, the most there can be: withdraw one."
                )
            added = await store.insert_scheduled(
                connection,
                channel=channel,
                country=country,
                price_usd=price_usd,
                from_at=from_at,
                set_by=actor.name,
            )
            if added is None:
                raise OperatorError(
                    "That moment has passed, or another price counts from it: choose a later one, or "
                    "withdraw the other price first."
                )
            await audit_log.record_by_operator(connection, actor, "price scheduled", _describe(added))
            return added
    except asyncpg.ForeignKeyViolationError:
        raise _no_destination(country) from None


async def withdraw_price(
    database: Database, *, channel: str, country: str, from_at: datetime, actor: Actor
) -> ScheduledPrice:
    async with database.transaction() as connection:
        withdrawn = await store.delete_scheduled(connection, channel, country, from_at)
        if withdrawn is None:
            raise OperatorError(
                "There is no such price to come; it may count already. Look at the prices again."
            )
        await audit_log.record_by_operator(
            connection, actor, "scheduled price withdrawn", _describe(withdrawn)
        )
        return withdrawn


async def apply_due_prices(connection: Connection) -> int:
    """Set the scheduled prices that are due, and return how many."""
    due = await store.take_due(connection, SCHEDULED_MAX)
    for one in due:
        price = Price(one.channel, one.country, one.price_usd, PriceStatus.ACTIVE)
        when = f", as scheduled for {_moment(one.from_at)}"
        await _put(connection, price, Actor(one.set_by), "scheduled price in force", when)
        # The announced price is now the active one.
        await store.delete_announced(connection, one.channel, one.country, one.price_usd)
    return len(due)


def _no_destination(country: str) -> OperatorError:
    return OperatorError(f"{country} is not a destination; add it first with `tumira destination add`.")


def _describe(scheduled: ScheduledPrice) -> str:
    price = f"{scheduled.channel} to {scheduled.country}: {_in_words(scheduled.price_usd)} USD"
    return f"{price} from {_moment(scheduled.from_at)}"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


async def _put(connection: Connection, price: Price, actor: Actor, what: str, when: str = "") -> None:
    before = await store.lock_price(connection, price.channel, price.country, price.status)
    await store.set_price(connection, price.channel, price.country, price.status, price.price_usd)
    detail = (
        f"{price.channel} to {price.country}: {_in_words(before)} → {_in_words(price.price_usd)} USD{when}"
    )
    await audit_log.record_by_operator(connection, actor, what, detail)


def _in_words(price: Decimal | None) -> str:
    return "none" if price is None else money.write(price)
