"""Web nodes that are restarted one after the other, without a failed call."""

import asyncio
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.chaos.balancers import run_balancer
from tests.support.chaos.node import until
from tests.support.postgres.databases import clone, execute
from tests.support.processes.callers import Callers
from tests.support.processes.ports import free_port
from tests.support.processes.programs import finish, start
from tests.support.processes.service import Service, new_caller, run_web, wait_until_ready

DRAIN_WAIT_S: Final = 2
LONG_WAIT_S: Final = 300
STOP_S: Final = 30


def lasting_port() -> int:
    """Return a port that nobody listens on, and that no connection is given while it is not listened on."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(lowest - 10_000, lowest), 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("there is no free port")


class Web:
    """A web node that is restarted on its port."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.port = lasting_port()
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        self.process = start(
            *("web", "--quiet"),
            stdout=subprocess.DEVNULL,
            database_url=self._url,
            port=self.port,
            log_level="error",
            trusted_proxies="127.0.0.1",
            drain_wait=DRAIN_WAIT_S,
        )
        try:
            wait_until_ready(f"http://127.0.0.1:{self.port}", self.process)
        except AssertionError:
            self.process.kill()
            raise AssertionError(finish(self.process).stderr) from None

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        self.process.terminate()
        done = finish(self.process)
        assert (done.returncode, done.stderr) == (0, "")


@contextmanager
def two_webs(url: str) -> Iterator[tuple[Web, Web]]:
    first, second = Web(url), Web(url)
    try:
        yield first, second
    finally:
        for web in (first, second):
            if web.process.poll() is None:
                web.stop()


@pytest.mark.parametrize(
    ("name", "restarts"),
    [
        pytest.param("haproxy", 2, marks=pytest.mark.long),
        pytest.param("nginx", 2, marks=pytest.mark.long),
    ],
)
def test_not_one_call_fails_while_web_nodes_are_restarted_one_after_the_other(
    database_url: str, tmp_path: Path, name: str, restarts: int
) -> None:
    caller = asyncio.run(new_caller(database_url, "10000", 1_000_000))
    with two_webs(database_url) as webs, run_balancer(name, [web.port for web in webs], tmp_path) as balancer:
        balancer.wait_until_used(2)
        callers = Callers(balancer.base, caller.key)
        with callers.calling():
            callers.wait_for_more()
            for web in webs[:restarts]:
                web.restart()
                balancer.wait_until_used(2)
                callers.wait_for_more()

    assert callers.failed == []
    accepted = execute(database_url, "SELECT count(*) FROM batches")[0][0]
    print(f"{name}: {accepted} calls while nodes were restarted, none failed")
    assert callers.statuses == {202: accepted}


def ready(service: Service) -> tuple[int, str]:
    answer = httpx.get(f"{service.base}/readyz", trust_env=False)
    return answer.status_code, answer.json()["status"]


def test_a_node_that_drains_says_so_and_serves_until_it_is_asked_again(server_url: str) -> None:
    with clone(server_url) as url, run_web(url, TUMIRA_DRAIN_WAIT=str(LONG_WAIT_S)) as service:
        caller = service.open_account()
        assert ready(service) == (200, "ready")
        service.process.send_signal(signal.SIGTERM)
        until(lambda: ready(service) == (503, "draining"), "it does not say so")

        assert httpx.get(f"{service.base}/healthz", trust_env=False).status_code == 200
        answered = [service.send(caller) for _ in range(3)]
        assert [answer.status_code for answer in answered] == [202, 202, 202]
        # Whoever keeps connections is sent elsewhere for the next call.
        until(lambda: service.send(caller).headers.get("connection") == "close", "it keeps connections")
        # For longer than it takes to make the headers of all answers anew.
        deadline = time.monotonic() + 1.2
        while time.monotonic() < deadline:
            assert service.send(caller).headers["connection"] == "close"

        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(STOP_S) == 0
        with pytest.raises(httpx.TransportError):
            ready(service)


def test_a_stop_while_a_node_starts_is_not_waited_for(database_url: str) -> None:
    for pause_s in (0.3, 0.9):
        node = start("web", database_url=database_url, port=free_port(), drain_wait=LONG_WAIT_S)
        time.sleep(pause_s)
        # What began to serve just before is asked twice.
        node.terminate()
        time.sleep(0.5)
        node.terminate()
        done = finish(node)
        # Before it handles signals, the first one ends it, and nothing was begun.
        assert done.returncode in {0, -signal.SIGTERM}, done
        assert done.stderr == ""


@pytest.mark.long
def test_serve_passes_the_second_signal_on(database_url: str) -> None:
    node = start("serve", database_url=database_url, port=free_port(), drain_wait=LONG_WAIT_S)
    assert node.stdout is not None
    said = iter(node.stdout.readline, b"")
    next(line for line in said if b"Press Ctrl-C to stop." in line)
    node.send_signal(signal.SIGINT)
    assert node.stderr is not None
    # A task that ended before the signal may have been logged.
    next(line for line in iter(node.stderr.readline, b"") if line.decode() == "Stopping …\n")
    time.sleep(0.3)
    assert node.poll() is None
    node.send_signal(signal.SIGINT)
    done = finish(node)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "Stopped.")
