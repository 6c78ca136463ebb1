"""Sessions of customers and operators, and sign-ins that wait for the second factor."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId, OperatorId
from tumira.identity.principal import Browser, Principal, PrincipalKind
from tumira.identity.store.operators import Role
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
    """How far an operator's sign-in has come."""

    NEW = "new"
    CODE = "code"
    IN = "in"


_VALID: Final = {
    PrincipalKind.ACCOUNT: f"""
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


class _Statements:
    """The statements for one kind of principal, which differ by the names of tables and columns."""

    def __init__(self, table: str, owner: str, valid: str) -> None:
        self.mark_seen = Statement(
            f"UPDATE {table} SET seen_at = clock_timestamp() WHERE id = %(session_id)s"  # noqa: S608
        )
        self.delete = Statement(f"DELETE FROM {table} WHERE token_sha256 = %(token_sha256)s")  # noqa: S608
        self.delete_all = Statement(f"DELETE FROM {table} WHERE {owner} = %(id)s")  # noqa: S608
        self.delete_old = Statement(f"""
WITH old AS MATERIALIZED (
    SELECT s.id
      FROM {table} s
     WHERE NOT ({valid})
     LIMIT %(count_max)s
       FOR UPDATE OF s SKIP LOCKED
), deleted AS (
    DELETE FROM {table} WHERE id = ANY(ARRAY(SELECT id FROM old))
)
SELECT count(*) FROM old
""")  # noqa: S608 - only constants are put in


_STATEMENTS: Final = {
    PrincipalKind.ACCOUNT: _Statements("sessions", "account_id", _VALID[PrincipalKind.ACCOUNT]),
    PrincipalKind.OPERATOR: _Statements("operator_sessions", "operator_id", _VALID[PrincipalKind.OPERATOR]),
}

SQL_INSERT: Final = Statement("""
INSERT INTO sessions (id, token_sha256, account_id, address, browser)
VALUES (%(session_id)s, %(token_sha256)s, %(id)s, %(address)s, %(browser)s)
""")
SQL_INSERT_OPERATOR: Final = Statement("""
INSERT INTO operator_sessions (id, token_sha256, operator_id, address, browser, stage)
VALUES (%(session_id)s, %(token_sha256)s, %(id)s, %(address)s, %(browser)s, %(stage)s)
""")


async def insert(
    connection: Connection,
    principal: Principal,
    session_id: UUID,
    token_sha256: bytes,
    browser: Browser,
    stage: SignInStage = SignInStage.IN,
) -> None:
    """Begin a session; only an operator's may have an earlier stage."""
    columns = {
        "session_id": session_id,
        "token_sha256": token_sha256,
        "id": principal.id,
        "address": browser.address,
        "browser": browser.user_agent[:USER_AGENT_MAX],
    }
    if principal.kind is PrincipalKind.OPERATOR:
        await SQL_INSERT_OPERATOR.rows(connection, **columns, stage=stage)
    else:
        assert stage is SignInStage.IN
        await SQL_INSERT.rows(connection, **columns)


async def mark_seen(connection: Connection, kind: PrincipalKind, session_id: UUID) -> None:
    await _STATEMENTS[kind].mark_seen.rows(connection, session_id=session_id)


async def delete(connection: Connection, kind: PrincipalKind, token_sha256: bytes) -> None:
    await _STATEMENTS[kind].delete.rows(connection, token_sha256=token_sha256)


SQL_DELETE_PENDING: Final = Statement("DELETE FROM half_sessions WHERE account_id = %(account_id)s")


async def delete_all(connection: Connection, principal: Principal) -> None:
    """End all sessions of a principal, also those that wait for the second factor."""
    if principal.kind is PrincipalKind.ACCOUNT:
        await SQL_DELETE_PENDING.rows(connection, account_id=principal.id)
    await _STATEMENTS[principal.kind].delete_all.rows(connection, id=principal.id)


@dataclass(frozen=True, slots=True)
class SignedInCustomer:
    """A customer's session, with what every page shows of the account."""

    session_id: UUID
    account_id: AccountId
    phone: str
    name: str
    business: str
    balance: Decimal
    suspended: bool
    # True when the session was last seen long enough ago to be worth a write.
    is_news: bool
    # False while only an e-mail address was proved: then everything is shown, and nothing can be changed.
    phone_proved: bool

    @property
    def principal(self) -> Principal:
        return Principal(PrincipalKind.ACCOUNT, self.account_id, self.phone)


# A session that began while its account was being closed is not valid either.
SQL_FIND_CUSTOMER: Final = Statement(f"""
SELECT s.id, a.id, a.phone, a.name, a.business, a.balance, a.suspended_at IS NOT NULL,
       s.seen_at < clock_timestamp() - interval '1 minute',
       l.account_id IS NULL OR l.phone_proved_at IS NOT NULL
  FROM sessions s
  JOIN accounts a ON a.id = s.account_id
  LEFT JOIN logins l ON l.account_id = a.id
 WHERE s.token_sha256 = %(token_sha256)s
   AND a.closed_at IS NULL
   AND {_VALID[PrincipalKind.ACCOUNT]}
""")  # noqa: S608 - only constants are put in


async def find_customer(connection: Connection, token_sha256: bytes) -> SignedInCustomer | None:
    """Return who holds the token of a valid session."""
    row = await SQL_FIND_CUSTOMER.row(connection, token_sha256=token_sha256)
    return None if row is None else SignedInCustomer(*row)


@dataclass(frozen=True, slots=True)
class SignedInOperator:
    """An operator's session, and how far the sign-in has come."""

    session_id: UUID
    operator_id: OperatorId
    phone: str
    name: str
    role: Role
    stage: SignInStage
    # True when the session was last seen long enough ago to be worth a write.
    is_news: bool


SQL_FIND_OPERATOR: Final = Statement(f"""
SELECT s.id, o.id, o.phone, o.name, o.role, s.stage, s.seen_at < clock_timestamp() - interval '1 minute'
  FROM operator_sessions s
  JOIN operators o ON o.id = s.operator_id
 WHERE s.token_sha256 = %(token_sha256)s
   AND o.removed_at IS NULL
   AND {_VALID[PrincipalKind.OPERATOR]}
""")  # noqa: S608 - only constants are put in


async def find_operator(connection: Connection, token_sha256: bytes) -> SignedInOperator | None:
    """Return who holds the token of a valid session, whatever its stage."""
    row = await SQL_FIND_OPERATOR.row(connection, token_sha256=token_sha256)
    if row is None:
        return None
    session_id, operator_id, phone, name, role, stage, is_news = row
    return SignedInOperator(session_id, operator_id, phone, name, Role(role), SignInStage(stage), is_news)


SQL_DELETE_OTHERS: Final = Statement("""
WITH pending AS (
    DELETE FROM half_sessions WHERE account_id = %(account_id)s
)
DELETE FROM sessions WHERE account_id = %(account_id)s AND id <> %(session_id)s RETURNING 1
""")


async def delete_others(connection: Connection, account_id: AccountId, session_id: UUID) -> int:
    """End all sessions of an account but this one, and return how many."""
    return len(await SQL_DELETE_OTHERS.rows(connection, account_id=account_id, session_id=session_id))


SQL_DELETE_OWN: Final = Statement("""
DELETE FROM sessions WHERE account_id = %(account_id)s AND id = %(session_id)s RETURNING browser
""")


async def delete_own(connection: Connection, account_id: AccountId, session_id: UUID) -> str | None:
    """End one of an account's sessions and return its browser; None when it has no such session."""
    browser: str | None = await SQL_DELETE_OWN.value(connection, account_id=account_id, session_id=session_id)
    return browser


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A sign-in that waits for the second factor, and the password to be set after it."""

    account_id: AccountId
    phone: str
    password_hash: str | None


SQL_INSERT_PENDING: Final = Statement("""
INSERT INTO half_sessions (token_sha256, account_id, password_hash)
VALUES (%(token_sha256)s, %(account_id)s, %(password_hash)s)
""")


async def insert_pending(
    connection: Connection, token_sha256: bytes, account_id: AccountId, password_hash: str | None = None
) -> None:
    """Have a sign-in wait for the second factor; a forgotten password is set only after that."""
    await SQL_INSERT_PENDING.rows(
        connection, token_sha256=token_sha256, account_id=account_id, password_hash=password_hash
    )


SQL_FIND_PENDING: Final = Statement(f"""
SELECT a.id, a.phone, h.password_hash
  FROM half_sessions h
  JOIN accounts a ON a.id = h.account_id
 WHERE h.token_sha256 = %(token_sha256)s
   AND h.created_at > clock_timestamp() - interval '{PENDING_MINUTES} minutes'
   AND a.closed_at IS NULL
""")  # noqa: S608 - only constants are put in


async def find_pending(connection: Connection, token_sha256: bytes) -> PendingSignIn | None:
    row = await SQL_FIND_PENDING.row(connection, token_sha256=token_sha256)
    return None if row is None else PendingSignIn(*row)


SQL_TAKE_PENDING: Final = Statement(
    "DELETE FROM half_sessions WHERE token_sha256 = %(token_sha256)s RETURNING 1"
)


async def delete_pending(connection: Connection, token_sha256: bytes) -> bool:
    """Use up such a token; False if it was used before."""
    return await SQL_TAKE_PENDING.value(connection, token_sha256=token_sha256) is not None


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
 WHERE s.account_id = %(account_id)s
   AND {_VALID[PrincipalKind.ACCOUNT]}
 ORDER BY s.seen_at DESC
 LIMIT 100
""")  # noqa: S608 - only constants are put in


async def list_sessions(connection: Connection, account_id: AccountId) -> Sequence[Session]:
    """Return an account's valid sessions, the last seen first."""
    return [Session(*row) for row in await SQL_LIST.rows(connection, account_id=account_id)]


SQL_DELETE_OLD_PENDING: Final = Statement(f"""
WITH old AS MATERIALIZED (
    SELECT token_sha256
      FROM half_sessions
     WHERE created_at < clock_timestamp() - interval '{PENDING_MINUTES} minutes'
     LIMIT %(count_max)s
       FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM half_sessions WHERE token_sha256 = ANY(ARRAY(SELECT token_sha256 FROM old))
)
SELECT count(*) FROM old
""")  # noqa: S608 - only constants are put in


async def delete_old(connection: Connection, count_max: int) -> int:
    """Delete sessions that are over, up to `count_max` of each kind, and return how many."""
    deleted = int(await SQL_DELETE_OLD_PENDING.value(connection, count_max=count_max))
    for statements in _STATEMENTS.values():
        deleted += int(await statements.delete_old.value(connection, count_max=count_max))
    return deleted
