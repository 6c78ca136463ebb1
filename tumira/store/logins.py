"""With which password does an account's owner sign in, and where else can they be written to?"""

from dataclasses import dataclass
from typing import Final

from tumira.ids import AccountId
from tumira.store.sql import Connection, Statement


@dataclass(frozen=True, slots=True)
class Login:
    """An account's password, hashed; None until its owner has chosen one."""

    account_id: AccountId
    password_hash: str | None


SQL_FIND: Final = Statement("""
SELECT a.id, l.password_hash
  FROM accounts a
  LEFT JOIN logins l ON l.account_id = a.id
 WHERE a.phone = %(phone)s
""")


async def find(connection: Connection, phone: str) -> Login | None:
    """Return the login of a number's account; None when there is no account."""
    row = await SQL_FIND.row(connection, phone=phone)
    return None if row is None else Login(*row)


SQL_HOLD: Final = Statement(
    "SELECT password_hash FROM logins WHERE account_id = %(account_id)s FOR NO KEY UPDATE"
)


async def hold(connection: Connection, account_id: AccountId) -> str | None:
    """Return an account's hashed password as it is now, and keep others from changing it meanwhile."""
    password_hash: str | None = await SQL_HOLD.value(connection, account_id=account_id)
    return password_hash


SQL_INSERT: Final = Statement("""
INSERT INTO logins (account_id, email, password_hash)
VALUES (%(account_id)s, %(email)s, %(password_hash)s)
""")


async def insert(
    connection: Connection, account_id: AccountId, email: str | None, password_hash: str
) -> None:
    """Add the login of a new account."""
    await SQL_INSERT.rows(connection, account_id=account_id, email=email, password_hash=password_hash)


SQL_SET_PASSWORD: Final = Statement("""
INSERT INTO logins (account_id, password_hash)
VALUES (%(account_id)s, %(password_hash)s)
    ON CONFLICT (account_id) DO UPDATE
   SET password_hash = excluded.password_hash, changed_at = clock_timestamp()
""")


async def set_password(connection: Connection, account_id: AccountId, password_hash: str) -> None:
    """Set an account's password, its first one or another."""
    await SQL_SET_PASSWORD.rows(connection, account_id=account_id, password_hash=password_hash)
