"""The network namespaces that the cluster tests use."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.chaos.namespaces import DIRECTORY, NAMES, Place, open_network, remove_leftovers
from tests.support.processes.programs import CHECKOUT, descendants, environment, wait_until_gone

# Opens a network, starts something in it, says so, and waits to be killed.
DIES: Final = """
import subprocess, sys
from tests.support.chaos.namespaces import open_network
with open_network(["node"]) as network:
    subprocess.Popen([*network["node"].prefix, "sleep", "600"])
    print(flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _allowed() -> None:
    with open_network([]) as network:
        if not network.isolated:
            pytest.skip(network.told)


def namespaces_of(pid: int) -> list[str]:
    return [path.name for path in DIRECTORY.glob(f"{NAMES}-{pid}-*")]


@contextmanager
def listening(place: Place) -> Iterator[int]:
    port = place.free_port()
    address = (place.address, port)
    program = f"import socket; s = socket.create_server({address}); print(flush=True); s.accept()"
    command = [*place.prefix, sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield port
        finally:
            process.kill()


def reach(near: Place, far: Place, port: int) -> str:
    program = f"import socket; socket.create_connection(('{far.address}', {port}), timeout=1)"
    done = subprocess.run(
        [*near.prefix, sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    return "reached" if done.returncode == 0 else done.stderr.splitlines()[-1]


def test_a_cut_line_swallows_everything_and_others_go_on() -> None:
    with (
        open_network(["one", "other", "third"]) as network,
        listening(network["other"]) as port,
        network.apart("one", "other"),
    ):
        assert "timed out" in reach(network["one"], network["other"], port)
        assert "refused" in reach(network["one"], network["third"], port)
        assert reach(network["third"], network["other"], port) == "reached"


def test_a_line_that_was_cut_works_again() -> None:
    with open_network(["one", "other"]) as network, listening(network["other"]) as port:
        with network.apart("one", "other"):
            pass
        assert reach(network["one"], network["other"], port) == "reached"


def own_network() -> str:
    return str(Path("/proc/thread-self/ns/net").readlink())


def fail_elsewhere(before: str) -> None:
    with open_network(["node"]):
        assert own_network() != before
        raise ZeroDivisionError


def test_nothing_is_left_behind_by_a_test_that_fails() -> None:
    before = own_network()
    with pytest.raises(ZeroDivisionError):
        fail_elsewhere(before)
    assert own_network() == before
    assert namespaces_of(os.getpid()) == []


def test_other_threads_stay_where_they_are() -> None:
    before = own_network()
    begin, seen = threading.Event(), list[str]()

    def look() -> None:
        assert begin.wait(10)
        seen.append(own_network())

    thread = threading.Thread(target=look)
    thread.start()
    with open_network(["node"]):
        begin.set()
        thread.join()
    assert seen == [before]


def test_what_a_test_left_that_was_killed_is_removed_with_its_processes() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DIES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=CHECKOUT,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (left,) = descendants(process.pid)
        remove_leftovers()
        assert namespaces_of(process.pid), "those of a living test are not touched"
        process.kill()
        process.wait()
    remove_leftovers()
    assert namespaces_of(process.pid) == []
    wait_until_gone([left])


def test_on_loopback_every_place_has_an_address_and_a_port() -> None:
    with open_network(["one", "other"], loopback=True) as network:
        assert not network.isolated
        for name in ("one", "other"):
            with socket.create_server((network[name].address, network[name].free_port())):
                pass
