"""Traffic of passcodes as honest accounts and scripts make it, to measure the limits of the guard.

    python -m tests.support.sending.guard_traffic

prints how many passcodes of each shape are stopped, with the defaults and with tighter limits.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final

from tumira.accounts.passcode_limits import EffectiveLimits, PasscodeLimits
from tumira.core.ids import AccountId, new_id
from tumira.sending.code_guard import RangeCodes, RangeKey, decide, range_of

SEED: Final = 22
START_S: Final = 1_794_700_800
MINUTE: Final = 60
HOUR: Final = 3600
RATE: Final = 60
# Of a fact sheet on how others limit codes.
TIGHT: Final = EffectiveLimits(number=5, number_day=10, range=10)

# A passcode: its second, and its number.
Code = tuple[float, str]
Shape = Callable[[random.Random], Iterator[Code]]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The passcodes of one account in a day, and the calls a minute that it may make."""

    name: str
    shape: Shape
    rate: int = RATE


def numbers(rng: random.Random, count: int, ranges: int = 3_000) -> Sequence[str]:
    """Return numbers of people; a few ranges of a network have many of its customers."""
    starts = rng.sample(range(10_000, 100_000), ranges)
    weights = list(accumulate(rng.lognormvariate(0, 0.8) for _ in starts))
    chosen = rng.choices(starts, cum_weights=weights, k=count)
    return [f"+2637{start:05}{rng.randrange(10_000):04}"[:13] for start in chosen]


def _steady(rng: random.Random, per_minute: int, minutes: int, people: int, ranges: int) -> Iterator[Code]:
    """Yield logins at a steady pace; one in five asks for a second code, and some of these for a third."""
    known = numbers(rng, people, ranges)
    found: list[Code] = []
    while len(found) < per_minute * minutes:
        at, number = rng.uniform(0, minutes * MINUTE), rng.choice(known)
        found.append((at, number))
        while rng.random() < 0.2:
            at += rng.uniform(20, 120)
            found.append((at, number))
    yield from sorted(found)


def _slow_network(rng: random.Random) -> Iterator[Code]:
    """Yield how people press the button every minute when codes come a quarter of an hour late."""
    found: list[Code] = []
    for number in numbers(rng, 300):
        first = rng.uniform(0, HOUR)
        found.extend((first + press * MINUTE, number) for press in range(rng.randrange(1, 16)))
    yield from sorted(found)


def _company(rng: random.Random) -> Iterator[Code]:
    """Yield how forty colleagues whose phones have neighbouring numbers sign in when work begins."""
    found: list[Code] = []
    for colleague in range(40):
        at = rng.uniform(0, 10 * MINUTE)
        found.append((at, f"+26377120{colleague:04}"))
        if rng.random() < 0.2:
            found.append((at + 60, f"+26377120{colleague:04}"))
    yield from sorted(found)


def _to_one(times: Sequence[float]) -> Iterator[Code]:
    yield from ((at, "+263771200001") for at in times)


def _developer(rng: random.Random) -> Iterator[Code]:
    """Yield how a developer tests a sign-up form with one phone: three times a day, in bursts of fifteen."""
    starts = (0, 3 * HOUR, 6 * HOUR)
    return _to_one(sorted(start + rng.uniform(0, 10 * MINUTE) for start in starts for _ in range(15)))


def _agent(rng: random.Random) -> Iterator[Code]:
    """Yield the codes of a wallet agent, whose one phone gets a code for each of the day's payments."""
    return _to_one(sorted(rng.uniform(0, 9 * HOUR) for _ in range(45)))


def _script(rng: random.Random, ranges: int, hours: int) -> Iterator[Code]:
    """Yield a script that asks for a code every second, for any number of some ranges."""
    starts = [f"+263771{start:02}" for start in rng.sample(range(100), ranges)]
    for second in range(hours * HOUR):
        yield second, f"{rng.choice(starts)}{rng.randrange(10_000):04}"


def _logins(per_minute: int, minutes: int, people: int, ranges: int = 3_000) -> Shape:
    return partial(_steady, per_minute=per_minute, minutes=minutes, people=people, ranges=ranges)


HONEST: Final = (
    Traffic("shop, 300 logins a day", _logins(1, 300, 2_000)),
    Traffic("school, 1,200 parents in two hours", _logins(10, 120, 1_200, ranges=200)),
    Traffic("app at 60 calls a minute for two hours", _logins(60, 120, 20_000)),
    Traffic("bank at 6,000 calls a minute", _logins(6_000, 10, 500_000), rate=6_000),
    Traffic("network that is 15 minutes late", _slow_network),
    Traffic("company of 40 neighbouring phones", _company),
    Traffic("developer, 45 tests with one phone", _developer),
    Traffic("wallet agent, 45 payments a day", _agent),
)
ATTACKS: Final = (
    Traffic("script on one range, an hour", partial(_script, ranges=1, hours=1)),
    Traffic("script on ten ranges, an hour", partial(_script, ranges=10, hours=1)),
    Traffic("script on one number, an hour", lambda _rng: _to_one(range(HOUR))),
)


def run(traffic: Traffic, limits: EffectiveLimits | None = None) -> Counter[str]:
    """Return how many passcodes were sent and stopped."""
    account_id = AccountId(new_id(0))
    applied = limits or PasscodeLimits().effective(traffic.rate)
    ranges: dict[RangeKey, RangeCodes] = {}
    found: Counter[str] = Counter()
    for at, number in traffic.shape(random.Random(SEED)):
        assert len(range_of(number)) == len("+26377120")
        decision = decide(account_id, applied, [number], ranges, int((START_S + at) * 1_000_000))
        ranges |= decision.ranges
        found["stopped" if decision.stopped else "sent"] += 1
    return found


def table() -> Mapping[str, tuple[int, int, int]]:
    """Return the passcodes of each shape, and how many are stopped: by the defaults, and by tight limits."""
    return {
        one.name: (run(one).total(), run(one)["stopped"], run(one, TIGHT)["stopped"])
        for one in (*HONEST, *ATTACKS)
    }


if __name__ == "__main__":
    for name, (codes, stopped, by_tight) in table().items():
        print(f"| {name} | {codes:,} | {stopped:,} | {by_tight:,} |")
