"""How do events get their numbers? In the transaction that makes them true, under their account's counter."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tumira.actions.event_payloads import low_balance_data
from tumira.ids import AccountId, BatchId, EventId, MessageId, new_id
from tumira.store import events
from tumira.store.accounts import Held
from tumira.store.events import Event
from tumira.store.sql import Connection


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
