"""Who changed an account's keys, endpoints and settings?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tumira.ids import AccountId
from tumira.store.sql import Connection, Statement

OWNER: Final = "owner"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does it: the account's owner at an address, or the operator's system user."""

    name: str
    address: str | None = None


# Where nobody says which of the operator's system users it is.
OPERATOR: Final = Actor("operator")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that was changed."""

    id: int
    at: datetime
    actor: str
    address: str | None
    what: str
    detail: str


SQL_INSERT: Final = Statement("""
INSERT INTO changes (account_id, actor, address, what, detail)
VALUES (%(account_id)s, %(actor)s, %(address)s, %(what)s, %(detail)s)
""")


async def note(
    connection: Connection, account_id: AccountId, actor: Actor, what: str, detail: str = ""
) -> None:
    """Note a change, in the transaction that makes it; secrets and texts never stand here."""
    await SQL_INSERT.rows(
        connection,
        account_id=account_id,
        actor=actor.name,
        address=actor.address,
        what=what,
        detail=detail,
    )


SQL_LIST: Final = Statement("""
SELECT id, at, actor, address, what, detail
  FROM changes
 WHERE account_id = %(account_id)s
   AND id < %(before)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_before(
    connection: Connection, account_id: AccountId, before: int, count_max: int
) -> Sequence[Change]:
    """Return an account's changes before one of them, the latest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, before=before, count_max=count_max)
    return [Change(*row) for row in rows]
