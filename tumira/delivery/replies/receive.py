"""Stores what carriers deliver, exactly once.

A carrier delivers a part again if it did not get our acknowledgement. So the same part again counts once,
until it is sure that the carrier has the acknowledgement: the connection on which it was sent has lasted for
some seconds more. Over HTTP nobody can know that: there the carrier's id of the reply counts, or else some
minutes.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog
from msgspec import Struct

from tumira.core.database_errors import is_unavailable
from tumira.delivery.replies import store
from tumira.delivery.replies.parts import ReplyPart
from tumira.delivery.smpp.session import SmppSession
from tumira.postgres.connection import Connection
from tumira.postgres.pool import BUSY, Database

GROUP_MAX: Final = 200
SURE_S: Final = 5.0
PAUSE_S: Final = 0.2
# Within this time a text without an id is taken for the one before.
SAME_AGAIN: Final = timedelta(minutes=10)

_log: Final = structlog.get_logger()


async def store_replies(
    connection: Connection, carrier_id: int, replies: Sequence[ReplyPart], received_at: datetime
) -> int:
    """Store replies that a carrier delivered over HTTP, and return how many were new.

    It comes last in its transaction, because it waits for others that store replies of this carrier. Answer
    the carrier after the commit.
    """
    return await store.insert_parts(
        connection,
        carrier_id,
        [(one, received_at, None if one.carrier_ref else received_at + SAME_AGAIN) for one in replies],
    )


class _Delivery(Struct, frozen=True, gc=False):
    part: ReplyPart
    received_at: datetime
    session: SmppSession
    token: object


class ReplyRecorder:
    """Stores the replies of one carrier's connections, and acknowledges them after the commit."""

    def __init__(self, database: Database, carrier_id: int) -> None:
        self._database = database
        self._carrier_id = carrier_id
        self._waiting: deque[_Delivery] = deque()
        # Acknowledged, and when; not sure yet.
        self._acknowledged: deque[tuple[float, SmppSession, bytes]] = deque()
        self._arrived = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def receive(self, part: ReplyPart, received_at: datetime, session: SmppSession, token: object) -> None:
        self._waiting.append(_Delivery(part, received_at, session, token))
        self._arrived.set()
        if self._task is None:
            # Most carriers never deliver one.
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(SURE_S if self._acknowledged else None):
                    await self._arrived.wait()
            except TimeoutError:
                pass
            group = [self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting)))]
            if not self._waiting:
                self._arrived.clear()
            if group:
                await self._store(group)
            await self._mark_sure()

    async def _store(self, group: Sequence[_Delivery]) -> None:
        while True:
            try:
                async with self._database.transaction() as connection:
                    await store.insert_parts(
                        connection, self._carrier_id, [(one.part, one.received_at, None) for one in group]
                    )
            except Exception as error:  # noqa: BLE001 - the carrier keeps what is not acknowledged
                if is_unavailable(error) or isinstance(error, BUSY):
                    await asyncio.sleep(PAUSE_S)
                elif len(group) == 1:
                    _log.error("could not store a reply", exc_info=error)
                    return
                else:
                    for one in group:
                        await self._store([one])
                    return
            else:
                self._acknowledge(group)
                return

    def _acknowledge(self, group: Sequence[_Delivery]) -> None:
        now = self._loop.time()
        for one in group:
            one.session.acknowledge([one.token])
            self._acknowledged.append((now, one.session, one.part.digest))

    async def _mark_sure(self) -> None:
        """Note which acknowledgements have reached the carrier; those of an ended connection may not have."""
        before = self._loop.time() - SURE_S
        sure: list[bytes] = []
        while self._acknowledged and self._acknowledged[0][0] <= before:
            _, session, digest = self._acknowledged.popleft()
            if not session.ended:
                sure.append(digest)
        if not sure:
            return
        try:
            async with self._database.connection() as connection:
                await store.mark_sure(connection, self._carrier_id, sure)
        except Exception as error:  # noqa: BLE001 - the same text again within days is then taken for this one
            _log.warning("could not mark replies as acknowledged", error=repr(error))
