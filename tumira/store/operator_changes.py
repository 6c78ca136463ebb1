"""What did those who run the gateway change?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tumira.ids import AccountId
from tumira.store.changes import Actor
from tumira.store.sql import Connection, Statement

# Above all numbers that a change can have.
LATEST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OperatorChange:
    """One thing that was changed, and for which account if for one."""

    id: int
    at: datetime
    actor: str
    address: str | None
    what: str
    detail: str
    account_id: AccountId | None


SQL_INSERT: Final = Statement("""
INSERT INTO operator_changes (actor, address, what, detail, account_id)
VALUES (%(actor)s, %(address)s, %(what)s, %(detail)s, %(account_id)s)
""")


async def note(
    connection: Connection, actor: Actor, what: str, detail: str = "", account_id: AccountId | None = None
) -> None:
    """Write down what an operator changes, in the transaction that changes it."""
    await SQL_INSERT.rows(
        connection,
        actor=actor.name,
        address=actor.address,
        what=what,
        detail=detail,
        account_id=account_id,
    )


SQL_LIST: Final = Statement("""
SELECT id, at, actor, address, what, detail, account_id
  FROM operator_changes
 WHERE id < %(before)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_before(
    connection: Connection, count_max: int, before: int = LATEST
) -> Sequence[OperatorChange]:
    """Return what was changed before a change, newest first."""
    rows = await SQL_LIST.rows(connection, before=before, count_max=count_max)
    return [OperatorChange(*row) for row in rows]
