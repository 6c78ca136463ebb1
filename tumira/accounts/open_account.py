"""Opening an account for a phone number."""

import time
from decimal import Decimal

from tumira.accounts import ledger
from tumira.accounts import store as accounts
from tumira.accounts.store import Account
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, AccountId, new_id, write_id
from tumira.postgres.pool import Database
from tumira.pricing.destinations import sort_recipients
from tumira.pricing.store import get_tariff


async def open_account(
    database: Database, *, phone: str, name: str, business: str, balance: Decimal, rate_limit: int, actor: str
) -> Account:
    """Open an account for a phone number that has none, with an opening balance if one is given."""
    account_id = AccountId(new_id(time.time_ns() // 1_000_000))
    async with database.transaction() as connection:
        tariff = await get_tariff(connection)
        if not sort_recipients(tariff, "sms", [phone]).accepted or phone != phone.strip():
            raise OperatorError(f"{phone!r} is not a number we can send to; write it like +2637712xxxxx.")
        if not await accounts.insert(connection, account_id, phone, name, business, rate_limit):
            other = await accounts.find_by_phone(connection, phone)
            shown = "" if other is None else f": {write_id(ACCOUNT, other.id)}"
            raise OperatorError(f"{phone} has an account already{shown}.")
        if balance:
            await ledger.adjust(connection, account_id, balance, note="Opening balance", actor=actor)
        account = await accounts.find(connection, account_id)
    assert account is not None
    return account
