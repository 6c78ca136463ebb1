"""How does the operator allow or block a form of text?"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from tumira.errors import Trouble
from tumira.ids import TEMPLATE, AccountId, TemplateId, new_id, write_id
from tumira.rules.templates import TemplateVerdict, tidy
from tumira.store import accounts, content_refusals, templates
from tumira.store.content_refusals import ContentRefusal
from tumira.store.database import Database
from tumira.store.sql import Connection
from tumira.store.templates import Template

NO_ACCOUNT: Final = "There is no such account; `tumira account list` shows them."
NO_TEMPLATE: Final = "There is no such template; `tumira template list` shows them."
# An account's texts are compared with all of its own and all of everybody's, and all are kept in memory.
OWN_MAX: Final = 100
IN_ALL_MAX: Final = 10_000
NOTE_MAX: Final = 200


async def add_template(
    database: Database,
    text: str,
    account_id: AccountId | None,
    verdict: TemplateVerdict,
    *,
    note: str,
    actor: str,
) -> Template:
    """Allow or block texts of a form, for an account or for every one; it counts from the next call."""
    pattern = _tidy(text)
    _check_note(note)
    now = datetime.now(UTC)
    template = Template(
        TemplateId(new_id(int(now.timestamp() * 1000))), account_id, pattern, verdict, note, now, actor
    )
    async with database.transaction() as connection:
        await _check_account(connection, account_id)
        in_all, own = await templates.hold_and_count(connection, account_id)
        same = await templates.find_same(connection, account_id, pattern)
        if same is not None:
            raise Trouble(f"There is such a template already: {write_id(TEMPLATE, same)}; remove it first.")
        if own >= OWN_MAX:
            raise Trouble(
                f"There are {OWN_MAX} templates of this account, the most there can be: remove one."
            )
        if in_all >= IN_ALL_MAX:
            raise Trouble(f"There are {IN_ALL_MAX} templates, the most there can be: remove one first.")
        await templates.insert(connection, template)
    return template


def _tidy(text: str) -> str:
    try:
        return tidy(text)
    except ValueError as error:
        raise Trouble(str(error)) from error


def _check_note(note: str) -> None:
    if not note.isprintable():
        raise Trouble("The note has characters that cannot be shown; write it in plain text.")
    if len(note) > NOTE_MAX:
        raise Trouble(f"The note has {len(note)} characters; at most {NOTE_MAX} fit.")


async def list_templates(
    database: Database, account_id: AccountId | None, count_max: int = IN_ALL_MAX
) -> Sequence[Template]:
    """Return all templates, or those that count for an account."""
    async with database.connection() as connection:
        await _check_account(connection, account_id)
        return await templates.list_some(connection, account_id, count_max)


async def remove_template(database: Database, template_id: TemplateId) -> Template:
    """Remove a template; from the next call on the judge alone decides about its texts."""
    async with database.transaction() as connection:
        removed = await templates.delete(connection, template_id)
        if removed is None:
            raise Trouble(NO_TEMPLATE)
    return removed


async def list_refusals(
    database: Database, account_id: AccountId | None, count_max: int
) -> Sequence[ContentRefusal]:
    """Return the texts that were refused last, everybody's or one account's."""
    async with database.connection() as connection:
        await _check_account(connection, account_id)
        return await content_refusals.list_latest(connection, account_id, count_max)


async def _check_account(connection: Connection, account_id: AccountId | None) -> None:
    if account_id is not None and await accounts.find(connection, account_id) is None:
        raise Trouble(NO_ACCOUNT)
