"""Up to which turn has everything been claimed? Published so that idle accounts enter there."""

import asyncio
from collections import deque
from typing import Final

from tumira.store import queue
from tumira.store.database import Database
from tumira.store.queue import Stand

PUBLISH_S: Final = 0.1
FLOOR_AGE_S: Final = 5.0
SWEEP_S: Final = 10.0
BOTTOM: Final = -(2**63)


class Clocks:
    """What this worker knows of the clocks of all countries and lanes."""

    def __init__(self) -> None:
        self._claimed: dict[Stand, int] = {}
        self._published: dict[Stand, int] = {}
        # The clock as it was lately, oldest first, for the floor below which nothing new appears.
        self._history: dict[Stand, deque[tuple[float, int]]] = {}
        self._swept_at: dict[Stand, float] = {}

    def claimed(self, country: str, lane: int, turn: int) -> None:
        """Note the highest turn of a claim."""
        stand = (country, lane)
        if turn > self._claimed.get(stand, BOTTOM):
            self._claimed[stand] = turn

    def floor(self, country: str, lane: int, now: float) -> int:
        """Return the turn at which a claim begins to look; now and then that is the very bottom.

        What a long transaction stores late, or comes back unsent, may stand below the floor.
        """
        stand = (country, lane)
        if now - self._swept_at.get(stand, -SWEEP_S) >= SWEEP_S:
            self._swept_at[stand] = now
            return BOTTOM
        history = self._history.get(stand)
        if not history:
            return BOTTOM
        while len(history) > 1 and history[1][0] <= now - FLOOR_AGE_S:
            history.popleft()
        return history[0][1] if history[0][0] <= now - FLOOR_AGE_S else BOTTOM

    async def publish(self, database: Database) -> None:
        """Let everybody know how far we are, and learn how far the others are."""
        news = {
            stand: turn for stand, turn in self._claimed.items() if turn > self._published.get(stand, BOTTOM)
        }
        if not news:
            return
        async with database.connection() as connection:
            turns = await queue.publish_clocks(connection, news)
        now = asyncio.get_running_loop().time()
        for stand, turn in turns.items():
            self._published[stand] = turn
            self._history.setdefault(stand, deque()).append((now, turn))
