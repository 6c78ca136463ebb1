"""Carriers: health and outcomes of each, and how one is added, tested, changed and removed.

A carrier's password comes in with its URL or beside it, and is never shown again, not even in a form that
comes back. So are the secrets of a carrier over HTTP.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.carriers import http_store as http_carriers
from tumira.carriers import manage as manage_carriers
from tumira.carriers.http.access import callback_url
from tumira.carriers.http.profile import load_profile, profile_names
from tumira.carriers.http_store import CarrierBalance
from tumira.carriers.manage import PRIORITY_DEFAULT
from tumira.carriers.store import Carrier
from tumira.console import hourly_charts
from tumira.console.session import OperatorSession, Services, page
from tumira.core.errors import FieldError, OperatorError
from tumira.core.translation import _, mark
from tumira.delivery.carrier_health import CarrierHealth, CarrierState, list_carriers
from tumira.delivery.http.client import HttpTimeouts
from tumira.delivery.http.trial import AccessCheck, check_access
from tumira.delivery.smpp.bind_check import BindCheck, check_bind
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.store import binds, hourly
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
LINES_MAX: Final = 16_000
# The operator waits for the page meanwhile.
TRIAL: Final = SmppTimeouts(bind_s=5, enquire_answer_s=4, unbind_s=1)
HTTP_TRIAL: Final = HttpTimeouts(connect_s=3, answer_s=6)

DONE: Final = {
    "added": mark("Carrier added. A worker connects to it within seconds."),
    "first": mark(
        "Carrier added. A worker connects to it within seconds. Messages that it can take no longer "
        "go to the simulator, even while the carrier is down. Remove the simulator to empty its handsets."
    ),
    "changed": mark("Settings saved. Workers reconnect within seconds."),
    "same": mark("Nothing to save: the settings are the same as before."),
    "removed": mark("Carrier removed. Workers disconnect once all submitted messages are answered."),
}
_NUMBER_MAX: Final = 10**9 - 1

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

NAMES: Final[Mapping[CarrierHealth, str]] = {
    CarrierHealth.WELL: mark("Working"),
    CarrierHealth.THROTTLED: mark("Throttled"),
    CarrierHealth.FAILING: mark("Failing"),
    CarrierHealth.SILENT: mark("Not responding"),
    CarrierHealth.DOWN: mark("Disconnected"),
    CarrierHealth.NO_WORKER: mark("No worker"),
}
WORDS: Final[Mapping[CarrierHealth, str]] = {
    CarrierHealth.WELL: mark("Accepting messages."),
    CarrierHealth.THROTTLED: mark("Accepting messages, but has asked us to slow down."),
    CarrierHealth.FAILING: mark("Refusing messages. We try one at a time until it accepts them again."),
    CarrierHealth.SILENT: mark(
        "Connected, but not answering. We try one message at a time. "
        "Other carriers for the same countries take the rest."
    ),
    CarrierHealth.DOWN: mark("There is no connection to this carrier."),
    CarrierHealth.NO_WORKER: mark("No worker is connected to this carrier."),
}
BIND_STATES: Final[Mapping[BindState, str]] = {
    BindState.BOUND: mark("Bound"),
    BindState.CONNECTING: mark("Connecting"),
    BindState.THROTTLED: mark("Throttled"),
    BindState.FAILING: mark("Failing"),
    BindState.DOWN: mark("Down"),
}
# Those of carriers and of their binds that are not failing.
BADGES: Final[Mapping[str, str]] = {
    CarrierHealth.WELL: "delivered",
    CarrierHealth.THROTTLED: "unconfirmed",
    BindState.BOUND: "delivered",
    BindState.CONNECTING: "unconfirmed",
}

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
        lambda url: (
            _("Enter a URL of at most {most} characters.").format(most=URL_MAX)
            if len(url) > URL_MAX
            else None
        ),
        is_secret=True,
    )
    password = TextField(is_secret=True)
    profile = TextField(cut=URL_MAX)
    settings = TextField(cut=LINES_MAX)
    secrets = TextField(cut=LINES_MAX, is_secret=True)


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
    states = await list_carriers(session.database)
    now = datetime.now(UTC)
    async with session.database.connection() as connection:
        tallies = await _tallies(connection, now)
        balances = await _balances(connection)
        without = await binds.countries_without_carrier(connection)
        destinations = (await get_tariff(connection)).destinations
    return session.page(
        "carriers.html.jinja",
        carriers=[_view(one, tallies) for one in states],
        uncovered=[one.name for one in destinations if one.country in without],
        filled={"priority": str(PRIORITY_DEFAULT)},
        profiles=[(name, load_profile(name).title) for name in profile_names()],
        balances=balances,
        done=DONE,
        **_writers(now),
    )


async def show_carrier(session: OperatorSession, tried: BindCheck | AccessCheck | None = None) -> Response:
    state, *others = await _states(session)
    carrier = state.carrier
    now = datetime.now(UTC)
    hours = hourly_charts.last_hours(now)
    async with session.database.connection() as connection:
        tallies = await _tallies(connection, now)
        balances = await _balances(connection)
        outcomes = await hourly.list_outcomes(connection, hours[0], carrier.id)
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
        balances=balances,
        callback_url=_callback_url(session, carrier),
        window=hourly_charts.describe(hours),
        messages=hourly_charts.draw_messages(hours, outcomes),
        errors=[
            (key, name, hourly_charts.draw_errors(hours, outcomes, is_error, name))
            for key, name, is_error in (
                ("reasons", _("Failed messages by reason"), hourly_charts.is_reason),
                ("answers", _("Errors from the carrier"), hourly_charts.is_answer),
            )
        ],
        done=DONE,
        **_writers(now),
    )


async def _tallies(connection: Connection, now: datetime) -> Sequence[CarrierTally]:
    since, lately = (latencies.slot_of(now - back) for back in (DAY, HOUR))
    return await latencies.list_carrier_outcomes(connection, since, lately)


async def _balances(connection: Connection) -> Mapping[int, CarrierBalance]:
    return {one.carrier_id: one for one in await http_carriers.list_balances(connection)}


def _callback_url(session: OperatorSession, carrier: Carrier) -> str | None:
    """Return the address that a provider calls; only for those who may change the carrier."""
    if carrier.http is None or not session.may_change:
        return None
    return callback_url(session.services.public_url, carrier.http)


def _writers(now: datetime) -> Mapping[str, Any]:
    """Return what both pages write carriers with."""
    since_hour = latencies.slot_of(now - HOUR)
    return {
        "now": now,
        "since_hour": since_hour,
        "since_day": latencies.slot_of(now - DAY),
        "per_minute": lambda count: f"{count * timedelta(minutes=1) / (now - since_hour):,.1f}",
        "badges": BADGES,
        "health_names": NAMES,
        "health_words": WORDS,
        "bind_states": BIND_STATES,
        "write_address": manage_carriers.write_address,
        "pace": _pace,
        "delivered": _delivered,
    }


async def _states(session: OperatorSession) -> Sequence[CarrierState]:
    """Return all carriers, and first the carrier of the address."""
    name = session.request.path_params["name"]
    states = await list_carriers(session.database)
    own = or_404(
        next((one for one in states if one.carrier.name == name), None), _("This carrier does not exist")
    )
    return [own, *(one for one in states if one is not own)]


async def add(session: OperatorSession) -> Response:
    form = await NewCarrierForm.accept(session.request)
    place = (form.list_countries(), form.priority.data)
    with form.blame():
        if form.profile.data:
            access = manage_carriers.new_access(
                form.profile.data,
                form.url.data,
                _read_pairs("settings", form.settings.data),
                _read_pairs("secrets", form.secrets.data),
            )
            await manage_carriers.add_http_carrier(
                session.database, form.name.data, access, *place, actor=session.actor, replace=False
            )
        else:
            await manage_carriers.add_carrier(
                session.database,
                form.name.data,
                form.url.data,
                *place,
                actor=session.actor,
                replace=False,
                password=form.password.data or None,
            )
    simulated = await manage_carriers.list_simulated(session.database)
    is_first = len(simulated) < len(session.simulated)
    return redirect(CARRIERS + ("?done=first" if is_first else "?done=added"))


def _read_pairs(field: str, text: str) -> Mapping[str, str]:
    """Read lines of the form KEY=VALUE; an error repeats none of them."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, value = (part.strip() for part in line.partition("="))
        if not name and not sign:
            continue
        if not name or not sign or name in pairs:
            raise FieldError(field, _("Write each on its own line as KEY=VALUE, and each key once."))
        pairs[name] = value
    return pairs


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
    """Bind to a carrier from here, or ask it for the credit left; nothing is sent."""
    state, *_ = await _states(session)
    carrier = state.carrier
    tried: BindCheck | AccessCheck
    try:
        if carrier.http is None:
            tried = await check_bind(carrier.settings, TRIAL)
        else:
            tried = await check_access(carrier, timing=HTTP_TRIAL, proxy=session.services.carrier_proxy)
    except OperatorError as error:
        raise FormRefused({"": str(error)}) from None
    return await show_carrier(session, tried)


