"""Webhook delivery rates, also beside a dead endpoint."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.load.end_to_end import Peer, Stack, measure_bulk, run_peer, run_stack, show
from tests.support.processes.service import Caller
from tumira.core.ids import EndpointId
from tumira.webhooks import manage

CALLS: Final = 20
RECIPIENTS: Final = 1000
DELIVERED: Final = ("message.delivered",)


def add_endpoint(stack: Stack, caller: Caller, port: int) -> EndpointId:
    """Have an account told of what is delivered, at a port of this machine."""
    endpoint, _ = stack.service.run(
        manage.add_endpoint,
        caller.id,
        f"http://127.0.0.1:{port}/",
        DELIVERED,
        "",
        allow_private=True,
    )
    return EndpointId(endpoint.id)


def measure_deliveries(server: str, postmaster: int) -> tuple[float, float]:
    """Return how many events a second one worker delivers to one endpoint: alone, and beside a dead one."""
    with run_peer("sink") as sink, _dead() as dead_port, run_stack(server, postmaster) as stack:
        alone = _measure(stack, sink, "(w) signed deliveries to one endpoint")
        beside = _measure(stack, sink, "(x) the same beside one that never answers", dead_port)
        return alone, beside


def _measure(stack: Stack, sink: Peer, label: str, dead_port: int | None = None) -> float:
    caller = stack.service.open_account(balance="100000000", rate=1_000_000)
    endpoint_ids = [add_endpoint(stack, caller, sink.port)]
    if dead_port is not None:
        endpoint_ids.append(add_endpoint(stack, caller, dead_port))
    for endpoint_id in endpoint_ids:
        stack.service.run(manage.pause_endpoint, endpoint_id)
    measure_bulk(stack, caller, CALLS, "  events to deliver")
    came, _ = sink.counted()
    used = stack.cpu_s()
    began = time.time()
    for endpoint_id in endpoint_ids:
        stack.service.run(manage.resume_endpoint, endpoint_id, from_now=False)
    took_s = sink.wait_for(came + CALLS * RECIPIENTS) - began
    rate = CALLS * RECIPIENTS / took_s
    show(label, rate, used, stack.cpu_s(), took_s)
    return rate


@contextmanager
def _dead() -> Iterator[int]:
    """Listen, and never answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listening:
        yield listening.getsockname()[1]
