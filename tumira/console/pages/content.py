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
from tumira.content.review import NOTE_MAX
from tumira.content.store import ReviewedText, find_review, list_requested, list_reviews
from tumira.content.template_store import NEWEST, list_templates_before
from tumira.content.templates import TEMPLATE_MAX, TemplateVerdict, tidy
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, TEMPLATE, AccountId, TemplateId, read_id, write_id
from tumira.html import paging
from tumira.html.forms import TYPED_MAX, Choice, Form, TextField, account_id, read_path_id
from tumira.html.guards import or_404
from tumira.html.redirect import redirect

CONTENT: Final = "/operator/content"
TEMPLATES: Final = CONTENT + "/templates"
ASKED_MAX: Final = 100
PAGE: Final = 25

DONE: Final = {
    "allowed": "Such texts of this account pass from the next call on.",
    "refused": "Such texts of this account are refused from the next call on.",
    "dismissed": "The text stays refused. Its owner reads your answer in their history of changes.",
    "added": "The template counts from the next call on.",
    "removed": "The template is removed. The classifier decides about such texts again.",
}
VERDICTS: Final = (
    (TemplateVerdict.ALLOW.value, "let such texts pass"),
    (TemplateVerdict.BLOCK.value, "refuse such texts"),
)

# A figure, with what stands inside dates, times and amounts.
_NUMBER: Final = re.compile(r"[0-9](?:[0-9.,:/-]*[0-9])?")
_HEX: Final = re.compile("[0-9a-f]{64}")
_NO_TEMPLATE: Final = "There is no such template"


class TemplateForm(Form):
    text = TextField(clean=str, cut=2 * TEMPLATE_MAX)
    verdict = Choice(dict(VERDICTS), "Choose one of the two.", cut=10)
    note = TextField(cut=2 * NOTE_MAX)


class NewTemplateForm(TemplateForm):
    account = TextField(
        account_id("Write the account's id, as in acc_…, or nothing for all accounts."), cut=TYPED_MAX
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
    cursor = _read_cursor(session.request.query_params.get("before", ""))
    async with session.database.connection() as connection:
        asked = [] if cursor else await list_requested(connection, ASKED_MAX)
        latest, last = paging.cut(await list_reviews(connection, PAGE + 1, *cursor), PAGE)
    return session.page(
        "content.html.jinja",
        asked=asked,
        latest=latest,
        is_latest=not cursor,
        older=None if last is None else f"{CONTENT}?before={_write_cursor(last)}",
        asked_max=ASKED_MAX,
        done=DONE,
    )


def _write_cursor(review: ReviewedText) -> str:
    account = write_id(ACCOUNT, review.account_id)
    return f"{paging.write_time(review.last_at)}-{account}-{review.digest.hex()}"


def _read_cursor(text: str) -> tuple[datetime, AccountId, bytes] | tuple[()]:
    """Return after which text a page begins; nothing for the first page."""
    time, _, key = text.partition("-")
    account, _, digest = key.partition("-")
    at, found = paging.read_time(time), _read_key(account, digest)
    return () if at is None or found is None else (at, *found)


def _read_key(account: str, digest: str) -> tuple[AccountId, bytes] | None:
    read = read_id(ACCOUNT, account)
    return None if read is None or not _HEX.fullmatch(digest) else (AccountId(read), bytes.fromhex(digest))


async def show_refusal(session: OperatorSession) -> Response:
    account, digest = _key(session)
    async with session.database.connection() as connection:
        review = await find_review(connection, account, digest)
    review = or_404(review, "There is no such refused text; they are kept for 30 days")
    return session.page(
        "refusal.html.jinja",
        review=review,
        verdicts=VERDICTS,
        filled={"text": "" if review.text is None else suggest(review.text)},
        template_max=TEMPLATE_MAX,
        note_max=NOTE_MAX,
    )


def suggest(text: str) -> str:
    """Make a template of a text by putting a place where each figure stands, if that makes one."""
    pattern = _NUMBER.sub("{number}", text)
    try:
        return tidy(pattern)
    except ValueError:
        return text


def _key(session: OperatorSession) -> tuple[AccountId, bytes]:
    return or_404(_read_key(**session.request.path_params), "There is no such refused text")


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
        verdicts=VERDICTS,
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
        raise HTTPException(404, _NO_TEMPLATE) from error
    return redirect(TEMPLATES + "?done=removed")