async def remove(session: OperatorSession) -> Response:
    """Take a carrier out of use, once its name was typed."""
    name = (await _states(session))[0].carrier.name
    form = await RemoveForm.read(session.request)
    if form.confirmed.data != name:
        raise FormRefused({"confirmed": _("Type {name} to remove this carrier.").format(name=name)})
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
    answers = {word for word in by_outcome if hourly_charts.is_answer(word)}

    def some(words: set[str]) -> Sequence[CarrierTally]:
        return [one for word, one in by_outcome.items() if word in words]

    return CarrierView(
        state,
        [(number, held.get(number)) for number in numbers],
        some(ends),
        some(reasons),
        some(answers),
        by_outcome.get(hourly_charts.SUBMITTED),
        by_outcome.get(_NO_ANSWER),
    )


def _pace(state: CarrierState) -> str:
    """Describe the current and the highest pace."""
    limit = state.carrier.settings.tps
    most = _("At most {limit} a second.").format(limit=f"{limit:,}") if limit else _("No limit.")
    paces = [one.pace for one in state.binds]
    known = [one for one in paces if one is not None]
    if not paces or len(known) < len(paces):
        return most
    return _("{now} a second now.").format(now=f"{sum(known):,}") + " " + most


def _delivered(ends: Sequence[CarrierTally], column: str) -> str:
    """Write which share was delivered, in the window that a column counts."""
    delivered = sum(getattr(one, column) for one in ends if one.outcome == "delivered")
    return chart.rate(delivered, sum(getattr(one, column) for one in ends))
