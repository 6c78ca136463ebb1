"""A whole node under load: `tumira serve` on a fresh database, and the processor time of its parts."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.load.peers import CarrierPeer
from tests.load.processor import database_cpu_s, node_cpu_s, process_cpu_s
from tests.support.postgres.databases import clone
from tests.support.processes.ports import free_port
from tests.support.processes.service import Caller, Service, wait_until_ready
from tumira.carriers.manage import add_carrier, add_http_carrier, new_access
from tumira.core.ids import EndpointId
from tumira.webhooks.manage import add_endpoint

READY_S: Final = 30.0
STOP_S: Final = 60.0
DELIVERED: Final = ("message.delivered",)

# Seconds of processor time, by role.
Used = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Stack:
    """A running node with a carrier."""

    service: Service
    postmaster: int
    simulator: "subprocess.Popen[bytes] | None"

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.service.base.removeprefix("http://").split(":")
        return host, int(port)

    def cpu_s(self) -> Used:
        used = {**node_cpu_s(self.service.process.pid), "PostgreSQL": database_cpu_s(self.postmaster)}
        # It only starts the others.
        used.pop("serve", None)
        if self.simulator is not None:
            used["simulator"] = process_cpu_s(self.simulator.pid)
        return used

    def written(self) -> tuple[int, int]:
        """Return how many octets of log were written so far, and how large the database is."""
        row = self.service.sql(
            "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, "
            "pg_database_size(current_database())"
        )[0]
        return row[0], row[1]

    def open_account(self) -> Caller:
        """Open an account that may send anything."""
        return self.service.open_account(balance="100000000", rate=1_000_000)

    def add_endpoint(self, caller: Caller, port: int) -> EndpointId:
        """Add a webhook endpoint on this machine for what is delivered."""
        url = f"http://127.0.0.1:{port}/"
        endpoint, _ = self.service.run(add_endpoint, caller.id, url, DELIVERED, "", allow_private=True)
        return EndpointId(endpoint.id)

    def use_carrier(self, port: int, window: int, tps: int = 0) -> None:
        """Bind to a carrier on this machine, in place of the one before."""
        url = f"smpp://bench:secret@127.0.0.1:{port}?window={window}&tps={tps}"
        self.service.run(add_carrier, "bench", url, None, 100)

    def use_http_carrier(self, port: int, window: int) -> None:
        """Hand messages to a carrier over HTTP on this machine."""
        options = {"user": "bench", "window": str(window), "tps": "0"}
        access = new_access("bulksms", f"http://127.0.0.1:{port}/v1", options, {"password": "secret"})
        self.service.run(add_http_carrier, "bench", access, None, 100)

    def change_window(self, carrier: CarrierPeer, window: int) -> None:
        """Bind again with another window, and wait for that."""
        binds = carrier.counts()["binds"]
        self.use_carrier(carrier.port, window)
        carrier.wait_for(binds + 1, "binds")


class Meter:
    """Measures how much processor time each part uses from now on."""

    def __init__(self, *sources: Callable[[], Used]) -> None:
        self._sources = sources
        self._before = self._read()

    def per_message(self, count: int, took_s: float, more: Used | None = None) -> str:
        """Return the microseconds for each of `count` messages, and the share of a core, of each part."""
        before = self._before
        used = {role: after - before.get(role, 0.0) for role, after in self._read().items()}
        used |= dict(more or {})
        return "  ".join(
            f"{role} {seconds / count * 1e6:.0f} µs {seconds / took_s:.0%}" for role, seconds in used.items()
        )

    def _read(self) -> Used:
        return {role: seconds for source in self._sources for role, seconds in source().items()}


@contextmanager
def run_stack(
    server_url: str,
    postmaster: int,
    *,
    port: int | None = None,
    window: int = 1000,
    tps: int = 0,
    over_http: bool = False,
) -> Iterator[Stack]:
    """Run a node on a fresh database, and a simulator unless a carrier listens on `port` already."""
    with ExitStack() as cleanup:
        url = cleanup.enter_context(clone(server_url))
        directory = cleanup.enter_context(tempfile.TemporaryDirectory())
        web_port = free_port()
        environment = {
            **os.environ,
            "TUMIRA_DATABASE_URL": url,
            "TUMIRA_DATA_DIR": directory,
            "TUMIRA_PORT": str(web_port),
            "TUMIRA_LOG_LEVEL": "error",
            "TUMIRA_WEBHOOKS_ALLOW_PRIVATE": "1",
        }
        simulator = None
        if port is None:
            port = free_port()
            command = ["simulator", "--quiet", "--port", str(port)]
            simulator = cleanup.enter_context(_run(command, environment, directory))
        process = cleanup.enter_context(_run(["serve"], environment, directory))
        base = f"http://127.0.0.1:{web_port}"
        wait_until_ready(base, process)
        stack = Stack(Service(base, url, process), postmaster, simulator)
        if over_http:
            stack.use_http_carrier(port, window)
        else:
            stack.use_carrier(port, window, tps)
        _wait_until_bound(stack.service)
        yield stack


@contextmanager
def _run(
    arguments: Sequence[str], environment: Mapping[str, str], directory: str
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a command of ours, and show what it printed if anything fails meanwhile."""
    output = Path(directory, f"{arguments[0]}.log")
    with output.open("wb") as handle:
        process = subprocess.Popen(
            [sys.executable, "-m", "tumira", *arguments], env=environment, stdout=handle, stderr=handle
        )
    try:
        yield process
    except BaseException:
        print(output.read_text(encoding="utf-8"), file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait(STOP_S)


def _wait_until_bound(service: Service) -> None:
    deadline = time.monotonic() + READY_S
    while not service.sql("SELECT FROM binds WHERE state = 'bound'"):
        assert time.monotonic() < deadline, "the worker did not bind"
        time.sleep(0.1)
