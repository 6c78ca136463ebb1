"""Empties the handsets once the simulator is no longer a carrier: their texts hold passcodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import asyncpg

from tumira.carriers import store as carriers
from tumira.core.database_errors import UNAVAILABLE
from tumira.core.loops import forever, say_unavailable
from tumira.postgres.pool import Database
from tumira.simulator import handsets

LOOK_S: Final = 2.0
WAIT_S: Final = 1.0


class Cleanup:
    """Watches whether the simulator is a carrier, for the handsets of one node.

    They are emptied once each time it is removed. Texts that arrive later come from a simulator that the
    operator runs and connects by hand, and stay.
    """

    def __init__(self, database: Database, directory: Path) -> None:
        self._database = database
        self._directory = directory
        self._looking = asyncio.Lock()
        # Says that they were emptied since the simulator was last a carrier; it outlives this process.
        self._mark = directory / "emptied"

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Check repeatedly for as long as this lasts."""
        looking = asyncio.create_task(forever("check the handsets", self.look_soon, LOOK_S))
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def look_soon(self) -> None:
        """Empty the handsets if the simulator was removed; an unavailable database leaves them unchanged."""
        try:
            async with asyncio.timeout(WAIT_S):
                await self.look()
        except (*UNAVAILABLE, asyncpg.PostgresError) as error:
            say_unavailable("could not check whether handsets are to be emptied", error)

    async def look(self) -> None:
        # One look after the other: what an earlier one has seen shall not be carried out later.
        async with self._looking:
            async with self._database.connection() as connection:
                is_active, is_bound = await carriers.simulator_use(connection)
            await asyncio.to_thread(self._follow, is_active=is_active, is_bound=is_bound)

    def _follow(self, *, is_active: bool, is_bound: bool) -> None:
        if is_active:
            with suppress(FileNotFoundError):
                self._mark.unlink()
        elif not self._mark.exists():
            handsets.empty(self._directory)
            # As long as a worker is bound, what it claimed before may still arrive.
            if not is_bound:
                handsets.make_directory(self._directory)
                self._mark.touch(mode=0o600)
