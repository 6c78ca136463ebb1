"""A simulation of waiting times: a worker, a carrier and the queue between them.

Lanes, turns and claims come from the service's own rules; the rest is simulated: arriving sends, a clock that
is published periodically, claims that take a while, and a carrier that takes a fixed number of segments in a
second and answers a little later.
"""

import heapq
import itertools
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tumira.delivery import lanes
from tumira.sending import fairness

RATE: Final = 300
WINDOW: Final = 100
CLAIM_S: Final = 0.01
ANSWER_S: Final = 0.05
PUBLISH_S: Final = 0.1

LANES: Final = (0, 1)


@dataclass(frozen=True, slots=True)
class Send:
    """One accepted send: its recipients, and the segments of each message."""

    at: float
    account: str
    recipients: int = 1
    segments: int = 1
    weight: int = fairness.WEIGHT_DEFAULT


@dataclass(frozen=True, slots=True)
class Submitted:
    """One message that was submitted, and when."""

    account: str
    lane: int
    segments: int
    accepted_at: float
    at: float

    @property
    def wait(self) -> float:
        return self.at - self.accepted_at


@dataclass(frozen=True, slots=True)
class Waiting:
    """One message on its way to the carrier."""

    send: Send
    lane: int
    turn: int


class Queue(Protocol):
    """Waiting messages in the order of turns."""

    def add(self, lane: int, send: Send, run: fairness.TurnRange) -> None:
        """Let the messages of one send wait."""

    def take(self, lane: int, limit: int, now: float) -> Iterator[Waiting]:
        """Take the first messages of a lane."""

    def published(self, lane: int, clock: int, now: float) -> None:
        """Learn of a clock."""


class WholeQueue:
    """A queue that is always looked at from the bottom; of a batch only the next message is kept at hand."""

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[int, int, int, Send, fairness.TurnRange]]] = {
            lane: [] for lane in LANES
        }
        self._numbers = itertools.count()

    def add(self, lane: int, send: Send, run: fairness.TurnRange) -> None:
        heapq.heappush(self._heaps[lane], (run.first, next(self._numbers), send.recipients, send, run))

    def take(self, lane: int, limit: int, now: float) -> Iterator[Waiting]:  # noqa: ARG002 - for those with a floor
        heap = self._heaps[lane]
        for _ in range(limit):
            if not heap:
                return
            turn, number, left, send, run = heap[0]
            if left > 1:
                heapq.heapreplace(heap, (turn + run.step, number, left - 1, send, run))
            else:
                heapq.heappop(heap)
            yield Waiting(send, lane, turn)

    def published(self, lane: int, clock: int, now: float) -> None:
        """Learn of a clock, to no effect."""


class FlooredQueue:
    """A queue that is looked at from a floor; for some thousand messages."""

    def __init__(self, new_floor: Callable[[], lanes.Floor]) -> None:
        self._entries: dict[int, list[tuple[int, int, Send]]] = {lane: [] for lane in LANES}
        self._floors = {lane: new_floor() for lane in LANES}
        self._numbers = itertools.count()

    def add(self, lane: int, send: Send, run: fairness.TurnRange) -> None:
        for place in range(send.recipients):
            insort(self._entries[lane], (run.first + place * run.step, next(self._numbers), send))

    def take(self, lane: int, limit: int, now: float) -> Iterator[Waiting]:
        if not limit:
            return
        entries, floor = self._entries[lane], self._floors[lane]
        first = bisect_left(entries, floor.begin(now), key=lambda entry: entry[0])
        taken = entries[first : first + limit]
        del entries[first : first + limit]
        if taken:
            floor.claimed(now, taken[0][0])
        for turn, _, send in taken:
            yield Waiting(send, lane, turn)

    def published(self, lane: int, clock: int, now: float) -> None:
        self._floors[lane].published(now, clock)


