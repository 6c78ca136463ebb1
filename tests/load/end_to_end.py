"""End-to-end rates: from HTTP over SMPP and receipt to the final status and its event."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.load.generator import request
from tests.load.peers import PASSCODE
from tests.support.postgres.databases import clone, execute
from tests.support.processes.service import Caller, Service, free_port, run_web
from tumira.delivery.manage_carriers import add_carrier

PATH: Final = "/api/v1/messages"
BODY: Final = "Your code is 493817. Do not share it with anyone, ever."
RECIPIENTS: Final = 1000
NUMBERS: Final = [f"+2637712{number:05}" for number in range(RECIPIENTS)]
WAIT_S: Final = 300.0
READY_S: Final = 30.0
PASSCODES: Final = 500
PASSCODES_PER_S: Final = 50


@dataclass(frozen=True, slots=True)
class Stack:
    """A whole node, each part a process whose work is measured."""

    service: Service
    worker: "subprocess.Popen[bytes]"
    simulator: "subprocess.Popen[bytes] | None"
    postmaster: int

    def cpu_s(self) -> Mapping[str, float]:
        parts = {"web": self.service.process.pid, "worker": self.worker.pid}
        if self.simulator is not None:
            parts["simulator"] = self.simulator.pid
        used = {name: _cpu_s(pid) for name, pid in parts.items()}
        return used | {"database": database_cpu_s(self.postmaster)}


def database_cpu_s(postmaster: int) -> float:
    """Return the seconds of processor time that a PostgreSQL and its processes have used."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return sum(_cpu_s(int(pid)) for pid in children) + _cpu_s(postmaster, ended=True)


