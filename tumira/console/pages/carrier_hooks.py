"""Callbacks of carriers over HTTP: outcomes of messages, and replies.

The address has an unguessable part, and the profile checks what the provider signs. An answer of success
means that everything is stored; otherwise the provider repeats the callback. Neither the address nor a body
is logged: a caller needs nothing else to report, and a body may hold a text.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tumira.carriers import store as carriers
from tumira.carriers.http.access import HOOKS, open_carrier
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.values import (
    CallbackContent,
    CallbackMode,
    CallbackRefused,
    CallbackRequest,
    IncomingReply,
)
from tumira.carriers.store import Carrier
from tumira.core import metrics
from tumira.core.loops import forever, log_failure
from tumira.delivery.http.take_reports import take_reports
from tumira.delivery.observer import FLUSH_S, Observer
from tumira.delivery.replies.parts import ADDRESS_MAX, ReplyPart
from tumira.delivery.replies.receive import store_replies
from tumira.html.form_body import read_body
from tumira.postgres.pool import Database

BODY_BYTES_MAX: Final = 256 * 1024
BODY_S: Final = 10.0
WORDS_MAX: Final = 1_000

_log: Final = structlog.get_logger()


class CarrierHooks:
    def __init__(self, database: Database, public_url: str) -> None:
        self._database = database
        self._public_url = public_url
        self._observer = Observer(database)
        # By number, each as it was when it was last changed.
        self._opened: dict[int, tuple[datetime, HttpCarrier]] = {}
        # Words that a profile does not know, by carrier; each is reported once.
        self._words: set[tuple[str, str]] = set()

    def routes(self) -> Sequence[Route]:
        methods = ["GET", "POST"]
        path = HOOKS + "{token}"
        return [
            Route(path, self._take, methods=methods),
            Route(path + "/replies", self._take, methods=methods),
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write the statistics of receipts from time to time, and at the end."""
        writing = asyncio.create_task(forever("write statistics", self._observer.flush, FLUSH_S))
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await self._observer.flush()

    async def _take(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(BODY_S):
                body = await read_body(request, BODY_BYTES_MAX)
        except HTTPException as error:
            return _answer(error.status_code)
        except TimeoutError:
            return _answer(408)
        try:
            return await self._take_body(request, body)
        except Exception as error:  # noqa: BLE001 - nothing was stored, and the provider repeats it
            log_failure("callback of a carrier not stored", error)
            return _answer(503)

    async def _take_body(self, request: Request, body: bytes) -> Response:
        carrier = await self._find(request.path_params["token"])
        if carrier is None:
            return _answer(404)
        http = self._open(carrier)
        content = http.read_callback(
            CallbackRequest(
                method=request.method,
                public_url=self._public_url + request.url.path,
                query=request.url.query,
                headers={name.lower(): value for name, value in request.headers.items()},
                body=body,
                address=request.client.host if request.client else "",
            )
        )
        if isinstance(content, CallbackRefused):
            _log.warning("callback of a carrier refused", carrier=carrier.name, problem=content.why)
            return _answer(content.status)
        await self._store(carrier, http, content)
        return Response(content.body, content.status, media_type=content.content_type)

    async def _find(self, token: str) -> Carrier | None:
        """Return the carrier with this token; however many letters are right, it takes the same time."""
        async with self._database.connection() as connection:
            hooked = await carriers.list_hooked(connection)
        given = token.encode()
        found = [
            one for one in hooked if one.http and hmac.compare_digest(one.http.hook_token.encode(), given)
        ]
        return found[0] if found else None

    def _open(self, carrier: Carrier) -> HttpCarrier:
        assert carrier.http is not None
        opened = self._opened.get(carrier.id)
        if opened is None or opened[0] != carrier.changed_at:
            opened = self._opened[carrier.id] = carrier.changed_at, open_carrier(carrier.http)
        return opened[1]

    async def _store(self, carrier: Carrier, http: HttpCarrier, content: CallbackContent) -> None:
        if not content.reports and not content.replies:
            return
        for report in content.reports:
            self._note_word(carrier.name, report.word, is_known=report.is_known)
        can_look = http.looks_by_id or http.looks_by_reference
        now = self._database.clock.now()
        async with self._database.transaction() as connection:
            taken = await take_reports(
                connection,
                carrier,
                content.reports,
                now,
                confirm_failures=can_look and http.callback_mode is not CallbackMode.CHECKED,
            )
            if content.replies:
                replies = [_reply_part(one) for one in content.replies]
                await store_replies(connection, carrier.id, replies, now)
        self._observer.carriers[carrier.id] = carrier.name
        self._observer.ended(carrier.id, taken.endings)
        for result, count in (("matched", taken.matched), ("unmatched", taken.unmatched)):
            if count:
                metrics.RECEIPTS.labels(carrier.name, result).inc(count)

    def _note_word(self, carrier: str, word: str, *, is_known: bool) -> None:
        if is_known or (carrier, word) in self._words or len(self._words) >= WORDS_MAX:
            return
        self._words.add((carrier, word))
        _log.error("carrier reports an unknown state", carrier=carrier, state=word)


def _reply_part(reply: IncomingReply) -> ReplyPart:
    return ReplyPart(
        reply.sender[:ADDRESS_MAX],
        reply.recipient[:ADDRESS_MAX],
        None,
        reply.text.encode(),
        reply.group,
        reply.total,
        reply.part,
        carrier_ref=reply.carrier_ref or None,
    )


def _answer(status: int) -> Response:
    return PlainTextResponse("", status_code=status)
