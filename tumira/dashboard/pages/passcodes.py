"""The passcode guard: what it stopped, its limits, and the ranges of numbers that it leaves alone."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import message_settings
from tumira.accounts import store as accounts
from tumira.accounts.passcode_limits import (
    NUMBER_DAY_MOST,
    NUMBER_MOST,
    RANGE_MOST,
    PasscodeLimits,
)
from tumira.core.days import local_day
from tumira.core.translation import _, mark
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import TYPED_MAX, Faults, Form, TextField, Whole
from tumira.html.redirect import redirect
from tumira.identity import profile
from tumira.pricing.phone_numbers import country_of, read_phone
from tumira.pricing.store import get_tariff
from tumira.sending import code_stops
from tumira.sending.code_guard import range_of

PASSCODES: Final = "/dashboard/settings/passcodes"
STOPS_SHOWN: Final = 50
RANGES_SHOWN: Final = 2 * code_stops.LIFTED_MAX

# What is said after a change, by the name in the address.
DONE: Final = {
    "limits": mark("Passcode limits saved. They apply from now on."),
    "lifted": mark("Passcodes to these numbers are no longer stopped."),
    "guarded": mark("These numbers are guarded again."),
}

_WHOLE: Final = mark("Enter a whole number from 1 to {most}, or leave it empty for the default.")
_RANGE: Final = re.compile(r"\+[1-9][0-9]{2,11}")


class OptionalWhole(Whole):
    """A whole number; None where the field was left empty."""

    data: int | None  # type: ignore[assignment]

    def __init__(self, most: int, **options: Any) -> None:
        super().__init__(1, most, _WHOLE.format(most=f"{most:,}"), cut=TYPED_MAX, **options)

    def convert(self, text: str) -> int | None:  # type: ignore[override]
        return super().convert(text) if text else None


class PasscodeLimitsForm(Form):
    number = OptionalWhole(NUMBER_MOST)
    number_day = OptionalWhole(NUMBER_DAY_MOST)
    range_ = OptionalWhole(RANGE_MOST, name="range")


class RangeForm(Form):
    prefix = TextField(cut=TYPED_MAX)
    phone = TextField(cut=40)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, PASSCODES, show),
        private(services, PASSCODES, change_limits, "POST"),
        private(services, PASSCODES + "/lift", lift, "POST"),
        private(services, PASSCODES + "/guard", guard, "POST"),
    ]


async def show(session: CustomerSession) -> Response:
    done = DONE.get(session.request.query_params.get("done", ""))
    return await _page(session, {}, done=done)


async def _page(
    session: CustomerSession, faults: Faults, status: int = 200, *, done: str | None = None, **written: str
) -> Response:
    async with session.database.connection() as connection:
        account = await accounts.find(connection, session.account_id)
        limits = await message_settings.get_passcode_limits(connection, session.account_id)
        ranges = await code_stops.list_ranges(connection, session.account_id, RANGES_SHOWN)
        stops = await code_stops.list_stops(connection, session.account_id, STOPS_SHOWN)
    assert account is not None
    stored = {
        "number": limits.number,
        "number_day": limits.number_day,
        "range": limits.range,
        "phone": None,
    }
    return session.page(
        "passcodes.html.jinja",
        status,
        faults=faults,
        done=done,
        filled={name: "" if one is None else str(one) for name, one in stored.items()} | written,
        is_on=limits.is_on,
        limits=limits.effective(account.rate_limit),
        defaults=PasscodeLimits().effective(account.rate_limit),
        stopped=[one for one in ranges if one.stopped_until is not None],
        lifted=[one for one in ranges if one.lifted_at is not None],
        stops=stops,
        days=code_stops.STOPS_KEPT_DAYS,
    )


async def change_limits(session: CustomerSession) -> Response:
    form = await PasscodeLimitsForm.read(session.request)
    if form.faults:
        return await _page(session, form.faults, 422, **form.filled)
    limits = PasscodeLimits(number=form.number.data, number_day=form.number_day.data, range=form.range_.data)
    await profile.change_passcode_limits(session.database, session.requester, limits)
    return redirect(f"{PASSCODES}?done=limits")


async def lift(session: CustomerSession) -> Response:
    """Let all passcodes pass to a stopped range, or to that of a number that the owner names."""
    form = await RangeForm.read(session.request)
    prefix = form.prefix.data or await _range_of_phone(session, form.phone.data)
    if prefix is None or not _RANGE.fullmatch(prefix):
        fault = _("Enter one of the numbers, for example +263 77 120 0001.")
        return await _page(session, {"phone": fault}, 422, phone=form.phone.typed)
    if not await profile.lift_range(session.database, session.requester, prefix, _today()):
        fault = _("At most {count} ranges can be left alone. Guard another one again first.")
        return await _page(session, {"": fault.format(count=code_stops.LIFTED_MAX)}, 409)
    return redirect(f"{PASSCODES}?done=lifted")


async def _range_of_phone(session: CustomerSession, typed: str) -> str | None:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    number = read_phone(tariff, typed, country_of(tariff, session.customer.phone))
    return None if number is None else range_of(number)


async def guard(session: CustomerSession) -> Response:
    form = await RangeForm.read(session.request)
    await profile.guard_range(session.database, session.requester, form.prefix.data, _today())
    return redirect(f"{PASSCODES}?done=guarded")


def _today() -> date:
    return local_day(datetime.now(UTC))
