"""The ASGI application under `/api/`: routes requests to endpoints and sends every answer, refusals included.

The send endpoint takes thousands of calls a second, so this is ASGI without a framework: its request and
response objects would cost more than the call (docs/decisions/0003).
"""

import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final

import structlog
from structlog.contextvars import bind_contextvars

from tumira.api import schemas
from tumira.api.callers import Callers
from tumira.api.endpoints import (
    ENDPOINTS,
    ApiEndpoint,
    ApiRequest,
    ApiServices,
    answer_send,
    read_call,
)
from tumira.api.envelope import HTTPS_ONLY, JSON, NO_SNIFFING, Answer, Header, refuse
from tumira.core import metrics
from tumira.core.database_errors import is_unavailable
from tumira.core.errors import InternalError, MethodNotAllowed, NotFound, Refusal, ServiceUnavailable
from tumira.core.ids import new_request_id
from tumira.core.tracing import Tracer
from tumira.postgres.pool import Database
from tumira.sending.batcher import Batcher
from tumira.sending.direct.claims import DirectClaims
from tumira.sending.types import Decision

PREFIX: Final = "/api/v1"
DOCUMENT_PATH: Final = PREFIX + "/openapi.json"
SEND_PATH: Final = PREFIX + "/messages"

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_log: Final = structlog.get_logger()

# Looking a labelled metric up costs more than counting.
_counted: Final = lru_cache(1024)(metrics.CALLS.labels)
_refused: Final = lru_cache(64)(metrics.REFUSALS.labels)
_timed: Final = lru_cache(64)(metrics.CALL_SECONDS.labels)

Scope = Mapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
# Writes the status, the headers and the body of an answer.
Write = Callable[[int, Sequence[Header], bytes], None]


def request_id(headers: Sequence[Header]) -> str:
    """Return the caller's id of this request if its characters are safe, else a new id."""
    for name, value in headers:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return value.decode("ascii")
    return new_request_id(time.time_ns() // 1_000_000)


class Api:
    def __init__(
        self,
        database: Database,
        document: bytes,
        tracer: Tracer | None = None,
        *,
        is_https: bool = False,
        claims: DirectClaims | None = None,
    ) -> None:
        self.services = ApiServices(
            database, Callers(database), Batcher(database, schemas.write_sent, claims), tracer
        )
        self._document = document
        # Whether callers use https, also if the proxy does not say so.
        self._is_https = is_https
        self._exact = {
            (endpoint.method, PREFIX + endpoint.path): endpoint
            for endpoint in ENDPOINTS
            if not endpoint.path.endswith("/{id}")
        }
        self._by_id = {
            (endpoint.method, PREFIX + endpoint.path.removesuffix("{id}")): endpoint
            for endpoint in ENDPOINTS
            if endpoint.path.endswith("/{id}")
        }

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        began = time.perf_counter()
        operation, answer, identifier = await self._answer(scope, receive)
        headers = self._headers(answer, identifier, is_https=scope["scheme"] == "https")
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        _count(operation, answer, time.perf_counter() - began)

    def take_send(self, headers: Sequence[Header], body: bytes, write: Write) -> bool:
        """Take a send that has come whole, and write its answer later; False if it must go through ASGI.

        That is so if the key is not known yet, or if a proxy decides about the answer's headers.
        """
        began, began_ns = time.perf_counter(), time.time_ns()
        request = ApiRequest(request_id(headers), "", headers, _receive_nothing, "")
        if not self._is_https and request.header(b"x-forwarded-proto") is not None:
            return False
        secret = self.services.callers.find_known(request.header(b"authorization"))
        if secret is None:
            return False
        try:
            call = read_call(secret, request, body)
        except Exception:  # noqa: BLE001 - it fails again on the other way, where that is logged
            return False

        def answer_it(decision: Decision) -> None:
            try:
                answer = answer_send(self.services, request, decision, began_ns)
            except Exception as error:  # noqa: BLE001 - as for every other call
                answer = _failed(error, request.id, SEND_PATH)
            write(answer.status, self._headers(answer, request.id, is_https=False), answer.body)
            _count(ENDPOINTS[0].operation, answer, time.perf_counter() - began)

        self.services.batcher.submit(call, answer_it)
        return True

    def _headers(self, answer: Answer, identifier: str, *, is_https: bool) -> Sequence[Header]:
        return [
            (b"content-type", JSON),
            (b"content-length", b"%d" % len(answer.body)),
            (b"cache-control", b"no-store"),
            (b"x-request-id", identifier.encode()),
            NO_SNIFFING,
            *((HTTPS_ONLY,) if self._is_https or is_https else ()),
            *answer.headers,
        ]

    async def close(self) -> None:
        await self.services.batcher.close()

    async def _answer(self, scope: Scope, receive: Any) -> tuple[str, Answer, str]:
        method, path = scope["method"], scope["path"]
        identifier = request_id(scope["headers"])
        # Each request is a task of its own, so this needs no reset.
        bind_contextvars(request_id=identifier)
        found = self._find("GET" if method == "HEAD" else method, path)
        if found is None:
            return "none", self._unrouted(method, path, identifier), identifier
        endpoint, path_id = found
        client = scope.get("client")
        request = ApiRequest(identifier, client[0] if client else "", scope["headers"], receive, path_id)
        try:
            answer = await endpoint.handle(self.services, request)
        except Refusal as refusal:
            answer = refuse(refusal, identifier)
        except Exception as error:  # noqa: BLE001 - the caller gets an envelope and an id to quote
            answer = _failed(error, identifier, path)
        return endpoint.operation, answer, identifier

    def _find(self, method: str, path: str) -> tuple[ApiEndpoint, str] | None:
        endpoint = self._exact.get((method, path))
        if endpoint is not None:
            return endpoint, ""
        head, slash, path_id = path.rpartition("/")
        endpoint = self._by_id.get((method, head + slash))
        return None if endpoint is None or not path_id else (endpoint, path_id)

    def _unrouted(self, method: str, path: str, identifier: str) -> Answer:
        if path == DOCUMENT_PATH and method in {"GET", "HEAD"}:
            return Answer(200, self._document)
        allowed = [other for other in ("GET", "POST") if self._find(other, path) is not None]
        if path == DOCUMENT_PATH:
            allowed = ["GET"]
        if not allowed:
            return refuse(NotFound("There is nothing at this address; see /docs."), identifier)
        if "GET" in allowed:
            allowed.append("HEAD")
        return refuse(MethodNotAllowed(headers=[("Allow", ", ".join(allowed))]), identifier)


def _count(operation: str, answer: Answer, took_s: float) -> None:
    _counted(operation, answer.status).inc()
    if answer.code is not None:
        _refused(answer.code).inc()
    _timed(operation).observe(took_s)


async def _receive_nothing() -> Mapping[str, Any]:
    raise AssertionError("the body came with the request")


def _failed(error: Exception, identifier: str, path: str) -> Answer:
    if is_unavailable(error):
        _log.warning("database unavailable", error=repr(error), request_id=identifier)
        return refuse(ServiceUnavailable(retry_after_s=1), identifier)
    _log.error("call failed", exc_info=error, request_id=identifier, path=path)
    return refuse(InternalError(), identifier)
