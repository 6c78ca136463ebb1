"""Up to which turn has everything been claimed? Published so that idle accounts enter there."""

import asyncio
from collections.abc import Mapping
from typing import Final

from tumira.delivery.lanes import Floor
from tumira.delivery.store import queue
from tumira.delivery.store.queue import LaneKey
from tumira.postgres.pool import Database

PUBLISH_S: Final = 0.1


class Clocks:
    """What this worker knows of the clocks of all countries and lanes."""

    def __init__(self) -> None:
        # The highest turns that we have claimed and nobody has been told of.
        self._unpublished: dict[LaneKey, int] = {}
        self._floors: dict[LaneKey, Floor] = {}
        self._changed = asyncio.Event()

    def claimed(self, now: float, country: str, lane: int, lowest: int, highest: int) -> None:
        """Note between which turns a claim was."""
        lane_key = (country, lane)
        self._floor(lane_key).claimed(now, lowest)
        self._unpublished[lane_key] = max(highest, self._unpublished.get(lane_key, highest))
        self._changed.set()

    def begin(self, now: float, country: str, lane: int) -> int:
        """Return the turn from which a claim looks that may take something."""
        return self._floor((country, lane)).begin(now)

    async def publish(self, database: Database) -> None:
        """Wait for news, let everybody know, and rest: at once after a pause, then ten times a second."""
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
        await asyncio.sleep(PUBLISH_S)

    def _keep(self, unpublished: Mapping[LaneKey, int]) -> None:
        for lane_key, turn in unpublished.items():
            self._unpublished[lane_key] = max(turn, self._unpublished.get(lane_key, turn))
        self._changed.set()

    def _floor(self, lane_key: LaneKey) -> Floor:
        return self._floors.setdefault(lane_key, Floor())
