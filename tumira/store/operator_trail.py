"""What did one operator change, and what was changed for one account?"""

from collections.abc import Sequence
from typing import Final

from tumira.ids import AccountId
from tumira.store import operator_changes
from tumira.store.operator_changes import LATEST, OperatorChange
from tumira.store.sql import Connection, Statement

SQL_LIST_OF_ACTOR: Final = Statement("""
SELECT id, at, actor, address, what, detail, account_id
  FROM operator_changes
 WHERE actor = %(actor)s
   AND id < %(before)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")

# Of one account there are few; whose they are is looked at one by one.
SQL_LIST_OF_ACCOUNT: Final = Statement("""
SELECT id, at, actor, address, what, detail, account_id
  FROM operator_changes
 WHERE account_id = %(account_id)s
   AND id < %(before)s
   AND (%(actor)s::text IS NULL OR actor = %(actor)s)
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_before(
    connection: Connection,
    count_max: int,
    before: int = LATEST,
    *,
    actor: str | None = None,
    account_id: AccountId | None = None,
) -> Sequence[OperatorChange]:
    """Return what was changed before a change, newest first: everything, or by one of them, or for one."""
    if account_id is not None:
        rows = await SQL_LIST_OF_ACCOUNT.rows(
            connection, account_id=account_id, before=before, actor=actor, count_max=count_max
        )
    elif actor is not None:
        rows = await SQL_LIST_OF_ACTOR.rows(connection, actor=actor, before=before, count_max=count_max)
    else:
        return await operator_changes.list_before(connection, count_max, before)
    return [OperatorChange(*row) for row in rows]
