"""Single sends from request to carrier, without webhooks and with, beside Kannel with its callbacks."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from statistics import median
from typing import Final

from tests.load import kannel
from tests.load.end_to_end import Load, Rates, measure_load, single_sends
from tests.load.goals import Goals
from tests.load.kannel import kannel_sends, run_kannel
from tests.load.node import Stack, run_stack
from tests.load.peers import CarrierPeer, run_carrier_peer, run_sink
from tests.load.processor import postmaster_of
from tests.support.processes.service import Caller

WINDOW: Final = 100
COUNT: Final = 5_000
ROUNDS: Final = 3
ACCOUNTS: Final = (1, 16)
# Connections, and the goal against Kannel's rate with as many.
GOALS: Final = {16: 1.0, 64: 1.3}


def measure_singles(server: str, goals: Goals) -> None:
    """Measure over 16 connections and 64, ours and Kannel's in turn."""
    # By connections and accounts; no accounts for Kannel.
    measured: dict[tuple[int, int], list[Rates]] = {}
    with ExitStack() as cleanup:
        sink = cleanup.enter_context(run_sink())
        carrier, other_carrier = (cleanup.enter_context(run_carrier_peer()) for _ in range(2))
        stack = cleanup.enter_context(
            run_stack(server, postmaster_of(server), port=carrier.port, window=WINDOW)
        )
        callers = [stack.open_account() for _ in range(max(ACCOUNTS))]
        _measure_without_webhooks(stack, carrier, callers)
        for caller in callers:
            stack.add_endpoint(caller, sink.port)
        gateway = cleanup.enter_context(run_kannel(other_carrier)) if kannel.is_installed() else None
        for connections, accounts in _turns():
            if accounts:
                load = Load(single_sends(callers[:accounts]), connections, COUNT, COUNT)
                label = f"  single, {connections} connections, {_words(accounts)}"
                rates = measure_load(stack, carrier, load, label, window=WINDOW, sink=sink)
            elif gateway is not None:
                load = Load(kannel_sends(sink), connections, COUNT, COUNT)
                label = f"  Kannel, {connections} connections"
                rates = measure_load(gateway, other_carrier, load, label, window=kannel.WINDOW, sink=sink)
            else:
                continue
            measured.setdefault((connections, accounts), []).append(rates)
    for (connections, accounts), each in measured.items():
        if accounts:
            _show(goals, connections, accounts, _medians(each), measured.get((connections, 0)))
    print()


def _turns() -> Iterator[tuple[int, int]]:
    for connections in GOALS:
        for _ in range(ROUNDS):
            for accounts in (*ACCOUNTS, 0):
                yield connections, accounts


def _measure_without_webhooks(stack: Stack, carrier: CarrierPeer, callers: Sequence[Caller]) -> None:
    load = Load(single_sends(callers), 16, 500, 500)
    measure_load(stack, carrier, load, "  warming up", window=WINDOW)
    for connections in GOALS:
        load = Load(single_sends(callers), connections, COUNT, COUNT)
        label = f"  single, {connections} connections, no webhooks"
        rates = [measure_load(stack, carrier, load, label, window=WINDOW) for _ in range(ROUNDS)]
        rate = _medians(rates).submitted
        print(f"{f'(f) single sends submitted, {connections} connections':<52} {rate:>7,.0f}/s   (median)")


def _show(goals: Goals, connections: int, accounts: int, rates: Rates, kannels: list[Rates] | None) -> None:
    text = f"single sends with webhooks, {connections} connections, {_words(accounts)}"
    accepted = f"accepted {rates.accepted:,.0f}/s"
    if kannels is None:
        goals.against_kannel(text, GOALS[connections], rates.submitted, None)
    else:
        theirs = _medians(kannels)
        accepted += f", ratio to Kannel {rates.accepted / theirs.accepted:.2f}"
        goals.against_kannel(text, GOALS[connections], rates.submitted, theirs.submitted)
    label = f"(i) with webhooks, {connections} connections, {_words(accounts)}"
    told = f"callbacks {rates.told:,.0f}/s"
    print(f"{label:<52} {rates.submitted:>7,.0f}/s   {accepted}   {told}   (medians)", flush=True)


def _words(accounts: int) -> str:
    return "1 account" if accounts == 1 else f"{accounts} accounts"


def _medians(rates: list[Rates]) -> Rates:
    return Rates(*(median(column) for column in zip(*rates, strict=True)))
