"""Group commit: calls share transactions. Calls that arrive while a group commits form the next group.

No call waits for others: a lone call is a group of one. No call delays or fails another:

- an account that another transaction has locked is skipped, and its calls are tried again in a later group;
  after a second a few of them wait on their own connections, and after five all are answered 503;
- when a group fails on its data, each half of it is tried alone, down to the call that is at fault;
- when the connection breaks, or the commit takes five seconds because the server or its standby is silent,
  the group's calls are answered 503 and the next group opens a new connection.

No call waits for the disk of an earlier group: a group commits without waiting, the next one begins, and the
flusher makes the log durable behind them. Only then are the sends of the group answered, also repeated
answers, because what they repeat may not be durable yet. While the disk is quick, a group that leaves no call
waiting waits for it itself if it is full or all of its sends are claimed at once; so does every group while
there is no flusher.

Small sends are claimed at once where a worker on this machine offers places (`sending.direct.claims`). Their
messages are passed on when they are durable, just before the callers are answered.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog

from tumira.content.near_line import NearLineRecorder
from tumira.core.database_errors import is_partition_missing, is_unavailable
from tumira.core.errors import InternalError, Refusal, ServiceUnavailable
from tumira.postgres.flusher import Flusher
from tumira.postgres.notify import Waker
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import BUSY, Database
from tumira.sending.admit import Rules, admit_alone, admit_unlocked
from tumira.sending.decide import SMALL_SEND_MAX
from tumira.sending.direct.claims import ClaimGroup, DirectClaims
from tumira.sending.large import send_large
from tumira.sending.types import Answered, Call, Decision, Large, Refused, Render, Send

GROUP_MAX: Final = 64
GROUP_RECIPIENTS_MAX: Final = 500
WAITING_MAX: Final = 5_000
PATIENCE_S: Final = 1.0
GIVE_UP_S: Final = 5.0
LOCK_WAIT_MS: Final = 4_000
# For a call that is written on its own connection, including its waits.
ALONE_S: Final = 10.0
# Few, so that the pool keeps connections for everything else.
ALONE_MAX: Final = 4
PAUSE_S: Final = 0.005
# A worker creates missing partitions every minute.
PARTITION_RETRY_S: Final = 10
IDLE_S: Final = 0.25
# From this many calls on, a round trip less is worth more than waking the workers a little earlier.
FULL_GROUP: Final = 8
# From here on, calls that arrive during a wait for the disk or the standby lose more than a round trip.
SLOW_DISK_S: Final = 0.002
# A call takes two iterations of the event loop from its socket to the batcher.
QUIET_TURNS: Final = 2

_log: Final = structlog.get_logger()

# Takes the decision about a call; it must not raise.
Answer = Callable[[Decision], None]


@dataclass(slots=True, eq=False)
class _Waiting:
    call: Call
    answer: Answer
    since: float


class Batcher:
    """Decides calls, a group at a time."""

    def __init__(self, database: Database, render: Render, claims: DirectClaims | None = None) -> None:
        self._database = database
        self._render = render
        self._claims = DirectClaims() if claims is None else claims
        self._rules = Rules()
        self._waiting: deque[_Waiting] = deque()
        self._asked = 0
        self._arrived = asyncio.Event()
        self._connection = PinnedConnection(database, GIVE_UP_S)
        self._flusher = Flusher(database, GIVE_UP_S)
        self._waker = Waker(database)
        self._near_line = NearLineRecorder(database)
        self._loop: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()
        self._large: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        return self._asked

    async def ask(self, call: Call) -> Decision:
        """Return what was decided about a call; a live send is on disk by then."""
        decided: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        # The caller may have disconnected meanwhile.
        self.submit(call, lambda decision: None if decided.done() else decided.set_result(decision))
        return await decided

    def submit(self, call: Call, answer: Answer) -> None:
        """Decide a call soon, and pass on what was decided; a live send is on disk by then."""
        if self._loop is None:
            # Not in the caller's context: the log of a group belongs to no single call.
            self._loop = asyncio.create_task(self._run(), context=Context())
        if len(self._waiting) >= WAITING_MAX:
            answer(Refused(ServiceUnavailable(retry_after_s=1), None))
            return
        self._waiting.append(_Waiting(call, answer, asyncio.get_running_loop().time()))
        self._arrived.set()
        self._asked += 1

    def _resolve(self, waiting: _Waiting, decision: Decision) -> None:
        if isinstance(decision, Large):
            _start(self._large, self._send_large(waiting, decision))
        else:
            self._asked -= 1
            waiting.answer(decision)
            if isinstance(decision, Answered) and decision.marked is not None:
                self._near_line.add(decision.marked)

    async def close(self) -> None:
        """Stop; call this when no call waits for an answer any more."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self._connection.terminate()
        self._flusher.close()
        self._waker.close()
        await self._near_line.close()

    async def _run(self) -> None:
        while True:
            await self._wait_for_calls()
            await self._gather_arrivals()
            group = self._next_group()
            try:
                await self._admit(group)
            except Exception as error:  # noqa: BLE001 - the loop goes on, and every call is answered
                self._connection.terminate()
                refusal = _refusal(error, group)
                for waiting in group:
                    self._resolve(waiting, Refused(refusal, None))

    async def _wait_for_calls(self) -> None:
        """Wait for calls; with none for a moment, end the transaction that was begun for them."""
        if self._waiting:
            return
        try:
            async with asyncio.timeout(IDLE_S):
                await self._arrived.wait()
        except TimeoutError:
            try:
                await self._connection.let_go()
            except Exception as error:  # noqa: BLE001 - the next group opens a new connection
                await self._connection.roll_back(error)
            await self._arrived.wait()

    async def _gather_arrivals(self) -> None:
        """Let calls join whose bytes this process has already received, without waiting for the clock."""
        seen, quiet = 0, 0
        while quiet < QUIET_TURNS and len(self._waiting) < GROUP_MAX:
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == seen else 0
            seen = len(self._waiting)

    def _next_group(self) -> Sequence[_Waiting]:
        group: list[_Waiting] = []
        recipients = 0
        while self._waiting and len(group) < GROUP_MAX and recipients < GROUP_RECIPIENTS_MAX:
            waiting = self._waiting.popleft()
            recipients += _recipients(waiting.call)
            group.append(waiting)
        if not self._waiting:
            self._arrived.clear()
        return group

    async def _admit(self, group: Sequence[_Waiting]) -> None:
        claims = self._claims.begin()
        try:
            decisions, ticket = await self._transact(group, claims)
        except Exception as error:  # noqa: BLE001 - every call is answered
            # What may have been claimed nevertheless is found by its worker.
            claims.cancel()
            await self._connection.roll_back(error)
            # Calls that write nothing succeed without a partition.
            affects_all = is_unavailable(error) and not is_partition_missing(error)
            if affects_all or len(group) == 1:
                refusal = _refusal(error, group)
                for waiting in group:
                    self._resolve(waiting, Refused(refusal, None))
            else:
                _log.warning(
                    "group of calls failed, retrying its halves",
                    error=repr(error),
                    request_ids=_request_ids(group),
                )
                middle = len(group) // 2
                await self._admit(group[:middle])
                await self._admit(group[middle:])
            return
        if ticket is None:
            claims.pass_on()
        self._hand_out(group, decisions, ticket, claims)
        if all(decision is None for decision in decisions):
            # Every account is locked by another transaction: give it time to finish.
            await asyncio.sleep(PAUSE_S)

    def _hand_out(
        self,
        group: Sequence[_Waiting],
        decisions: Sequence[Decision | None],
        ticket: int | None,
        claims: ClaimGroup,
    ) -> None:
        now = asyncio.get_running_loop().time()
        sends: list[tuple[_Waiting, Answered]] = []
        for waiting, decision in zip(group, decisions, strict=True):
            if isinstance(decision, Answered) and ticket is not None:
                sends.append((waiting, decision))
            elif decision is not None:
                self._resolve(waiting, decision)
            elif now - waiting.since > GIVE_UP_S:
                self._resolve(waiting, Refused(ServiceUnavailable(retry_after_s=1), None))
            elif now - waiting.since > PATIENCE_S and len(self._alone) < ALONE_MAX:
                _start(self._alone, self._admit_alone(waiting))
            else:
                # At the end of the queue: calls of one locked account must not fill every group.
                self._waiting.append(waiting)
                self._arrived.set()
        if ticket is not None:
            self._flusher.call_when_durable(ticket, partial(self._answer, sends, claims))

    def _answer(
        self, sends: Sequence[tuple[_Waiting, Answered]], claims: ClaimGroup, error: Exception | None
    ) -> None:
        """Pass on and answer sends that are durable, or refuse them if that is not known."""
        if error is None:
            claims.pass_on()
        else:
            claims.cancel()
        refused = None if error is None else Refused(_refusal(error, [waiting for waiting, _ in sends]), None)
        for waiting, decision in sends:
            self._resolve(waiting, refused or decision)

    async def _transact(
        self, group: Sequence[_Waiting], claims: ClaimGroup
    ) -> tuple[Sequence[Decision | None], int | None]:
        """Decide and commit a group; with a ticket its sends are answered when the flusher says so."""
        connection = await self._connection.begin()
        decisions = await admit_unlocked(
            connection, self._rules, self._render, [waiting.call for waiting in group], claims
        )
        # A lost rate-limit entry does no harm: a group that accepted nothing need not wait for the disk.
        accepted = any(isinstance(decision, Answered) for decision in decisions)
        # With no call waiting for the next group, a flush would only be one more round trip.
        is_useful = bool(self._waiting) or (len(group) < FULL_GROUP and not claims.are_all)
        behind = accepted and (is_useful or self._flusher.wait_s > SLOW_DISK_S)
        ticket = self._flusher.cover(self._connection) if behind else None
        if accepted and ticket is None:
            await self._flusher.commit_durably(self._connection)
        else:
            await self._connection.commit(durable=False)
        if claims.has_queued:
            # Before it is durable: a claim waits for the disk, and its commit follows this one in the log.
            self._waker.wake()
        return decisions, ticket

    async def _admit_alone(self, waiting: _Waiting) -> None:
        try:
            async with asyncio.timeout(ALONE_S), self._database.transaction() as connection:
                await connection.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                decision = await admit_alone(connection, self._rules, self._render, waiting.call)
        except Exception as error:  # noqa: BLE001 - every call is answered
            decision = Refused(_refusal(error, [waiting]), None)
        self._resolve(waiting, decision)
        self._waker.wake()

    async def _send_large(self, waiting: _Waiting, large: Large) -> None:
        answer: Answered | Refused
        try:
            async with asyncio.timeout(ALONE_S):
                answer = await send_large(self._database, large, self._render)
        except Exception as error:  # noqa: BLE001 - as above
            answer = Refused(_refusal(error, [waiting]), large.quota)
        self._resolve(waiting, answer)
        self._waker.wake()


def _start(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


def _refusal(error: Exception, group: Sequence[_Waiting]) -> Refusal:
    """Log a failure with the ids of its requests, and return the answer."""
    names = {"request_ids": _request_ids(group)}
    if is_partition_missing(error):
        _log.error("no partition for this week; is a worker running?", error=repr(error), **names)
        return ServiceUnavailable(retry_after_s=PARTITION_RETRY_S)
    if is_unavailable(error) or isinstance(error, BUSY):
        _log.warning("call refused, database unavailable or busy", error=repr(error), **names)
        return ServiceUnavailable(retry_after_s=1)
    _log.error("call failed", exc_info=error, **names)
    return InternalError()


def _request_ids(group: Sequence[_Waiting]) -> Sequence[str]:
    return [waiting.call.request_id for waiting in group]


def _recipients(call: Call) -> int:
    """Return how many messages a call may add to its group; a large send adds none, it is written alone."""
    recipients = len(call.send.request.to) if isinstance(call.send, Send) else 1
    return recipients if recipients <= SMALL_SEND_MAX else 1
