"""The web process: sends each request to the API, the dashboard, the console or the simulator."""

import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

import asyncpg
from msgspec import to_builtins
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from structlog.contextvars import bind_contextvars

from tumira import server
from tumira.api.app import Api, request_id
from tumira.api.docs.openapi import document
from tumira.api.docs.pages import DocsPages, SimulatedNumber
from tumira.api.envelope import HTTPS_ONLY, NO_SNIFFING
from tumira.console.app import Console
from tumira.console.pages.carrier_hooks import CarrierHooks
from tumira.content.classifier import classify
from tumira.core import metrics
from tumira.core.database_errors import UNAVAILABLE
from tumira.core.settings import KEEP_WEEKS, Settings
from tumira.core.settings.payments import Payments
from tumira.core.settings.seller import NO_SELLER, Seller
from tumira.core.settings.support import NO_SUPPORT, Support
from tumira.core.shutdown import Stopping
from tumira.core.tracing import Tracer, tracing
from tumira.dashboard.app import Dashboard
from tumira.dashboard.pages import paynow_notice as hooks
from tumira.html.page import asset_route
from tumira.identity.code_rules import CodeLimits
from tumira.identity.passwords import HashingBusyError
from tumira.operations.doctor.mirror import HEADER, describe_request
from tumira.operations.metrics_page import Scrape
from tumira.postgres.pool import PLANNED_ONCE, Database
from tumira.runtime import heartbeat, is_ready, known_problems
from tumira.sending.direct.claims import DirectClaims
from tumira.simulator.handsets import directory_in
from tumira.simulator.numbers import OUTCOMES
from tumira.simulator.pages import SimulatorPages

