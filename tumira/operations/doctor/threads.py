"""Work that may hang in the kernel, in threads that nobody waits for."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

Result = TypeVar("Result")


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run a function in a daemon thread: a disk that hangs must not keep the command from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def finish(result: Result | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("Result", result))

    def run() -> None:
        result, failed = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failed = error
        # The loop is closed when the command is about to end; then nobody waits any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(finish, result, failed)

    threading.Thread(target=run, daemon=True).start()
    return await future
