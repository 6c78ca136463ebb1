"""Where does money come from and go to?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from tumira.ids import AccountId, BatchId
from tumira.store.sql import Connection, Statement

# One statement, so no balance is ever read and then written.
SQL_MOVE: Final = Statement("""
WITH moved AS (
    UPDATE accounts
       SET balance = balance + CASE WHEN %(to_book)s = 'customer' THEN 1 ELSE -1 END * %(amount)s::numeric
     WHERE id = %(account_id)s
 RETURNING id, balance
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, note, actor)
    SELECT id, %(from_book)s, %(to_book)s, %(amount)s, %(note)s, %(actor)s
      FROM moved
)
SELECT balance FROM moved
""")


async def adjust(
    connection: Connection, account_id: AccountId, amount: Decimal, *, note: str, actor: str
) -> Decimal:
    """Give an account money, or take some, on the operator's word; return the balance after it."""
    assert amount != 0
    books = ("adjustment", "customer") if amount > 0 else ("customer", "adjustment")
    balance = await SQL_MOVE.value(
        connection,
        account_id=account_id,
        amount=abs(amount),
        from_book=books[0],
        to_book=books[1],
        note=note,
        actor=actor,
    )
    assert isinstance(balance, Decimal)
    return balance


@dataclass(frozen=True, slots=True)
class Transfer:
    """One movement of money, as the operator sees it."""

    id: int
    from_book: str
    to_book: str
    amount: Decimal
    batch_id: BatchId | None
    note: str | None
    actor: str | None
    created_at: datetime


SQL_LIST: Final = Statement("""
SELECT id, from_book, to_book, amount, batch_id, note, actor, created_at
  FROM transfers
 WHERE account_id = %(account_id)s
 ORDER BY id DESC
 LIMIT %(count_max)s
""")


async def list_latest(connection: Connection, account_id: AccountId, count_max: int) -> Sequence[Transfer]:
    """Return an account's latest movements, newest first."""
    rows = await SQL_LIST.rows(connection, account_id=account_id, count_max=count_max)
    return [Transfer(*row) for row in rows]


SQL_BOOKS: Final = Statement("""
SELECT book, sum(amount) AS balance
  FROM (SELECT to_book AS book, amount FROM transfers
         UNION ALL
        SELECT from_book, -amount FROM transfers) AS side
 GROUP BY book
 ORDER BY book
""")


async def books(connection: Connection) -> Mapping[str, Decimal]:
    """Return what each book holds; together they hold nothing."""
    return {row["book"]: row["balance"] for row in await SQL_BOOKS.rows(connection)}
