"""How do events get their numbers? In the transaction that makes them true, under their account's counter."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from tumira.actions.event_payloads import low_balance_data
from tumira.ids import AccountId, BatchId, EventId, MessageId, new_id
from tumira.rules import money
from tumira.store import events, logins, mails
from tumira.store.accounts import Held
from tumira.store.events import Event
from tumira.store.sql import Connection

# After a day the balance is another one, or the owner has seen it.
MAIL_LIFETIME: Final = timedelta(days=1)


class News(Struct, frozen=True, gc=False):
    """Something to tell an account, not numbered yet."""

    account_id: AccountId
    type: str
    message_id: MessageId | None = None
    batch_id: BatchId | None = None
    data: str | None = None


async def tell_events(connection: Connection, news: Sequence[News], at: datetime) -> None:
    """Write events with the next numbers of their accounts; only traffic is locked after their counters."""
    if not news:
        return
    counts: dict[AccountId, int] = {}
    for one in news:
        counts[one.account_id] = counts.get(one.account_id, 0) + 1
    last = await events.count(connection, counts)
    numbers = {account_id: last[account_id] - count for account_id, count in counts.items()}
    at_ms = int(at.timestamp() * 1000)
    numbered = []
    for one in news:
        numbers[one.account_id] += 1
        numbered.append(
            Event(
                EventId(new_id(at_ms)),
                one.account_id,
                numbers[one.account_id],
                one.type,
                one.message_id,
                one.batch_id,
                at,
                one.data,
            )
        )
    await events.tell(connection, numbered)


async def tell_low_balances(connection: Connection, low: Sequence[Held], at: datetime) -> None:
    """Tell accounts, which we hold, that sends have taken their balance below what they want to know of."""
    news = [
        News(account.id, "balance.low", data=low_balance_data(account.balance, account.low_balance))
        for account in low
    ]
    await tell_events(connection, news, at)
    await _mail_low_balances(connection, low, at)


async def _mail_low_balances(connection: Connection, low: Sequence[Held], at: datetime) -> None:
    emails = await logins.list_to_warn(connection, [account.id for account in low])
    for account in low:
        email = emails.get(account.id)
        if email is None:
            continue
        await mails.insert(
            connection,
            new_id(int(at.timestamp() * 1000)),
            email,
            "Your Tumira balance is low",
            f"Your balance is {money.write(account.balance)} USD, and you want to be told when it is below "
            f"{money.write(account.low_balance)} USD.\n\nWhen it is used up, messages are refused. Top up in "
            "the dashboard; there, under Settings, you also choose when we write to you.\n",
            at + MAIL_LIFETIME,
        )
