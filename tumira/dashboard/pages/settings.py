"""Account settings: profile, password, sessions, limits, refused texts, and closing the account."""

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from typing import Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira import audit_log
from tumira.accounts import message_settings
from tumira.accounts import store as accounts
from tumira.accounts.lifetimes import (
    MESSAGE_HOURS_MAX,
    MESSAGE_HOURS_MIN,
    PASSCODE_MINUTES_MAX,
    PASSCODE_MINUTES_MIN,
    Lifetimes,
)
from tumira.content import review as content_review
from tumira.content import store as content_store
from tumira.content.review import REVIEW_NOTE_MAX
from tumira.content.store import ContentRefusal
from tumira.core import money
from tumira.core.errors import OperatorError
from tumira.core.ids import write_id
from tumira.core.translation import _, mark
from tumira.dashboard.session import CustomerSession, Private, Services, private
from tumira.html.form_body import read_fields
from tumira.html.forms import (
    TYPED_MAX,
    Amount,
    Faults,
    Flag,
    Form,
    Secret,
    TextField,
    Whole,
    at_most,
    needed,
    read_path_id,
)
from tumira.html.redirect import redirect
from tumira.identity import browsers, profile
from tumira.identity.person_rules import PASSWORD_MAX, check_email, check_name, check_password, clean_name
from tumira.identity.reauthenticate import PasswordCheck, confirm_password
from tumira.identity.store import logins, second_factors, sessions

SETTINGS: Final = "/dashboard/settings"
CHANGES: Final = SETTINGS + "/changes"
REVIEW: Final = SETTINGS + "/refusals/{digest}"

SESSION: Final = "ses_"
REFUSALS_SHOWN: Final = 20
CHANGES_SHOWN: Final = 50
TEXT_MAX: Final = 2_000
CLOSE_WORD: Final = "CLOSE"
_DIGEST_BYTES: Final = 32

_WHOLE: Final = mark("Enter a whole number from {least} to {most}.")
WRONG_PASSWORD: Final = mark("Wrong password.")
TOO_OFTEN: Final = mark("Too many attempts. Try again in 15 minutes.")
# What is said after a change, and in which section, by the name under which the form comes back.
DONE: Final = {
    "profile": ("profile", mark("Profile saved.")),
    "name": ("contact", mark("Name saved.")),
    "email": ("contact", mark("Email address saved.")),
    "password": ("password", mark("Password changed. You are signed out everywhere else.")),
    "session": ("sessions", mark("That browser is signed out.")),
    "sessions": ("sessions", mark("You are signed out everywhere else.")),
    "limits": ("limits", mark("Spending limits saved. They apply from now on.")),
    "notice": ("notice", mark("Low-balance alert saved.")),
    "lifetimes": ("lifetimes", mark("Lifetimes saved. They apply to messages from now on.")),
    "review": ("refusals", mark("Your text was sent for review. You will find the answer here.")),
    "off": ("second-factor", mark("The second factor is off. You sign in with your password alone.")),
}


AnyForm = TypeVar("AnyForm", bound=Form)


class ProfileForm(Form):
    name = TextField(check_name, clean=clean_name)
    business = TextField(check_name, clean=clean_name)


class OwnNameForm(Form):
    own_name = TextField(check_name, clean=clean_name)


class EmailForm(Form):
    email = TextField(lambda email: check_email(email) if email else None, cut=300)
    password_for_email = Secret(cut=PASSWORD_MAX)


class PasswordForm(Form):
    current_password = Secret(cut=PASSWORD_MAX)
    new_password = Secret()


class SpendLimitsForm(Form):
    call_limit = Amount()
    daily_limit = Amount()
    password_for_limits = Secret(cut=PASSWORD_MAX)


class NoticeForm(Form):
    low_balance = Amount()
    by_mail = Flag()
    by_text = Flag()


class LifetimesForm(Form):
    passcode_minutes = Whole(
        PASSCODE_MINUTES_MIN,
        PASSCODE_MINUTES_MAX,
        _WHOLE.format(least=PASSCODE_MINUTES_MIN, most=PASSCODE_MINUTES_MAX),
        cut=TYPED_MAX,
    )
    message_hours = Whole(
        MESSAGE_HOURS_MIN,
        MESSAGE_HOURS_MAX,
        _WHOLE.format(least=MESSAGE_HOURS_MIN, most=MESSAGE_HOURS_MAX),
        cut=TYPED_MAX,
    )


class RefusalReviewForm(Form):
    text = TextField(
        lambda text: None if text.strip() else _("Paste the refused text."), clean=str, cut=TEXT_MAX
    )
    note = TextField(at_most(REVIEW_NOTE_MAX))
    consent = Flag(needed(mark("Tick this box, so that we may keep and read the text.")))


