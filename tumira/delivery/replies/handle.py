"""Joins replies that were stored, finds the account of each, and acts on the words that opt out and in.

A reply is inserted, told and acted upon in the transaction that marks its parts as joined, so each happens
once, whichever worker dies at whichever moment.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from tumira.accounts import store as accounts
from tumira.core import metrics
from tumira.core.ids import REPLY, AccountId, MessageId, ReplyId, first_id, new_id, write_id
from tumira.delivery.replies import store
from tumira.delivery.replies.parts import join
from tumira.delivery.replies.store import StoredPart, WaitingReply
from tumira.events import NewEvent, record_events
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import complete
from tumira.pricing.store import get_tariff
from tumira.replies import opt_outs
from tumira.replies import store as replies
from tumira.replies.keywords import Meaning
from tumira.replies.opt_outs import OptOutSource
from tumira.replies.store import HIGHEST, Reply
from tumira.sending import recipients
from tumira.sending.system_text import send_text

EVERY_S: Final = 0.5
GROUP_MAX: Final = 50
# A later reply answers something else.
ANSWERED_WITHIN: Final = timedelta(days=7)
# The latest messages to the number that are looked at: some are of other carriers, or were never sent.
CANDIDATES_MAX: Final = 50

_CHANGES: Final = {Meaning.STOP: "recipient.opted_out", Meaning.START: "recipient.opted_in"}


async def handle_replies(database: Database) -> float | None:
    """Handle the replies that are ready; 0 if there may be more."""
    async with database.connection() as connection:
        ready = await store.list_ready(connection, GROUP_MAX)
    failure: Exception | None = None
    for waiting in ready:
        try:
            async with database.transaction() as connection:
                reply = await _handle(connection, waiting)
        except Exception as error:  # noqa: BLE001 - the other replies do not wait for this one
            failure = failure or error
        else:
            if reply is not None:
                await _count(database, reply)
    if failure is not None:
        raise failure
    return 0 if len(ready) == GROUP_MAX else None


async def _handle(connection: Connection, waiting: WaitingReply) -> Reply | None:
    now = await clock.read_now(connection)
    parts = await store.lock_parts(connection, waiting)
    if not _is_ready(parts, waiting, now):
        return None
    carrier = await store.get_carrier(connection, waiting.carrier_id)
    pieces = {one.part: (one.data_coding, one.payload) for one in parts.values()}
    text = join(pieces, waiting.total, carrier.alphabet)
    home = carrier.countries[0] if carrier.countries and len(carrier.countries) == 1 else None
    number = complete(await get_tariff(connection), waiting.number, home)
    account_id, message_id = await _match(connection, waiting, number, now)
    received_at = max(one.received_at for one in parts.values())
    reply = Reply(
        id=ReplyId(new_id(int(received_at.timestamp() * 1000))),
        account_id=account_id,
        carrier_id=waiting.carrier_id,
        number=number,
        destination=waiting.destination,
        text=text,
        parts=len(parts),
        total=waiting.total,
        message_id=message_id,
        meaning=(await opt_outs.get_keywords(connection)).read(text),
        received_at=received_at,
    )
    await replies.insert(connection, reply)
    await store.mark_joined(connection, [one.id for one in parts.values()], reply.id)
    if account_id is not None:
        await _act(connection, reply, account_id, now)
    return reply


def _is_ready(parts: Mapping[int, StoredPart], waiting: WaitingReply, now: datetime) -> bool:
    """Tell whether a reply is still to be joined: another worker may have just done it."""
    if not parts or len(parts) == waiting.total:
        return bool(parts)
    given_up = now - timedelta(minutes=store.GIVE_UP_MINUTES)
    return min(one.received_at for one in parts.values()) < given_up


async def _match(
    connection: Connection, waiting: WaitingReply, number: str, now: datetime
) -> tuple[AccountId | None, MessageId | None]:
    """Return the account that last wrote to a number through this carrier and sender, and its message."""
    since = first_id(int((now - ANSWERED_WITHIN).timestamp() * 1000))
    sent = await recipients.list_sent(connection, number, (since, HIGHEST), CANDIDATES_MAX)
    # Codes and notices of the gateway itself are nobody's messages.
    owners = {one.id: one.account_id for one in sent if one.account_id != accounts.SYSTEM}
    if not owners:
        return None, None
    found = await store.find_answered(connection, waiting.carrier_id, waiting.destination, list(owners))
    if found is None:
        return None, None
    return owners[MessageId(found)], MessageId(found)


async def _act(connection: Connection, reply: Reply, account_id: AccountId, now: datetime) -> None:
    """Tell the account of a reply, and opt its sender out or in."""
    types = ["reply.received"]
    if reply.meaning == Meaning.STOP:
        if await opt_outs.add(connection, account_id, [reply.number], OptOutSource.REPLY):
            types.append(_CHANGES[Meaning.STOP])
            await _confirm(connection, account_id, reply.number)
    elif reply.meaning == Meaning.START and await opt_outs.remove(connection, account_id, reply.number):
        types.append(_CHANGES[Meaning.START])
    # The event names the reply: text and number are erased with it.
    data = msgspec.json.encode({"reply_id": write_id(REPLY, reply.id)}).decode()
    await record_events(connection, [NewEvent(account_id, type_, data=data) for type_ in types], now)


async def _confirm(connection: Connection, account_id: AccountId, number: str) -> None:
    settings = await opt_outs.get_settings(connection)
    if settings.confirmation is None:
        return
    account = await accounts.find(connection, account_id)
    assert account is not None
    await send_text(connection, number, settings.confirmation.replace("{business}", account.business))


async def _count(database: Database, reply: Reply) -> None:
    async with database.connection() as connection:
        carrier = await store.get_carrier(connection, reply.carrier_id)
    result = "unmatched" if reply.account_id is None else "matched"
    metrics.REPLIES.labels(carrier.name, result).inc()
