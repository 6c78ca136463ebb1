"""Where does money come from and go to?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from msgspec import Struct

from tumira.ids import AccountId, BatchId
from tumira.store.sql import Connection, Statement


class Debit(Struct, frozen=True):
    """What one accepted batch costs, and the answer to give when its Idempotency-Key comes again."""

    account_id: AccountId
    batch_id: BatchId
    amount: Decimal
    idempotency_key: str | None
    fingerprint: bytes | None
    response: bytes


# One statement for all debits of a group. The key is inserted under the lock on its account's row, after a
# look found it unused; one that is there all the same is not overwritten, and the count tells.
SQL_RECORD_DEBITS: Final = Statement("""
WITH debited AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id)
    SELECT account_id, 'customer', 'revenue', amount, batch_id
      FROM unnest(%(account_ids)s::uuid[], %(amounts)s::numeric[], %(batch_ids)s::uuid[])
           AS debit (account_id, amount, batch_id)
     WHERE amount > 0
), remembered AS (
    INSERT INTO idempotency_keys AS old (account_id, key, fingerprint, response, batch_id)
    SELECT account_id, key, fingerprint, response, batch_id
      FROM unnest(%(account_ids)s::uuid[], %(keys)s::text[], %(fingerprints)s::bytea[],
                  %(responses)s::bytea[], %(batch_ids)s::uuid[])
           AS debit (account_id, key, fingerprint, response, batch_id)
     WHERE key IS NOT NULL
        ON CONFLICT (account_id, key) DO UPDATE
       SET fingerprint = excluded.fingerprint,
           response = excluded.response,
           batch_id = excluded.batch_id,
           created_at = excluded.created_at
     WHERE old.created_at <= clock_timestamp() - interval '72 hours'
 RETURNING 1
)
SELECT count(*) FROM remembered
""")


async def record_debits(connection: Connection, debits: Sequence[Debit]) -> None:
    """Record the debits of accounts that we hold locked; their balances are lowered by `accounts.charge`."""
    remembered = await SQL_RECORD_DEBITS.value(
        connection,
        account_ids=[debit.account_id for debit in debits],
        amounts=[debit.amount for debit in debits],
        batch_ids=[debit.batch_id for debit in debits],
        keys=[debit.idempotency_key for debit in debits],
        fingerprints=[debit.fingerprint for debit in debits],
        responses=[debit.response for debit in debits],
    )
    if remembered != sum(debit.idempotency_key is not None for debit in debits):
        raise AlreadyRecordedError


class AlreadyRecordedError(Exception):
    """An Idempotency-Key was recorded by somebody who did not hold the account's row."""


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
