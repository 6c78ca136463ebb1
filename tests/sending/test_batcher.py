"""Calls are grouped within bounds, each is answered once, and a full queue refuses more."""

import asyncio
from collections.abc import Sequence
from functools import partial

import asyncpg
import pytest

from tests.support.content.near_line import near_call
from tests.support.delivery.engine import Engine, numbers
from tests.support.sending.batchers import read_call, send_call
from tumira.core.errors import InternalError, ServiceUnavailable
from tumira.sending import batcher as batchers
from tumira.sending.batcher import (
    GROUP_MAX,
    GROUP_RECIPIENTS_MAX,
    PARTITION_RETRY_S,
    Batcher,
    _recipients,
    _refusal,
)
from tumira.sending.decide import SMALL_SEND_MAX
from tumira.sending.types import Admitted, Answered, Call, Decision, Refused


def queued(batcher: Batcher, calls: Sequence[Call]) -> list[Decision]:
    """Submit calls that nobody decides, and return where their answers go."""
    answers: list[Decision] = []
    for call in calls:
        batcher.submit(call, answers.append)
    return answers


@pytest.fixture
async def idle(engine: Engine) -> Batcher:
    """Give a batcher whose loop does nothing."""
    batcher = engine.batcher
    batcher._loop = asyncio.create_task(asyncio.sleep(0))
    await batcher._loop
    return batcher


async def test_a_group_ends_at_so_many_calls_or_so_many_recipients(engine: Engine, idle: Batcher) -> None:
    caller = await engine.open_account()
    queued(idle, [read_call(caller)] * (GROUP_MAX + 1))
    assert idle.waiting == GROUP_MAX + 1
    assert [len(idle._next_group()) for _ in range(2)] == [GROUP_MAX, 1]
    assert not idle._arrived.is_set()
    small = send_call(caller, numbers(SMALL_SEND_MAX))
    most = -(-GROUP_RECIPIENTS_MAX // SMALL_SEND_MAX)
    queued(idle, [small] * (most + 1))
    assert len(idle._next_group()) == most
    assert idle._arrived.is_set()
    assert len(idle._next_group()) == 1
    assert idle._next_group() == []


async def test_a_large_send_counts_for_one_in_its_group(engine: Engine) -> None:
    caller = await engine.open_account()
    counts = [_recipients(send_call(caller, numbers(count))) for count in (1, SMALL_SEND_MAX)]
    assert counts == [1, SMALL_SEND_MAX]
    assert _recipients(send_call(caller, numbers(SMALL_SEND_MAX + 1))) == 1
    assert _recipients(read_call(caller)) == 1


async def test_a_full_queue_refuses_more_at_once(
    engine: Engine, idle: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchers, "WAITING_MAX", 2)
    answers = queued(idle, [read_call(await engine.open_account())] * 3)
    assert idle.waiting == 2
    (refused,) = answers
    assert isinstance(refused, Refused)
    assert isinstance(refused.refusal, ServiceUnavailable)
    assert refused.refusal.retry_after_s == 1
    idle._waiting.clear()


async def test_every_call_is_answered_once_and_none_waits_afterwards(engine: Engine) -> None:
    caller = await engine.open_account()
    calls = [read_call(caller), send_call(caller), send_call(caller, numbers(SMALL_SEND_MAX + 1))]
    answers: list[Decision] = []
    for call in calls:
        engine.batcher.submit(call, answers.append)
    assert engine.batcher.waiting == 3

    async def answered() -> bool:
        return len(answers) == 3

    await engine.until(answered, "not all were answered")
    assert sorted(type(one).__name__ for one in answers) == ["Admitted", "Answered", "Answered"]
    assert engine.batcher.waiting == 0
    assert (len(engine.batcher._large), len(engine.batcher._alone)) == (0, 0)
    assert await engine.statuses() == {"queued": SMALL_SEND_MAX + 2}


async def test_a_caller_who_has_gone_breaks_nothing(engine: Engine) -> None:
    caller = await engine.open_account()
    gone = asyncio.create_task(engine.batcher.ask(send_call(caller)))
    await asyncio.sleep(0)
    gone.cancel()
    assert isinstance(await engine.batcher.ask(send_call(caller)), Answered)
    assert isinstance(await engine.batcher.ask(read_call(caller)), Admitted)
    assert await engine.statuses() == {"queued": 2}


async def test_a_group_that_fails_as_a_whole_is_answered_and_the_next_goes_through(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await engine.open_account()
    real = Batcher._admit

    async def admit(_self: Batcher, _group: object) -> None:
        monkeypatch.setattr(Batcher, "_admit", real)
        raise ValueError("a mistake")

    monkeypatch.setattr(Batcher, "_admit", admit)
    refused = await engine.batcher.ask(send_call(caller))
    assert isinstance(refused, Refused)
    assert isinstance(refused.refusal, InternalError)
    assert isinstance(await engine.batcher.ask(send_call(caller)), Answered)
    assert engine.batcher.waiting == 0


async def test_a_call_whose_account_stays_locked_is_retried_alone_and_then_refused(
    engine: Engine, idle: Batcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By how long it has waited: in the next group, alone, or not at all."""
    call = read_call(await engine.open_account())
    now = asyncio.get_running_loop().time()
    started: list[object] = []
    monkeypatch.setattr(idle, "_admit_alone", partial(record, started))
    for waited_s in (0.0, batchers.PATIENCE_S + 0.1, batchers.GIVE_UP_S + 0.1):
        answers = queued(idle, [call])
        (waiting,) = idle._next_group()
        waiting.since = now - waited_s
        idle._hand_out([waiting], [None], None, idle._claims.begin())
        expected = {0.0: (1, 0, 0), batchers.PATIENCE_S + 0.1: (0, 1, 0), batchers.GIVE_UP_S + 0.1: (0, 0, 1)}
        await asyncio.sleep(0)
        assert (len(idle._waiting), len(started), len(answers)) == expected[waited_s]
        idle._waiting.clear()
        started.clear()


async def record(started: list[object], waiting: object) -> None:
    started.append(waiting)


def test_a_failure_is_told_by_what_it_means_for_the_caller() -> None:
    assert isinstance(_refusal(ValueError("a mistake"), []), InternalError)
    missing = asyncpg.CheckViolationError('no partition of relation "messages" found for row')
    for error, retry_after_s in (
        (TimeoutError(), 1),
        (ConnectionError("gone"), 1),
        (missing, PARTITION_RETRY_S),
    ):
        refusal = _refusal(error, [])
        assert isinstance(refusal, ServiceUnavailable)
        assert refusal.retry_after_s == retry_after_s


async def test_texts_near_the_line_are_written_before_a_batcher_ends(engine: Engine) -> None:
    caller = await engine.open_account()
    assert isinstance(await engine.batcher.ask(near_call(caller)), Answered)
    assert await engine.rows("SELECT FROM near_line_days") == []
    await engine.batcher.close()
    assert len(await engine.rows("SELECT FROM near_line_days")) == 1
