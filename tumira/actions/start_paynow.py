"""How does a top-up through Paynow begin? As a row, which the worker brings to Paynow."""

import re
import time
from decimal import Decimal
from typing import Final

from tumira.config.payments import Payments
from tumira.errors import FieldTrouble, Trouble
from tumira.ids import AccountId, TopUpId, new_id
from tumira.rules.paynow import Wallet
from tumira.rules.people import read_phone
from tumira.rules.top_ups import LARGEST, SMALLEST, Currency, Method
from tumira.store import accounts, logins, prices, top_ups
from tumira.store.database import Database
from tumira.store.top_ups import NewTopUp

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
) -> TopUpId:
    """Begin to take an amount from a wallet or a card; raises FieldTrouble for what was given wrongly."""
    if payments.paynow is None:
        raise Trouble("Paynow is not set up here; TUMIRA_PAYNOW_ID and TUMIRA_PAYNOW_KEY do that.")
    asked = check_amount(amount)
    async with database.transaction() as connection:
        account = await accounts.find(connection, account_id)
        if account is None:
            raise Trouble("There is no such account; `tumira account list` shows them.")
        number = None
        if wallet.needs_phone:
            given = phone or account.phone
            # People write numbers as they dial them, and a wallet's can only be one of the country's.
            number = read_phone(await prices.get_tariff(connection), _LOCAL.sub(_ZIMBABWE, given.strip()))
            if number is None or not number.startswith(_ZIMBABWE):
                raise FieldTrouble("phone", "Give the wallet's number in Zimbabwe, like +2637712xxxxx.")
        email = await logins.find_email(connection, account_id)
        top_up_id = TopUpId(new_id(time.time_ns() // 1_000_000))
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


def check_amount(amount: Decimal | None) -> Decimal:
    """Return an amount in whole cents that can be topped up; raises FieldTrouble for any other."""
    if amount is None or amount != amount.quantize(_CENT):
        raise FieldTrouble("amount", "Give an amount in dollars and cents, like 12.50.")
    if not SMALLEST <= amount <= LARGEST:
        raise FieldTrouble("amount", f"Give an amount from US${SMALLEST} to US${LARGEST}.")
    return amount
