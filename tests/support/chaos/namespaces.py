"""Network namespaces, whose connections can be cut.

with open_network(["web", "database"]) as network:
    print(network.told)
    run([*network["web"].prefix, "tumira", "web"], TUMIRA_HOST=network["web"].address)
    with network.apart("web", "database"):
        ...                 # packets between these two vanish, without a word to either

Namespaces need root and Debian's iproute2. All of them hang on a bridge in one more, the hub, which the
calling thread enters meanwhile, with all threads and processes that it starts there: nothing is added to the
machine's own network. Without namespaces the nodes live on loopback, where no line can be cut.
"""

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.processes import ports

NAMES: Final = "tumira"
HUB: Final = "hub"
NODES_MAX: Final = 200
COMMAND_S: Final = 30
# Where `ip` keeps the names of namespaces.
DIRECTORY: Final = Path("/run/netns")
# As <linux/sched.h> has it.
CLONE_NEWNET: Final = 0x40000000
# Locally administered, and nobody's: what is sent there reaches nobody.
NOWHERE: Final = "02:00:00:00:00:01"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one node lives: its address, and the command that runs another there."""

    name: str
    address: str
    prefix: Sequence[str] = ()

    def free_port(self) -> int:
        """Return a port that nobody listens on; in a namespace, where we are alone, it is always the same."""
        if self.prefix:
            return 8000
        return ports.free_port(self.address)


class Network:
    """The places of a test, by name."""

    def __init__(self, places: Sequence[Place], told: str, *, isolated: bool) -> None:
        self.isolated = isolated
        # In words, for whoever reads what the test printed.
        self.told = told
        self._places: Mapping[str, Place] = {place.name: place for place in places}

    def __getitem__(self, name: str) -> Place:
        return self._places[name]

    @contextmanager
    def apart(self, one: str, other: str) -> Iterator[None]:
        with self.unheard(one, other), self.unheard(other, one):
            yield

    @contextmanager
    def unheard(self, near: str, far: str) -> Iterator[None]:
        """Let nothing of the near one reach the far one, which it still hears."""
        assert self.isolated, "on loopback no line can be cut"
        namespace, address = _namespace(near), self[far].address
        device = "bridge" if near == HUB else "eth0"
        try:
            _ip(
                *("-n", namespace, "neigh", "replace", address),
                *("lladdr", NOWHERE, "dev", device, "nud", "permanent"),
            )
            yield
        finally:
            _ip("-n", namespace, "neigh", "del", address, "dev", device)


@contextmanager
def open_network(names: Sequence[str], *, loopback: bool = False) -> Iterator[Network]:
    """Give each name a place: a namespace where that is allowed, unless loopback is asked for."""
    assert len(names) <= NODES_MAX
    with ExitStack() as stack:
        problem = "as asked" if loopback else _problem()
        if problem is None:
            yield stack.enter_context(_namespaces(names))
            return
        places = [Place(name, f"{_loopback_net()}.{number}") for number, name in enumerate(names, start=2)]
        yield Network(places, f"nodes on loopback addresses ({problem}): no line is cut", isolated=False)


def _problem() -> str | None:
    if shutil.which("ip") is None:
        return "there is no `ip`: install iproute2"
    probe = _namespace("probe")
    try:
        _ip("netns", "add", probe)
        try:
            _ip("-n", probe, "link", "add", "probe", "type", "bridge")
            _ip("-n", probe, "link", "add", "near", "type", "veth", "peer", "name", "far")
            _ip("netns", "exec", probe, "true")
        finally:
            _ip("netns", "del", probe)
    except subprocess.CalledProcessError as error:
        return f"namespaces are not allowed: {error.stderr.strip()}"
    return None


def _loopback_net() -> str:
    """Return the first three numbers of addresses that other runs at the same time do not use."""
    high, low = divmod(os.getpid() % 60_000, 250)
    return f"127.{high + 1}.{low}"


@contextmanager
def _namespaces(names: Sequence[str]) -> Iterator[Network]:
    remove_leftovers()
    places = [
        Place(name, f"10.77.0.{number}", ("ip", "netns", "exec", _namespace(name)))
        for number, name in enumerate(names, start=2)
    ]
    hub = _namespace(HUB)
    with ExitStack() as stack:
        stack.enter_context(_namespace_of(hub))
        _ip("-n", hub, "link", "set", "lo", "up")
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "address", "add", "10.77.0.1/24", "dev", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for number, place in enumerate(places):
            own = _namespace(place.name)
            stack.enter_context(_namespace_of(own))
            _ip(
                *("-n", hub, "link", "add", f"node{number}", "type", "veth"),
                *("peer", "name", "eth0", "netns", own),
            )
            _ip("-n", hub, "link", "set", f"node{number}", "master", "bridge", "up")
            _ip("-n", own, "address", "add", f"{place.address}/24", "dev", "eth0")
            _ip("-n", own, "link", "set", "lo", "up")
            _ip("-n", own, "link", "set", "eth0", "up")
        stack.enter_context(_entered(DIRECTORY / hub))
        # Where the test itself is.
        here = Place(HUB, "10.77.0.1")
        yield Network([*places, here], "each node in a network namespace of its own", isolated=True)


@contextmanager
def _namespace_of(name: str) -> Iterator[None]:
    _ip("netns", "add", name)
    try:
        yield
    finally:
        _ip("netns", "del", name)


@contextmanager
def _entered(namespace: Path) -> Iterator[None]:
    with Path("/proc/thread-self/ns/net").open("rb") as own, namespace.open("rb") as other:
        _enter(other.fileno())
        try:
            yield
        finally:
            _enter(own.fileno())


def enter(namespace: Path) -> None:
    """Move the calling thread to a namespace."""
    with namespace.open("rb") as other:
        _enter(other.fileno())


def _enter(handle: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(handle, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def remove_leftovers() -> None:
    """Remove the namespaces of test processes that died, and end what still runs in them."""
    for path in DIRECTORY.glob(f"{NAMES}-*-*") if DIRECTORY.is_dir() else ():
        owner = path.name.split("-")[1]
        if owner.isdecimal() and (int(owner) == os.getpid() or not Path(f"/proc/{owner}").exists()):
            for pid in _ip("netns", "pids", path.name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _ip("netns", "del", path.name)


def _namespace(name: str) -> str:
    return f"{NAMES}-{os.getpid()}-{name}"


def _ip(*words: str) -> str:
    return subprocess.run(
        ["ip", *words], check=True, capture_output=True, text=True, timeout=COMMAND_S
    ).stdout
