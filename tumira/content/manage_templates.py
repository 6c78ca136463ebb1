"""How does the operator allow or block a form of text?"""

from collections.abc import Sequence
from typing import Final

from tumira.accounts import store as accounts
from tumira.content import store as content_refusals
from tumira.content import template_store
from tumira.content.store import ContentRefusal
from tumira.content.template_store import Template
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

NO_ACCOUNT: Final = "There is no such account; `tumira account list` shows them."
NO_TEMPLATE: Final = "There is no such template; `tumira template list` shows them."
# An account's texts are compared with all of its own and all of everybody's, and all are kept in memory.
OWN_MAX: Final = 100
IN_ALL_MAX: Final = 10_000
NOTE_MAX: Final = 200


async def list_templates(
    database: Database, account_id: AccountId | None, count_max: int = IN_ALL_MAX
) -> Sequence[Template]:
    """Return all templates, or those that count for an account."""
    async with database.connection() as connection:
        await _check_account(connection, account_id)
        return await template_store.list_some(connection, account_id, count_max)


async def list_refusals(
    database: Database, account_id: AccountId | None, count_max: int
) -> Sequence[ContentRefusal]:
    """Return the texts that were refused last, everybody's or one account's."""
    async with database.connection() as connection:
        await _check_account(connection, account_id)
        return await content_refusals.list_latest(connection, account_id, count_max)


async def _check_account(connection: Connection, account_id: AccountId | None) -> None:
    if account_id is not None and await accounts.find(connection, account_id) is None:
        raise OperatorError(NO_ACCOUNT)
