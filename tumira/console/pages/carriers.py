"""Carriers: health and outcomes of each, and how one is added, tested, changed and removed.

A carrier's password comes in with its URL or beside it, and is never shown again, not even in a form that
comes back.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, page
from tumira.core.errors import OperatorError
from tumira.delivery import carrier_url, manage_carriers
from tumira.delivery.bind_check import BindCheck, check_bind
from tumira.delivery.manage_carriers import PRIORITY_DEFAULT, CarrierHealth, CarrierState
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.store import binds
from tumira.delivery.store import latency as latencies
from tumira.delivery.store.binds import BindHealth, BindState
from tumira.delivery.store.latency import CarrierTally
from tumira.html import chart
from tumira.html.forms import Form, FormRefused, TextField, Whole
from tumira.html.guards import or_404
from tumira.html.redirect import redirect
from tumira.postgres.connection import Connection
from tumira.pricing.store import get_tariff
from tumira.sending import lifecycle

CARRIERS: Final = "/operator/carriers"
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
# Those of carriers and of their binds that are not failing.
BADGES: Final[Mapping[str, str]] = {
    CarrierHealth.WELL: "delivered",
    CarrierHealth.THROTTLED: "unconfirmed",
    BindState.BOUND: "delivered",
    BindState.CONNECTING: "unconfirmed",
}

# Counted when a carrier has taken the last segment of a message.
_HANDED_OVER: Final = "sent"
# Counted for each submit that was not answered in time.
_NO_ANSWER: Final = "no answer"
_COUNTRIES: Final = re.compile(r"[\s,;]+")


class _CarrierForm(Form):
    countries = TextField(cut=URL_MAX)
    priority = Whole(0, _NUMBER_MAX, cut=URL_MAX)

    def list_countries(self) -> Sequence[str] | None:
        """Return the countries by their two letters; None for every country."""
        return [one.upper() for one in _COUNTRIES.split(self.countries.data) if one] or None


class NewCarrierForm(_CarrierForm):
    name = TextField(cut=URL_MAX)
    url = TextField(
        lambda url: f"The URL of a carrier has at most {URL_MAX} characters." if len(url) > URL_MAX else None,
        is_secret=True,
    )
    password = TextField(is_secret=True)


class SettingsForm(_CarrierForm):
    window = Whole(0, _NUMBER_MAX, cut=URL_MAX)
    tps = Whole(0, _NUMBER_MAX, cut=URL_MAX)


class RemoveForm(Form):
    confirmed = TextField()


@dataclass(frozen=True, slots=True)
class CarrierView:
    """A carrier, its connections that are configured or held, and what it made of its messages."""

    state: CarrierState
    binds: Sequence[tuple[int, BindHealth | None]]
    ends: Sequence[CarrierTally]
    reasons: Sequence[CarrierTally]
    answers: Sequence[CarrierTally]
    submitted: CarrierTally | None
    unanswered: CarrierTally | None


def routes(services: Services) -> Sequence[Route]:
    forms = {"/change": change_settings, "/test": try_carrier, "/remove": remove}
    return [
        *page(services, CARRIERS, show_carriers, {"": add}),
        *page(services, CARRIERS + "/{name}", show_carrier, forms),
    ]


async def show_carriers(session: OperatorSession) -> Response:
    states = await manage_carriers.list_carriers(session.database)
    async with session.database.connection() as connection:
        tallies = await _tallies(connection)
        without = await binds.countries_without_carrier(connection)
        destinations = (await get_tariff(connection)).destinations
    return session.page(
        "carriers.html.jinja",
        carriers=[_view(one, tallies) for one in states],
        uncovered=[one.name for one in destinations if one.country in without],
        filled={"priority": str(PRIORITY_DEFAULT)},
        done=DONE,
        **_writers(),
    )


async def show_carrier(session: OperatorSession, tried: BindCheck | None = None) -> Response:
    state, *others = await _states(session)
    carrier = state.carrier
    async with session.database.connection() as connection:
        tallies = await _tallies(connection)
        destinations = (await get_tariff(connection)).destinations
    own = {one.country: one.name for one in destinations if carrier.covers(one.country)}
    left = {code: [one.carrier for one in others if one.carrier.covers(code)] for code in own}
    return session.page(
        "carrier.html.jinja",
        shown=_view(state, tallies),
        alone=[own[code] for code, rest in left.items() if not rest],
        left_to_simulator=[
            own[code]
            for code, rest in left.items()
            if rest and not carrier.simulator and all(one.simulator for one in rest)
        ],
        path=f"{CARRIERS}/{carrier.name}",
        filled={
            "countries": "" if carrier.countries is None else ", ".join(carrier.countries),
            "priority": str(carrier.priority),
            "window": str(carrier.settings.window_size),
            "tps": str(carrier.settings.tps),
        },
        tried=tried,
        done=DONE,
        **_writers(),
    )


async def _tallies(connection: Connection) -> Sequence[CarrierTally]:
    now = datetime.now(UTC)
    since, lately = (latencies.slot_of(now - back) for back in (DAY, HOUR))
    return await latencies.list_carrier_outcomes(connection, since, lately)


def _writers() -> Mapping[str, Any]:
    """Return what both pages write carriers with."""
    return {
        "now": datetime.now(UTC),
        "badges": BADGES,
        "words": WORDS,
        "write_url": carrier_url.write,
        "pace": _pace,
        "delivered": _delivered,
    }


async def _states(session: OperatorSession) -> Sequence[CarrierState]:
    """Return all carriers, and first the carrier of the address."""
    name = session.request.path_params["name"]
    states = await manage_carriers.list_carriers(session.database)
    own = or_404(next((one for one in states if one.carrier.name == name), None), "There is no such carrier")
    return [own, *(one for one in states if one is not own)]


async def add(session: OperatorSession) -> Response:
    form = await NewCarrierForm.accept(session.request)
    with form.blame():
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


async def change_settings(session: OperatorSession) -> Response:
    name = (await _states(session))[0].carrier.name
    form = await SettingsForm.accept(session.request)
    with form.blame():
        changed = await manage_carriers.change_carrier(
            session.database,
            name,
            priority=form.priority.data,
            countries=form.list_countries(),
            window_size=form.window.data,
            tps=form.tps.data,
            actor=session.actor,
        )
    return redirect(f"{CARRIERS}/{name}?done={'changed' if changed else 'same'}")


async def try_carrier(session: OperatorSession) -> Response:
    """Bind to a carrier from here, ask whether it is there, and unbind; nothing is sent."""
    state, *_ = await _states(session)
    try:
        tried = await check_bind(state.carrier.settings, TRIAL)
    except OperatorError as error:
        raise FormRefused({"": str(error)}) from None
    return await show_carrier(session, tried)


async def remove(session: OperatorSession) -> Response:
    """Take a carrier out of use, once its name was typed."""
    name = (await _states(session))[0].carrier.name
    form = await RemoveForm.read(session.request)
    if form.confirmed.data != name:
        raise FormRefused({"confirmed": f"Type {name} to remove it."})
    try:
        await manage_carriers.remove_carrier(session.database, name, actor=session.actor)
    except OperatorError as error:
        raise HTTPException(409, str(error)) from None
    return redirect(CARRIERS + "?done=removed")


def _view(state: CarrierState, tallies: Sequence[CarrierTally]) -> CarrierView:
    carrier = state.carrier
    held = {one.number: one for one in state.binds}
    numbers = sorted({*range(1, carrier.settings.binds + 1), *held})
    by_outcome = {one.outcome: one for one in tallies if one.carrier_id == carrier.id}
    ends = {word for word in by_outcome if word in lifecycle.MESSAGE_STATUSES and lifecycle.is_final(word)}
    reasons = by_outcome.keys() & lifecycle.FAILURE_REASONS
    answers = by_outcome.keys() - ends - reasons - {_HANDED_OVER}

    def some(words: set[str]) -> Sequence[CarrierTally]:
        return [one for word, one in by_outcome.items() if word in words]

    return CarrierView(
        state,
        [(number, held.get(number)) for number in numbers],
        some(ends),
        some(reasons),
        some(answers),
        by_outcome.get(_HANDED_OVER),
        by_outcome.get(_NO_ANSWER),
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


def _delivered(ends: Sequence[CarrierTally], column: str) -> str:
    """Write which share was delivered, in the window that a column counts."""
    delivered = sum(getattr(one, column) for one in ends if one.outcome == "delivered")
    return chart.rate(delivered, sum(getattr(one, column) for one in ends))
