"""Money neither appears nor vanishes nor moves twice: each constraint, then random histories."""

import asyncio
import random
from decimal import Decimal
from uuid import UUID

import asyncpg
import pytest

from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import broken_promises, open_batchers, send_call
from tumira.accounts import ledger
from tumira.core.errors import InsufficientBalance, OperatorError
from tumira.identity import manage_accounts
from tumira.postgres.pool import Database
from tumira.sending.types import Answered, Refused

ID = UUID(int=7)
OTHER = UUID(int=8)


INSERT = """
INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id, note, actor)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
"""


NONSENSE = [
    (("customer", "revenue", "0", ID, None, None, None), "transfers_amount_check"),
    (("customer", "revenue", "-1", ID, None, None, None), "transfers_amount_check"),
    (("customer", "customer", "1", None, None, None, None), "one_side_is_the_customer"),
    (("adjustment", "revenue", "1", None, None, "n", "a"), "one_side_is_the_customer"),
    (("customer", "revenue", "1", None, None, None, None), "a_debit_names_its_batch"),
    (("topup:paynow", "customer", "1", ID, None, None, None), "a_debit_names_its_batch"),
    (("revenue", "customer", "1", None, ID, None, None), "a_refund_names_its_message"),
    (("revenue", "customer", "1", None, None, None, None), "a_refund_names_its_message"),
    (("topup:paynow", "customer", "1", None, None, None, None), "a_top_up_is_named"),
    (("adjustment", "customer", "1", None, None, None, "a"), "an_adjustment_says_why_and_who"),
    (("adjustment", "customer", "1", None, None, "n", None), "an_adjustment_says_why_and_who"),
]


async def test_a_transfer_that_makes_no_sense_is_refused(database: Database, caller: Caller) -> None:
    async with database.connection() as connection:
        for (source, target, amount, *others), constraint in NONSENSE:
            with pytest.raises(asyncpg.CheckViolationError, match=constraint):
                await connection.execute(INSERT, caller.id, source, target, Decimal(str(amount)), *others)


async def test_a_batch_is_debited_and_a_message_refunded_at_most_once(
    database: Database, caller: Caller
) -> None:
    async with database.connection() as connection:
        debit = (caller.id, "customer", "revenue", Decimal(1), ID, None, None, None)
        refund = (caller.id, "revenue", "customer", Decimal(1), ID, OTHER, None, None)
        for row in (debit, refund):
            await connection.execute(INSERT, *row)
            with pytest.raises(asyncpg.UniqueViolationError):
                await connection.execute(INSERT, *row)


async def test_a_transfer_is_never_changed(database: Database, caller: Caller) -> None:
    assert caller
    async with database.connection() as connection:
        for change in (
            "UPDATE transfers SET amount = 2",
            "DELETE FROM transfers",
            "TRUNCATE transfers CASCADE",
        ):
            with pytest.raises(asyncpg.RaiseError, match="a transfer is never changed"):
                await connection.execute(change)


async def test_no_balance_goes_below_zero(database: Database, caller: Caller) -> None:
    with pytest.raises(OperatorError, match="balance is lower than that"):
        await manage_accounts.credit(database, caller.id, Decimal("-100.0001"), note="n", actor="a")
    account = await manage_accounts.credit(database, caller.id, Decimal(-100), note="n", actor="a")
    assert account.balance == 0
    assert await broken_promises(database) == []


@pytest.mark.parametrize("seed", range(2))
async def test_money_adds_up_after_any_history(database_url: str, seed: int) -> None:
    chance = random.Random(seed)
    callers = [await new_caller(database_url, balance="2", rate=100_000) for _ in range(3)]
    expected = {caller.id: Decimal(2) for caller in callers}
    async with open_batchers(database_url, 3) as batchers:
        for _ in range(15):
            group = [
                (chance.choice(callers), chance.choice([1, 2, 9, 30, 55]))
                for _ in range(chance.randint(1, 12))
            ]
            sends = [
                send_call(
                    caller,
                    [f"+2637712{number:05}" for number in range(recipients)],
                    idempotency_key=chance.choice([None, f"key-{chance.randint(1, 20):03}"]),
                )
                for caller, recipients in group
            ]
            adjusted = chance.choice(callers)
            amount = Decimal(chance.randint(1, 300)) / 100
            decisions, _ = await asyncio.gather(
                batchers.ask_all(sends),
                manage_accounts.credit(batchers.database, adjusted.id, amount, note="n", actor="a"),
            )
            expected[adjusted.id] += amount
            for (caller, recipients), decision in zip(group, decisions, strict=True):
                if isinstance(decision, Answered) and not decision.replayed:
                    expected[caller.id] -= recipients * Decimal("0.04")
                elif isinstance(decision, Refused):
                    assert decision.refusal.code in {InsufficientBalance.code, "IDEMPOTENCY_CONFLICT"}
        async with batchers.database.connection() as connection:
            rows = await connection.fetch("SELECT id, balance FROM accounts WHERE phone <> 'system'")
            books = await ledger.books(connection)
        assert {row["id"]: row["balance"] for row in rows} == expected
        assert sum(books.values()) == 0
        assert await broken_promises(batchers.database) == []
