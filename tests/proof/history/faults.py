"""Faults of a cluster: each does its harm, heals it, and says in a few words what it was."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import asyncpg

from tests.proof.history.changes import LEASE_S
from tests.proof.history.cluster import CARRIER, DATABASE, ENDPOINT, WEBS, WORKERS, Cluster
from tests.proof.history.peers import LIES, TRUTH
from tests.proof.history.power import take_back
from tests.proof.history.record import Recorder
from tests.support.chaos.namespaces import HUB

# The longest of them outlast a lease, so that others take over and the cut-off one comes back.
LONG_S: Final = LEASE_S + 2
JUMP_S: Final = 30
FLUSH_S: Final = 0.3
WRITE_S: Final = 0.002
WAL_SEGMENTS: Final = 3

VICTIMS: Final = (*WEBS, *WORKERS, CARRIER, ENDPOINT, DATABASE)
# Every pair of parts that may speak to each other; callers are where the test is. Nodes speak to each other
# by the database only, and the last pair shows that they miss nothing.
PAIRS: Final = (
    *((web, DATABASE) for web in WEBS),
    *((worker, DATABASE) for worker in WORKERS),
    *((worker, CARRIER) for worker in WORKERS),
    *((worker, ENDPOINT) for worker in WORKERS),
    (WEBS[0], WORKERS[0]),
)

Fault = Callable[[Cluster, Recorder, random.Random], str]


@contextmanager
def crashing(recorder: Recorder) -> Iterator[None]:
    """Note that the database may crash within."""
    since = time.monotonic()
    yield
    recorder.note("crash", since=since)


def kill(cluster: Cluster, recorder: Recorder, chance: random.Random) -> str:
    """Kill a process, or all of PostgreSQL, and start it again."""
    victim = chance.choice(VICTIMS)
    if victim == DATABASE:
        with crashing(recorder):
            cluster.server.kill()
        cluster.server.start()
    else:
        cluster.parts[victim].kill()
        cluster.parts[victim].start()
    return victim


def stop(cluster: Cluster, _recorder: Recorder, chance: random.Random) -> str:
    """Stop a process where it is, and let it go on when others may have taken its work."""
    victim = chance.choice(VICTIMS)
    if victim == DATABASE:
        cluster.server.freeze()
    else:
        cluster.parts[victim].signal(signal.SIGSTOP)
    time.sleep(chance.uniform(0.2, LONG_S))
    if victim == DATABASE:
        cluster.server.thaw()
    else:
        cluster.parts[victim].signal(signal.SIGCONT)
    return victim


def cut(cluster: Cluster, _recorder: Recorder, chance: random.Random) -> str:
    """Let nothing through between two parts, or only one way, without a word to either."""
    if chance.random() < 0.15:
        # The answer is lost on its way to the caller.
        near, far = chance.choice(WEBS), HUB
        line = cluster.network.unheard(near, far)
    else:
        near, far = chance.choice(PAIRS)
        if chance.random() < 0.5:
            near, far = far, near
        one_way = chance.random() < 0.5
        line = cluster.network.unheard(near, far) if one_way else cluster.network.apart(near, far)
    with line:
        time.sleep(chance.uniform(0.5, LONG_S))
    return f"{near} to {far}"


def jump(cluster: Cluster, recorder: Recorder, chance: random.Random) -> str:
    """Set the clock of a node or of the database half a minute wrong for a while."""
    victim = chance.choice([*cluster.clocks, DATABASE] if cluster.machine.prefix else [*cluster.clocks])
    by_s = chance.choice([-JUMP_S, JUMP_S])
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
    """Cut the power of the database's machine: writes that were not flushed are lost, or torn."""
    if chance.random() < 0.5:
        # So that more waits for the disk at this moment.
        cluster.machine.set(flush_s=FLUSH_S)
        time.sleep(chance.uniform(0, 3 * FLUSH_S))
    with crashing(recorder):
        cluster.server.kill()
    return _start_again(cluster, chance)


def _start_again(cluster: Cluster, chance: random.Random) -> str:
    cluster.machine.set()
    lost = take_back(cluster.server.cluster, cluster.machine.undo, chance)
    cluster.server.start()
    return f"{lost} writes lost"


def lie(cluster: Cluster, _recorder: Recorder, chance: random.Random) -> str:
    """Let the carrier tell a lie for a while."""
    chosen = chance.choice([one for one in LIES if one != TRUTH])
    cluster.lie.set(list(LIES).index(chosen))
    time.sleep(chance.uniform(1, 3))
    cluster.lie.set(0)
    return chosen


def lose_flushes(cluster: Cluster, recorder: Recorder, chance: random.Random) -> str:
    """Let the disk forget what it said was flushed, which one server alone cannot get over."""
    cluster.machine.set(lies=True)
    time.sleep(chance.uniform(1, 2))
    with crashing(recorder):
        cluster.server.kill()
    return _start_again(cluster, chance)


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
# Those that no product gets over on one server: they are tried to show that the checks notice.
HOPELESS: Final[dict[str, Fault]] = {"lost-flush": lose_flushes}


def find_obstacle(cluster: Cluster, kind: str) -> str | None:
    """Return why a fault cannot be tried on this machine, if so."""
    if kind == "cut" and not cluster.network.isolated:
        return "network namespaces need root and iproute2"
    if kind == "full-disk" and not cluster.machine.has_own_disk:
        return "a disk of its own needs root"
    if kind in {"slow-disk", "power", "lost-flush"} and not cluster.machine.prefix:
        return "a disk of its own needs root, and a C compiler"
    return None
