"""Sessions of customers and operators, and sign-ins that wait for the second factor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import ClassVar, Final, TypeVar
from uuid import UUID

import asyncpg

from tumira.audit_log import Actor
from tumira.core.ids import AccountId, OperatorId
from tumira.identity.principal import Browser, Principal, PrincipalKind
from tumira.identity.roles import MemberRole
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

IDLE_HOURS: Final = 24
DAYS_MAX: Final = 30
# The time that a customer has between the password and the second factor.
PENDING_MINUTES: Final = 5

OPERATOR_IDLE_HOURS: Final = 8
OPERATOR_HOURS_MAX: Final = 24
# The time that an operator has between the password and the second factor, or to set one up.
OPERATOR_PENDING_MINUTES: Final = 10

USER_AGENT_MAX: Final = 200


class SignInStage(StrEnum):
    """What a pending sign-in waits for: setting up password and second factor, or a code."""

    NEW = "new"
    CODE = "code"


VALID: Final = {
    PrincipalKind.CUSTOMER: f"""
s.seen_at > clock_timestamp() - interval '{IDLE_HOURS} hours'
   AND s.created_at > clock_timestamp() - interval '{DAYS_MAX} days'
""",
    PrincipalKind.OPERATOR: f"""
s.seen_at > clock_timestamp() - interval '{OPERATOR_IDLE_HOURS} hours'
   AND s.created_at > clock_timestamp() - CASE s.stage
       WHEN 'in' THEN interval '{OPERATOR_HOURS_MAX} hours'
       ELSE interval '{OPERATOR_PENDING_MINUTES} minutes' END
""",
}


@dataclass(frozen=True, slots=True)
class SignedInCustomer:
    """A person's session in one account, with what every page shows of both."""

    kind: ClassVar = PrincipalKind.CUSTOMER

    session_id: UUID
    account_id: AccountId
    # Of the account: the number that it was opened with, and the name of its contact.
    phone: str
    name: str
    business: str
    balance: Decimal
    suspended: bool
    # True when the session was last seen long enough ago to be worth a write.
    is_news: bool
    # False while only an e-mail address was proved: then everything is shown, and nothing can be changed.
    phone_proved: bool
    person_id: UUID
    person_phone: str
    person_name: str
    role: MemberRole
    # Whether the person may switch to another account.
    has_others: bool

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> "SignedInCustomer":
        return cls(**{**dict(row), "role": MemberRole(row["role"])})

    @property
    def principal(self) -> Principal:
        return Principal(PrincipalKind.CUSTOMER, self.person_id, self.person_phone)


@dataclass(frozen=True, slots=True)
class SignedInOperator:
    """An operator's session."""

    kind: ClassVar = PrincipalKind.OPERATOR

    session_id: UUID
    operator_id: OperatorId
    phone: str
    name: str
    # Others look at everything, and change nothing.
    is_admin: bool
    # True when the session was last seen long enough ago to be worth a write.
    is_news: bool

    @classmethod
    def from_row(cls, row: asyncpg.Record) -> "SignedInOperator":
        return cls(**row)


SignedInPerson = TypeVar("SignedInPerson", SignedInCustomer, SignedInOperator)


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A sign-in whose password was right, and the new password to be set after the second factor."""

    principal: Principal
    name: str
    password_hash: str | None

    def actor(self, address: str) -> Actor:
        if self.principal.kind is PrincipalKind.OPERATOR:
            return Actor(f"operator:{self.name}", address)
        return Actor(self.name, address, self.principal.id)


def _of_each(text: str) -> Mapping[PrincipalKind, Statement]:
    """Return a statement for each kind of principal, which differ by the names of table and owner."""
    names = {
        PrincipalKind.CUSTOMER: {"table": "sessions", "owner": "person_id"},
        PrincipalKind.OPERATOR: {"table": "operator_sessions", "owner": "operator_id"},
    }
    return {kind: Statement(text.format(**names[kind])) for kind in PrincipalKind}


_INSERT_OPERATOR: Final = Statement("""
INSERT INTO operator_sessions (id, token_sha256, operator_id, address, browser, stage)
VALUES (%(session_id)s, %(token_sha256)s, %(id)s, %(address)s, %(browser)s, %(stage)s)
""")
SQL_INSERT: Final = {
    # In the account that the person used last.
    PrincipalKind.CUSTOMER: Statement("""
WITH chosen AS (
    SELECT m.account_id
      FROM members m
      JOIN accounts a ON a.id = m.account_id
     WHERE m.person_id = %(id)s
       AND a.closed_at IS NULL
     ORDER BY m.used_at DESC NULLS LAST, m.since
     LIMIT 1
)
INSERT INTO sessions (id, token_sha256, person_id, member_of, address, browser)
SELECT %(session_id)s, %(token_sha256)s, %(id)s, account_id, %(address)s, %(browser)s FROM chosen
"""),
    PrincipalKind.OPERATOR: _INSERT_OPERATOR,
}
# An operator's session has its stage in a column; a customer's begins in a table of its own.
SQL_INSERT_PENDING: Final = {
    PrincipalKind.CUSTOMER: Statement("""
