"""The money page: taken in, spent, refunded and owed to customers, by day and by method."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from wtforms.validators import ValidationError

from tumira.accounts import money_days
from tumira.accounts.money_days import ADJUSTMENT, CUSTOMER, DAYS_MAX, HELD, TOP_UP, DayTotal
from tumira.console.session import OperatorSession, Services, page
from tumira.core import money
from tumira.core.days import local_day
from tumira.core.translation import _, mark
from tumira.html.forms import DayField, FormRefused, PeriodForm
from tumira.html.tables import download, write_rows
from tumira.topups.states import Method

MONEY: Final = "/operator/money"
DAYS_SHOWN: Final = 30

METHODS: Final[Mapping[str, str]] = {
    Method.PAYNOW: mark("Paynow (mobile money and cards)"),
    Method.USDT: "USDT",
    Method.VOUCHER: mark("Vouchers"),
}


class MoneyFlow(StrEnum):
    """Why money was moved to or from a customer."""

    TAKEN = "taken"
    TAKEN_BACK = "taken_back"
    CREDITED = "credited"
    DEBITED = "debited"
    SPENT = "spent"
    REFUNDED = "refunded"
    # For scheduled sends; it stays the customer's, and is owed.
    HELD = "held"
    RELEASED = "released"


def flow_of(total: DayTotal) -> MoneyFlow:
    came = total.to_book == CUSTOMER
    book = total.from_book if came else total.to_book
    if book.startswith(TOP_UP):
        return MoneyFlow.TAKEN if came else MoneyFlow.TAKEN_BACK
    if book == ADJUSTMENT:
        return MoneyFlow.CREDITED if came else MoneyFlow.DEBITED
    if book == HELD:
        return MoneyFlow.RELEASED if came else MoneyFlow.HELD
    return MoneyFlow.REFUNDED if came else MoneyFlow.SPENT


def _no_sums() -> dict[str, Decimal]:
    return defaultdict(Decimal)


@dataclass(slots=True)
class MethodMoney:
    """What came and went by one method, and how many payments came."""

    payments: int = 0
    sums: dict[str, Decimal] = field(default_factory=_no_sums)


@dataclass(slots=True)
class MoneyDay:
    """What was moved on a day or in a period, by flow, and what was owed to customers at its end."""

    day: date
    sums: dict[str, Decimal] = field(default_factory=_no_sums)
    by_method: dict[str, Decimal] = field(default_factory=_no_sums)
    # Balances, and what is held for scheduled sends.
    owed: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class MoneyReport:
    """Every day of a period, all of it together, and the same by method."""

    days: Sequence[MoneyDay]
    whole: MoneyDay
    methods: Mapping[str, MethodMoney]
    owed_before: Decimal
    # Of what is owed at the end.
    held: Decimal


def report(totals: Sequence[DayTotal], first_day: date, last_day: date) -> MoneyReport:
    """Sort totals into days and methods; what is owed follows from all that was moved before."""
    count = (last_day - first_day).days + 1
    days = {day: MoneyDay(day) for day in (first_day + timedelta(days=place) for place in range(count))}
    whole = MoneyDay(last_day)
    methods = {method.value: MethodMoney() for method in Method}
    changes: dict[date | None, Decimal] = defaultdict(Decimal)
    held = Decimal(0)
    for one in totals:
        flow = flow_of(one)
        signed = one.amount if one.to_book == CUSTOMER else -one.amount
        if flow in {MoneyFlow.HELD, MoneyFlow.RELEASED}:
            held -= signed
        else:
            changes[one.day] += signed
        if one.day is None:
            continue
        days[one.day].sums[flow] += one.amount
        whole.sums[flow] += one.amount
        if flow in {MoneyFlow.TAKEN, MoneyFlow.TAKEN_BACK}:
            method = (one.from_book if flow is MoneyFlow.TAKEN else one.to_book).removeprefix(TOP_UP)
            by_method = methods.setdefault(method, MethodMoney())
            by_method.sums[flow] += one.amount
            if flow is MoneyFlow.TAKEN:
                by_method.payments += one.transfers
                days[one.day].by_method[method] += one.amount
    whole.owed = changes[None]
    for day in days.values():
        whole.owed += changes[day.day]
        day.owed = whole.owed
    return MoneyReport(list(days.values()), whole, methods, changes[None], held)


class MoneyForm(PeriodForm):
    @property
    def days(self) -> tuple[date, date]:
        """Return the first and the last day; by default the last thirty days."""
        last_day = self.to.data or local_day(datetime.now(UTC))
        return self.from_.data or last_day - timedelta(days=DAYS_SHOWN - 1), last_day

    def validate_from_(self, _field: DayField) -> None:
        first_day, last_day = self.days
        if first_day > last_day and not self.to.data:
            raise ValidationError(_("Choose today or an earlier day."))
        if (last_day - first_day).days >= DAYS_MAX:
            raise ValidationError(_("Choose at most {days} days.").format(days=DAYS_MAX))


def routes(services: Services) -> Sequence[Route]:
    return [*page(services, MONEY, show_money), *page(services, MONEY + ".csv", download_money)]


async def show_money(session: OperatorSession) -> Response:
    asked = MoneyForm.parse_query(session.request)
    if asked.faults:
        session = replace(session, refused=FormRefused(asked.faults, asked.filled))
        return session.page("money.html.jinja", report=None)
    first_day, last_day = asked.days
    async with session.database.connection() as connection:
        found = await money_days.read(connection, first_day, last_day)
    return session.page(
        "money.html.jinja",
        report=report(found.totals, first_day, last_day),
        is_complete=found.is_complete,
        is_today=last_day >= local_day(datetime.now(UTC)),
        names=METHODS,
        download=asked.path(MONEY + ".csv"),
        filled={"from": first_day.isoformat(), "to": last_day.isoformat()},
    )


async def download_money(session: OperatorSession) -> Response:
    """Download a row for each day; without a minus sign, which a spreadsheet takes for a formula."""
    asked = MoneyForm.parse_query(session.request)
    if asked.faults:
        return await show_money(session)
    first_day, last_day = asked.days
    async with session.database.connection() as connection:
        found = await money_days.read(connection, first_day, last_day)
    if not found.is_complete:
        raise HTTPException(503, _("The totals are still being calculated. Try again in a few minutes"))
    made = report(found.totals, first_day, last_day)
    rows = [
        (
            "day",
            *(f"taken_{name}_usd" for name in made.methods),
            *(f"{flow}_usd" for flow in MoneyFlow),
            "owed_usd",
        ),
        *(
            (
                day.day.isoformat(),
                *(money.write(day.by_method[name]) for name in made.methods),
                *(money.write(day.sums[flow]) for flow in MoneyFlow),
                money.write(day.owed),
            )
            for day in made.days
        ),
    ]
    name = f"tumira-money-{first_day.isoformat()}-{last_day.isoformat()}.csv"
    return download(session.request, name, _once(write_rows(rows)))


async def _once(piece: bytes) -> AsyncIterator[bytes]:
    yield piece
