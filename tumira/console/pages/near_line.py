"""Texts that passed near the line, and accounts whose texts often do."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.console.pages.content import CONTENT, read_cursor, read_key, suggest, write_cursor
from tumira.console.session import OperatorSession, Services, page
from tumira.content import near_line_store
from tumira.content import review as content_review
from tumira.content.review import NOTE_MAX
from tumira.content.templates import TEMPLATE_MAX, TemplateVerdict
from tumira.core.days import local_day
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId
from tumira.core.translation import _, mark
from tumira.html import paging
from tumira.html.forms import Form, FormRefused, TextField
from tumira.html.guards import or_404
from tumira.html.redirect import redirect

NEAR_LINE: Final = CONTENT + "/near"
PAGE: Final = 25
OFTEN_SHOWN: Final = 20

DONE: Final = {
    "fine": mark("Recorded as a service message."),
    "blocked": mark("Template saved. Texts like this one from this account are now refused."),
}


class BlockTextsForm(Form):
    text = TextField(clean=str, cut=2 * TEMPLATE_MAX)
    note = TextField(cut=2 * NOTE_MAX)


def routes(services: Services) -> Sequence[Route]:
    return [
        *page(services, NEAR_LINE, show_near_line),
        *page(services, NEAR_LINE + "/{account}/{digest}", show_text, {"/fine": confirm, "/block": block}),
    ]


async def show_near_line(session: OperatorSession) -> Response:
    cursor = read_cursor(session.request.query_params.get("before", ""))
    async with session.database.connection() as connection:
        today = local_day(datetime.now(UTC))
        often = [] if cursor else await near_line_store.list_often(connection, today, OFTEN_SHOWN)
        texts, last = paging.cut(await near_line_store.list_open(connection, PAGE + 1, *cursor), PAGE)
    older = None if last is None else write_cursor(last.last_at, last.account_id, last.digest)
    return session.page(
        "near_line.html.jinja",
        often=often,
        texts=texts,
        is_latest=not cursor,
        older=None if older is None else f"{NEAR_LINE}?before={older}",
        done=DONE,
    )


async def show_text(session: OperatorSession) -> Response:
    account, digest = _key(session)
    async with session.database.connection() as connection:
        found = await near_line_store.find(connection, account, digest)
    found = or_404(found, _("This text does not exist. Texts near the line are kept for 30 days"))
    return session.page(
        "near_line_text.html.jinja",
        one=found,
        filled={"text": suggest(found.text)},
        template_max=TEMPLATE_MAX,
        note_max=NOTE_MAX,
    )


def _key(session: OperatorSession) -> tuple[AccountId, bytes]:
    return or_404(read_key(**session.request.path_params), _("This text does not exist"))


async def confirm(session: OperatorSession) -> Response:
    """Record that a person has confirmed a text as a service message."""
    account, digest = _key(session)
    try:
        await content_review.confirm_near_line(session.database, account, digest, actor=session.actor)
    except OperatorError as error:
        raise FormRefused({"": str(error)}, status=409) from None
    return redirect(NEAR_LINE + "?done=fine")


async def block(session: OperatorSession) -> Response:
    """Refuse texts like this one for its account from now on."""
    account, digest = _key(session)
    form = await BlockTextsForm.accept(session.request)
    with form.blame("text"):
        await content_review.add_template(
            session.database,
            form.text.data,
            account,
            TemplateVerdict.BLOCK,
            note=form.note.data,
            actor=session.actor,
            answers=digest,
        )
    return redirect(NEAR_LINE + "?done=blocked")