class CloseForm(Form):
    word = TextField(
        lambda word: (
            None if word == CLOSE_WORD else _("Type {word} in capital letters.").format(word=CLOSE_WORD)
        )
    )
    password_to_close = Secret(cut=PASSWORD_MAX)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, SETTINGS, show),
        private(services, SETTINGS + "/profile", saving(ProfileForm, "profile", change_profile), "POST"),
        private(services, SETTINGS + "/name", saving(OwnNameForm, "name", change_own_name), "POST"),
        private(
            services,
            SETTINGS + "/email",
            saving(EmailForm, "email", change_email, "password_for_email"),
            "POST",
        ),
        private(services, SETTINGS + "/password", change_password, "POST"),
        private(services, SETTINGS + "/sessions/others", end_others, "POST"),
        private(services, SETTINGS + "/sessions/{id}", end_session, "POST"),
        private(
            services,
            SETTINGS + "/limits",
            saving(SpendLimitsForm, "limits", change_limits, "password_for_limits"),
            "POST",
        ),
        private(services, SETTINGS + "/notice", saving(NoticeForm, "notice", change_notice), "POST"),
        private(
            services, SETTINGS + "/lifetimes", saving(LifetimesForm, "lifetimes", change_lifetimes), "POST"
        ),
        private(services, REVIEW, show_review),
        private(services, REVIEW, ask_review, "POST"),
        private(services, SETTINGS + "/close", close, "POST"),
        private(services, CHANGES, show_changes),
    ]


def fault_of_password(check: PasswordCheck, wrong: str = WRONG_PASSWORD) -> tuple[str, int]:
    """Return the message and the status for a password that was not accepted."""
    return (_(TOO_OFTEN), 429) if check is PasswordCheck.TOO_OFTEN else (_(wrong), 422)


async def ask_password(session: CustomerSession, password: str) -> tuple[str, int] | None:
    """Compare the password of who is signed in; return the message and the status unless it is right."""
    check = await confirm_password(session.database, session.requester, password)
    return None if check is PasswordCheck.RIGHT else fault_of_password(check)


def _write(amount: Decimal | None) -> str:
    if amount is None:
        return ""
    whole, _, decimals = money.write(amount).partition(".")
    decimals = decimals.rstrip("0")
    return f"{whole}.{decimals:0<2}" if decimals else whole


async def show(session: CustomerSession) -> Response:
    return await _page(session, {}, done=session.request.query_params.get("done", ""))


async def _page(
    session: CustomerSession, faults: Faults, status: int = 200, *, done: str = "", **written: str | bool
) -> Response:
    account_id = session.account_id
    async with session.database.connection() as connection:
        account = await accounts.find(connection, account_id)
        contact = await logins.find_contact(connection, session.customer.person_id)
        factor = await second_factors.find(connection, session.customer.principal)
        opened = await sessions.list_sessions(connection, session.customer.person_id)
        lifetimes = await message_settings.get_lifetimes(connection, account_id)
        refused = await content_store.list_latest(connection, account_id, REFUSALS_SHOWN)
    assert account is not None
    assert contact is not None, "who signs in has a login"
    return session.page(
        "settings.html.jinja",
        status,
        filled={
            "name": account.name,
            "business": account.business,
            "own_name": session.customer.person_name,
            "email": contact.email or "",
            "call_limit": _write(account.call_limit),
            "daily_limit": _write(account.daily_limit),
            "low_balance": _write(account.low_balance),
            "by_mail": contact.low_balance_mail,
            "by_text": contact.notice_texts,
            "passcode_minutes": str(lifetimes.passcode_minutes),
            "message_hours": str(lifetimes.message_hours),
        }
        | written,
        faults=faults,
        done=DONE.get(done, ("", None)),
        factor=factor if factor is not None and factor.since is not None else None,
        sessions=[(write_id(SESSION, one.id), browsers.describe(one.browser), one) for one in opened],
        refused=refused,
    )


def show_done(what: str) -> Response:
    section, _text = DONE[what]
    return redirect(f"{SETTINGS}?done={what}#{section}")


def saving(
    form_type: type[AnyForm],
    what: str,
    save: Callable[[CustomerSession, AnyForm], Awaitable[None]],
    password: str | None = None,
) -> Private:
    """Return the handler of a form that is saved, or shown again beside its faults.

    `password` is the field for the password, which a sensitive change asks for again.
    """

    async def answer(session: CustomerSession) -> Response:
        form = await form_type.read(session.request)
        if form.faults:
            return await _page(session, form.faults, 422, **form.filled)
        if password is not None:
            refused = await ask_password(session, getattr(form, password).data)
            if refused is not None:
                return await _page(session, {password: refused[0]}, refused[1], **form.filled)
        await save(session, form)
        return show_done(what)

    return answer


async def change_profile(session: CustomerSession, form: ProfileForm) -> None:
    await profile.change_names(session.database, session.requester, form.name.data, form.business.data)


