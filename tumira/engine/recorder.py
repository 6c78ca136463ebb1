"""How does what a carrier says get on disk? In the order in which it came, a group at a time.

What arrives while one group commits becomes the next. A receipt is acknowledged to the carrier after the
commit, so one that we lose is one that the carrier still has.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import structlog
from msgspec import Struct

from tumira.actions.match_receipts import match_by_id
from tumira.actions.outcomes import Outcome, Reported, Taken
from tumira.actions.settle_messages import settle
from tumira.carriers.smpp.session import Session
from tumira.ids import MessageId
from tumira.rules.receipts import Receipt, same_number, spellings
from tumira.store import receipts
from tumira.store.database import BUSY, Database, Line, is_unavailable
from tumira.store.sql import Connection

GROUP_MAX: Final = 500
RECENT_MAX: Final = 50_000
PAUSE_S: Final = 0.2

_log: Final = structlog.get_logger()


class _Arrival(Struct, frozen=True):
    """A receipt that came over a line, with what its acknowledgement needs."""

    receipt: Receipt
    received_at: datetime
    session: Session
    token: object


class _Recent(Struct, frozen=True):
    """A segment that a carrier took lately; its receipt need not be looked for in the database."""

    message_id: MessageId
    number: int
    attempt: int
    recipient: str


class Recorder:
    """Writes down what one carrier says to one worker."""

    def __init__(self, database: Database, carrier_id: int, worker: str) -> None:
        self._line = Line(database)
        self._carrier_id = carrier_id
        # The final statuses whose cost messages of this carrier get back.
        self.refunded: frozenset[str] = frozenset()
        self._worker = worker
        self._waiting: deque[tuple[Outcome, str] | _Arrival] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        # In the order in which they came, so the first are the oldest.
        self._recent: dict[str, _Recent] = {}
        self._task = asyncio.create_task(self._run())

    def put(self, outcome: Outcome, recipient: str = "") -> None:
        """Have an outcome written down; a segment that was taken comes with its recipient."""
        self._waiting.append((outcome, recipient))
        self._arrived.set()
        self._idle.clear()

    def receive(self, receipt: Receipt, received_at: datetime, session: Session, token: object) -> None:
        """Have a receipt written down, and then acknowledged on the line over which it came."""
        self._waiting.append(_Arrival(receipt, received_at, session, token))
        self._arrived.set()
        self._idle.clear()

    async def drain(self, wait_s: float) -> None:
        """Wait until all is written down, but not for ever: the database may be away."""
        try:
            async with asyncio.timeout(wait_s):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("answers not recorded; their messages are in doubt", count=len(self._waiting))

    async def close(self) -> None:
        """Stop."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._line.hang_up()

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            group = [self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting)))]
            await self._record(group)
            if not self._waiting:
                self._arrived.clear()
                self._idle.set()

    async def _record(self, group: Sequence[tuple[Outcome, str] | _Arrival]) -> None:
        while True:
            try:
                connection = await self._line.begin()
                await self._write(connection, group)
                await connection.execute("COMMIT")
            except Exception as error:  # noqa: BLE001 - nothing that a carrier said is dropped for it
                await self._line.roll_back(error)
                if is_unavailable(error) or isinstance(error, BUSY):
                    _log.warning("not recorded yet", error=repr(error), count=len(group))
                    await asyncio.sleep(PAUSE_S)
                    continue
                if len(group) == 1:
                    # Its message stays claimed, and in doubt once this worker ends; a receipt comes again.
                    _log.error("cannot be recorded", exc_info=error)
                    return
                middle = len(group) // 2
                await self._record(group[:middle])
                await self._record(group[middle:])
                return
            _acknowledge(group)
            return

    async def _write(self, connection: Connection, group: Sequence[tuple[Outcome, str] | _Arrival]) -> None:
        outcomes: list[Outcome] = []
        arrivals: list[_Arrival] = []
        for item in group:
            if isinstance(item, _Arrival):
                arrivals.append(item)
                continue
            outcome, recipient = item
            outcomes.append(outcome)
            if isinstance(outcome, Taken):
                self._recent[outcome.carrier_key] = _Recent(
                    outcome.message_id, outcome.number, outcome.attempt, recipient
                )
        unknown: list[tuple[Receipt, datetime]] = []
        for arrival in arrivals:
            reported = self._match_recent(arrival)
            if reported is None:
                unknown.append((arrival.receipt, arrival.received_at))
            else:
                outcomes.append(reported)
        if unknown:
            found, unmatched = await match_by_id(connection, self._carrier_id, unknown)
            outcomes.extend(found)
            if unmatched:
                await receipts.keep(connection, self._carrier_id, unmatched)
        if outcomes:
            await settle(connection, outcomes, worker=self._worker, refunded=self.refunded)
        while len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]

    def _match_recent(self, arrival: _Arrival) -> Reported | None:
        receipt = arrival.receipt
        if receipt.carrier_ref is None:
            return None
        for spelling in spellings(receipt.carrier_ref):
            recent = self._recent.get(spelling)
            if recent is not None and same_number(recent.recipient, receipt.recipient):
                return Reported(
                    recent.message_id,
                    recent.number,
                    recent.attempt,
                    self._carrier_id,
                    receipt,
                    arrival.received_at,
                )
        return None


def _acknowledge(group: Sequence[tuple[Outcome, str] | _Arrival]) -> None:
    tokens: dict[Session, list[object]] = {}
    for item in group:
        if isinstance(item, _Arrival):
            tokens.setdefault(item.session, []).append(item.token)
    for session, own in tokens.items():
        session.acknowledge(own)
