"""A sender submits what it holds only while it may, and every message that it was given comes to one end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest
import pytest_asyncio
from msgspec import structs

from tests.support.delivery.paper_link import Line, open_line
from tests.support.delivery.settling import World
from tumira.core.backoff import RETRIES_MAX, RETRIES_UNKNOWN_MAX
from tumira.delivery import recorder as recorders
from tumira.delivery import sender as senders
from tumira.delivery.circuit_breaker import REFUSALS_MAX, UNANSWERED_MAX
from tumira.delivery.lanes import BULK, NO_ROOM, SMALL, Room
from tumira.delivery.responses import Action, ResponseRule
from tumira.delivery.store.binds import BindState
from tumira.delivery.store.queue import PastAttempts
from tumira.sending.lifecycle import HAND_OVER_MIN

DRAIN_S: Final = 20.0
LONG: Final = "Your statement is ready. " * 8
COST: Final = Decimal("0.04")
TEMPORARY: Final = ResponseRule(Action.TEMPORARY, "CARRIER_REJECTED")
UNKNOWN: Final = ResponseRule(Action.UNKNOWN, "CARRIER_REJECTED")
REFUSED: Final = ResponseRule(Action.REFUSED, "UNKNOWN_SUBSCRIBER")
THROTTLED: Final = ResponseRule(Action.THROTTLED)
LINK: Final = ResponseRule(Action.LINK)
NOT_ALLOWED: Final = ResponseRule(Action.REFUSED, "SENDER_NOT_ALLOWED", alarm=True)


@pytest_asyncio.fixture
async def line(world: World) -> AsyncIterator[Line]:
    """Give a sender that has its lease."""
    async with open_line(world) as line:
        line.renew()
        yield line


async def recorded(line: Line) -> None:
    await line.recorder.drain(DRAIN_S)
    assert line.sender._unrecorded == 0


async def test_nothing_is_submitted_once_the_lease_has_ended(world: World) -> None:
    async with open_line(world) as line:
        await world.send(2)
        first, second = await world.claim(2)
        assert line.sender.room() == NO_ROOM
        line.take(first)
        assert line.link.submits == []
        line.renew()
        assert line.link.submits == [(first.id, 1)]
        line.renew(lease_s=-0.001)
        assert not line.sender.is_open
        line.take(second)
        assert line.link.submits == [(first.id, 1)]
        line.renew()
        assert line.link.submits == [(first.id, 1), (second.id, 1)]
        for one in (first, second):
            line.link.answer((one.id, 1))
        await recorded(line)
    assert await world.engine.statuses() == {"sent": 2}


async def test_a_message_that_expires_while_it_is_held_is_paid_back(world: World, line: Line) -> None:
    await world.send(2)
    first, second = await world.claim(2)
    now = datetime.now(UTC)
    line.take(
        structs.replace(first, expires_at=now + HAND_OVER_MIN - timedelta(seconds=1)),
        structs.replace(second, expires_at=now + HAND_OVER_MIN + timedelta(seconds=20)),
    )
    assert line.link.submits == [(second.id, 1)]
    assert 60 < line.link.lefts_s[0] <= 80
    assert first.id not in line.sender.claimed
    await recorded(line)
    assert await world.ending(first.id) == ("expired", "QUEUE_EXPIRED", COST)
    assert await world.status(second.id) == "sending"


async def test_what_we_let_expire_is_paid_back_whatever_the_carriers_rule_is(
    world: World, line: Line
) -> None:
    line.recorder.refunded = frozenset()
    claimed = await world.claim_one()
    line.take(structs.replace(claimed, expires_at=datetime.now(UTC)))
    await recorded(line)
    assert await world.ending(claimed.id) == ("expired", "QUEUE_EXPIRED", COST)


async def test_a_recipient_who_opted_out_gets_nothing_and_it_is_paid_back(world: World, line: Line) -> None:
    claimed = await world.claim_one()
    line.take(structs.replace(claimed, opted_out=True))
    assert line.link.submits == []
    await recorded(line)
    assert await world.ending(claimed.id) == ("failed", "RECIPIENT_BLOCKED", COST)


@pytest.mark.parametrize("name", [None, "Shop"])
async def test_a_segment_is_stored_with_the_sender_that_it_went_under(
    world: World, line: Line, name: str | None
) -> None:
    carrier = line.sender.carrier
    line.sender.carrier = replace(carrier, settings=replace(carrier.settings, source="2773"))
    claimed = structs.replace(await world.claim_one(), sender_name=name)
    line.take(claimed)
    line.link.answer((claimed.id, 1))
    await recorded(line)
    (row,) = await world.rows("SELECT sender FROM parts")
    assert row["sender"] == (name or "2773")


async def test_what_was_taken_whole_before_is_not_submitted_again(world: World, line: Line) -> None:
    claimed = await world.claim_one()
    # The answer to an earlier try came after this one was claimed.
    await world.settle(world.taken(claimed, complete=False))
    line.take(claimed, past=PastAttempts(frozenset({1}), None, 0, 1))
    assert line.link.submits == []
    assert line.sender.claimed == {}
    await recorded(line)
    assert await world.status(claimed.id) == "sent"


async def test_no_more_is_submitted_than_the_window_holds(world: World, line: Line) -> None:
    await world.send(70)
    claimed = await world.claim(70)
    # As many as the window has, and as many ahead.
    assert line.sender.room() == Room(128, 13, 128)
    line.take(*claimed)
    assert len(line.link.submits) == 64
    for one in claimed[:3]:
        line.link.answer((one.id, 1))
    assert len(line.link.submits) == 67
    assert line.sender.report().outstanding == 64
    # The window is full, and three of those that may be held ahead wait for a place in it.
    assert line.sender.room() == Room(64, 7 - 3, 64 - 3)


@pytest.mark.parametrize(("rule", "most"), [(TEMPORARY, RETRIES_MAX), (UNKNOWN, RETRIES_UNKNOWN_MAX)])
async def test_a_message_is_tried_again_so_often_and_then_refused(
    world: World, line: Line, rule: ResponseRule, most: int
) -> None:
    await world.send(2)
    again, last = await world.claim(2)
    line.take(again, past=PastAttempts(frozenset(), None, most - 1, 0))
    line.link.answer((again.id, 1), rule, "RSYSERR")
    line.take(last, past=PastAttempts(frozenset(), None, most, 0))
    line.link.answer((last.id, 1), rule, "RSYSERR")
    await recorded(line)
    assert await world.status(again.id) == "queued"
    assert await world.incidents() == {"retry": 1}
    assert await world.ending(last.id) == ("failed", "CARRIER_REJECTED", COST)


async def test_what_was_tried_before_is_still_known_as_such_when_it_is_given_back(
    world: World, line: Line
) -> None:
    await world.send(2)
    fresh, tried = await world.claim(2)
    line.link.is_usable = False
    line.take(fresh, structs.replace(tried, again=True))
    await recorded(line)
    rows = await world.rows("SELECT message_id, again FROM queue")
    assert {row["message_id"]: row["again"] for row in rows} == {fresh.id: False, tried.id: True}


async def test_a_refused_segment_keeps_the_rest_of_its_message(world: World, line: Line) -> None:
    claimed = await world.claim_one(LONG)
    await world.send()
    (other,) = await world.claim()
    line.take(claimed, other)
    assert line.link.submits == [(claimed.id, 1), (claimed.id, 2), (other.id, 1)]
    line.link.answer((claimed.id, 1), REFUSED)
    # Its answer to the other segment decides nothing any more, but is waited for.
    assert claimed.id in line.sender.claimed
    line.link.answer((claimed.id, 2))
    await recorded(line)
    assert await world.ending(claimed.id) == ("failed", "UNKNOWN_SUBSCRIBER", 2 * COST)
    assert list(line.sender.claimed) == [other.id]


async def test_a_throttled_message_is_submitted_again_after_the_pause(world: World, line: Line) -> None:
    await world.send(2)
    first, second = await world.claim(2)
    line.take(first, second)
    line.link.answer((first.id, 1), THROTTLED)
    assert line.sender.room() == NO_ROOM
    assert line.sender.state is BindState.BOUND
    assert [one for one, _ in line.link.submits] == [first.id, second.id]
    line.sender._throttle.paused_until = 0.0
    line.sender._pump()
    assert [one for one, _ in line.link.submits] == [first.id, second.id, first.id]


async def test_a_fault_of_the_line_resets_it_and_keeps_the_message(world: World, line: Line) -> None:
    claimed = await world.claim_one()
    line.take(claimed)
    line.link.answer((claimed.id, 1), LINK, "RINVBNDSTS")
    assert line.link.resets == ["RINVBNDSTS"]
    assert line.link.submits == [(claimed.id, 1), (claimed.id, 1)]
    line.sender.settled()
    assert len(line.link.resets) == 1


async def test_a_line_that_falls_leaves_in_doubt_what_was_not_answered_and_returns_the_rest(
    world: World, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "UNRECORDED_MAX", 1)
    await world.send(2)
    first, second = await world.claim(2)
    line.take(first, second)
    assert line.link.submits == [(first.id, 1)]
    tags = list(line.link.open.values())
    line.link.open.clear()
    line.link.is_up = line.link.is_usable = False
    line.sender.ended(tags, "cut")
    assert line.sender.claimed == {}
    assert line.sender._held == [0, 0]
    assert line.sender._unanswered == [0, 0]
    await recorded(line)
    assert await ids(world, "retries") == {first.id}
    assert await ids(world, "queue") == {second.id}
    assert line.sender.state is BindState.CONNECTING


async def test_a_carrier_that_keeps_refusing_gets_nothing_that_waits(
    world: World, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "UNRECORDED_MAX", 1)
    await world.send(2)
    first, second = await world.claim(2)
    line.take(first, second)
    for _ in range(REFUSALS_MAX - 1):
        line.sender._circuit.refused(0)
    line.link.answer((first.id, 1), TEMPORARY, "RSYSERR")
    # Another carrier may take it meanwhile.
    assert line.sender.claimed == {}
    assert line.sender.room() == NO_ROOM
    await recorded(line)
    assert line.link.submits == [(first.id, 1)]
    assert await ids(world, "queue") == {second.id}


async def test_what_waits_until_answers_are_on_disk_is_submitted_then(
    world: World, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "UNRECORDED_MAX", 1)
    # The recorder is told that a sender waits for it.
    monkeypatch.setattr(recorders, "BREATH_S", 60.0)
    await world.send(2)
    first, second = await world.claim(2)
    line.take(first, second)
    line.link.answer((first.id, 1))
    assert line.link.submits == [(first.id, 1)]
    await recorded(line)
    assert line.link.submits == [(first.id, 1), (second.id, 1)]


async def test_an_answer_after_its_time_still_counts_once(world: World, line: Line) -> None:
    claimed = await world.claim_one()
    line.take(claimed)
    ((place, tag),) = line.link.open.items()
    line.sender.unanswered(tag)
    assert line.sender.claimed == {}
    await recorded(line)
    assert await world.incidents() == {"doubt": 1}
    line.link.answer(place)
    await recorded(line)
    assert await world.status(claimed.id) == "sent"
    assert await world.rows("SELECT FROM retries") == []
    # A refusal that comes so late changes nothing: the message is tried again anyway.
    other = await world.claim_one()
    line.take(other)
    place, tag = next(iter(line.link.open.items()))
    line.sender.unanswered(tag)
    line.link.answer(place, REFUSED)
    await recorded(line)
    assert await world.status(other.id) == "sending"


async def test_submissions_to_which_nothing_happens_are_closed(world: World, line: Line) -> None:
    async with open_line(world) as unleased:
        await world.send(2)
        held, submitted = await world.claim(2)
        unleased.take(held)
        line.take(submitted)
        for one in (unleased, line):
            one.sender.close_left_open()
            assert len(one.sender.claimed) == 1
            for submission in one.sender.claimed.values():
                submission.touched_at -= one.link.response_s + senders.LEFT_OPEN_S + 1
            one.sender.close_left_open()
            assert one.sender.claimed == {}
            assert one.sender._held == [0, 0]
            assert one.sender._unanswered == [0, 0]
            await recorded(one)
    assert await world.incidents() == {"doubt": 1}
    assert await ids(world, "queue") == {held.id}
    assert await ids(world, "retries") == {submitted.id}


async def ids(world: World, table: str) -> set[UUID]:
    return {row["message_id"] for row in await world.rows(f"SELECT message_id FROM {table}")}


async def test_a_sender_that_leaves_returns_what_it_has_not_submitted(world: World) -> None:
    async with open_line(world) as line:
        claimed = await world.claim_one()
        line.take(claimed)
        await line.sender.drain(0.0)
        await recorded(line)
        assert line.sender.room() == NO_ROOM
        line.sender.drop()
        assert line.link.is_dropped
    assert await world.status(claimed.id) == "queued"
    assert await ids(world, "queue") == {claimed.id}


def allow_fallback(line: Line, *, allowed: bool = True) -> None:
    carrier = line.sender.carrier
    settings = replace(carrier.settings, source="2773", sender_fallback=allowed)
    line.sender.carrier = replace(carrier, settings=settings)


async def test_a_name_that_the_carrier_refuses_is_left_out_where_that_is_allowed(
    world: World, line: Line
) -> None:
    allow_fallback(line)
    claimed = structs.replace(await world.claim_one(), sender_name="Shop")
    line.take(claimed)
    line.link.answer((claimed.id, 1), NOT_ALLOWED)
    # It goes out once more, under the carrier's own sender, and not a third time.
    assert line.link.submits == [(claimed.id, 1)] * 2
    line.link.answer((claimed.id, 1))
    await recorded(line)
    (row,) = await world.rows("SELECT sender FROM parts")
    assert (row["sender"], await world.status(claimed.id)) == ("2773", "sent")
    refused = structs.replace(await world.claim_one(), sender_name="Shop")
    line.take(refused)
    for _ in range(2):
        line.link.answer((refused.id, 1), NOT_ALLOWED)
    await recorded(line)
    assert await world.ending(refused.id) == ("failed", "SENDER_NOT_ALLOWED", COST)


@pytest.mark.parametrize(("name", "allowed"), [("Shop", False), (None, True)])
async def test_without_leave_or_another_name_a_refused_sender_ends_the_message(
    world: World, line: Line, name: str | None, *, allowed: bool
) -> None:
    allow_fallback(line, allowed=allowed)
    claimed = structs.replace(await world.claim_one(), sender_name=name)
    line.take(claimed)
    line.link.answer((claimed.id, 1), NOT_ALLOWED)
    assert len(line.link.submits) == 1
    await recorded(line)
    assert await world.ending(claimed.id) == ("failed", "SENDER_NOT_ALLOWED", COST)


@pytest.mark.parametrize("first_taken", [True, False])
async def test_segments_go_out_under_one_name(world: World, line: Line, *, first_taken: bool) -> None:
    """They are not joined on the handset otherwise: after one was taken, the name stays."""
    allow_fallback(line)
    claimed = structs.replace(await world.claim_one(LONG), sender_name="Shop")
    line.take(claimed)
    if first_taken:
        line.link.answer((claimed.id, 1))
    line.link.answer((claimed.id, 2), NOT_ALLOWED)
    assert len(line.link.submits) == (2 if first_taken else 3)
    if not first_taken:
        line.link.answer((claimed.id, 1), NOT_ALLOWED)
        for number in (1, 2):
            line.link.answer((claimed.id, number))
    await recorded(line)
    assert await world.status(claimed.id) == ("failed" if first_taken else "sent")


async def test_the_bulk_lane_gets_one_place_in_ten_while_both_wait_and_a_window_keeps_one(
    world: World, line: Line
) -> None:
    carrier = line.sender.carrier
    line.sender.carrier = replace(carrier, settings=replace(carrier.settings, window_size=100))
    await world.send(121)
    claimed = await world.claim(121)
    bulk = [structs.replace(one, lane=BULK) for one in claimed[:110]]
    small = [structs.replace(one, lane=SMALL) for one in claimed[110:]]
    line.take(*bulk)
    # One slot of a hundred is kept for passcodes.
    assert len(line.link.submits) == 99
    assert line.sender._unanswered == [0, 99]
    assert line.sender._held == [0, 11]
    line.take(small[0])
    assert line.link.submits[-1] == (small[0].id, 1)
    line.take(*small[1:])
    assert line.sender._held == [10, 11]
    assert line.sender._unanswered == [1, 99]
    # Answers to lane 1 make room: nine of lane 0 come first, then one of lane 1.
    before = len(line.link.submits)
    for one in bulk[:10]:
        line.link.answer((one.id, 1))
    following = [place[0] for place in line.link.submits[before:]]
    assert [one in {small_.id for small_ in small} for one in following].count(True) >= 9
    assert sum(one in {bulk_.id for bulk_ in bulk} for one in following) <= 1


async def test_a_carrier_that_is_tried_out_gets_one_message_until_it_answers(
    world: World, line: Line
) -> None:
    clock = line.sender._loop.time
    await world.send(3)
    first, second, third = await world.claim(3)
    line.sender._circuit.half_open(clock())
    assert line.sender.room() == Room(1, 0, 1)
    assert (line.sender.is_healthy, line.sender.report().state) == (False, BindState.FAILING)
    line.take(first)
    assert line.link.submits == [(first.id, 1)]
    # The place is taken until the answer; what comes meanwhile goes back.
    assert line.sender.room() == NO_ROOM
    line.take(second)
    assert line.link.submits == [(first.id, 1)]
    assert list(line.sender.claimed) == [first.id]
    line.link.answer((first.id, 1))
    assert (line.sender.is_healthy, line.sender.report().state) == (True, BindState.BOUND)
    line.take(third)
    assert line.link.submits == [(first.id, 1), (third.id, 1)]
    await recorded(line)
    assert await ids(world, "queue") == {second.id}


async def test_a_link_on_trial_is_tried_out_with_one_message(line: Line) -> None:
    line.sender.linked()
    assert (line.sender.is_healthy, line.sender.report().state) == (True, BindState.BOUND)
    line.link.is_on_trial = True
    line.sender.linked()
    assert line.sender.room() == Room(1, 0, 1)


def let_pass(line: Line, seconds: float) -> None:
    """Let time pass in which submits are outstanding and none is answered."""
    assert line.sender._quiet_since is not None
    line.sender._quiet_since -= seconds


async def test_a_carrier_that_is_quiet_gets_nothing_more_until_it_answers(world: World, line: Line) -> None:
    await world.send(3)
    first, second, third = await world.claim(3)
    line.take(first)
    assert (line.sender.report().silent, line.sender.report().problem) == (False, None)
    let_pass(line, line.link.quiet_s)
    report = line.sender.report()
    assert (report.silent, report.state) == (True, BindState.FAILING)
    assert "no submit was answered for 30 s" in str(report.problem)
    assert line.sender.room() == NO_ROOM
    assert (line.sender.is_healthy, line.sender.report().state) == (False, BindState.FAILING)
    line.take(second)
    assert line.link.submits == [(first.id, 1)]
    assert list(line.sender.claimed) == [first.id]
    # An answer shows that it is not.
    line.link.answer((first.id, 1))
    assert line.sender._quiet_since is None
    assert (line.sender.is_healthy, line.sender.report().state) == (True, BindState.BOUND)
    line.take(third)
    assert line.link.submits == [(first.id, 1), (third.id, 1)]
    await recorded(line)
    assert await ids(world, "queue") == {second.id}


async def test_submits_without_an_answer_are_counted_and_open_the_circuit(world: World, line: Line) -> None:
    await world.send(UNANSWERED_MAX)
    claimed = await world.claim(UNANSWERED_MAX)
    line.take(*claimed)
    for place, tag in list(line.link.open.items()):
        assert line.sender.is_healthy
        del line.link.open[place]
        line.sender.unanswered(tag)
    report = line.sender.report()
    assert (report.silent, report.state) == (True, BindState.FAILING)
    assert f"{UNANSWERED_MAX} submits in a row" in str(report.problem)
    assert line.sender.room() == NO_ROOM
    line.link.is_up = False
    assert line.sender.report().problem is None
    line.link.problem = "refused"
    assert (line.sender.state, line.sender.report().problem) == (BindState.DOWN, "refused")
    await recorded(line)
    assert await world.incidents() == {"doubt": UNANSWERED_MAX}


@pytest.mark.parametrize("has_answered", [True, False])
async def test_a_line_that_falls_without_an_answer_counts_as_silence(
    world: World, line: Line, *, has_answered: bool
) -> None:
    await world.send(UNANSWERED_MAX + 1)
    first, *others = await world.claim(UNANSWERED_MAX + 1)
    if has_answered:
        line.take(first)
        line.link.answer((first.id, 1))
    line.take(*others)
    tags = list(line.link.open.values())
    line.link.open.clear()
    line.sender.ended(tags, "cut")
    assert line.sender._circuit.is_silent is not has_answered
    await recorded(line)
    rows = await world.rows("SELECT detail FROM incidents WHERE kind = 'doubt'")
    assert [row["detail"] for row in rows] == ["the line fell: cut"] * UNANSWERED_MAX


@pytest.mark.parametrize("trouble", [REFUSED, TEMPORARY, None])
async def test_the_rest_of_a_message_in_trouble_goes_no_further(
    world: World, line: Line, monkeypatch: pytest.MonkeyPatch, trouble: ResponseRule | None
) -> None:
    monkeypatch.setattr(senders, "UNRECORDED_MAX", 1)
    claimed = await world.claim_one(LONG)
    line.take(claimed)
    assert line.link.submits == [(claimed.id, 1)]
    if trouble is None:
        line.sender.unanswered(line.link.open.pop((claimed.id, 1)))
    else:
        line.link.answer((claimed.id, 1), trouble)
    assert line.sender._held == [0, 0]
    assert line.sender.claimed == {}
    await recorded(line)
    assert line.link.submits == [(claimed.id, 1)]
    expected = {REFUSED: "failed", TEMPORARY: "queued", None: "sending"}
    assert await world.status(claimed.id) == expected[trouble]
    assert await world.incidents() == {REFUSED: {}, TEMPORARY: {"retry": 1}, None: {"doubt": 1}}[trouble]


async def test_a_throttled_segment_of_a_refused_message_is_not_submitted_again(
    world: World, line: Line
) -> None:
    claimed = await world.claim_one(LONG)
    line.take(claimed)
    line.link.answer((claimed.id, 1), REFUSED)
    line.link.answer((claimed.id, 2), THROTTLED)
    assert line.sender._held == [0, 0]
    assert line.sender.claimed == {}
    line.sender._throttle.paused_until = 0.0
    line.sender._pump()
    assert len(line.link.submits) == 2
    await recorded(line)
    assert (await world.ending(claimed.id))[0] == "failed"


async def test_the_pace_is_told_and_room_is_what_the_rate_allows(world: World) -> None:
    async with open_line(world) as line:
        line.renew()
        assert line.sender.report().pace is None
        line.renew(tps=0.2)
        assert line.sender.report().pace == 1
        line.renew(tps=40)
        assert line.sender.report().pace == 40
        room = line.sender.room()
        assert 0 < room.small < 64


async def test_an_answer_that_comes_late_but_before_the_others_is_an_answer(world: World, line: Line) -> None:
    claimed = await world.claim_one(LONG)
    line.take(claimed)
    line.sender.unanswered(line.link.open[claimed.id, 1])
    # The other segment is still under way, so the message is not given up yet.
    assert claimed.id in line.sender.claimed
    for number in (1, 2):
        line.link.answer((claimed.id, number))
    await recorded(line)
    assert line.sender.claimed == {}
    assert await world.status(claimed.id) == "sent"
    assert await world.incidents() == {}


async def test_after_a_late_answer_a_segment_that_is_refused_for_now_is_no_doubt(
    world: World, line: Line
) -> None:
    claimed = await world.claim_one(LONG)
    line.take(claimed)
    line.sender.unanswered(line.link.open[claimed.id, 1])
    line.link.answer((claimed.id, 1))
    line.link.answer((claimed.id, 2), TEMPORARY, "RSYSERR")
    await recorded(line)
    assert await world.incidents() == {"retry": 1}
    assert await world.status(claimed.id) == "queued"


async def test_a_carrier_to_which_nothing_is_under_way_is_not_quiet(world: World, line: Line) -> None:
    claimed = await world.claim_one()
    line.take(claimed)
    let_pass(line, line.link.quiet_s)
    assert not line.sender.is_healthy
    # Its time is up: nothing is waited for any more, and the next message may be tried.
    line.sender.unanswered(line.link.open.pop((claimed.id, 1)))
    assert (line.sender.is_healthy, line.sender.report().silent) == (True, False)
    assert line.sender.room() != NO_ROOM


async def test_what_the_rate_kept_back_goes_when_its_time_comes_and_makes_room(world: World) -> None:
    async with open_line(world) as line:
        line.renew(tps=20)
        asked: list[int] = []
        await world.send(6)
        claimed = await world.claim(6)
        line.take(*claimed)
        assert len(line.link.submits) == 5
        line.sender._room = lambda: asked.append(len(line.link.submits))
        await asyncio.sleep(0.2)
        assert [place for place, _ in line.link.submits] == [one.id for one in claimed]
        # The dispatcher is told after the submit, when it can claim again.
        assert asked[0] == 6


@pytest.mark.parametrize("lane", [SMALL, BULK])
async def test_while_one_is_tried_out_no_more_is_claimed_than_the_one_that_is_held(
    world: World, line: Line, monkeypatch: pytest.MonkeyPatch, lane: int
) -> None:
    monkeypatch.setattr(senders, "UNRECORDED_MAX", 0)
    line.sender._circuit.half_open(line.sender._loop.time())
    assert line.sender.room() == Room(1, 0, 1)
    line.take(structs.replace(await world.claim_one(), lane=lane))
    assert line.sender._held == [int(lane == SMALL), int(lane == BULK)]
    assert line.sender.room() == NO_ROOM


async def test_a_message_is_not_left_open_that_was_submitted_a_moment_ago(world: World) -> None:
    async with open_line(world) as line:
        claimed = await world.claim_one()
        line.take(claimed)
        (submission,) = line.sender.claimed.values()
        long_ago = submission.touched_at - line.link.response_s - senders.LEFT_OPEN_S - 1
        submission.touched_at = long_ago
        line.renew()
        assert line.link.submits == [(claimed.id, 1)]
        line.sender.close_left_open()
        assert list(line.sender.claimed) == [claimed.id]
        # Nor one that was answered a moment ago, in part.
        other = await world.claim_one(LONG)
        line.take(other)
        submission = line.sender.claimed[other.id]
        submission.touched_at = long_ago
        line.link.answer((other.id, 1))
        line.sender.close_left_open()
        assert list(line.sender.claimed) == [claimed.id, other.id]


def is_well(line: Line) -> bool:
    return line.sender.is_healthy


async def test_a_carrier_is_quiet_since_the_oldest_submit_or_the_last_answer(
    world: World, line: Line
) -> None:
    await world.send(4)
    first, second, third, fourth = await world.claim(4)
    line.take(first)
    let_pass(line, line.link.quiet_s - 1)
    since = line.sender._quiet_since
    # More submits make it no less quiet.
    line.take(second)
    assert line.sender._quiet_since == since
    let_pass(line, 2)
    assert is_well(line) is False
    line.link.answer((first.id, 1))
    assert is_well(line)
    let_pass(line, line.link.quiet_s)
    assert is_well(line) is False
    # Where nothing is under way any more it begins with the next submit.
    line.sender.unanswered(line.link.open.pop((second.id, 1)))
    line.take(third)
    assert is_well(line)
    let_pass(line, line.link.quiet_s)
    # And with the next session.
    line.sender.linked()
    assert is_well(line)
    line.take(fourth)
    assert len(line.link.submits) == 4


async def test_a_session_that_has_not_answered_is_silent_although_the_one_before_did(
    world: World, line: Line
) -> None:
    await world.send(UNANSWERED_MAX + 1)
    first, *others = await world.claim(UNANSWERED_MAX + 1)
    line.take(first)
    line.link.answer((first.id, 1))
    line.sender.linked()
    line.take(*others)
    tags = list(line.link.open.values())
    line.link.open.clear()
    line.sender.ended(tags, "cut")
    assert line.sender._circuit.is_silent


async def test_a_fault_of_a_line_that_has_fallen_does_not_reset_the_next(world: World, line: Line) -> None:
    claimed = await world.claim_one()
    line.take(claimed)
    tag = line.link.open.pop((claimed.id, 1))
    line.sender.answered(tag, LINK, "RINVBNDSTS", "")
    line.sender.ended([], "cut")
    line.sender.settled()
    assert line.link.resets == []
    await recorded(line)
    assert await ids(world, "queue") == {claimed.id}


async def test_a_carrier_that_falls_silent_gets_nothing_that_waits(
    world: World, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "UNRECORDED_MAX", UNANSWERED_MAX)
    await world.send(UNANSWERED_MAX + 1)
    claimed = await world.claim(UNANSWERED_MAX + 1)
    line.take(*claimed)
    assert len(line.link.submits) == UNANSWERED_MAX
    assert line.sender._held == [1, 0]
    for place in list(line.link.open):
        line.sender.unanswered(line.link.open.pop(place))
    assert line.sender._held == [0, 0]
    await recorded(line)
    assert await ids(world, "queue") == {claimed[-1].id}


async def test_bulk_leaves_a_message_of_the_rate_for_a_passcode(world: World) -> None:
    async with open_line(world) as line:
        # A quarter of a second of it are ten.
        line.renew(tps=40)
        await world.send(13)
        claimed = await world.claim(13)
        line.take(*(structs.replace(one, lane=BULK) for one in claimed[:12]))
        assert len(line.link.submits) == 9
        line.take(structs.replace(claimed[12], lane=SMALL))
        assert line.link.submits[9:] == [(claimed[12].id, 1)]
        await asyncio.sleep(0.2)
        assert {place for place, _ in line.link.submits} == {one.id for one in claimed}
