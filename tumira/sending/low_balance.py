"""The low-balance warning: an event for webhooks, and an e-mail for owners who asked for one."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from tumira.accounts import store as accounts
from tumira.accounts.store import LockedAccount
from tumira.core import money
from tumira.core.ids import new_id
from tumira.events import NewEvent, record_events
from tumira.mail import outbox
from tumira.postgres.connection import Connection
from tumira.sending.views import Currency, Money

# After a day the balance has changed, or the owner has seen it.
MAIL_LIFETIME: Final = timedelta(days=1)


class LowBalance(Struct):
    """The balance that fell below its threshold."""

    balance: Annotated[Money, Meta(description="The balance then.", examples=["0.9600"])]
    threshold: Annotated[Money, Meta(description="What it fell below.", examples=["1.0000"])]
    currency: Currency


def low_balance_data(balance: Decimal, threshold: Decimal) -> str:
    """Return the data of a `balance.low` event, as it is stored with the event."""
    data = LowBalance(money.write(balance), money.write(threshold), money.CURRENCY)
    return msgspec.json.encode(data).decode()


async def tell_low_balances(connection: Connection, low: Sequence[LockedAccount], at: datetime) -> None:
    """Record an event and an e-mail for locked accounts whose balance fell below their threshold."""
    news = [
        NewEvent(account.id, "balance.low", data=low_balance_data(account.balance, account.low_balance))
        for account in low
    ]
    await record_events(connection, news, at)
    emails = await accounts.list_low_balance_emails(connection, [account.id for account in low])
    for account in low:
        if account.id not in emails:
            continue
        await outbox.insert(
            connection,
            new_id(int(at.timestamp() * 1000)),
            emails[account.id],
            "Your Tumira balance is low",
            f"Your balance is {money.write(account.balance)} USD, and you want to be told when it is below "
            f"{money.write(account.low_balance)} USD.\n\nWhen it is used up, messages are refused. Top up in "
            "the dashboard; there, under Settings, you also choose when we write to you.\n",
            at + MAIL_LIFETIME,
        )
