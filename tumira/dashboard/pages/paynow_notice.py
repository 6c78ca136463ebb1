"""Payment notices from Paynow, which only trigger a poll.

Nothing in a notice is believed: neither the amount nor the status nor the address to ask. A notice that
Paynow signed for one of our top-ups makes that top-up due, and the worker polls the address that it was
given at the start. So a notice that is repeated, late or overtaken changes nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tumira.core.database_errors import is_unavailable
from tumira.core.ids import TOP_UP, TopUpId, read_id
from tumira.core.settings.payments import Payments, Paynow
from tumira.html.form_body import read_body
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.providers import paynow_messages
from tumira.topups.states import Method

BODY_BYTES_MAX: Final = 16 * 1024
BODY_S: Final = 10.0

_log: Final = structlog.get_logger()


def routes(database: Database, payments: Payments) -> Sequence[Route]:
    async def take(request: Request) -> Response:
        if payments.paynow is None:
            return _answer(404)
        try:
            return await _take(database, payments.paynow, request)
        except Exception as error:
            if not is_unavailable(error):
                raise
            # Paynow tells it again when it gets an error.
            _log.warning("Paynow's notice not taken", error=repr(error))
            return _answer(503)

    return [Route("/hooks/paynow/{top_up_id}", take, methods=["POST"])]


async def _take(database: Database, access: Paynow, request: Request) -> Response:
    name = request.path_params["top_up_id"]
    identifier = read_id(TOP_UP, name)
    if identifier is None:
        return _answer(404)
    top_up_id = TopUpId(identifier)
    try:
        async with asyncio.timeout(BODY_S):
            body = await read_body(request, BODY_BYTES_MAX)
    except HTTPException as error:
        return _answer(error.status_code)
    except TimeoutError:
        return _answer(408)
    async with database.connection() as connection:
        top_up = await top_ups.find_any(connection, top_up_id)
        if top_up is None or top_up.method is not Method.PAYNOW:
            return _answer(404)
        problem = _problem(body, access.key, name)
        if problem is not None:
            _log.warning("Paynow's notice refused", top_up=name, problem=problem)
            return _answer(400)
        await top_ups.mark_due(connection, top_up_id)
    return _answer(200)


def _problem(body: bytes, key: str, name: str) -> str | None:
    """Say what is wrong with a notice, in words that repeat nothing of it; None for nothing."""
    pairs = paynow_messages.read(body)
    if pairs is None:
        return "it cannot be read"
    if not paynow_messages.is_signed(pairs, key):
        return "its hash is wrong"
    if dict(pairs).get("reference") != name:
        return "it is about another payment"
    return None


def _answer(status: int) -> Response:
    return PlainTextResponse("", status_code=status)
