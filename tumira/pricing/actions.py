"""Changes to destinations and prices, each recorded in the audit log; they apply from the next call."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import asyncpg

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.translation import _
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
                text = _("{country} is in the list already.")
                raise OperatorError(text.format(country=destination.country))
            lengths = ", ".join(map(str, destination.national_lengths))
            detail = (
                f"{destination.name} ({destination.country}), +{destination.calling_code}, {lengths} digits"
            )
            await audit_log.record_by_operator(connection, actor, "destination added", detail)
    except asyncpg.CheckViolationError:
        raise OperatorError(
            _(
                "Enter a country code of two capital letters, for example ZM, and a calling code of one to "
                "four digits, for example 260."
            )
        ) from None


async def set_price(database: Database, price: Price, actor: Actor) -> None:
    """Set the price of a channel, country and status; it counts from the next call."""
    what = "price set" if price.status is PriceStatus.ACTIVE else "price planned"
    try:
        async with database.transaction() as connection:
            await _put(connection, price, actor, what)
    except asyncpg.ForeignKeyViolationError:
        raise _no_destination(price.country) from None
    except asyncpg.CheckViolationError:
        raise _no_channel(price.channel) from None


async def schedule_price(
    database: Database, *, channel: str, country: str, price_usd: Decimal, from_at: datetime, actor: Actor
) -> ScheduledPrice:
    if from_at > datetime.now(UTC) + AHEAD_MAX:
        text = _("Choose a time within the next {days} days.")
        raise OperatorError(text.format(days=AHEAD_MAX.days))
    if channel != "sms":
        raise _no_channel(channel)
    try:
        async with database.transaction() as connection:
            if await store.lock_schedule(connection) >= SCHEDULED_MAX:
                text = _("At most {most} prices can be scheduled. Cancel one first.")
                raise OperatorError(text.format(most=SCHEDULED_MAX))
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
                    _(
                        "This time has passed, or another price starts at it. Choose a later time, or cancel "
                        "the other price first."
                    )
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
            raise OperatorError(_("This price is no longer scheduled. It may already be in effect."))
        await audit_log.record_by_operator(
            connection, actor, "scheduled price cancelled", _describe(withdrawn)
        )
        return withdrawn


async def apply_due_prices(connection: Connection) -> int:
    """Set the scheduled prices that are due, and return how many."""
    due = await store.take_due(connection, SCHEDULED_MAX)
    for one in due:
        price = Price(one.channel, one.country, one.price_usd, PriceStatus.ACTIVE)
        when = f", as scheduled for {_moment(one.from_at)}"
        await _put(connection, price, Actor(one.set_by), "scheduled price in effect", when)
        # The announced price is now the active one.
        await store.delete_announced(connection, one.channel, one.country, one.price_usd)
    return len(due)


def _no_destination(country: str) -> OperatorError:
    text = _("{country} is not in the list of countries. Add it first.")
    return OperatorError(text.format(country=country))


def _no_channel(channel: str) -> OperatorError:
    return OperatorError(_("The channel {channel} cannot have a price. Use sms.").format(channel=channel))


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
