"""How much a sender submits and when: by the window, the rate, the lease and what the carrier answers."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

import pytest
import pytest_asyncio
from msgspec import structs

from tests.support.delivery.paper_link import Line, open_line
from tests.support.delivery.settling import World
from tumira.core import metrics
from tumira.delivery import lanes
from tumira.delivery import recorder as recorders
from tumira.delivery import sender as senders
from tumira.delivery.circuit_breaker import OPEN_MIN_S, UNANSWERED_MAX
from tumira.delivery.lanes import BULK, NO_ROOM, SMALL, Room
from tumira.delivery.responses import Action, ResponseRule
from tumira.delivery.store.binds import BindState
from tumira.delivery.store.queue import ClaimedMessage

DRAIN_S: Final = 20.0
LEASE_S: Final = 600.0
COST: Final = Decimal("0.04")
TWO_SEGMENTS: Final = "Your statement is ready. " * 8
TEMPORARY: Final = ResponseRule(Action.TEMPORARY, "CARRIER_REJECTED")
REFUSED: Final = ResponseRule(Action.REFUSED, "UNKNOWN_SUBSCRIBER")
THROTTLED: Final = ResponseRule(Action.THROTTLED)
LINK: Final = ResponseRule(Action.LINK)


@dataclass(slots=True)
class Timer:
    due_at: float
    callback: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass(slots=True)
class Clock:
    """The clock of a sender: it stands still until it is moved, and then its timers go off."""

    now: float = 1000.0
    timers: list[Timer] = field(default_factory=list)

    def time(self) -> float:
        return self.now

    def call_later(self, wait_s: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.now + wait_s, callback)
        self.timers.append(timer)
        return timer

    def waits_s(self) -> list[float]:
        return [one.due_at - self.now for one in self.timers if not one.is_cancelled]

    def move(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [one for one in self.timers if not one.is_cancelled and one.due_at <= until]:
            timer = min(due, key=lambda one: one.due_at)
            self.timers.remove(timer)
            self.now = timer.due_at
            timer.callback()
        self.now = until


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest_asyncio.fixture
async def line(world: World, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Line]:
    """Give a sender that goes by this clock and has its lease."""
    async with open_line(world) as line:
        monkeypatch.setattr(line.sender, "_loop", clock)
        renew(line, clock)
        yield line


def renew(line: Line, clock: Clock, tps: float = 0, lease_s: float = LEASE_S) -> None:
    line.sender.renew(clock.now + lease_s, tps)


def set_window(line: Line, size: int) -> None:
    carrier = line.sender.carrier
    line.sender.carrier = replace(carrier, settings=replace(carrier.settings, window_size=size))


async def claim(world: World, count: int, lane: int = SMALL) -> list[ClaimedMessage]:
    await world.send(count)
    return [structs.replace(one, lane=lane) for one in await world.claim(count)]


def submitted(line: Line) -> list[UUID]:
    return [message_id for message_id, _ in line.link.submits]


async def queued(world: World) -> set[UUID]:
    return {row["message_id"] for row in await world.rows("SELECT message_id FROM queue")}


def fall_silent(line: Line) -> None:
    """Let the time of all submits run out."""
    for place in list(line.link.open):
        line.sender.unanswered(line.link.open.pop(place))
    line.sender.settled()


# The rate and the window.


async def test_what_the_rate_keeps_back_goes_one_by_one_as_soon_as_each_may(
    world: World, line: Line, clock: Clock
) -> None:
    # A quarter of a second of it are five.
    renew(line, clock, tps=20)
    told: list[int] = []
    line.sender._room = lambda: told.append(len(line.link.submits))
    *first, last = await claim(world, 7)
    line.take(*first)
    assert len(line.link.submits) == 5
    # The rate is used up for one that comes now, too, and there is one timer for both.
    line.take(last)
    assert len(line.link.submits) == 5
    assert clock.waits_s() == [pytest.approx(1 / 20, abs=1e-4)]
    clock.move(0.051)
    assert told == [6]
    clock.move(0.051)
    assert told == [6, 7]
    assert submitted(line) == [one.id for one in (*first, last)]
    assert clock.waits_s() == []


async def test_bulk_uses_the_last_place_of_the_window_as_soon_as_the_rate_leaves_one_for_a_passcode(
    world: World, line: Line, clock: Clock
) -> None:
    set_window(line, 10)
    renew(line, clock, tps=40)
    line.take(*await claim(world, 11, BULK))
    assert len(line.link.submits) == 9
    assert clock.waits_s() == [pytest.approx(1 / 40, abs=1e-4)]
    clock.move(0.026)
    assert len(line.link.submits) == 10
    # Now only an answer makes room.
    clock.move(0.2)
    assert len(line.link.submits) == 10
    assert clock.waits_s() == []
    line.link.answer(next(iter(line.link.open)))
    assert len(line.link.submits) == 11


async def test_bulk_never_gets_the_place_of_the_window_that_is_kept_for_passcodes(
    world: World, line: Line, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "WINDOW_KEPT", 4)
    set_window(line, 4)
    *bulk, last = await claim(world, 4, BULK)
    line.take(*bulk)
    line.take(last)
    assert submitted(line) == [one.id for one in bulk]
    # Nothing is to be done until an answer comes.
    assert clock.waits_s() == []
    (passcode,) = await claim(world, 1)
    line.take(passcode)
    assert submitted(line)[3:] == [passcode.id]
    assert line.sender.room() == Room(4, 0, 3)


async def test_a_sender_that_has_nothing_more_to_submit_does_not_look_again(
    world: World, line: Line, clock: Clock
) -> None:
    line.take(*await claim(world, 1))
    assert len(line.link.submits) == 1
    assert clock.waits_s() == []


async def test_a_message_that_expired_takes_no_place_of_the_window(world: World, line: Line) -> None:
    set_window(line, 1)
    expired, other = await claim(world, 2)
    line.take(structs.replace(expired, expires_at=datetime.now(UTC)), other)
    assert submitted(line) == [other.id]
    await line.recorder.drain(DRAIN_S)
    assert await world.ending(expired.id) == ("expired", "QUEUE_EXPIRED", COST)


async def test_room_is_what_the_rate_allows_and_a_tenth_of_a_second_ahead(
    world: World, line: Line, clock: Clock
) -> None:
    renew(line, clock, tps=40)
    assert line.sender.room() == Room(10 + 4, 2, 10 + 4)
    # A full window leaves those ahead, and no more of them than the window has.
    set_window(line, 2)
    line.take(*await claim(world, 2))
    assert line.sender.room() == Room(2, 1, 2)


async def test_room_shrinks_by_the_answers_that_are_not_on_disk_yet(
    world: World, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "UNRECORDED_MAX", 3)
    line.take(*await claim(world, 2))
    assert line.sender.room() == Room(3 + 64, 7, 3 + 64)
    for place in list(line.link.open):
        line.link.answer(place)
    assert line.sender.room() == Room(1 + 64, 7, 1 + 64)
    await line.recorder.drain(DRAIN_S)
    assert line.sender.room() == Room(3 + 64, 7, 3 + 64)


async def test_answers_are_written_together_until_no_more_may_wait_for_the_disk(
    world: World, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(senders, "UNRECORDED_MAX", 2)
    # A group is written when a sender asks for it, not when its time is up.
    monkeypatch.setattr(recorders, "BREATH_S", 60.0)
    set_window(line, 1)
    first, second, third = await claim(world, 3)
    line.take(first, second, third)
    line.link.answer((first.id, 1))
    # The first answer would be written meanwhile if it were asked for.
    assert await world.status(first.id) == "sending"
    line.link.answer((second.id, 1))
    assert submitted(line) == [first.id, second.id]
    await line.recorder.drain(DRAIN_S)
    assert submitted(line) == [first.id, second.id, third.id]
    written = await world.rows("SELECT xmin::text FROM parts")
    assert len(written) == 2
    assert len({row["xmin"] for row in written}) == 1


async def test_the_dispatcher_is_told_of_room_when_the_line_is_bound_and_after_answers(
    world: World, line: Line
) -> None:
    told: list[Room] = []
    line.sender._room = lambda: told.append(line.sender.room())
    line.sender.linked()
    assert len(told) == 1
    (claimed,) = await claim(world, 1)
    line.take(claimed)
    line.link.answer((claimed.id, 1))
    assert told == [Room(128, 13, 128)] * 2


# The lease and the line.


async def test_nothing_is_submitted_from_the_very_moment_at_which_the_lease_ends(
    world: World, line: Line, clock: Clock
) -> None:
    first, second = await claim(world, 2)
    line.take(first)
    clock.move(LEASE_S)
    assert not line.sender.is_open
    line.take(second)
    assert submitted(line) == [first.id]


async def test_a_line_that_is_closing_takes_back_what_has_to_go_again(world: World, line: Line) -> None:
    (claimed,) = await claim(world, 1)
    line.take(claimed)
    await line.sender.drain(0.0)
    # Its lease is kept until it has closed, but nothing is claimed or submitted.
    assert not line.sender.is_open
    assert line.sender.room() == NO_ROOM
    line.link.answer((claimed.id, 1), LINK)
    assert submitted(line) == [claimed.id]
    line.sender.ended([], "closed")
    assert line.sender.claimed == {}
    await line.recorder.drain(DRAIN_S)
    assert await queued(world) == {claimed.id}


async def test_a_carrier_whose_line_is_down_is_not_healthy(line: Line) -> None:
    assert line.sender.is_healthy
    line.link.is_up = line.link.is_usable = False
    assert (line.sender.is_healthy, line.sender.is_open, line.sender.room()) == (False, False, NO_ROOM)


async def test_what_nothing_happens_to_is_given_back_when_its_time_is_over_and_the_next_one_goes(
    world: World, line: Line, clock: Clock
) -> None:
    renew(line, clock, lease_s=0)
    held, other = await claim(world, 2)
    line.take(held)
    for seconds in (line.link.response_s + 1, senders.LEFT_OPEN_S - 1):
        clock.move(seconds)
        line.sender.close_left_open()
        assert list(line.sender.claimed) == [held.id]
    clock.move(0.5)
    line.sender.close_left_open()
    assert line.sender.claimed == {}
    await line.recorder.drain(DRAIN_S)
    assert await queued(world) == {held.id}
    renew(line, clock)
    line.take(other)
    assert submitted(line) == [other.id]


# What carriers answer.


async def test_the_segment_that_the_line_refused_goes_before_the_rest_of_its_message(
    world: World, line: Line
) -> None:
    set_window(line, 1)
    claimed = await world.claim_one(TWO_SEGMENTS)
    line.take(claimed)
    line.link.answer((claimed.id, 1), LINK)
    assert [number for _, number in line.link.submits] == [1, 1]
    line.link.answer((claimed.id, 1))
    assert [number for _, number in line.link.submits] == [1, 1, 2]
    await line.recorder.drain(DRAIN_S)
    # Half of it is not all of it.
    assert await world.status(claimed.id) == "sending"
    line.link.answer((claimed.id, 2))
    await line.recorder.drain(DRAIN_S)
    assert await world.status(claimed.id) == "sent"


@pytest.mark.parametrize("lane", [SMALL, BULK])
async def test_a_message_whose_segments_were_all_throttled_waits_and_goes_once_more(
    world: World, line: Line, clock: Clock, lane: int
) -> None:
    renew(line, clock, tps=40)
    claimed = structs.replace(await world.claim_one(TWO_SEGMENTS), lane=lane)
    line.take(claimed)
    for number in (1, 2):
        line.link.answer((claimed.id, number), THROTTLED)
    assert list(line.sender.claimed) == [claimed.id]
    clock.move(1.2)
    assert len(line.link.submits) == 4
    assert set(line.link.open) == {(claimed.id, 1), (claimed.id, 2)}
    # Nothing of it is left before the next message.
    (other,) = await claim(world, 1)
    line.take(other)
    clock.move(0.2)
    assert submitted(line)[4:] == [other.id]
    for place in list(line.link.open):
        line.link.answer(place)
    await line.recorder.drain(DRAIN_S)
    assert await world.engine.statuses() == {"sent": 2}


@pytest.mark.parametrize("throttled_first", [True, False])
@pytest.mark.parametrize("trouble", [REFUSED, TEMPORARY])
async def test_a_throttled_segment_of_a_message_in_trouble_does_not_go_again_and_the_next_message_does(
    world: World, line: Line, clock: Clock, trouble: ResponseRule, *, throttled_first: bool
) -> None:
    renew(line, clock, tps=40)
    claimed = await world.claim_one(TWO_SEGMENTS)
    line.take(claimed)
    for rule in (THROTTLED, trouble) if throttled_first else (trouble, THROTTLED):
        line.link.answer(next(iter(line.link.open)), rule)
    assert line.sender.claimed == {}
    (other,) = await claim(world, 1)
    line.take(other)
    clock.move(1.2)
    assert submitted(line) == [claimed.id, claimed.id, other.id]
    await line.recorder.drain(DRAIN_S)
    if trouble is REFUSED:
        assert await world.ending(claimed.id) == ("failed", "UNKNOWN_SUBSCRIBER", 2 * COST)
    else:
        assert await world.status(claimed.id) == "queued"
        assert await world.incidents() == {"retry": 1}


async def test_a_carrier_that_throttles_twice_in_a_row_gets_nothing_that_waits(
    world: World, line: Line, clock: Clock
) -> None:
    (claimed,) = await claim(world, 1)
    line.take(claimed)
    line.link.answer((claimed.id, 1), THROTTLED)
    assert line.sender.report().state is BindState.BOUND
    clock.move(1.1)
    assert submitted(line) == [claimed.id] * 2
    line.link.answer((claimed.id, 1), THROTTLED)
    # Another carrier may take it meanwhile.
    assert line.sender.claimed == {}
    assert line.sender.report().state is BindState.THROTTLED
    # It is tried out later than the pause ends.
    clock.move(2.0)
    assert line.sender.report().state is BindState.FAILING
    assert line.sender.room() == NO_ROOM
    await line.recorder.drain(DRAIN_S)
    assert await queued(world) == {claimed.id}


async def test_the_pace_rises_again_while_a_carrier_takes_messages(
    world: World, line: Line, clock: Clock
) -> None:
    renew(line, clock, tps=40)
    (claimed,) = await claim(world, 1)
    line.take(claimed)
    line.link.answer((claimed.id, 1), THROTTLED)
    assert line.sender.report().pace == 20
    clock.move(2.0)
    line.link.answer((claimed.id, 1))
    # By a twentieth of the carrier's rate in a second.
    assert line.sender.report().pace == 22


async def test_a_name_is_kept_when_the_carrier_refuses_the_recipient(world: World, line: Line) -> None:
    carrier = line.sender.carrier
    line.sender.carrier = replace(carrier, settings=replace(carrier.settings, sender_fallback=True))
    claimed = structs.replace(await world.claim_one(), sender_name="Shop")
    line.take(claimed)
    line.link.answer((claimed.id, 1), REFUSED)
    assert submitted(line) == [claimed.id]
    await line.recorder.drain(DRAIN_S)
    assert await world.ending(claimed.id) == ("failed", "UNKNOWN_SUBSCRIBER", COST)


async def test_messages_are_counted_as_sent_when_they_are_whole_and_by_the_answers_of_carriers_if_not(
    world: World, line: Line
) -> None:
    parted = await world.claim_one(TWO_SEGMENTS)
    single, refused = await claim(world, 2)
    line.take(parted, single, refused)
    for place in ((parted.id, 1), (parted.id, 2), (single.id, 1)):
        line.link.answer(place)
    line.link.answer((refused.id, 1), REFUSED, "RINVDSTADR")
    await line.recorder.drain(DRAIN_S)
    await line.sender._observer.flush()
    rows = await world.rows("SELECT outcome, sum(count)::bigint AS times FROM outcomes GROUP BY 1")
    times = {row["outcome"]: row["times"] for row in rows}
    assert times == {"sent": 2, "RINVDSTADR": 1, "failed": 1, "UNKNOWN_SUBSCRIBER": 1}


# Silence.


async def test_a_carrier_is_quiet_from_the_very_moment_at_which_its_time_is_up(
    world: World, line: Line, clock: Clock
) -> None:
    line.take(*await claim(world, 1))
    clock.move(line.link.quiet_s - 0.5)
    assert line.sender.is_healthy
    clock.move(0.5)
    assert not line.sender.is_healthy


async def test_one_submit_without_an_answer_keeps_nothing_back(world: World, line: Line) -> None:
    set_window(line, 1)
    first, second = await claim(world, 2)
    line.take(first, second)
    fall_silent(line)
    assert submitted(line) == [first.id, second.id]
    await line.recorder.drain(DRAIN_S)
    assert await queued(world) == set()


async def test_a_silent_carrier_is_left_alone_from_when_that_is_known(
    world: World, line: Line, clock: Clock
) -> None:
    line.take(*await claim(world, UNANSWERED_MAX))
    clock.move(line.link.response_s)
    fall_silent(line)
    clock.move(OPEN_MIN_S - 0.5)
    assert line.sender.room() == NO_ROOM
    clock.move(0.5)
    assert line.sender.room() == Room(1, 0, 1)


async def test_a_line_that_falls_while_its_carrier_is_tried_out_counts_as_silence_although_it_answered(
    world: World, line: Line, clock: Clock
) -> None:
    first, *others, probe = await claim(world, 1 + UNANSWERED_MAX + 1)
    line.take(first)
    line.link.answer((first.id, 1))
    line.take(*others)
    fall_silent(line)
    clock.move(OPEN_MIN_S)
    line.take(probe)
    assert submitted(line)[-1] == probe.id
    tags = list(line.link.open.values())
    line.link.open.clear()
    line.sender.ended(tags, "cut")
    line.sender.linked()
    # It is left alone for twice as long, and tried out again.
    clock.move(2 * OPEN_MIN_S - 0.5)
    assert line.sender.room() == NO_ROOM
    clock.move(0.5)
    assert line.sender.room() == Room(1, 0, 1)


async def test_a_message_of_which_nothing_was_answered_is_counted_as_doubtful_once(
    world: World, line: Line
) -> None:
    doubted = metrics.DOUBTED.labels(line.sender.carrier.name)._value
    before = doubted.get()
    claimed = await world.claim_one(TWO_SEGMENTS)
    line.take(claimed)
    tags = dict(line.link.open)
    fall_silent(line)
    assert doubted.get() - before == 1
    # One of the answers comes after all; the message stays in doubt for the other.
    line.link.open.update(tags)
    line.link.answer((claimed.id, 1))
    # And one that goes well is none.
    (other,) = await claim(world, 1)
    line.take(other)
    line.link.answer((other.id, 1))
    assert doubted.get() - before == 1
    await line.recorder.drain(DRAIN_S)
    assert await world.incidents() == {"doubt": 1}
    assert await world.status(claimed.id) == "sending"
