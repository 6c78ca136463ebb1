"""An account's settings for its messages: lifetimes, limits on passcodes, and the time zone of schedules."""

from decimal import Decimal
from typing import Final

from tumira.accounts.lifetimes import Lifetimes
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

SQL_GET_LIFETIMES: Final = Statement(
    "SELECT passcode_lifetime_s, message_lifetime_s FROM accounts WHERE id = %(account_id)s"
)


async def get_lifetimes(connection: Connection, account_id: AccountId) -> Lifetimes:
    row = await SQL_GET_LIFETIMES.row(connection, account_id=account_id)
    assert row is not None, "accounts are never deleted"
    return Lifetimes(*row)


SQL_SET_LIFETIMES: Final = Statement("""
UPDATE accounts
   SET passcode_lifetime_s = %(passcode_s)s, message_lifetime_s = %(message_s)s
 WHERE id = %(account_id)s
""")


async def set_lifetimes(connection: Connection, account_id: AccountId, lifetimes: Lifetimes) -> None:
    """Change the lifetimes of messages that are accepted from now on."""
    await SQL_SET_LIFETIMES.rows(
        connection,
        account_id=account_id,
        passcode_s=lifetimes.passcode_s,
        message_s=lifetimes.message_s,
    )


SQL_GET_PASSCODE_LIMITS: Final = Statement("""
SELECT code_guard, number_codes_max, number_codes_day_max, range_codes_max
  FROM accounts
 WHERE id = %(account_id)s
""")


async def get_passcode_limits(connection: Connection, account_id: AccountId) -> PasscodeLimits:
    row = await SQL_GET_PASSCODE_LIMITS.row(connection, account_id=account_id)
    assert row is not None, "accounts are never deleted"
    return PasscodeLimits(*row)


SQL_SET_PASSCODE_LIMITS: Final = Statement("""
UPDATE accounts
   SET code_guard = %(is_on)s,
       number_codes_max = %(number)s,
       number_codes_day_max = %(number_day)s,
       range_codes_max = %(range)s
 WHERE id = %(account_id)s
""")


async def set_passcode_limits(connection: Connection, account_id: AccountId, limits: PasscodeLimits) -> None:
    """Change the limits from the next send on."""
    await SQL_SET_PASSCODE_LIMITS.rows(
        connection,
        account_id=account_id,
        is_on=limits.is_on,
        number=limits.number,
        number_day=limits.number_day,
        range=limits.range,
    )


SQL_GET_TIME_ZONE: Final = Statement("SELECT time_zone FROM accounts WHERE id = %(account_id)s")


async def get_time_zone(connection: Connection, account_id: AccountId) -> str | None:
    """Return the time zone that an account chose; None for that of its country."""
    zone: str | None = await SQL_GET_TIME_ZONE.value(connection, account_id=account_id)
    return zone


SQL_SET_TIME_ZONE: Final = Statement(
    "UPDATE accounts SET time_zone = %(time_zone)s WHERE id = %(account_id)s"
)


async def set_time_zone(connection: Connection, account_id: AccountId, time_zone: str) -> None:
    await SQL_SET_TIME_ZONE.rows(connection, account_id=account_id, time_zone=time_zone)


SQL_FIND_APPROVAL_ABOVE: Final = Statement("SELECT approval_above FROM accounts WHERE id = %(account_id)s")


async def find_approval_above(connection: Connection, account_id: AccountId) -> Decimal | None:
    """Return the cost above which a send needs a second person; None for no such rule."""
    above: Decimal | None = await SQL_FIND_APPROVAL_ABOVE.value(connection, account_id=account_id)
    return above


SQL_SET_APPROVAL_ABOVE: Final = Statement(
    "UPDATE accounts SET approval_above = %(above)s WHERE id = %(account_id)s"
)


async def set_approval_above(connection: Connection, account_id: AccountId, above: Decimal | None) -> None:
    await SQL_SET_APPROVAL_ABOVE.rows(connection, account_id=account_id, above=above)
