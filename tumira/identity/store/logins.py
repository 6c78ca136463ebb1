"""Logins of accounts and operators: password, proof of the phone, and e-mail address."""

from dataclasses import dataclass
from typing import Final

from tumira.core.ids import AccountId
from tumira.identity.principal import Principal, PrincipalKind
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Login:
    """A principal's password, hashed; None until they have chosen one, or once a one-time one expired."""

    principal: Principal
    password_hash: str | None
    # Whether the owner of an account has closed it.
    closed: bool
    # Whether a code that was sent to the phone was entered; an operator vouches for an account they opened.
    phone_proved: bool
    # Whether the password is valid once: for choosing another and setting up the second factor.
    is_one_time: bool


_OPERATOR_HASH: Final = "CASE WHEN one_time_until < clock_timestamp() THEN NULL ELSE password_hash END"

SQL_FIND: Final = {
    PrincipalKind.ACCOUNT: Statement("""
SELECT a.id, l.password_hash, a.closed_at IS NOT NULL AS closed,
       l.account_id IS NULL OR l.phone_proved_at IS NOT NULL AS phone_proved, false AS is_one_time
  FROM accounts a
  LEFT JOIN logins l ON l.account_id = a.id
 WHERE a.phone = %(phone)s
"""),
    PrincipalKind.OPERATOR: Statement(f"""
SELECT id, {_OPERATOR_HASH} AS password_hash, false AS closed, true AS phone_proved,
       one_time_until IS NOT NULL AS is_one_time
  FROM operators
 WHERE phone = %(phone)s
   AND removed_at IS NULL
"""),  # noqa: S608 - only constants are put in
}


async def find(connection: Connection, kind: PrincipalKind, phone: str) -> Login | None:
    """Return the login of a number; None when it has no account, or no operator."""
    row = await SQL_FIND[kind].row(connection, phone=phone)
    if row is None:
        return None
    principal_id, *rest = row
    return Login(Principal(kind, principal_id, phone), *rest)


SQL_LOCK: Final = {
    PrincipalKind.ACCOUNT: Statement(
        "SELECT password_hash FROM logins WHERE account_id = %(id)s FOR NO KEY UPDATE"
    ),
    PrincipalKind.OPERATOR: Statement(
        f"SELECT {_OPERATOR_HASH} FROM operators WHERE id = %(id)s AND removed_at IS NULL FOR NO KEY UPDATE"  # noqa: S608
    ),
}


async def lock(connection: Connection, principal: Principal) -> str | None:
    """Lock the password and the second factor until the commit, and return the hashed password."""
    password_hash: str | None = await SQL_LOCK[principal.kind].value(connection, id=principal.id)
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


SQL_SET_PASSWORD: Final = {
    PrincipalKind.ACCOUNT: Statement("""
INSERT INTO logins (account_id, password_hash)
VALUES (%(id)s, %(password_hash)s)
    ON CONFLICT (account_id) DO UPDATE
   SET password_hash = excluded.password_hash, changed_at = clock_timestamp()
"""),
    PrincipalKind.OPERATOR: Statement(
        "UPDATE operators SET password_hash = %(password_hash)s, one_time_until = NULL WHERE id = %(id)s"
    ),
}


async def set_password(connection: Connection, principal: Principal, password_hash: str) -> None:
    """Set the first password that a principal chose, or another."""
    await SQL_SET_PASSWORD[principal.kind].rows(connection, id=principal.id, password_hash=password_hash)


@dataclass(frozen=True, slots=True)
class Contact:
    """The owner's e-mail address, and whether notices come by e-mail and by text message."""

    email: str | None
    low_balance_mail: bool
    notice_texts: bool


SQL_FIND_CONTACT: Final = Statement(
    "SELECT email, low_balance_mail, notice_texts FROM logins WHERE account_id = %(account_id)s"
)


async def find_contact(connection: Connection, account_id: AccountId) -> Contact | None:
    """Return how an owner is reached; None while nobody can sign in to the account."""
    row = await SQL_FIND_CONTACT.row(connection, account_id=account_id)
    return None if row is None else Contact(*row)


async def find_email(connection: Connection, account_id: AccountId) -> str | None:
    contact = await find_contact(connection, account_id)
    return None if contact is None else contact.email


SQL_SET_EMAIL: Final = Statement("UPDATE logins SET email = %(email)s WHERE account_id = %(account_id)s")


async def set_email(connection: Connection, account_id: AccountId, email: str | None) -> None:
    await SQL_SET_EMAIL.rows(connection, account_id=account_id, email=email)


SQL_SET_NOTICES: Final = Statement("""
UPDATE logins
   SET low_balance_mail = %(by_mail)s, notice_texts = %(by_text)s
 WHERE account_id = %(account_id)s
""")


async def set_notices(connection: Connection, account_id: AccountId, *, by_mail: bool, by_text: bool) -> None:
    await SQL_SET_NOTICES.rows(connection, account_id=account_id, by_mail=by_mail, by_text=by_text)
