"""How does a top-up through Paynow begin? As a row, which the worker brings to Paynow."""

import re
import time
from decimal import Decimal
from typing import Final

from tumira.accounts import store as accounts
from tumira.core.errors import FieldTrouble, Trouble
from tumira.core.ids import AccountId, TopUpId, first_id, new_id
from tumira.core.settings.payments import Payments
from tumira.identity.store import logins
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff
from tumira.topups import store as top_ups
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.states import LARGEST, SMALLEST, Currency, Method
from tumira.topups.store import NewTopUp

# So many may wait for somebody to confirm them, of those begun in the last quarter of an hour.
OPEN_OF_ACCOUNT_MAX: Final = 5
OPEN_OF_PHONE_MAX: Final = 3
OPEN_NS: Final = 900 * 10**9

_CENT: Final = Decimal("0.01")
_ZIMBABWE: Final = "+263"
_LOCAL: Final = re.compile(r"\A0(?=[1-9])")


async def start_paynow(
    database: Database,
    payments: Payments,
    account_id: AccountId,
    wallet: Wallet,
    amount: Decimal | None,
    phone: str | None,
    *,
    top_up_id: TopUpId | None = None,
) -> TopUpId:
    """Begin to take an amount from a wallet or a card; raises FieldTrouble for what was given wrongly.

    Where the caller says which id it shall have, a second call with that id finds what the first one began.
    """
    if payments.paynow is None:
        raise Trouble("Paynow is not set up here; TUMIRA_PAYNOW_ID and TUMIRA_PAYNOW_KEY do that.")
    asked = check_amount(amount)
    top_up_id = top_up_id or TopUpId(new_id(time.time_ns() // 1_000_000))
    async with database.transaction() as connection:
        if await is_begun(connection, account_id, top_up_id):
            return top_up_id
        account = await accounts.find(connection, account_id)
        if account is None:
            raise Trouble("There is no such account; `tumira account list` shows them.")
        number = None
        if wallet.needs_phone:
            given = phone or account.phone
            # People write numbers as they dial them, and a wallet's can only be one of the country's.
            number = read_phone(await get_tariff(connection), _LOCAL.sub(_ZIMBABWE, given.strip()))
            if number is None or not number.startswith(_ZIMBABWE):
                raise FieldTrouble("phone", "Give the wallet's number in Zimbabwe, like +2637712xxxxx.")
        await _check_open(connection, account_id, number)
        email = await logins.find_email(connection, account_id)
        await top_ups.insert(
            connection,
            NewTopUp(
                id=top_up_id,
                account_id=account_id,
                method=Method.PAYNOW,
                provider=wallet,
                currency=Currency.USD,
                asked=asked,
                phone=number,
                kept={} if email is None else {"email": email},
            ),
        )
    return top_up_id


async def is_begun(connection: Connection, account_id: AccountId, top_up_id: TopUpId) -> bool:
    """Tell whether a press came twice; nobody else starts one for this account before the commit."""
    await top_ups.take_turn(connection, account_id)
    found = await top_ups.find_any(connection, top_up_id)
    if found is not None and found.account_id != account_id:
        raise Trouble("This cannot be started; open the page once more.")
    return found is not None


async def _check_open(connection: Connection, account_id: AccountId, phone: str | None) -> None:
    """Refuse one more while several wait: each asks somebody, on some phone, for their PIN."""
    since = first_id((time.time_ns() - OPEN_NS) // 1_000_000)
    of_account, of_phone = await top_ups.count_open(connection, account_id, phone, Method.PAYNOW, since)
    if of_account >= OPEN_OF_ACCOUNT_MAX or of_phone >= OPEN_OF_PHONE_MAX:
        raise FieldTrouble(
            "phone",
            "Several payments wait to be confirmed already: confirm or cancel those, or wait a while.",
        )


def check_amount(amount: Decimal | None) -> Decimal:
    """Return an amount in whole cents that can be topped up; raises FieldTrouble for any other."""
    if amount is None or not amount.is_finite():
        raise FieldTrouble("amount", "Give an amount in dollars and cents, like 12.50.")
    if not SMALLEST <= amount <= LARGEST:
        raise FieldTrouble("amount", f"Give an amount from US${SMALLEST} to US${LARGEST:,}.")
    if amount != amount.quantize(_CENT):
        raise FieldTrouble("amount", "Give an amount in whole cents, like 12.50.")
    return amount
