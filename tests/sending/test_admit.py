"""A group of calls is decided together, and what it writes is checked again as it is written."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from msgspec import structs

from tests.support.content.near_line import near_call
from tests.support.delivery.engine import Engine, numbers
from tests.support.sending.batchers import read_call, send_call
from tumira.accounts import store as accounts
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.api.schemas import write_sent
from tumira.audit_log import Actor
from tumira.core.errors import ApiKeyRevoked, IdempotencyConflict, InsufficientBalance, RateLimited
from tumira.core.ids import BATCH, AccountId, write_id
from tumira.identity import manage_accounts
from tumira.sending import insert, lookups
from tumira.sending.admit import Rules, admit_alone, admit_unlocked
from tumira.sending.insert import AlreadyRecordedError, Debit
from tumira.sending.types import Admitted, Answered, Call, Decision, InvalidSend, Priced, Refused, Send


async def admit(engine: Engine, *calls: Call) -> Sequence[Decision | None]:
    async with engine.database.transaction() as connection:
        return await admit_unlocked(connection, Rules(), write_sent, calls)


async def balance(engine: Engine) -> Decimal:
    (row,) = await engine.rows("SELECT balance FROM accounts WHERE phone <> 'system'")
    assert isinstance(row["balance"], Decimal)
    return row["balance"]


async def test_two_calls_of_a_group_with_one_key_are_one_send(engine: Engine) -> None:
    caller = await engine.open_account(balance="1")
    call = send_call(caller, idempotency_key="only-once")
    other = send_call(caller, body="Your order is ready.", idempotency_key="only-once")
    first, second, third = await admit(engine, call, call, other)
    assert isinstance(first, Answered)
    assert isinstance(second, Answered)
    assert (first.replayed, second.replayed) == (False, True)
    assert first.response == second.response
    assert isinstance(third, Refused)
    assert isinstance(third.refusal, IdempotencyConflict)
    assert await balance(engine) == Decimal("0.96")
    assert len(await engine.rows("SELECT FROM batches")) == 1


async def test_the_calls_of_a_group_share_one_balance(engine: Engine) -> None:
    caller = await engine.open_account(balance="0.08")
    decisions = await admit(engine, *[send_call(caller)] * 3)
    assert [type(one) for one in decisions] == [Answered, Answered, Refused]
    assert isinstance(decisions[2], Refused)
    assert isinstance(decisions[2].refusal, InsufficientBalance)
    assert await balance(engine) == 0


async def test_what_is_only_asked_for_or_costs_other_than_agreed_is_priced_and_not_sent(
    engine: Engine,
) -> None:
    caller = await engine.open_account(balance="1")
    call = send_call(caller)
    assert isinstance(call.send, Send)
    dry = structs.replace(call.send, request=structs.replace(call.send.request, dry_run=True))
    agreed = [structs.replace(call.send, agreed_cost=Decimal(cost)) for cost in ("0.04", "0.03")]
    sends = [dry, *agreed]
    decisions = await admit(engine, *(structs.replace(call, send=one) for one in sends))
    assert [type(one) for one in decisions] == [Priced, Answered, Priced]
    assert await balance(engine) == Decimal("0.96")


async def test_what_is_stored_for_nothing_is_counted_and_what_is_paid_for_is_not(engine: Engine) -> None:
    caller = await engine.open_account()

    async def unbilled() -> int:
        (row,) = await engine.rows("SELECT unbilled_today FROM accounts WHERE id = $1", caller.id)
        return int(row["unbilled_today"])

    await admit(engine, send_call(caller))
    assert await unbilled() == 0
    await admit(engine, send_call(caller, to=["12"]))
    assert await unbilled() > 0


async def test_the_rate_limit_is_for_calls_with_a_key(engine: Engine) -> None:
    """A person at the dashboard sends also while programs use up the limit, and takes no place of theirs."""
    caller = await engine.open_account(rate=1)
    by_person = structs.replace(send_call(caller), key_id=None)
    decisions = await admit(engine, by_person, send_call(caller), send_call(caller), by_person)
    assert [type(one) for one in decisions] == [Answered, Answered, Refused, Answered]
    assert isinstance(decisions[2], Refused)
    assert isinstance(decisions[2].refusal, RateLimited)
    assert decisions[2].quota is not None
    assert not decisions[2].quota.place.allowed


async def test_every_call_with_a_key_is_counted_to_the_rate(engine: Engine) -> None:
    """Above 600 calls a minute the calls of a second share an entry, of which only the count is written."""
    slow, busy, other = [await engine.open_account(rate=rate) for rate in (60, 1000, 1000)]
    for count in (1, 3, 2):
        for caller in (slow, busy):
            await admit(engine, *[read_call(caller)] * count)
    await admit(engine, read_call(other))
    rows = await engine.rows("SELECT id, call_times, call_counts FROM accounts WHERE phone <> 'system'")
    assert {row["id"]: sum(row["call_counts"]) for row in rows} == {slow.id: 6, busy.id: 6, other.id: 1}
    assert all(len(row["call_times"]) == len(row["call_counts"]) for row in rows)


async def test_a_call_that_sends_nothing_is_admitted_beside_sends(engine: Engine) -> None:
    caller = await engine.open_account(balance="1")
    invalid = structs.replace(send_call(caller), send=InvalidSend(InsufficientBalance(), None))
    read, refused, sent = await admit(engine, read_call(caller), invalid, send_call(caller))
    assert isinstance(read, Admitted)
    assert read.balance == 1
    assert isinstance(refused, Refused)
    assert isinstance(refused.refusal, InsufficientBalance)
    assert isinstance(sent, Answered)
    assert await balance(engine) == Decimal("0.96")


async def test_what_a_person_sends_is_in_the_history_of_the_account(engine: Engine) -> None:
    caller = await engine.open_account(balance="1")
    call = send_call(caller, ["+263771200001", "+263771200002"])
    assert isinstance(call.send, Send)
    by_person = structs.replace(call, send=structs.replace(call.send, by=Actor("Rudo")))
    await admit(engine, by_person, send_call(caller))
    rows = await engine.rows("SELECT account_id, actor, detail FROM changes WHERE what = 'message sent'")
    (batch,) = await engine.rows("SELECT id FROM batches WHERE recipients = 2")
    detail = f"{write_id(BATCH, batch['id'])}: 2 messages, 0.0800 USD"
    assert [tuple(row) for row in rows] == [(caller.id, "Rudo", detail)]


async def test_the_use_of_a_key_is_noted_once_a_minute_and_not_where_there_is_none(engine: Engine) -> None:
    caller, other = await engine.open_account(), await engine.open_account()
    await engine.rows("UPDATE api_keys SET last_used_at = NULL")

    async def used() -> set[AccountId]:
        rows = await engine.rows(
            "SELECT account_id FROM api_keys WHERE last_used_at > now() - interval '1 minute'"
        )
        return {row["account_id"] for row in rows}

    await admit(engine, structs.replace(send_call(other), key_id=None))
    assert await used() == set()
    await admit(engine, send_call(caller), structs.replace(send_call(other), key_id=None))
    assert await used() == {caller.id}
    await engine.rows("UPDATE api_keys SET last_used_at = '2026-01-01', revoked_at = now()")
    (refused,) = await admit(engine, send_call(caller))
    assert isinstance(refused, Refused)
    assert (isinstance(refused.refusal, ApiKeyRevoked), refused.quota) == (True, None)
    assert await used() == set()


async def test_a_send_near_the_line_is_marked(engine: Engine) -> None:
    caller = await engine.open_account()
    near, far = await admit(engine, near_call(caller), send_call(caller))
    assert isinstance(near, Answered)
    assert isinstance(far, Answered)
    assert near.marked is not None
    assert (near.marked.account_id, near.marked.messages) == (caller.id, 1)
    assert far.marked is None


async def test_the_first_message_of_an_account_enters_at_the_clock_and_the_next_behind_it(
    engine: Engine,
) -> None:
    caller = await engine.open_account()
    await admit(engine, send_call(caller), send_call(caller))
    await admit(engine, send_call(caller))
    turns = [row["turn"] for row in await engine.rows("SELECT turn FROM queue ORDER BY turn")]
    assert turns == [0, turns[1], 2 * turns[1]]
    assert turns[1] > 0


async def test_rules_are_read_again_when_they_have_changed_and_not_before(engine: Engine) -> None:
    rules = Rules()
    async with engine.database.connection() as connection:
        tariff, policy = await rules.tariff(connection, 1), await rules.policy(connection, 1)
        assert await rules.tariff(connection, tariff.version) is tariff
        assert await rules.policy(connection, policy.version) is policy
        assert await rules.tariff(connection, tariff.version + 1) is not tariff
        assert await rules.policy(connection, policy.version + 1) is not policy


async def test_the_owner_is_told_once_that_the_balance_is_low(engine: Engine) -> None:
    caller = await engine.open_account(balance="1")
    await engine.rows("UPDATE accounts SET low_balance = 0.93 WHERE id = $1", caller.id)

    async def warnings() -> list[str]:
        rows = await engine.rows(
            "SELECT data::json->>'balance' AS balance FROM events WHERE type = 'balance.low'"
        )
        return [row["balance"] for row in rows]

    await admit(engine, send_call(caller))
    assert await warnings() == []
    await admit(engine, send_call(caller))
    assert await warnings() == ["0.9200"]
    await admit(engine, send_call(caller))
    assert await warnings() == ["0.9200"]


async def test_a_call_whose_account_is_locked_is_left_for_later(engine: Engine) -> None:
    caller, other = await engine.open_account(), await engine.open_account()
    async with engine.database.transaction() as holder:
        await accounts.lock(holder, caller.id)
        decisions = await admit(engine, send_call(caller), send_call(other))
    assert decisions[0] is None
    assert isinstance(decisions[1], Answered)


async def test_a_call_alone_finds_the_answer_that_was_recorded_before(engine: Engine) -> None:
    caller = await engine.open_account(balance="1")
    call = send_call(caller, idempotency_key="only-once")
    await admit(engine, call)
    async with engine.database.transaction() as connection:
        answer = await admit_alone(connection, Rules(), write_sent, call)
    assert isinstance(answer, Answered)
    assert answer.replayed
    assert await balance(engine) == Decimal("0.96")


async def test_a_key_that_is_recorded_already_writes_nothing(engine: Engine) -> None:
    """The second line of defence: no lookup found the key, and it is there."""
    caller = await engine.open_account(balance="1")
    (first,) = await admit(engine, send_call(caller, idempotency_key="only-once"))
    assert isinstance(first, Answered)
    (row,) = await engine.rows("SELECT batch_id FROM idempotency_keys")
    free = Debit(caller.id, row["batch_id"], Decimal(0), "only-once", bytes(32), b"{}")
    async with engine.database.transaction() as connection:
        account = await accounts.lock(connection, caller.id)
        with pytest.raises(AlreadyRecordedError):
            await insert.write(connection, [(account, Decimal(0))], {}, [], [free], {})
    (kept,) = await engine.rows("SELECT response FROM idempotency_keys")
    assert kept["response"] == first.response


async def test_a_key_is_free_again_after_72_hours(engine: Engine) -> None:
    caller = await engine.open_account(balance="1")
    call = send_call(caller, numbers(1), idempotency_key="only-once")
    (first,) = await admit(engine, call)
    assert isinstance(first, Answered)
    age = "UPDATE idempotency_keys SET created_at = created_at - $1::text::interval"
    await engine.rows(age, "71 hours 59 minutes")
    (again,) = await admit(engine, call)
    assert isinstance(again, Answered)
    assert again.replayed
    await engine.rows(age, "2 minutes")
    (new,) = await admit(engine, call)
    assert isinstance(new, Answered)
    assert not new.replayed
    (kept,) = await engine.rows(
        "SELECT response, created_at > now() - interval '1 hour' FROM idempotency_keys"
    )
    assert tuple(kept) == (new.response, True)
    async with engine.database.connection() as connection:
        assert await lookups.delete_old_idempotency_keys(connection, 10) == 0
        await engine.rows(age, "73 hours")
        assert await lookups.delete_old_idempotency_keys(connection, 10) == 1


async def test_without_the_guard_passcodes_to_a_number_are_not_limited(engine: Engine) -> None:
    caller = await engine.open_account(balance="1")
    limits = PasscodeLimits(is_on=False, number=1)
    await manage_accounts.set_passcode_limits(
        engine.database, caller.id, lambda _: limits, actor=Actor("Rudo")
    )
    await admit(engine, *[send_call(caller)] * 3)
    assert len(await engine.rows("SELECT FROM messages")) == 3
    limits = PasscodeLimits(number=1)
    await manage_accounts.set_passcode_limits(
        engine.database, caller.id, lambda _: limits, actor=Actor("Rudo")
    )
    await admit(engine, *[send_call(caller)] * 3)
    # What went while it was off was not counted.
    assert len(await engine.rows("SELECT FROM messages")) == 4
