"""A large send is checked again under the lock of its account, because its rows were written before."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import asyncpg
import pytest
from msgspec import structs

from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.settling import BLOCKED
from tests.support.processes.service import Caller
from tests.support.sending.batchers import send_call
from tumira.accounts import store as accounts
from tumira.api.schemas import write_sent
from tumira.core.errors import (
    AccountSuspended,
    IdempotencyConflict,
    IdempotencyInProgress,
    InsufficientBalance,
    SpendLimitReached,
)
from tumira.sending import large, lookups
from tumira.sending.admit import Rules, admit_alone, admit_unlocked
from tumira.sending.large import send_large
from tumira.sending.types import Answered, Decision, Large, Refused, Send

COUNT: Final = 60
COST: Final = Decimal("2.40")
KEY: Final = "only-once"


async def admit(engine: Engine, caller: Caller, body: str = "Your code is 493817.") -> Large:
    """Return a large send as the group decides it: admitted, and not written yet."""
    call = send_call(caller, numbers(COUNT), body, KEY)
    async with engine.database.transaction() as connection:
        (decision,) = await admit_unlocked(connection, Rules(), write_sent, [call])
    assert isinstance(decision, Large)
    return decision


async def stored(engine: Engine) -> Sequence[int]:
    tables = ("batches", "messages", "queue", "idempotency_keys")
    return [len(await engine.rows(f"SELECT FROM {table}")) for table in tables]


def is_refused(decision: Decision, kind: type) -> bool:
    return isinstance(decision, Refused) and isinstance(decision.refusal, kind)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("suspended_at = now()", AccountSuspended),
        ("closed_at = now()", AccountSuspended),
        ("daily_limit = 2.39", SpendLimitReached),
        ("call_limit = 2.39", SpendLimitReached),
    ],
)
async def test_what_changed_since_it_was_admitted_refuses_it(engine: Engine, change: str, kind: type) -> None:
    caller = await engine.open_account(balance="100")
    admitted = await admit(engine, caller)
    await engine.rows(f"UPDATE accounts SET {change} WHERE id = $1", caller.id)
    assert is_refused(await send_large(engine.database, admitted, write_sent), kind)
    assert await stored(engine) == [0, 0, 0, 0]


async def test_money_that_was_spent_since_it_was_admitted_refuses_it(engine: Engine) -> None:
    caller = await engine.open_account(balance="2.40")
    admitted = await admit(engine, caller)
    await engine.send(caller, numbers(1))
    assert is_refused(await send_large(engine.database, admitted, write_sent), InsufficientBalance)
    assert await stored(engine) == [1, 1, 1, 0]


async def test_it_is_charged_and_stored_once_for_its_key(engine: Engine) -> None:
    caller = await engine.open_account(balance="100")
    first, second = await admit(engine, caller), await admit(engine, caller)
    other = await admit(engine, caller, "Your order is ready.")
    answer = await send_large(engine.database, first, write_sent)
    assert isinstance(answer, Answered)
    assert not answer.replayed
    repeated = await send_large(engine.database, second, write_sent)
    assert isinstance(repeated, Answered)
    assert repeated.replayed
    assert repeated.response == answer.response
    assert is_refused(await send_large(engine.database, other, write_sent), IdempotencyConflict)
    assert await stored(engine) == [1, COUNT, COUNT, 1]
    (row,) = await engine.rows("SELECT balance FROM accounts WHERE id = $1", caller.id)
    assert row["balance"] == Decimal(100) - COST


async def test_it_waits_for_a_large_send_with_its_key_and_is_told_so(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "SAME_KEY_WAIT_MS", 50)
    caller = await engine.open_account(balance="100")
    admitted = await admit(engine, caller)
    async with engine.database.transaction() as other:
        await lookups.lock_idempotency_key(other, caller.id, KEY)
        decision = await send_large(engine.database, admitted, write_sent)
    assert is_refused(decision, IdempotencyInProgress)
    assert await stored(engine) == [0, 0, 0, 0]


async def test_it_waits_so_long_for_its_account_and_then_writes_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "ACCOUNT_WAIT_MS", 50)
    caller = await engine.open_account(balance="100")
    admitted = await admit(engine, caller)
    without_key = structs.replace(admitted, send=structs.replace(admitted.send, idempotency=None))
    async with engine.database.transaction() as holder, asyncio.timeout(10):
        await accounts.lock(holder, caller.id)
        for one in (admitted, without_key):
            with pytest.raises(asyncpg.LockNotAvailableError):
                await send_large(engine.database, one, write_sent)
    assert await stored(engine) == [0, 0, 0, 0]


async def test_a_key_that_is_used_while_its_rows_are_written_is_found_under_the_lock(engine: Engine) -> None:
    caller = await engine.open_account(balance="100")
    admitted = await admit(engine, caller)
    small = send_call(caller)
    assert isinstance(small.send, Send)
    small = structs.replace(small, send=structs.replace(small.send, idempotency=admitted.send.idempotency))

    async def is_waiting() -> bool:
        return bool(await engine.rows(BLOCKED))

    async with engine.database.transaction() as holder:
        await accounts.lock(holder, caller.id)
        late = asyncio.create_task(send_large(engine.database, admitted, write_sent))
        await engine.until(is_waiting, "it does not wait for the account")
        first = await admit_alone(holder, Rules(), write_sent, small)
    assert isinstance(first, Answered)
    repeated = await late
    assert isinstance(repeated, Answered)
    assert (repeated.replayed, repeated.response) == (True, first.response)
    assert await stored(engine) == [1, 1, 1, 1]


async def test_the_database_takes_no_balance_below_zero(engine: Engine) -> None:
    caller = await engine.open_account(balance="1")
    with pytest.raises(asyncpg.CheckViolationError):
        await engine.rows("UPDATE accounts SET balance = balance - 2.40 WHERE id = $1", caller.id)
