"""Name resolution in threads, so that a slow name server delays nothing else."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

LOOKUP_S: Final = 5.0
# The C library may keep a thread for half a minute when a name server is silent.
LOOKUPS_MAX: Final = 32

_Found = Sequence[str] | OSError


class Resolver:
    """Asks the system's resolver in daemon threads.

    The interpreter waits for the threads of a `ThreadPoolExecutor` when it exits. Requests for the same name
    share one lookup, so that a name whose server is silent takes one thread; beyond the limit a lookup waits
    its turn.
    """

    def __init__(self, *, lookup_s: float = LOOKUP_S, lookups_max: int = LOOKUPS_MAX) -> None:
        self._lookup_s = lookup_s
        self._lookups_max = lookups_max
        self._lookups: dict[str, asyncio.Future[_Found]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return all addresses, in the order in which to try them; raises OSError when there are none."""
        try:
            async with asyncio.timeout(self._lookup_s):
                while host not in self._lookups and len(self._lookups) >= self._lookups_max:
                    await asyncio.wait(self._lookups.values(), return_when=asyncio.FIRST_COMPLETED)
                # The lookup is shared, so it goes on when one of those who wait for it does not.
                found = await asyncio.shield(self._lookups.get(host) or self._begin(host, port))
        except TimeoutError:
            raise TimeoutError(f"{host} did not resolve within {self._lookup_s:g} s") from None
        if isinstance(found, OSError):
            # Each who waits raises an error of its own: a traceback grows with every raise.
            raise type(found)(*found.args)
        return found

    def _begin(self, host: str, port: int) -> asyncio.Future[_Found]:
        loop = asyncio.get_running_loop()
        lookup: asyncio.Future[_Found] = loop.create_future()

        def look_up() -> None:
            found = _look_up(host, port)
            # The loop is closed when the process is about to end; then nobody waits any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, found)

        def finish(found: _Found) -> None:
            del self._lookups[host]
            if not lookup.done():
                lookup.set_result(found)

        try:
            threading.Thread(target=look_up, name=f"resolve {host}", daemon=True).start()
        except RuntimeError as error:
            raise OSError(f"no thread to resolve {host} in: {error}") from error
        self._lookups[host] = lookup
        return lookup


def _look_up(host: str, port: int) -> _Found:
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    except UnicodeError:
        return socket.gaierror(socket.EAI_NONAME, "the name cannot be encoded")
    # The first of a sockaddr is a number where this Python was built without IPv6.
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))
