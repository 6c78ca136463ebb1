"""One run: a database, two or three workers, carriers and receivers, faults, and then peace."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from random import Random
from ssl import PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any, Final
from unittest.mock import patch

import msgspec

from tests.proof.simulation.carrier import Carrier, Mood
from tests.proof.simulation.clock import virtual_clocks
from tests.proof.simulation.database import START, START_S, Server
from tests.proof.simulation.loop import Process, SimulationStuckError, VirtualLoop
from tests.proof.simulation.network import SimulatedNetwork
from tests.proof.simulation.receiver import Receiver
from tests.proof.simulation.template import RECEIVERS, Template
from tests.proof.simulation.trace import Trace
from tests.support.processes.service import Caller
from tests.support.sending.batchers import send_call
from tumira.api.schemas import write_sent
from tumira.carriers.manage import add_carrier
from tumira.core import backoff
from tumira.delivery import circuit_breaker, dispatcher, supervisor
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.supervisor import CarrierTerms, Supervisor
from tumira.operations import maintenance
from tumira.postgres.notify import Waker
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.sending.batcher import Batcher
from tumira.sending.types import Answered
from tumira.webhooks import health
from tumira.webhooks import worker as webhook_worker
from tumira.webhooks.worker import WebhookWorker

# Waits of the engine, shorter than its defaults so that a run sees more of them.
TIMING: Final = SmppTimeouts(
    bind_s=5, response_s=5, quiet_s=2, enquire_after_s=4, enquire_answer_s=3, late_s=60, unbind_s=1
)
# How often the engine looks when nothing wakes it: less often than in the product, so that a run is short.
SLOWER: Final = (
    (supervisor, "BEAT_S", 2.5),
    (dispatcher, "LOOK_S", 1.0),
    (webhook_worker, "POLL_S", 1.0),
)
# Waits that last for minutes, and counts that a short run would not reach.
SMALLER: Final = (
    (health, "RETRY_WAITS", tuple(timedelta(seconds=min(16, 2**place)) for place in range(10))),
    (health, "BACKOFF", timedelta(seconds=10)),
    (backoff, "_RETRY_WAITS_S", (1.0, 3.0, 8.0)),
    (backoff, "_RECONNECT_WAIT_MAX_S", 8.0),
    (circuit_breaker, "REFUSALS_MAX", 4),
    (circuit_breaker, "UNANSWERED_MAX", 3),
    (circuit_breaker, "OPEN_MAX_S", 10.0),
    (circuit_breaker, "PROBE_WAIT_S", 15.0),
)
# The maintenance of the engine, and how often.
TASKS: Final = {
    "resume due messages": 2.0,
    "try unmatched receipts": 3.0,
    "take over from dead workers": 3.0,
    "adopt orphans": 10.0,
    "fail what has no route": 5.0,
    "expire waiting messages": 10.0,
}
# Each plans its statements anew, which is most of what a run costs.
CONNECTIONS_MAX: Final = 3
# How likely a fault hits a worker soon after a send.
AMBUSH: Final = 0.3
CALM_S: Final = 300.0
LOOK_S: Final = 2.0
LONG_TEXT: Final = "Your parcel waits at the counter of the shop. " * 5
SHORT_TEXT: Final = "Your code is 493817."

SQL_WAITING: Final = """
SELECT (SELECT count(*) FROM sim.queue) + (SELECT count(*) FROM sim.in_flight)
       + (SELECT count(*) FROM sim.retries)
"""
# In seconds of the loop. A carrier may name a number without its plus.
SQL_LAST_TRY: Final = f"""
SELECT coalesce(max(extract(epoch FROM next_try_at - timestamptz '{START.isoformat()}')), 0) + {START_S}
  FROM sim.unmatched_receipts u
  JOIN sim.messages m ON right(m.recipient, 9) = right(u.recipient, 9)
 WHERE m.status = 'sent'
