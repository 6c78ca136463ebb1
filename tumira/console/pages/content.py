"""Refused texts, requests for review, and the templates that allow or refuse texts."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, page
from tumira.content import review as content_review
from tumira.content.personal_data import replace_names
from tumira.content.review import NOTE_MAX
from tumira.content.store import find_review, list_requested, list_reviews
from tumira.content.template_store import NEWEST, list_templates_before
from tumira.content.templates import TEMPLATE_MAX, TemplateVerdict, tidy
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, TEMPLATE, AccountId, TemplateId, read_id, write_id
from tumira.core.translation import _, mark
from tumira.html import paging
from tumira.html.forms import TYPED_MAX, Choice, Form, TextField, account_id, read_path_id
from tumira.html.guards import or_404
from tumira.html.redirect import redirect

CONTENT: Final = "/operator/content"
TEMPLATES: Final = CONTENT + "/templates"
ASKED_MAX: Final = 100
PAGE: Final = 25

DONE: Final = {
    "allowed": mark("Template saved. Texts like this one from this account are now allowed."),
    "refused": mark("Template saved. Texts like this one from this account are now refused."),
    "dismissed": mark("Request closed. The text stays refused. The customer sees your answer."),
    "added": mark("Template added. It applies from now on."),
    "removed": mark("Template removed. The classifier decides on these texts again."),
}
VERDICTS: Final = (
    (TemplateVerdict.ALLOW.value, mark("Allow texts like this")),
    (TemplateVerdict.BLOCK.value, mark("Refuse texts like this")),
)

# A figure, with what stands inside dates, times and amounts.
_NUMBER: Final = re.compile(r"[0-9](?:[0-9.,:/-]*[0-9])?")
_HEX: Final = re.compile("[0-9a-f]{64}")
_NO_TEMPLATE: Final = mark("This template does not exist")


class TemplateForm(Form):
    text = TextField(clean=str, cut=2 * TEMPLATE_MAX)
    verdict = Choice(dict(VERDICTS), mark("Choose a decision."), cut=10)
    note = TextField(cut=2 * NOTE_MAX)


class NewTemplateForm(TemplateForm):
    account = TextField(
        account_id(mark("Enter an account ID, for example acc_…, or leave it empty for all accounts.")),
        cut=TYPED_MAX,
    )


class DismissReviewForm(Form):
    answer = TextField(cut=2 * NOTE_MAX)


def routes(services: Services) -> Sequence[Route]:
    return [
        *page(services, CONTENT, show_refusals),
        *page(services, TEMPLATES, show_templates, {"": add_template, "/{id}/remove": remove_template}),
        *page(
            services,
            CONTENT + "/refusals/{account}/{digest}",
            show_refusal,
            {"/template": decide, "/dismiss": dismiss},
        ),
    ]


async def show_refusals(session: OperatorSession) -> Response:
    cursor = read_cursor(session.request.query_params.get("before", ""))
    async with session.database.connection() as connection:
        asked = [] if cursor else await list_requested(connection, ASKED_MAX)
        latest, last = paging.cut(await list_reviews(connection, PAGE + 1, *cursor), PAGE)
    return session.page(
        "content.html.jinja",
        asked=asked,
        latest=latest,
        is_latest=not cursor,
        older=None
        if last is None
        else f"{CONTENT}?before={write_cursor(last.last_at, last.account_id, last.digest)}",
        asked_max=ASKED_MAX,
        done=DONE,
    )


def write_cursor(at: datetime, account_id: AccountId, digest: bytes) -> str:
    return f"{paging.write_time(at)}-{write_id(ACCOUNT, account_id)}-{digest.hex()}"


def read_cursor(text: str) -> tuple[datetime, AccountId, bytes] | tuple[()]:
    """Return after which text a page begins; nothing for the first page."""
    time, _dash, key = text.partition("-")
    account, _dash, digest = key.partition("-")
    at, found = paging.read_time(time), read_key(account, digest)
    return () if at is None or found is None else (at, *found)


def read_key(account: str, digest: str) -> tuple[AccountId, bytes] | None:
    read = read_id(ACCOUNT, account)
    return None if read is None or not _HEX.fullmatch(digest) else (AccountId(read), bytes.fromhex(digest))


async def show_refusal(session: OperatorSession) -> Response:
    account, digest = _key(session)
    async with session.database.connection() as connection:
        review = await find_review(connection, account, digest)
    review = or_404(review, _("This refused text does not exist. Refused texts are kept for 30 days"))
    return session.page(
        "refusal.html.jinja",
        review=review,
        verdicts=[(verdict, _(words)) for verdict, words in VERDICTS],
        filled={"text": "" if review.text is None else suggest(review.text)},
        template_max=TEMPLATE_MAX,
        note_max=NOTE_MAX,
    )


def suggest(text: str) -> str:
    """Make a template of a text by putting a place where each name and figure stands, if that makes one."""
    pattern = _NUMBER.sub("{number}", replace_names(text, "{name}"))
    try:
        return tidy(pattern)
    except ValueError:
        return text


def _key(session: OperatorSession) -> tuple[AccountId, bytes]:
    return or_404(read_key(**session.request.path_params), _("This refused text does not exist"))


async def decide(session: OperatorSession) -> Response:
    """Allow or refuse texts like this one for its account, which answers the request for review."""
    account, digest = _key(session)
    form = await TemplateForm.accept(session.request)
    verdict = TemplateVerdict(form.verdict.data)
    with form.blame("text"):
        await content_review.add_template(
            session.database,
            form.text.data,
            account,
            verdict,
            note=form.note.data,
            actor=session.actor,
            answers=digest,
        )
    return redirect(CONTENT + ("?done=allowed" if verdict is TemplateVerdict.ALLOW else "?done=refused"))


async def dismiss(session: OperatorSession) -> Response:
    account, digest = _key(session)
    form = await DismissReviewForm.read(session.request)
    with form.blame("answer"):
        await content_review.dismiss(
            session.database, account, digest, answer=form.answer.data, actor=session.actor
        )
    return redirect(CONTENT + "?done=dismissed")


async def show_templates(session: OperatorSession) -> Response:
    before = read_id(TEMPLATE, session.request.query_params.get("before", ""))
    async with session.database.connection() as connection:
        found = await list_templates_before(
            connection, PAGE + 1, NEWEST if before is None else TemplateId(before)
        )
    templates, last = paging.cut(found, PAGE)
    return session.page(
        "templates.html.jinja",
        templates=templates,
        is_latest=before is None,
        older=None if last is None else f"{TEMPLATES}?before={write_id(TEMPLATE, last.template.id)}",
        verdicts=[(verdict, _(words)) for verdict, words in VERDICTS],
        template_max=TEMPLATE_MAX,
        note_max=NOTE_MAX,
        done=DONE,
    )


async def add_template(session: OperatorSession) -> Response:
    form = await NewTemplateForm.accept(session.request)
    account = read_id(ACCOUNT, form.account.data)
    with form.blame("text"):
        await content_review.add_template(
            session.database,
            form.text.data,
            None if account is None else AccountId(account),
            TemplateVerdict(form.verdict.data),
            note=form.note.data,
            actor=session.actor,
        )
    return redirect(TEMPLATES + "?done=added")


async def remove_template(session: OperatorSession) -> Response:
    template_id = TemplateId(read_path_id(session.request, TEMPLATE, _NO_TEMPLATE))
    try:
        await content_review.remove_template(session.database, template_id, session.actor)
    except OperatorError as error:
        raise HTTPException(404, _(_NO_TEMPLATE)) from error
    return redirect(TEMPLATES + "?done=removed")
