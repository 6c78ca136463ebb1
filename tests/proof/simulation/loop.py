"""An event loop with virtual time, on which several simulated processes run.

Time stands still while callbacks run and while the database works, and jumps to the next timer when nothing
is ready. Callbacks run in the order in which asyncio promises to run them; what is not promised is left to
the seed: how late a timer is, how long the network and the database take.
"""

import asyncio
import heapq
from asyncio import base_events, events
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from tests.proof.simulation.trace import Trace

Result = TypeVar("Result")

# A timer fires a little late, as on a busy machine.
LATE_MAX_S: Final = 0.002
# More callbacks than any run needs.
TURNS_MAX: Final = 3_000_000


class SimulationStuckError(Exception):
    """Nothing is left that could ever happen, or far too much has."""


class Process:
    """A simulated process: the callbacks and connections that die and freeze together."""

    def __init__(self, name: str, skew_s: float = 0.0) -> None:
        self.name = name
        # By how much the wall clock of its machine is wrong.
        self.skew_s = skew_s
        self.is_alive = True
        self.is_frozen = False
        self.held: list[events.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.connections: list[Closable] = []


class Closable(Protocol):
    def died(self) -> None:
        """Close because the process is gone."""


# The process to which the running callback belongs; None for the world around them.
CURRENT: ContextVar[Process | None] = ContextVar("CURRENT", default=None)


class _Task(asyncio.Task):  # type: ignore[type-arg]
    """A task whose hash does not depend on where it lies in memory: sets of tasks have an order then."""

    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = cast("VirtualLoop", self.get_loop()).next_number()
        return self._number


class _Future(asyncio.Future):  # type: ignore[type-arg]
    _number = 0

    def __hash__(self) -> int:
        if not self._number:
            self._number = cast("VirtualLoop", self.get_loop()).next_number()
        return self._number


class Network(Protocol):
    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class DatabaseServer(Protocol):
    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


class VirtualLoop(base_events.BaseEventLoop):
    network: Network
    database: DatabaseServer
    _ready: deque[events.Handle]

    def __init__(self, chance: Random, trace: "Trace") -> None:
        super().__init__()
        self.chance = chance
        self.trace = trace
        self.now_s = 1_000.0
        self.turns = 0
        self._serial = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.problems: list[str] = []
        self._processes: list[Process] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_problem)

    def time(self) -> float:
        return self.now_s

    def next_number(self) -> int:
        self._serial += 1
        return self._serial

    # Processes.

    def spawn(self, process: Process, run: Callable[[], Any]) -> "asyncio.Task[Any]":
        """Start the main task of a process; what it starts belongs to the process too."""
        if process not in self._processes:
            self._processes.append(process)
        context = Context()
        context.run(CURRENT.set, process)
        task = self.create_task(run(), context=context)
        task.add_done_callback(lambda _: self._note_end(process, task))
        return task

    def _note_end(self, process: Process, task: "asyncio.Task[Any]") -> None:
        if not task.cancelled() and task.exception() is not None:
            self.problems.append(f"{process.name} ended: {task.exception()!r}")

    def kill(self, process: Process) -> None:
        """End a process at once: no callback of it runs again, and its connections are closed."""
        process.is_alive = False
        process.held.clear()
        connections, process.connections = process.connections, []
        for connection in connections:
            connection.died()

    def freeze(self, process: Process) -> None:
        process.is_frozen = True

    def thaw(self, process: Process) -> None:
        process.is_frozen = False
        held, process.held = process.held, []
        self._ready.extend(held)

    # What asyncio asks of a loop.

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        context = options.get("context")
        if context is not None and CURRENT not in context:
            context.run(CURRENT.set, CURRENT.get())
        process = CURRENT.get() if context is None else context.get(CURRENT)
        task = _Task(coroutine, loop=loop, **options)
        if process is not None:
            process.tasks.append(task)
            if len(process.tasks) % 500 == 0:
                process.tasks = [one for one in process.tasks if not one.done()]
        return task

    def create_future(self) -> "asyncio.Future[Any]":
        return _Future(loop=self)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        when = max(when, self.now_s) + self.chance.random() * LATE_MAX_S
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self.next_number(), timer))
        return timer

    def at(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Call back for the world, whatever happens to the process that asks for it."""
        self.at_time(self.now_s + delay_s, callback, *args)

    def at_time(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        timer = asyncio.TimerHandle(when, callback, args, self, _WORLD)
        heapq.heappush(self._timers, (when, self.next_number(), timer))

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it among the timers: it is passed over when its time comes."""

    def call_soon_threadsafe(self, *_arguments: Any, **_options: Any) -> Any:  # type: ignore[override]
        raise AssertionError("a thread is not simulated")

    def run_in_executor(self, *_arguments: Any, **_options: Any) -> Any:  # type: ignore[override]
        raise AssertionError("a thread is not simulated")

    def _run_once(self) -> None:
        while not self._ready:
            self._jump()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            process = cast("Any", handle)._context.get(CURRENT)
            if handle.cancelled() or (process is not None and not process.is_alive):
                continue
            if process is not None and process.is_frozen:
                process.held.append(handle)
                continue
            self.turns += 1
            handle._run()
        if self.turns > TURNS_MAX:
            raise SimulationStuckError("it does not end")

    def _jump(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise SimulationStuckError("nothing is left to happen")
        self.now_s = max(self.now_s, self._timers[0][0])
        while self._timers and self._timers[0][0] <= self.now_s:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled():
                self._ready.append(timer)

    def _note_problem(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.problems.append(f"{context.get('message')}: {error!r}")

    def _process_events(self, _events: object) -> None:
        raise AssertionError("there is no selector")

    def _write_to_self(self) -> None:
        pass

    # Connections.

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_options: Any
    ) -> tuple[asyncio.Transport, Any]:
        return await self.network.connect(protocol_factory, host, port)

    async def create_unix_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], _path: str, **_options: Any
    ) -> tuple[asyncio.Transport, Any]:
        return await self.database.connect(protocol_factory)

    def bury(self) -> None:
        """Close the loop over tasks that have not ended: nothing of them may run any more."""
        for process in self._processes:
            for task in process.tasks:
                cast("Any", task)._log_destroy_pending = False
        self._ready.clear()
        self._timers.clear()
        self.close()


_WORLD: Final = Context()
