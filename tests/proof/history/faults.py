"""Faults of a cluster: each does its harm, heals it, and says in a few words what it was."""

import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import asyncpg

from tests.proof.history.changes import LEASE_S
from tests.proof.history.cluster import (
    CARRIER,
    DATABASE,
    DATABASE2,
    ENDPOINT,
    SMALL_WAL,
    WEBS,
    WORKERS,
    Cluster,
)
from tests.proof.history.peers import LIES, TRUTH
from tests.proof.history.power import take_back
from tests.proof.history.record import Recorder
from tests.support.chaos.namespaces import HUB

# The longest of them outlast a lease, so that others take over and the cut-off one comes back.
LONG_S: Final = LEASE_S + 2
GIVEN_UP_S: Final = 10.0
JUMP_S: Final = 30
FLUSH_S: Final = 0.3
WRITE_S: Final = 0.002
WAL_SEGMENTS: Final = 3

VICTIMS: Final = (*WEBS, *WORKERS, CARRIER, ENDPOINT, DATABASE)
# Every pair of parts that speak to each other; customers and the operator are where the test is. Nodes speak
# to each other by the database only, and the last pair shows that they miss nothing.
PAIRS: Final = (
    *((HUB, web) for web in WEBS),
    (HUB, DATABASE),
    *((web, DATABASE) for web in WEBS),
    *((worker, DATABASE) for worker in WORKERS),
    *((worker, CARRIER) for worker in WORKERS),
    *((worker, ENDPOINT) for worker in WORKERS),
    (WEBS[0], WORKERS[0]),
)
CALLERS: Final = "callers"
BOTH_WAYS: Final = "and"
ONE_WAY: Final = "to"

Fault = Callable[[Cluster, Recorder, random.Random], str]


@contextmanager
def crashing(recorder: Recorder) -> Iterator[None]:
    """Note that the database may crash within."""
    since = time.monotonic()
    yield
    recorder.note("crash", since=since)


def kill(cluster: Cluster, recorder: Recorder, chance: random.Random) -> str:
    """Kill a process, or all of a PostgreSQL, and start it again."""
    victim = chance.choice(list_victims(cluster))
    server = cluster.ground.servers.get(victim)
    if server is not None:
        with crashing(recorder):
            server.kill()
        server.start()
    else:
        cluster.parts[victim].kill()
        cluster.parts[victim].start()
    return victim


def list_victims(cluster: Cluster) -> Sequence[str]:
    return (*VICTIMS, DATABASE2) if cluster.ground.pair else VICTIMS


def stop(cluster: Cluster, _recorder: Recorder, chance: random.Random) -> str:
    """Stop a process where it is, and let it go on when others may have taken its work."""
    victim = cluster.draw("stop", list_victims(cluster), chance)
    server = cluster.ground.servers.get(victim)
    if server is not None:
        server.freeze()
    else:
        cluster.parts[victim].signal(signal.SIGSTOP)
    time.sleep(_choose_length(chance))
    if server is not None:
        server.thaw()
    else:
        cluster.parts[victim].signal(signal.SIGCONT)
    return victim


def _choose_length(chance: random.Random) -> float:
    """Return how long a part is away: for a moment, for longer than a lease, or until callers give up."""
    return GIVEN_UP_S if chance.random() < 0.2 else chance.uniform(0.2, LONG_S)


def cut(cluster: Cluster, _recorder: Recorder, chance: random.Random) -> str:
    """Let nothing through between two parts, or only one way, without a word to either."""
    near, way, far = cluster.draw("cut", list_lines(cluster), chance)
    network = cluster.network
    with network.apart(near, far) if way == BOTH_WAYS else network.unheard(near, far):
        time.sleep(_choose_length(chance))
    return " ".join(CALLERS if word == HUB else word for word in (near, way, far))


def list_lines(cluster: Cluster) -> Sequence[tuple[str, str, str]]:
    """Return what can be cut: both ways, and each way alone."""
    pairs = list(PAIRS)
    if cluster.ground.pair:
        pairs += [(near, DATABASE2) for near, far in PAIRS if far == DATABASE] + [(DATABASE, DATABASE2)]
    return [
        line
        for near, far in pairs
        for line in ((near, BOTH_WAYS, far), (near, ONE_WAY, far), (far, ONE_WAY, near))
    ]


def jump(cluster: Cluster, recorder: Recorder, chance: random.Random) -> str:
    """Set the clock of a node or of the primary half a minute wrong for a while."""
    victims = [*cluster.clocks, DATABASE] if cluster.machine.problem is None else [*cluster.clocks]
    jumps = [(victim, by_s) for victim in victims for by_s in (-JUMP_S, JUMP_S)]
    victim, by_s = cluster.draw("clock", jumps, chance)
    for shift_s, wait_s in ((by_s, chance.uniform(1, 4)), (0, 0)):
        if victim == DATABASE:
            recorder.note("clock", shift_s=shift_s)
            cluster.machine.set(clock_s=shift_s)
        else:
            cluster.clocks[victim].set(shift_s * 1_000_000)
        time.sleep(wait_s)
    return f"{victim} by {by_s:+} s"


