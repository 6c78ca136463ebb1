"""What does an operator change about an account? Money, access, limits and consent, each with who and why."""

import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

from starlette.responses import Response
from starlette.routing import Route

from tumira.console.pages.accounts import ACCOUNTS, account_page, find_account, path_of
from tumira.console.session import OperatorSession, Services, change
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import AccountId, new_id, read_id, write_id
from tumira.html.forms import Form, read_form
from tumira.html.page import write_usd
from tumira.html.redirect import redirect
from tumira.identity import manage_accounts
from tumira.identity.manage_accounts import WEIGHT_MAX, AlreadySubmittedError
from tumira.identity.person_rules import clean_name

PRESS: Final = "prs_"
NOTE_MAX: Final = 500
RATE_MAX: Final = 1_000_000
TYPED_MAX: Final = 40

NOT_AN_AMOUNT: Final = "Write an amount in US dollars, like 5 or 12.50."
NO_NOTE: Final = "Say why."
LONG_NOTE: Final = f"At most {NOTE_MAX} characters."


def routes(services: Services) -> Sequence[Route]:
    """Return where these forms go."""
    one = ACCOUNTS + "/{id}"
    return [
        change(services, one + "/credit", ask_credit),
        change(services, one + "/credit/confirm", credit),
        change(services, one + "/suspension", suspend),
        change(services, one + "/limits", limit),
        change(services, one + "/review", review),
        change(services, one + "/second-factor", drop_factor),
    ]


def read_note(form: Form, name: str) -> str:
    """Read a note, in one line."""
    return clean_name(form.raw(name))


def fault_of_note(note: str, *, is_needed: bool = True) -> str | None:
    """Say what is wrong with a note; None if nothing is."""
    if len(note) > NOTE_MAX:
        return LONG_NOTE
    return NO_NOTE if is_needed and not note else None


def _faults(**found: str | None) -> Mapping[str, str]:
    return {name: fault for name, fault in found.items() if fault is not None}


