"""How much of its concurrency a carrier over HTTP is given while bulk messages wait.

A provider that answers each call after T seconds, and allows W calls at a time, takes at most W ÷ T messages
a second.
"""

from typing import Final

from tests.load.carrier import Manners
from tests.load.end_to_end import bulk_sends, run_load
from tests.load.goals import Goals
from tests.load.node import Meter, run_stack
from tests.load.peers import CarrierPeer, run_carrier_peer
from tests.load.processor import postmaster_of

# Answer time in milliseconds, and calls at a time.
ROWS: Final = ((50, 10), (50, 20))
GOAL: Final = 0.95
ROW_S: Final = 4.0


def measure_http(server: str, goals: Goals) -> None:
    for answer_ms, window in ROWS:
        with run_carrier_peer("http-carrier") as carrier:
            use = measure_calls(server, carrier, answer_ms, window)
        goals.at_least(
            f"HTTP, {window} calls at a time, answers after {answer_ms} ms: part of the limit", GOAL, use
        )
    print()


def measure_calls(
    server: str, carrier: CarrierPeer, answer_ms: int, window: int, row_s: float = ROW_S
) -> float:
    """Return the part of the limit that a node reached."""
    carrier.behave(Manners(answer_ms=answer_ms, window=window))
    with run_stack(server, postmaster_of(server), port=carrier.port, window=window, over_http=True) as stack:
        count = window * (round(row_s * 1000 / answer_ms) + 1)
        requests = bulk_sends(stack.open_account(), count + 2 * window)
        meter = Meter(stack.cpu_s)
        result = run_load(stack.address, 1, len(requests), requests)
        took_s = carrier.wait_for(count + 2 * window) - result["began_at"]
        counts = carrier.counts()
        used = meter.per_message(count, took_s)
    pace, limit = carrier.pace(count), window * 1000 / answer_ms
    label = f"(z) HTTP, {window} calls, answers after {answer_ms} ms"
    print(
        f"{label:<52} {pace:>7,.1f}/s of {limit:>7,.1f}/s   use {pace / limit:.3f}   "
        f"{counts['outstanding_max']} calls at most; answered after {counts['answer_ms']:.1f} ms   {used}",
        flush=True,
    )
    assert counts["exceeding"] == 0, counts
    return pace / limit
