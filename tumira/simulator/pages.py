"""The page of the handsets, which refreshes itself, and their texts as JSON."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tumira.core import translation
from tumira.core.errors import OperatorError
from tumira.core.local_callers import is_local
from tumira.html.form_body import read_body, read_fields
from tumira.html.guards import refuse_foreign_writes
from tumira.html.page import stylesheet
from tumira.html.redirect import redirect
from tumira.postgres.pool import Database
from tumira.simulator import handsets
from tumira.simulator.cleanup import Cleanup
from tumira.simulator.handsets import ReceivedText
from tumira.simulator.numbers import OUTCOMES
from tumira.simulator.replies import TEXT_MAX, send_reply

PAGE_PATH: Final = "/simulator"
MESSAGES_PATH: Final = "/simulator/messages.json"
REPLIES_PATH: Final = "/simulator/replies"
STYLESHEET_PATH: Final = "/simulator/handsets.css"
SCRIPT_PATH: Final = "/simulator/handsets.js"
HANDSETS_MAX: Final = 60
TEXTS_SHOWN_MAX: Final = 6
NUMBER_DIGITS_MAX: Final = 20
# Files that are read at the same time: each may hold 32 MB in memory for a moment.
READERS_MAX: Final = 2

_HERE: Final = Path(__file__).parent
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

Result = TypeVar("Result")
Handle = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Handset:
    number: str
    texts: Sequence[ReceivedText]
    # Texts among the latest that the screen has no room for.
    more: int


def by_handset(newest_first: Sequence[ReceivedText]) -> Sequence[Handset]:
    found: dict[str, list[ReceivedText]] = {}
    for text in newest_first:
        if text.to in found or len(found) < HANDSETS_MAX:
            found.setdefault(text.to, []).append(text)
    return [
        Handset(number, texts[:TEXTS_SHOWN_MAX], len(texts[TEXTS_SHOWN_MAX:]))
        for number, texts in found.items()
    ]


class SimulatorPages:
    """The pages of a node; for callers on this machine unless `is_public`."""

    def __init__(self, directory: Path, port: int, database: Database, *, is_public: bool) -> None:
        self._directory = directory
        self._port = port
        self.cleanup = Cleanup(database, directory)
        self._is_public = is_public
        self._readers = asyncio.Semaphore(READERS_MAX)
        environment = Environment(
            loader=FileSystemLoader(_HERE),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.i18n"],
        )
        environment.policies["ext.i18n.trimmed"] = True
        install = environment.install_gettext_callables  # type: ignore[attr-defined]
        install(translation._, translation.ngettext, newstyle=True)
        self._template = environment.get_template("handsets.html.jinja")

    def routes(self) -> Sequence[Route]:
        return [
            Route(PAGE_PATH, self._guarded(self._page)),
            Route(MESSAGES_PATH, self._guarded(self._messages)),
            Route(REPLIES_PATH, self._guarded(self._reply), methods=["POST"]),
            Route(STYLESHEET_PATH, self._guarded(_stylesheet)),
            Route(SCRIPT_PATH, self._guarded(_script)),
        ]

    def _guarded(self, handle: Handle) -> Handle:
        """Refuse remote callers: passcodes give access to accounts."""

        async def answer(request: Request) -> Response:
            scope = request.scope
            peer, own = ((scope.get(end) or (None,))[0] for end in ("client", "server"))
            if not (self._is_public or is_local(peer, own, scope["http_version"], scope["headers"])):
                raise HTTPException(
                    403, translation._("The handsets can be opened only on the machine that runs Tumira")
                )
            return await handle(request)

        return answer

    async def _page(self, request: Request) -> Response:
        await self.cleanup.look_soon()
        # Of a moment before the texts are read, so that one which comes meanwhile is not missed.
        tag = f'"{await self._read(handsets.state)}"'
        headers = {**_HEADERS, "ETag": tag, "Content-Security-Policy": _POLICY}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        render = partial(self._render, is_sent="sent" in request.query_params)
        return HTMLResponse(await self._read(render), headers=headers)

    def _render(self, directory: Path, *, is_sent: bool) -> str:
        return self._template.render(
            handsets=by_handset(handsets.list_latest(directory)),
            outcomes=OUTCOMES,
            port=self._port,
            page_path=PAGE_PATH,
            messages_path=MESSAGES_PATH,
            replies_path=REPLIES_PATH,
            reply_max=TEXT_MAX,
            is_sent=is_sent,
            stylesheet_path=STYLESHEET_PATH,
            script_path=SCRIPT_PATH,
        )

    async def _messages(self, request: Request) -> Response:
        wanted = request.query_params.get("to")
        await self.cleanup.look_soon()
        read = handsets.read_latest
        if wanted is not None:
            read = partial(handsets.read_of, number=_number(wanted))
        return Response(
            await self._read(read),
            media_type="application/json",
            headers={**_HEADERS, "Cache-Control": "no-store"},
        )

    async def _reply(self, request: Request) -> Response:
        """Send a text from a handset: as JSON, `{"from", "to", "text"}`, or by the form of the page."""
        refuse_foreign_writes(request, "")
        is_json = request.headers.get("content-type", "").startswith("application/json")
        if is_json:
            try:
                asked = msgspec.json.decode(await read_body(request), type=_Reply)
            except msgspec.DecodeError:
                raise HTTPException(400, "Send JSON with `from`, `to` and `text`") from None
        else:
            form = await read_fields(request)
            asked = _Reply(form.text("from"), form.text("to"), form.raw("text"))
        if not asked.text.strip() or len(asked.text) > TEXT_MAX or not 0 < len(asked.to) <= NUMBER_DIGITS_MAX:
            raise HTTPException(400, f"Write a `text` of 1 to {TEXT_MAX} characters, and whom it goes `to`")
        try:
            parts = await send_reply(self._port, _number(asked.from_, "from"), asked.to, asked.text)
        except OperatorError as error:
            raise HTTPException(503, str(error).removesuffix(".")) from error
        return JSONResponse({"parts": parts}, status_code=202) if is_json else redirect(PAGE_PATH + "?sent=1")

    async def _read(self, read: Callable[[Path], Result]) -> Result:
        """Read files in a thread, while the event loop answers the API."""
        async with self._readers:
            return await asyncio.to_thread(read, self._directory)


class _Reply(msgspec.Struct):
    from_: str = msgspec.field(name="from")
    to: str
    text: str


def _number(text: str, name: str = "to") -> str:
    # A plus in a query is decoded as a space.
    digits = text.strip().removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= NUMBER_DIGITS_MAX):
        raise HTTPException(400, f"`{name}` must be a number like +263771200001")
    return f"+{digits}"


async def _stylesheet(_request: Request) -> Response:
    return Response(stylesheet(_HERE / "handsets.css"), media_type="text/css", headers=_HEADERS)


async def _script(_request: Request) -> Response:
    return Response((_HERE / "handsets.js").read_bytes(), media_type="text/javascript", headers=_HEADERS)
