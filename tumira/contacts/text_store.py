"""Texts that an account sends often."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tumira.core.ids import AccountId, SavedTextId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class SavedText:
    """A message with places, such as `{name}`."""

    id: SavedTextId
    name: str
    message: str
    changed_at: datetime


_TEXT: Final = "SELECT id, name, message, changed_at FROM saved_texts WHERE account_id = %(account_id)s"

SQL_LIST: Final = Statement(_TEXT + " ORDER BY lower(name)")

SQL_FIND: Final = Statement(_TEXT + " AND id = %(text_id)s")


async def list_texts(connection: Connection, account_id: AccountId) -> Sequence[SavedText]:
    """Return all texts of an account, by name."""
    return [SavedText(*row) for row in await SQL_LIST.rows(connection, account_id=account_id)]


async def find_text(connection: Connection, account_id: AccountId, text_id: SavedTextId) -> SavedText | None:
    """Return a text; None for an unknown one and for another account's."""
    row = await SQL_FIND.row(connection, account_id=account_id, text_id=text_id)
    return None if row is None else SavedText(*row)


SQL_PUT: Final = Statement("""
INSERT INTO saved_texts (id, account_id, name, message)
VALUES (%(text_id)s, %(account_id)s, %(name)s, %(message)s)
    ON CONFLICT (id) DO UPDATE
   SET name = excluded.name, message = excluded.message, changed_at = excluded.changed_at
""")


async def put_text(
    connection: Connection, account_id: AccountId, text_id: SavedTextId, name: str, message: str
) -> None:
    """Store a text, new or changed. A known one must be the account's own."""
    await SQL_PUT.rows(connection, account_id=account_id, text_id=text_id, name=name, message=message)


SQL_DELETE: Final = Statement("""
DELETE FROM saved_texts WHERE account_id = %(account_id)s AND id = %(text_id)s RETURNING name
""")


async def delete_text(connection: Connection, account_id: AccountId, text_id: SavedTextId) -> str | None:
    """Delete a text and return its name; None for an unknown one and for another account's."""
    name: str | None = await SQL_DELETE.value(connection, account_id=account_id, text_id=text_id)
    return name


SQL_DELETE_OF_ACCOUNT: Final = Statement("DELETE FROM saved_texts WHERE account_id = %(account_id)s")


async def delete_of_account(connection: Connection, account_id: AccountId) -> None:
    """Delete all texts of an account that is closed."""
    await SQL_DELETE_OF_ACCOUNT.rows(connection, account_id=account_id)
