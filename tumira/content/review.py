"""How does the operator answer who asked for a review, and allow or refuse a form of text for good?"""

from datetime import UTC, datetime
from typing import Final

from tumira import audit_log
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.content import reviews, template_store
from tumira.content.manage_templates import IN_ALL_MAX, NO_ACCOUNT, NO_TEMPLATE, NOTE_MAX, OWN_MAX
from tumira.content.template_store import Template
from tumira.content.templates import TemplateVerdict, tidy
from tumira.core.errors import OperatorError
from tumira.core.ids import TEMPLATE, AccountId, TemplateId, new_id, write_id
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

NO_REVIEW: Final = "Nobody waits for an answer about this text any more; somebody else has given it."

_WHAT: Final = {
    TemplateVerdict.ALLOW: "texts of a template allowed",
    TemplateVerdict.BLOCK: "texts of a template refused",
}


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
    """Allow or refuse texts of a form; with a refused text's digest, that also answers who asked about it."""
    note = checked(note)
    now = datetime.now(UTC)
    template = Template(
        TemplateId(new_id(int(now.timestamp() * 1000))),
        account_id,
        _tidy(text),
        verdict,
        note,
        now,
        actor.name,
    )
    async with database.transaction() as connection:
        if account_id is not None and await accounts.find(connection, account_id) is None:
            raise OperatorError(NO_ACCOUNT)
        await _insert(connection, template)
        await _note(connection, actor, account_id, _WHAT[verdict], template)
        if answers is not None and account_id is not None:
            await reviews.close(connection, account_id, answers)
    return template


async def _insert(connection: Connection, template: Template) -> None:
    in_all, own = await template_store.hold_and_count(connection, template.account_id)
    same = await template_store.find_same(connection, template.account_id, template.pattern)
    if same is not None:
        raise OperatorError(f"There is such a template already: {write_id(TEMPLATE, same)}; remove it first.")
    if own >= OWN_MAX:
        raise OperatorError(
            f"There are {OWN_MAX} templates of this account, the most there can be: remove one."
        )
    if in_all >= IN_ALL_MAX:
        raise OperatorError(f"There are {IN_ALL_MAX} templates, the most there can be: remove one first.")
    await template_store.insert(connection, template)


async def remove_template(database: Database, template_id: TemplateId, actor: Actor) -> Template:
    """Remove a template; from the next call on the judge alone decides about its texts."""
    async with database.transaction() as connection:
        removed = await template_store.delete(connection, template_id)
        if removed is None:
            raise OperatorError(NO_TEMPLATE)
        await _note(connection, actor, removed.account_id, "template removed", removed)
    return removed


async def dismiss(
    database: Database, account_id: AccountId, digest: bytes, *, answer: str, actor: Actor
) -> None:
    """Leave a text refused, and tell who asked why."""
    answer = checked(answer)
    async with database.transaction() as connection:
        if not await reviews.close(connection, account_id, digest):
            raise OperatorError(NO_REVIEW)
        what = "review of a refused text: it stays refused"
        await audit_log.record(connection, account_id, actor, what, answer)
        await audit_log.record_by_operator(connection, actor, what, answer, account_id)


async def _note(
    connection: Connection, actor: Actor, account_id: AccountId | None, what: str, template: Template
) -> None:
    # What the template says stays out: a customer's words do not belong into records that are kept for good.
    detail = write_id(TEMPLATE, template.id) + (f", {template.note}" if template.note else "")
    await audit_log.record_by_operator(connection, actor, what, detail, account_id)
    if account_id is not None:
        await audit_log.record(connection, account_id, actor, what, detail)


def checked(note: str) -> str:
    """Return a note that can be kept, in one line."""
    note = " ".join(note.split())
    if not note.isprintable():
        raise OperatorError("The note has characters that cannot be shown; write it in plain text.")
    if len(note) > NOTE_MAX:
        raise OperatorError(f"The note has {len(note)} characters; at most {NOTE_MAX} fit.")
    return note


def _tidy(text: str) -> str:
    try:
        return tidy(text)
    except ValueError as error:
        raise OperatorError(str(error)) from error
