"""The low-balance warning: an event for webhooks, and a notice to the owner."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tumira.accounts.store import LockedAccount
from tumira.core import money
from tumira.core.translation import _
from tumira.events import NewEvent, record_events
from tumira.postgres.connection import Connection
from tumira.sending.owner_notices import NoticeKind, OwnerNotice, notify_owners, write_usd
from tumira.sending.views import Currency, Money


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
    """Record an event and a notice for locked accounts whose balance fell below their threshold."""
    news = [
        NewEvent(account.id, "balance.low", data=low_balance_data(account.balance, account.low_balance))
        for account in low
    ]
    await record_events(connection, news, at)
    await notify_owners(connection, NoticeKind.LOW_BALANCE, [_notice(account) for account in low], at)


def _notice(account: LockedAccount) -> OwnerNotice:
    text = _(
        "Your balance is {balance}, below your alert of {threshold}. At zero, messages are refused. Top up "
        "in the dashboard."
    )
    return OwnerNotice(
        account.id,
        _("Your Tumira balance is low"),
        text.format(balance=write_usd(account.balance), threshold=write_usd(account.low_balance)),
    )
