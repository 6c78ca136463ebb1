"""What may somebody set about their own account, and how do they leave it?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira import audit_log
from tumira.accounts import store as accounts
from tumira.accounts.store import Account
from tumira.audit_log import Actor
from tumira.content import store as content_refusals
from tumira.content.store import ContentRefusal
from tumira.core import money
from tumira.core.ids import read_id, write_id
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Form, read_form
from tumira.html.guards import address_of
from tumira.html.redirect import redirect
from tumira.identity import browsers
from tumira.identity import profile as manage_login
from tumira.identity.person_rules import PASSWORD_MAX, check_email, check_name, check_password, clean_name
from tumira.identity.profile import ReviewOutcome, SpendLimits
from tumira.identity.reauthenticate import PasswordCheck, Requester
from tumira.identity.store import logins, sessions
from tumira.identity.store.logins import Contact

SETTINGS: Final = "/dashboard/settings"
CHANGES: Final = SETTINGS + "/changes"
REVIEW: Final = SETTINGS + "/refusals/{digest}"

SESSION: Final = "ses_"
REFUSALS_SHOWN: Final = 20
CHANGES_SHOWN: Final = 50
NOTE_MAX: Final = 500
TEXT_MAX: Final = 2_000
CLOSE_WORD: Final = "CLOSE"
# Above all numbers that a change can have.
_LATEST: Final = 2**63 - 1
_DIGEST_BYTES: Final = 32

NOT_AN_AMOUNT: Final = "Write an amount in US dollars, like 5 or 12.50."
WRONG_PASSWORD: Final = "This is not your password."  # noqa: S105 - what is said about one
TOO_OFTEN: Final = "Too many attempts. Please try again in a quarter of an hour."
# What is said after a change, by the name under which the form comes back.
DONE: Final = {
    "profile": "Your profile is saved.",
    "email": "Your email address is saved.",
    "password": "Your password is changed. All other sessions have ended.",
    "session": "That session has ended.",
    "sessions": "All other sessions have ended.",
    "limits": "Your spend limits are saved. They count from the next call.",
    "notice": "Your low-balance notice is saved.",
    "review": "The operator will look at the text. You can send such texts once it is allowed.",
    "off": "The second factor is off. Your password alone signs you in.",
}

Faults = Mapping[str, str]


def routes(services: Services) -> Sequence[Route]:
    """Return where these pages are."""
    return [
        private(services, SETTINGS, show),
        private(services, SETTINGS + "/profile", change_profile, "POST"),
        private(services, SETTINGS + "/email", change_email, "POST"),
        private(services, SETTINGS + "/password", change_password, "POST"),
        private(services, SETTINGS + "/sessions/others", end_others, "POST"),
        private(services, SETTINGS + "/sessions/{id}", end_session, "POST"),
        private(services, SETTINGS + "/limits", change_limits, "POST"),
        private(services, SETTINGS + "/notice", change_notice, "POST"),
        private(services, REVIEW, show_review),
        private(services, REVIEW, ask_review, "POST"),
        private(services, SETTINGS + "/close", close, "POST"),
        private(services, CHANGES, show_changes),
    ]


def actor_of(session: CustomerSession) -> Actor:
    """Return who changes something on a page."""
    return Actor(audit_log.OWNER, address_of(session.request))


def suspect_of(session: CustomerSession) -> Requester:
    """Return who has to say their password once more."""
    return Requester(session.account_id, session.customer.phone, address_of(session.request))


def fault_of_proof(proof: PasswordCheck, wrong: str = WRONG_PASSWORD) -> tuple[str, int]:
    """Say why a password did not do, and how that is answered."""
    return (TOO_OFTEN, 429) if proof is PasswordCheck.TOO_OFTEN else (wrong, 422)


@dataclass(frozen=True, slots=True)
class _Filled:
    """What stands in the fields: what is set, or what somebody wrote instead and has to correct."""

    name: str
    business: str
    email: str
    call_limit: str
    daily_limit: str
    low_balance: str
    by_mail: bool


def _fill(account: Account, contact: Contact) -> _Filled:
    return _Filled(
        account.name,
        account.business,
        contact.email or "",
        _write(account.call_limit),
        _write(account.daily_limit),
        _write(account.low_balance),
        contact.low_balance_mail,
    )


def _write(amount: Decimal | None) -> str:
    """Write an amount as people would type it."""
    if amount is None:
        return ""
    whole, _, decimals = money.write(amount).partition(".")
    decimals = decimals.rstrip("0")
    return f"{whole}.{decimals:0<2}" if decimals else whole


async def show(session: CustomerSession) -> Response:
    """Show all settings."""
    return await _page(session, {}, done=session.request.query_params.get("done", ""))


async def _page(
    session: CustomerSession, faults: Faults, status: int = 200, *, done: str = "", **written: str | bool
) -> Response:
    account_id = session.account_id
    async with session.database.connection() as connection:
        account = await accounts.find(connection, account_id)
        contact = await logins.get_contact(connection, account_id)
        factor = await logins.find_factor(connection, account_id)
        opened = await sessions.list_sessions(connection, account_id)
        refused = await content_refusals.list_latest(connection, account_id, REFUSALS_SHOWN)
    assert account is not None
    return session.page(
        "settings.html.jinja",
        status,
        filled=replace(_fill(account, contact), **written),  # type: ignore[arg-type]
        faults=faults,
        said=DONE.get(done),
        factor=factor if factor is not None and factor.since is not None else None,
        sessions=[(write_id(SESSION, one.id), browsers.describe(one.browser), one) for one in opened],
        refused=refused,
    )


def _done(what: str, section: str) -> Response:
    return redirect(f"{SETTINGS}?done={what}#{section}")


async def change_profile(session: CustomerSession) -> Response:
    """Change the names."""
    form = await read_form(session.request)
    name, business = (
        clean_name(form.text("name")),
        clean_name(form.text("business")),
    )
    found = {"name": check_name(name), "business": check_name(business)}
    faults = {field: fault for field, fault in found.items() if fault is not None}
    if faults:
        return await _page(session, faults, 422, name=name, business=business)
    await manage_login.change_names(session.database, session.account_id, name, business, actor_of(session))
    return _done("profile", "profile")


async def change_email(session: CustomerSession) -> Response:
    """Change, add or remove the e-mail address."""
    form = await read_form(session.request)
    email = form.text("email")[:300]
    fault = check_email(email) if email else None
    if fault is not None:
        return await _page(session, {"email": fault}, 422, email=email)
    await manage_login.change_email(session.database, session.account_id, email or None, actor_of(session))
    return _done("email", "contact")


async def change_password(session: CustomerSession) -> Response:
    """Change the password of who knows the old one."""
    form = await read_form(session.request)
    old, new = form.raw("current_password")[:PASSWORD_MAX], form.raw("new_password")
    customer = session.customer
    weak = check_password(new, customer.name, customer.business, customer.phone)
    if weak is not None:
        return await _page(session, {"new_password": weak}, 422)
    proof = await manage_login.change_password(
        session.database, suspect_of(session), customer.session_id, old, new, actor_of(session)
    )
    if proof is not PasswordCheck.RIGHT:
        fault, status = fault_of_proof(proof)
        return await _page(session, {"current_password": fault}, status)
    return _done("password", "password")


async def end_session(session: CustomerSession) -> Response:
    """End a session somewhere."""
    await read_form(session.request)
    session_id = read_id(SESSION, str(session.request.path_params["id"]))
    if session_id is None or not await manage_login.end_session(
        session.database, session.account_id, session_id, actor_of(session)
    ):
        raise HTTPException(404, "There is no such session; it may have ended already")
    return _done("session", "sessions")


async def end_others(session: CustomerSession) -> Response:
    """End all sessions but this one."""
    await read_form(session.request)
    customer = session.customer
    await manage_login.end_other_sessions(
        session.database, customer.account_id, customer.session_id, actor_of(session)
    )
    return _done("sessions", "sessions")


async def change_limits(session: CustomerSession) -> Response:
    """Change how much may be spent."""
    form = await read_form(session.request)
    written = {name: form.text(name)[:40] for name in ("call_limit", "daily_limit")}
    amounts = {name: money.parse(text) for name, text in written.items()}
    faults = {name: NOT_AN_AMOUNT for name, text in written.items() if text and amounts[name] is None}
    if faults:
        return await _page(session, faults, 422, **written)
    await manage_login.change_limits(
        session.database,
        session.account_id,
        SpendLimits(amounts["call_limit"], amounts["daily_limit"]),
        actor_of(session),
    )
    return _done("limits", "limits")


async def change_notice(session: CustomerSession) -> Response:
    """Change when the owner is told that the balance is low."""
    form = await read_form(session.request)
    written, by_mail = form.text("low_balance")[:40], bool(form.text("by_mail"))
    below = money.parse(written or "0")
    if below is None:
        return await _page(session, {"low_balance": NOT_AN_AMOUNT}, 422, low_balance=written, by_mail=by_mail)
    await manage_login.change_notice(
        session.database, session.account_id, below, actor_of(session), by_mail=by_mail
    )
    return _done("notice", "notice")


async def show_review(session: CustomerSession) -> Response:
    """Ask for the text that was refused, which we do not have."""
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
            found = await content_refusals.find(connection, session.account_id, digest)
    if found is None:
        raise HTTPException(404, "There is no such refused text; they are forgotten after 30 days")
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
    """Have the operator look at a refused text."""
    form = await read_form(session.request)
    refusal = await _refusal(session)
    text, note, consent = form.raw("text")[:TEXT_MAX], form.text("note"), bool(form.text("consent"))
    faults = _review_faults(form, note, consent=consent)
    if not faults:
        asked = await manage_login.ask_review(
            session.database, session.account_id, refusal.digest, text, note, actor_of(session)
        )
        if asked is ReviewOutcome.DONE:
            return _done("review", "refusals")
        faults["text"] = "This is not the text that was refused; paste it as it was sent."
    return _review(session, refusal, faults, 422, text=text, note=note, consent=consent)


def _review_faults(form: Form, note: str, *, consent: bool) -> dict[str, str]:
    faults = {}
    if not form.text("text"):
        faults["text"] = "Paste the text that was refused."
    if len(note) > NOTE_MAX:
        faults["note"] = f"At most {NOTE_MAX} characters."
    if not consent:
        faults["consent"] = "Without this nobody can look at the text."
    return faults


async def close(session: CustomerSession) -> Response:
    """Close the account."""
    form = await read_form(session.request)
    if form.text("word") != CLOSE_WORD:
        return await _page(session, {"word": f"Write {CLOSE_WORD}, in capital letters."}, 422)
    proof = await manage_login.close_account(
        session.database,
        suspect_of(session),
        form.raw("password_to_close")[:PASSWORD_MAX],
        actor_of(session),
    )
    if proof is not PasswordCheck.RIGHT:
        fault, status = fault_of_proof(proof)
        return await _page(session, {"password_to_close": fault}, status)
    # Shown at once: nobody can come back to read it.
    response = session.services.templates.page("closed.html.jinja", customer=session.customer)
    session.services.session_cookie.delete(response)
    return response


async def show_changes(session: CustomerSession) -> Response:
    """Show who changed what, the latest first."""
    text = session.request.query_params.get("before", "")
    before = int(text) if text.isascii() and text.isdigit() and len(text) < len(str(_LATEST)) else _LATEST
    async with session.database.connection() as connection:
        found = await audit_log.list_before(connection, session.account_id, before, CHANGES_SHOWN + 1)
    shown = found[:CHANGES_SHOWN]
    return session.page(
        "changes.html.jinja",
        changes=shown,
        owner=audit_log.OWNER,
        older=shown[-1].id if len(found) > CHANGES_SHOWN else None,
        is_latest=before == _LATEST,
    )
