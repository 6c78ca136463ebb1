"""A carrier as the console shows it: health, connections, pace and outcomes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tumira.delivery import carrier_url
from tumira.delivery.manage_carriers import CarrierHealth, CarrierState
from tumira.delivery.store.binds import BindHealth, BindState
from tumira.delivery.store.latency import CarrierTally
from tumira.html import chart
from tumira.sending import lifecycle

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

WORDS: Final[Mapping[CarrierHealth, str]] = {
    CarrierHealth.WELL: "Takes messages.",
    CarrierHealth.THROTTLED: "Takes messages, but has told us to slow down.",
    CarrierHealth.FAILING: "Refuses messages, so one at a time is tried.",
    CarrierHealth.SILENT: (
        "Keeps the connection but does not answer, so one message at a time is tried. "
        "Another carrier for its countries takes the rest, if there is one."
    ),
    CarrierHealth.DOWN: "There is no connection.",
    CarrierHealth.NO_WORKER: "No worker holds a connection.",
}
# Their words are also those of the binds.
BADGES: Final[Mapping[str, str]] = {
    CarrierHealth.WELL: "delivered",
    CarrierHealth.THROTTLED: "unconfirmed",
    CarrierHealth.FAILING: "failed",
    CarrierHealth.SILENT: "failed",
    CarrierHealth.DOWN: "failed",
    CarrierHealth.NO_WORKER: "failed",
    BindState.BOUND: "delivered",
    BindState.CONNECTING: "unconfirmed",
}

# Counted when a carrier has taken the last segment of a message.
_HANDED_OVER: Final = "sent"
# Counted for each submit that was not answered in time.
_NO_ANSWER: Final = "no answer"


@dataclass(frozen=True, slots=True)
class BindRow:
    """A configured connection, and its health if a worker holds it."""

    number: int
    health: BindHealth | None


@dataclass(frozen=True, slots=True)
class Mix:
    """Counts of a carrier: outcomes of messages, reasons of failures, and error answers."""

    ends: Sequence[CarrierTally]
    reasons: Sequence[CarrierTally]
    answers: Sequence[CarrierTally]
    submitted: CarrierTally | None
    unanswered: CarrierTally | None

    @property
    def is_empty(self) -> bool:
        return not (self.ends or self.reasons or self.answers)


@dataclass(frozen=True, slots=True)
class Shown:
    state: CarrierState
    url: str
    words: str
    countries: str
    binds: Sequence[BindRow]
    outstanding: int
    window: int
    pace: str
    mix: Mix
    delivered_hour: str
    delivered_day: str
    per_minute: str


def show(state: CarrierState, tallies: Sequence[CarrierTally]) -> Shown:
    carrier = state.carrier
    settings = carrier.settings
    mix = _mix([one for one in tallies if one.carrier_id == carrier.id])
    held = {one.number: one for one in state.binds}
    numbers = sorted({*range(1, settings.binds + 1), *held})
    lately = 0 if mix.submitted is None else mix.submitted.lately
    return Shown(
        state=state,
        url=carrier_url.write(settings),
        words=WORDS[state.health],
        countries="every country" if carrier.countries is None else ", ".join(carrier.countries),
        binds=[BindRow(number, held.get(number)) for number in numbers],
        outstanding=sum(one.outstanding for one in state.binds),
        window=settings.window_size * (len(state.binds) or settings.binds),
        pace=_pace(state),
        mix=mix,
        delivered_hour=_delivered(mix, lambda one: one.lately),
        delivered_day=_delivered(mix, lambda one: one.count),
        per_minute=f"{lately / (HOUR / timedelta(minutes=1)):,.1f}",
    )


def _pace(state: CarrierState) -> str:
    """Describe the current and the highest pace."""
    limit = state.carrier.settings.tps
    most = f"{limit:,} a second" if limit else "no limit of ours"
    paces = [one.pace for one in state.binds]
    known = [one for one in paces if one is not None]
    if not paces or len(known) < len(paces):
        return most
    now = sum(known)
    return f"{now:,} a second now, of {most}" if limit else f"{now:,} a second now, with {most}"


def _mix(tallies: Sequence[CarrierTally]) -> Mix:
    def some(is_wanted: Callable[[str], bool]) -> Sequence[CarrierTally]:
        return [one for one in tallies if is_wanted(one.outcome)]

    return Mix(
        some(_is_end),
        some(lifecycle.FAILURE_REASONS.__contains__),
        some(lambda word: not (_is_end(word) or word in lifecycle.FAILURE_REASONS or word == _HANDED_OVER)),
        next(iter(some(_HANDED_OVER.__eq__)), None),
        next(iter(some(_NO_ANSWER.__eq__)), None),
    )


def _is_end(word: str) -> bool:
    return word in lifecycle.MESSAGE_STATUSES and lifecycle.is_final(word)


def _delivered(mix: Mix, figure: Callable[[CarrierTally], int]) -> str:
    delivered = sum(figure(one) for one in mix.ends if one.outcome == "delivered")
    return chart.rate(delivered, sum(figure(one) for one in mix.ends))