"""
SQL_EVENTS: Final = "SELECT coalesce(sum(last), 0) FROM sim.event_counters"


@dataclass(slots=True)
class Sent:
    """A send that was answered, and to whom."""

    account: Caller
    batch_id: str
    numbers: Sequence[str]
    cost: str


@dataclass(slots=True)
class World:
    seed: int
    chance: Random
    loop: VirtualLoop
    network: SimulatedNetwork
    server: Server
    url: str
    template: Template
    carriers: list[Carrier] = field(default_factory=list)
    receivers: list[Receiver] = field(default_factory=list)
    sends: list[Sent] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    workers: list[tuple[Process, "asyncio.Task[Any]"]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    started: int = 0
    is_calm: bool = False

    def note(self, what: str) -> None:
        self.loop.trace.note(self.loop.now_s, what)

    def fault(self, kind: str, what: str = "") -> None:
        self.faults[kind] += 1
        self.note(f"fault: {kind} {what}")

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        self.loop.at(delay_s, action)

    # Workers.

    def start_worker(self) -> None:
        self.started += 1
        process = Process(f"w{self.started}", self.chance.choice((0.0, 0.0, -30.0, 30.0, 7.0)))
        self.note(f"start {process.name}")
        self.workers.append((process, self.loop.spawn(process, lambda: _work(self.url, process.name))))

    def pick_worker(self) -> tuple[Process, "asyncio.Task[Any]"] | None:
        able = [one for one in self.workers if not one[0].is_frozen]
        return self.chance.choice(able) if able else None

    def kill_worker(self) -> None:
        found = self.pick_worker()
        if found is not None:
            self.workers.remove(found)
            self.fault("kill", found[0].name)
            self.loop.kill(found[0])
            self.later(self.chance.uniform(0.0, 4.0), self.start_worker)

    def freeze_worker(self, lasts_s: Sequence[float] = (0.5, 3.0, 8.0, 16.0, 25.0)) -> None:
        found = self.pick_worker()
        if found is not None:
            process = found[0]
            self.fault("freeze", process.name)
            self.loop.freeze(process)
            self.later(self.chance.choice(lasts_s), lambda: self._thaw(process))

    def _thaw(self, process: Process) -> None:
        self.note(f"thaw {process.name}")
        self.loop.thaw(process)

    def stop_worker(self) -> None:
        found = self.pick_worker()
        if found is not None:
            self.workers.remove(found)
            self.fault("stop", found[0].name)
            self.loop.call_soon(found[1].cancel)
            self.later(self.chance.uniform(0.0, 4.0), self.start_worker)

    # The network and the database.

    def break_connection(self) -> None:
        ends = [end for end in self.network.ends if end.address not in RECEIVERS]
        if ends:
            end = self.chance.choice(ends)
            self.fault("break", str(end.address))
            self.network.break_connection(end)

    def cut_off_carrier(self) -> None:
        carrier = self.chance.choice(self.carriers)
        self.fault("cut off", carrier.name)
        self.network.cut_off(carrier.address, self.chance.choice((0.5, 2.0, 6.0, 15.0)))

    def take_carrier_away(self) -> None:
        carrier = self.chance.choice(self.carriers)
        self.fault("carrier away", carrier.name)
        carrier.close()
        self.later(self.chance.uniform(0.5, 10.0), carrier.open)

    def break_session(self) -> None:
        sessions = [one for one in self.server.sessions if one.process is not None]
        if sessions:
            session = self.chance.choice(sessions)
            self.fault("break database", session.name)
            session.break_off(carried_out=self.chance.random() < 0.5)

    def slow_database(self) -> None:
        self.fault("slow database")
        self.server.slow_s = self.chance.choice((0.02, 0.2))
        self.later(self.chance.uniform(0.5, 2.0), self._quicken_database)

    def _quicken_database(self) -> None:
        self.server.slow_s = 0.0

    # Peers.

    def change_mood(self) -> None:
        carrier = self.chance.choice(self.carriers)
        carrier.mood = _choose_mood(self.chance)
        self.fault("carrier mood", carrier.name)

    def spoil_receiver(self) -> None:
        receiver = self.chance.choice(self.receivers)
        kind = self.chance.choice(("fails", "hangs", "breaks", "away"))
        self.fault(f"receiver {kind}", receiver.name)
        if kind == "away":
            receiver.close()
            self.later(self.chance.uniform(0.5, 6.0), receiver.open)
        else:
            setattr(receiver, kind, self.chance.choice((0.3, 1.0)))

    def calm_down(self) -> None:
        self.is_calm = True
        self.note("calm")
        self.network.heal()
        self.server.slow_s = 0.0
        for carrier in self.carriers:
            carrier.mood = Mood()
            carrier.open()
        for receiver in self.receivers:
            receiver.fails = receiver.hangs = receiver.breaks = 0.0
            receiver.open()

    # Sends.

    async def send(self, batcher: Batcher, waker: Waker, numbers: Sequence[str], body: str) -> None:
        caller = self.chance.choice(self.template.callers)
        decision = await batcher.ask(send_call(caller, numbers, body))
        if not isinstance(decision, Answered):
            self.problems.append(f"a send was not taken: {decision}")
            return
        told = msgspec.json.decode(decision.response)
        self.sends.append(Sent(caller, told["batch_id"], numbers, told["total_cost"]))
        self.note(f"accepted {len(numbers)}")
        if self.chance.random() < 0.9:
            waker.wake()
        if not self.is_calm and self.chance.random() < AMBUSH:
            # A worker that has just claimed has the most to lose, and its leases end while it is frozen.
            freeze = partial(self.freeze_worker, (16.0, 25.0))
            ambush = self.chance.choice((self.kill_worker, freeze, freeze))
            self.later(self.chance.uniform(0.02, 0.5), ambush)


FAULTS: Final[Sequence[Callable[[World], None]]] = (
    World.kill_worker,
    World.freeze_worker,
    World.stop_worker,
    World.break_connection,
    World.cut_off_carrier,
    World.take_carrier_away,
    World.break_session,
    World.slow_database,
    World.change_mood,
    World.change_mood,
    World.spoil_receiver,
)


def _choose_mood(chance: Random) -> Mood:
    """Return a carrier with a few misbehaviours."""
    mood = Mood(undelivered=chance.choice((0.0, 0.2, 1.0)))
    kinds = (
        "throttles",
        "fails",
        "refuses",
        "silent",
        "late",
        "breaks",
        "loses",
        "answers_twice",
        "reports_first",
        "reports_twice",
        "contradicts",
        "reports_strangers",
        "refuses_binds",
    )
    for kind in chance.sample(kinds, chance.randrange(5)):
        setattr(mood, kind, chance.choice((0.1, 0.3, 0.6)))
    return mood


async def _work(url: str, name: str) -> None:
    """Run the parts of a worker that deliver messages and events."""
    database = Database(url, connections_max=CONNECTIONS_MAX, settings=KEY_LOOKUPS)
    database.name_sessions(name)
    try:
        async with asyncio.TaskGroup() as group:
            notifier = WebhookWorker(
                database,
                name,
                allow_private=True,
                resolve=_resolve,
                tls=SSLContext(PROTOCOL_TLS_CLIENT),
                clock=database.clock.now,
            )
            group.create_task(notifier.run())
            group.create_task(Supervisor(database, name, CarrierTerms(smpp=TIMING)).run())
            for task in maintenance.MAINTENANCE_TASKS:
                if task.name in TASKS:
                    slower = replace(task, every_s=TASKS[task.name])
                    group.create_task(maintenance._repeat(database, slower))
    finally:
        await database.close()


async def _resolve(host: str, port: int) -> Sequence[str]:
    raise AssertionError(f"{host}:{port} is no address")


async def _live(world: World) -> None:
    """Let the world happen, from the first carrier to the last event."""
    chance = world.chance
    web = Process("web")
    ready: asyncio.Future[tuple[Batcher, Waker]] = world.loop.create_future()
    world.loop.spawn(web, lambda: _open_web(world, ready))
    batcher, waker = await ready
    for receiver in world.receivers:
        receiver.open()
    for carrier in world.carriers:
        carrier.open()
        carrier.mood = _choose_mood(chance)
    for _ in range(chance.choice((1, 2, 2, 3))):
        world.later(chance.uniform(0.0, 1.0), world.start_worker)
    trouble_s = chance.uniform(10.0, 30.0)
    numbers = iter(f"+2637712{place:05}" for place in range(1000, 2000))
    others = iter(f"+2782123{place:04}" for place in range(1000, 2000))
    for _ in range(chance.randrange(3, 9)):
        to = [next(others) if chance.random() < 0.3 else next(numbers) for _ in range(chance.randrange(1, 7))]
        body = chance.choice((SHORT_TEXT, SHORT_TEXT, LONG_TEXT))
        at_s = chance.uniform(0.0, trouble_s)
        world.loop.at(at_s, world.loop.spawn, web, partial(world.send, batcher, waker, to, body))
    for _ in range(chance.randrange(2, 14)):
        fault = chance.choice(FAULTS)
        world.later(chance.uniform(1.0, trouble_s), partial(fault, world))
    await asyncio.sleep(trouble_s + 1.0)
    world.calm_down()
    await _settle(world)
    await _end(world, web)


async def _open_web(world: World, ready: "asyncio.Future[tuple[Batcher, Waker]]") -> None:
    database = Database(world.url)
    for carrier in world.carriers:
        in_doubt = world.chance.choice(("resend", "resend", "hold"))
        query = (
            f"window={carrier.window}&tps={carrier.tps}&doubt_wait={world.chance.choice((1, 3))}"
            f"&in_doubt={in_doubt}&binds={world.chance.choice((1, 1, 2))}"
        )
        host, port = carrier.address
        priority = world.chance.choice((100, 100, 200))
        await add_carrier(
            database, carrier.name, f"smpp://tester:secret@{host}:{port}?{query}", None, priority
        )
    ready.set_result((Batcher(database, write_sent), Waker(database)))


async def _settle(world: World) -> None:
    """Wait until nothing is left to do, and until receipts that came before their answer were tried again."""
    await _wait_until_quiet(world)
    last_try_s = float(world.server.ask(SQL_LAST_TRY))
    if last_try_s > world.loop.now_s:
        await asyncio.sleep(last_try_s - world.loop.now_s + 2 * TASKS["try unmatched receipts"])
        await _wait_until_quiet(world)


async def _wait_until_quiet(world: World) -> None:
    """Wait until nothing is left to do, which must be soon once faults have stopped."""
    ends_at = world.loop.now_s + CALM_S
    quiet = 0
    while quiet < 2:
        await asyncio.sleep(LOOK_S)
        left = _find_left(world)
        quiet = 0 if left else quiet + 1
        if world.loop.now_s > ends_at:
            world.problems.append(f"not at an end {CALM_S:g} s after the last fault: {left}")
            return


def _find_left(world: World) -> str | None:
    waiting = world.server.ask(SQL_WAITING)
    if waiting != "0":
        return f"{waiting} messages wait"
    for carrier in world.carriers:
        if not all(receipt.is_done for receipt in carrier.receipts):
            return f"{carrier.name} has receipts that are not acknowledged"
    told = sum(len({call.sequence for call in one.calls if call.is_accepted}) for one in world.receivers)
    events = int(world.server.ask(SQL_EVENTS))
    return None if told >= events else f"{told} of {events} events were taken"


async def _end(world: World, web: Process) -> None:
    """Stop the workers in good order, or at once."""
    if world.chance.random() < 0.3:
        for process, task in world.workers:
            if process.is_alive and not process.is_frozen:
                world.loop.call_soon(task.cancel)
        await asyncio.sleep(20.0)
    for process, _ in world.workers:
        world.loop.kill(process)
    world.loop.kill(web)
    await asyncio.sleep(1.0)


def run_world(template: Template, name: str, seed: int, *, is_kept: bool = False) -> World:
    """Run a seed on a clone of the template."""
    chance = Random(f"world {seed}")
    trace = Trace(is_kept=is_kept)
    loop = VirtualLoop(Random(f"loop {seed}"), trace)
    network = SimulatedNetwork(loop, Random(f"network {seed}"))
    server = Server(template.socket_path, name, template.user, Random(f"database {seed}"), template.types)
    loop.network, loop.database = network, server
    world = World(seed, chance, loop, network, server, template.url_of(name), template)
    for place in range(chance.choice((1, 2, 2))):
        carrier = Carrier(
            f"carrier{place + 1}",
            (f"198.51.100.{20 + place}", 2775),
            network,
            Random(f"carrier {place} {seed}"),
            window=chance.choice((1, 4, 16)),
            tps=chance.choice((0, 2, 10)),
            response_s=TIMING.response_s,
        )
        world.carriers.append(carrier)
    for place, address in enumerate(RECEIVERS):
        secret = template.secrets[place]
        world.receivers.append(
            Receiver(f"receiver{place + 1}", address, secret, network, Random(f"receiver {place} {seed}"))
        )
    with ExitStack() as stack:
        stack.callback(server.close)
        stack.enter_context(virtual_clocks(loop, seed))
        for module, constant, value in (*SLOWER, *SMALLER):
            stack.enter_context(patch.object(module, constant, value))
        main = loop.create_task(_live(world))
        try:
            loop.run_until_complete(main)
        except SimulationStuckError as error:
            world.problems.append(str(error))
        world.problems.extend(loop.problems)
        loop.bury()
    return world
