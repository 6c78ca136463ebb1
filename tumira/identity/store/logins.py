"""Logins of people and operators: password, proof of the phone, and e-mail address."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId
from tumira.identity.principal import Principal, PrincipalKind
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement


@dataclass(frozen=True, slots=True)
class Login:
    """A principal's password, hashed; None until they have chosen one, or once a one-time one expired."""

    principal: Principal
    name: str
    password_hash: str | None
    # Whether there is an account to sign in to; operators need none.
    has_account: bool
    # Whether all accounts of the person were closed.
    closed: bool
    # Whether a code that was sent to the phone was entered; an operator vouches for an account they opened.
    phone_proved: bool
    # Whether the password is valid once: for choosing another and setting up the second factor.
    is_one_time: bool

    @property
    def is_free(self) -> bool:
        """Whether the person has left every account: the number may be used for a sign-up again."""
        return not self.has_account and not self.closed


_OPERATOR_HASH: Final = "CASE WHEN one_time_until < clock_timestamp() THEN NULL ELSE password_hash END"

SQL_FIND: Final = {
    PrincipalKind.CUSTOMER: Statement("""
SELECT p.id, p.name, l.password_hash, m.open > 0 AS has_account, m.total > 0 AND m.open = 0 AS closed,
       l.person_id IS NULL OR l.phone_proved_at IS NOT NULL AS phone_proved, false AS is_one_time
  FROM people p
  LEFT JOIN logins l ON l.person_id = p.id
 CROSS JOIN LATERAL (
       SELECT count(*) AS total, count(*) FILTER (WHERE a.closed_at IS NULL) AS open
         FROM members
         JOIN accounts a ON a.id = members.account_id
        WHERE members.person_id = p.id
       ) m
 WHERE p.phone = %(phone)s
"""),
    PrincipalKind.OPERATOR: Statement(f"""
SELECT id, name, {_OPERATOR_HASH} AS password_hash, true AS has_account, false AS closed,
       true AS phone_proved, one_time_until IS NOT NULL AS is_one_time
  FROM operators
 WHERE phone = %(phone)s
   AND removed_at IS NULL
"""),  # noqa: S608 - only constants are put in
}


async def find(connection: Connection, kind: PrincipalKind, phone: str) -> Login | None:
    """Return the login of a number; None when it is no person's, or no operator's."""
    row = await SQL_FIND[kind].row(connection, phone=phone)
    if row is None:
        return None
    principal_id, *rest = row
    return Login(Principal(kind, principal_id, phone), *rest)


SQL_LOCK: Final = {
    PrincipalKind.CUSTOMER: Statement(
        "SELECT password_hash FROM logins WHERE person_id = %(id)s FOR NO KEY UPDATE"
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
INSERT INTO logins (person_id, email, password_hash, phone_proved_at)
VALUES (%(id)s, %(email)s, %(password_hash)s,
        CASE WHEN %(phone_proved)s::boolean THEN clock_timestamp() END)
    ON CONFLICT (person_id) DO UPDATE
   SET email = excluded.email, password_hash = excluded.password_hash, changed_at = clock_timestamp(),
       phone_proved_at = excluded.phone_proved_at
""")


async def insert(
    connection: Connection,
    principal: Principal,
    email: str | None,
    password_hash: str,
    *,
    phone_proved: bool,
) -> None:
    """Add the login of a person who has none, or had one for an account that they left."""
    await SQL_INSERT.rows(
        connection,
        id=principal.id,
        email=email,
        password_hash=password_hash,
        phone_proved=phone_proved,
    )


SQL_MARK_PROVED: Final = Statement(
    "UPDATE logins SET phone_proved_at = clock_timestamp() WHERE person_id = %(person_id)s"
)


async def mark_proved(connection: Connection, person_id: UUID) -> None:
    await SQL_MARK_PROVED.rows(connection, person_id=person_id)


SQL_SET_PASSWORD: Final = {
    PrincipalKind.CUSTOMER: Statement("""
INSERT INTO logins (person_id, password_hash)
VALUES (%(id)s, %(password_hash)s)
    ON CONFLICT (person_id) DO UPDATE
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
    """A person's e-mail address, and whether notices come by e-mail and by text message."""

    email: str | None
    low_balance_mail: bool
    notice_texts: bool


SQL_FIND_CONTACT: Final = Statement(
    "SELECT email, low_balance_mail, notice_texts FROM logins WHERE person_id = %(person_id)s"
)


async def find_contact(connection: Connection, person_id: UUID) -> Contact | None:
    """Return how a person is reached; None while they cannot sign in."""
    row = await SQL_FIND_CONTACT.row(connection, person_id=person_id)
    return None if row is None else Contact(*row)


async def find_email(connection: Connection, person_id: UUID) -> str | None:
    contact = await find_contact(connection, person_id)
    return None if contact is None else contact.email


SQL_FIND_OWNERS_EMAIL: Final = Statement("""
SELECT l.email
  FROM members m
  JOIN logins l ON l.person_id = m.person_id
 WHERE m.account_id = %(account_id)s
   AND m.role = 'owner'
   AND l.email IS NOT NULL
 ORDER BY m.since
 LIMIT 1
""")


async def find_owners_email(connection: Connection, account_id: AccountId) -> str | None:
    """Return the e-mail address of the account's first owner who gave one."""
    email: str | None = await SQL_FIND_OWNERS_EMAIL.value(connection, account_id=account_id)
    return email


SQL_SET_EMAIL: Final = Statement("UPDATE logins SET email = %(email)s WHERE person_id = %(person_id)s")


async def set_email(connection: Connection, person_id: UUID, email: str | None) -> None:
    await SQL_SET_EMAIL.rows(connection, person_id=person_id, email=email)


SQL_SET_NOTICES: Final = Statement("""
UPDATE logins
   SET low_balance_mail = %(by_mail)s, notice_texts = %(by_text)s
 WHERE person_id = %(person_id)s
""")


async def set_notices(connection: Connection, person_id: UUID, *, by_mail: bool, by_text: bool) -> None:
    await SQL_SET_NOTICES.rows(connection, person_id=person_id, by_mail=by_mail, by_text=by_text)
