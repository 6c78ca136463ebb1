"""Sends a batch again to the recipients whose messages failed, once.

The Idempotency-Key is made from the batch, so however often, and from however many pages, this is asked for,
there is one new batch. The transaction that inserts the key records the new batch in `resent_batches`, which
outlives the key and the text. The price and the content check are those of a message that is composed.
"""

from tumira.core.ids import BATCH, AccountId, BatchId, write_id
from tumira.postgres.clock import read_now
from tumira.postgres.connection import Connection
from tumira.pricing.phone_numbers import MARK
from tumira.sending import batch_messages, batches, compose
from tumira.sending.batches import BatchDetails
from tumira.sending.compose import Draft
from tumira.sending.lifecycle import FAILED, TEXT_KEPT


def resend_token(batch_id: BatchId) -> str:
    return f"resend:{write_id(BATCH, batch_id)}"


async def find_resent(connection: Connection, account_id: AccountId, batch_id: BatchId) -> BatchId | None:
    """Return the batch that was sent to the failed recipients of this one."""
    return await batches.find_resent(connection, account_id, compose.write_key(resend_token(batch_id)))


async def find_draft(connection: Connection, account_id: AccountId, batch: BatchDetails) -> Draft | None:
    """Return the message to the failed recipients of a completed batch; None if there is nothing to send.

    Batches of files are sent again with their file, whose rows may have their own texts. Of those texts a
    batch has only the pattern, so it does not help once the file is deleted.
    """
    if batch.completed_at is None or batch.body is None or batch.upload_id is not None:
        return None
    # Also where its text is erased late: that it was sent again is remembered longer than this.
    if batch.completed_at < await read_now(connection) - TEXT_KEPT:
        return None
    if await batch_messages.has_own_texts(connection, account_id, batch.id):
        return None
    messages, _ = await batches.list_messages(connection, account_id, batch.id)
    # An erased number keeps its mark.
    failed = [one.recipient for one in messages if one.status in FAILED and MARK not in one.recipient]
    return Draft("\n".join(failed), batch.body, batch.reference or "") if failed else None
