"""Refused texts, requests for review, and the templates that allow or refuse texts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, change, view
from tumira.content import review as content_review
from tumira.content.review import NOTE_MAX
from tumira.content.store import (
    NEWEST,
    Review,
    find_review,
    list_requested,
    list_reviews,
    list_templates_before,
)
from tumira.content.templates import TEMPLATE_MAX, TemplateVerdict, tidy
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, TEMPLATE, AccountId, TemplateId, read_id, write_id
from tumira.html.forms import TYPED_MAX, Choice, Faults, Form, Text, read_path_id
from tumira.html.redirect import redirect

CONTENT: Final = "/operator/content"
TEMPLATES: Final = CONTENT + "/templates"
REFUSAL: Final = CONTENT + "/refusals/{account}/{digest}"
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
LABELS: Final = {
    "text": "Template",
    "account": "Account",
    "verdict": "What becomes of it",
    "note": "Note",
    "answer": "Answer",
}

# A figure, with what stands inside dates, times and amounts.
_NUMBER: Final = re.compile(r"[0-9](?:[0-9.,:/-]*[0-9])?")
# Since 1970, as exactly as the database keeps them; so many digits last for another two hundred years.
_MICROSECONDS: Final = re.compile("[0-9]{1,16}")
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HEX: Final = re.compile("[0-9a-f]{64}")


class TemplateForm(Form):
    text = Text(clean=str, cut=2 * TEMPLATE_MAX)
    verdict = Choice(dict(VERDICTS), "Choose one of the two.", cut=10)
    note = Text(cut=2 * NOTE_MAX)


def _check_account(text: str) -> str | None:
    is_right = not text or read_id(ACCOUNT, text) is not None
    return None if is_right else "Write the account's id, as in acc_…, or nothing for all accounts."


class NewTemplateForm(TemplateForm):
    account = Text(_check_account, cut=TYPED_MAX)


class DismissForm(Form):
    answer = Text(cut=2 * NOTE_MAX)


@dataclass(frozen=True, slots=True)
class Row:
    """A refused text in a list, and where it is shown alone."""

    review: Review
    account: str
    path: str


def routes(services: Services) -> Sequence[Route]:
    return [
        view(services, CONTENT, show_refusals),
        view(services, TEMPLATES, show_templates),
        view(services, REFUSAL, show_refusal),
        change(services, TEMPLATES, add_template),
        change(services, TEMPLATES + "/{id}/remove", remove_template),
        change(services, REFUSAL + "/template", decide),
        change(services, REFUSAL + "/dismiss", dismiss),
    ]


async def show_refusals(session: OperatorSession) -> Response:
    place = _read_place(session.request.query_params.get("before", ""))
    async with session.database.connection() as connection:
        asked = [] if place else await list_requested(connection, ASKED_MAX)
        latest = await list_reviews(connection, PAGE + 1, *place)
    return session.page(
        "content.html.jinja",
        asked=[_row(one) for one in asked],
        latest=[_row(one) for one in latest[:PAGE]],
        is_latest=not place,
        older=_write_place(latest[PAGE - 1]) if len(latest) > PAGE else None,
        asked_max=ASKED_MAX,
        done=DONE.get(session.request.query_params.get("done", "")),
    )


def _row(review: Review) -> Row:
    account = write_id(ACCOUNT, review.account_id)
    return Row(review, account, f"{CONTENT}/refusals/{account}/{review.digest.hex()}")


def _write_place(review: Review) -> str:
    at = (review.last_at - _EPOCH) // _MICROSECOND
    return f"{at}-{write_id(ACCOUNT, review.account_id)}-{review.digest.hex()}"


def _read_place(text: str) -> tuple[datetime, AccountId, bytes] | tuple[()]:
    """Return after which text a page begins; nothing for the first page."""
    at, _, rest = text.partition("-")
    account, _, digest = rest.partition("-")
    account_id = read_id(ACCOUNT, account)
    if not _MICROSECONDS.fullmatch(at) or account_id is None or not _HEX.fullmatch(digest):
        return ()
    return _EPOCH + int(at) * _MICROSECOND, AccountId(account_id), bytes.fromhex(digest)


async def show_refusal(session: OperatorSession) -> Response:
    return await _refusal(session, {})


async def _refusal(session: OperatorSession, faults: Faults, status: int = 200, **filled: str) -> Response:
    account_id, digest = _key(session)
    async with session.database.connection() as connection:
        review = await find_review(connection, account_id, digest)
    if review is None:
        raise HTTPException(404, "There is no such refused text; they are kept for 30 days")
    suggested = "" if review.text is None else suggest(review.text)
    return session.page(
        "refusal.html.jinja",
        status,
        row=_row(review),
        verdicts=VERDICTS,
        labels=LABELS,
        faults=faults,
        filled={"text": suggested, "verdict": "", "note": "", "answer": ""} | filled,
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
    account_id = read_id(ACCOUNT, str(session.request.path_params["account"]))
    digest = str(session.request.path_params["digest"])
    if account_id is None or not _HEX.fullmatch(digest):
        raise HTTPException(404, "There is no such refused text")
    return AccountId(account_id), bytes.fromhex(digest)


async def decide(session: OperatorSession) -> Response:
    """Allow or refuse texts like this one for its account, which answers the request for review."""
    account_id, digest = _key(session)
    form = await TemplateForm.read(session.request)
    if form.faults:
        return await _refusal(session, form.faults, 422, **form.filled)
    verdict = TemplateVerdict(form.verdict.data)
    try:
        await content_review.add_template(
            session.database,
            form.text.data,
            account_id,
            verdict,
            note=form.note.data,
            actor=session.actor,
            answers=digest,
        )
    except OperatorError as error:
        return await _refusal(session, {"text": str(error)}, 422, **form.filled)
    return redirect(CONTENT + ("?done=allowed" if verdict is TemplateVerdict.ALLOW else "?done=refused"))


async def dismiss(session: OperatorSession) -> Response:
    account_id, digest = _key(session)
    form = await DismissForm.read(session.request)
    try:
        await content_review.dismiss(
            session.database, account_id, digest, answer=form.answer.data, actor=session.actor
        )
    except OperatorError as error:
        return await _refusal(session, {"answer": str(error)}, 422, **form.filled)
    return redirect(CONTENT + "?done=dismissed")


async def show_templates(session: OperatorSession) -> Response:
    return await _templates(session, {}, done=DONE.get(session.request.query_params.get("done", "")))


async def _templates(
    session: OperatorSession, faults: Faults, status: int = 200, done: str | None = None, **filled: str
) -> Response:
    before = read_id(TEMPLATE, session.request.query_params.get("before", ""))
    async with session.database.connection() as connection:
        found = await list_templates_before(
            connection, PAGE + 1, NEWEST if before is None else TemplateId(before)
        )
    listed: Sequence[Mapping[str, Any]] = [
        {
            "id": write_id(TEMPLATE, one.template.id),
            "template": one.template,
            "business": one.business,
            "account": None
            if one.template.account_id is None
            else write_id(ACCOUNT, one.template.account_id),
        }
        for one in found
    ]
    return session.page(
        "templates.html.jinja",
        status,
        templates=listed[:PAGE],
        is_latest=before is None,
        older=listed[PAGE - 1]["id"] if len(listed) > PAGE else None,
        verdicts=VERDICTS,
        labels=LABELS,
        faults=faults,
        filled={"text": "", "account": "", "verdict": "", "note": ""} | filled,
        template_max=TEMPLATE_MAX,
        note_max=NOTE_MAX,
        done=done,
    )


async def add_template(session: OperatorSession) -> Response:
    form = await NewTemplateForm.read(session.request)
    if form.faults:
        return await _templates(session, form.faults, 422, **form.filled)
    account_id = read_id(ACCOUNT, form.account.data)
    try:
        await content_review.add_template(
            session.database,
            form.text.data,
            None if account_id is None else AccountId(account_id),
            TemplateVerdict(form.verdict.data),
            note=form.note.data,
            actor=session.actor,
        )
    except OperatorError as error:
        return await _templates(session, {"text": str(error)}, 422, **form.filled)
    return redirect(TEMPLATES + "?done=added")


async def remove_template(session: OperatorSession) -> Response:
    missing = "There is no such template"
    template_id = TemplateId(read_path_id(session.request, TEMPLATE, missing))
    try:
        await content_review.remove_template(session.database, template_id, session.actor)
    except OperatorError as error:
        raise HTTPException(404, missing) from error
    return redirect(TEMPLATES + "?done=removed")
