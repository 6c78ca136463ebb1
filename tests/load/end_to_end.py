"""Rates of a gateway from HTTP over SMPP to the receipt and its callback, Tumira's and Kannel's alike."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

from msgspec import Struct

from tests.load.carrier import PASSCODE, Manners
from tests.load.generator import request
from tests.load.node import READY_S, Meter, Stack, Used
from tests.load.peers import CarrierPeer, Peer
from tests.support.processes.service import Caller, Service

PATH: Final = "/api/v1/messages"
# No passcode: the guard against pumping would stop so many to one number.
BODY: Final = "Your parcel 493817 is ready. Our office closes at 17:00."
RECIPIENTS: Final = 1000
NUMBERS: Final = [f"+2637712{number:05}" for number in range(RECIPIENTS)]
WAIT_S: Final = 300.0
PASSCODES: Final = 500
PASSCODES_PER_S: Final = 50
PASSCODE_CONNECTIONS: Final = 8


class Gateway(Protocol):
    @property
    def address(self) -> tuple[str, int]: ...

    def cpu_s(self) -> Used: ...

    def written(self) -> tuple[int, int]:
        """Return how many octets of log were written so far, and how large the database is."""


class Rates(NamedTuple):
    """Messages a second, each from the first request to the last of its kind."""

    accepted: float
    submitted: float
    told: float


def run_load(
    address: tuple[str, int], connections: int, calls: int, requests: Sequence[str]
) -> dict[str, Any]:
    """Send the requests in turn from a process of its own, and return what it measured."""
    host, port = address
    done = subprocess.run(
        [sys.executable, "-m", "tests.load.generator", host, str(port), str(connections), str(calls)],
        input="\n".join(json.dumps(one) for one in requests),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    result: dict[str, Any] = json.loads(done.stdout)
    assert set(result["statuses"]) == {"202"}, result["statuses"]
    return result


def single_sends(callers: Sequence[Caller]) -> Sequence[str]:
    """Return requests of one message each, from each of the accounts in turn."""
    return [
        request(PATH, caller.key, {"channel": "sms", "to": NUMBERS[place], "body": BODY})
        for place, caller in enumerate(callers)
    ]


def bulk_sends(caller: Caller, count: int) -> Sequence[str]:
    """Return requests of 1,000 messages each and one of the rest."""
    sizes = [RECIPIENTS] * (count // RECIPIENTS) + ([count % RECIPIENTS] if count % RECIPIENTS else [])
    return [
        request(PATH, caller.key, {"channel": "sms", "to": NUMBERS[:size], "body": BODY}) for size in sizes
    ]


class Load(Struct, frozen=True):
    """What is sent: requests in turn, `calls` in all, over some connections; together `count` messages."""

    requests: Sequence[str]
    connections: int
    calls: int
    count: int


def measure_load(
    gateway: Gateway,
    carrier: CarrierPeer,
    load: Load,
    label: str,
    *,
    window: int = 0,
    sink: Peer | None = None,
) -> Rates:
    """Send it all and wait until it is over: each message submitted, and each callback made."""
    carrier.behave(Manners(window=window))
    told_before = 0 if sink is None else sink.counts()["count"]
    meter, log_before = Meter(gateway.cpu_s, lambda: _peers_s(carrier, sink)), gateway.written()[0]
    result = run_load(gateway.address, load.connections, load.calls, load.requests)
    last_at = [carrier.wait_for(load.count)]
    # A receipt is acknowledged when it is on disk.
    carrier.wait_for(carrier.counts()["receipts"], "acknowledged")
    last_at.append(last_at[0] if sink is None else sink.wait_for(told_before + load.count))
    submitted, told = (load.count / (at - result["began_at"]) for at in last_at)
    rates = Rates(result["per_second"] * load.count / load.calls, submitted, told)
    over_s = last_at[1] - result["began_at"]
    parts = meter.per_message(load.count, over_s, {"load": result["own_cpu_s"]})
    callbacks = "" if sink is None else f"callbacks {told:,.0f}/s   "
    accepted = f"accepted {rates.accepted:,.0f}/s   "
    log = (gateway.written()[0] - log_before) / load.count
    more = f"   log {log:,.0f} B each" if log else ""
    print(f"{label:<52} {submitted:>7,.0f}/s   {accepted}{callbacks}{parts}{more}", flush=True)
    counts = carrier.counts()
    assert counts["exceeding"] == 0, counts
    return rates


def _peers_s(carrier: CarrierPeer, sink: Peer | None) -> Used:
    return {"carrier": carrier.cpu_s()} | ({} if sink is None else {"sink": sink.cpu_s()})


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
    service, count = stack.service, calls * RECIPIENTS
    before = service.sql("SELECT count(*) FROM batches WHERE completed_at IS NOT NULL")[0][0]
    meter, written = Meter(stack.cpu_s), stack.written()
    result = run_load(stack.address, 2, calls, bulk_sends(caller, RECIPIENTS))
    took_s = wait_until_settled(service, before + calls) - float(result["began_at"])
    log, size = ((after - then) / count for after, then in zip(stack.written(), written, strict=True))
    print(
        f"{label:<52} {count / took_s:>7,.0f}/s   {meter.per_message(count, took_s)}   "
        f"accepted in {result['seconds']:.1f} s; log {log:,.0f} B, disk {size:,.0f} B a message",
        flush=True,
    )
    return count / took_s


def fill_queue(stack: Stack, caller: Caller, calls: int) -> None:
    run_load(stack.address, 2, calls, bulk_sends(caller, RECIPIENTS))


def measure_latency(
    stack: Stack, carrier: CarrierPeer, caller: Caller, label: str, count: int = PASSCODES
) -> tuple[float, float]:
    """Send passcodes at an even pace and return the milliseconds from request to carrier, p50 and p99."""
    sent: dict[str, float] = {}
    known = carrier.passcodes().keys()
    meter = Meter(stack.cpu_s, lambda: _peers_s(carrier, None))
    with _connections(stack.address) as connections:
        began = time.perf_counter()
        for place in range(count):
            connection = connections[place % len(connections)]
            if place >= len(connections):
                _read_accept(connection)
            time.sleep(max(0.0, began + place / PASSCODES_PER_S - time.perf_counter()))
            text = f"{PASSCODE}{time.time_ns()}"
            body = {"channel": "sms", "to": NUMBERS[place % RECIPIENTS], "body": text}
            written = request(PATH, caller.key, body).encode()
            sent[text] = time.time()
            connection.sendall(written)
        for connection in connections:
            _read_accept(connection)
    deadline = time.monotonic() + READY_S
    while len(came := {text: at for text, at in carrier.passcodes().items() if text not in known}) < count:
        assert time.monotonic() < deadline, f"only {len(came)} passcodes came"
        time.sleep(0.1)
    waits = sorted((came[text] - at) * 1000 for text, at in sent.items())
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    parts = meter.per_message(count, max(sent.values()) - min(sent.values()))
    print(f"{label:<52} p50 {p50:5.1f} ms   p99 {p99:5.1f} ms   (request to submit_sm)   {parts}", flush=True)
    return p50, p99


@contextmanager
def _connections(address: tuple[str, int]) -> Iterator[Sequence[socket.socket]]:
    """Open several connections, so that a slow answer does not delay the next request."""
    connections = [socket.create_connection(address) for _ in range(PASSCODE_CONNECTIONS)]
    try:
        for connection in connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connections
    finally:
        for connection in connections:
            connection.close()


def _read_accept(connection: socket.socket) -> None:
    answer = connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 202"), answer
