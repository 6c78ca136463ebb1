"""How do calls share transactions? What arrives while one group commits becomes the next group.

No call waits for company: a lone call is a group of one. No call stalls or fails another:

- an account that somebody else holds is skipped, and its calls come again with a later group; after a
  second a few of them wait on connections of their own, and after five all are answered 503;
- when a group fails on its data, each half of it is tried by itself, down to the call that is at fault;
- when the line breaks, or the commit takes five seconds because the server or its standby is silent, the
  group's calls are answered 503 and the next group opens a new one.

An answer that is repeated waits for the standby as the first one did: that one may have been cut short.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Final

import structlog
from structlog.contextvars import get_contextvars

from tumira.core.database_errors import is_partition_missing, is_unavailable
from tumira.core.errors import InternalError, Refusal, ServiceUnavailable
from tumira.postgres.notify import Waker
from tumira.postgres.pinned_connection import PinnedConnection, make_sure
from tumira.postgres.pool import BUSY, Database
from tumira.pricing.quote import SendRequest
from tumira.sending.admit import Rulebook, admit_alone, admit_free
from tumira.sending.decide import SMALL_SEND_MAX
from tumira.sending.large import send_large
from tumira.sending.types import Answered, Call, Decision, Large, Refused, Render

GROUP_MAX: Final = 64
GROUP_RECIPIENTS_MAX: Final = 500
WAITING_MAX: Final = 5_000
PATIENCE_S: Final = 1.0
GIVE_UP_S: Final = 5.0
LOCK_WAIT_MS: Final = 4_000
# For what is written on a connection of its own, with all that it waits for.
ALONE_S: Final = 10.0
# So few that the pool keeps connections for everybody else.
ALONE_MAX: Final = 4
PAUSE_S: Final = 0.005
# A worker looks every minute whether a partition is missing.
PARTITION_RETRY_S: Final = 10
IDLE_S: Final = 0.25
# A call takes two turns of the event loop from its socket to the gate.
QUIET_TURNS: Final = 2

_log: Final = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Waiting:
    call: Call
    answer: "asyncio.Future[Decision]"
    since: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    # In which its request has a name.
    context: Context = field(default_factory=copy_context)

    def resolve(self, decision: Decision) -> None:
        # The caller may have hung up while we worked.
        if not self.answer.done():
            self.answer.set_result(decision)


class Gate:
    """Lets calls in, a group at a time."""

    def __init__(self, database: Database, render: Render) -> None:
        self._database = database
        self._render = render
        self._rulebook = Rulebook()
        self._waiting: deque[_Waiting] = deque()
        self._asked = 0
        self._arrived = asyncio.Event()
        self._line = PinnedConnection(database, GIVE_UP_S)
        self._waker = Waker(database)
        self._loop: asyncio.Task[None] | None = None
        self._alone: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Return how many calls wait for their answer."""
        return self._asked

    async def ask(self, call: Call) -> Decision:
        """Return what was decided about a call; a live send is on disk by then."""
        if self._loop is None:
            # Not in the caller's context: what is logged for a group belongs to no one call.
            self._loop = asyncio.create_task(self._run(), context=Context())
        if len(self._waiting) >= WAITING_MAX:
            return Refused(ServiceUnavailable(retry_after_s=1), None)
        waiting = _Waiting(call, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._arrived.set()
        self._asked += 1
        try:
            decision = await waiting.answer
            return await self._send_large(decision) if isinstance(decision, Large) else decision
        finally:
            self._asked -= 1

    async def close(self) -> None:
        """Stop; to be called when nobody waits for an answer any more."""
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        self._line.terminate()
        self._waker.close()

    async def _run(self) -> None:
        while True:
            await self._wait_for_calls()
            await self._let_in()
            group = self._next_group()
            try:
                await self._admit(group)
            except Exception as error:  # noqa: BLE001 - the gate stays open, and nobody without an answer
                self._line.terminate()
                refusal = _refusal(error, group)
                for waiting in group:
                    waiting.resolve(Refused(refusal, None))

    async def _wait_for_calls(self) -> None:
        """Wait for calls; with none for a moment, the transaction that was begun for them is let go."""
        try:
            async with asyncio.timeout(IDLE_S):
                await self._arrived.wait()
        except TimeoutError:
            try:
                await self._line.let_go()
            except Exception as error:  # noqa: BLE001 - the next group opens a new line
                await self._line.roll_back(error)
            await self._arrived.wait()

    async def _let_in(self) -> None:
        """Let calls join whose bytes this process already has; nobody waits for the clock."""
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
        try:
            decisions = await self._transact(group)
        except Exception as error:  # noqa: BLE001 - whatever happened, no caller is left without an answer
            await self._line.roll_back(error)
            # Calls that write nothing go through without a partition.
            everybody = is_unavailable(error) and not is_partition_missing(error)
            if everybody or len(group) == 1:
                refusal = _refusal(error, group)
                for waiting in group:
                    waiting.resolve(Refused(refusal, None))
            else:
                _log.warning(
                    "group failed, its halves are tried", error=repr(error), request_ids=_names(group)
                )
                middle = len(group) // 2
                await self._admit(group[:middle])
                await self._admit(group[middle:])
            return
        self._hand_out(group, decisions)
        if all(decision is None for decision in decisions):
            # Everybody here waits for somebody else's lock: let the holder get on.
            await asyncio.sleep(PAUSE_S)

    def _hand_out(self, group: Sequence[_Waiting], decisions: Sequence[Decision | None]) -> None:
        now = asyncio.get_running_loop().time()
        for waiting, decision in zip(group, decisions, strict=True):
            if decision is not None:
                waiting.resolve(decision)
            elif now - waiting.since > GIVE_UP_S:
                waiting.resolve(Refused(ServiceUnavailable(retry_after_s=1), None))
            elif now - waiting.since > PATIENCE_S and len(self._alone) < ALONE_MAX:
                self._try_alone(waiting)
            else:
                # Behind the others: calls of one locked account must not fill every group.
                self._waiting.append(waiting)
                self._arrived.set()

    async def _transact(self, group: Sequence[_Waiting]) -> Sequence[Decision | None]:
        connection = await self._line.begin()
        decisions = await admit_free(
            connection, self._rulebook, self._render, [waiting.call for waiting in group]
        )
        # A lost window entry costs nobody anything: a group that accepted nothing need not wait for the disk.
        durable = any(isinstance(decision, Answered) for decision in decisions)
        await self._line.commit(durable=durable)
        if durable:
            self._waker.wake()
        return decisions

    def _try_alone(self, waiting: _Waiting) -> None:
        task = asyncio.create_task(self._admit_alone(waiting))
        self._alone.add(task)
        task.add_done_callback(self._alone.discard)

    async def _admit_alone(self, waiting: _Waiting) -> None:
        try:
            async with asyncio.timeout(ALONE_S), self._database.transaction() as connection:
                await connection.execute(f"SET LOCAL lock_timeout = {LOCK_WAIT_MS}")
                decision = await admit_alone(connection, self._rulebook, self._render, waiting.call)
        except Exception as error:  # noqa: BLE001 - a call that cannot be decided is answered, not dropped
            decision = Refused(_refusal(error, [waiting]), None)
        waiting.resolve(decision)
        self._waker.wake()

    async def _send_large(self, large: Large) -> Answered | Refused:
        try:
            async with asyncio.timeout(ALONE_S):
                answer = await send_large(self._database, large, self._render)
                if isinstance(answer, Answered) and answer.replayed:
                    await make_sure(self._database)
        except Exception as error:  # noqa: BLE001 - as above
            return Refused(_refusal(error, ()), large.quota)
        self._waker.wake()
        return answer


def _refusal(error: Exception, group: Sequence[_Waiting]) -> Refusal:
    """Say to whom it was that calls failed; a call outside of any group has its name in the line already."""
    names = {"request_ids": _names(group)} if group else {}
    if is_partition_missing(error):
        _log.error("no partition for this week; is a worker running?", error=repr(error), **names)
        return ServiceUnavailable(retry_after_s=PARTITION_RETRY_S)
    if is_unavailable(error) or isinstance(error, BUSY):
        _log.warning("call not admitted", error=repr(error), **names)
        return ServiceUnavailable(retry_after_s=1)
    _log.error("call failed", exc_info=error, **names)
    return InternalError()


def _names(group: Sequence[_Waiting]) -> Sequence[str]:
    """Return the ids of the requests that a group of calls came with."""
    return [waiting.context.run(get_contextvars).get("request_id", "") for waiting in group]


def _recipients(call: Call) -> int:
    """Return how many rows a call may add to its group; a large send adds none, it is written alone."""
    request = call.send.request if call.send is not None else None
    return len(request.to) if isinstance(request, SendRequest) and len(request.to) <= SMALL_SEND_MAX else 1