async def change_own_name(session: CustomerSession, form: OwnNameForm) -> None:
    await profile.change_own_name(session.database, session.requester, form.own_name.data)


async def change_email(session: CustomerSession, form: EmailForm) -> None:
    await profile.change_email(session.database, session.requester, form.email.data or None)


async def change_limits(session: CustomerSession, form: SpendLimitsForm) -> None:
    await profile.change_limits(
        session.database, session.requester, form.call_limit.data, form.daily_limit.data
    )


async def change_notice(session: CustomerSession, form: NoticeForm) -> None:
    below = form.low_balance.data or Decimal(0)
    await profile.change_notice(
        session.database,
        session.requester,
        below,
        by_mail=form.by_mail.data,
        by_text=form.by_text.data,
    )


async def change_lifetimes(session: CustomerSession, form: LifetimesForm) -> None:
    lifetimes = Lifetimes(form.passcode_minutes.data * 60, form.message_hours.data * 3600)
    await profile.change_lifetimes(session.database, session.requester, lifetimes)


async def change_password(session: CustomerSession) -> Response:
    form = await PasswordForm.read(session.request)
    old, new = form.current_password.data, form.new_password.data
    customer = session.customer
    weak = check_password(new, customer.person_name, customer.business, customer.person_phone)
    if weak is not None:
        return await _page(session, {"new_password": weak}, 422)
    check = await profile.change_password(session.database, session.requester, customer.session_id, old, new)
    if check is not PasswordCheck.RIGHT:
        fault, status = fault_of_password(check)
        return await _page(session, {"current_password": fault}, status)
    return show_done("password")


async def end_session(session: CustomerSession) -> Response:
    await read_fields(session.request)
    missing = _("This browser is already signed out")
    session_id = read_path_id(session.request, SESSION, missing)
    if not await profile.end_session(session.database, session.requester, session_id):
        raise HTTPException(404, missing)
    return show_done("session")


async def end_others(session: CustomerSession) -> Response:
    await read_fields(session.request)
    await profile.end_other_sessions(session.database, session.requester, session.customer.session_id)
    return show_done("sessions")


async def show_review(session: CustomerSession) -> Response:
    return _review(session, await _refusal(session), {})


async def _refusal(session: CustomerSession) -> ContentRefusal:
    text = str(session.request.path_params["digest"])
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    found = None
    if len(digest) == _DIGEST_BYTES:
        async with session.database.connection() as connection:
            found = await content_store.find(connection, session.account_id, digest)
    if found is None:
        raise HTTPException(404, _("This refused text does not exist. They are deleted after 30 days"))
    return found


def _review(
    session: CustomerSession,
    refusal: ContentRefusal,
    faults: Faults,
    status: int = 200,
    **written: str | bool,
) -> Response:
    filled = {"text": refusal.text or "", "note": refusal.review_note or "", "consent": False} | written
    return session.page("review.html.jinja", status, refusal=refusal, faults=faults, filled=filled)


async def ask_review(session: CustomerSession) -> Response:
    form = await RefusalReviewForm.read(session.request)
    refusal = await _refusal(session)
    if not form.faults:
        try:
            asked = await content_review.ask_review(
                session.database,
                session.account_id,
                refusal.digest,
                form.text.data,
                form.note.data,
                session.actor,
            )
        except OperatorError as error:
            form.faults[""] = str(error)
        else:
            if asked:
                return show_done("review")
            form.faults["text"] = _("This is not the refused text. Paste it exactly as it was sent.")
    return _review(session, refusal, form.faults, 422, **form.filled)


async def close(session: CustomerSession) -> Response:
    form = await CloseForm.read(session.request)
    if form.faults:
        return await _page(session, form.faults, 422)
    check = await profile.close_account(session.database, session.requester, form.password_to_close.data)
    if check is not PasswordCheck.RIGHT:
        fault, status = fault_of_password(check)
        return await _page(session, {"password_to_close": fault}, status)
    # Shown at once: nobody can come back to read it.
    response = session.services.templates.page("closed.html.jinja", customer=session.customer)
    session.services.session_cookie.delete(response)
    return response


async def show_changes(session: CustomerSession) -> Response:
    text = session.request.query_params.get("before", "")
    before = (
        int(text)
        if text.isascii() and text.isdigit() and len(text) < len(str(audit_log.LATEST))
        else audit_log.LATEST
    )
    async with session.database.connection() as connection:
        found = await audit_log.list_before(connection, session.account_id, before, CHANGES_SHOWN + 1)
    shown = found[:CHANGES_SHOWN]
    return session.page(
        "changes.html.jinja",
        changes=shown,
        owner=audit_log.OWNER,
        person_id=session.customer.person_id,
        older=shown[-1].id if len(found) > CHANGES_SHOWN else None,
        is_latest=before == audit_log.LATEST,
    )
