"""Who runs the audits that were asked for? One worker at a time, beside everything else it does."""

import asyncio
from typing import Final

import structlog

from tumira.core.loops import say_unavailable
from tumira.operations import run_audit
from tumira.postgres.pool import Database, is_unavailable

LOOK_S: Final = 5

_log: Final = structlog.get_logger()


async def run_auditor(database: Database) -> None:
    """Run audits until cancelled; one that was begun is then left to another worker."""
    while True:
        try:
            if await run_audit.run_next(database):
                _log.info("audit done")
        except Exception as error:  # noqa: BLE001 - one that fails is begun again
            if is_unavailable(error):
                say_unavailable("audit not run", error)
            else:
                _log.error("audit failed", exc_info=error)
        await asyncio.sleep(LOOK_S)
