"""Gives back what messages cost."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from tumira.core.ids import AccountId
from tumira.delivery.store.settlement import LockedMessage
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

SQL_LOCK_ACCOUNTS: Final = Statement("""
SELECT id FROM accounts WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE
""")


async def lock_accounts(connection: Connection, ids: Sequence[AccountId]) -> None:
    await SQL_LOCK_ACCOUNTS.rows(connection, ids=ids)


SQL_REFUND: Final = Statement("""
WITH credited AS (
    UPDATE accounts
       SET balance = balance + credit.amount
      FROM unnest(%(account_ids)s::uuid[], %(totals)s::numeric[]) AS credit (account_id, amount)
     WHERE accounts.id = credit.account_id
       AND accounts.id = ANY(%(account_ids)s::uuid[])
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id)
    SELECT account_id, 'revenue', 'customer', amount, batch_id, message_id
      FROM unnest(%(owner_ids)s::uuid[], %(amounts)s::numeric[], %(batch_ids)s::uuid[],
                  %(message_ids)s::uuid[]) AS refund (account_id, amount, batch_id, message_id)
)
SELECT 0
""")


async def refund(connection: Connection, messages: Sequence[LockedMessage]) -> None:
    totals: dict[AccountId, Decimal] = {}
    for one in messages:
        totals[one.account_id] = totals.get(one.account_id, Decimal(0)) + one.cost
    await SQL_REFUND.value(
        connection,
        account_ids=list(totals),
        totals=list(totals.values()),
        owner_ids=[one.account_id for one in messages],
        amounts=[one.cost for one in messages],
        batch_ids=[one.batch_id for one in messages],
        message_ids=[one.id for one in messages],
    )
