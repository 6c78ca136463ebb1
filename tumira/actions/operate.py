"""What does the operator change while the service runs?"""

from decimal import Decimal

import asyncpg

from tumira.errors import Trouble
from tumira.ids import AccountId
from tumira.rules import money
from tumira.rules.destinations import Destination, Price
from tumira.store import accounts, changes, content_refusals, ledger, prices
from tumira.store.accounts import Account
from tumira.store.changes import OPERATOR, Actor
from tumira.store.database import Database
from tumira.store.sql import Connection


async def credit(
    database: Database, account_id: AccountId, amount: Decimal, *, note: str, actor: str
) -> Account:
    """Give an account money, or with a negative amount take some, and say why."""
    try:
        async with database.transaction() as connection:
            await _existing(connection, account_id)
            await ledger.adjust(connection, account_id, amount, note=note, actor=actor)
            return await _existing(connection, account_id)
    except asyncpg.CheckViolationError:
        raise Trouble("The account has less than that; nothing was taken.") from None
    except asyncpg.NumericValueOutOfRangeError:
        raise Trouble("The balance would have more than ten digits; nothing was credited.") from None


async def suspend(
    database: Database, account_id: AccountId, *, suspended: bool, actor: Actor = OPERATOR
) -> Account:
    """Stop an account from sending, or let it send again."""
    async with database.transaction() as connection:
        await _existing(connection, account_id)
        await accounts.mark_suspended(connection, account_id, suspended=suspended)
        what = "account suspended" if suspended else "account may send again"
        await changes.note(connection, account_id, actor, what)
        return await _existing(connection, account_id)


async def review(
    database: Database, account_id: AccountId, *, consent: bool, actor: Actor = OPERATOR
) -> Account:
    """Note whether an account's refused texts may be kept; without consent those that were are erased."""
    async with database.transaction() as connection:
        await _existing(connection, account_id)
        # This holds the account's row: a call that is being refused now is done before, or sees the change.
        await accounts.set_review_consent(connection, account_id, consent=consent)
        if not consent:
            await content_refusals.erase_texts(connection, account_id)
        what = "refused texts are kept" if consent else "refused texts are not kept"
        await changes.note(connection, account_id, actor, what)
        return await _existing(connection, account_id)


async def limit(
    database: Database,
    account_id: AccountId,
    *,
    rate_limit: int | None,
    daily_limit: Decimal | None,
    change_daily: bool,
    call_limit: Decimal | None = None,
    change_call: bool = False,
    low_balance: Decimal | None = None,
    actor: Actor = OPERATOR,
) -> Account:
    """Change how often an account may call, how much it may spend in a day or a call, and when it is told."""
    async with database.transaction() as connection:
        await _existing(connection, account_id)
        await accounts.set_limits(
            connection,
            account_id,
            rate_limit=rate_limit,
            daily_limit=daily_limit,
            change_daily=change_daily,
            call_limit=call_limit,
            change_call=change_call,
            low_balance=low_balance,
        )
        now = await _existing(connection, account_id)
        detail = (
            f"{now.rate_limit} calls a minute, {_or_none(now.call_limit)} a call, "
            f"{_or_none(now.daily_limit)} a day, notice below {money.write(now.low_balance)}"
        )
        await changes.note(connection, account_id, actor, "limits changed", detail)
        return now


def _or_none(amount: Decimal | None) -> str:
    return "no limit" if amount is None else money.write(amount)


async def add_destination(database: Database, destination: Destination) -> None:
    """Add a country; it can be sent to as soon as it has an active price."""
    try:
        async with database.transaction() as connection:
            if not await prices.insert_destination(connection, destination):
                raise Trouble(f"{destination.country} is a destination already; `tumira destination list`.")
    except asyncpg.CheckViolationError:
        raise Trouble(
            "A country is two capital letters and a calling code one to four digits, as in "
            "`--country ZM --calling-code 260`."
        ) from None


async def set_price(database: Database, price: Price) -> None:
    """Set the price of a channel, country and status; it counts from the next call."""
    try:
        async with database.transaction() as connection:
            await prices.set_price(connection, price.channel, price.country, price.status, price.price_usd)
    except asyncpg.ForeignKeyViolationError:
        raise Trouble(
            f"{price.country} is not a destination; add it first with `tumira destination add`."
        ) from None
    except asyncpg.CheckViolationError:
        raise Trouble(f"The channel {price.channel} cannot be priced; use sms.") from None


async def _existing(connection: Connection, account_id: AccountId) -> Account:
    account = await accounts.find(connection, account_id)
    if account is None:
        raise Trouble("There is no such account; `tumira account list` shows them.")
    return account
