"""What the passcode guard costs: accepted passcodes with it and without.

They are counted for each second of processor time, of the web process and of PostgreSQL, because that depends
less on what else the machine does. With all cores busy it is the rate.
"""

import random
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from tests.load.end_to_end import PATH, run_load
from tests.load.generator import request
from tests.load.goals import Goals
from tests.load.processor import database_cpu_s, postmaster_of, process_cpu_s
from tests.support.postgres.databases import clone
from tests.support.processes.service import Caller, Service, run_web
from tumira.accounts.passcode_limits import NUMBER_DAY_MOST, NUMBER_MOST, RANGE_MOST, PasscodeLimits
from tumira.identity.manage_accounts import set_passcode_limits

ROUNDS: Final = 7
ACCOUNTS: Final = 128
CONNECTIONS: Final = 16
COUNT: Final = 4_000
SENDS: Final = 50
GOAL: Final = 0.95
SEED: Final = 22


def measure_guard(server: str, goals: Goals) -> None:
    """Measure accounts with the guard and without in turn, in one process."""
    with clone(server) as url, run_web(url) as service:
        sends = {is_on: _sends(_open_accounts(service, is_on=is_on)) for is_on in (False, True)}
        rates: Mapping[bool, list[float]] = {False: [], True: []}
        postmaster = postmaster_of(server)
        for requests in sends.values():
            _load(service, postmaster, requests, 500)
        for _ in range(ROUNDS):
            for is_on, measured in rates.items():
                measured.append(_load(service, postmaster, sends[is_on], COUNT))
        stopped = service.sql("SELECT FROM code_stops")
        assert not stopped, "the guard stopped something, which costs less than to send it"
        counted = service.sql("SELECT sum(length(codes)) / 6 FROM code_ranges")[0][0]
        assert counted > ROUNDS * COUNT / 2, "the guard counted nothing"
    without, beside = (median(rates[is_on]) for is_on in (False, True))
    for label, rate in (("without the guard", without), ("with the guard", beside)):
        text = f"(k) passcodes accepted a CPU second, {label}"
        print(f"{text:<60} {rate:>7,.0f}   (median of {ROUNDS})", flush=True)
    goals.at_least("passcodes accepted a CPU second, with the guard ÷ without", GOAL, beside / without)
    print()


def _open_accounts(service: Service, *, is_on: bool) -> Sequence[Caller]:
    limits = PasscodeLimits(is_on, NUMBER_MOST, NUMBER_DAY_MOST, RANGE_MOST)
    callers = [service.open_account(balance="100000", rate=1_000_000) for _ in range(ACCOUNTS)]
    for caller in callers:
        service.run(set_passcode_limits, caller.id, lambda _: limits)
    return callers


def _sends(callers: Sequence[Caller]) -> Sequence[str]:
    """Return passcodes to different numbers, of each account in turn."""
    rng = random.Random(SEED)
    return [
        request(
            PATH,
            caller.key,
            {
                "channel": "sms",
                "to": f"+2637712{rng.randrange(100_000):05}",
                "body": f"Your code is {rng.randrange(1_000_000):06}.",
            },
        )
        for _ in range(SENDS)
        for caller in callers
    ]


def _load(service: Service, postmaster: int, sends: Sequence[str], count: int) -> float:
    """Return how many sends a second of processor time accepts."""
    host, port = service.base.removeprefix("http://").split(":")
    before = process_cpu_s(service.process.pid) + database_cpu_s(postmaster)
    result = run_load((host, int(port)), CONNECTIONS, count, sends)
    assert result["statuses"] == {"202": count}, result
    return count / (process_cpu_s(service.process.pid) + database_cpu_s(postmaster) - before)
