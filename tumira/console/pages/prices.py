"""Prices per country: what counts now, what is scheduled, and new countries."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.console.session import OperatorSession, Services, page
from tumira.core.errors import OperatorError
from tumira.core.translation import _, mark
from tumira.html.forms import TYPED_MAX, Amount, Choice, Flag, Form, FormRefused, TextField
from tumira.html.page import LOCAL, write_moment, write_price
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

DONE: Final = {
    "added": mark("Country added. Set a price so that customers can send to it."),
    "set": mark("Price set. It applies to the next message."),
    "announced": mark("Planned price saved. It is shown in price lists and not charged."),
    "scheduled": mark("Price scheduled."),
    "withdrawn": mark("Scheduled price cancelled."),
}
STATUSES: Final = (
    (PriceStatus.ACTIVE.value, mark("Now")),
    (PriceStatus.COMING_SOON.value, mark("Planned: shown, not charged")),
)

_NO_COUNTRY: Final = mark("Choose a country from the list.")
_NO_PRICE: Final = mark("Enter a price in US dollars with at most four decimals, for example 0.019.")


def _check_country(text: str) -> str | None:
    is_code = len(text) == 2 and text.isascii() and text.isalpha()  # noqa: PLR2004 - ISO 3166
    return None if is_code else _("Enter the two letters of the country code, for example ZM.")


def _check_calling_code(text: str) -> str | None:
    code = text.removeprefix("+")
    is_code = code.isascii() and code.isdigit() and 1 <= len(code) <= 4 and code[0] != "0"  # noqa: PLR2004 - E.164
    return None if is_code else _("Enter a calling code of one to four digits, for example 260.")


def _check_lengths(text: str) -> str | None:
    fault = _("Enter how many digits follow the calling code, for example 9, or 8, 9.")
    return None if _read_lengths(text) else fault


class DestinationForm(Form):
    new_country = TextField(_check_country, cut=TYPED_MAX)
    name = TextField(check_name, clean=lambda text: clean_name(text)[:NAME_MAX])
    calling_code = TextField(_check_calling_code, cut=TYPED_MAX)
    lengths = TextField(_check_lengths, cut=TYPED_MAX)


class PriceForm(Form):
    country = TextField(cut=TYPED_MAX)
    price = Amount(fault=_NO_PRICE, is_needed=True)
    status = Choice(dict(STATUSES), mark("Choose when the price takes effect."), cut=TYPED_MAX)
    confirmed = Flag(value="yes", is_secret=True)


def _read_moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=LOCAL) if moment.tzinfo is None else None


def _check_moment(text: str) -> str | None:
    moment = _read_moment(text)
    if moment is None:
        return _("Enter a date and time, for example 2030-01-31T06:00.")
    is_past = moment <= datetime.now(LOCAL)
    return _("This time has passed. Choose a later time, or set the price now.") if is_past else None


class ScheduleForm(Form):
    later_country = TextField(cut=TYPED_MAX)
    later_price = Amount(fault=_NO_PRICE, is_needed=True)
    from_at = TextField(_check_moment, cut=TYPED_MAX)
    confirmed = Flag(value="yes", is_secret=True)


class WithdrawForm(Form):
    country = TextField()
    from_at = TextField()


def routes(services: Services) -> Sequence[Route]:
    forms = {
        "/destinations": add_destination,
        "/set": set_price,
        "/schedule": schedule,
        "/withdraw": withdraw,
    }
    return page(services, PRICES, show_prices, forms)


async def show_prices(session: OperatorSession) -> Response:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        scheduled = await list_scheduled(connection, SCHEDULED_MAX)
    return session.page(
        "prices.html.jinja",
        destinations=tariff.destinations,
        active=_prices(tariff, PriceStatus.ACTIVE),
        announced=_prices(tariff, PriceStatus.COMING_SOON),
        scheduled=scheduled,
        names=_names(tariff),
        statuses=[(status, _(words)) for status, words in STATUSES],
        done=DONE,
    )


def _names(tariff: Tariff) -> Mapping[str, str]:
    return {one.country: one.name for one in tariff.destinations}


def _prices(tariff: Tariff, status: PriceStatus) -> Mapping[str, Decimal]:
    return {
        one.country: one.price_usd for one in tariff.prices if one.channel == CHANNEL and one.status == status
    }


async def add_destination(session: OperatorSession) -> Response:
    form = await DestinationForm.read(session.request)
    country = form.new_country.data.upper()
    if country in _names(await _tariff(session)):
        form.faults["new_country"] = _("This country is in the list already.")
    form.refuse_faults()
    added = Destination(
        country, form.calling_code.data.removeprefix("+"), form.name.data, _read_lengths(form.lengths.data)
    )
    with form.blame():
        await actions.add_destination(session.database, added, session.actor)
    return redirect(PRICES + "?done=added")


def _read_lengths(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > LENGTHS_MAX or not all(part.isascii() and part.isdigit() for part in parts):
        return ()
    lengths = tuple(sorted({int(part) for part in parts}))
    return lengths if all(1 <= one <= NATIONAL_LENGTH_MAX for one in lengths) else ()


async def set_price(session: OperatorSession) -> Response:
    """Set a price, once the operator has seen the old one beside it."""
    form = await PriceForm.read(session.request)
    tariff = await _tariff(session)
    if form.country.data not in _names(tariff):
        form.faults["country"] = _(_NO_COUNTRY)
    form.refuse_faults()
    assert form.price.data is not None
    price = Price(CHANNEL, form.country.data, form.price.data, PriceStatus(form.status.data))
    if not form.confirmed.data:
        counts, button = _("Now"), _("Set price")
        if price.status is PriceStatus.COMING_SOON:
            counts, button = _("Planned: shown, not charged"), _("Save planned price")
        return _confirm(session, tariff, price, counts, form, button)
    await actions.set_price(session.database, price, session.actor)
    return redirect(PRICES + ("?done=set" if price.status is PriceStatus.ACTIVE else "?done=announced"))


async def schedule(session: OperatorSession) -> Response:
    """Schedule a price, once the operator has seen the present one beside it."""
    form = await ScheduleForm.read(session.request)
    tariff = await _tariff(session)
    from_at = _read_moment(form.from_at.data)
    if form.later_country.data not in _names(tariff):
        form.faults["later_country"] = _(_NO_COUNTRY)
    form.refuse_faults()
    assert form.later_price.data is not None
    assert from_at is not None
    price = Price(CHANNEL, form.later_country.data, form.later_price.data, PriceStatus.ACTIVE)
    if not form.confirmed.data:
        counts = _("{moment} (UTC+02:00)").format(moment=write_moment(from_at))
        return _confirm(session, tariff, price, counts, form, _("Schedule price"))
    with form.blame("from_at"):
        await schedule_price(
            session.database,
            channel=price.channel,
            country=price.country,
            price_usd=price.price_usd,
            from_at=from_at,
            actor=session.actor,
        )
    return redirect(PRICES + "?done=scheduled")


def _confirm(
    session: OperatorSession, tariff: Tariff, price: Price, counts: str, form: Form, button: str
) -> Response:
    active = _prices(tariff, PriceStatus.ACTIVE).get(price.country)
    return session.page(
        "confirm.html.jinja",
        title=_("Check the price"),
        facts={
            _("Country"): _names(tariff)[price.country],
            _("Price now"): _("None: sending is off") if active is None else _a_segment(active),
            _("New price"): _a_segment(price.price_usd),
            _("Takes effect"): counts,
        },
        fields={**form.filled, "confirmed": "yes"},
        action=session.request.url.path,
        button=button,
        back=PRICES,
    )


def _a_segment(price: Decimal) -> str:
    return _("{price} per segment").format(price=write_price(price))


async def withdraw(session: OperatorSession) -> Response:
    form = await WithdrawForm.read(session.request)
    try:
        from_at = datetime.fromisoformat(form.from_at.data)
        await withdraw_price(
            session.database,
            channel=CHANNEL,
            country=form.country.data,
            from_at=from_at.astimezone(LOCAL),
            actor=session.actor,
        )
    except (OperatorError, ValueError, OverflowError) as fault:
        told = str(fault) if isinstance(fault, OperatorError) else _("This price is not scheduled.")
        raise FormRefused({"": told}) from None
    return redirect(PRICES + "?done=withdrawn")


async def _tariff(session: OperatorSession) -> Tariff:
    async with session.database.connection() as connection:
        return await get_tariff(connection)
