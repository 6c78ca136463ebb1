"""What is stored about a phone number, for its owner who asks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from tumira import audit_log
from tumira.approvals import store as approvals
from tumira.audit_log import Actor
from tumira.contacts import store as contacts
from tumira.core.ids import REPLY, UPLOAD, AccountId, MessageId, made_at_ms, write_id
from tumira.delivery.place_receipts import mask
from tumira.operations.erasure import store as erasure
from tumira.operations.erasure.contacts import list_texts
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import Subject
from tumira.replies import opt_outs
from tumira.replies import store as replies
from tumira.schedules import store as schedules
from tumira.sending import recipients
from tumira.sending.recipients import SentMessage

# Of each kind; far more than anybody gets before numbers are cut.
EXPORTED_MAX: Final = 10_000
CHUNKS_READ: Final = 50
_LOWEST: Final = UUID(int=0)
_HIGHEST: Final = UUID(int=(1 << 128) - 1)


async def export_number(database: Database, subject: Subject, actor: Actor) -> Mapping[str, Any]:
    """Return everything that is stored about a number and found by it, and record who asked.

    `complete` is False if there is more of some kind than EXPORTED_MAX.
    """
    number = subject.number
    async with database.connection() as connection:
        found: dict[str, Sequence[Mapping[str, Any]]] = {
            "messages": await _messages(connection, number),
            "replies": await _replies(connection, number),
            "opt_outs": await _opt_outs(connection, number),
            "lists": await _lists(connection, number),
            "saved_texts": await list_texts(connection, subject, EXPORTED_MAX + 1),
            "schedules": await schedules.list_to(connection, number, EXPORTED_MAX + 1),
            "drafts": await approvals.list_to(connection, subject.national, EXPORTED_MAX + 1),
            "files": await _files(connection, number),
        }
    async with database.transaction() as connection:
        counts = ", ".join(f"{len(rows)} {kind}" for kind, rows in found.items())
        await audit_log.record_by_operator(
            connection, actor, "number exported", f"{mask(number)}: {counts.replace('_', '-')}"
        )
    is_complete = all(len(rows) <= EXPORTED_MAX for rows in found.values())
    kept = {kind: rows[:EXPORTED_MAX] for kind, rows in found.items()}
    return {"number": number, **kept, "complete": is_complete}


async def _messages(connection: Connection, number: str) -> Sequence[Mapping[str, Any]]:
    sent = await recipients.list_sent(connection, number, (_LOWEST, _HIGHEST), EXPORTED_MAX + 1)
    by_account: dict[AccountId, list[SentMessage]] = defaultdict(list)
    for one in sent:
        by_account[one.account_id].append(one)
    texts: dict[MessageId, str | None] = {}
    for account_id, own in by_account.items():
        texts |= {one.id: one.text for one in await recipients.list_texts(connection, account_id, own)}
    return [
        {
            "message_id": one.id,
            "account_id": one.account_id,
            "accepted_at": datetime.fromtimestamp(made_at_ms(one.id) / 1000, UTC),
            "status": one.status,
            "text": texts.get(one.id),
        }
        for one in sent
    ]


async def _replies(connection: Connection, number: str) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "reply_id": write_id(REPLY, one.id),
            "account_id": one.account_id,
            "received_at": one.received_at,
            "to": one.destination,
            "text": one.text,
        }
        for one in await replies.list_from(connection, number, EXPORTED_MAX + 1)
    ]


async def _opt_outs(connection: Connection, number: str) -> Sequence[Mapping[str, Any]]:
    return [
        {"account_id": account_id, "source": one.source.value, "added_at": one.added_at}
        for account_id, one in await opt_outs.list_of_number(connection, number, EXPORTED_MAX + 1)
    ]


async def _lists(connection: Connection, number: str) -> Sequence[Mapping[str, Any]]:
    return [
        {
            "account_id": one.account_id,
            "list": one.list_name,
            "added_at": one.added_at,
            "values": dict(zip(one.columns, one.cells, strict=False)),
        }
        for one in await contacts.list_memberships(connection, number, EXPORTED_MAX + 1)
    ]


async def _files(connection: Connection, number: str) -> Sequence[Mapping[str, Any]]:
    """Return the rows of files that were checked or sent, and are not erased yet."""
    found: dict[UUID, int] = defaultdict(int)
    after = (_LOWEST, -1)
    while chunks := await erasure.list_chunks(connection, number, after, _HIGHEST, CHUNKS_READ):
        for chunk in chunks:
            if chunk.holding:
                found[chunk.upload_id] += chunk.holding
        after = (chunks[-1].upload_id, chunks[-1].number)
    return [{"file": write_id(UPLOAD, upload_id), "rows": rows} for upload_id, rows in found.items()]
