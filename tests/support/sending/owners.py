"""Accounts with an owner, and the notices that the owner got."""

from collections.abc import Sequence

from tumira.accounts.store import SYSTEM
from tumira.core.ids import AccountId
from tumira.identity.store import logins, people
from tumira.postgres.pool import Database


async def give_owner(database: Database, account_id: AccountId, email: str | None = None) -> str:
    """Give an account an owner who can sign in; return the number."""
    async with database.transaction() as connection:
        (owner,) = await people.list_owners(connection, account_id)
        await logins.insert(connection, owner.principal, email, "no hash", phone_proved=True)
    return owner.phone


async def texts_to_owner(database: Database, phone: str) -> Sequence[str]:
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT b.body FROM batches b JOIN messages m ON m.batch_id = b.id"
            " WHERE b.account_id = $1 AND m.recipient = $2 ORDER BY b.id",
            SYSTEM,
            phone,
        )
    return [row["body"] for row in rows]
