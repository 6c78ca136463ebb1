"""Has somebody asked us to stop? Signals are noted, and whoever waits looks."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Final

LOOK_S: Final = 0.1


class Stopping:
    """The wish to stop, from Ctrl-C or SIGTERM; true once there is one, and more urgent with the second.

    A handler that raised would interrupt whatever happens to run, and a fork, a collection of garbage and
    some libraries swallow what is raised in them: the wish would be lost.
    """

    def __init__(self) -> None:
        self._wishes = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            # Also where a shell has us ignore Ctrl-C.
            signal.signal(number, self._note)

    def _note(self, _number: int, _frame: object) -> None:
        self._wishes += 1

    def __bool__(self) -> bool:
        """Tell whether we are to stop."""
        return self._wishes > 0

    @property
    def is_urgent(self) -> bool:
        """Tell whether we were asked more than once: nothing is waited for that only others would like."""
        return self._wishes > 1

    def heed(self) -> None:
        """Be interrupted here, if we are to stop."""
        if self._wishes:
            raise KeyboardInterrupt

    async def wait(self) -> None:
        """Wait until we are to stop."""
        while not self._wishes:  # noqa: ASYNC110 - nothing of a loop may be called where a signal is noted
            await asyncio.sleep(LOOK_S)

    async def cancel(self, work: Coroutine[Any, Any, None]) -> None:
        """Do some work to its end, or cancel it when we are to stop."""
        task = asyncio.create_task(work)
        wish = asyncio.create_task(self.wait())
        await asyncio.wait([task, wish], return_when=asyncio.FIRST_COMPLETED)
        for one in (task, wish):
            one.cancel()
        await asyncio.wait([task, wish])
        if not task.cancelled():
            task.result()
