"""Races for money, Idempotency-Keys and rate limits, each with a twin without the lock that loses."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any, Final

import asyncpg
import pytest

from tests.support.postgres.databases import clone
from tests.support.processes.service import Caller, new_caller, run_web
from tests.support.sending.batchers import (
    PATIENCE_S,
    Batchers,
    broken_promises,
    open_batchers,
    read_call,
    send_call,
)
from tumira.accounts import store as accounts
from tumira.accounts.api_keys import Scope
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.core.errors import InsufficientBalance, RateLimited, ServiceUnavailable
from tumira.core.ids import KEY, write_id
from tumira.identity.manage_accounts import set_passcode_limits
from tumira.identity.manage_keys import create_key
from tumira.postgres.statement import Statement
from tumira.sending import insert, lookups
from tumira.sending.types import Admitted, Answered, Call, Decision, Refused

BATCHERS: Final = 8
LOCK: Final = "FOR NO KEY UPDATE"


@pytest.fixture
def without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the lock on the account's row away, and make every transaction read before another one writes."""
    for name in ("read", "lock_and_read"):
        monkeypatch.setattr(lookups, name, _then_dawdle(getattr(lookups, name)))
    monkeypatch.setattr(
        lookups, "SQL_LOCK_AND_READ", _changed(lookups.SQL_LOCK_AND_READ, f"{LOCK} SKIP LOCKED", "")
    )
    monkeypatch.setattr(accounts, "SQL_HOLD", _changed(accounts.SQL_HOLD, LOCK, ""))


