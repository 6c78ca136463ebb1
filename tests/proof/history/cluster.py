"""A small cluster of processes that can be broken: two webs, two workers, PostgreSQL, a carrier, an endpoint.

Each has a network namespace of its own where that is allowed. PostgreSQL, alone or with a synchronous
standby, lives on a disk of its own and, where there is a C compiler, on a machine whose clock and disk can go
wrong (`machine.c`). Our processes are forked from a process with the code loaded, so that a kill costs little
more than the fork.
"""

import mmap
import os
import random
import secrets
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx

from tests.proof.history.record import SUFFIX
from tests.support.chaos.namespaces import DIRECTORY, Network, Place, open_network
from tests.support.postgres.databases import complete, open_directory
from tests.support.postgres.embedded import quick_directory
from tests.support.postgres.standby import DATABASE as NAME
from tests.support.postgres.standby import Pair, Server
from tests.support.processes.forked_commands import ROOT, ForkedProcess, start_forked
from tests.support.processes.programs import environment
from tests.support.processes.service import NO_TLS, Caller, new_caller
from tumira.carriers.manage import add_carrier
from tumira.postgres.embedded.files import server_user
from tumira.postgres.embedded.server import ROLE
from tumira.postgres.pool import Database
from tumira.webhooks.manage import add_endpoint

WEBS: Final = ("web1", "web2")
WORKERS: Final = ("worker1", "worker2")
DATABASE: Final = "database"
# The other server, if there is one; which of the two is the primary changes.
DATABASE2: Final = "database2"
CARRIER: Final = "carrier"
ENDPOINT: Final = "endpoint"
PLACES: Final = (*WEBS, *WORKERS, DATABASE, DATABASE2, CARRIER, ENDPOINT)

# A database as migrations make it.
EMPTY: Final = "empty"

PATIENCE_S: Final = 60.0
DISK_MB: Final = 700
# So that WAL fits on the disk.
SMALL_WAL: Final = {"max_wal_size": "96MB"}
BALANCE: Final = "10000.0000"
RATE: Final = 60

T = TypeVar("T")

_CHANGES: Final = "tests.proof.history.changes"
_PEERS: Final = "tests.proof.history.peers"


def until(what: Callable[[], object], why: str | Callable[[], str], wait_s: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + wait_s
    while not what():
        assert time.monotonic() < deadline, why() if callable(why) else why
        time.sleep(0.02)


class Controls:
    """Numbers in a file that other processes see at once."""

    def __init__(self, path: Path, layout: str) -> None:
        self.path = path
        self._layout = struct.Struct(layout)
        path.write_bytes(bytes(self._layout.size))
        path.chmod(0o644)
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self._layout.size)

    def set(self, *values: int) -> None:
        self._layout.pack_into(self._memory, 0, *values)


