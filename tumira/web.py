"""Which face answers a request? Mounts the web faces and starts the server in front of them."""

import asyncio
import ctypes
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import structlog
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tumira.api.app import Api, request_id
from tumira.api.manual.openapi import document
from tumira.api.manual.reference import STYLESHEET_PATH, reference_page, stylesheet
from tumira.config import Settings
from tumira.errors import Trouble
from tumira.runtime import is_ready
from tumira.store.database import Database

DRAIN_S: Final = 20
FAREWELL_S: Final = 0.2
BACKLOG: Final = 2048

_SO_ATTACH_FILTER: Final = 26
_BPF_RETURN: Final = 0x06

_log: Final = structlog.get_logger()

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Web:
    """The ASGI application: `/api/` goes to the API as it is, the rest to pages."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._api = Api(database, document())
        self._pages = Starlette(
            routes=[
                Route("/", _home),
                Route("/docs", _reference),
                Route(STYLESHEET_PATH, _stylesheet),
                Route("/healthz", _alive),
                Route("/readyz", self._ready),
                Route("/metrics", _metrics),
            ],
            exception_handlers={HTTPException: _page_refused, Exception: _page_failed},
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["path"].startswith("/api/"):
            await self._api(scope, receive, send)
        elif scope["type"] == "http":
            await self._pages(scope, receive, _with_request_id(scope, send))
        else:
            await self._pages(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        yield
        await self._api.close()
        await self._database.close()

    async def _ready(self, _request: Request) -> Response:
        problem = await is_ready(self._database)
        if problem is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready", "problem": problem}, status_code=503)


def _with_request_id(scope: Mapping[str, Any], send: Send) -> Send:
    async def send_with_id(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            identifier = request_id(scope["headers"]).encode()
            event = {**event, "headers": [*event.get("headers", ()), (b"x-request-id", identifier)]}
        await send(event)

    return send_with_id


async def _home(_request: Request) -> Response:
    return RedirectResponse("/docs")


async def _reference(_request: Request) -> Response:
    return HTMLResponse(
        reference_page(),
        headers={
            "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; "
            "form-action 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        },
    )


async def _stylesheet(_request: Request) -> Response:
    return Response(stylesheet(), media_type="text/css", headers={"X-Content-Type-Options": "nosniff"})


async def _alive(_request: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def _metrics(_request: Request) -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


async def _page_refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _page(error.status_code, error.detail, dict(error.headers or {}))


async def _page_failed(_request: Request, error: Exception) -> Response:
    _log.error("page failed", exc_info=error)
    return _page(500, "Something failed on our side", {})


def _page(status: int, title: str, headers: Mapping[str, str]) -> Response:
    html = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{status} {title}</title>'
        f'<h1>{status} {title}</h1><p><a href="/docs">The API reference</a></p></html>'
    )
    return HTMLResponse(html, status, headers=headers)


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


class _Server(uvicorn.Server):
    """uvicorn, with an end that cuts nobody off whose request is on its way."""

    def __init__(self, config: uvicorn.Config, say_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._say_started = say_started

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM as the wish to stop, and as nothing else."""
        with super().capture_signals():
            yield
            # uvicorn would raise them again now that all is done, and we would seem to have been killed.
            self._captured_signals.clear()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, and say so."""
        await super().startup(sockets)
        self._say_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was sent, then let uvicorn close the connections and wait for the calls under way."""
        # The list is shared by the calls under way. Who is told to close does not send another request on a
        # connection that we are about to close ourselves.
        self.server_state.default_headers.append((b"connection", b"close"))
        await asyncio.sleep(FAREWELL_S)
        for listening in sockets or ():
            _refuse_newcomers(listening)
        # Those who had connected are accepted, and their requests read.
        await asyncio.sleep(FAREWELL_S)
        await super().shutdown(sockets)


def _refuse_newcomers(listening: socket.socket) -> None:
    """Ignore new connections while those that wait to be accepted stay; closing would cut these off."""
    if sys.platform != "linux":
        return
    # A packet filter of one instruction, `return 0`: keep no byte of any packet. A client that meets it tries
    # again after a second and then finds the port closed.
    program = ctypes.create_string_buffer(struct.pack("HBBI", _BPF_RETURN, 0, 0, 0))
    filters = struct.pack("HP", 1, ctypes.addressof(program))
    with suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filters)


async def run_web(
    settings: Settings, url: str, listening: socket.socket, say_started: Callable[[], None]
) -> None:
    """Serve until told to stop, then let the calls under way finish."""
    server = _Server(
        uvicorn.Config(
            Web(Database(url)),
            http="httptools",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=settings.trusted_proxies or None,
            timeout_graceful_shutdown=DRAIN_S,
        ),
        say_started,
    )
    await server.serve(sockets=[listening])
