"""A sender submits what it holds only while it may, and every message that it was given comes to one end."""

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
from tumira.delivery import sender as senders
from tumira.delivery.circuit_breaker import REFUSALS_MAX
from tumira.delivery.lanes import NO_ROOM, Room
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
