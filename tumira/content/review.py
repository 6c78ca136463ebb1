"""Reviews of refused texts and of texts near the line, answered by operators, and templates of texts."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from tumira import audit_log
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.content import near_line_store, template_store
from tumira.content import store as content_store
from tumira.content.check import describe_refusal
from tumira.content.near_line_store import NearLineReview, NearLineText
from tumira.content.store import ContentRefusal, digest_of
from tumira.content.template_store import Template
from tumira.content.templates import TemplateVerdict, tidy
from tumira.core.errors import ContentRejected, OperatorError
from tumira.core.ids import TEMPLATE, AccountId, TemplateId, new_id, write_id
from tumira.core.translation import _, mark
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

_NO_ACCOUNT: Final = mark("There is no such account; `tumira account list` shows them.")
_NO_TEMPLATE: Final = mark("This template does not exist. `tumira template list` shows all templates.")
# A text is compared with the account's own templates and all shared ones, and all are cached in memory.
OWN_MAX: Final = 100
IN_ALL_MAX: Final = 10_000
NOTE_MAX: Final = 200
# The customer's note, and how many of an account's texts wait for an answer at once.
REVIEW_NOTE_MAX: Final = 500
OPEN_MAX: Final = 20
_NO_REVIEW: Final = mark("Another operator has already answered this request.")

_WHAT: Final = {
    TemplateVerdict.ALLOW: "texts of a template allowed",
    TemplateVerdict.BLOCK: "texts of a template refused",
}


async def ask_review(
    database: Database, account_id: AccountId, digest: bytes, text: str, note: str, actor: Actor
) -> bool:
    """Ask for the review of a text that was refused; False unless its owner supplies that text again."""
    # A form and a program may end lines differently.
    writings = (text, text.strip(), text.replace("\n", "\r\n"))
    written = next((one for one in writings if digest_of(one) == digest), None)
    async with database.transaction() as connection:
        known = await content_store.find(connection, account_id, digest)
        if written is None or known is None:
            return False
        await _ask(connection, known, account_id, written, note, actor)
    return True


async def submit_refused(
    database: Database,
    account_id: AccountId,
    text: str,
    rejected: ContentRejected,
    note: str,
    actor: Actor,
) -> None:
    """Ask for the review of a text that is refused now; asking again changes nothing."""
    async with database.transaction() as connection:
        known = await content_store.find(connection, account_id, digest_of(text))
        if known is None:
            refusal = describe_refusal(account_id, text, rejected, datetime.now(UTC), keep_text=False)
            await content_store.record(connection, [refusal])
        await _ask(connection, known, account_id, text, note, actor)


async def _ask(
    connection: Connection,
    known: ContentRefusal | None,
    account_id: AccountId,
    text: str,
    note: str,
    actor: Actor,
) -> None:
    if known is not None and known.review_asked_at is not None:
        return
    if await content_store.count_asked(connection, account_id) >= OPEN_MAX:
        said = _("You have {count} texts under review. Wait for an answer to one of them.")
        raise OperatorError(said.format(count=OPEN_MAX))
    await content_store.ask_review(connection, account_id, digest_of(text), note=note, text=text)
    await audit_log.record(connection, account_id, actor, "review of a refused text requested")


async def add_template(
    database: Database,
    text: str,
    account_id: AccountId | None,
    verdict: TemplateVerdict,
    *,
    note: str,
    actor: Actor,
    answers: bytes | None = None,
) -> Template:
    """Allow or block matching texts; with the digest of a text, this also ends its review."""
    note = _check_note(note)
    try:
        pattern = tidy(text)
    except ValueError as error:
        raise OperatorError(str(error)) from error
    now = datetime.now(UTC)
    template_id = TemplateId(new_id(int(now.timestamp() * 1000)))
    template = Template(template_id, account_id, pattern, verdict, note, now, actor.name)
    async with database.transaction() as connection:
        await _check_account(connection, account_id)
        await _insert(connection, template)
        await _record(connection, actor, account_id, _WHAT[verdict], template)
        if answers is not None and account_id is not None:
            allowed = verdict is TemplateVerdict.ALLOW
            await content_store.close_review(connection, account_id, answers, allowed=allowed, answer=note)
            decided = NearLineReview.FINE if allowed else NearLineReview.BLOCKED
            await near_line_store.mark_reviewed(connection, account_id, answers, decided)
    return template


async def _insert(connection: Connection, template: Template) -> None:
    in_all, own = await template_store.lock_and_count(connection, template.account_id)
    same = await template_store.find_same(connection, template.account_id, template.pattern)
    if same is not None:
        text = _("This template exists already as {id}. Remove that one first.")
        raise OperatorError(text.format(id=write_id(TEMPLATE, same)))
    if own >= OWN_MAX:
        text = _("An account can have at most {most} templates. Remove one first.")
        raise OperatorError(text.format(most=OWN_MAX))
    if in_all >= IN_ALL_MAX:
        text = _("There can be at most {most} templates. Remove one first.")
        raise OperatorError(text.format(most=IN_ALL_MAX))
    await template_store.insert_template(connection, template)


async def remove_template(database: Database, template_id: TemplateId, actor: Actor) -> Template:
    """Remove a template; from the next call on the classifier decides about its texts."""
    async with database.transaction() as connection:
        removed = await template_store.delete_template(connection, template_id)
        if removed is None:
            raise OperatorError(_(_NO_TEMPLATE))
        await _record(connection, actor, removed.account_id, "template removed", removed)
    return removed


async def dismiss(
    database: Database, account_id: AccountId, digest: bytes, *, answer: str, actor: Actor
) -> None:
    """End a review and leave the text refused."""
    answer = _check_note(answer)
    async with database.transaction() as connection:
        if not await content_store.close_review(connection, account_id, digest, allowed=False, answer=answer):
            raise OperatorError(_(_NO_REVIEW))
        what = "review of a refused text: it stays refused"
        await audit_log.record(connection, account_id, actor, what, answer)
        await audit_log.record_by_operator(connection, actor, what, answer, account_id)


async def confirm_near_line(
    database: Database, account_id: AccountId, digest: bytes, *, actor: Actor
) -> None:
    """Record that a text that passed near the line is a service message."""
    async with database.transaction() as connection:
        if not await near_line_store.mark_reviewed(connection, account_id, digest, NearLineReview.FINE):
            raise OperatorError(_(_NO_REVIEW))
        what = "text near the line confirmed as a service message"
        await audit_log.record_by_operator(connection, actor, what, "", account_id)


async def _record(
    connection: Connection, actor: Actor, account_id: AccountId | None, what: str, template: Template
) -> None:
    # Without the template's text: a customer's words do not belong in records that are kept permanently.
    detail = write_id(TEMPLATE, template.id) + (f", {template.note}" if template.note else "")
    await audit_log.record_by_operator(connection, actor, what, detail, account_id)
    if account_id is not None:
        await audit_log.record(connection, account_id, actor, what, detail)


def _check_note(note: str) -> str:
    """Return a note in one line, or refuse it."""
    note = " ".join(note.split())
    if not note.isprintable():
        raise OperatorError(_("The note has characters that cannot be shown. Enter plain text."))
    if len(note) > NOTE_MAX:
        raise OperatorError(_("Enter a note of at most {most} characters.").format(most=NOTE_MAX))
    return note


async def list_templates(
    database: Database, account_id: AccountId | None, count_max: int = IN_ALL_MAX
) -> Sequence[Template]:
    """Return all templates, or those that apply to an account."""
    async with database.connection() as connection:
        await _check_account(connection, account_id)
        return await template_store.list_templates(connection, account_id, count_max)


async def list_refusals(
    database: Database, account_id: AccountId | None, count_max: int
) -> Sequence[ContentRefusal]:
    """Return the latest refused texts, of all accounts or of one."""
    async with database.connection() as connection:
        await _check_account(connection, account_id)
        return await content_store.list_latest(connection, account_id, count_max)


async def list_near_line(
    database: Database, account_id: AccountId | None, count_max: int
) -> Sequence[NearLineText]:
    """Return the latest sampled texts near the line, of all accounts or of one."""
    async with database.connection() as connection:
        await _check_account(connection, account_id)
        return await near_line_store.list_latest(connection, account_id, count_max)


async def _check_account(connection: Connection, account_id: AccountId | None) -> None:
    if account_id is not None and await accounts.find(connection, account_id) is None:
        raise OperatorError(_(_NO_ACCOUNT))