async def ask_credit(session: OperatorSession) -> Response:
    """Show what is about to be credited or debited, before anything is."""
    form = await read_form(session.request)
    account = await find_account(session)
    typed, note = form.text("amount")[:TYPED_MAX], read_note(form, "credit_note")
    takes = form.text("direction") == "debit"
    amount = money.parse(typed)
    faults = _faults(
        amount=_fault_of_amount(amount, account.balance if takes else None), credit_note=fault_of_note(note)
    )
    if faults or amount is None:
        direction = "debit" if takes else "credit"
        return await account_page(session, faults, 422, amount=typed, direction=direction, credit_note=note)
    signed = -amount if takes else amount
    return session.page(
        "money_confirm.html.jinja",
        title="Take this from the account?" if takes else "Give this to the account?",
        facts={
            "Account": f"{account.business}, {account.name}",
            "Balance now": write_usd(account.balance),
            "Debit" if takes else "Credit": write_usd(amount),
            "Balance after": write_usd(account.balance + signed),
            "Note, which the customer sees": note,
        },
        fields={
            "amount": money.write(amount),
            "direction": "debit" if takes else "credit",
            "credit_note": note,
            "press": write_id(PRESS, new_id(time.time_ns() // 1_000_000)),
        },
        action=f"{path_of(account.id)}/credit/confirm",
        button=f"{'Debit' if takes else 'Credit'} {write_usd(amount)}",
        back=path_of(account.id),
    )


def _fault_of_amount(amount: Decimal | None, there_is: Decimal | None) -> str | None:
    if not amount:
        return NOT_AN_AMOUNT
    if there_is is not None and amount > there_is:
        return f"The account has less than that: {write_usd(there_is)}."
    return None


async def credit(session: OperatorSession) -> Response:
    """Credit or debit what was confirmed, once."""
    form = await read_form(session.request)
    account = await find_account(session)
    note, amount = read_note(form, "credit_note"), money.parse(form.text("amount")[:TYPED_MAX])
    press = read_id(PRESS, form.text("press"))
    faults = _faults(amount=_fault_of_amount(amount, None), credit_note=fault_of_note(note))
    if faults or amount is None or press is None:
        return await account_page(session, faults or {"amount": "Fill in the form once more."}, 422)
    signed = -amount if form.text("direction") == "debit" else amount
    return await _credit(session, account.id, signed, note, press)


async def _credit(
    session: OperatorSession, account_id: AccountId, amount: Decimal, note: str, press: UUID
) -> Response:
    actor = session.actor
    try:
        await manage_accounts.credit(
            session.database,
            account_id,
            amount,
            note=note,
            actor=actor.name,
            address=actor.address,
            press=press,
        )
    except AlreadySubmittedError:
        return _done(account_id, "again")
    except OperatorError as error:
        return await account_page(session, {"": str(error)}, 409)
    return _done(account_id, "credit")


async def suspend(session: OperatorSession) -> Response:
    """Stop an account from sending, or let it send again."""
    form = await read_form(session.request)
    account = await find_account(session)
    note, lifts = read_note(form, "suspend_note"), form.text("what") == "lift"
    faults = _faults(suspend_note=fault_of_note(note))
    if faults:
        return await account_page(session, faults, 422, suspend_note=note)
    await manage_accounts.suspend(
        session.database, account.id, suspended=not lifts, actor=session.actor, note=note
    )
    return _done(account.id, "lifted" if lifts else "suspended")


async def limit(session: OperatorSession) -> Response:
    """Change how often an account may call, what it may spend, and its share of the queue."""
    form = await read_form(session.request)
    account = await find_account(session)
    names = ("rate", "weight", "daily_limit", "call_limit")
    written = {name: form.text(name)[:TYPED_MAX] for name in names}
    note = read_note(form, "limits_note")
    rate, weight = _whole(written["rate"], RATE_MAX), _whole(written["weight"], WEIGHT_MAX)
    daily, call = money.parse(written["daily_limit"]), money.parse(written["call_limit"])
    faults = _faults(
        rate=f"A whole number from 1 to {RATE_MAX:,}." if rate is None else None,
        daily_limit=NOT_AN_AMOUNT if written["daily_limit"] and daily is None else None,
        call_limit=NOT_AN_AMOUNT if written["call_limit"] and call is None else None,
        weight=f"A whole number from 1 to {WEIGHT_MAX}." if weight is None else None,
        limits_note=fault_of_note(note, is_needed=False),
    )
    if faults:
        return await account_page(session, faults, 422, **written, limits_note=note)
    await manage_accounts.limit(
        session.database,
        account.id,
        rate_limit=rate,
        daily_limit=daily,
        change_daily=True,
        call_limit=call,
        change_call=True,
        weight=weight,
        actor=session.actor,
        note=note,
    )
    return _done(account.id, "limits")


def _whole(text: str, most: int) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if is_number and 1 <= int(text) <= most else None


async def review(session: OperatorSession) -> Response:
    """Note whether an account lets us look at its refused texts."""
    form = await read_form(session.request)
    account = await find_account(session)
    note, consent = read_note(form, "review_note"), form.text("what") == "consent"
    # That somebody consented has to be shown when it is asked about; taking it back needs no reason.
    faults = _faults(review_note=fault_of_note(note, is_needed=consent))
    if faults:
        return await account_page(session, faults, 422, review_note=note)
    await manage_accounts.review(
        session.database, account.id, consent=consent, actor=session.actor, note=note
    )
    return _done(account.id, "consent" if consent else "no-consent")


async def drop_factor(session: OperatorSession) -> Response:
    """Turn the second factor off for an owner who has lost it."""
    form = await read_form(session.request)
    account = await find_account(session)
    note = read_note(form, "factor_note")
    faults = _faults(factor_note=fault_of_note(note))
    if faults:
        return await account_page(session, faults, 422, factor_note=note)
    was_on = await manage_accounts.drop_factor(session.database, account.id, actor=session.actor, note=note)
    return _done(account.id, "factor" if was_on else "no-factor")


def _done(account_id: AccountId, what: str) -> Response:
    return redirect(f"{path_of(account_id)}?done={what}")
