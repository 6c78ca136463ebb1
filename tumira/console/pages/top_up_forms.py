"""What does an operator do about a top-up? Asks its provider, decides it, or lets its account send again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import store as accounts
from tumira.accounts.store import Account
from tumira.console.pages.account_forms import fault_of_note, read_note
from tumira.console.pages.top_ups import TOP_UPS, Faults, find_top_up, path_of, top_up_page
from tumira.console.session import OperatorSession, Services, change
from tumira.console.top_up_words import name_of, write_money
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import TOP_UP, write_id
from tumira.html.forms import Form, read_form
from tumira.html.page import write_usd
from tumira.html.redirect import redirect
from tumira.identity import manage_accounts
from tumira.identity.person_rules import clean_name
from tumira.topups import settle
from tumira.topups.states import TopUp, to_usd

TYPED_MAX: Final = 40
REFERENCE_MAX: Final = 100


def routes(services: Services) -> Sequence[Route]:
    """Return where these forms go."""
    one = TOP_UPS + "/{id}"
    return [
        change(services, one + "/ask", ask_again),
        change(services, one + "/resolve", ask_resolve),
        change(services, one + "/resolve/confirm", resolve),
        change(services, one + "/lift", lift),
    ]


async def ask_again(session: OperatorSession) -> Response:
    """Have the provider asked once more."""
    await read_form(session.request)
    top_up = await find_top_up(session)
    try:
        await settle.poll_again(session.database, top_up.id, session.actor)
    except OperatorError as error:
        return await top_up_page(session, {"": str(error)}, 409)
    return redirect(f"{path_of(top_up.id)}?done=asked")


@dataclass(frozen=True, slots=True)
class _Decision:
    """What an operator says about a top-up; None for `paid` where nothing was."""

    paid: Decimal | None
    reference: str | None
    note: str
    written: Mapping[str, str]
    faults: Faults


def _read_decision(form: Form, top_up: TopUp) -> _Decision:
    written = {
        "outcome": "not-paid" if form.text("outcome") == "not-paid" else "paid",
        "paid": form.text("paid")[:TYPED_MAX],
        "reference": clean_name(form.text("reference")),
        "note": read_note(form, "note"),
    }
    faults = {}
    paid = money.parse(written["paid"]) if written["outcome"] == "paid" else None
    if written["outcome"] == "paid" and (not paid or to_usd(paid, top_up.rate) <= 0):
        faults["paid"] = f"Write what the provider took, in {top_up.currency}, like 5 or 12.50."
    if len(written["reference"]) > REFERENCE_MAX:
        faults["reference"] = f"At most {REFERENCE_MAX} characters."
    fault = fault_of_note(written["note"])
    if fault is not None:
        faults["note"] = fault
    return _Decision(paid, written["reference"] or None, written["note"], written, faults)


async def ask_resolve(session: OperatorSession) -> Response:
    """Show what a decision comes to, before it is carried out."""
    form = await read_form(session.request)
    top_up = await find_top_up(session)
    decision = _read_decision(form, top_up)
    if decision.faults:
        return await top_up_page(session, decision.faults, 422, **decision.written)
    async with session.database.connection() as connection:
        account = await accounts.find(connection, top_up.account_id)
    assert account is not None
    return session.page(
        "money_confirm.html.jinja",
        title="Nothing was paid?" if decision.paid is None else "Credit this top-up?",
        facts=_comes_to(top_up, account, decision),
        fields=decision.written,
        action=f"{path_of(top_up.id)}/resolve/confirm",
        button="Nothing was paid" if decision.paid is None else "Credit it",
        back=path_of(top_up.id),
    )


def _comes_to(top_up: TopUp, account: Account, decision: _Decision) -> Mapping[str, str]:
    facts = {
        "Account": f"{account.business}, {account.name}",
        "Top-up": f"{name_of(top_up.method, top_up.provider)}, {write_id(TOP_UP, top_up.id)}",
    }
    if decision.paid is None:
        facts["Credited"] = "nothing"
    else:
        amount = to_usd(decision.paid, top_up.rate)
        facts["The provider took"] = write_money(decision.paid, top_up.currency)
        facts["Credited"] = write_usd(amount)
        facts["Balance after"] = write_usd(account.balance + amount)
        facts["Reference"] = decision.reference or top_up.provider_reference or "none"
    return {**facts, "Note": decision.note}


async def resolve(session: OperatorSession) -> Response:
    """Carry a decision out; a top-up is decided once, whoever presses again finds it decided."""
    form = await read_form(session.request)
    top_up = await find_top_up(session)
    decision = _read_decision(form, top_up)
    if decision.faults:
        return await top_up_page(session, decision.faults, 422, **decision.written)
    try:
        await settle.resolve(
            session.database,
            top_up.id,
            paid=decision.paid,
            provider_reference=decision.reference,
            note=decision.note,
            actor=session.actor,
        )
    except OperatorError as error:
        return await top_up_page(session, {"": str(error)}, 409)
    return redirect(f"{path_of(top_up.id)}?done={'not-paid' if decision.paid is None else 'paid'}")


async def lift(session: OperatorSession) -> Response:
    """Let an account send again whose top-up was taken back."""
    form = await read_form(session.request)
    top_up = await find_top_up(session)
    note = read_note(form, "lift_note")
    fault = fault_of_note(note)
    if fault is not None:
        return await top_up_page(session, {"lift_note": fault}, 422, lift_note=note)
    await manage_accounts.suspend(
        session.database, top_up.account_id, suspended=False, actor=session.actor, note=note
    )
    return redirect(f"{path_of(top_up.id)}?done=lifted")
