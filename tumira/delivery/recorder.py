"""Records what a carrier says, in order and in groups; while one group is written, the next is decided.

A receipt is acknowledged to the carrier after the commit, so the carrier still has a receipt that we lose.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

import structlog
from msgspec import Struct

from tumira.core import metrics
from tumira.core.database_errors import is_unavailable
from tumira.core.ids import AccountId
from tumira.delivery.match_receipts import find_by_id
from tumira.delivery.observer import Observer
from tumira.delivery.outcomes import Outcome, Reported, Taken
from tumira.delivery.receipt_rules import Receipt, receipt_result
from tumira.delivery.recent import RecentSegment, RecentSegments, as_sent
from tumira.delivery.replies.receive import ReplyRecorder
from tumira.delivery.settle import settle
from tumira.delivery.settle_rules import Ending
from tumira.delivery.smpp.session import SmppSession
from tumira.delivery.store import receipts
from tumira.delivery.store.receipts import Match
from tumira.delivery.store.settlement import LockedMessage
from tumira.postgres.connection import Connection
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import BUSY, IN_KEY_ORDER, Database

GROUP_MAX: Final = 500
PAUSE_S: Final = 0.2
BEHIND_S: Final = 5.0
# A small group costs nearly what a large one does, and nothing waits for it: the message is submitted.
BREATH_S: Final = 0.03

_log: Final = structlog.get_logger()


class _Arrival(Struct, frozen=True, gc=False):
    receipt: Receipt
    received_at: datetime
    session: SmppSession
    token: object


class Owner(Protocol):
    def recorded(self, count: int) -> None: ...


# An outcome comes with the recipient of its message, against which a receipt is checked, and its owner.
Item = tuple[Outcome, str, Owner] | _Arrival


class _OutOfTurnError(Exception):
    """The group before could not be written; raised so that this one releases its locks."""


class _Written(Struct, frozen=True):
    """The counts of a group: messages that ended, receipts that matched and did not."""

    endings: Sequence[Ending]
    matched: int
    unmatched: int


class _Group:
    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.decided = asyncio.Event()
        # Whether it could be written at the first try.
        self.written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None]


class Recorder:
    def __init__(self, database: Database, carrier_id: int, worker: str, observer: Observer) -> None:
        self._lines = tuple(PinnedConnection(database, settings=IN_KEY_ORDER) for _ in range(2))
        self.clock = database.clock
        self._carrier_id = carrier_id
        self._observer = observer
        # The final statuses whose cost messages of this carrier get back.
        self.refunded: frozenset[str] = frozenset()
        # The accounts that receive `message.sent`.
        self.tell_sent: frozenset[AccountId] = frozenset()
        self._worker = worker
        self._waiting: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._hurry = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        # How many were given to us and how many are written, in the same order; and who waits for how many.
        self._given = 0
        self._done = 0
        self._awaited: list[tuple[int, asyncio.Event]] = []
        self._recent = RecentSegments()
        self.replies = ReplyRecorder(database, carrier_id)
        self._loop = asyncio.get_running_loop()
        self._written_at = self._loop.time()
        self._groups: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._run())

    def put(self, outcome: Outcome, recipient: str, owner: Owner) -> None:
        self._add((outcome, recipient, owner))

    def receive(self, receipt: Receipt, received_at: datetime, session: SmppSession, token: object) -> None:
        self._add(_Arrival(receipt, received_at, session, token))

    def _add(self, item: Item) -> None:
        self._waiting.append(item)
        self._given += 1
        self._arrived.set()
        self._idle.clear()

    def hurry(self) -> None:
        """Record without delay: a sender has no room left until then."""
        self._hurry.set()

    @property
    def is_behind(self) -> bool:
        stuck = not self._idle.is_set() and self._loop.time() - self._written_at > BEHIND_S
        return stuck or len(self._waiting) > 4 * GROUP_MAX

    def check(self) -> None:
        """Raise if recording has ended by a bug: a worker that records nothing must not look healthy."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    async def drain(self, wait_s: float) -> None:
        """Wait until everything given so far is recorded, at most `wait_s`: the database may be away."""
        if self._done == self._given:
            return
        awaited = (self._given, asyncio.Event())
        self._awaited.append(awaited)
        try:
            async with asyncio.timeout(wait_s):
                await awaited[1].wait()
        except TimeoutError:
            count = awaited[0] - self._done
            _log.warning("answers not recorded; their messages are in doubt", count=count)
        finally:
            self._awaited.remove(awaited)

    async def close(self) -> None:
        await self.replies.close()
        tasks = [self._task, *self._groups]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for line in self._lines:
            line.terminate()

    async def _run(self) -> None:
        """Record group after group; while one is being written, the next one is read and decided."""
        before: _Group | None = None
        lines = itertools.cycle(self._lines)
        while True:
            await self._arrived.wait()
            await self._breathe()
            items = [self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting)))]
            group = _Group(items)
            group.task = asyncio.create_task(self._record(group, before, next(lines)))
            self._groups.add(group.task)
            group.task.add_done_callback(self._groups.discard)
            await group.decided.wait()
            if before is not None:
                # Its connection is the next group's.
                await before.task
            before = group
            if not self._waiting:
                self._arrived.clear()
                await group.task
                if not self._waiting:
                    self._idle.set()

    async def _breathe(self) -> None:
        """Let a group grow, unless it is large or a sender waits for it."""
        if len(self._waiting) < GROUP_MAX // 2 and not self._hurry.is_set():
            timer = self._loop.call_later(BREATH_S, self._hurry.set)
            await self._hurry.wait()
            timer.cancel()
        self._hurry.clear()

    async def _record(self, group: "_Group", before: "_Group | None", line: PinnedConnection) -> None:
        async def wait_for_turn() -> None:
            group.decided.set()
            if before is not None and not await before.written:
                # It has to be written first, and may need what we hold.
                raise _OutOfTurnError

        try:
            connection = await line.begin()
            written = await self._write(connection, group.items, wait_for_turn)
            await line.end()
        except Exception as error:  # noqa: BLE001 - nothing that a carrier said is dropped for it
            await line.roll_back(error)
            group.written.set_result(False)
            group.decided.set()
            if before is not None:
                await before.task
            if not isinstance(error, _OutOfTurnError):
                _log.warning("could not record outcomes", error=repr(error), count=len(group.items))
            await self._record_again(group.items, line)
        else:
            group.written.set_result(True)
            group.decided.set()
            self._go_on(group.items, written)

    async def _record_again(self, items: Sequence[Item], line: PinnedConnection) -> None:
        """Record a group that failed at first: retry while the database is away, else split it."""
        while True:
            try:
                connection = await line.begin()
                written = await self._write(connection, items, None, again=True)
                await line.end()
            except Exception as error:  # noqa: BLE001 - as above
                await line.roll_back(error)
                if is_unavailable(error) or isinstance(error, BUSY):
                    await asyncio.sleep(PAUSE_S)
                    continue
                if len(items) == 1:
                    # Its message stays claimed, and in doubt once this worker ends; a receipt comes again.
                    _log.error("could not record an outcome", exc_info=error)
                    self._forget(items)
                    _tell_owners(items)
                    self._count(items)
                    return
                middle = len(items) // 2
                await self._record_again(items[:middle], line)
                await self._record_again(items[middle:], line)
                return
            self._go_on(items, written)
            return

    def _go_on(self, items: Sequence[Item], written: "_Written") -> None:
        self._written_at = self._loop.time()
        _acknowledge(items)
        _tell_owners(items)
        self._count(items)
        self._observer.ended(self._carrier_id, written.endings)
        carrier = self._observer.carriers.get(self._carrier_id, str(self._carrier_id))
        if written.matched:
            metrics.RECEIPTS.labels(carrier, "matched").inc(written.matched)
        if written.unmatched:
            metrics.RECEIPTS.labels(carrier, "unmatched").inc(written.unmatched)

    def _count(self, items: Sequence[Item]) -> None:
        self._done += len(items)
        for count, event in self._awaited:
            if self._done >= count:
                event.set()

    async def _write(
        self,
        connection: Connection,
        items: Sequence[Item],
        before_writing: Callable[[], Awaitable[None]] | None,
        *,
        again: bool = False,
    ) -> "_Written":
        outcomes: list[Outcome] = []
        endings: list[Ending] = []
        arrivals: list[_Arrival] = []
        # The messages as they should be by now, and whether these are all.
        remembered: dict[UUID, LockedMessage] = {}
        is_sure = not again
        now = self.clock.now()
        for item in items:
            if isinstance(item, _Arrival):
                arrivals.append(item)
                continue
            outcome, recipient, _ = item
            outcomes.append(outcome)
            if type(outcome) is not Taken:
                is_sure = False
                continue
            message = self._recent.add(outcome, recipient, now)
            if message is not None:
                remembered[message.id] = message
        reported, unmatched = await self._match(connection, arrivals, remembered, now)
        outcomes.extend(reported)
        if unmatched:
            await receipts.insert_unmatched(connection, self._carrier_id, unmatched)
        if outcomes:
            is_sure = is_sure and all(one.message_id in remembered for one in outcomes)
            await settle(
                connection,
                outcomes,
                worker=self._worker,
                remembered=remembered if is_sure else None,
                refunded=self.refunded,
                tell_sent=self.tell_sent,
                before_writing=before_writing,
                again=again,
                endings=endings,
            )
        elif before_writing is not None:
            await before_writing()
        return _Written(endings, len(arrivals) - len(unmatched), len(unmatched))

    async def _match(
        self,
        connection: Connection,
        arrivals: Sequence[_Arrival],
        remembered: dict[UUID, LockedMessage],
        now: datetime,
    ) -> tuple[Sequence[Reported], Sequence[tuple[Receipt, datetime]]]:
        """Find the segments of receipts, and add the messages that can be settled from memory."""
        reported: list[Reported] = []
        unmatched: list[tuple[Receipt, datetime]] = []
        unknown: list[tuple[Receipt, datetime]] = []
        for arrival in arrivals:
            receipt = arrival.receipt
            recent = self._recent.find(receipt)
            if recent is None:
                unknown.append((receipt, arrival.received_at))
                continue
            reported.append(self._reported(recent, receipt, arrival.received_at))
            status = receipt_result(receipt.state, receipt.error).status
            if status is None or recent.message is None:
                continue
            self._recent.end(recent)
            remembered.setdefault(recent.message_id, as_sent(recent.message, now))
        if unknown:
            readings = [self._recent.find(receipt, readings=True) for receipt, _ in unknown]
            as_spelt = {place for place, reading in enumerate(readings) if reading is not None}
            found = await find_by_id(connection, self._carrier_id, unknown, as_spelt)
            for (receipt, received_at), reading, matches in zip(unknown, readings, found, strict=True):
                # An id as it is spelt comes before another reading of it, however recent that is.
                segment = matches[0] if matches else reading
                if segment is None:
                    unmatched.append((receipt, received_at))
                else:
                    reported.append(self._reported(segment, receipt, received_at))
        return reported, unmatched

    def _reported(self, segment: RecentSegment | Match, receipt: Receipt, received_at: datetime) -> Reported:
        return Reported(
            segment.message_id, segment.number, segment.attempt, self._carrier_id, receipt, received_at
        )

    def _forget(self, items: Sequence[Item]) -> None:
        """Forget segments that could not be recorded: a receipt would settle a message without them."""
        for item in items:
            if not isinstance(item, _Arrival) and isinstance(item[0], Taken):
                self._recent.forget(item[0])


def _acknowledge(items: Sequence[Item]) -> None:
    tokens: dict[SmppSession, list[object]] = {}
    for item in items:
        if isinstance(item, _Arrival):
            tokens.setdefault(item.session, []).append(item.token)
    for session, own in tokens.items():
        session.acknowledge(own)


def _tell_owners(items: Sequence[Item]) -> None:
    counts: dict[Owner, int] = {}
    for item in items:
        if not isinstance(item, _Arrival):
            counts[item[2]] = counts.get(item[2], 0) + 1
    for owner, count in counts.items():
        owner.recorded(count)
