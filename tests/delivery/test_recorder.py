"""A recorder says when it cannot keep up or has failed, and is waited for no longer than that."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, cast
from uuid import UUID

import pytest
import pytest_asyncio
from msgspec import structs

from tests.support.delivery.settling import BLOCKED, REFUND_ALL, WORKER, Owner, Phone, World
from tumira.core import metrics
from tumira.core.ids import MessageId
from tumira.delivery import recorder as recorders
from tumira.delivery.observer import Observer
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.recorder import BEHIND_S, GROUP_MAX, Item, Recorder
from tumira.delivery.replies.parts import ReplyPart
from tumira.delivery.smpp.session import SmppSession
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import Database, session_name

DRAIN_S: Final = 20.0
# Of nothing that was sent.
STRAY: Final = Receipt("1", "263771200001", "DELIVRD", None, "stat:DELIVRD")


@pytest_asyncio.fixture
async def recorder(world: World) -> AsyncIterator[Recorder]:
    database = world.engine.database
    recorder = Recorder(database, world.carrier_id, WORKER, Observer(database))
    recorder.refunded = REFUND_ALL
    yield recorder
    await recorder.close()


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[Item]:
    """Give what was not written at its first try."""
    real = Recorder._record_again
    found: list[Item] = []

    async def record_again(self: Recorder, items: Sequence[Item], line: PinnedConnection) -> None:
        found.extend(items)
        await real(self, items, line)

    monkeypatch.setattr(Recorder, "_record_again", record_again)
    return found


class Counting(Owner):
    def __init__(self) -> None:
        self.counts: list[int] = []

    def recorded(self, count: int) -> None:
        self.counts.append(count)


def own_database(world: World) -> Database:
    """Return the same database, whose sessions can be told from others."""
    database = Database(world.engine.url)
    database.name_sessions("recorder")
    return database


async def sessions_of(world: World) -> Sequence[tuple[int, datetime]]:
    """Return the sessions of that database, and when each did something last."""
    statement = "SELECT pid, state_change FROM pg_stat_activity WHERE application_name = $1 ORDER BY pid"
    return [tuple(row) for row in await world.rows(statement, session_name("recorder"))]


async def recorded(recorder: Recorder) -> None:
    """Wait until all is recorded; a wait that ends by its time alone fails."""
    async with asyncio.timeout(DRAIN_S):
        await recorder.drain(10 * DRAIN_S)
    recorder.check()


def give(recorder: Recorder, told: Mapping[int, Receipt]) -> Phone:
    phone = Phone(told)
    for token, receipt in told.items():
        recorder.receive(receipt, datetime.now(UTC), cast("SmppSession", phone), token)
    return phone


async def receive(recorder: Recorder, told: Mapping[int, Receipt]) -> Phone:
    phone = give(recorder, told)
    await recorded(recorder)
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
    await recorded(recorder)
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
    await recorded(recorder)
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
    await recorded(recorder)
    assert await world.status(claimed.id) == "sent"


async def test_an_outcome_that_cannot_be_recorded_harms_no_other(world: World, recorder: Recorder) -> None:
    await world.send(3)
    claimed, owner = await world.claim(3), Counting()
    outcomes = [world.taken(one) for one in claimed]
    # A segment that the table does not take.
    outcomes[1].part.carrier_ref = "a\0b"
    for one, outcome in zip(claimed, outcomes, strict=True):
        recorder.put(outcome, one.recipient, owner)
    await recorded(recorder)
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
    await recorded(recorder)
    assert owner.counts == [1, 1, 1]
    assert await world.engine.statuses() == {"sent": 3}

    async def is_over() -> bool:
        return not recorder._groups

    await world.engine.until(is_over, "groups that are written are kept", DRAIN_S)


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
    await recorded(recorder)
    assert [*seen, recorder.is_behind] == [True, False]


async def test_a_receipt_that_cannot_be_kept_harms_no_other_that_matches_nothing(
    world: World, recorder: Recorder
) -> None:
    phone = await receive(recorder, {1: structs.replace(STRAY, state="a\0b"), 2: STRAY})
    assert phone.unacknowledged.keys() == {1}
    assert len(await world.rows("SELECT FROM unmatched_receipts")) == 1
    # What comes later is recorded too.
    assert (await receive(recorder, {3: STRAY})).unacknowledged == {}


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
    world: World, recorder: Recorder, again: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "GROUP_MAX", 1)
    await world.send(3)
    for one in await world.claim(3):
        recorder.put(world.taken(one), one.recipient, Owner())
    await recorded(recorder)
    assert again == []
    assert await world.engine.statuses() == {"sent": 3}


async def test_a_receipt_that_comes_again_is_written_at_its_first_try(
    world: World, recorder: Recorder, again: list[Item]
) -> None:
    claimed = await world.claim_one()
    recorder.put(world.taken(claimed), claimed.recipient, Owner())
    for token in range(3):
        phone = await receive(recorder, {token: world.receipt(claimed)})
        assert phone.unacknowledged == {}
    assert again == []
    assert await world.status(claimed.id) == "delivered"
    assert await world.incidents() == {}


async def test_a_receipt_after_one_that_ends_nothing_is_decided_without_a_look(
    world: World, recorder: Recorder
) -> None:
    claimed = await world.claim_one()
    recorder.put(world.taken(claimed), claimed.recipient, Owner())
    await receive(recorder, {1: world.receipt(claimed, "ENROUTE")})
    blocked = f"SELECT query {BLOCKED.removeprefix('SELECT')}"

    async def is_blocked() -> bool:
        return bool(await world.rows(blocked))

    async with world.engine.database.transaction() as holder:
        await holder.fetch("SELECT FROM messages FOR UPDATE")
        phone = give(recorder, {2: world.receipt(claimed)})
        await world.engine.until(is_blocked, "it does not wait for the message")
        (waiting,) = await world.rows(blocked)
        assert "UPDATE messages" in waiting["query"]
    await recorded(recorder)
    assert phone.unacknowledged == {}
    assert await world.status(claimed.id) == "delivered"


@pytest.mark.parametrize("trouble", ["its lock is not to be had", "its connection is cut"])
async def test_a_group_that_fails_is_tried_again_before_the_next_one_is_written(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(recorders, "GROUP_MAX", 1)
    monkeypatch.setattr(recorders, "PAUSE_S", 0.01)
    is_cut = trouble == "its connection is cut"
    if not is_cut:
        ((name,),) = await world.rows("SELECT current_database()")
        await world.rows(f"ALTER DATABASE \"{name}\" SET lock_timeout TO '50ms'")
    await world.send(2)
    first, second = await world.claim(2)
    tries: set[tuple[int, datetime]] = set()

    async def is_tried_in_vain() -> bool:
        for row in await world.rows(f"SELECT pid, xact_start {BLOCKED.removeprefix('SELECT')}"):
            if is_cut and tuple(row) not in tries:
                await world.rows("SELECT pg_terminate_backend($1)", row["pid"])
            tries.add((row["pid"], row["xact_start"]))
        return len(tries) >= 3

    owner = Counting()
    async with world.engine.database.transaction() as holder:
        await holder.execute("SELECT FROM messages WHERE id = $1 FOR UPDATE", first.id)
        for one in (first, second):
            recorder.put(world.taken(one), one.recipient, owner)
        await world.engine.until(is_tried_in_vain, "it is not tried again", DRAIN_S)
        assert owner.counts == []
        assert await world.engine.statuses() == {"sending": 2}
    await recorded(recorder)
    assert owner.counts == [1, 1]
    assert await world.engine.statuses() == {"sent": 2}


@pytest.mark.parametrize("later", ["an answer", "a stray receipt", "the trouble of a message that is gone"])
async def test_nothing_counts_as_recorded_before_what_came_earlier(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    monkeypatch.setattr(recorders, "GROUP_MAX", 1)
    await world.send(2)
    first, second = await world.claim(2)
    gone = structs.replace(first, id=MessageId(UUID(int=first.id.int + 1)))
    owner, phone = Counting(), Phone()
    async with world.engine.database.transaction() as holder:
        await holder.execute("SELECT FROM messages WHERE id = $1 FOR UPDATE", first.id)
        recorder.put(world.taken(first), first.recipient, owner)
        if later == "a stray receipt":
            phone = give(recorder, {1: STRAY})
        elif later == "an answer":
            recorder.put(world.taken(second), second.recipient, owner)
        else:
            recorder.put(world.put_off(gone), gone.recipient, owner)
        await recorder.drain(0.1)
        assert owner.counts == []
        assert phone.unacknowledged == ({1: STRAY} if later == "a stray receipt" else {})
    await recorded(recorder)
    assert owner.counts == ([1] if later == "a stray receipt" else [1, 1])
    assert phone.unacknowledged == {}


async def test_half_a_group_is_written_at_once_and_less_only_in_a_hurry(
    world: World, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "GROUP_MAX", 6)
    monkeypatch.setattr(recorders, "BREATH_S", 60.0)
    await world.send(5)
    claimed = await world.claim(5)
    for one in claimed[:3]:
        recorder.put(world.taken(one), one.recipient, Owner())
    await recorded(recorder)
    for one in claimed[3:]:
        recorder.put(world.taken(one), one.recipient, Owner())
    await recorder.drain(0.1)
    assert await world.engine.statuses() == {"sent": 3, "sending": 2}
    recorder.hurry()
    await recorded(recorder)
    assert await world.engine.statuses() == {"sent": 5}


async def test_a_recorder_without_work_leaves_the_database_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "BREATH_S", 0.0)
    claimed = await world.claim_one()
    database = own_database(world)
    recorder = Recorder(database, world.carrier_id, WORKER, Observer(database))
    recorder.put(world.taken(claimed), claimed.recipient, Owner())
    await recorded(recorder)
    found = [await sessions_of(world) for _ in range(20)]
    assert found[0] != []
    assert found == 20 * found[:1]
    await recorder.close()
    await database.close()


async def test_a_recorder_that_is_closed_leaves_neither_tasks_nor_sessions(world: World) -> None:
    claimed, before = await world.claim_one(), asyncio.all_tasks()
    database = own_database(world)
    recorder = Recorder(database, world.carrier_id, WORKER, Observer(database))
    recorder.put(world.taken(claimed), claimed.recipient, Owner())
    reply, phone = ReplyPart("263771200001", "12345", 0, b"Yes"), Phone({1: STRAY})
    recorder.replies.receive(reply, datetime.now(UTC), cast("SmppSession", phone), 1)
    await recorded(recorder)

    async def is_stored() -> bool:
        return phone.unacknowledged == {}

    await world.engine.until(is_stored, "the reply is not stored", DRAIN_S)
    assert await sessions_of(world) != []
    await recorder.close()
    assert asyncio.all_tasks() <= before
    await database.close()

    async def are_gone() -> bool:
        return await sessions_of(world) == []

    await world.engine.until(are_gone, "its connections stay open", DRAIN_S)
    assert await world.status(claimed.id) == "sent"


async def test_messages_of_one_and_of_several_segments_are_recorded_together(
    world: World, recorder: Recorder
) -> None:
    long, short = await world.claim_one("Your statement is ready. " * 8), await world.claim_one()
    assert (long.segments, short.segments) == (2, 1)
    owner = Counting()
    outcomes = [world.taken(long, 1, complete=False), world.taken(short), world.taken(long, 2)]
    for outcome in outcomes:
        recorder.put(outcome, long.recipient, owner)
    await recorded(recorder)
    assert owner.counts == [3]
    assert await world.engine.statuses() == {"sent": 2}


async def test_a_doubt_stays_in_the_timeline_when_its_answer_comes_with_it(
    world: World, recorder: Recorder
) -> None:
    claimed = await world.claim_one()
    for outcome in (world.doubtful(claimed), world.taken(claimed)):
        recorder.put(outcome, claimed.recipient, Owner())
    await recorded(recorder)
    assert await world.status(claimed.id) == "sent"
    assert await world.incidents() == {"doubt": 1}
    assert await world.rows("SELECT FROM retries") == []


async def test_a_receipt_is_matched_by_another_reading_of_the_id_that_comes_with_it(
    world: World, recorder: Recorder
) -> None:
    claimed = await world.claim_one()
    outcome = world.taken(claimed)
    outcome.part.carrier_ref = outcome.part.carrier_key = "1f"
    recorder.put(outcome, claimed.recipient, Owner())
    await receive(recorder, {1: structs.replace(world.receipt(claimed), carrier_ref="31")})
    assert await world.status(claimed.id) == "delivered"
    assert await world.rows("SELECT FROM unmatched_receipts") == []


async def test_a_trouble_that_cannot_be_recorded_harms_no_other(world: World, recorder: Recorder) -> None:
    await world.send(2)
    first, second = await world.claim(2)
    owner = Counting()
    # A text that the table does not take.
    recorder.put(structs.replace(world.put_off(first), detail="a\0b"), first.recipient, owner)
    recorder.put(world.put_off(second), second.recipient, owner)
    await recorded(recorder)
    assert sum(owner.counts) == 2
    assert (await world.status(first.id), await world.status(second.id)) == ("sending", "queued")
    assert await world.incidents() == {"retry": 1}
