"""How much of a carrier's window is used while bulk messages wait.

A carrier that answers after T seconds and allows W messages without an answer takes at most W ÷ T messages a
second. Each row gives the part of that limit that a gateway reaches over one bind while messages wait.
"""

from collections.abc import Iterator
from typing import Final

from tests.load import kannel
from tests.load.carrier import Manners
from tests.load.end_to_end import Gateway, Load, bulk_sends, run_load
from tests.load.goals import Goals
from tests.load.kannel import kannel_sends, run_kannel
from tests.load.node import Meter, run_stack
from tests.load.peers import CarrierPeer, Peer, run_carrier_peer, run_sink
from tests.load.processor import postmaster_of

ANSWERS_MS: Final = (20, 50, 100, 300)
WINDOWS: Final = (1, 10, 50)
LIMIT_MAX: Final = 1000
# The rows that are measured with Kannel too.
KANNELS: Final = ((50, 10), (20, 10), (100, 50))
GOAL: Final = 0.95
ROW_S: Final = 3.0
# Kannel's queue is filled through as many connections.
CONNECTIONS: Final = 16


# Answer time in milliseconds, and window.
Terms = tuple[int, int]


def measure_windows(server: str, goals: Goals) -> None:
    kannels = dict(_measure_kannel())
    uses: dict[Terms, float] = {}
    with (
        run_sink() as sink,
        run_carrier_peer() as carrier,
        run_stack(server, postmaster_of(server), port=carrier.port, window=WINDOWS[0]) as stack,
    ):
        caller = stack.open_account()
        stack.add_endpoint(caller, sink.port)
        for window in WINDOWS:
            if window != WINDOWS[0]:
                stack.change_window(carrier, window)
            for answer_ms in ANSWERS_MS:
                if window * 1000 / answer_ms <= LIMIT_MAX:
                    terms, count = (answer_ms, window), _count(answer_ms, window)
                    requests = bulk_sends(caller, count + 2 * window)
                    load = Load(requests, 1, len(requests), count + 2 * window)
                    uses[terms] = measure_row(stack, carrier, sink, load, terms, count, "(v)")
    for (answer_ms, window), use in uses.items():
        text = f"window {window}, answers after {answer_ms} ms: part of the limit"
        theirs = kannels.get((answer_ms, window))
        goals.at_least(text, GOAL, use, "" if theirs is None else f" (Kannel {theirs:.2f})")
    print()


def _measure_kannel() -> Iterator[tuple[Terms, float]]:
    if not kannel.is_installed():
        return
    for terms in KANNELS:
        answer_ms, window = terms
        with run_sink() as sink, run_carrier_peer() as carrier, run_kannel(carrier, window) as gateway:
            count = _count(answer_ms, window)
            load = Load(kannel_sends(sink), CONNECTIONS, count + 2 * window, count + 2 * window)
            yield terms, measure_row(gateway, carrier, sink, load, terms, count, "(k) Kannel,")


def _count(answer_ms: int, window: int) -> int:
    """Return the submits of a row: the windows of about three seconds, and the first one."""
    return window * (round(ROW_S * 1000 / answer_ms) + 1)


def measure_row(
    gateway: Gateway, carrier: CarrierPeer, sink: Peer, load: Load, terms: Terms, count: int, name: str
) -> float:
    """Return the part of the limit that the first `count` submits of a load reached."""
    answer_ms, window = terms
    carrier.behave(Manners(answer_ms=answer_ms, window=window))
    told_before = sink.counts()["count"]
    meter = Meter(gateway.cpu_s)
    result = run_load(gateway.address, load.connections, load.calls, load.requests)
    took_s = carrier.wait_for(load.count) - result["began_at"]
    sink.wait_for(told_before + load.count)
    pace, limit = carrier.pace(count), window * 1000 / answer_ms
    counts = carrier.counts()
    label = f"{name} window {window}, answers after {answer_ms} ms"
    # By Little's law; above the use where the carrier itself was late.
    unanswered = pace * counts["answer_ms"] / 1000
    print(
        f"{label:<52} {pace:>7,.1f}/s of {limit:>7,.1f}/s   use {pace / limit:.3f}   "
        f"unanswered {unanswered:.1f} on average, {counts['outstanding_max']} at most; "
        f"answered after {counts['answer_ms']:.1f} ms   {meter.per_message(load.count, took_s)}",
        flush=True,
    )
    assert counts["exceeding"] == 0, counts
    return pace / limit
