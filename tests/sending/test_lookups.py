"""What is read for a group of calls is that of each call's own account, key, range and number."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import structs

from tests.support.delivery.engine import Engine
from tests.support.processes.service import Caller
from tests.support.sending.batchers import secret_of, send_call
from tumira.accounts.api_keys import Scope
from tumira.core.ids import KeyId
from tumira.sending import lookups
from tumira.sending.code_guard import range_of
from tumira.sending.lookups import CallFacts, GroupFacts
from tumira.sending.types import Answered, Send

PASSCODE = "Your code is 493817."
ZW, ZA, PORTED = "+263771200001", "+27821230001", "+27831230001"


def key_of(caller: Caller) -> KeyId:
    return secret_of(caller).key_id


async def read(
    engine: Engine, asked: Sequence[lookups.AskedCall], *callers: Caller, to: Sequence[str] = ()
) -> tuple[Sequence[CallFacts], GroupFacts]:
    ranges = {(caller.id, range_of(number)) for caller in callers for number in to}
    async with engine.database.transaction() as connection:
        return await lookups.read(connection, asked, [one.id for one in callers], to, ranges)


async def test_an_earlier_answer_is_that_of_its_own_account_and_key(engine: Engine) -> None:
    own, other = await engine.open_account(), await engine.open_account()
    sent = await engine.batcher.ask(send_call(own, idempotency_key="key-one-1"))
    assert isinstance(sent, Answered)
    asked = [
        (own.id, key_of(own), "key-one-1"),
        (other.id, key_of(other), "key-one-1"),
        (own.id, key_of(own), "key-two-2"),
        (own.id, None, None),
        (own.id, key_of(own), "key-one-1"),
    ]
    calls, _ = await read(engine, asked, own, other)
    answers = [one.earlier_answer for one in calls]
    assert [one is not None for one in answers] == [True, False, False, False, True]
    assert answers[0] is not None
    assert answers[0][1] == sent.response
    assert answers[0] == answers[4]
    # Without any answer the calls keep their order too.
    calls, _ = await read(engine, [asked[3], asked[1]], own, other)
    assert [set(one.scopes) for one in calls] == [set(), set(Scope)]
    await engine.rows("UPDATE idempotency_keys SET created_at = created_at - interval '72 hours'")
    calls, _ = await read(engine, asked, own)
    assert {one.earlier_answer for one in calls} == {None}
    async with engine.database.transaction() as connection:
        assert await lookups.delete_old_idempotency_keys(connection, 9) == 1
        assert await lookups.delete_old_idempotency_keys(connection, 9) == 0


async def test_old_answers_are_deleted_the_oldest_first_and_those_in_use_later(engine: Engine) -> None:
    caller = await engine.open_account()
    keys = [f"key-{letter}-123" for letter in "abcd"]
    for key in keys:
        await engine.batcher.ask(send_call(caller, idempotency_key=key))
    for place, key in enumerate(keys[:3]):
        await engine.rows(
            "UPDATE idempotency_keys SET created_at = created_at - make_interval(hours => $2) WHERE key = $1",
            key,
            90 - place,
        )
    async with engine.database.transaction() as holder:
        await holder.execute("SELECT FROM idempotency_keys WHERE key = $1 FOR UPDATE", keys[0])
        async with engine.database.transaction() as connection:
            await connection.execute("SET LOCAL lock_timeout = '2s'")
            assert await lookups.delete_old_idempotency_keys(connection, 1) == 1
    rows = await engine.rows("SELECT key FROM idempotency_keys ORDER BY key")
    assert [row["key"] for row in rows] == [keys[0], *keys[2:]]


async def test_the_state_of_a_key_is_its_own_and_its_use_is_news_once_a_minute(engine: Engine) -> None:
    own, other = await engine.open_account(), await engine.open_account()
    asked = [(own.id, key_of(own), None), (other.id, key_of(other), None), (own.id, None, None)]
    await engine.rows("UPDATE api_keys SET last_used_at = NULL")
    calls, _ = await read(engine, asked, own, other)
    assert [(one.revoked, one.use_is_news) for one in calls] == [(False, True), (False, True), (False, True)]
    assert [set(one.scopes) for one in calls] == [set(Scope), set(Scope), set()]
    async with engine.database.transaction() as connection:
        await lookups.mark_used(connection, [key_of(own)])
    await engine.rows(
        "UPDATE api_keys SET revoked_at = now(), scopes = '{messages:read}' WHERE id = $1", key_of(other)
    )
    calls, _ = await read(engine, asked, own, other)
    assert [(one.revoked, one.use_is_news) for one in calls[:2]] == [(False, False), (True, True)]
    assert [set(one.scopes) for one in calls[:2]] == [set(Scope), {Scope.READ}]
    await engine.rows("UPDATE api_keys SET last_used_at = last_used_at - interval '61 seconds'")
    calls, _ = await read(engine, asked, own)
    assert calls[0].use_is_news


async def test_turns_ranges_and_networks_are_those_that_were_asked_for(engine: Engine) -> None:
    own, other = await engine.open_account(), await engine.open_account()
    await engine.rows("UPDATE accounts SET code_guard = true")
    for caller in (own, other):
        for number in (ZW, ZA):
            call = send_call(caller, [number], PASSCODE)
            assert isinstance(call.send, Send)
            await engine.batcher.ask(structs.replace(call, send=structs.replace(call.send, is_passcode=True)))
    await engine.rows("INSERT INTO clocks (country, lane, turn) VALUES ('ZW', 1, 7)")
    await engine.rows(
        "INSERT INTO number_networks (number, network, source)"
        " VALUES ($1, 'mtn', 'receipt'), ($2, 'cellc', 'receipt')",
        int(ZA[1:]),
        int(PORTED[1:]),
    )
    before = datetime.now(UTC)
    _, facts = await read(engine, [(own.id, None, None)], own, to=[ZW, ZA])
    assert abs(facts.now - before) < timedelta(minutes=5)
    assert facts.now_us == int(facts.now.timestamp() * 1_000_000)
    assert facts.clocks["ZW", 1] == 7
    assert {account_id for account_id, _, _ in facts.next_turns} == {own.id}
    assert {queue for _, queue, _ in facts.next_turns} == {"ZW", "ZA"}
    assert facts.ported == {ZA: "mtn"}
    assert facts.ranges.keys() == {(own.id, range_of(ZW)), (own.id, range_of(ZA))}
    assert {(one.stopped_until_us, one.is_lifted) for one in facts.ranges.values()} == {(0, False)}
    await engine.rows(
        "UPDATE code_ranges SET stopped_until = to_timestamp(1800000000), lifted_at = now()"
        " WHERE account_id = $1 AND prefix = $2",
        own.id,
        range_of(ZW),
    )
    _, facts = await read(engine, [(own.id, None, None)], own, to=[ZW, ZA])
    stopped = {prefix: (one.stopped_until_us, one.is_lifted) for (_, prefix), one in facts.ranges.items()}
    assert stopped == {range_of(ZW): (1_800_000_000_000_000, True), range_of(ZA): (0, False)}
    (row,) = await engine.rows("SELECT (SELECT version FROM tariff), (SELECT version FROM content_policy)")
    assert (facts.tariff_version, facts.policy_version) == tuple(row)


async def test_a_key_that_another_transaction_has_is_waited_for(engine: Engine) -> None:
    own, other = await engine.open_account(), await engine.open_account()
    async with engine.database.transaction() as connection:
        await lookups.lock_idempotency_key(connection, own.id, "key-one-1")
        async with engine.database.transaction() as second:
            # Another key, and the same one of another account, are free.
            await second.execute("SET LOCAL lock_timeout = '2s'")
            await lookups.lock_idempotency_key(second, own.id, "key-two-2")
            await lookups.lock_idempotency_key(second, other.id, "key-one-1")
        async with engine.database.transaction() as third:
            waiting = asyncio.create_task(lookups.lock_idempotency_key(third, own.id, "key-one-1"))
            done, _ = await asyncio.wait({waiting}, timeout=0.1)
            assert not done
            await connection.execute("SELECT pg_advisory_unlock_all()")
            await connection.execute("ROLLBACK; BEGIN")
            await waiting


async def test_accounts_that_are_locked_elsewhere_are_left_out(engine: Engine) -> None:
    own, other = await engine.open_account(), await engine.open_account()
    asked = [(own.id, key_of(own), None), (other.id, key_of(other), None)]
    async with engine.database.transaction() as holder:
        await holder.execute("SELECT FROM accounts WHERE id = $1 FOR NO KEY UPDATE", other.id)
        async with engine.database.transaction() as connection:
            held, calls, _ = await lookups.lock_and_read(connection, asked)
    assert held.keys() == {own.id}
    assert len(calls) == 2
    async with engine.database.transaction() as connection:
        held, _, _ = await lookups.lock_and_read(connection, asked)
    assert held.keys() == {own.id, other.id}
    assert held[own.id].id == own.id