INSERT INTO half_sessions (token_sha256, person_id, password_hash)
VALUES (%(token_sha256)s, %(id)s, %(password_hash)s)
"""),
    PrincipalKind.OPERATOR: _INSERT_OPERATOR,
}


async def insert(
    connection: Connection,
    principal: Principal,
    session_id: UUID,
    token_sha256: bytes,
    browser: Browser,
    *,
    pending: SignInStage | None = None,
    password_hash: str | None = None,
) -> None:
    """Begin a session, or a pending sign-in, after which a forgotten password is set."""
    statement = (SQL_INSERT if pending is None else SQL_INSERT_PENDING)[principal.kind]
    columns = {
        "session_id": session_id,
        "token_sha256": token_sha256,
        "id": principal.id,
        "address": browser.address,
        "browser": browser.user_agent[:USER_AGENT_MAX],
        "stage": pending or "in",
        "password_hash": password_hash,
    }
    await statement.rows(connection, **{name: columns[name] for name in statement.names})


# A session that began while its account was being closed, or its person removed, is not valid either.
SQL_FIND: Final = {
    PrincipalKind.CUSTOMER: Statement(f"""
SELECT s.id AS session_id, a.id AS account_id, a.phone, a.name, a.business, a.balance,
       a.suspended_at IS NOT NULL AS suspended,
       s.seen_at < clock_timestamp() - interval '1 minute' AS is_news,
       l.person_id IS NULL OR l.phone_proved_at IS NOT NULL AS phone_proved,
       p.id AS person_id, p.phone AS person_phone, p.name AS person_name, m.role,
       EXISTS (
           SELECT
             FROM members o
             JOIN accounts b ON b.id = o.account_id
            WHERE o.person_id = p.id AND o.account_id <> a.id AND b.closed_at IS NULL
       ) AS has_others
  FROM sessions s
  JOIN members m ON m.account_id = s.member_of AND m.person_id = s.person_id
  JOIN accounts a ON a.id = m.account_id
  JOIN people p ON p.id = m.person_id
  LEFT JOIN logins l ON l.person_id = p.id
 WHERE s.token_sha256 = %(token_sha256)s
   AND a.closed_at IS NULL
   AND {VALID[PrincipalKind.CUSTOMER]}
"""),  # noqa: S608 - only constants are put in
    PrincipalKind.OPERATOR: Statement(f"""
SELECT s.id AS session_id, o.id AS operator_id, o.phone, o.name, o.role = 'admin' AS is_admin,
       s.seen_at < clock_timestamp() - interval '1 minute' AS is_news
  FROM operator_sessions s
  JOIN operators o ON o.id = s.operator_id
 WHERE s.token_sha256 = %(token_sha256)s
   AND s.stage = 'in'
   AND o.removed_at IS NULL
   AND {VALID[PrincipalKind.OPERATOR]}
"""),  # noqa: S608 - only constants are put in
}


async def find(
    connection: Connection, who: type[SignedInPerson], token_sha256: bytes
) -> SignedInPerson | None:
    """Return who holds the token of a valid session."""
    row = await SQL_FIND[who.kind].row(connection, token_sha256=token_sha256)
    return None if row is None else who.from_row(row)


SQL_FIND_PENDING: Final = {
    PrincipalKind.CUSTOMER: Statement(f"""
SELECT p.id, p.phone, p.name, '{SignInStage.CODE}' AS stage, h.password_hash
  FROM half_sessions h
  JOIN people p ON p.id = h.person_id
 WHERE h.token_sha256 = %(token_sha256)s
   AND h.created_at > clock_timestamp() - interval '{PENDING_MINUTES} minutes'
   AND EXISTS (
           SELECT
             FROM members m
             JOIN accounts a ON a.id = m.account_id
            WHERE m.person_id = p.id AND a.closed_at IS NULL
       )
"""),  # noqa: S608 - only constants are put in
    PrincipalKind.OPERATOR: Statement(f"""
SELECT o.id, o.phone, o.name, s.stage, NULL AS password_hash
  FROM operator_sessions s
  JOIN operators o ON o.id = s.operator_id
 WHERE s.token_sha256 = %(token_sha256)s
   AND s.stage <> 'in'
   AND o.removed_at IS NULL
   AND {VALID[PrincipalKind.OPERATOR]}
