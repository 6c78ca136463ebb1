"""How does a top-up's money come to an account's balance, and how is it taken back?"""

from decimal import Decimal
from typing import Final

from tumira.core.ids import AccountId, TopUpId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.topups.states import Method

# One statement, so no balance is ever read and then written.
SQL_CREDIT: Final = Statement("""
WITH moved AS (
    UPDATE accounts
       SET balance = balance + %(amount)s
     WHERE id = %(account_id)s
 RETURNING id, balance
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)
    SELECT id, %(book)s, 'customer', %(amount)s, %(top_up_id)s
      FROM moved
)
SELECT balance FROM moved
""")


async def credit(
    connection: Connection, account_id: AccountId, top_up_id: TopUpId, method: Method, amount: Decimal
) -> Decimal:
    """Give an account what its top-up brought, and return the balance after it; a second time it raises."""
    balance = await SQL_CREDIT.value(
        connection, account_id=account_id, top_up_id=top_up_id, book=_book(method), amount=amount
    )
    assert isinstance(balance, Decimal)
    return balance


# The balance is held first: what is there is what can be taken.
SQL_TAKE_BACK: Final = Statement("""
WITH held AS MATERIALIZED (
    SELECT id, least(balance, %(amount)s::numeric) AS taken
      FROM accounts
     WHERE id = %(account_id)s
       FOR NO KEY UPDATE
), moved AS (
    UPDATE accounts
       SET balance = balance - held.taken
      FROM held
     WHERE accounts.id = held.id
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)
    SELECT id, 'customer', %(book)s, taken, %(top_up_id)s
      FROM held
     WHERE taken > 0
)
SELECT taken FROM held
""")


async def take_back(
    connection: Connection, account_id: AccountId, top_up_id: TopUpId, method: Method, amount: Decimal
) -> Decimal:
    """Take as much of an amount from an account as is there, and return how much that was."""
    taken = await SQL_TAKE_BACK.value(
        connection, account_id=account_id, top_up_id=top_up_id, book=_book(method), amount=amount
    )
    assert isinstance(taken, Decimal)
    return taken


def _book(method: Method) -> str:
    return f"topup:{method}"
