"""Money that is held for scheduled sends: transfers between a customer and the book `held`.

A schedule says how much is held for it. The caller has locked the schedule, or inserts it; the account is
locked after it.
"""

from decimal import Decimal
from typing import Final

from tumira.core.ids import AccountId, ScheduleId, UploadId
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement

# One statement, so no balance is ever read and then written.
SQL_HOLD: Final = Statement("""
WITH moved AS (
    UPDATE accounts
       SET balance = balance - %(amount)s
     WHERE id = %(account_id)s
       AND balance >= %(amount)s
 RETURNING id, balance
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, schedule_id)
    SELECT id, 'customer', 'held', %(amount)s, %(schedule_id)s
      FROM moved
), kept AS (
    UPDATE schedules
       SET held = held + %(amount)s
      FROM moved
     WHERE schedules.id = %(schedule_id)s
       AND schedules.account_id = moved.id
)
SELECT balance FROM moved
""")


async def hold(
    connection: Connection, account_id: AccountId, schedule_id: ScheduleId, amount: Decimal
) -> bool:
    """Take an amount from the balance and hold it; False if the balance does not cover it."""
    if not amount:
        return True
    held = await SQL_HOLD.value(connection, account_id=account_id, schedule_id=schedule_id, amount=amount)
    return held is not None


# NULL for all that is held; no row if less is held than shall be released.
SQL_RELEASE: Final = Statement("""
WITH before AS MATERIALIZED (
    SELECT id, account_id, coalesce(%(amount)s::numeric, held) AS amount
      FROM schedules
     WHERE id = %(schedule_id)s
       FOR NO KEY UPDATE
), kept AS (
    UPDATE schedules
       SET held = held - before.amount
      FROM before
     WHERE schedules.id = before.id
       AND schedules.held >= before.amount
 RETURNING before.account_id, before.amount
), moved AS (
    UPDATE accounts
       SET balance = balance + kept.amount
      FROM kept
     WHERE accounts.id = kept.account_id
 RETURNING accounts.id, kept.amount
), recorded AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, schedule_id)
    SELECT id, 'held', 'customer', amount, %(schedule_id)s
      FROM moved
     WHERE amount > 0
)
SELECT amount FROM moved
""")


async def release(connection: Connection, schedule_id: ScheduleId, amount: Decimal | None = None) -> Decimal:
    """Return an amount that is held to the balance, or all of it; return how much it was."""
    released = await SQL_RELEASE.value(connection, schedule_id=schedule_id, amount=amount)
    assert isinstance(released, Decimal), "no more is released than is held"
    return released


SQL_FIND_OF_FILE: Final = Statement("""
SELECT id, held
  FROM schedules
 WHERE upload_id = %(upload_id)s
   AND held > 0
""")


async def find_of_file(connection: Connection, upload_id: UploadId) -> tuple[ScheduleId, Decimal] | None:
    """Return the schedule that holds money for a locked file, and how much."""
    row = await SQL_FIND_OF_FILE.row(connection, upload_id=upload_id)
    return None if row is None else (ScheduleId(row["id"]), row["held"])