"""),  # noqa: S608 - only constants are put in
}


async def find_pending(
    connection: Connection, kind: PrincipalKind, stage: SignInStage, token_sha256: bytes
) -> PendingSignIn | None:
    """Return the sign-in of this token that waits for the given step."""
    row = await SQL_FIND_PENDING[kind].row(connection, token_sha256=token_sha256)
    if row is None or row["stage"] != stage:
        return None
    return PendingSignIn(Principal(kind, row["id"], row["phone"]), row["name"], row["password_hash"])


SQL_DELETE_PENDING: Final = {
    PrincipalKind.CUSTOMER: Statement(
        "DELETE FROM half_sessions WHERE token_sha256 = %(token_sha256)s RETURNING 1"
    ),
    PrincipalKind.OPERATOR: Statement(
        "DELETE FROM operator_sessions WHERE token_sha256 = %(token_sha256)s AND stage <> 'in' RETURNING 1"
    ),
}


async def delete_pending(connection: Connection, kind: PrincipalKind, token_sha256: bytes) -> bool:
    """Use up the token of a pending sign-in; False if it was used before."""
    return await SQL_DELETE_PENDING[kind].value(connection, token_sha256=token_sha256) is not None


SQL_MARK_SEEN: Final = _of_each("UPDATE {table} SET seen_at = clock_timestamp() WHERE id = %(session_id)s")


async def mark_seen(connection: Connection, kind: PrincipalKind, session_id: UUID) -> None:
    await SQL_MARK_SEEN[kind].rows(connection, session_id=session_id)


SQL_DELETE: Final = _of_each("DELETE FROM {table} WHERE token_sha256 = %(token_sha256)s")


async def delete(connection: Connection, kind: PrincipalKind, token_sha256: bytes) -> None:
    await SQL_DELETE[kind].rows(connection, token_sha256=token_sha256)


SQL_DELETE_PENDING_OF: Final = Statement("DELETE FROM half_sessions WHERE person_id = %(person_id)s")
SQL_DELETE_ALL: Final = _of_each(
    "DELETE FROM {table} WHERE {owner} = %(id)s AND id IS DISTINCT FROM %(kept)s RETURNING 1"
)


async def delete_all(connection: Connection, principal: Principal, kept: UUID | None = None) -> int:
    """End a principal's sessions but the one to be kept, also pending sign-ins; return how many ended."""
    if principal.kind is PrincipalKind.CUSTOMER:
        await SQL_DELETE_PENDING_OF.rows(connection, person_id=principal.id)
    return len(await SQL_DELETE_ALL[principal.kind].rows(connection, id=principal.id, kept=kept))


SQL_DELETE_OWN: Final = Statement("""
DELETE FROM sessions WHERE person_id = %(person_id)s AND id = %(session_id)s RETURNING browser
""")


async def delete_own(connection: Connection, person_id: UUID, session_id: UUID) -> str | None:
    """End one of a person's sessions and return its browser; None when they have no such session."""
    browser: str | None = await SQL_DELETE_OWN.value(connection, person_id=person_id, session_id=session_id)
    return browser


SQL_DELETE_IN_ACCOUNT: Final = Statement("""
DELETE FROM sessions
 WHERE member_of = %(account_id)s
   AND (%(person_id)s::uuid IS NULL OR person_id = %(person_id)s)
""")


async def delete_in_account(
    connection: Connection, account_id: AccountId, person_id: UUID | None = None
) -> None:
    """End the sessions in an account: one person's, or all."""
    await SQL_DELETE_IN_ACCOUNT.rows(connection, account_id=account_id, person_id=person_id)


SQL_SWITCH: Final = Statement("""
WITH chosen AS (
    UPDATE members m
       SET used_at = clock_timestamp()
      FROM accounts a
     WHERE m.account_id = %(account_id)s
       AND m.person_id = %(person_id)s
       AND a.id = m.account_id
       AND a.closed_at IS NULL
    RETURNING m.account_id
)
UPDATE sessions s
   SET member_of = chosen.account_id
  FROM chosen
 WHERE s.id = %(session_id)s
   AND s.person_id = %(person_id)s
RETURNING 1
""")


async def switch(connection: Connection, person_id: UUID, session_id: UUID, account_id: AccountId) -> bool:
    """Move a session to another account of its person; False if they are not in that account."""
    moved = await SQL_SWITCH.value(
        connection, person_id=person_id, session_id=session_id, account_id=account_id
    )
    return moved is not None


@dataclass(frozen=True, slots=True)
class Session:
    """A session as its owner sees it."""

    id: UUID
    address: str
    browser: str
    created_at: datetime
    seen_at: datetime


SQL_LIST: Final = Statement(f"""
SELECT s.id, s.address, s.browser, s.created_at, s.seen_at
  FROM sessions s
 WHERE s.person_id = %(person_id)s
   AND {VALID[PrincipalKind.CUSTOMER]}
 ORDER BY s.seen_at DESC
 LIMIT 100
""")  # noqa: S608 - only constants are put in


async def list_sessions(connection: Connection, person_id: UUID) -> Sequence[Session]:
    """Return a person's valid sessions, the last seen first."""
    return [Session(*row) for row in await SQL_LIST.rows(connection, person_id=person_id)]


SQL_COUNT_IN_ACCOUNT: Final = Statement(f"""
SELECT count(*), max(s.seen_at)
  FROM sessions s
 WHERE s.member_of = %(account_id)s
   AND {VALID[PrincipalKind.CUSTOMER]}
""")  # noqa: S608 - only constants are put in


async def count_in_account(connection: Connection, account_id: AccountId) -> tuple[int, datetime | None]:
    """Return how many valid sessions an account has, and when the last one was seen."""
    row = await SQL_COUNT_IN_ACCOUNT.row(connection, account_id=account_id)
    assert row is not None
    return row[0], row[1]
