"""A recorder says when it cannot keep up or has failed, and is waited for no longer than that."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, cast

import pytest
import pytest_asyncio
from msgspec import structs

from tests.support.delivery.settling import REFUND_ALL, WORKER, Owner, Phone, World
from tumira.core import metrics
from tumira.delivery import recorder as recorders
from tumira.delivery.observer import Observer
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.recorder import BEHIND_S, GROUP_MAX, Item, Recorder
from tumira.delivery.smpp.session import SmppSession
from tumira.postgres.pinned_connection import PinnedConnection

DRAIN_S: Final = 20.0


@pytest_asyncio.fixture
async def recorder(world: World) -> AsyncIterator[Recorder]:
    database = world.engine.database
    recorder = Recorder(database, world.carrier_id, WORKER, Observer(database))
    recorder.refunded = REFUND_ALL
    yield recorder
    await recorder.close()


class Counting(Owner):
    def __init__(self) -> None:
        self.counts: list[int] = []

    def recorded(self, count: int) -> None:
        self.counts.append(count)


async def receive(recorder: Recorder, told: Mapping[int, Receipt]) -> Phone:
    phone = Phone(told)
    for token, receipt in told.items():
        recorder.receive(receipt, datetime.now(UTC), cast("SmppSession", phone), token)
    await recorder.drain(DRAIN_S)
    recorder.check()
    return phone


async def test_a_recorder_that_has_failed_is_found_out(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.check()

    async def fail(_self: Recorder) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(Recorder, "_run", fail)
    recorder._task.cancel()
    await asyncio.gather(recorder._task, return_exceptions=True)
    # It was stopped, which is no failure.
    recorder.check()
    recorder._task = asyncio.create_task(recorder._run())
    await asyncio.wait({recorder._task})
    with pytest.raises(ValueError, match="a mistake"):
        recorder.check()


async def test_a_recorder_is_behind_with_too_many_or_with_none_written_for_a_while(
    world: World, recorder: Recorder
) -> None:
    recorder._task.cancel()
    claimed = await world.claim_one()
    seen: list[bool] = [recorder.is_behind]
    recorder._written_at -= BEHIND_S + 1
    seen.append(recorder.is_behind)
    recorder.put(world.taken(claimed), claimed.recipient, Owner())
    seen.append(recorder.is_behind)
    recorder._written_at += BEHIND_S
    seen.append(recorder.is_behind)
    # It is not while nothing is to be written, however long that was.
    assert seen == [False, False, True, False]
    for _ in range(4 * GROUP_MAX - 1):
        recorder.put(world.taken(claimed), claimed.recipient, Owner())
    seen = [recorder.is_behind]
    recorder.put(world.taken(claimed), claimed.recipient, Owner())
    assert [*seen, recorder.is_behind] == [False, True]


async def test_it_is_waited_for_until_all_that_was_given_is_written_or_the_time_is_up(
    world: World, recorder: Recorder
) -> None:
    await recorder.drain(0.0)
    await world.send(3)
    claimed, owner = await world.claim(3), Counting()
    async with world.engine.database.transaction() as holder:
        await holder.execute("SELECT FROM messages FOR UPDATE")
        for one in claimed:
            recorder.put(world.taken(one), one.recipient, owner)
        await recorder.drain(0.05)
        assert recorder._awaited == []
        assert owner.counts == []
        assert (recorder._given, recorder._done) == (3, 0)
    await recorder.drain(DRAIN_S)
    assert sum(owner.counts) == 3
    assert (recorder._given, recorder._done) == (3, 3)
    assert await world.engine.statuses() == {"sent": 3}
    assert recorder._idle.is_set()


async def test_a_recorder_does_not_breathe_while_a_sender_waits(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "BREATH_S", 60.0)
    claimed = await world.claim_one()
    recorder.put(world.taken(claimed), claimed.recipient, Owner())
    await recorder.drain(0.2)
    assert await world.status(claimed.id) == "sending"
    recorder.hurry()
    await recorder.drain(DRAIN_S)
    assert await world.status(claimed.id) == "sent"


async def test_an_outcome_that_cannot_be_recorded_harms_no_other(world: World, recorder: Recorder) -> None:
    await world.send(3)
    claimed, owner = await world.claim(3), Counting()
    outcomes = [world.taken(one) for one in claimed]
    # A segment that the table does not take.
    outcomes[1].part.carrier_ref = "a\0b"
    for one, outcome in zip(claimed, outcomes, strict=True):
        recorder.put(outcome, one.recipient, owner)
    await recorder.drain(DRAIN_S)
    assert sum(owner.counts) == 3
    assert await world.engine.statuses() == {"sent": 2, "sending": 1}
    assert await world.status(claimed[1].id) == "sending"
    # Its receipt would settle a message without it, so it is not remembered.
    assert recorder._recent.find(world.receipt(claimed[1])) is None
    assert recorder._recent.find(world.receipt(claimed[0])) is not None


async def test_a_group_begins_only_when_the_one_before_the_last_is_written(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are two connections: while the second group waits for the first one, both are in use."""
    monkeypatch.setattr(recorders, "GROUP_MAX", 1)
    await world.send(3)
    claimed, owner = await world.claim(3), Counting()
    async with world.engine.database.transaction() as holder:
        await holder.execute("SELECT FROM messages WHERE id = $1 FOR UPDATE", claimed[0].id)
        for one in claimed:
            recorder.put(world.taken(one), one.recipient, owner)
        await asyncio.sleep(0.2)
        assert len(recorder._groups) == 2
        assert [item[0].message_id for item in recorder._waiting if isinstance(item, tuple)] == [
            claimed[2].id
        ]
    await recorder.drain(DRAIN_S)
    assert owner.counts == [1, 1, 1]
    assert await world.engine.statuses() == {"sent": 3}


