"""Webhook delivery rates, also beside a dead endpoint."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.load.end_to_end import RECIPIENTS, measure_bulk
from tests.load.node import Meter, Stack, run_stack
from tests.load.peers import Peer, run_sink
from tests.load.processor import postmaster_of
from tumira.webhooks import manage

CALLS: Final = 20


def measure_deliveries(server: str) -> tuple[float, float]:
    """Return how many events a second one worker delivers to one endpoint: alone, and beside a dead one."""
    with run_sink() as sink, _dead() as dead_port, run_stack(server, postmaster_of(server)) as stack:
        alone = _measure(stack, sink, "(w) signed deliveries to one endpoint")
        beside = _measure(stack, sink, "(x) the same beside one that never answers", dead_port)
        return alone, beside


def _measure(stack: Stack, sink: Peer, label: str, dead_port: int | None = None) -> float:
    caller = stack.open_account()
    ports = [sink.port] if dead_port is None else [sink.port, dead_port]
    endpoint_ids = [stack.add_endpoint(caller, port) for port in ports]
    for endpoint_id in endpoint_ids:
        stack.service.run(manage.pause_endpoint, endpoint_id)
    measure_bulk(stack, caller, CALLS, "  events to deliver")
    came = sink.counts()["count"]
    meter = Meter(stack.cpu_s)
    began = time.time()
    for endpoint_id in endpoint_ids:
        stack.service.run(manage.resume_endpoint, endpoint_id, from_now=False)
    count = CALLS * RECIPIENTS
    took_s = sink.wait_for(came + count) - began
    print(f"{label:<52} {count / took_s:>7,.0f}/s   {meter.per_message(count, took_s)}", flush=True)
    return count / took_s


@contextmanager
def _dead() -> Iterator[int]:
    """Listen, and never answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        yield listening.getsockname()[1]
