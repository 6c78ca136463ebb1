"""Carriers: health and outcomes of each, and how one is added, tested, changed and removed.

A carrier's password comes in with its URL or beside it, and is never shown again, not even in a form that
comes back.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, change, view
from tumira.core.errors import FieldError, OperatorError
from tumira.delivery import carrier_url, manage_carriers
from tumira.delivery.bind_check import BindCheck, check_bind
from tumira.delivery.manage_carriers import PRIORITY_DEFAULT, CarrierHealth, CarrierState
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.store import binds
from tumira.delivery.store import latency as latencies
from tumira.delivery.store.binds import BindHealth, BindState
from tumira.delivery.store.latency import CarrierTally
from tumira.html import chart
from tumira.html.forms import Faults, Form, Text, Whole
from tumira.html.redirect import redirect
from tumira.pricing.store import get_tariff
from tumira.sending import lifecycle

CARRIERS: Final = "/operator/carriers"
ONE: Final = CARRIERS + "/{name}"
URL_MAX: Final = 1_000
# The operator waits for the page meanwhile.
TRIAL: Final = SmppTimeouts(bind_s=5, enquire_answer_s=4, unbind_s=1)

DONE: Final = {
    "added": "The carrier is added. A worker binds to it within seconds.",
    "first": "The carrier is added. A worker binds to it within seconds. The simulator gets no more messages "
    "that this carrier can take, not even while it is away; remove the simulator to empty its handsets.",
    "changed": "The carrier is changed. Workers bind to it again within seconds.",
    "same": "Nothing changed.",
    "removed": "The carrier is removed. Workers close their connections once pending messages are answered.",
}
LABELS: Final = {
    "name": "Name",
    "url": "URL",
    "password": "Password",
    "countries": "Countries",
    "priority": "Priority",
    "window": "Window",
    "tps": "Messages a second",
    "confirmed": "Name of the carrier",
}

_NUMBER_MAX: Final = 10**9 - 1

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
_COUNTRIES: Final = re.compile(r"[\s,;]+")


class _CarrierForm(Form):
    countries = Text(cut=URL_MAX)
    priority = Whole(0, _NUMBER_MAX, cut=URL_MAX)

    def list_countries(self) -> Sequence[str] | None:
        """Return the countries by their two letters; None for every country."""
        return [one.upper() for one in _COUNTRIES.split(self.countries.data) if one] or None


class NewCarrierForm(_CarrierForm):
    name = Text(cut=URL_MAX)
    url = Text(
        lambda url: f"The URL of a carrier has at most {URL_MAX} characters." if len(url) > URL_MAX else None,
        is_secret=True,
    )
    password = Text(is_secret=True)


class SettingsForm(_CarrierForm):
    window = Whole(0, _NUMBER_MAX, cut=URL_MAX)
    tps = Whole(0, _NUMBER_MAX, cut=URL_MAX)


class RemoveForm(Form):
    confirmed = Text()


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


def routes(services: Services) -> Sequence[Route]:
    return [
        view(services, CARRIERS, show_carriers),
        view(services, ONE, show_carrier),
        change(services, CARRIERS, add),
        change(services, ONE + "/change", change_settings),
        change(services, ONE + "/test", try_carrier),
        change(services, ONE + "/remove", remove),
    ]


async def show_carriers(session: OperatorSession) -> Response:
    return await _list(session, {})


async def _list(
    session: OperatorSession, faults: Faults, status: int = 200, filled: Mapping[str, str] | None = None
) -> Response:
    states = await manage_carriers.list_carriers(session.database)
    uncovered, tallies = await _read(session)
    return session.page(
        "carriers.html.jinja",
        status,
        carriers=[show(one, tallies) for one in states],
        uncovered=uncovered,
        badges=BADGES,
        labels=LABELS,
        faults=faults,
        filled=filled or {"name": "", "countries": "", "priority": str(PRIORITY_DEFAULT)},
        done=_done(session),
        now=datetime.now(UTC),
    )


async def _read(session: OperatorSession) -> tuple[Sequence[str], Sequence[CarrierTally]]:
    """Return the countries without a working carrier, and the outcomes of all carriers."""
    now = datetime.now(UTC)
    since, lately = (latencies.slot_of(now - back) for back in (DAY, HOUR))
    async with session.database.connection() as connection:
        tallies = await latencies.list_carrier_outcomes(connection, since, lately)
        without = await binds.countries_without_carrier(connection)
        destinations = (await get_tariff(connection)).destinations
    return [one.name for one in destinations if one.country in without], tallies


async def show_carrier(session: OperatorSession) -> Response:
    return await _page(session, {})


async def _page(
    session: OperatorSession,
    faults: Faults,
    status: int = 200,
    *,
    filled: Mapping[str, str] | None = None,
    tried: BindCheck | None = None,
) -> Response:
    state = await _state(session)
    carrier = state.carrier
    _, tallies = await _read(session)
    others = await manage_carriers.list_carriers(session.database)
    async with session.database.connection() as connection:
        destinations = (await get_tariff(connection)).destinations
    rest = [one.carrier for one in others if one.carrier.name != carrier.name]
    own = [one for one in destinations if carrier.covers(one.country)]
    alone = [one.name for one in own if not any(other.covers(one.country) for other in rest)]
    left_to_simulator = [
        one.name
        for one in own
        if not carrier.simulator
        and one.name not in alone
        and all(other.simulator for other in rest if other.covers(one.country))
    ]
    return session.page(
        "carrier.html.jinja",
        status,
        shown=show(state, tallies),
        alone=alone,
        left_to_simulator=left_to_simulator,
        path=f"{CARRIERS}/{carrier.name}",
        badges=BADGES,
        labels=LABELS,
        faults=faults,
        filled=filled
        or {
            "countries": "" if carrier.countries is None else ", ".join(carrier.countries),
            "priority": str(carrier.priority),
            "window": str(carrier.settings.window_size),
            "tps": str(carrier.settings.tps),
        },
        tried=tried,
        done=_done(session),
        now=datetime.now(UTC),
    )


async def _state(session: OperatorSession) -> CarrierState:
    name = session.request.path_params["name"]
    for one in await manage_carriers.list_carriers(session.database):
        if one.carrier.name == name:
            return one
    raise HTTPException(404, "There is no such carrier")


async def add(session: OperatorSession) -> Response:
    form = await NewCarrierForm.read(session.request)
    if not form.faults:
        try:
            await manage_carriers.add_carrier(
                session.database,
                form.name.data,
                form.url.data,
                form.list_countries(),
                form.priority.data,
                actor=session.actor,
                replace=False,
                password=form.password.data or None,
            )
            simulated = await manage_carriers.list_simulated(session.database)
            is_first = len(simulated) < len(session.simulated)
            return redirect(CARRIERS + ("?done=first" if is_first else "?done=added"))
        except OperatorError as error:
            form.faults[_field_of(error)] = str(error)
    return await _list(session, form.faults, 422, form.filled)


async def change_settings(session: OperatorSession) -> Response:
    state = await _state(session)
    form = await SettingsForm.read(session.request)
    if not form.faults:
        try:
            changed = await manage_carriers.change_carrier(
                session.database,
                state.carrier.name,
                priority=form.priority.data,
                countries=form.list_countries(),
                window_size=form.window.data,
                tps=form.tps.data,
                actor=session.actor,
            )
            return redirect(f"{CARRIERS}/{state.carrier.name}?done={'changed' if changed else 'same'}")
        except OperatorError as error:
            form.faults[_field_of(error)] = str(error)
    return await _page(session, form.faults, 422, filled=form.filled)


async def try_carrier(session: OperatorSession) -> Response:
    """Bind to a carrier from here, ask whether it is there, and unbind; nothing is sent."""
    state = await _state(session)
    try:
        tried = await check_bind(state.carrier.settings, TRIAL)
    except OperatorError as error:
        return await _page(session, {"": str(error)}, 422)
    return await _page(session, {}, tried=tried)


async def remove(session: OperatorSession) -> Response:
    """Take a carrier out of use, once its name was typed."""
    state = await _state(session)
    name = state.carrier.name
    form = await RemoveForm.read(session.request)
    if form.confirmed.data != name:
        return await _page(session, {"confirmed": f"Type {name} to remove it."}, 422)
    try:
        await manage_carriers.remove_carrier(session.database, name, actor=session.actor)
    except OperatorError as error:
        raise HTTPException(409, str(error)) from None
    return redirect(CARRIERS + "?done=removed")


def _done(session: OperatorSession) -> str | None:
    return DONE.get(session.request.query_params.get("done", ""))


def _field_of(error: OperatorError) -> str:
    return error.field if isinstance(error, FieldError) else ""


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
