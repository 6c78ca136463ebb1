"""Top-ups: those that need a decision, one with its history, and how an operator settles it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from operator import itemgetter
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import store as accounts
from tumira.accounts.store import Account
from tumira.console.session import OperatorSession, Services, page
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import TOP_UP, TopUpId, read_id, write_id
from tumira.core.translation import _, mark
from tumira.html.forms import (
    TYPED_MAX,
    Form,
    FormRefused,
    NoteField,
    TextField,
    at_most,
    read_path_id,
)
from tumira.html.guards import or_404
from tumira.html.page import write_exact_usd
from tumira.html.redirect import redirect
from tumira.html.top_up_words import OPERATOR_STATES, full_name_of, write_exact_money
from tumira.identity import manage_accounts
from tumira.identity.person_rules import clean_name
from tumira.postgres.connection import Connection
from tumira.topups import lists as top_up_lists
from tumira.topups import settle as settle_top_up
from tumira.topups import store as top_ups
from tumira.topups.lists import ListedTopUp, Movement
from tumira.topups.reconcile_rules import write_exact
from tumira.topups.settle import can_poll
from tumira.topups.states import Currency, TopUp, TopUpState, may_resolve, to_usd
from tumira.topups.store import LAST
from tumira.topups.usdt import deposits

TOP_UPS: Final = "/operator/top-ups"
SHOWN: Final = 10
PAGE: Final = 50
DEPOSITS_SHOWN: Final = 100
REFERENCE_MAX: Final = 100

# In the order in which they need attention.
PARTS: Final = {
    "doubt": mark("In doubt"),
    "reversed": mark("Taken back by the provider"),
    "late": mark("Paid after they had expired"),
    "all": mark("All top-ups"),
}
DONE: Final = {
    "asked": mark("A worker asks the provider now and acts on the answer. Reload the page in a few seconds."),
    "paid": mark("The top-up was credited."),
    "not-paid": mark("The top-up was closed. Nothing was credited."),
    "lifted": mark("The account can send again."),
}

_NO_TOP_UP: Final = mark("This top-up does not exist")


class DecisionForm(Form):
    outcome = TextField(clean=lambda text: "not-paid" if text.strip() == "not-paid" else "paid")
    paid = TextField(cut=TYPED_MAX)
    reference = TextField(at_most(REFERENCE_MAX), clean=clean_name)
    note = NoteField()

    @property
    def amount(self) -> Decimal | None:
        """What the provider took; None where nothing was paid."""
        return money.parse(self.paid.data) if self.outcome.data == "paid" else None


class LiftForm(Form):
    lift_note = NoteField()


@dataclass(frozen=True, slots=True)
class TopUpsPart:
    """Some of the top-ups that need the same, and where more of them are."""

    key: str
    title: str
    top_ups: Sequence[ListedTopUp]
    more: str | None


def routes(services: Services) -> Sequence[Route]:
    forms = {
        "/ask": ask_again,
        "/resolve": ask_resolve,
        "/resolve/confirm": resolve,
        "/lift": lift,
    }
    return [
        *page(services, TOP_UPS, show_top_ups),
        *page(services, TOP_UPS + "/{id}", show_top_up, forms),
    ]


def path_of(top_up_id: TopUpId) -> str:
    return f"{TOP_UPS}/{write_id(TOP_UP, top_up_id)}"


async def show_top_ups(session: OperatorSession) -> Response:
    query = session.request.query_params
    wanted = read_id(TOP_UP, query.get("id", "").strip())
    key = query.get("show", "")
    before = TopUpId(read_id(TOP_UP, query.get("before", "")) or LAST)
    async with session.database.connection() as connection:
        if wanted is not None and await top_ups.find_any(connection, TopUpId(wanted)) is not None:
            return redirect(path_of(TopUpId(wanted)))
        if key in PARTS:
            parts = [await _part(connection, key, PAGE, before)]
        else:
            parts = [await _part(connection, one, SHOWN, LAST) for one in PARTS]
    return session.page(
        "top_ups.html.jinja",
        parts=parts,
        is_one=key in PARTS,
        is_first=before == LAST,
        given=query.get("id", "")[:TYPED_MAX],
        states=OPERATOR_STATES,
        name_of=full_name_of,
        write_money=write_exact_money,
    )


async def _part(connection: Connection, key: str, count_max: int, before: TopUpId) -> TopUpsPart:
    found, has_more = await top_up_lists.list_page(connection, key, count_max, before)
    more = f"{TOP_UPS}?show={key}&before={write_id(TOP_UP, found[-1].id)}" if has_more else None
    return TopUpsPart(key, PARTS[key], found, more)


async def find_top_up(session: OperatorSession) -> TopUp:
    top_up_id = TopUpId(read_path_id(session.request, TOP_UP, _(_NO_TOP_UP)))
    async with session.database.connection() as connection:
        return or_404(await top_ups.find_any(connection, top_up_id), _(_NO_TOP_UP))


async def show_top_up(session: OperatorSession) -> Response:
    top_up = await find_top_up(session)
    async with session.database.connection() as connection:
        account = await accounts.find(connection, top_up.account_id)
        movements = await top_up_lists.list_movements(connection, top_up.id)
        found = await deposits.list_of_top_up(connection, top_up.id, DEPOSITS_SHOWN)
    assert account is not None
    return session.page(
        "top_up.html.jinja",
        top_up=top_up,
        path=path_of(top_up.id),
        account=account,
        name=full_name_of(top_up.method, top_up.provider),
        write_money=write_exact_money,
        write_exact=write_exact,
        rate=_rate(top_up),
        state=OPERATOR_STATES[top_up.state],
        story=_story(top_up, movements),
        deposits=found,
        can_ask=can_poll(top_up),
        may_credit=may_resolve(top_up.state, TopUpState.CREDITED),
        may_deny=may_resolve(top_up.state, TopUpState.FAILED),
        may_lift=top_up.state is TopUpState.REVERSED and account.suspended_at is not None,
        filled={"paid": "" if top_up.asked is None else write_exact(top_up.asked)},
        done=DONE,
    )


def _rate(top_up: TopUp) -> str | None:
    if top_up.currency is Currency.USD:
        return None
    since = "" if top_up.rate_on is None else _(", since {day}").format(day=f"{top_up.rate_on:%-d %b %Y}")
    return f"{write_exact(top_up.rate)} {top_up.currency} = US$1{since}"


def _story(top_up: TopUp, movements: Sequence[Movement]) -> Sequence[tuple[datetime, str, str]]:
    """Return what happened, in order, as far as it was written down: when, what, and more about it."""
    asked = write_exact_money(top_up.asked, top_up.currency)
    found = [(top_up.created_at, _("Started"), "" if top_up.asked is None else asked)]
    if top_up.asked_at is not None:
        tries = _("asked {count} times so far").format(count=top_up.tries) if top_up.tries > 1 else ""
        found.append((top_up.asked_at, _("Provider first asked"), tries))
    found += [
        (
            one.created_at,
            _("Credited") if one.amount > 0 else _("Taken back"),
            write_exact_usd(abs(one.amount)),
        )
        for one in movements
    ]
    if top_up.finished_at is not None:
        ended = _("Finished: {state}").format(state=OPERATOR_STATES[top_up.state][0])
        found.append((top_up.finished_at, ended, top_up.reason or ""))
    if top_up.due_at is not None:
        found.append((top_up.due_at, _("Provider is asked again"), ""))
    return sorted(found, key=itemgetter(0))


async def ask_again(session: OperatorSession) -> Response:
    """Have a worker ask the provider again."""
    top_up = await find_top_up(session)
    try:
        await settle_top_up.poll_again(session.database, top_up.id, session.actor)
    except OperatorError as error:
        raise FormRefused({"": str(error)}, status=409) from None
    return redirect(f"{path_of(top_up.id)}?done=asked")


async def _read_decision(session: OperatorSession) -> tuple[TopUp, DecisionForm]:
    form = await DecisionForm.read(session.request)
    top_up = await find_top_up(session)
    if form.outcome.data == "paid" and (not form.amount or to_usd(form.amount, top_up.rate) <= 0):
        form.faults["paid"] = _("Enter the amount that the provider took, in {currency}, such as 5.").format(
            currency=top_up.currency
        )
    form.refuse_faults()
    return top_up, form


async def ask_resolve(session: OperatorSession) -> Response:
    top_up, form = await _read_decision(session)
    async with session.database.connection() as connection:
        account = await accounts.find(connection, top_up.account_id)
    assert account is not None
    return session.page(
        "confirm.html.jinja",
        title=_("Close this top-up without a credit?") if form.amount is None else _("Credit this top-up?"),
        facts=_comes_to(top_up, account, form),
        fields=form.filled,
        action=f"{path_of(top_up.id)}/resolve/confirm",
        button=_("Close top-up") if form.amount is None else _("Credit top-up"),
        back=path_of(top_up.id),
    )


def _comes_to(top_up: TopUp, account: Account, form: DecisionForm) -> Mapping[str, str]:
    facts = {
        _("Account"): f"{account.business}, {account.name}",
        _("Top-up"): f"{full_name_of(top_up.method, top_up.provider)}, {write_id(TOP_UP, top_up.id)}",
    }
    if form.amount is None:
        facts[_("Credit")] = _("nothing")
    else:
        amount = to_usd(form.amount, top_up.rate)
        facts[_("Paid")] = write_exact_money(form.amount, top_up.currency)
        facts[_("Credit")] = write_exact_usd(amount)
        facts[_("Balance after")] = write_exact_usd(account.balance + amount)
        facts[_("Provider reference")] = form.reference.data or top_up.provider_reference or _("none")
    return {**facts, _("Note"): form.note.data}


async def resolve(session: OperatorSession) -> Response:
    """Carry a decision out; a top-up is decided once, so a second press finds it decided."""
    top_up, form = await _read_decision(session)
    try:
        await settle_top_up.resolve(
            session.database,
            top_up.id,
            paid=form.amount,
            provider_reference=form.reference.data or None,
            note=form.note.data,
            actor=session.actor,
        )
    except OperatorError as error:
        raise FormRefused({"": str(error)}, status=409) from None
    return redirect(f"{path_of(top_up.id)}?done={form.outcome.data}")


async def lift(session: OperatorSession) -> Response:
    """Let an account send again whose top-up was taken back."""
    form = await LiftForm.accept(session.request)
    top_up = await find_top_up(session)
    await manage_accounts.suspend(
        session.database, top_up.account_id, suspended=False, actor=session.actor, note=form.lift_note.data
    )
    return redirect(f"{path_of(top_up.id)}?done=lifted")
