"""How does the HTTP server begin and end? It takes the port, and at the end cuts nobody off."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tumira.config import Settings
from tumira.errors import Trouble
from tumira.stopping import Stopping

DRAIN_S: Final = 20
FAREWELL_S: Final = 0.5
BACKLOG: Final = 2048


def listen(settings: Settings) -> socket.socket:
    """Take the port, or say who should let go of it."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        # Python adds the address to the system's words, and it stands in ours already.
        reason = str(getattr(error, "strerror", None) or error).partition(" (while ")[0]
        raise Trouble(
            f"Port {settings.port} on {settings.host} cannot be used ({reason}): "
            "stop what uses it, or set TUMIRA_PORT or TUMIRA_HOST."
        ) from error


class _Together:
    """A connection on which all that is written in one turn of the event loop leaves together.

    uvicorn writes the head of an answer and then its body; as two packets they cost us a call to the kernel
    and the client a second look.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._written: list[bytes] = []
        self._soon = asyncio.get_running_loop().call_soon

    def write(self, data: bytes) -> None:
        if not self._written:
            self._soon(self._flush)
        self._written.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._written:
            together = b"".join(self._written)
            self._written.clear()
            self._transport.write(together)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol on such connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin a connection."""
        together = _Together(cast("asyncio.Transport", transport))
        super().connection_made(cast("asyncio.Transport", together))


class _Server(uvicorn.Server):
    """uvicorn, with an end that cuts nobody off whose request is on its way."""

    def __init__(self, config: uvicorn.Config, stopping: Stopping, say_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._say_started = say_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to those who note them."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Tell, ten times a second, whether it is time to stop."""
        return await super().on_tick(counter) or bool(self._stopping)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, and say so."""
        await super().startup(sockets)
        self._say_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was sent before we were asked to stop, then let uvicorn close and wait for the rest."""
        # The list is shared by the calls under way. Who is told to close does not send another request on a
        # connection that we are about to close ourselves.
        self.server_state.default_headers.append((b"connection", b"close"))
        # Those who had connected are accepted meanwhile, and their requests read.
        await asyncio.sleep(FAREWELL_S)
        await super().shutdown(sockets)


async def serve(
    app: Any,
    listening: socket.socket,
    trusted_proxies: str,
    stopping: Stopping,
    say_started: Callable[[], None],
) -> None:
    """Serve until told to stop, then let the calls under way finish."""
    server = _Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=trusted_proxies or None,
            timeout_graceful_shutdown=DRAIN_S,
        ),
        stopping,
        say_started,
    )
    await server.serve(sockets=[listening])