def slow_disk(cluster: Cluster, _recorder: Recorder, chance: random.Random) -> str:
    """Let each flush and each write of the database's disk take its time."""
    cluster.machine.set(flush_s=FLUSH_S, write_s=WRITE_S)
    time.sleep(chance.uniform(1, 4))
    cluster.machine.set()
    return f"{FLUSH_S:g} s a flush"


def full_disk(cluster: Cluster, recorder: Recorder, chance: random.Random) -> str:
    """Fill the database's disk, and make room again."""
    ballast = cluster.machine.disk / "ballast"
    with crashing(recorder):
        # Without a buffer: closing the file would try to write what is left in it once more.
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        for _ in range(WAL_SEGMENTS):
            # So that the room inside PostgreSQL's own files is soon used up too.
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                cluster.server.execute("SELECT pg_switch_wal()")
        time.sleep(chance.uniform(1, 3))
        ballast.unlink()
    return "full"


def power(cluster: Cluster, recorder: Recorder, chance: random.Random) -> str:
    """Cut the power of a database's machine: writes that were not flushed are lost, or torn."""
    victim = chance.choice(list(cluster.ground.servers))
    if chance.random() < 0.5:
        # So that more waits for the disk at this moment.
        cluster.ground.machines[victim].set(flush_s=FLUSH_S)
        time.sleep(chance.uniform(0, 3 * FLUSH_S))
    lost = _cut_power(cluster, victim, recorder, chance)
    cluster.ground.servers[victim].start()
    return f"{victim}: {lost} writes lost"


def _cut_power(cluster: Cluster, victim: str, recorder: Recorder, chance: random.Random) -> int:
    server, machine = cluster.ground.servers[victim], cluster.ground.machines[victim]
    with crashing(recorder):
        server.kill()
    machine.set()
    return take_back(server.cluster, machine.undo, chance)


def lie(cluster: Cluster, _recorder: Recorder, chance: random.Random) -> str:
    """Let the carrier tell a lie for a while."""
    chosen = cluster.draw("lie", [one for one in LIES if one != TRUTH], chance)
    cluster.lie.set(list(LIES).index(chosen))
    time.sleep(chance.uniform(1, 3))
    cluster.lie.set(0)
    return chosen


def lose_flushes(cluster: Cluster, recorder: Recorder, chance: random.Random) -> str:
    """Let the disk forget what it said was flushed, and promote the standby.

    One server alone cannot get over this.
    """
    victim = cluster.server.name
    cluster.machine.set(lies=True)
    time.sleep(chance.uniform(1, 2))
    lost = _cut_power(cluster, victim, recorder, chance)
    if cluster.ground.pair:
        _promote(cluster)
    else:
        cluster.server.start()
    return f"{victim}: {lost} writes lost"


def fail_over(cluster: Cluster, recorder: Recorder, chance: random.Random) -> str:
    """Lose the primary's machine, or stop it where it is, and promote the standby."""
    victim = cluster.server
    how = cluster.draw("fail-over", ["killed", "stopped"], chance)
    with crashing(recorder):
        if how == "killed":
            victim.kill()
        else:
            victim.freeze()
        time.sleep(chance.uniform(0, LONG_S))
        _promote(cluster)
    return how


def _promote(cluster: Cluster) -> None:
    """Promote the standby, and make the old primary its standby."""
    pair = cluster.ground.pair
    assert pair is not None
    pair.promote()
    pair.rebuild()
    pair.standby.configure(**SMALL_WAL)
    cluster.ground.machines[pair.standby.name].forget_undo()


FAULTS: Final[dict[str, Fault]] = {
    "kill": kill,
    "stop": stop,
    "cut": cut,
    "clock": jump,
    "slow-disk": slow_disk,
    "full-disk": full_disk,
    "power": power,
    "lie": lie,
}
# With a standby only. On one server a lost flush is tried to show that the checks notice.
PAIR_FAULTS: Final[dict[str, Fault]] = {"fail-over": fail_over, "lost-flush": lose_flushes}
LOSSES: Final = frozenset({"power", "lost-flush", "fail-over"})


def find_obstacles(cluster: Cluster, kinds: Sequence[str]) -> Mapping[str, str]:
    """Return the kinds of faults that cannot be tried on this machine, with why."""
    causes = {
        "cut": None if cluster.network.isolated else cluster.network.told,
        "full-disk": cluster.machine.disk_problem,
        "slow-disk": cluster.machine.problem,
        "power": cluster.machine.problem,
        "lost-flush": cluster.machine.problem,
        "fail-over": None if cluster.ground.pair else "there is no standby",
    }
    found = {kind: causes.get(kind) for kind in kinds}
    if "clock" in kinds:
        # The clocks of the nodes can always be moved.
        found[f"clock of the {DATABASE}"] = cluster.machine.problem
    return {kind: why for kind, why in found.items() if why is not None}