# Below this, a compressed answer is hardly smaller.
COMPRESSED_MIN: Final = 1_000
CODE_LIMITS: Final = CodeLimits()
NO_PAYMENTS: Final = Payments()
# Which parts of the address are told apart when requests are counted.
FACES: Final = frozenset(
    {"dashboard", "operator", "hooks", "simulator", "docs", "metrics", "healthz", "readyz"}
)
HEARTBEAT_S: Final = 30
TEST_NUMBERS: Final = [SimulatedNumber(one.ending, one.what_happens, one.status) for one in OUTCOMES]

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Web:
    """The ASGI application: `/api/` goes to the API as it is, the rest to pages."""

    def __init__(
        self,
        database: Database,
        simulator: SimulatorPages | None = None,
        *,
        public_url: str = "",
        code_limits: CodeLimits = CODE_LIMITS,
        webhooks_allow_private: bool = False,
        payments: Payments = NO_PAYMENTS,
        support: Support = NO_SUPPORT,
        keep_weeks: int | None = KEEP_WEEKS,
        seller: Seller = NO_SELLER,
        mail_is_set_up: bool = False,
        data_dir: Path | None = None,
        carrier_proxy: str | None = None,
        tracer: Tracer | None = None,
        is_draining: Callable[[], bool] = lambda: False,
        workers_in: Path | None = None,
    ) -> None:
        self._database = database
        self._simulator = simulator
        self._is_draining = is_draining
        self._is_https = public_url.startswith("https:")
        self._claims = DirectClaims(workers_in, database.url)
        self._api = Api(database, document(), tracer, is_https=self._is_https, claims=self._claims)
        # For sends that the server need not pass through ASGI.
        self.take_send: Final = self._api.take_send
        self._scrape = Scrape(database, self._api.services.batcher, data_dir)
        dashboard = Dashboard(
            database,
            self._api.services.batcher,
            public_url=public_url,
            code_limits=code_limits,
            webhooks_allow_private=webhooks_allow_private,
            payments=payments,
            support=support,
            keep_weeks=keep_weeks,
            seller=seller,
            mail_is_set_up=mail_is_set_up,
        )
        console = Console(
            database,
            public_url=public_url,
            payments=payments,
            support=support,
            data_dir=data_dir,
            carrier_proxy=carrier_proxy,
            seller=seller,
        )
        self._carrier_hooks = CarrierHooks(database, public_url)
        docs = DocsPages(database, public_url, TEST_NUMBERS, support)
        self._pages = Starlette(
            routes=[
                *docs.routes(),
                Route("/healthz", self._alive),
                Route("/readyz", self._ready),
                Route("/metrics", self._metrics),
                *(simulator.routes() if simulator else ()),
                *dashboard.routes(),
                *console.routes(),
                *hooks.routes(database, payments),
                *self._carrier_hooks.routes(),
                asset_route(dashboard.assets, console.assets, docs.assets),
            ],
            middleware=[Middleware(GZipMiddleware, minimum_size=COMPRESSED_MIN, compresslevel=6)],
            # A fault of ours is also logged by whoever serves us; a database that is away is none.
            exception_handlers={
                HTTPException: dashboard.refuse,
                # Also how a missing partition is reported.
                **dict.fromkeys(
                    (HashingBusyError, *UNAVAILABLE, asyncpg.CheckViolationError), dashboard.fail
                ),
                Exception: dashboard.fail,
            },
            lifespan=self._lifespan,
        )
        # With a slash too many it is no page; a redirect would go where the header named Host says.
        self._pages.router.redirect_slashes = False

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["raw_path"].startswith(b"/api/"):
            await self._api(scope, receive, send)
        elif scope["type"] == "http":
            identifier = request_id(scope["headers"])
            bind_contextvars(request_id=identifier)
            is_https = self._is_https or scope["scheme"] == "https"
            send = _named_and_counted(scope["path"], identifier, send, is_https=is_https)
            if scope["path"] == "*":
                await _OPTIONS(scope, receive, send)
            else:
                await self._pages(_spelt_as_meant(scope), receive, send)
        else:
            await self._pages(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        async with (
            heartbeat(self._database, "web", HEARTBEAT_S),
            self._carrier_hooks.running(),
            self._claims.running(),
            self._simulator.cleanup.running() if self._simulator else nullcontext(),
        ):
            yield
        await self._api.close()
        await self._database.close()

    async def _alive(self, request: Request) -> Response:
        seen = await describe_request(self._database, request.scope) if HEADER in request.headers else None
        return JSONResponse({"status": "alive"} | ({"seen": to_builtins(seen)} if seen else {}))

    async def _ready(self, _request: Request) -> Response:
        if self._is_draining():
            gone = {"status": "draining", "problem": "This node was asked to stop; use another."}
            return JSONResponse(gone, status_code=503)
        problem = await is_ready(self._database)
        if problem is not None:
            return JSONResponse({"status": "not ready", "problem": problem}, status_code=503)
        # No other node would do better, so a balancer shall not take this one away.
        known = await known_problems(self._database)
        return JSONResponse({"status": "ready"} | ({"problem": " ".join(known)} if known else {}))

    async def _metrics(self, _request: Request) -> Response:
        return Response(await self._scrape.page(), media_type=CONTENT_TYPE_LATEST)


def _spelt_as_meant(scope: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Find nothing where the first part of a path has percent-escapes.

    No page links to `/%6detrics`; such a request wants to get past a proxy that refuses `/metrics`.
    """
    first, _, _ = scope["raw_path"][1:].partition(b"/")
    return {**scope, "path": "/%"} if b"%" in first else scope


def _named_and_counted(path: str, identifier: str, send: Send, *, is_https: bool) -> Send:
    """Add the request id and security headers to an answer, and count it."""
    began = time.perf_counter()
    first, _, _ = path[1:].partition("/")
    face = first if first in FACES else "other"

    async def send_on(event: MutableMapping[str, Any]) -> None:
        if event["type"] == "http.response.start":
            headers = [*event.get("headers", ()), (b"x-request-id", identifier.encode())]
            if NO_SNIFFING not in headers:
                headers.append(NO_SNIFFING)
            if is_https:
                headers.append(HTTPS_ONLY)
            event = {**event, "headers": headers}
            metrics.PAGES.labels(face, event["status"]).inc()
            metrics.PAGE_SECONDS.labels(face).observe(time.perf_counter() - began)
        await send(event)

    return send_on


# What the server as a whole can do; nobody needs to know, but HTTP has the question.
_OPTIONS: Final = Response(status_code=204, headers={"Allow": "GET, HEAD, POST, OPTIONS"})


async def run_web(
    settings: Settings,
    url: str,
    listening: socket.socket,
    stopping: Stopping,
    say_started: Callable[[], None],
) -> None:
    """Serve until told to stop."""
    # What it learnt takes a tenth of a second to read, and nobody shall wait for that.
    classify("")
    database = Database(url, settings=PLANNED_ONCE)
    simulator = None
    if settings.simulator_port is not None:
        simulator = SimulatorPages(
            directory_in(settings.data_dir),
            settings.simulator_port,
            database,
            is_public=settings.simulator_public,
        )
    async with tracing(settings.tracing, "web") as tracer:
        web = Web(
            database,
            simulator,
            public_url=settings.public_url,
            code_limits=CodeLimits(settings.codes_per_address, settings.codes_per_hour),
            webhooks_allow_private=settings.webhooks_allow_private,
            payments=settings.payments,
            support=settings.support,
            keep_weeks=settings.keep_weeks,
            seller=settings.seller,
            mail_is_set_up=settings.smtp is not None,
            data_dir=settings.data_dir,
            carrier_proxy=settings.carrier_proxy,
            tracer=tracer,
            is_draining=lambda: bool(stopping),
            workers_in=settings.data_dir,
        )
        await server.serve(web, listening, settings, stopping, say_started)
