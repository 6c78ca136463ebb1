"""The HTTP server: takes the port, and shuts down without cutting off a request."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

import uvicorn

from tumira.core.errors import port_error
from tumira.core.settings import Settings
from tumira.core.shutdown import Stopping
from tumira.direct_cycle import CLOSE
from tumira.http_protocol import CROWDED, HttpProtocol, connections_max

DRAIN_S: Final = 20
FAREWELL_S: Final = 0.5
BACKLOG: Final = 2048
# The server looks ten times a second whether to stop, and every tenth time who takes too long.
TICKS_PER_CHECK: Final = 10


def listen(settings: Settings) -> socket.socket:
    """Take the port, or refuse with the name of the setting to change."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        # Python adds the address to the system's words, and it stands in ours already.
        reason = str(getattr(error, "strerror", None) or error).partition(" (while ")[0]
        raise port_error(
            error,
            f"Port {settings.port} on {settings.host} cannot be used ({reason}): "
            "stop what uses it, or set TUMIRA_PORT or TUMIRA_HOST.",
        ) from error


class _Server(uvicorn.Server):
    """uvicorn, with a shutdown that cuts off no request."""

    def __init__(
        self, config: uvicorn.Config, stopping: Stopping, say_started: Callable[[], None], drain_wait_s: float
    ) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._say_started = say_started
        self._drain_wait_s = drain_wait_s
        self._has_served = False
        self._until: float | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `Stopping`."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Tell, ten times a second, whether to stop: it was requested, and balancers have had their time."""
        if counter % TICKS_PER_CHECK == 0:
            self._check_times()
        if await super().on_tick(counter):
            return True
        if not self._stopping:
            self._has_served = True
            return False
        self._let_go_after_answers()
        now = asyncio.get_running_loop().time()
        if self._until is None:
            # Nobody was sent to a node that was asked to stop before it had started.
            self._until = now + (self._drain_wait_s if self._has_served else 0)
        return self._stopping.is_urgent or now >= self._until

    def _check_times(self) -> None:
        """Disconnect clients that take too long to send a request or to read an answer."""
        now = asyncio.get_running_loop().time()
        connections = cast("set[HttpProtocol]", self.server_state.connections)
        crowded = len(connections) > CROWDED * HttpProtocol.connections_max
        for connection in list(connections):
            connection.check_time(now, crowded=crowded)

    def _let_go_after_answers(self) -> None:
        """Have every answer from now on close its connection.

        A client that reads `Connection: close` sends no other request on a connection that we are about to
        close; its next request goes to the node that a balancer chooses.
        """
        # The list is shared by the calls under way, and made anew every second.
        if CLOSE not in self.server_state.default_headers:
            self.server_state.default_headers.append(CLOSE)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, and report it."""
        await super().startup(sockets)
        self._say_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, answer connected clients, then let uvicorn close and wait for the rest."""
        self._let_go_after_answers()
        loop = asyncio.get_running_loop()
        for connected in self._close_port(sockets or []):
            await loop.connect_accepted_socket(self._protocol, connected)
        # What they have sent is read meanwhile; uvicorn closes whoever has asked for nothing until then.
        await asyncio.sleep(FAREWELL_S)
        await super().shutdown(sockets)

    def _close_port(self, sockets: list[socket.socket]) -> list[socket.socket]:
        """Stop accepting, and return the connections that wait to be accepted.

        The kernel would cut them off.
        """
        waiting: list[socket.socket] = []
        for listening in sockets:
            with suppress(OSError):
                while len(waiting) < BACKLOG:
                    waiting.append(listening.accept()[0])
        for server in self.servers:
            server.close()
        return waiting

    def _protocol(self) -> asyncio.Protocol:
        return HttpProtocol(self.config, self.server_state, self.lifespan.state)


async def serve(
    app: Any,
    listening: socket.socket,
    settings: Settings,
    stopping: Stopping,
    say_started: Callable[[], None],
) -> None:
    """Serve until told to stop and for the time that balancers need; then let requests under way finish."""
    HttpProtocol.connections_max = connections_max()
    server = _Server(
        uvicorn.Config(
            app,
            http=HttpProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=settings.trusted_proxies or None,
            timeout_graceful_shutdown=DRAIN_S,
        ),
        stopping,
        say_started,
        settings.drain_wait_s,
    )
    await server.serve(sockets=[listening])
