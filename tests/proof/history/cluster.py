"""A small cluster of processes that can be broken: two webs, two workers, PostgreSQL, a carrier, an endpoint.

Each has a network namespace of its own where that is allowed. PostgreSQL lives on a disk of its own and,
where there is a C compiler, on a machine whose clock and disk can go wrong (`machine.c`). Our processes are
forked from a process with the code loaded, so that a kill costs little more than the fork.
"""

import mmap
import os
import secrets
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import httpx

from tests.proof.history.record import SUFFIX
from tests.support.chaos.namespaces import DIRECTORY, Network, Place, open_network
from tests.support.postgres.databases import complete, open_directory
from tests.support.postgres.embedded import quick_directory
from tests.support.postgres.standby import Server
from tests.support.processes.forked_commands import ROOT, ForkedProcess, start_forked
from tests.support.processes.programs import environment
from tests.support.processes.service import NO_TLS, Caller, new_caller
from tumira.delivery.manage_carriers import add_carrier
from tumira.postgres.embedded.files import server_user
from tumira.postgres.pool import Database
from tumira.webhooks.manage import add_endpoint

WEBS: Final = ("web1", "web2")
WORKERS: Final = ("worker1", "worker2")
DATABASE: Final = "database"
CARRIER: Final = "carrier"
ENDPOINT: Final = "endpoint"
# What a caller sees of a cluster.
PLACES: Final = (*WEBS, *WORKERS, DATABASE, CARRIER, ENDPOINT)

PATIENCE_S: Final = 60.0
DISK_MB: Final = 700
BALANCE: Final = "10000.0000"
RATE: Final = 60

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
    # Empty where nothing can go wrong, because there is no compiler or no disk of its own.
    prefix: Sequence[str]
    has_own_disk: bool

    def set(
        self, *, clock_s: int = 0, flush_s: float = 0.0, write_s: float = 0.0, lies: bool = False
    ) -> None:
        assert self.prefix
        self.controls.set(clock_s * 1_000_000, int(flush_s * 1e6), int(write_s * 1e6), int(lies))


@dataclass(frozen=True, slots=True)
class Cluster:
    home: Path
    histories: Path
    network: Network
    machine: Machine
    server: Server
    parts: "dict[str, Part]"
    bases: Mapping[str, str]
    lie: Controls
    clocks: Mapping[str, Controls]
    customer: Caller
    limited: Caller
    began: float = field(default_factory=time.monotonic)

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {what}", flush=True)

    def revive(self) -> None:
        """Start what has ended, as the service manager of a node does."""
        if not self.server.is_running:
            self.server.kill()
            self.server.start()
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
def run_cluster(histories: Path, twins: Sequence[str] = ()) -> Iterator[Cluster]:
    """Run all of it, ready for calls; `twins` are mistakes of `changes.py` for all processes of ours.

    To be called from the main thread: PostgreSQL dies with the thread that starts it.
    """
    with ExitStack() as stack:
        home = stack.enter_context(open_directory("tumira-history-", quick_directory()))
        network = stack.enter_context(open_network(PLACES))
        machine = stack.enter_context(_machine(home))
        place = network[DATABASE]
        prefix = (*place.prefix, *machine.prefix)
        password = secrets.token_urlsafe()
        server = Server(machine.disk, DATABASE, place.address, place.free_port(), prefix, password)
        stack.callback(server.kill)
        server.make()
        server.configure(max_wal_size="96MB")
        server.execute("CHECKPOINT")
        for path in machine.undo.iterdir():
            path.unlink()
        ports = {name: network[name].free_port() for name in PLACES}
        customer, limited = complete(_set_up(server.local_url, network, ports))
        lie = Controls(home / "lie", "B")
        clocks = {name: Controls(home / f"{name}.clock", "q") for name in (*WEBS, *WORKERS)}
        parts: dict[str, Part] = {}
        cluster = Cluster(
            home=home,
            histories=histories,
            network=network,
            machine=machine,
            server=server,
            parts=parts,
            bases={name: f"http://{network[name].address}:{ports[name]}" for name in WEBS},
            lie=lie,
            clocks=clocks,
            customer=customer,
            limited=limited,
        )
        settings = environment(
            database_url=server.url,
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
    for path in (disk, undo):
        path.mkdir(mode=0o755)
    user = server_user()
    if user.switched:
        os.chown(undo, user.uid, user.gid)
    controls = Controls(home / "controls", "4q")
    options = f"size={DISK_MB}m,mode=0755"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=False, capture_output=True
    )
    has_own_disk = mounted.returncode == 0
    try:
        words: Sequence[str] = ()
        if has_own_disk and shutil.which("gcc"):
            variables = {
                "LD_PRELOAD": _compile(home),
                "FAULTS_CONTROLS": controls.path,
                "FAULTS_DISK": disk,
                "FAULTS_UNDO": undo,
            }
            words = ("env", *(f"{name}={value}" for name, value in variables.items()))
        yield Machine(disk, controls, undo, words, has_own_disk)
    finally:
        if has_own_disk:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _compile(home: Path) -> Path:
    library = home / "machine.so"
    source = Path(__file__).with_name("machine.c")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(source)],
        check=True,
        timeout=60,
    )
    library.chmod(0o755)
    return library


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
