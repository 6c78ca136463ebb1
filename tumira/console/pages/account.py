"""One account: its facts, and what an operator changes about it."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from msgspec import structs
from starlette.responses import Response
from starlette.routing import Route

from tumira import audit_log
from tumira.accounts import api_keys, ledger, message_settings
from tumira.accounts import store as accounts
from tumira.accounts.ledger import Transfer
from tumira.accounts.lifetimes import (
    MESSAGE_HOURS_MAX,
    MESSAGE_HOURS_MIN,
    PASSCODE_MINUTES_MAX,
    PASSCODE_MINUTES_MIN,
)
from tumira.accounts.store import SYSTEM, Account
from tumira.console.session import OperatorSession, Services, page
from tumira.content import near_line_store
from tumira.content import store as content_store
from tumira.core import money
from tumira.core.days import local_day
from tumira.core.errors import OperatorError
from tumira.core.ids import ACCOUNT, AccountId, read_id, write_id
from tumira.core.translation import _, mark
from tumira.html import chart
from tumira.html.forms import (
    NOT_AN_AMOUNT,
    TYPED_MAX,
    Amount,
    Choice,
    Flag,
    Form,
    FormId,
    FormRefused,
    NoteField,
    TextField,
    Whole,
    needed,
    new_form_id,
)
from tumira.html.guards import or_404
from tumira.html.page import write_exact_usd
from tumira.html.redirect import redirect
from tumira.html.top_up_words import OPERATOR_STATES, full_name_of
from tumira.identity import manage_accounts
from tumira.identity.manage_accounts import WEIGHT_MAX, AlreadySubmittedError
from tumira.identity.principal import PrincipalKind
from tumira.identity.roles import ROLE_NAMES
from tumira.identity.store import logins, people, sessions
from tumira.pricing.phone_numbers import write_phone
from tumira.sending import daily_totals
from tumira.topups import store as top_ups
from tumira.webhooks import endpoints as webhook_endpoints

ACCOUNTS: Final = "/operator/accounts"
KEYS_SHOWN: Final = 20
ENDPOINTS_SHOWN: Final = 20
TRANSFERS_SHOWN: Final = 15
TOP_UPS_SHOWN: Final = 10
CHANGES_SHOWN: Final = 10
FORM: Final = "prs_"
RATE_MAX: Final = 1_000_000
GUARD: Final = ("on", "off")

# What is said after a change, by the name under which the form comes back.
DONE: Final = {
    "opened": mark("The account is open. The customer now chooses a password with “Forgot your password?”."),
    "credit": mark("The balance was changed. The customer sees it in the ledger."),
    "again": mark("This was already done. Nothing was changed again."),
    "suspended": mark("The account is suspended. The customer can sign in but cannot send."),
    "lifted": mark("The account can send again."),
    "limits": mark("The limits are saved. They apply from the next call."),
    "messages": mark("The settings for messages are saved. They apply from the next call."),
    "consent": mark("From now on, texts of this account are kept for review, each for 30 days."),
    "no-consent": mark("Texts of this account are no longer kept for review, and the kept ones are erased."),
    "factor": mark("The second factor is off. The owner signs in with the password alone."),
    "no-factor": mark("The second factor was already off."),
}

_WHOLE: Final = mark("Enter a whole number from 1 to {most}.")


class CreditForm(Form):
    amount = Amount(needed(NOT_AN_AMOUNT), is_needed=True)
    # A gift is a credit that nobody paid for: it has no invoice and no receipt.
    direction = TextField(clean=lambda text: text.strip() if text.strip() in {"debit", "gift"} else "credit")
    credit_note = NoteField()

    @property
    def signed(self) -> Decimal:
        assert self.amount.data is not None
        return -self.amount.data if self.direction.data == "debit" else self.amount.data


class ConfirmCreditForm(CreditForm):
    press = FormId(FORM)


class SuspendForm(Form):
    suspend_note = NoteField()
    what = Flag(value="lift", is_secret=True)


class AccountLimitsForm(Form):
    rate = Whole(1, RATE_MAX, _WHOLE.format(most=f"{RATE_MAX:,}"), cut=TYPED_MAX)
    daily_limit = Amount()
    call_limit = Amount()
    weight = Whole(1, WEIGHT_MAX, _WHOLE.format(most=WEIGHT_MAX), cut=TYPED_MAX)
    limits_note = NoteField(is_needed=False)


class MessageSettingsForm(Form):
    passcode_minutes = Whole(PASSCODE_MINUTES_MIN, PASSCODE_MINUTES_MAX, cut=TYPED_MAX)
    message_hours = Whole(MESSAGE_HOURS_MIN, MESSAGE_HOURS_MAX, cut=TYPED_MAX)
    guard = Choice(GUARD)
    messages_note = NoteField(is_needed=False)


class ConsentForm(Form):
    review_note = NoteField(is_needed=False)
    what = Flag(value="consent", is_secret=True)


class FactorForm(Form):
    factor_phone = TextField(cut=TYPED_MAX)
    factor_note = NoteField()


def routes(services: Services) -> Sequence[Route]:
    forms = {
        "/credit": ask_credit,
        "/credit/confirm": credit,
        "/suspension": suspend,
        "/limits": limit,
        "/messages": change_messages,
        "/review": review,
        "/second-factor": drop_factor,
    }
    return page(services, ACCOUNTS + "/{id}", show_account, forms)


def path_of(account_id: AccountId) -> str:
    return f"{ACCOUNTS}/{write_id(ACCOUNT, account_id)}"


async def find_account(session: OperatorSession) -> Account:
    """Return the account that the address names; the gateway's own is nobody's to change here."""
    account_id = read_id(ACCOUNT, str(session.request.path_params["id"]))
    found = None
    if account_id is not None and account_id != SYSTEM:
        async with session.database.connection() as connection:
            found = await accounts.find(connection, AccountId(account_id))
    return or_404(found, _("This account does not exist"))


async def show_account(session: OperatorSession) -> Response:
    account = await find_account(session)
    async with session.database.connection() as connection:
        lifetimes = await message_settings.get_lifetimes(connection, account.id)
        limits = await message_settings.get_passcode_limits(connection, account.id)
    return session.page(
        "account.html.jinja",
        account=account,
        path=path_of(account.id),
        filled={
            "rate": str(account.rate_limit),
            "weight": str(account.weight),
            "daily_limit": _write(account.daily_limit),
            "call_limit": _write(account.call_limit),
            "passcode_minutes": str(lifetimes.passcode_minutes),
            "message_hours": str(lifetimes.message_hours),
            "guard": "on" if limits.is_on else "off",
        },
        lifetimes=lifetimes,
        code_limits=limits.effective(account.rate_limit) if limits.is_on else None,
        done=DONE,
        **await _facts(session, account),
    )


def _write(amount: Decimal | None) -> str:
    return "" if amount is None else f"{amount.normalize():f}"


async def _facts(session: OperatorSession, account: Account) -> Mapping[str, Any]:
    """Read what the account has, a bounded part of each."""
    today = local_day(datetime.now(UTC))
    async with session.database.connection() as connection:
        login = await logins.find(connection, PrincipalKind.CUSTOMER, account.phone)
        email = await logins.find_owners_email(connection, account.id)
        members = await people.list_members(connection, account.id)
        opened, seen_at = await sessions.count_in_account(connection, account.id)
        in_use = await api_keys.list_in_use(connection, account.id, KEYS_SHOWN)
        revoked = await api_keys.list_revoked(connection, account.id, KEYS_SHOWN)
        endpoints = await webhook_endpoints.list_endpoints(connection, account.id, ENDPOINTS_SHOWN)
        refused = await content_store.count(connection, account.id)
        near_line = await near_line_store.find_share(connection, account.id, today)
        transfers = await ledger.list_latest(connection, account.id, TRANSFERS_SHOWN)
        paid = await top_ups.list_of_account(connection, account.id, TOP_UPS_SHOWN)
        changed = await audit_log.list_by_operators(connection, CHANGES_SHOWN, account_id=account.id)
        first_day = today - timedelta(days=chart.DAYS - 1)
        ended = await daily_totals.days(connection, account.id, first_day, today)
        waiting = await daily_totals.waiting_by_day(connection, account.id)
    return {
        "phone_proved": login is None or login.phone_proved,
        "email": email,
        "members": members,
        "role_names": ROLE_NAMES,
        "guarded": [(one.phone, one.name) for one in members if one.factor_since is not None],
        "sessions": opened,
        "seen_at": seen_at,
        "keys": [*in_use, *revoked][:KEYS_SHOWN],
        "endpoints": endpoints,
        "refused": refused,
        "near_line": near_line,
        "transfers": [(_explain(transfer), transfer) for transfer in transfers],
        "top_ups": paid,
        "name_of": full_name_of,
        "states": OPERATOR_STATES,
        "changed": changed,
        "chart": chart.bars(chart.add_up(ended, waiting), today),
        "rate": chart.rate(sum(day.delivered for day in ended), sum(day.ended for day in ended)),
    }


def _explain(transfer: Transfer) -> str:
    came = transfer.to_book == "customer"
    book = transfer.from_book if came else transfer.to_book
    if book == "revenue":
        return mark("Refund") if came else mark("Messages")
    if book == "adjustment":
        return mark("Credit by operator") if came else mark("Debit by operator")
    if book == "held":
        return mark("Released") if came else mark("Held for a scheduled send")
    return mark("Top-up") if came else mark("Top-up taken back")


async def ask_credit(session: OperatorSession) -> Response:
    form = await CreditForm.read(session.request)
    account = await find_account(session)
    return confirm_credit(session, account, form, back=path_of(account.id))


def confirm_credit(session: OperatorSession, account: Account, form: CreditForm, back: str) -> Response:
    amount, takes = form.amount.data, form.direction.data == "debit"
    if takes and amount is not None and amount > account.balance:
        form.faults["amount"] = _("The balance is only {balance}.").format(
            balance=write_exact_usd(account.balance)
        )
    form.refuse_faults()
    assert amount is not None
    button = _("Debit {amount}") if takes else _("Credit {amount}")
    return session.page(
        "confirm.html.jinja",
        title=_("Debit this account?") if takes else _("Credit this account?"),
        facts={
            _("Account"): account.business,
            _("Owner"): account.name,
            _("Phone number"): write_phone(account.phone),
            _("Balance now"): write_exact_usd(account.balance),
            _("Debit") if takes else _("Credit"): write_exact_usd(amount),
            _("Balance after"): write_exact_usd(account.balance + form.signed),
            _("Invoice or receipt"): _("yes") if form.direction.data == "credit" else _("no"),
            _("Note for the customer"): form.credit_note.data,
        },
        fields={
            "amount": money.write(amount),
            "direction": form.direction.data,
            "credit_note": form.credit_note.data,
            "press": new_form_id(FORM),
        },
        action=f"{path_of(account.id)}/credit/confirm",
        button=button.format(amount=write_exact_usd(amount)),
        back=back,
    )


async def credit(session: OperatorSession) -> Response:
    """Credit or debit what was confirmed, once."""
    form = await ConfirmCreditForm.read(session.request)
    account = await find_account(session)
    if form.faults or form.press.data is None:
        raise FormRefused(form.faults or {"": _("This page was open for too long. Fill in the form again.")})
    actor = session.actor
    try:
        await manage_accounts.credit(
            session.database,
            account.id,
            form.signed,
            note=form.credit_note.data,
            actor=actor.name,
            address=actor.address,
            press=form.press.data,
            is_payment=form.direction.data == "credit",
        )
    except AlreadySubmittedError:
        return _done(account.id, "again")
    except OperatorError as error:
        raise FormRefused({"": str(error)}, status=409) from None
    return _done(account.id, "credit")


async def suspend(session: OperatorSession) -> Response:
    form = await SuspendForm.accept(session.request)
    account = await find_account(session)
    lifts = form.what.data
    await manage_accounts.suspend(
        session.database, account.id, suspended=not lifts, actor=session.actor, note=form.suspend_note.data
    )
    return _done(account.id, "lifted" if lifts else "suspended")


async def limit(session: OperatorSession) -> Response:
    form = await AccountLimitsForm.accept(session.request)
    account = await find_account(session)
    await manage_accounts.limit(
        session.database,
        account.id,
        rate_limit=form.rate.data,
        daily_limit=form.daily_limit.data,
        change_daily=True,
        call_limit=form.call_limit.data,
        change_call=True,
        weight=form.weight.data,
        actor=session.actor,
        note=form.limits_note.data,
    )
    return _done(account.id, "limits")


async def change_messages(session: OperatorSession) -> Response:
    """Change the lifetimes of messages, and whether the passcode guard is on."""
    form = await MessageSettingsForm.accept(session.request)
    account = await find_account(session)
    note, actor = form.messages_note.data, session.actor
    await manage_accounts.set_lifetimes(
        session.database,
        account.id,
        passcode_minutes=form.passcode_minutes.data,
        message_hours=form.message_hours.data,
        actor=actor,
        note=note,
    )
    is_on = form.guard.data == "on"
    await manage_accounts.set_passcode_limits(
        session.database,
        account.id,
        lambda before: structs.replace(before, is_on=is_on),
        actor=actor,
        note=note,
    )
    return _done(account.id, "messages")


async def review(session: OperatorSession) -> Response:
    """Note whether an account lets us keep and read texts."""
    form = await ConsentForm.read(session.request)
    account = await find_account(session)
    note, consent = form.review_note.data, form.what.data
    # Consent has to be proved when it is asked about; withdrawing it needs no reason.
    if consent and not note:
        form.faults["review_note"] = _("Enter a reason.")
    form.refuse_faults()
    await manage_accounts.review(
        session.database, account.id, consent=consent, actor=session.actor, note=note
    )
    return _done(account.id, "consent" if consent else "no-consent")


async def drop_factor(session: OperatorSession) -> Response:
    """Turn off the second factor of a person who has lost it."""
    form = await FactorForm.accept(session.request)
    account = await find_account(session)
    was_on = await manage_accounts.drop_factor(
        session.database,
        account.id,
        phone=form.factor_phone.data or None,
        actor=session.actor,
        note=form.factor_note.data,
        support=session.services.support,
    )
    return _done(account.id, "factor" if was_on else "no-factor")


def _done(account_id: AccountId, what: str) -> Response:
    return redirect(f"{path_of(account_id)}?done={what}")
