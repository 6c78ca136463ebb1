"""What does a segment cost where, now and later, and how does the operator change that?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, change, view
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.html.forms import Form, read_form
from tumira.html.page import LOCAL
from tumira.html.redirect import redirect
from tumira.identity.person_rules import NAME_MAX, check_name, clean_name
from tumira.pricing import actions
from tumira.pricing.actions import SCHEDULED_MAX, schedule_price, withdraw_price
from tumira.pricing.destinations import Destination, Price, PriceStatus, Tariff
from tumira.pricing.store import get_tariff, list_scheduled

PRICES: Final = "/operator/prices"
CHANNEL: Final = "sms"
NATIONAL_LENGTH_MAX: Final = 14
LENGTHS_MAX: Final = 5
# Longer than anything that can be right.
TYPED_MAX: Final = 40

DONE: Final = {
    "added": "The country is added. It can be sent to once it has a price that is charged.",
    "set": "The price is set. It counts from the next call.",
    "announced": "The price is announced. It is shown, and not charged.",
    "scheduled": "The price is scheduled. A worker puts it into force.",
    "withdrawn": "The price is withdrawn. It will not count.",
}
STATUSES: Final = (
    (PriceStatus.ACTIVE.value, "charged at once"),
    (PriceStatus.COMING_SOON.value, "announced, not charged"),
)
LABELS: Final = {
    "country": "Country",
    "price": "Price",
    "status": "What it is for",
    "later_country": "Country",
    "later_price": "New price",
    "from_at": "Counts from",
    "new_country": "Two letters",
    "name": "Name",
    "calling_code": "Calling code",
    "lengths": "Digits after it",
}

_NO_PRICE: Final = "Write it in US dollars with at most four decimals, as in 0.0190."

Faults = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Line:
    """A country, with what a segment to it costs and will cost."""

    destination: Destination
    active: Decimal | None
    coming: Decimal | None
    lengths: str


def routes(services: Services) -> Sequence[Route]:
    """Return where these pages are."""
    return [
        view(services, PRICES, show_prices),
        change(services, PRICES + "/destinations", add_destination),
        change(services, PRICES + "/set", set_price),
        change(services, PRICES + "/schedule", schedule),
        change(services, PRICES + "/withdraw", withdraw),
    ]


async def show_prices(session: OperatorSession) -> Response:
    """Show all countries and prices, and the forms."""
    return await _page(session, {}, done=DONE.get(session.request.query_params.get("done", "")))


async def _page(
    session: OperatorSession,
    faults: Faults,
    status: int = 200,
    filled: Mapping[str, str] | None = None,
    done: str | None = None,
) -> Response:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        coming = await list_scheduled(connection, SCHEDULED_MAX)
    names = _names(tariff)
    return session.page(
        "prices.html.jinja",
        status,
        lines=_lines(tariff),
        coming=[(one, names[one.country], _active(tariff, one.country)) for one in coming],
        countries=list(names.items()),
        statuses=STATUSES,
        labels=LABELS,
        faults=faults,
        filled={**dict.fromkeys(LABELS, ""), **(filled or {})},
        done=done,
    )


def _names(tariff: Tariff) -> Mapping[str, str]:
    return {one.country: one.name for one in tariff.destinations}


def _lines(tariff: Tariff) -> Sequence[Line]:
    found = {(one.country, one.status): one.price_usd for one in tariff.prices if one.channel == CHANNEL}
    return [
        Line(
            one,
            found.get((one.country, PriceStatus.ACTIVE)),
            found.get((one.country, PriceStatus.COMING_SOON)),
            ", ".join(map(str, one.national_lengths)),
        )
        for one in tariff.destinations
    ]


def _active(tariff: Tariff, country: str) -> Decimal | None:
    return next((line.active for line in _lines(tariff) if line.destination.country == country), None)


async def add_destination(session: OperatorSession) -> Response:
    """Add a country."""
    form = await read_form(session.request)
    filled = {name: form.text(name)[:TYPED_MAX] for name in ("new_country", "calling_code", "lengths")}
    filled["name"] = clean_name(form.text("name"))[:NAME_MAX]
    code = filled["calling_code"].removeprefix("+")
    lengths = _read_lengths(filled["lengths"])
    faults = {}
    if not (len(filled["new_country"]) == 2 and _is_letters(filled["new_country"])):  # noqa: PLR2004 - ISO 3166
        faults["new_country"] = "Write the two letters of the country, as in ZM."
    elif filled["new_country"].upper() in _names(await _tariff(session)):
        faults["new_country"] = "This country is in the list already."
    fault = check_name(filled["name"])
    if fault is not None:
        faults["name"] = fault
    if not (code.isascii() and code.isdigit() and 1 <= len(code) <= 4 and code[0] != "0"):  # noqa: PLR2004 - E.164
        faults["calling_code"] = "Write one to four digits, as in 260."
    if not lengths:
        faults["lengths"] = "Write how many digits follow the calling code, as in 9, or 8, 9."
    if faults:
        return await _page(session, faults, 422, filled)
    added = Destination(filled["new_country"].upper(), code, filled["name"], lengths)
    try:
        await actions.add_destination(session.database, added, session.actor)
    except OperatorError as error:
        return await _page(session, {"": str(error)}, 422, filled)
    return redirect(PRICES + "?done=added")


def _is_letters(text: str) -> bool:
    return text.isascii() and text.isalpha()


def _read_lengths(text: str) -> tuple[int, ...]:
    """Return how many digits may follow the calling code; nothing if that cannot be read."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > LENGTHS_MAX or not all(part.isascii() and part.isdigit() for part in parts):
        return ()
    lengths = tuple(sorted({int(part) for part in parts}))
    return lengths if all(1 <= one <= NATIONAL_LENGTH_MAX for one in lengths) else ()


