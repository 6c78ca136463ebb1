"""Shutdown: signals are recorded, and loops check for them."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final

LOOK_S: Final = 0.1


class Stopping:
    """The request to stop, from Ctrl-C or SIGTERM; a second signal makes it urgent.

    A signal handler that raised could interrupt any code, and a fork, the garbage collector and some
    libraries swallow exceptions that are raised in them: the request would be lost.
    """

    def __init__(self) -> None:
        self._wishes = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            # Also where a shell has us ignore Ctrl-C.
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: object) -> None:
        self._wishes += 1

    def __bool__(self) -> bool:
        return self._wishes > 0

    @property
    def is_urgent(self) -> bool:
        """Tell whether there were several signals: then waits for balancers are left out."""
        return self._wishes > 1

    def heed(self) -> None:
        """Raise KeyboardInterrupt if a stop was requested."""
        if self._wishes:
            raise KeyboardInterrupt

    async def wait(self) -> None:
        while not self._wishes:  # noqa: ASYNC110 - nothing of a loop may be called where a signal is noted
            await asyncio.sleep(LOOK_S)

    async def cancel(self, work: Coroutine[Any, Any, None]) -> None:
        """Run some work to its end, or cancel it when a stop is requested."""
        task = asyncio.create_task(work)
        wish = asyncio.create_task(self.wait())
        await asyncio.wait([task, wish], return_when=asyncio.FIRST_COMPLETED)
        for one in (task, wish):
            one.cancel()
        await asyncio.wait([task, wish])
        if not task.cancelled():
            task.result()
