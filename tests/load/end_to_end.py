"""How fast is the whole way: HTTP, SMPP, receipt, final status and event in the database?"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg
import uvloop

from tests.load.generator import request
from tests.support.postgres import clone, execute
from tests.support.service import Caller, Service, free_port, run_web, _run
from tumira.actions.operate_carriers import add_carrier
from tumira.simulator.handsets import Text
from tumira.simulator.smsc import run_smsc

PATH: Final = "/api/v1/messages"
BODY: Final = "Your code is 493817. Do not share it with anyone, ever."
RECIPIENTS: Final = 1000
NUMBERS: Final = [f"+2637712{number:05}" for number in range(RECIPIENTS)]
WAIT_S: Final = 300.0
READY_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Stack:
    """A whole node, each part a process whose work is measured."""

    service: Service
    worker: "subprocess.Popen[bytes]"
    simulator: "subprocess.Popen[bytes] | None"
    postmaster: int

    def cpu_s(self) -> Mapping[str, float]:
        """Return the seconds of processor time that each part has used."""
        parts = {"web": self.service.process.pid, "worker": self.worker.pid}
        if self.simulator is not None:
            parts["simulator"] = self.simulator.pid
        return {name: _cpu_s(pid) for name, pid in parts.items()} | {"database": self._database_cpu_s()}

    def _database_cpu_s(self) -> float:
        children = Path(f"/proc/{self.postmaster}/task/{self.postmaster}/children").read_text().split()
        return sum(_cpu_s(int(pid)) for pid in children) + _cpu_s(self.postmaster, ended=True)


def _cpu_s(pid: int, *, ended: bool = False) -> float:
    """Return what a process has used, or with `ended` also its children that are gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    ticks = int(fields[11]) + int(fields[12]) + (int(fields[13]) + int(fields[14]) if ended else 0)
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def run_stack(server_url: str, postmaster: int, *, port: int | None = None, url_options: str = "") -> Iterator[Stack]:
    """Run web and worker on a fresh database, and a simulator unless a carrier listens on `port` already."""
    with clone(server_url) as url, tempfile.TemporaryDirectory() as directory, run_web(url) as service:
        carrier_port = port or free_port()
        options = url_options or "window=1000&tps=0"
        service.run(
            add_carrier, "bench", f"smpp://bench:secret@127.0.0.1:{carrier_port}?{options}", None, 100
        )
        environment = {
            **os.environ,
            "TUMIRA_DATABASE_URL": url,
            "TUMIRA_DATA_DIR": directory,
            "TUMIRA_LOG_LEVEL": "error",
        }
        processes = []
        try:
            if port is None:
                processes.append(_start(["simulator", "--quiet", "--port", str(carrier_port)], environment))
            processes.append(_start(["worker", "--quiet"], environment))
            _wait_until_bound(service)
            yield Stack(service, processes[-1], processes[0] if port is None else None, postmaster)
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait(40)


def _start(arguments: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "tumira", *arguments], env=environment)


def _wait_until_bound(service: Service) -> None:
    deadline = time.monotonic() + READY_S
    while not service.sql("SELECT FROM binds WHERE state = 'bound'"):
        assert time.monotonic() < deadline, "the worker did not bind"
        time.sleep(0.1)


def start_load(
    service: Service, connections: int, count: int, requests: Sequence[str]
) -> "subprocess.Popen[str]":
    """Start the load generator."""
    host, port = service.base.removeprefix("http://").split(":")
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.load.generator", host, port, str(connections), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("\n".join(json.dumps(one) for one in requests))
    process.stdin.close()
    return process


def finish_load(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Wait for the load generator and read what it measured."""
    assert process.stdout is not None
    result: dict[str, Any] = json.loads(process.stdout.read())
    process.wait()
    assert set(result["statuses"]) == {"202"}, result["statuses"]
    return result


def wait_until_settled(service: Service, count: int) -> float:
    """Wait until so many batches are completed, and return when the last one was."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        row = service.sql("SELECT count(*), max(completed_at) FROM batches WHERE completed_at IS NOT NULL")[0]
        if row[0] >= count:
            return float(row[1].timestamp())
        time.sleep(0.25)
    raise AssertionError("messages were not settled in time")


def measure_bulk(stack: Stack, caller: Caller, calls: int, label: str) -> float:
    """Send calls of 1,000 recipients and return the messages a second that came to their end."""
    service = stack.service
    before = service.sql("SELECT count(*) FROM batches WHERE completed_at IS NOT NULL")[0][0]
    used = stack.cpu_s()
    began = time.time()
    load = start_load(
        service, 2, calls, [request(PATH, caller.key, {"channel": "sms", "to": NUMBERS, "body": BODY})]
    )
    finish_load(load)
    accepted_s = time.time() - began
    took_s = wait_until_settled(service, before + calls) - began
    rate = calls * RECIPIENTS / took_s
    show(label, rate, used, stack.cpu_s(), took_s, f"accepted in {accepted_s:.1f} s")
    return rate


def measure_single(stack: Stack, callers: Sequence[Caller], connections: int, count: int) -> float:
    """Send single messages and return how many a second came to their end."""
    service = stack.service
    before = service.sql("SELECT count(*) FROM batches WHERE completed_at IS NOT NULL")[0][0]
    used = stack.cpu_s()
    began = time.time()
    single = [
        request(PATH, caller.key, {"channel": "sms", "to": NUMBERS[place], "body": BODY})
        for place, caller in enumerate(callers)
    ]
    result = finish_load(start_load(service, connections, count, single))
    took_s = wait_until_settled(service, before + count) - began
    rate = count / took_s
    show(
        f"single sends, {connections} connections",
        rate,
        used,
        stack.cpu_s(),
        took_s,
        f"accepted {result['per_second']:,.0f}/s",
    )
    return rate


def show(
    label: str,
    rate: float,
    before: Mapping[str, float],
    after: Mapping[str, float],
    took_s: float,
    more: str = "",
) -> None:
    """Print one line: the rate, and how busy each part was."""
    busy = "   ".join(f"{name} {(after[name] - before[name]) / took_s:4.0%}" for name in after)
    print(f"{label:<44} {rate:>9,.0f}/s   {busy}   {more}", flush=True)
