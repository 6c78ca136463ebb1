"""Logins of accounts: password, proof of the phone, and e-mail address."""

from dataclasses import dataclass
from typing import Final

from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Login:
    """An account's password, hashed; None until its owner has chosen one."""

    account_id: AccountId
    password_hash: str | None
    # Whether its owner has closed the account.
    closed: bool
    # Whether a code that was sent to the phone was entered; an operator vouches for an account they opened.
    phone_proved: bool


SQL_FIND: Final = Statement("""
SELECT a.id, l.password_hash, a.closed_at IS NOT NULL, l.account_id IS NULL OR l.phone_proved_at IS NOT NULL
  FROM accounts a
  LEFT JOIN logins l ON l.account_id = a.id
 WHERE a.phone = %(phone)s
""")


async def find(connection: Connection, phone: str) -> Login | None:
    """Return the login of a number's account; None when there is no account."""
    row = await SQL_FIND.row(connection, phone=phone)
    return None if row is None else Login(*row)


SQL_LOCK: Final = Statement(
    "SELECT password_hash FROM logins WHERE account_id = %(account_id)s FOR NO KEY UPDATE"
)


async def lock(connection: Connection, account_id: AccountId) -> str | None:
    """Lock an account's login until the commit, and return the hashed password."""
    password_hash: str | None = await SQL_LOCK.value(connection, account_id=account_id)
    return password_hash


SQL_INSERT: Final = Statement("""
INSERT INTO logins (account_id, email, password_hash, phone_proved_at)
VALUES (%(account_id)s, %(email)s, %(password_hash)s,
        CASE WHEN %(phone_proved)s::boolean THEN clock_timestamp() END)
""")


async def insert(
    connection: Connection,
    account_id: AccountId,
    email: str | None,
    password_hash: str,
    *,
    phone_proved: bool,
) -> None:
    await SQL_INSERT.rows(
        connection,
        account_id=account_id,
        email=email,
        password_hash=password_hash,
        phone_proved=phone_proved,
    )


SQL_MARK_PROVED: Final = Statement(
    "UPDATE logins SET phone_proved_at = clock_timestamp() WHERE account_id = %(account_id)s"
)


async def mark_proved(connection: Connection, account_id: AccountId) -> None:
    await SQL_MARK_PROVED.rows(connection, account_id=account_id)


SQL_SET_PASSWORD: Final = Statement("""
INSERT INTO logins (account_id, password_hash)
VALUES (%(account_id)s, %(password_hash)s)
    ON CONFLICT (account_id) DO UPDATE
   SET password_hash = excluded.password_hash, changed_at = clock_timestamp()
""")


async def set_password(connection: Connection, account_id: AccountId, password_hash: str) -> None:
    """Set an account's first password or another."""
    await SQL_SET_PASSWORD.rows(connection, account_id=account_id, password_hash=password_hash)


@dataclass(frozen=True, slots=True)
class Contact:
    """The owner's e-mail address, and whether a low balance is mailed."""

    email: str | None
    low_balance_mail: bool


SQL_GET_CONTACT: Final = Statement(
    "SELECT email, low_balance_mail FROM logins WHERE account_id = %(account_id)s"
)


async def get_contact(connection: Connection, account_id: AccountId) -> Contact:
    row = await SQL_GET_CONTACT.row(connection, account_id=account_id)
    assert row is not None, "who signs in has a login"
    return Contact(*row)


SQL_EXISTS: Final = Statement("SELECT EXISTS (SELECT FROM logins WHERE account_id = %(account_id)s)")


async def exists(connection: Connection, account_id: AccountId) -> bool:
    """Tell whether the owner of an account can sign in to the dashboard."""
    return bool(await SQL_EXISTS.value(connection, account_id=account_id))


SQL_FIND_EMAIL: Final = Statement("SELECT email FROM logins WHERE account_id = %(account_id)s")


async def find_email(connection: Connection, account_id: AccountId) -> str | None:
    """Return the owner's e-mail address; None when none was given, or no owner ever signed in."""
    email: str | None = await SQL_FIND_EMAIL.value(connection, account_id=account_id)
    return email


SQL_SET_EMAIL: Final = Statement("UPDATE logins SET email = %(email)s WHERE account_id = %(account_id)s")


async def set_email(connection: Connection, account_id: AccountId, email: str | None) -> None:
    await SQL_SET_EMAIL.rows(connection, account_id=account_id, email=email)


SQL_SET_LOW_BALANCE_MAIL: Final = Statement(
    "UPDATE logins SET low_balance_mail = %(wanted)s WHERE account_id = %(account_id)s"
)


async def set_low_balance_mail(connection: Connection, account_id: AccountId, *, wanted: bool) -> None:
    await SQL_SET_LOW_BALANCE_MAIL.rows(connection, account_id=account_id, wanted=wanted)
