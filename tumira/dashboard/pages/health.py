"""Network health: how long submissions and receipts take, and the share delivered, over all our traffic.

Every customer sees the same, and nothing about another: figures of fewer than twenty messages are left out.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.core import histogram
from tumira.core.translation import mark
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.delivery.store import latency as latencies
from tumira.delivery.store.latency import LatencyStep, NetworkEnds, NetworkTimes, Windows
from tumira.html import chart
from tumira.postgres.pool import Database
from tumira.pricing.networks import PORTED_COUNTRIES, network_name
from tumira.pricing.store import get_tariff
from tumira.sending import lifecycle

HEALTH: Final = "/dashboard/health"
MESSAGES_MIN: Final = 20
KEPT_S: Final = 60.0
HOURS: Final = (1, 6, 24)
DAYS: Final = 7

# So many times what is usual is slow, where it is slow at all; so much less than usual is few.
_SLOWER: Final = 2
_SLOW_MS: Final = {LatencyStep.SUBMISSION: 2_000, LatencyStep.RECEIPT: 15_000}
_FEWER: Final = 0.05
_FINAL: Final = [status for status in lifecycle.MESSAGE_STATUSES if lifecycle.is_final(status)]
# The place of what is usual among the windows.
_AS_USUAL: Final = len(HOURS)

NORMAL: Final = mark("Normal")
SLOWER: Final = mark("Slower than usual")
FEWER: Final = mark("Fewer delivered than usual")
TOO_FEW: Final = mark("Too few messages")

Key = tuple[str, str]


# How long half of the messages and 95 in 100 took, in words.
Times = tuple[str, str]


@dataclass(frozen=True, slots=True)
class NetworkWindow:
    """The figures of a network in one window; None where there were too few messages."""

    hours: int
    handover: Times | None
    receipt: Times | None
    delivered: str | None


@dataclass(frozen=True, slots=True)
class Network:
    name: str
    word: str
    is_well: bool
    rows: Sequence[NetworkWindow]


@dataclass(frozen=True, slots=True)
class Country:
    """The networks of a country; where numbers are ported, each is only a guess."""

    name: str
    is_guess: bool
    networks: Sequence[Network]


class Board:
    """A cache of the networks' health: every customer sees the same, so it is computed once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at: float | None = None
        self._countries: Sequence[Country] = ()

    async def look(self, database: Database) -> Sequence[Country]:
        async with self._reading:
            if self._read_at is None or self._clock() - self._read_at > KEPT_S:
                self._countries = await read_health(database, datetime.now(UTC))
                self._read_at = self._clock()
            return self._countries


def routes(services: Services) -> Sequence[Route]:
    board = Board()

    async def show_health(session: CustomerSession) -> Response:
        return session.page(
            "health.html.jinja",
            countries=await board.look(session.database),
            messages_min=MESSAGES_MIN,
            too_few=TOO_FEW,
        )

    return [private(services, HEALTH, show_health)]


async def read_health(database: Database, now: datetime) -> Sequence[Country]:
    """Read how the networks are."""
    windows = Windows.until(now, HOURS, DAYS)
    async with database.connection() as connection:
        tariff = await get_tariff(connection)
        times = await latencies.list_network_times(connection, windows, now)
        ends = await latencies.list_network_ends(connection, windows, now, _FINAL)
    networks: dict[str, list[Network]] = {}
    keys = {(one.country, one.network) for one in times} | {(one.country, one.network) for one in ends}
    for country, network in sorted(keys):
        if country in tariff.names:
            name = network_name(network, country, tariff.names[country])
            networks.setdefault(country, []).append(_network(name, (country, network), times, ends))
    return [
        Country(tariff.names[country], country in PORTED_COUNTRIES, own) for country, own in networks.items()
    ]


def _network(name: str, key: Key, times: Sequence[NetworkTimes], ends: Sequence[NetworkEnds]) -> Network:
    own_times = [one for one in times if (one.country, one.network) == key]
    own_ends = [one for one in ends if (one.country, one.network) == key]
    word = _word(own_times, own_ends)
    return Network(
        name,
        word,
        word in {NORMAL, TOO_FEW},
        [
            NetworkWindow(
                hours,
                _times(_buckets(own_times, LatencyStep.SUBMISSION, window)),
                _times(_buckets(own_times, LatencyStep.RECEIPT, window)),
                _delivered(own_ends, window),
            )
            for window, hours in enumerate(HOURS)
        ],
    )


def _buckets(times: Sequence[NetworkTimes], step: LatencyStep, window: int) -> Mapping[int, int]:
    return {one.bucket: one.counts[window] for one in times if one.step is step}


def _times(buckets: Mapping[int, int]) -> Times | None:
    if sum(buckets.values()) < MESSAGES_MIN:
        return None
    half, most = (histogram.percentile_ms(buckets, percent) for percent in (50, 95))
    assert half is not None
    assert most is not None
    return histogram.write_ms(half), histogram.write_ms(most)


def _ended(ends: Sequence[NetworkEnds], window: int) -> tuple[int, int]:
    delivered = sum(one.counts[window] for one in ends if one.outcome == "delivered")
    return delivered, sum(one.counts[window] for one in ends)


def _delivered(ends: Sequence[NetworkEnds], window: int) -> str | None:
    delivered, ended = _ended(ends, window)
    return None if ended < MESSAGES_MIN else chart.rate(delivered, ended)


def _word(times: Sequence[NetworkTimes], ends: Sequence[NetworkEnds]) -> str:
    """Say how a network is, by the shortest window that tells, compared with this time of day before."""
    told = False
    for step, slow_ms in _SLOW_MS.items():
        window = _telling([sum(_buckets(times, step, place).values()) for place in range(_AS_USUAL)])
        if window is not None:
            told = True
            if _is_slower(_buckets(times, step, window), _buckets(times, step, _AS_USUAL), slow_ms):
                return SLOWER
    window = _telling([_ended(ends, place)[1] for place in range(_AS_USUAL)])
    if window is not None:
        told = True
        if _are_fewer(_ended(ends, window), _ended(ends, _AS_USUAL)):
            return FEWER
    return NORMAL if told else TOO_FEW


def _is_slower(now: Mapping[int, int], usual: Mapping[int, int], slow_ms: int) -> bool:
    if sum(usual.values()) < MESSAGES_MIN:
        return False
    most, usually = (histogram.percentile_ms(buckets, 95) or 0 for buckets in (now, usual))
    return most > max(slow_ms, _SLOWER * usually)


def _are_fewer(now: tuple[int, int], usual: tuple[int, int]) -> bool:
    (delivered, ended), (usually, usually_ended) = now, usual
    return usually_ended >= MESSAGES_MIN and delivered / ended < usually / usually_ended - _FEWER


def _telling(counts: Sequence[int]) -> int | None:
    """Return the shortest window with enough messages, if any has."""
    return next((window for window, count in enumerate(counts) if count >= MESSAGES_MIN), None)