async def set_price(session: OperatorSession) -> Response:
    """Set a price, once the operator has seen the old one beside it."""
    form = await read_form(session.request)
    filled = {name: form.text(name)[:TYPED_MAX] for name in ("country", "price", "status")}
    tariff = await _tariff(session)
    price_usd = money.parse(filled["price"])
    faults = {}
    if filled["country"] not in _names(tariff):
        faults["country"] = "Choose a country of the list."
    if price_usd is None:
        faults["price"] = _NO_PRICE
    if filled["status"] not in {value for value, _ in STATUSES}:
        faults["status"] = "Choose one of the two."
    if faults or price_usd is None:
        return await _page(session, faults, 422, filled)
    price = Price(CHANNEL, filled["country"], price_usd, PriceStatus(filled["status"]))
    if not _is_confirmed(form):
        return _confirm(session, tariff, PRICES + "/set", filled, price)
    await actions.set_price(session.database, price, session.actor)
    return redirect(PRICES + ("?done=set" if price.status is PriceStatus.ACTIVE else "?done=announced"))


async def schedule(session: OperatorSession) -> Response:
    """Have a price count from a moment on, once the operator has seen the present one beside it."""
    form = await read_form(session.request)
    filled = {name: form.text(name)[:TYPED_MAX] for name in ("later_country", "later_price", "from_at")}
    tariff = await _tariff(session)
    price_usd = money.parse(filled["later_price"])
    from_at = _read_moment(filled["from_at"])
    faults = {}
    if filled["later_country"] not in _names(tariff):
        faults["later_country"] = "Choose a country of the list."
    if price_usd is None:
        faults["later_price"] = _NO_PRICE
    if from_at is None:
        faults["from_at"] = "Write a day and a time, as in 2030-01-31T06:00."
    elif from_at <= datetime.now(LOCAL):
        faults["from_at"] = "This moment has passed; choose a later one, or set the price now."
    if faults or price_usd is None or from_at is None:
        return await _page(session, faults, 422, filled)
    price = Price(CHANNEL, filled["later_country"], price_usd, PriceStatus.ACTIVE)
    if not _is_confirmed(form):
        return _confirm(session, tariff, PRICES + "/schedule", filled, price, from_at)
    try:
        await schedule_price(
            session.database,
            channel=price.channel,
            country=price.country,
            price_usd=price_usd,
            from_at=from_at,
            actor=session.actor,
        )
    except OperatorError as error:
        return await _page(session, {"from_at": str(error)}, 422, filled)
    return redirect(PRICES + "?done=scheduled")


def _read_moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=LOCAL) if moment.tzinfo is None else None


def _is_confirmed(form: Form) -> bool:
    return form.text("confirmed") == "yes"


def _confirm(
    session: OperatorSession,
    tariff: Tariff,
    path: str,
    filled: Mapping[str, str],
    price: Price,
    from_at: datetime | None = None,
) -> Response:
    return session.page(
        "price_confirm.html.jinja",
        path=path,
        filled=filled,
        price=price,
        country=_names(tariff)[price.country],
        active=_active(tariff, price.country),
        from_at=from_at,
    )


async def withdraw(session: OperatorSession) -> Response:
    """Withdraw a price that does not count yet."""
    form = await read_form(session.request)
    try:
        from_at = datetime.fromisoformat(form.text("from_at"))
        await withdraw_price(
            session.database,
            channel=CHANNEL,
            country=form.text("country"),
            from_at=from_at.astimezone(LOCAL),
            actor=session.actor,
        )
    except (OperatorError, ValueError, OverflowError) as fault:
        told = str(fault) if isinstance(fault, OperatorError) else "There is no such price to come."
        return await _page(session, {"": told}, 422)
    return redirect(PRICES + "?done=withdrawn")


async def _tariff(session: OperatorSession) -> Tariff:
    async with session.database.connection() as connection:
        return await get_tariff(connection)
