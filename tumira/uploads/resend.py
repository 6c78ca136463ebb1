"""A second file with the rows of a sent file whose messages failed.

It is priced, confirmed and sent like any other file, so this only prepares it. Its id follows from that of
the first file: however often it is asked for, there is one, and a file is sent once.
"""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from msgspec import structs

from tumira.core.ids import AccountId, BatchId, UploadId
from tumira.core.translation import _
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.destinations import Tariff, sort_recipients
from tumira.pricing.phone_numbers import CHANNEL, MARK
from tumira.pricing.store import get_tariff
from tumira.sending import batches
from tumira.sending.lifecycle import FAILED
from tumira.uploads import chunks
from tumira.uploads import store as uploads
from tumira.uploads.chunks import CHUNK_MAX, Chunk
from tumira.uploads.price import price_chunk
from tumira.uploads.store import SENT, NewUpload, Upload


class _Row(NamedTuple):
    line: int
    recipient: str
    # None where all get the upload's message.
    body: str | None
    # Whether it is sent only because a template allows it.
    by_template: bool
    near_line: bool


def resend_id(upload_id: UploadId) -> UploadId:
    return UploadId(UUID(int=upload_id.int + 1))


async def prepare_resend(database: Database, account_id: AccountId, upload_id: UploadId) -> UploadId | None:
    """Return the file with the failed rows of a sent one; None if nothing of it can be sent again."""
    async with database.transaction() as connection:
        # Locked, so that of two requests at once the second one finds what the first one made.
        upload = await uploads.hold(connection, account_id, upload_id)
        if upload is None or upload.state != SENT:
            return None
        earlier = await uploads.find(connection, account_id, resend_id(upload_id))
        if earlier is not None:
            return earlier.id
        if upload.erased_at is not None:
            return None
        failed: list[_Row] = []
        for summary in await chunks.list_chunks(connection, upload.id):
            assert summary.batch_id is not None
            failed.extend(await _list_failed(connection, upload, summary.batch_id))
        tariff = await get_tariff(connection)
        prepared = await asyncio.to_thread(_chunks, tariff, upload.message, failed)
        return await _insert(connection, upload, prepared) if prepared else None


async def _list_failed(connection: Connection, upload: Upload, batch_id: BatchId) -> Sequence[_Row]:
    chunk = await chunks.find_sent(connection, upload.id, batch_id)
    batch = await batches.find(connection, upload.account_id, batch_id)
    if chunk is None or batch is None or batch.completed_at is None:
        return []
    # The messages of a batch stand in the order of its rows.
    messages, _is_more = await batches.list_messages(connection, upload.account_id, batch_id)
    bodies: Sequence[str | None] = chunk.bodies or [None] * len(chunk.lines)
    by_template, near_line = frozenset(chunk.by_template), frozenset(chunk.near_line)
    return [
        _Row(line, message.recipient, body, line in by_template, line in near_line)
        for line, message, body in zip(chunk.lines, messages, bodies, strict=True)
        # An erased number keeps its mark.
        if message.status in FAILED and MARK not in message.recipient
    ]


def _chunks(tariff: Tariff, message: str, rows: Sequence[_Row]) -> Sequence[Chunk]:
    """Divide the rows that can still be reached into priced chunks."""
    accepted = sort_recipients(tariff, CHANNEL, [row.recipient for row in rows]).accepted
    reached = {one.number for one in accepted}
    left = [row for row in rows if row.recipient in reached]
    starts = range(0, len(left), CHUNK_MAX)
    return [
        _chunk(tariff, message, number, left[start : start + CHUNK_MAX])
        for number, start in enumerate(starts)
    ]


def _chunk(tariff: Tariff, message: str, number: int, rows: Sequence[_Row]) -> Chunk:
    bodies = [row.body for row in rows if row.body is not None]
    chunk = Chunk(
        number=number,
        lines=[row.line for row in rows],
        recipients=[row.recipient for row in rows],
        bodies=bodies or None,
        cost=Decimal(0),
        by_template=[row.line for row in rows if row.by_template],
        near_line=[row.line for row in rows if row.near_line],
        leg_countries=[],
        leg_segments=[],
        leg_counts=[],
    )
    priced = price_chunk(tariff, message, chunk)
    return structs.replace(
        chunk,
        cost=priced.quote.total_cost,
        leg_countries=[leg.country for leg in priced.quote.legs],
        leg_segments=priced.leg_segments,
        leg_counts=[leg.count for leg in priced.quote.legs],
    )


async def _insert(connection: Connection, upload: Upload, prepared: Sequence[Chunk]) -> UploadId:
    count = sum(len(chunk.lines) for chunk in prepared)
    new = NewUpload(
        id=resend_id(upload.id),
        account_id=upload.account_id,
        file_name=_("{name} (resend)").format(name=upload.file_name),
        columns=upload.columns,
        message=upload.message,
        reference=upload.reference,
        rows=count,
        recipients=count,
        total_cost=sum((chunk.cost for chunk in prepared), Decimal(0)),
        # Its texts were checked by this version; if templates have changed since, they are checked again.
        policy_version=upload.policy_version,
    )
    await uploads.insert(connection, new)
    for chunk in prepared:
        await chunks.insert(connection, new.id, chunk)
    return new.id
