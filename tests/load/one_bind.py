"""Bulk over one bind of window 100 to a carrier that answers at once, beside Kannel."""

from contextlib import ExitStack
from statistics import median
from typing import Final

from tests.load import kannel
from tests.load.end_to_end import Load, Rates, bulk_sends, measure_load
from tests.load.goals import Goals
from tests.load.kannel import kannel_sends, run_kannel
from tests.load.node import run_stack
from tests.load.peers import run_carrier_peer, run_sink
from tests.load.processor import postmaster_of

WINDOW: Final = 100
COUNT: Final = 10_000
ROUNDS: Final = 3
KANNEL_CONNECTIONS: Final = 16
GOALS: Final = {True: 2.0, False: 2.5}


def measure_one_bind(server: str, goals: Goals) -> None:
    """Measure with webhooks and without, ours and Kannel's in turn."""
    for with_webhooks, goal in GOALS.items():
        ours, kannels = _measure(server, with_webhooks=with_webhooks)
        words = "with webhooks" if with_webhooks else "without webhooks"
        rate = median(one.submitted for one in ours)
        theirs = median(one.submitted for one in kannels) if kannels else None
        text = f"bulk, one bind of window {WINDOW}, {words}"
        print(f"{f'(o) {text}':<52} {rate:>7,.0f}/s   (median of {len(ours)})", flush=True)
        goals.against_kannel(text, goal, rate, theirs)
    print()


def _measure(server: str, *, with_webhooks: bool) -> tuple[list[Rates], list[Rates]]:
    ours: list[Rates] = []
    kannels: list[Rates] = []
    with ExitStack() as cleanup:
        sink = cleanup.enter_context(run_sink()) if with_webhooks else None
        carrier, other_carrier = (cleanup.enter_context(run_carrier_peer()) for _ in range(2))
        stack = cleanup.enter_context(
            run_stack(server, postmaster_of(server), port=carrier.port, window=WINDOW)
        )
        caller = stack.open_account()
        if sink is not None:
            stack.add_endpoint(caller, sink.port)
        bulk = Load(bulk_sends(caller, 1000), 2, COUNT // 1000, COUNT)
        singles = Load(kannel_sends(sink), KANNEL_CONNECTIONS, COUNT, COUNT)
        gateway = cleanup.enter_context(run_kannel(other_carrier, WINDOW)) if kannel.is_installed() else None
        more = ", webhooks" if with_webhooks else ""
        for _ in range(ROUNDS):
            label = f"  bulk, window {WINDOW}{more}"
            ours.append(measure_load(stack, carrier, bulk, label, window=WINDOW, sink=sink))
            if gateway is not None:
                label = f"  Kannel, window {WINDOW}{more}"
                kannels.append(measure_load(gateway, other_carrier, singles, label, window=WINDOW, sink=sink))
    return ours, kannels