async def test_a_receipt_that_cannot_be_recorded_harms_no_other_and_is_not_acknowledged(
    world: World, recorder: Recorder
) -> None:
    await world.send(2)
    first, second = await world.claim(2)
    told = {1: world.receipt(first), 2: world.receipt(second, "UNDELIV")}
    # A text that the table does not take.
    told[1] = structs.replace(told[1], text="a\0b")
    await world.settle(world.taken(first), world.taken(second))
    phone = await receive(recorder, told)
    # The carrier sends it again.
    assert phone.unacknowledged.keys() == {1}
    assert (await world.status(first.id), await world.status(second.id)) == ("sent", "undelivered")


async def test_a_recorder_is_behind_while_its_last_group_cannot_be_written(
    world: World, recorder: Recorder
) -> None:
    claimed = await world.claim_one()
    async with world.engine.database.transaction() as holder:
        await holder.execute("SELECT FROM messages FOR UPDATE")
        recorder.put(world.taken(claimed), claimed.recipient, Owner())
        await asyncio.sleep(0.2)
        recorder._written_at -= BEHIND_S + 1
        seen = [recorder.is_behind]
    await recorder.drain(DRAIN_S)
    assert [*seen, recorder.is_behind] == [True, False]


async def test_a_receipt_that_cannot_be_kept_harms_no_other_that_matches_nothing(
    world: World, recorder: Recorder
) -> None:
    known = Receipt("1", "263771200001", "DELIVRD", None, "stat:DELIVRD")
    phone = await receive(recorder, {1: structs.replace(known, state="a\0b"), 2: known})
    assert phone.unacknowledged.keys() == {1}
    assert len(await world.rows("SELECT FROM unmatched_receipts")) == 1


async def test_a_receipt_is_matched_by_another_reading_of_an_id_from_before_a_restart(
    world: World, recorder: Recorder
) -> None:
    claimed = await world.claim_one()
    outcome = world.taken(claimed)
    outcome.part.carrier_ref = outcome.part.carrier_key = "1f"
    await world.settle(outcome)
    await receive(recorder, {1: structs.replace(world.receipt(claimed), carrier_ref="31")})
    assert await world.status(claimed.id) == "delivered"


async def test_receipts_are_counted_by_whether_they_match(world: World, recorder: Recorder) -> None:
    def counted() -> list[float]:
        carrier = str(world.carrier_id)
        return [metrics.RECEIPTS.labels(carrier, one)._value.get() for one in ("matched", "unmatched")]

    claimed = await world.claim_one()
    await world.settle(world.taken(claimed))
    matched = world.receipt(claimed)
    before = counted()
    await receive(recorder, {1: matched})
    await receive(recorder, {2: structs.replace(matched, carrier_ref="other")})
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1]


async def test_a_group_that_waited_for_the_one_before_is_written_at_its_first_try(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "GROUP_MAX", 1)
    real = Recorder._record_again
    again: list[Item] = []

    async def record_again(self: Recorder, items: Sequence[Item], line: PinnedConnection) -> None:
        again.extend(items)
        await real(self, items, line)

    monkeypatch.setattr(Recorder, "_record_again", record_again)
    await world.send(3)
    for one in await world.claim(3):
        recorder.put(world.taken(one), one.recipient, Owner())
    await recorder.drain(DRAIN_S)
    assert again == []
    assert await world.engine.statuses() == {"sent": 3}
