"""Submits claimed messages over one link to a carrier and reacts to the answers.

A sender holds claimed messages for the free slots of the window and some more (`lanes.ahead`). A slot is
free as soon as the carrier has answered. The sender submits as the window, the throttle and the circuit
breaker allow, and gives every outcome to the recorder. Before each submit it checks its lease: a process that
slept may have been declared dead, and its messages may be on their way elsewhere.

If the process dies, the messages that it holds, those without an answer, and those whose answer is not on
disk are in doubt. These are at most `lanes.ahead`, the window, and `UNRECORDED_MAX`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, cast
from uuid import UUID

import structlog

from tumira.carriers.store import Carrier
from tumira.core import metrics
from tumira.core.backoff import RETRIES_MAX, RETRIES_UNKNOWN_MAX
from tumira.core.ids import MESSAGE, write_id
from tumira.delivery import lanes
from tumira.delivery.circuit_breaker import CircuitBreaker
from tumira.delivery.lanes import BULK, NO_ROOM, SMALL, LaneOrder, Room
from tumira.delivery.link import NO_ANSWER, Link, LinkListener
from tumira.delivery.observer import Observer
from tumira.delivery.outcomes import AlreadyTaken, LeftInDoubt, Outcome
from tumira.delivery.recorder import GROUP_MAX, Recorder
from tumira.delivery.responses import Action, ResponseRule
from tumira.delivery.store.binds import BindReport, BindState
from tumira.delivery.submission import Submission, final_outcome, segment_taken
from tumira.delivery.throttle import Throttle
from tumira.sending.lifecycle import remaining_s

# Nothing takes longer than a response and this, unless a submission was left open by mistake.
LEFT_OPEN_S: Final = 60.0
# Answers that are not on disk yet; with more, nothing is submitted. The recorder writes as many in one group.
UNRECORDED_MAX: Final = GROUP_MAX
SENDER_NOT_ALLOWED: Final = "SENDER_NOT_ALLOWED"

_log: Final = structlog.get_logger()

# The submission, the number of the segment, and when it was submitted, by both clocks.
SubmitTag = tuple[Submission, int, datetime, float]


class _Counts:
    """The metrics of one carrier, with labels resolved: looking them up costs more than counting."""

    __slots__ = ("answers", "doubted", "seconds", "submitted", "unanswered")

    def __init__(self, carrier: str) -> None:
        self.submitted = metrics.SUBMITTED.labels(carrier)
        self.answers = {action: metrics.ANSWERS.labels(carrier, action.value) for action in Action}
        self.unanswered = metrics.ANSWERS.labels(carrier, "none")
        self.seconds = metrics.ANSWER_SECONDS.labels(carrier)
        self.doubted = metrics.DOUBTED.labels(carrier)
        # That none have come is to be seen too.
        metrics.RECEIPTS.labels(carrier, "matched")
        metrics.SENDERS_REFUSED.labels(carrier)


class Sender:
    def __init__(
        self,
        carrier: Carrier,
        number: int,
        worker: str,
        recorder: Recorder,
        observer: Observer,
        open_link: Callable[[LinkListener], Link],
        room: Callable[[], None],
    ) -> None:
        self.carrier = carrier
        self.number = number
        self.name = f"{carrier.name}/{number}"
        self._worker = worker
        self._recorder = recorder
        self._observer = observer
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._throttle = Throttle(carrier.settings.tps)
        self._circuit = CircuitBreaker()
        self._lines: tuple[deque[Submission], deque[Submission]] = (deque(), deque())
        self._order = LaneOrder()
        # By lane: segments held, and segments that wait for an answer.
        self._held = [0, 0]
        self._unanswered = [0, 0]
        # Answers that are not on disk yet.
        self._unrecorded = 0
        # The messages that are queued or unanswered; any other in flight for this worker is a lost claim.
        self.claimed: dict[UUID, Submission] = {}
        self._lease_until = 0.0
        # Why to reset the link, once all answers that came together are handled.
        self._fault: str | None = None
        # Since when submits are outstanding without an answer; and whether there was any since it connected.
        self._quiet_since: float | None = None
        self._has_answered = False
        self._counts = _Counts(carrier.name)
        self._timer: asyncio.TimerHandle | None = None
        self.link = open_link(self)

    # For the supervisor.

    @property
    def state(self) -> BindState:
        if not self.link.is_up:
            return BindState.DOWN if self.link.problem is not None else BindState.CONNECTING
        now = self._loop.time()
        if self._is_quiet(now):
            return BindState.FAILING
        if self._circuit.is_healthy(now):
            return BindState.BOUND
        return BindState.THROTTLED if now < self._throttle.paused_until else BindState.FAILING

    def report(self) -> BindReport:
        rate = self._throttle.rate(self._loop.time())
        silence = self._silence()
        return BindReport(
            carrier_id=self.carrier.id,
            number=self.number,
            worker=self._worker,
            state=self.state,
            problem=self.link.problem or silence,
            outstanding=self.link.outstanding,
            pace=None if rate is None else max(1, round(rate)),
            silent=silence is not None,
        )

    def _silence(self) -> str | None:
        """Describe that the link is up and the carrier does not answer; None while it does."""
        if not self.link.is_up:
            return None
        if self._circuit.is_silent:
            return f"silent: {self._circuit.unanswered} submits in a row were not answered in time"
        if self._is_quiet(self._loop.time()):
            return f"silent: no submit was answered for {self.link.quiet_s:g} s or longer"
        return None

    def _is_quiet(self, now: float) -> bool:
        """Tell whether submits are outstanding and none was answered for `quiet_s`."""
        return (
            self._quiet_since is not None
            and now - self._quiet_since >= self.link.quiet_s
            and self.link.outstanding > 0
        )

    def renew(self, until: float, tps: float) -> None:
        self._lease_until = until
        self._throttle.retune(self._loop.time(), tps)
        self._pump()

    async def drain(self, wait_s: float) -> None:
        """Stop submitting, release the queue, wait for responses, and disconnect."""
        self._give_back()
        await self.link.close(wait_s)

    def drop(self) -> None:
        """Stop at once: another worker has the lease."""
        self.link.drop()

    # For the dispatcher.

    @property
    def is_open(self) -> bool:
        return self.link.is_usable and self._loop.time() < self._lease_until

    @property
    def is_healthy(self) -> bool:
        now = self._loop.time()
        return self.link.is_up and self._circuit.is_healthy(now) and not self._is_quiet(now)

    def room(self) -> Room:
        """Return how many segments may be claimed."""
        now = self._loop.time()
        if not self.is_open or now < self._throttle.paused_until or self._is_quiet(now):
            return NO_ROOM
        small, bulk = self._held
        if not self._circuit.is_healthy(now):
            # While half open, the one place is that of the message already held.
            probe = 0 if small or bulk else self._circuit.places(now, 1)
            return Room(probe, 0, probe)
        free = min(self._window - self.link.outstanding, UNRECORDED_MAX - self._unrecorded)
        if self._throttle.rate(now) is not None:
            free = self._throttle.allowance(now, max(0, free))
        return lanes.room(max(0, free), self.ahead, small, bulk)

    @property
    def _window(self) -> int:
        """How many submits may be outstanding; fewer than the carrier's setting after a silence."""
        return self._circuit.window(self.carrier.settings.window_size)

    @property
    def ahead(self) -> int:
        now = self._loop.time()
        return lanes.ahead(self._window, self._throttle.pace(now), self._throttle.rate(now))

    def take(self, submissions: Iterable[Submission]) -> None:
        """Queue claimed messages, and begin to submit them."""
        for submission in submissions:
            submission.touched_at = self._loop.time()
            self.claimed[submission.claimed.id] = submission
            if submission.refusal is not None:
                submission.todo.clear()
                self._close_if_done(submission)
                continue
            if not submission.todo:
                # All of its segments were taken in earlier tries, as was learnt only now.
                self._close(submission)
                claimed = submission.claimed
                self._put(AlreadyTaken(claimed.id, claimed.claimed_at, self.carrier.id))
                continue
            submission.in_line = True
            self._held[submission.claimed.lane] += len(submission.todo)
            self._lines[submission.claimed.lane].append(submission)
        if not self.link.is_usable or not self._circuit.places(self._loop.time(), 1):
            self._give_back()
        else:
            self._pump()

    # Submitting.

    def _pump(self) -> None:
        if not any(self._held) or not self.link.is_usable:
            return
        now = self._loop.time()
        if now >= self._lease_until:
            return
        if self._is_quiet(now):
            # Another carrier may take these meanwhile.
            self._give_back()
            return
        if self._unrecorded >= UNRECORDED_MAX:
            self._recorder.hurry()
        room = max(0, min(self._window - self.link.outstanding, UNRECORDED_MAX - self._unrecorded))
        allowed = self._circuit.places(now, self._throttle.allowance(now, room))
        bulk_slots = lanes.bulk_window(self._window) - self._unanswered[BULK]
        bulk_allowed = min(bulk_slots, self._throttle.allowance(now, room, self._kept()))
        sent = 0
        at = self._recorder.clock.now()
        while sent < allowed:
            small, bulk = self._held
            lane = self._order.next(small=small > 0, bulk=bulk > 0 and bulk_allowed > 0)
            if lane is None:
                break
            if self._submit_next(lane, at, now):
                sent += 1
                if lane == BULK:
                    bulk_slots -= 1
                    bulk_allowed -= 1
        if sent:
            self._counts.submitted.inc(sent)
            if self._quiet_since is None or self.link.outstanding <= sent:
                self._quiet_since = now
            self._throttle.spend(now, sent)
            self._circuit.spend(now, sent)
        small, bulk = self._held
        if room > sent and (small or (bulk and bulk_slots > 0)):
            self._pump_later(max(self._throttle.wait_s(now, 1 + self._kept()), self._circuit.wait_s(now)))

    def _kept(self) -> int:
        """Return how many messages the throttle keeps for a passcode that may come, while none waits."""
        return 0 if self._held[SMALL] else self._throttle.kept

    def _submit_next(self, lane: int, at: datetime, now: float) -> bool:
        """Submit the next segment of a lane; return False if its message has expired."""
        line = self._lines[lane]
        submission = line[0]
        left_s = remaining_s(submission.claimed.expires_at, at)
        if left_s is None:
            line.popleft()
            self._drop_from_line(submission)
            submission.refusal = "QUEUE_EXPIRED"
            self._close_if_done(submission)
            return False
        number = submission.todo.pop(0)
        self._held[lane] -= 1
        self._unanswered[lane] += 1
        submission.waiting.add(number)
        if submission.sender is not None:
            submission.named[number] = submission.sender
        submission.touched_at = now
        if not submission.todo:
            line.popleft()
            submission.in_line = False
        self.link.submit((submission, number, at, now), submission, number, left_s)
        return True

    def _pump_later(self, wait_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(0.001, wait_s), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()
        self._room()

    def _drop_from_line(self, submission: Submission) -> None:
        """Drop the segments of a message that will not be sent; the caller has dequeued it."""
        self._held[submission.claimed.lane] -= len(submission.todo)
        submission.todo.clear()
        submission.in_line = False

    def _give_back(self) -> None:
        for line in self._lines:
            while line:
                submission = line.popleft()
                self._drop_from_line(submission)
                # With a segment under way, its answer decides what becomes of the message.
                self._close_if_done(submission)

    # Called by the link.

    def linked(self) -> None:
        self._quiet_since = None
        self._has_answered = False
        if self.link.is_on_trial:
            self._circuit.half_open(self._loop.time())
        self._room()

    def answered(self, tag: object, rule: ResponseRule, detail: str, carrier_ref: str) -> None:
        submission, number, submitted_at, _ = cast("SubmitTag", tag)
        submission.overdue.discard(number)
        self._end_wait(submission, number)
        now = self._loop.time()
        submission.touched_at = now
        self._has_answered = True
        self._quiet_since = now if self.link.outstanding else None
        at = self._recorder.clock.now()
        self._counts.answers[rule.action].inc()
        self._counts.seconds.observe(max(0.0, (at - submitted_at).total_seconds()))
        if rule.action is not Action.TAKEN:
            self._observer.not_taken(self.carrier.id, submission.claimed, detail)
        if rule.action is Action.TAKEN:
            self._throttle.succeeded(now)
            self._circuit.succeeded(now)
            submission.taken += 1
            taken = segment_taken(submission, number, self.carrier, (submitted_at, at), carrier_ref)
            self._put(taken, submission.claimed.recipient)
            if taken.complete:
                self._observer.submitted(self.carrier.id, submission.claimed)
        elif submission.closed:
            # Given up as doubtful before this refusal came; it will be tried again.
            return
        elif rule.action is Action.THROTTLED:
            pause_s = self._throttle.throttled(now, rule.wait_s)
            self._circuit.throttled(now, pause_s)
            self._again(submission, number)
        elif rule.action is Action.LINK:
            self._again(submission, number)
            self._fault = detail
        elif rule.action is Action.REFUSED:
            self._circuit.succeeded(now)
            if rule.alarm:
                _log.error("carrier refuses our settings", carrier=self.carrier.name, status=detail)
            if rule.reason != SENDER_NOT_ALLOWED or not self._fall_back(submission, number):
                submission.refusal = rule.reason
        else:
            self._circuit.refused(now)
            self._retry(submission, number, rule, detail)
        self._close_if_done(submission)
        if any(self._held) and not self._circuit.is_healthy(now):
            # Another carrier may take these meanwhile; when it is our turn again, one is claimed to try.
            self._give_back()

    def _fall_back(self, submission: Submission, number: int) -> bool:
        """Submit a segment again under the carrier's own sender, if it refused another one.

        Segments under different names are not joined on the handset: not after one was taken under the name.
        """
        settings, refused = self.carrier.settings, submission.named.get(number)
        self._observer.sender_refused(self.carrier.id, refused or settings.source, submission.claimed.country)
        others_taken = submission.named.keys() - submission.waiting - {number}
        if refused is None or not settings.sender_fallback or others_taken:
            return False
        submission.sender = None
        del submission.named[number]
        self._again(submission, number)
        return True

    def _again(self, submission: Submission, number: int) -> None:
        """Put a segment back in line; a message in trouble leaves it as it is closed."""
        submission.todo.insert(0, number)
        self._held[submission.claimed.lane] += 1
        if not submission.in_line:
            submission.in_line = True
            self._lines[submission.claimed.lane].appendleft(submission)

    def _retry(self, submission: Submission, number: int, rule: ResponseRule, detail: str) -> None:
        most = RETRIES_UNKNOWN_MAX if rule.action is Action.UNKNOWN else RETRIES_MAX
        if submission.retries >= most:
            submission.refusal = rule.reason
        else:
            submission.retry = (number, detail)

    def unanswered(self, tag: object, why: str = NO_ANSWER) -> None:
        submission, number, _, sent_at = cast("SubmitTag", tag)
        submission.overdue.add(number)
        self._end_wait(submission, number)
        self._observer.not_taken(self.carrier.id, submission.claimed)
        self._counts.unanswered.inc()
        self._note_silence(sent_at)
        self._close_if_done(submission, why)

    def _note_silence(self, sent_at: float) -> None:
        now = self._loop.time()
        was_silent = self._circuit.is_silent
        self._circuit.silent(now, sent_at)
        if self._circuit.is_silent and not was_silent:
            _log.warning("carrier does not answer", bind=self.name, unanswered=self._circuit.unanswered)
        if any(self._held) and not self._circuit.is_healthy(now):
            self._give_back()

    def _end_wait(self, submission: Submission, number: int) -> None:
        if number in submission.waiting:
            submission.waiting.discard(number)
            self._unanswered[submission.claimed.lane] -= 1

    def settled(self) -> None:
        if self._fault is not None:
            fault, self._fault = self._fault, None
            self.link.reset(fault)
        self._pump()
        self._room()

    def ended(self, unanswered: Sequence[object], problem: str) -> None:
        self._give_back()
        self._fault = None
        # A session that responded and fell is an accident. One without a response will fall silent again.
        silent = not self._has_answered or not self._circuit.is_healthy(self._loop.time())
        for tag in unanswered:
            submission, number, _, sent_at = cast("SubmitTag", tag)
            submission.overdue.add(number)
            self._end_wait(submission, number)
            if silent:
                self._note_silence(sent_at)
            self._close_if_done(submission, f"the line fell: {problem}")

    def close_left_open(self) -> None:
        """Close submissions to which nothing has happened for longer than a response can take.

        One may be queued while the lease is not renewed. Any other should have been closed; left open, it
        would keep its place of the lane and its message `sending`.
        """
        before = self._loop.time() - self.link.response_s - LEFT_OPEN_S
        for submission in [one for one in self.claimed.values() if one.touched_at < before]:
            if submission.in_line:
                self._lines[submission.claimed.lane].remove(submission)
                self._drop_from_line(submission)
            else:
                message = write_id(MESSAGE, submission.claimed.id)
                _log.error("submission left open", bind=self.name, message=message)
            submission.todo.clear()
            for number in tuple(submission.waiting):
                submission.overdue.add(number)
                self._end_wait(submission, number)
            self._close_if_done(submission, "its submission was left open")

    def _close_if_done(self, submission: Submission, doubt: str = NO_ANSWER) -> None:
        """Give the outcome of a message once no response to it is outstanding."""
        if submission.closed:
            return
        trouble = submission.refusal is not None or submission.retry is not None or bool(submission.overdue)
        if trouble and submission.in_line:
            # The rest of it goes no further.
            self._lines[submission.claimed.lane].remove(submission)
            self._drop_from_line(submission)
        if submission.waiting or submission.todo:
            return
        self._close(submission)
        outcome = final_outcome(submission, self.carrier, doubt)
        if isinstance(outcome, LeftInDoubt):
            self._counts.doubted.inc()
        if outcome is not None:
            self._put(outcome)

    def _close(self, submission: Submission) -> None:
        submission.closed = True
        self.claimed.pop(submission.claimed.id, None)

    def _put(self, outcome: Outcome, recipient: str = "") -> None:
        self._unrecorded += 1
        self._recorder.put(outcome, recipient, self)

    def recorded(self, count: int) -> None:
        self._unrecorded -= count
        self.settled()
