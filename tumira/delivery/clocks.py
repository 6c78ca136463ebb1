"""Turn clocks: the highest turn claimed in each queue and lane, where idle accounts enter."""

import asyncio
from collections.abc import Mapping
from typing import Final

from tumira.delivery.lanes import Floor
from tumira.delivery.store import queue
from tumira.delivery.store.queue import LaneKey
from tumira.postgres.pool import Database

# At once after a pause, then ten times a second.
PUBLISH_S: Final = 0.1


class Clocks:
    def __init__(self) -> None:
        # The highest turns that this worker claimed and has not published.
        self._unpublished: dict[LaneKey, int] = {}
        self._floors: dict[LaneKey, Floor] = {}
        self._changed = asyncio.Event()

    def claimed(self, now: float, queue_name: str, lane: int, lowest: int, highest: int) -> None:
        lane_key = (queue_name, lane)
        self._floor(lane_key).claimed(now, lowest)
        self._unpublished[lane_key] = max(highest, self._unpublished.get(lane_key, highest))
        self._changed.set()

    def begin(self, now: float, queue_name: str, lane: int) -> int:
        return self._floor((queue_name, lane)).begin(now)

    async def publish(self, database: Database) -> None:
        """Wait for a change and publish it."""
        await self._changed.wait()
        self._changed.clear()
        unpublished, self._unpublished = self._unpublished, {}
        try:
            async with database.connection() as connection:
                clocks = await queue.publish_clocks(connection, unpublished)
        except BaseException:
            self._keep(unpublished)
            raise
        now = asyncio.get_running_loop().time()
        for lane_key, turn in clocks.items():
            self._floor(lane_key).published(now, turn)

    def _keep(self, unpublished: Mapping[LaneKey, int]) -> None:
        for lane_key, turn in unpublished.items():
            self._unpublished[lane_key] = max(turn, self._unpublished.get(lane_key, turn))
        self._changed.set()

    def _floor(self, lane_key: LaneKey) -> Floor:
        return self._floors.setdefault(lane_key, Floor())