class Acceptance:
    """The web side: gives each send its lane and its turns."""

    def __init__(self, queue: Queue, lane_of: Callable[[int], int]) -> None:
        self._queue = queue
        self._lane_of = lane_of
        self._next_turns: dict[tuple[str, int], int] = {}

    def accept(self, send: Send, clock_of: Callable[[int], int]) -> None:
        lane = self._lane_of(send.recipients)
        flow = (send.account, lane)
        run = fairness.take_turns(
            clock_of(lane), self._next_turns.get(flow, 0), send.segments, send.weight, send.recipients
        )
        self._next_turns[flow] = run.next_turn
        self._queue.add(lane, send, run)


class Worker:
    """The engine's side: claims, holds lane 0 in front, and submits at the carrier's rate."""

    def __init__(self, queue: Queue, window: int) -> None:
        self._queue = queue
        self._window = window
        self._held: dict[int, deque[Waiting]] = {lane: deque() for lane in LANES}
        self._arriving: tuple[float, Sequence[Waiting]] | None = None
        self._unanswered: deque[tuple[float, int]] = deque()
        self._order = lanes.LaneOrder()
        self.highest = dict.fromkeys(LANES, 0)

    def look(self, now: float) -> None:
        """Take in answers and what was claimed, and claim again where there is room."""
        while self._unanswered and self._unanswered[0][0] <= now:
            self._unanswered.popleft()
        if self._arriving is not None:
            if self._arriving[0] > now:
                return
            for message in self._arriving[1]:
                self._held[message.lane].append(message)
            self._arriving = None
        claimed = self._claim(now)
        if claimed:
            self._arriving = (now + CLAIM_S, claimed)

    def _claim(self, now: float) -> Sequence[Waiting]:
        # One submit in each tick, so there is at most one slot to fill now.
        free = min(1, self._window - len(self._unanswered))
        ahead = lanes.ahead(self._window, RATE, RATE)
        room = lanes.room(free, ahead, *(len(self._held[lane]) for lane in LANES))
        small = list(self._queue.take(0, room.small, now))
        claimed = [*small, *self._queue.take(1, room.left_for_bulk(len(small)), now)]
        for message in claimed:
            self.highest[message.lane] = max(self.highest[message.lane], message.turn)
        return claimed

    def hand_over(self, now: float) -> Waiting | None:
        if len(self._unanswered) >= self._window:
            return None
        bulk = sum(lane for _, lane in self._unanswered)
        lane = self._order.next(
            small=bool(self._held[0]), bulk=bool(self._held[1]) and bulk < lanes.bulk_window(self._window)
        )
        if lane is None:
            return None
        self._unanswered.append((now + ANSWER_S, lane))
        return self._held[lane].popleft()


def simulate(
    sends: Iterable[Send],
    seconds: float,
    *,
    lane_of: Callable[[int], int] = fairness.lane,
    wall_clock: bool = False,
    window: int = WINDOW,
    new_floor: Callable[[], lanes.Floor] | None = None,
) -> Sequence[Submitted]:
    arriving = deque(sorted(sends, key=lambda send: send.at))
    queue: Queue = WholeQueue() if new_floor is None else FlooredQueue(new_floor)
    acceptance = Acceptance(queue, lane_of)
    worker = Worker(queue, window)
    published = dict.fromkeys(LANES, 0)
    published_at = -PUBLISH_S
    busy_until = 0
    handed_over = []
    for tick in range(int(seconds * RATE)):
        now = tick / RATE
        while arriving and arriving[0].at <= now:
            send = arriving.popleft()
            # The twin: turns by the time of day, one thousand to a second.
            acceptance.accept(send, (lambda _lane: int(now * 1000)) if wall_clock else published.__getitem__)  # noqa: B023 - called at once
        worker.look(now)
        # At once after a pause, and then not before a while has passed.
        if published != worker.highest and now - published_at >= PUBLISH_S:
            published, published_at = dict(worker.highest), now
            for lane in LANES:
                queue.published(lane, published[lane], now)
        message = worker.hand_over(now) if tick >= busy_until else None
        if message is not None:
            busy_until = tick + message.send.segments
            handed_over.append(
                Submitted(message.send.account, message.lane, message.send.segments, message.send.at, now)
            )
    return handed_over
