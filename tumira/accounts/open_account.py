"""Opening an account for a phone number."""

import time
from decimal import Decimal
from uuid import UUID

from tumira import audit_log
from tumira.accounts import ledger
from tumira.accounts import store as accounts
from tumira.accounts.store import Account
from tumira.audit_log import Actor
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, AccountId, new_id, write_id
from tumira.core.translation import _
from tumira.postgres.pool import Database
from tumira.pricing.destinations import sort_recipients
from tumira.pricing.store import get_tariff


async def open_account(
    database: Database,
    *,
    phone: str,
    name: str,
    business: str,
    balance: Decimal,
    rate_limit: int,
    actor: str,
    address: str | None = None,
    note: str = "",
    press: UUID | None = None,
) -> Account:
    """Open an account for a phone number that has none, with an opening balance if one is given.

    A form that is posted again returns the account that it opened, which has its id.
    """
    async with database.transaction() as connection:
        is_new = press is None or await audit_log.claim_form(connection, press)
        made = press if press is not None and is_new else new_id(time.time_ns() // 1_000_000)
        account_id = AccountId(made)
        tariff = await get_tariff(connection)
        if not sort_recipients(tariff, "sms", [phone]).accepted or phone != phone.strip():
            fault = _("{phone} is not a mobile number that we send to. Write it like +2637712xxxxx.")
            raise OperatorError(fault.format(phone=repr(phone)))
        if not await accounts.insert(connection, account_id, phone, name, business, rate_limit):
            other = await accounts.find_by_phone(connection, phone)
            if other is not None and other.id == press:
                return other
            shown = "" if other is None else f": {write_id(ACCOUNT, other.id)}"
            raise OperatorError(_("{phone} already has an account{shown}.").format(phone=phone, shown=shown))
        detail = ""
        if balance:
            note = note or "Opening balance"
            detail = f"{money.write(balance)} USD: {note}"
            await ledger.adjust(connection, account_id, balance, note=note, actor=actor)
        await audit_log.record_by_operator(
            connection, Actor(actor, address), "account opened", detail, account_id
        )
        account = await accounts.find(connection, account_id)
    assert account is not None
    return account