def _then_dawdle(read: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def read_and_dawdle(*arguments: Any) -> Any:
        found = await read(*arguments)
        await asyncio.sleep(0.3)
        return found

    return read_and_dawdle


def _changed(statement: Statement, old: str, new: str) -> Statement:
    """Return the same statement with one piece of its text replaced."""
    assert old in statement.text
    changed = Statement(statement.text.replace(old, new, 1))
    changed.names = statement.names
    return changed


def kinds(decisions: Sequence[Decision]) -> Counter[str]:
    return Counter(
        type(decision.refusal if isinstance(decision, Refused) else decision).__name__
        for decision in decisions
    )


async def decide_all(batchers: Batchers, calls: Sequence[Call]) -> Counter[str]:
    """Ask until each call is decided: a busy machine puts some off, which changes nothing."""
    found: Counter[str] = Counter()
    while calls:
        decisions = await batchers.ask_all(calls)
        found += kinds(decisions)
        calls = [
            call
            for call, one in zip(calls, decisions, strict=True)
            if isinstance(one, Refused) and isinstance(one.refusal, ServiceUnavailable)
        ]
    del found[ServiceUnavailable.__name__]
    return found


async def race_for_the_last_dollar(batchers: Batchers, url: str) -> tuple[Counter[str], Decimal]:
    """Let twenty calls spend the same dollar: each wants 25 messages to Zimbabwe."""
    caller = await new_caller(url, balance="1")
    numbers = [f"+2637712{number:05}" for number in range(25)]
    found = await decide_all(batchers, [send_call(caller, numbers) for _ in range(20)])
    async with batchers.database.connection() as connection:
        account = await accounts.find(connection, caller.id)
    assert account is not None
    return found, account.balance


async def test_the_last_dollar_is_spent_once(database_url: str) -> None:
    async with open_batchers(database_url, BATCHERS) as batchers:
        outcome, balance = await race_for_the_last_dollar(batchers, database_url)
        assert outcome == {"Answered": 1, InsufficientBalance.__name__: 19}
        assert balance == 0
        assert await broken_promises(batchers.database) == []


@pytest.mark.long
@pytest.mark.usefixtures("without_lock")
async def test_without_the_lock_the_last_dollar_is_spent_more_than_once(database_url: str) -> None:
    await execute(database_url, "ALTER TABLE accounts DROP CONSTRAINT accounts_balance_check")
    async with open_batchers(database_url, BATCHERS) as batchers:
        outcome, balance = await race_for_the_last_dollar(batchers, database_url)
        assert outcome["Answered"] > 1
        assert balance < 0


async def race_for_one_key(batchers: Batchers, url: str, recipients: int) -> tuple[int, int, Decimal]:
    """Let sixteen calls use one Idempotency-Key; return distinct answers, batches, and the balance after."""
    caller = await new_caller(url, balance="1000")
    numbers = [f"+2637712{number:05}" for number in range(recipients)]
    call = send_call(caller, numbers, idempotency_key="only-once")
    decisions = await batchers.ask_all([call] * 16)
    answers = {decision.response for decision in decisions if isinstance(decision, Answered)}
    assert kinds(decisions) == {"Answered": 16}
    async with batchers.database.connection() as connection:
        account = await accounts.find(connection, caller.id)
        batches = await connection.fetchval("SELECT count(*) FROM batches WHERE account_id = $1", caller.id)
    assert account is not None
    return len(answers), batches, account.balance


@pytest.mark.parametrize(("recipients", "balance"), [(1, "999.96"), (60, "997.60")])
async def test_one_key_bills_once(database_url: str, recipients: int, balance: str) -> None:
    async with open_batchers(database_url, BATCHERS) as batchers:
        assert await race_for_one_key(batchers, database_url, recipients) == (1, 1, Decimal(balance))
        assert await broken_promises(batchers.database) == []


@pytest.mark.long
@pytest.mark.usefixtures("without_lock")
async def test_without_the_lock_and_the_unique_key_one_key_bills_more_than_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await execute(database_url, "ALTER TABLE idempotency_keys DROP CONSTRAINT idempotency_keys_pkey")
    guard = re.compile(r"ON CONFLICT \(account_id, key\).*?(?=RETURNING)", re.DOTALL)
    unguarded = Statement("")
    unguarded.names = insert.SQL_ACCEPT.names
    unguarded.text = guard.sub("", insert.SQL_ACCEPT.text)
    monkeypatch.setattr(insert, "SQL_ACCEPT", unguarded)
    async with open_batchers(database_url, BATCHERS) as batchers:
        answers, batches, _ = await race_for_one_key(batchers, database_url, 1)
        assert answers > 1
        assert batches == answers


def test_limits_money_and_keys_hold_over_two_processes(server_url: str) -> None:
    with (
        clone(server_url) as url,
        run_web(url) as first,
        run_web(url) as second,
        ThreadPoolExecutor(20) as pool,
    ):
        services = first, second
        limited = first.open_account(rate=60)
        keys = [limited.key, first.run(create_key, limited.id, "second", list(Scope))[1]]
        answers = pool.map(
            lambda turn: services[turn % 2].call(keys[turn // 2 % 2], "GET", "/balance"), range(80)
        )
        assert Counter(answer.status_code for answer in answers) == {200: 60, 429: 20}

        spender = first.open_account(balance="1")
        numbers = [f"+2637712{number:05}" for number in range(25)]
        answers = pool.map(lambda turn: services[turn % 2].send(spender, to=numbers), range(20))
        assert Counter(answer.status_code for answer in answers) == {202: 1, 402: 19}
        assert first.balance(spender) == 0

        caller = first.open_account(balance="1")
        key = {"Idempotency-Key": "only-once"}
        same = list(pool.map(lambda turn: services[turn % 2].send(caller, headers=key), range(16)))
        assert {answer.status_code for answer in same} == {202}
        assert len({answer.content for answer in same}) == 1
        assert sum("Idempotency-Replayed" in answer.headers for answer in same) == 15
        assert first.balance(caller) == Decimal("0.96")


async def race_for_places(batchers: Batchers, url: str) -> Counter[str]:
    caller = await new_caller(url, rate=60)
    database_key = await create_key(batchers.database, caller.id, "second", list(Scope))
    second = Caller(caller.id, caller.account_id, write_id(KEY, database_key[0]), database_key[1])
    return await decide_all(batchers, [read_call((caller, second)[turn % 2]) for turn in range(80)])


@pytest.mark.long
async def test_the_window_is_exact_over_all_gates(database_url: str) -> None:
    async with open_batchers(database_url, BATCHERS) as batchers:
        outcome = await race_for_places(batchers, database_url)
        assert outcome == {Admitted.__name__: 60, RateLimited.__name__: 20}


@pytest.mark.long
@pytest.mark.usefixtures("without_lock")
async def test_without_the_lock_more_calls_than_places_get_through(database_url: str) -> None:
    async with open_batchers(database_url, BATCHERS) as batchers:
        outcome = await race_for_places(batchers, database_url)
        assert outcome[Admitted.__name__] > 60


async def race_for_passcodes(batchers: Batchers, url: str) -> tuple[int, int]:
    """Let calls send more passcodes than the guard allows; return those to one number, and to its range."""
    caller = await new_caller(url, rate=10_000)
    limits = PasscodeLimits(is_on=True, number=7, number_day=9, range=20)
    await set_passcode_limits(batchers.database, caller.id, lambda _: limits)
    numbers = ["+263771200001", *(f"+2637712{number:05}" for number in range(2, 32))]
    calls = [send_call(caller, [numbers[0]]) for _ in range(16)]
    await decide_all(batchers, calls)
    await decide_all(batchers, [send_call(caller, [number]) for number in numbers])
    async with batchers.database.connection() as connection:
        sent = await connection.fetch("SELECT recipient FROM messages WHERE account_id = $1", caller.id)
    return sum(row["recipient"] == numbers[0] for row in sent), len(sent)


@pytest.mark.long
async def test_no_more_passcodes_pass_than_the_limits_over_all_gates(database_url: str) -> None:
    async with open_batchers(database_url, BATCHERS) as batchers:
        assert await race_for_passcodes(batchers, database_url) == (7, 20)
        assert await broken_promises(batchers.database) == []


@pytest.mark.long
@pytest.mark.usefixtures("without_lock")
async def test_without_the_lock_more_passcodes_pass(database_url: str) -> None:
    async with open_batchers(database_url, BATCHERS) as batchers:
        to_one, to_all = await race_for_passcodes(batchers, database_url)
        assert to_one > 7
        assert to_all > 20


async def lock_and_read_late(url: str, statement: Statement) -> tuple[int, int]:
    """Accept a send after the statement has begun and before it locks the account.

    Return how many accounts it locked, and how many answers of the send's Idempotency-Key it found.
    """
    caller = await new_caller(url)
    late = _changed(
        statement, "WHERE id = ANY", "WHERE (SELECT pg_advisory_lock_shared(7)) IS NOT NULL AND id = ANY"
    )
    async with (
        open_batchers(url, 1) as batchers,
        batchers.database.own_connection() as holder,
        batchers.database.own_connection() as reader,
        reader.transaction(),
    ):
        await holder.execute("SELECT pg_advisory_lock(7)")
        ids = [caller.id]
        reading = asyncio.create_task(
            late.rows(
                reader,
                caller_ids=ids,
                key_ids=[None],
                idempotency_keys=["changed-late"],
                account_ids=ids,
                ported=[],
                range_account_ids=[],
                range_prefixes=[],
            )
        )
        deadline = time.monotonic() + PATIENCE_S
        while not await holder.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        ):
            assert time.monotonic() < deadline, "the statement does not wait"
            await asyncio.sleep(0.01)
        sent = await batchers.batchers[0].ask(send_call(caller, idempotency_key="changed-late"))
        assert isinstance(sent, Answered)
        await holder.execute("SELECT pg_advisory_unlock(7)")
        rows = await reading
    return sum(row["id"] is not None for row in rows), sum(row["response"] is not None for row in rows)


async def test_an_account_that_changed_since_the_statement_began_is_left_for_later(database_url: str) -> None:
    assert await lock_and_read_late(database_url, lookups.SQL_LOCK_AND_READ) == (0, 0)


async def test_twin_that_compares_no_versions_locks_the_account_and_misses_its_last_send(
    database_url: str,
) -> None:
    unchecked = _changed(lookups.SQL_LOCK_AND_READ, "AND xmin = held.version", "")
    assert await lock_and_read_late(database_url, unchecked) == (1, 0)


@pytest.mark.long
async def test_the_audit_is_exact_under_traffic(database_url: str) -> None:
    callers = [await new_caller(database_url, balance="10000", rate=100_000) for _ in range(4)]
    numbers = [f"+2637712{number:05}" for number in range(60)]
    async with open_batchers(database_url, 2) as batchers:

        async def send(turn: int) -> None:
            await batchers.ask_all(
                [send_call(callers[turn % 4], numbers[: 1 + turn * 7 % 60]) for _ in range(4)]
            )

        audits = 0
        traffic = asyncio.gather(*(send(turn) for turn in range(40)))
        while not traffic.done():
            assert await broken_promises(batchers.database) == []
            audits += 1
        await traffic
        assert audits > 1


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statement)
    await connection.close()
