"""Background loop that sends confirmed files: a chunk of one, then a chunk of the next."""

from typing import Final
from uuid import UUID

from tumira.core import metrics
from tumira.core.ids import UploadId
from tumira.core.loops import forever
from tumira.postgres.pool import Database
from tumira.uploads.send import send_next_chunk

LOOK_S: Final = 0.5

_BEFORE_ALL: Final = UploadId(UUID(int=0))


async def run_uploader(database: Database) -> None:
    """Send confirmed files until cancelled, alternating between them chunk by chunk."""
    after = _BEFORE_ALL

    async def send() -> float | None:
        nonlocal after
        before, after = after, _BEFORE_ALL
        try:
            upload_id = await send_next_chunk(database, before)
        except Exception:
            # Nothing of the chunk was sent, and it is tried again.
            metrics.UPLOAD_CHUNKS.labels("failed").inc()
            raise
        if upload_id is None:
            return LOOK_S if before == _BEFORE_ALL else 0
        metrics.UPLOAD_CHUNKS.labels("done").inc()
        after = upload_id
        return 0

    await forever("send a file", send, LOOK_S)