class Part:
    """A process of ours that is forked, and forked again after its death."""

    def __init__(
        self, words: Sequence[str], log: Path, variables: Mapping[str, str], changes: Sequence[str]
    ) -> None:
        self._words = words
        self._log = log
        self._variables = variables
        self._changes = changes
        self.process: ForkedProcess
        self.start()

    def start(self) -> None:
        with Path(os.devnull).open("rb") as nothing, self._log.open("ab") as log:
            handles = (nothing.fileno(), log.fileno(), log.fileno())
            self.process = start_forked(self._words, self._variables, str(ROOT), handles, self._changes)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where PostgreSQL runs: the faults of clock and disk, and what a power cut would take back."""

    disk: Path
    controls: Controls
    undo: Path
    prefix: Sequence[str]
    # Why it has no disk of its own, and why its clock and disk cannot go wrong; None if they can.
    disk_problem: str | None
    problem: str | None

    def forget_undo(self) -> None:
        for path in self.undo.iterdir():
            path.unlink()

    def set(
        self, *, clock_s: int = 0, flush_s: float = 0.0, write_s: float = 0.0, lies: bool = False
    ) -> None:
        assert self.problem is None, self.problem
        self.controls.set(clock_s * 1_000_000, int(flush_s * 1e6), int(write_s * 1e6), int(lies))


@dataclass(frozen=True, slots=True)
class Ground:
    """Network, machines and PostgreSQL, for one cluster after another."""

    home: Path
    network: Network
    machines: Mapping[str, Machine]
    servers: Mapping[str, Server]
    pair: Pair | None

    @property
    def server(self) -> Server:
        """The primary."""
        return self.servers[DATABASE] if self.pair is None else self.pair.primary

    @property
    def machine(self) -> Machine:
        return self.machines[self.server.name]

    @property
    def url(self) -> str:
        return self.server.url if self.pair is None else self.pair.url

    def renew(self) -> None:
        """Make the database empty again."""
        self.server.execute(f"DROP DATABASE {NAME} WITH (FORCE)")
        self.server.execute(f"CREATE DATABASE {NAME} OWNER {ROLE} TEMPLATE {EMPTY}")


@dataclass(frozen=True, slots=True)
class Cluster:
    ground: Ground
    histories: Path
    parts: "dict[str, Part]"
    bases: Mapping[str, str]
    lie: Controls
    clocks: Mapping[str, Controls]
    customer: Caller
    limited: Caller
    began: float = field(default_factory=time.monotonic)
    _left: "dict[str, list[Any]]" = field(default_factory=dict)

    def draw(self, what: str, choices: Sequence[T], chance: random.Random) -> T:
        """Choose by chance, and none again before all others had their turn."""
        left: list[T] = self._left.setdefault(what, [])
        if not left:
            left.extend(chance.sample(choices, len(choices)))
        return left.pop()

    @property
    def network(self) -> Network:
        return self.ground.network

    @property
    def server(self) -> Server:
        return self.ground.server

    @property
    def machine(self) -> Machine:
        return self.ground.machine

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    def revive(self) -> None:
        """Start what has ended, as the service manager of a node does."""
        for server in self.ground.servers.values():
            if not server.is_running:
                server.kill()
                server.start()
        for part in self.parts.values():
            if part.process.poll() is not None:
                part.start()

    def wait_until_ready(self) -> None:
        for name in WEBS:
            until(partial(self._is_ready, name), self.said)

    def said(self) -> str:
        return "\n".join(f"{name}: {part.said()}" for name, part in self.parts.items())

    def _is_ready(self, name: str) -> bool:
        self.revive()
        try:
            answer = httpx.get(f"{self.bases[name]}/readyz", timeout=5, trust_env=False, verify=NO_TLS)
        except httpx.TransportError:
            return False
        return answer.status_code == httpx.codes.OK


@contextmanager
def open_ground(*, standby: bool = False) -> Iterator[Ground]:
    """Run PostgreSQL, with a synchronous standby if asked for.

    To be called from the main thread: PostgreSQL dies with the thread that starts it.
    """
    with ExitStack() as stack:
        home = stack.enter_context(open_directory("tumira-history-", quick_directory()))
        network = stack.enter_context(open_network(PLACES))
        names = (DATABASE, DATABASE2) if standby else (DATABASE,)
        password = secrets.token_urlsafe()
        machines: dict[str, Machine] = {}
        servers: dict[str, Server] = {}
        for name in names:
            machine, place = stack.enter_context(_machine(home / name)), network[name]
            prefix = (*place.prefix, *machine.prefix)
            server = Server(machine.disk, name, place.address, place.free_port(), prefix, password)
            machines[name], servers[name] = machine, server
            stack.callback(server.kill)
        pair = Pair(servers[DATABASE], servers[DATABASE2], password) if standby else None
        ground = Ground(home, network, machines, servers, pair)
        servers[DATABASE].make()
        servers[DATABASE].execute(f"CREATE DATABASE {EMPTY} TEMPLATE {NAME}")
        if pair is not None:
            pair.rebuild()
        for server in servers.values():
            server.configure(**SMALL_WAL)
            server.execute("CHECKPOINT")
        for machine in machines.values():
            machine.forget_undo()
        yield ground


@contextmanager
def run_cluster(ground: Ground, histories: Path, twins: Sequence[str] = ()) -> Iterator[Cluster]:
    """Run all of it, ready for calls; `twins` are mistakes of `changes.py` for all processes of ours."""
    with ExitStack() as stack:
        home, network = ground.home, ground.network
        ports = {name: network[name].free_port() for name in PLACES}
        ground.renew()
        customer, limited = complete(_set_up(ground.server.local_url, network, ports))
        lie = Controls(home / "lie", "B")
        clocks = {name: Controls(home / f"{name}.clock", "q") for name in (*WEBS, *WORKERS)}
        parts: dict[str, Part] = {}
        cluster = Cluster(
            ground=ground,
            histories=histories,
            parts=parts,
            bases={name: f"http://{network[name].address}:{ports[name]}" for name in WEBS},
            lie=lie,
            clocks=clocks,
            customer=customer,
            limited=limited,
        )
        settings = environment(
            database_url=ground.url,
            data_dir=home / "data",
            log_level="warning",
            webhooks_allow_private=1,
        )
        for name in (CARRIER, ENDPOINT, *WEBS, *WORKERS):
            variables = _variables(network[name], ports[name])
            if name in (CARRIER, ENDPOINT):
                words: Sequence[str] = ()
                variables |= {"PROOF_FILE": str(histories / f"{name}{SUFFIX}"), "PROOF_LIE": str(lie.path)}
                changes = [f"{_CHANGES}:take_place", f"{_PEERS}:serve_{name}"]
            else:
                words = ("web" if name in WEBS else "worker", "--quiet")
                variables |= {"PROOF_CLOCK": str(clocks[name].path)}
                changes = [f"{_CHANGES}:{one}" for one in ("take_place", "hurry", *twins)]
            parts[name] = Part(words, home / f"{name}.log", settings | variables, changes)
            stack.callback(parts[name].kill)
        cluster.wait_until_ready()
        yield cluster


def _variables(place: Place, port: int) -> dict[str, str]:
    namespace = str(DIRECTORY / place.prefix[-1]) if place.prefix else ""
    return {
        "TUMIRA_HOST": place.address,
        "TUMIRA_PORT": str(port),
        "PROOF_NAMESPACE": namespace,
        "PROOF_ADDRESS": place.address,
        "PROOF_PORT": str(port),
    }


@contextmanager
def _machine(home: Path) -> Iterator[Machine]:
    """Give PostgreSQL a disk and, where there is a compiler, a clock and a disk that can go wrong."""
    disk, undo = home / "disk", home / "undo"
    for path in (home, disk, undo):
        path.mkdir(mode=0o755)
    user = server_user()
    if user.switched:
        os.chown(undo, user.uid, user.gid)
    controls = Controls(home / "controls", "4q")
    disk_problem = _mount(disk)
    try:
        problem: str | None = disk_problem
        words: Sequence[str] = ()
        if problem is None:
            library, problem = _compile(home)
            variables = {
                "LD_PRELOAD": library,
                "FAULTS_CONTROLS": controls.path,
                "FAULTS_DISK": disk,
                "FAULTS_UNDO": undo,
            }
            words = ("env", *(f"{name}={value}" for name, value in variables.items()))
        yield Machine(disk, controls, undo, words if problem is None else (), disk_problem, problem)
    finally:
        if disk_problem is None:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _mount(disk: Path) -> str | None:
    """Mount a small disk; return why there is none."""
    options = f"size={DISK_MB}m,mode=0755"
    done = _try("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk))
    if done is None:
        return None
    return f"a disk of its own cannot be mounted, which needs root: {done.rsplit(': ', 1)[-1]}"


def _compile(home: Path) -> tuple[Path, str | None]:
    """Compile the library of faults; return where it is, and why it cannot be used."""
    library = home / "machine.so"
    source = Path(__file__).with_name("machine.c")
    done = _try("gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o", str(library), str(source))
    if done is not None:
        return library, f"machine.c cannot be compiled, which needs gcc and the headers of libc: {done}"
    library.chmod(0o755)
    return library, None


def _try(*words: str) -> str | None:
    """Run a command, and return its complaint if it fails."""
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return f"there is no {words[0]}"
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip().splitlines()[0]
    return None


async def _set_up(url: str, network: Network, ports: Mapping[str, int]) -> tuple[Caller, Caller]:
    customer = await new_caller(url, BALANCE, 1_000_000)
    limited = await new_caller(url, BALANCE, RATE)
    database = Database(url, connections_max=1)
    carrier = f"smpp://proof:secret@{network[CARRIER].address}:{ports[CARRIER]}"
    await add_carrier(database, "proof", f"{carrier}?window=30&tps=0&binds=2&doubt_wait=1", None, 100)
    hook = f"http://{network[ENDPOINT].address}:{ports[ENDPOINT]}/{customer.account_id}"
    await add_endpoint(database, customer.id, hook, None, "", allow_private=True)
    await database.close()
    return customer, limited