def _cpu_s(pid: int, *, ended: bool = False) -> float:
    """Return what a process has used, or with `ended` also its children that are gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    ticks = int(fields[11]) + int(fields[12]) + (int(fields[13]) + int(fields[14]) if ended else 0)
    return ticks / os.sysconf("SC_CLK_TCK")


def postmaster_of(server_url: str) -> int:
    directory = execute(server_url, "SHOW data_directory")[0][0]
    return int(Path(directory, "postmaster.pid").read_text().split()[0])


@contextmanager
def run_stack(server_url: str, postmaster: int, *, port: int | None = None, tps: int = 0) -> Iterator[Stack]:
    """Run web and worker on a fresh database, and a simulator unless a carrier listens on `port` already."""
    with clone(server_url) as url, tempfile.TemporaryDirectory() as directory, run_web(url) as service:
        carrier_port = port or free_port()
        carrier = f"smpp://bench:secret@127.0.0.1:{carrier_port}?window=1000&tps={tps}"
        service.run(add_carrier, "bench", carrier, None, 100)
        environment = {
            **os.environ,
            "TUMIRA_DATABASE_URL": url,
            "TUMIRA_DATA_DIR": directory,
            "TUMIRA_LOG_LEVEL": "error",
            "TUMIRA_WEBHOOKS_ALLOW_PRIVATE": "1",
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


class Peer:
    """One of `tests.load.peers`, in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        self.port = int(self._stdout.readline())

    def counted(self) -> tuple[int, float]:
        told = self._ask("")
        return int(told["count"]), float(told["last_at"])

    def passcodes(self) -> Mapping[str, float]:
        return self._ask("times")

    def _ask(self, word: str) -> dict[str, Any]:
        self._stdin.write(f"{word}\n")
        self._stdin.flush()
        told: dict[str, Any] = json.loads(self._stdout.readline())
        return told

    def wait_for(self, count: int) -> float:
        """Wait until that number has arrived, and return when the last one did."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            came, last_at = self.counted()
            if came >= count:
                return last_at
            time.sleep(0.1)
        raise AssertionError(f"only {self.counted()[0]} of {count} came in time")


@contextmanager
def run_peer(role: str) -> Iterator[Peer]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.load.peers", role],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Peer(process)
    finally:
        process.terminate()
        process.wait()


def start_load(
    address: tuple[str, int], connections: int, count: int, requests: Sequence[str]
) -> "subprocess.Popen[str]":
    host, port = address
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.load.generator", host, str(port), str(connections), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write("\n".join(json.dumps(one) for one in requests))
    process.stdin.close()
    return process


def finish_load(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    result: dict[str, Any] = json.loads(process.stdout.read())
    process.wait()
    assert set(result["statuses"]) == {"202"}, result["statuses"]
    return result


def address_of(service: Service) -> tuple[str, int]:
    host, port = service.base.removeprefix("http://").split(":")
    return host, int(port)


def wait_until_settled(service: Service, count: int) -> float:
    """Wait until `count` batches are completed, and return when the last one was."""
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
    used, written = stack.cpu_s(), _written(service)
    began = time.time()
    load = start_load(
        address_of(service),
        2,
        calls,
        [request(PATH, caller.key, {"channel": "sms", "to": NUMBERS, "body": BODY})],
    )
    finish_load(load)
    accepted_s = time.time() - began
    took_s = wait_until_settled(service, before + calls) - began
    rate = calls * RECIPIENTS / took_s
    log, size = (
        (after - then) / (calls * RECIPIENTS) for after, then in zip(_written(service), written, strict=True)
    )
    more = f"accepted in {accepted_s:.1f} s; log {log:,.0f} B, disk {size:,.0f} B a message"
    show(label, rate, used, stack.cpu_s(), took_s, more)
    return rate


def _written(service: Service) -> tuple[int, int]:
    """Return how many octets of log the server has written so far, and how large the database is."""
    row = service.sql(
        "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, pg_database_size(current_database())"
    )[0]
    return row[0], row[1]


def fill_queue(stack: Stack, caller: Caller, calls: int) -> None:
    large = [request(PATH, caller.key, {"channel": "sms", "to": NUMBERS, "body": BODY})]
    finish_load(start_load(address_of(stack.service), 2, calls, large))


def measure_single(
    stack: Stack, smsc: Peer, callers: Sequence[Caller], connections: int, count: int
) -> float:
    service = stack.service
    before = service.sql("SELECT count(*) FROM batches WHERE completed_at IS NOT NULL")[0][0]
    came, _ = smsc.counted()
    used, log_before = stack.cpu_s(), _written(service)[0]
    began = time.time()
    single = [
        request(PATH, caller.key, {"channel": "sms", "to": NUMBERS[place], "body": BODY})
        for place, caller in enumerate(callers)
    ]
    result = finish_load(start_load(address_of(service), connections, count, single))
    took_s = smsc.wait_for(came + count) - began
    settled_s = wait_until_settled(service, before + count) - began
    log = (_written(service)[0] - log_before) / count
    rate = count / took_s
    show(
        f"  single sends, {connections} connections, handed over",
        rate,
        used,
        stack.cpu_s(),
        settled_s,
        f"accepted {result['per_second']:,.0f}/s, settled {count / settled_s:,.0f}/s; log {log:,.0f} B each",
    )
    return rate


def measure_latency(stack: Stack, smsc: Peer, caller: Caller, label: str) -> tuple[float, float]:
    """Send passcodes at an even pace and return the milliseconds from request to carrier, p50 and p99."""
    sent: dict[str, float] = {}
    known = smsc.passcodes().keys()
    with socket.create_connection(address_of(stack.service)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        for place in range(PASSCODES):
            time.sleep(max(0.0, began + place / PASSCODES_PER_S - time.perf_counter()))
            text = f"{PASSCODE}{time.time_ns()}"
            body = {"channel": "sms", "to": NUMBERS[place % RECIPIENTS], "body": text}
            written = request(PATH, caller.key, body).encode()
            sent[text] = time.time()
            connection.sendall(written)
            answer = connection.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 202"), answer
    deadline = time.monotonic() + READY_S
    while len(came := {text: at for text, at in smsc.passcodes().items() if text not in known}) < PASSCODES:
        assert time.monotonic() < deadline, f"only {len(came)} passcodes came"
        time.sleep(0.1)
    waits = sorted((came[text] - at) * 1000 for text, at in sent.items())
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    print(f"{label:<44} p50 {p50:5.1f} ms   p99 {p99:5.1f} ms   (request to submit_sm)", flush=True)
    return p50, p99


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
