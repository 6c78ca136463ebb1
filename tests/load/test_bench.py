"""The pieces of the benchmark fit together: a small load runs through a node, a carrier and a sink."""

import pytest

from tests.load.end_to_end import Load, bulk_sends, measure_load, single_sends
from tests.load.http_window import measure_calls
from tests.load.node import run_stack
from tests.load.peers import run_carrier_peer, run_sink
from tests.load.processor import postmaster_of
from tests.load.window import measure_row


@pytest.mark.long
def test_a_small_load_is_measured_from_request_to_callback(server_url: str) -> None:
    with (
        run_sink() as sink,
        run_carrier_peer() as carrier,
        run_stack(server_url, postmaster_of(server_url), port=carrier.port, window=2) as stack,
    ):
        caller = stack.open_account()
        stack.add_endpoint(caller, sink.port)
        singles = Load(single_sends([caller]), 2, 10, 10)
        rates = measure_load(stack, carrier, singles, "single sends", window=2, sink=sink)
        assert min(rates) > 0
        assert {"web", "worker", "PostgreSQL"} <= stack.cpu_s().keys()
        bulk = Load(bulk_sends(caller, 12), 1, 1, 12)
        assert 0 < measure_row(stack, carrier, sink, bulk, (10, 2), 8, "bulk,") <= 1
        assert carrier.counts()["outstanding_max"] <= 2


@pytest.mark.long
def test_a_small_load_is_measured_over_http(server_url: str) -> None:
    with run_carrier_peer("http-carrier") as carrier:
        assert 0 < measure_calls(server_url, carrier, 10, 2, row_s=0.1) <= 1
        assert carrier.counts()["outstanding_max"] <= 2
