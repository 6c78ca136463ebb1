"""Background loop that sends confirmed files: a chunk of one, then a chunk of the next."""

import asyncio
from typing import Final
from uuid import UUID

import structlog

from tumira.core import metrics
from tumira.core.database_errors import is_unavailable
from tumira.core.ids import UploadId
from tumira.core.loops import say_unavailable
from tumira.postgres.pool import Database
from tumira.uploads.send import send_next_chunk

LOOK_S: Final = 0.5
FAILED_S: Final = 2.0

_BEFORE_ALL: Final = UploadId(UUID(int=0))

_log: Final = structlog.get_logger()


async def run_uploader(database: Database) -> None:
    """Send confirmed files until cancelled, alternating between them chunk by chunk."""
    after = _BEFORE_ALL
    while True:
        wait_s = 0.0
        try:
            upload_id = await send_next_chunk(database, after)
        except Exception as error:  # noqa: BLE001 - nothing of the chunk was sent, and it is tried again
            if is_unavailable(error):
                say_unavailable("file not sent", error)
            else:
                _log.error("file not sent", exc_info=error)
            metrics.UPLOAD_CHUNKS.labels("failed").inc()
            upload_id, wait_s = None, FAILED_S
        if upload_id is not None:
            metrics.UPLOAD_CHUNKS.labels("done").inc()
        if upload_id is None and after == _BEFORE_ALL:
            wait_s = max(wait_s, LOOK_S)
        after = upload_id or _BEFORE_ALL
        await asyncio.sleep(wait_s)
