"""Up to which turn has everything been claimed? Published so that idle accounts enter there."""

import asyncio
from collections.abc import Mapping
from typing import Final

from tumira.delivery.lanes import Floor
from tumira.delivery.store import queue
from tumira.delivery.store.queue import Stand
from tumira.postgres.pool import Database

PUBLISH_S: Final = 0.1


class Clocks:
    """What this worker knows of the clocks of all countries and lanes."""

    def __init__(self) -> None:
        # The highest turns that we have claimed and nobody has been told of.
        self._news: dict[Stand, int] = {}
        self._floors: dict[Stand, Floor] = {}
        self._changed = asyncio.Event()

    def claimed(self, now: float, country: str, lane: int, lowest: int, highest: int) -> None:
        """Note between which turns a claim was."""
        stand = (country, lane)
        self._floor(stand).claimed(now, lowest)
        self._news[stand] = max(highest, self._news.get(stand, highest))
        self._changed.set()

    def begin(self, now: float, country: str, lane: int) -> int:
        """Return the turn from which a claim looks that may take something."""
        return self._floor((country, lane)).begin(now)

    async def publish(self, database: Database) -> None:
        """Wait for news, let everybody know, and rest: at once after a pause, then ten times a second."""
        await self._changed.wait()
        self._changed.clear()
        news, self._news = self._news, {}
        try:
            async with database.connection() as connection:
                clocks = await queue.publish_clocks(connection, news)
        except BaseException:
            self._keep(news)
            raise
        now = asyncio.get_running_loop().time()
        for stand, turn in clocks.items():
            self._floor(stand).published(now, turn)
        await asyncio.sleep(PUBLISH_S)

    def _keep(self, news: Mapping[Stand, int]) -> None:
        for stand, turn in news.items():
            self._news[stand] = max(turn, self._news.get(stand, turn))
        self._changed.set()

    def _floor(self, stand: Stand) -> Floor:
        return self._floors.setdefault(stand, Floor())
