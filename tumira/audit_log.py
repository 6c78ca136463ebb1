"""The audit log: who changed what, for one account and for the gateway as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from tumira.core.ids import AccountId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# The actor of changes from before there were people.
OWNER: Final = "owner"

# Above all numbers that a change can have.
LATEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Actor:
    """A person of the account at an address, an operator, or the operator's system user."""

    name: str
    address: str | None = None
    # Whose change it is; None for operators.
    person_id: UUID | None = None


# Where the caller does not say which of the operator's system users it is.
OPERATOR: Final = Actor("operator")


@dataclass(frozen=True, slots=True)
class Change:
    """A change that the account's owners can see, or one by an operator with the account that it concerns."""

    id: int
    at: datetime
    actor: str
    address: str | None
    what: str
    detail: str
    account_id: AccountId | None = None
    person_id: UUID | None = None

    @property
    def is_own(self) -> bool:
        """Whether a person of the account made it, and not an operator."""
        return self.person_id is not None or self.actor == OWNER


SQL_INSERT: Final = Statement("""
INSERT INTO changes (account_id, actor, address, what, detail, person_id)
VALUES (%(account_id)s, %(actor)s, %(address)s, %(what)s, %(detail)s, %(person_id)s)
""")


async def record(
    connection: Connection, account_id: AccountId, actor: Actor, what: str, detail: str = ""
) -> None:
    """Record a change to an account, in the transaction that makes it. Never pass a secret or a text."""
    await SQL_INSERT.rows(
        connection,
        account_id=account_id,
        actor=actor.name,
        address=actor.address,
        what=what,
        detail=detail,
        person_id=actor.person_id,
    )


SQL_LIST: Final = Statement("""
SELECT id, at, actor, address, what, detail, account_id, person_id
  FROM changes
 WHERE account_id = %(account_id)s
   AND id < %(before)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_before(
    connection: Connection, account_id: AccountId, before: int, count_max: int
) -> Sequence[Change]:
    """Return an account's changes before one of them, newest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, before=before, count_max=count_max)
    return [Change(*row) for row in rows]


SQL_INSERT_BY_OPERATOR: Final = Statement("""
INSERT INTO operator_changes (actor, address, what, detail, account_id)
VALUES (%(actor)s, %(address)s, %(what)s, %(detail)s, %(account_id)s)
""")


async def record_by_operator(
    connection: Connection, actor: Actor, what: str, detail: str = "", account_id: AccountId | None = None
) -> None:
    """Record a change by an operator, in the transaction that makes it."""
    await SQL_INSERT_BY_OPERATOR.rows(
        connection,
        actor=actor.name,
        address=actor.address,
        what=what,
        detail=detail,
        account_id=account_id,
    )


_BY_OPERATORS: Final = """
SELECT id, at, actor, address, what, detail, account_id FROM operator_changes WHERE id < %(before)s
"""
_NEWEST_FIRST: Final = " ORDER BY id DESC LIMIT %(count_max)s"

SQL_LIST_BY_OPERATORS: Final = Statement(_BY_OPERATORS + _NEWEST_FIRST)
SQL_LIST_BY_ACTOR: Final = Statement(_BY_OPERATORS + " AND actor = %(actor)s" + _NEWEST_FIRST)
# One account has few, so the actor is a filter and needs no index.
SQL_LIST_FOR_ACCOUNT: Final = Statement(
    _BY_OPERATORS
    + " AND account_id = %(account_id)s AND (%(actor)s::text IS NULL OR actor = %(actor)s)"
    + _NEWEST_FIRST
)


async def list_by_operators(
    connection: Connection,
    count_max: int,
    before: int = LATEST,
    *,
    actor: str | None = None,
    account_id: AccountId | None = None,
) -> Sequence[Change]:
    """Return operators' changes before one of them, newest first; by one actor or for one account."""
    if account_id is not None:
        rows = await SQL_LIST_FOR_ACCOUNT.rows(
            connection, account_id=account_id, before=before, actor=actor, count_max=count_max
        )
    elif actor is not None:
        rows = await SQL_LIST_BY_ACTOR.rows(connection, actor=actor, before=before, count_max=count_max)
    else:
        rows = await SQL_LIST_BY_OPERATORS.rows(connection, before=before, count_max=count_max)
    return [Change(*row) for row in rows]


# Of two submissions at once, the second waits here for the commit of the first.
SQL_CLAIM_FORM: Final = Statement("""
INSERT INTO operator_presses (id)
VALUES (%(form_id)s)
    ON CONFLICT (id) DO NOTHING
RETURNING 1
""")


async def claim_form(connection: Connection, form_id: UUID) -> bool:
    """Claim an operator's form, in the transaction that carries it out; False if it was submitted before."""
    return await SQL_CLAIM_FORM.value(connection, form_id=form_id) is not None
