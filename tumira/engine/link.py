"""How are claimed messages handed over on one bind, and what do its answers ask for?

A link keeps a line of messages that it may send, never more than the free window and a quarter of a second
of the carrier's rate. It submits as the window, the pace and the circuit allow, and gives every outcome to
the recorder. Before each submit it looks at its lease: a process that slept and woke may have been taken for
dead, and what it holds may be on its way elsewhere.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, cast
from uuid import UUID

import structlog

from tumira.actions.outcomes import Doubtful, Known, Outcome, PutOff, Refused, Returned, Taken
from tumira.carriers.smpp.pdu import Command
from tumira.carriers.smpp.session import Address, BindRefusedError, Session, Timing, connect
from tumira.engine.handovers import Handover, Writer
from tumira.engine.recorder import Recorder
from tumira.rules import answers, lanes, validity
from tumira.rules.answers import Action
from tumira.rules.backoff import RETRIES_MAX, RETRIES_UNKNOWN_MAX, reconnect_wait_s, retry_wait_s
from tumira.rules.circuit import Circuit
from tumira.rules.pace import Pace
from tumira.rules.receipts import Receipt, key
from tumira.store.carriers import BindReport, BindState, Carrier
from tumira.store.queue import BULK
from tumira.store.settlement import NewPart

STABLE_S: Final = 60.0
# A carrier that does not let us in is not hammered: accounts get locked.
REFUSED_BIND_FAILURES: Final = 4

_log: Final = structlog.get_logger()

Submission = tuple[Handover, int, datetime]


class Link:
    """One bind of a carrier, held by this worker."""

    def __init__(
        self,
        carrier: Carrier,
        number: int,
        worker: str,
        recorder: Recorder,
        timing: Timing,
        room: Callable[[], None],
    ) -> None:
        self.carrier = carrier
        self.number = number
        self.bind = f"{carrier.name}/{number}"
        self._worker = worker
        self._recorder = recorder
        self._timing = timing
        self._room = room
        self.writer = Writer(carrier.settings.source)
        self._pace = Pace(carrier.settings.tps)
        self._circuit = Circuit()
        self._session: Session | None = None
        self._receiver: Session | None = None
        self._lines: tuple[deque[Handover], deque[Handover]] = (deque(), deque())
        # Segments in the line, and messages of lane 1 that are in the line or unanswered.
        self._held = 0
        self.bulk_outstanding = 0
        # What was answered and is not on disk yet fills the window too: should we die, it is in doubt.
        self._unrecorded = 0
        # The messages that are in the line or unanswered; whatever else is in flight for us is astray.
        self.claimed: set[UUID] = set()
        self._problem: str | None = None
        self._failures = 0
        self._draining = False
        self._lease_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    # What the supervisor asks and tells.

    @property
    def state(self) -> BindState:
        """How it is."""
        if self._session is None:
            return BindState.DOWN if self._problem is not None else BindState.CONNECTING
        now = self._loop.time()
        if self._circuit.is_well(now):
            return BindState.BOUND
        return BindState.THROTTLED if now < self._pace.paused_until else BindState.FAILING

    def report(self) -> BindReport:
        """Say how it is."""
        rate = self._pace.rate(self._loop.time())
        return BindReport(
            carrier_id=self.carrier.id,
            number=self.number,
            worker=self._worker,
            state=self.state,
            problem=self._problem,
            outstanding=self._session.outstanding if self._session is not None else 0,
            pace=None if rate is None else max(1, round(rate)),
        )

    def renew(self, until: float, tps: float) -> None:
        """Take note of a lease that was renewed, and of this bind's share of the carrier's rate."""
        self._lease_until = until
        self._pace.retune(self._loop.time(), tps)
        self._pump()

    def lose(self) -> None:
        """Stop at once: the lease is somebody else's."""
        self._draining = True
        if self._session is not None:
            self._session.abort()
        self._task.cancel()

    async def drain(self, wait_s: float) -> None:
        """Hand over nothing more, give back what was not handed over, wait for answers, and part."""
        self._draining = True
        self._task.cancel()
        self._give_back()
        if self._session is not None:
            await self._session.close(wait_s)
        if self._receiver is not None:
            await self._receiver.close(0)

    # What the dispatcher asks and tells.

    @property
    def is_open(self) -> bool:
        """Tell whether messages may be claimed for it."""
        return self._session is not None and not self._draining and self._loop.time() < self._lease_until

    @property
    def is_well(self) -> bool:
        """Tell whether messages may go there freely, and not only one to try it out."""
        return self._session is not None and self._circuit.is_well(self._loop.time())

    def free(self) -> int:
        """Return how many segments may be claimed for it."""
        if not self.is_open:
            return 0
        assert self._session is not None
        now = self._loop.time()
        if now < self._pace.paused_until:
            return 0
        room = lanes.free_places(
            self.carrier.settings.window_size, self._under_way(), self._held, self._pace.rate(now)
        )
        if self._held and not self._circuit.is_well(now):
            # While half open, the one place is that of the message already held.
            return 0
        return self._circuit.places(now, room)

    def _under_way(self) -> int:
        """Return how many segments a carrier has of us whose fate is not on disk."""
        unanswered = self._session.outstanding if self._session is not None else 0
        return unanswered + self._unrecorded

    @property
    def capacity(self) -> int:
        """Return how many segments it holds or awaits at most."""
        rate = self._pace.rate(self._loop.time())
        window = self.carrier.settings.window_size
        return window if rate is None else min(window, max(1, int(rate * lanes.HOLD_S)))

    def take(self, handovers: Iterable[Handover]) -> None:
        """Put claimed messages in line, and begin to hand them over."""
        for handover in handovers:
            if handover.claimed.lane == BULK:
                self.bulk_outstanding += 1
            self.claimed.add(handover.claimed.id)
            if not handover.todo:
                # All of its segments were taken in earlier tries, as was learnt only now.
                self._close(handover)
                self._put(Known(handover.claimed.id, handover.claimed.claimed_at))
                continue
            handover.in_line = True
            self._held += len(handover.todo)
            self._lines[handover.claimed.lane].append(handover)
        if self._session is None or self._draining or not self._circuit.places(self._loop.time(), 1):
            self._give_back()
        else:
            self._pump()

    # What the line does.

    def _pump(self) -> None:
        """Submit what may be submitted now."""
        session = self._session
        if session is None or not self._held or self._draining:
            return
        now = self._loop.time()
        if now >= self._lease_until:
            return
        room = self.carrier.settings.window_size - self._under_way()
        if room <= 0 and self._unrecorded:
            self._recorder.hurry()
        allowed = self._circuit.places(now, self._pace.allowance(now, max(0, room)))
        sent = 0
        at = datetime.now(UTC)
        while sent < allowed and self._held:
            sent += self._submit_next(session, at)
        if sent:
            self._pace.spend(now, sent)
            self._circuit.spend(now, sent)
        if self._held and room > sent:
            self._pump_later(max(self._pace.wait_s(now), self._circuit.wait_s(now)))

    def _submit_next(self, session: Session, at: datetime) -> int:
        """Submit the next segment in line, lane 0 first; return 0 if its message is not worth sending."""
        line = self._lines[0] or self._lines[1]
        handover = line[0]
        left_s = validity.left_s(handover.claimed.created_at, at)
        if left_s <= 0:
            line.popleft()
            self._drop_from_line(handover)
            handover.refusal = "QUEUE_EXPIRED"
            self._close_if_done(handover)
            return 0
        number = handover.todo.pop(0)
        self._held -= 1
        handover.waiting += 1
        if not handover.todo:
            line.popleft()
            handover.in_line = False
        session.submit((handover, number, at), self.writer.submission(handover, number, left_s))
        return 1

    def _pump_later(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.001, wait_s), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()
        self._room()

    def _drop_from_line(self, handover: Handover) -> None:
        """Forget the segments of a message that will not be sent; it has been taken out of the line."""
        self._held -= len(handover.todo)
        handover.todo.clear()
        handover.in_line = False

    def _give_back(self) -> None:
        """Return what was not handed over, each message to its turn."""
        for line in self._lines:
            while line:
                handover = line.popleft()
                self._drop_from_line(handover)
                # With a segment under way, its answer decides what becomes of the message.
                self._close_if_done(handover)

    # What the session tells.

    def answered(self, tag: object, status: int, carrier_ref: str) -> None:
        """Take the answer to a submit."""
        handover, number, submitted_at = cast("Submission", tag)
        if number in handover.overdue:
            handover.overdue.discard(number)
        else:
            handover.waiting -= 1
        now = self._loop.time()
        verdict = answers.judge(status)
        if verdict.action is Action.TAKEN:
            self._pace.succeeded(now)
            self._circuit.succeeded(now)
            self._record_taken(handover, number, submitted_at, carrier_ref)
        elif handover.closed:
            # Given up as doubtful before this refusal came; it will be tried again.
            return
        elif verdict.action is Action.THROTTLED:
            pause_s = self._pace.throttled(now)
            self._circuit.throttled(now, pause_s)
            self._again(handover, number)
        elif verdict.action is Action.LINK:
            self._again(handover, number)
            if self._session is not None:
                self._problem = answers.name(status)
                self._session.abort()
            return
        elif verdict.action is Action.REFUSED:
            self._circuit.succeeded(now)
            if verdict.alarm:
                _log.error(
                    "carrier refuses our settings", carrier=self.carrier.name, status=answers.name(status)
                )
            handover.refusal = verdict.reason
        else:
            self._circuit.refused(now)
            self._retry(handover, number, status, verdict)
        self._close_if_done(handover)
        if self._held and not self._circuit.is_well(now):
            # Another carrier may take these meanwhile; when it is our turn again, one is claimed to try.
            self._give_back()

    def _record_taken(
        self, handover: Handover, number: int, submitted_at: datetime, carrier_ref: str
    ) -> None:
        handover.taken += 1
        claimed = handover.claimed
        part = NewPart(
            claimed.id,
            number,
            handover.attempt,
            self.carrier.id,
            handover.reference,
            carrier_ref,
            key(carrier_ref),
            claimed.claimed_at,
            submitted_at,
            datetime.now(UTC),
        )
        self._put(Taken(claimed.id, part, handover.complete, late=handover.closed), claimed.recipient)

    def _again(self, handover: Handover, number: int) -> None:
        """Put a segment back in front; what was refused with it goes no further."""
        if handover.refusal is not None or handover.retry is not None:
            return
        handover.todo.insert(0, number)
        self._held += 1
        if not handover.in_line:
            handover.in_line = True
            self._lines[handover.claimed.lane].appendleft(handover)

    def _retry(self, handover: Handover, number: int, status: int, verdict: answers.Verdict) -> None:
        most = RETRIES_UNKNOWN_MAX if verdict.action is Action.UNKNOWN else RETRIES_MAX
        if handover.retries >= most:
            handover.refusal = verdict.reason
        else:
            handover.retry = (number, answers.name(status))

    def unanswered(self, tag: object) -> None:
        """Note that no answer came in time."""
        handover, number, _ = cast("Submission", tag)
        handover.overdue.add(number)
        handover.waiting -= 1
        self._close_if_done(handover, "no answer came in time")

    def received(self, receipt: Receipt, token: object) -> None:
        """Take a receipt from the session that also submits."""
        assert self._session is not None
        self._recorder.receive(receipt, datetime.now(UTC), self._session, token)

    def settled(self) -> None:
        """Go on after a lot of answers."""
        self._pump()
        self._room()

    def ended(self, unanswered: Sequence[object], problem: str) -> None:
        """Note that the line is gone."""
        self._session = None
        if self._receiver is not None:
            self._receiver.abort()
        if not self._draining:
            self._problem = self._problem or problem
            _log.warning("bind ended", bind=self.bind, problem=problem, in_doubt=len(unanswered))
        self._give_back()
        for tag in unanswered:
            handover, number, _ = cast("Submission", tag)
            handover.overdue.add(number)
            handover.waiting -= 1
            self._close_if_done(handover, f"the line fell: {problem}")
        self._ended.set()

    def _close_if_done(self, handover: Handover, doubt: str = "no answer came in time") -> None:
        """Say what became of a message, once no answer to it is due any more."""
        if handover.closed:
            return
        trouble = handover.refusal is not None or handover.retry is not None or bool(handover.overdue)
        if trouble and handover.in_line:
            # The rest of it goes no further.
            self._lines[handover.claimed.lane].remove(handover)
            self._drop_from_line(handover)
        if handover.waiting or handover.todo:
            return
        self._close(handover)
        message_id = handover.claimed.id
        if handover.refusal == "QUEUE_EXPIRED":
            self._put(Refused(message_id, handover.refusal, "expired", doubted=handover.attempt > 0))
        elif handover.refusal is not None:
            self._put(Refused(message_id, handover.refusal, doubted=handover.attempt > 0))
        elif handover.overdue:
            self._put(Doubtful(message_id, self.carrier.id, self.carrier.settings.doubt_wait_s, doubt))
        elif handover.retry is not None:
            number, detail = handover.retry
            wait_s = retry_wait_s(handover.retries + 1, random.random())  # noqa: S311 - spreads, guards nothing
            self._put(PutOff(message_id, self.carrier.id, number, wait_s, detail))
        elif not handover.complete:
            claimed = handover.claimed
            self._put(Returned(message_id, claimed.country, claimed.lane, claimed.turn, handover.again))

    def _close(self, handover: Handover) -> None:
        handover.closed = True
        self.claimed.discard(handover.claimed.id)
        if handover.claimed.lane == BULK:
            self.bulk_outstanding -= 1

    def _put(self, outcome: Outcome, recipient: str = "") -> None:
        self._unrecorded += 1
        self._recorder.put(outcome, recipient, self)

    def recorded(self, count: int) -> None:
        """Go on with the room that outcomes on disk leave."""
        self._unrecorded -= count
        self.settled()

    # The connection.

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(reconnect_wait_s(self._failures, random.random()))  # noqa: S311 - as above
            self._ended.clear()
            try:
                await self._connect()
            except BindRefusedError as error:
                self._problem = str(error)
                self._failures = max(self._failures + 1, REFUSED_BIND_FAILURES)
                _log.error("bind refused", bind=self.bind, problem=self._problem)
                continue
            except OSError as error:
                self._problem = str(error) or type(error).__name__
                self._failures += 1
                _log.warning("carrier cannot be reached", bind=self.bind, problem=self._problem)
                continue
            except Exception as error:  # noqa: BLE001 - whatever it was, the bind is tried again
                self._problem = repr(error)
                self._failures += 1
                _log.error("bind failed", bind=self.bind, exc_info=error)
                continue
            began = self._loop.time()
            self._problem = None
            if self._failures:
                _log.info("bound again", bind=self.bind)
            self._room()
            await self._ended.wait()
            self._failures = 1 if self._loop.time() - began > STABLE_S else self._failures + 1

    async def _connect(self) -> None:
        settings = self.carrier.settings
        address = Address(settings.host, settings.port, settings.tls, settings.system_id, settings.password)
        if settings.bind_mode == "pair":
            await self._connect_pair(address)
        else:
            self._session = await connect(address, Command.BIND_TRANSCEIVER, self, timing=self._timing)

    async def _connect_pair(self, address: Address) -> None:
        """Bind both halves; one that falls while the other is being bound takes it along."""
        ear = _Ear(self)
        receiver = ear.session = await connect(address, Command.BIND_RECEIVER, ear, timing=self._timing)
        try:
            session = await connect(address, Command.BIND_TRANSMITTER, self, timing=self._timing)
        except BaseException:
            receiver.abort()
            raise
        self._session, self._receiver = session, receiver
        if receiver.ended:
            session.abort()

    def hear(self, receipt: Receipt, session: Session, token: object) -> None:
        """Take a receipt from the session that only receives."""
        self._recorder.receive(receipt, datetime.now(UTC), session, token)

    def deaf(self) -> None:
        """Note that the receiving half is gone; the other half is bound anew with it."""
        self._receiver = None
        if self._session is not None and not self._draining:
            self._session.abort()


class _Ear:
    """The receiving half of a pair of binds."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.session: Session | None = None

    def answered(self, tag: object, status: int, carrier_ref: str) -> None:
        """Never comes: nothing is submitted here."""

    def unanswered(self, tag: object) -> None:
        """Never comes either."""

    def received(self, receipt: Receipt, token: object) -> None:
        assert self.session is not None
        self._link.hear(receipt, self.session, token)

    def settled(self) -> None:
        """Nothing is due."""

    def ended(self, _unanswered: Sequence[object], _problem: str) -> None:
        self._link.deaf()
