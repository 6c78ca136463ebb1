"""Sign-in of customers and operators, sign-up and password reset, and the beginning of every session.

A session begins with a number and its password, or with a code sent to that number. With a second factor,
both need that too. Operators always have one.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tumira import audit_log
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.core.ids import AccountId, new_id
from tumira.identity import notify_owner, second_factor, throttle, totp
from tumira.identity.passwords import hash_secret, matches
from tumira.identity.principal import Browser, Principal, PrincipalKind, subject_of
from tumira.identity.send_codes import hash_token, new_token
from tumira.identity.store import devices, logins, people, second_factors, sessions, verifications
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.logins import Login
from tumira.identity.store.sessions import PendingSignIn, SignInStage
from tumira.identity.store.verifications import Applicant, Purpose, Verification
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

RATE_LIMIT: Final = 60


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session has begun; both tokens are for the browser alone."""

    token: str
    # Outlives the session and identifies the browser later; None while the phone is not proved.
    device: str | None


@dataclass(frozen=True, slots=True)
class SecondFactorRequired:
    """The password or the code was right; the token is for the page that asks for the next step."""

    token: str
    stage: SignInStage


@dataclass(frozen=True, slots=True)
class AccountClosed:
    """The password or the code was right, but the owner has closed the account."""


@dataclass(frozen=True, slots=True)
class NoAccount:
    """The password or the code was right, but the person has left every account or was removed from it."""


@dataclass(frozen=True, slots=True)
class SignUpUnfinished:
    """The password is that of a sign-up whose number is not proved yet; the token is for its code."""

    token: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The password or the code was wrong; `left` is the number of attempts that a code still has.

    None are left for a code that is too old or was tried too often: another has to be sent.
    """

    left: int


@dataclass(frozen=True, slots=True)
class TooManyAttempts:
    """Nothing was compared: there were too many failed attempts from this address or for this number."""

    wait: timedelta


async def sign_in(
    database: Database, kind: PrincipalKind, browser: Browser, *, phone: str, password: str
) -> (
    SignedIn
    | SecondFactorRequired
    | AccountClosed
    | NoAccount
    | SignUpUnfinished
    | Mismatch
    | TooManyAttempts
):
    async with database.transaction() as connection:
        wait = await throttle.take(connection, AttemptKind.PASSWORD, subject_of(kind, phone), browser)
        if wait is not None:
            return TooManyAttempts(wait)
        login = await logins.find(connection, kind, phone)
    if await matches(password, None if login is None else login.password_hash, browser.address):
        assert login is not None
        async with database.transaction() as connection:
            # A password that was changed while it was compared is not accepted: the change ended sessions.
            if await logins.lock(connection, login.principal) != login.password_hash:
                return Mismatch(0)
            return await accept(connection, browser, login)
    if kind is PrincipalKind.OPERATOR:
        return Mismatch(0)
    # Also for a number that has an account: otherwise the answer would tell a stranger, who began a sign-up
    # for the number and signs in with that password, that it has one.
    async with database.connection() as connection:
        begun = await verifications.find_latest_sign_up(connection, phone)
    applicant = None if begun is None else begun.applicant
    if not await matches(password, None if applicant is None else applicant.password_hash, browser.address):
        return Mismatch(0)
    assert begun is not None
    token = new_token()
    async with database.transaction() as connection:
        await verifications.set_token(connection, begun.id, hash_token(token))
    return SignUpUnfinished(token)


async def accept(
    connection: Connection, browser: Browser, login: Login
) -> SignedIn | SecondFactorRequired | AccountClosed | NoAccount:
    """Begin the session of a principal whose password was right, or ask for the second factor."""
    principal = login.principal
    if not login.has_account:
        return AccountClosed() if login.closed else NoAccount()
    if login.is_one_time:
        # Anyone who used the one-time password before has seen the secret that was made then.
        await second_factors.begin(connection, principal, totp.new_secret())
        await sessions.delete_all(connection, principal)
        return await _begin_pending(connection, browser, principal, SignInStage.NEW)
    # Operators always need the second factor.
    if principal.kind is PrincipalKind.OPERATOR or await second_factor.is_active(connection, principal):
        # Attempts are not forgiven yet: a known password would allow guessing codes without end.
        return await _begin_pending(connection, browser, principal, SignInStage.CODE)
    return await begin_session(connection, browser, principal, proved=login.phone_proved)


async def _begin_pending(
    connection: Connection,
    browser: Browser,
    principal: Principal,
    stage: SignInStage,
    password_hash: str | None = None,
) -> SecondFactorRequired:
    # An operator's browser keeps one token, for the session and for what comes before it.
    if principal.kind is PrincipalKind.OPERATOR:
        await _end_old(connection, browser, principal)
    token = new_token()
    session_id = new_id(_ms(await clock.read_now(connection)))
    await sessions.insert(
        connection,
        principal,
        session_id,
        hash_token(token),
        browser,
        pending=stage,
        password_hash=password_hash,
    )
    return SecondFactorRequired(token, stage)


async def count_attempt(
    database: Database, kind: PrincipalKind, stage: SignInStage, browser: Browser, token: str
) -> PendingSignIn | TooManyAttempts | None:
    """Count an attempt before its code is compared, so that parallel ones cannot exceed the limit."""
    async with database.transaction() as connection:
        pending = await sessions.find_pending(connection, kind, stage, hash_token(token))
        if pending is None:
            return None
        attempt = AttemptKind.FACTOR if pending.password_hash is None else AttemptKind.RESET_FACTOR
        wait = await throttle.take(connection, attempt, pending.principal.subject, browser)
        return pending if wait is None else TooManyAttempts(wait)


async def finish_sign_in(
    database: Database, kind: PrincipalKind, browser: Browser, *, token: str, code: str
) -> SignedIn | Mismatch | TooManyAttempts | None:
    """Begin a session after the second factor; None for an expired token."""
    pending = await count_attempt(database, kind, SignInStage.CODE, browser, token)
    if not isinstance(pending, PendingSignIn):
        return pending
    principal, actor = pending.principal, pending.actor(browser.address)
    async with database.transaction() as connection:
        if not await second_factor.take(connection, principal, code, actor):
            return Mismatch(0)
        # A change of the password or the factor meanwhile has ended this sign-in; the code stays used.
        if not await sessions.delete_pending(connection, kind, hash_token(token)):
            return None
        if pending.password_hash is not None:
            await _set_forgotten(connection, principal, pending.password_hash, actor)
        return await begin_session(connection, browser, principal)


async def _set_forgotten(
    connection: Connection, principal: Principal, password_hash: str, actor: Actor
) -> None:
    await logins.set_password(connection, principal, password_hash)
    await sessions.delete_all(connection, principal)
    await devices.delete_all(connection, principal.subject)
    await notify_owner.note(connection, principal, actor, "password changed", "after it was forgotten")


async def finish_sign_up(
    database: Database, browser: Browser, *, token: str, code: str
) -> SignedIn | Mismatch | None:
    """Open the account of a sign-up whose code was entered; None for an expired token.

    The code of the e-mail opens an account that can only be looked at. The code of the text proves the
    number, which also takes over an account that another person has opened by e-mail.
    """
    by_phone = await _try_code(database, browser, Purpose.SIGN_UP, token, code)
    if not isinstance(by_phone, bool):
        return by_phone
    async with database.transaction() as connection:
        verification = await verifications.lock(connection, hash_token(token))
        if verification is None:
            return None
        principal = await _open_or_take_over(connection, browser, verification, by_phone=by_phone)
        if principal is None:
            return None
        if by_phone:
            await verifications.mark_done(connection, verification.id)
        else:
            await verifications.forget_email(connection, verification.id)
        return await begin_session(connection, browser, principal, proved=by_phone)


async def _open_or_take_over(
    connection: Connection, browser: Browser, verification: Verification, *, by_phone: bool
) -> Principal | None:
    """Return the owner of a sign-up's account; None when the number got one since the code was sent."""
    phone, applicant = verification.phone, verification.applicant
    assert applicant is not None
    login = await logins.find(connection, PrincipalKind.CUSTOMER, phone)
    if login is None or login.is_free:
        return await _open(connection, phone, applicant, by_phone=by_phone)
    principal = login.principal
    await logins.lock(connection, principal)
    login = await logins.find(connection, PrincipalKind.CUSTOMER, phone)
    if login is None or login.phone_proved or not by_phone:
        return None
    if login.password_hash != applicant.password_hash:
        # Probably another person's: nothing of theirs stays.
        await forget_login(connection, principal)
        # Whose phone is not proved has opened one account, and is in no other.
        (own,) = await people.list_accounts(connection, principal.id)
        await accounts.set_names(connection, own.account_id, applicant.name, applicant.business)
        await people.set_name(connection, principal.id, applicant.name)
        await logins.set_email(connection, principal.id, applicant.email)
        await logins.set_password(connection, principal, applicant.password_hash)
    await _mark_proved(connection, login, browser)
    return principal


async def _open(
    connection: Connection, phone: str, applicant: Applicant, *, by_phone: bool
) -> Principal | None:
    """Open an account for a number without one; None if it got an account, or its person has left one."""
    account_id = AccountId(new_id(_ms(await clock.read_now(connection))))
    if not await accounts.insert(
        connection, account_id, phone, applicant.name, applicant.business, RATE_LIMIT
    ):
        return None
    # The account begins with its owner, who may have been in other accounts before.
    (owner,) = await people.list_owners(connection, account_id)
    await forget_login(connection, owner.principal)
    await people.set_name(connection, owner.person_id, applicant.name)
    await logins.insert(
        connection, owner.principal, applicant.email, applicant.password_hash, phone_proved=by_phone
    )
    return owner.principal


async def forget_login(connection: Connection, principal: Principal) -> None:
    """Delete what was set up before the phone was proved, or for accounts that the person has left."""
    await logins.set_email(connection, principal.id, None)
    await second_factors.delete(connection, principal)
    await sessions.delete_all(connection, principal)


async def _mark_proved(connection: Connection, login: Login, browser: Browser) -> None:
    principal = login.principal
    await logins.mark_proved(connection, principal.id)
    actor = Actor(login.name, browser.address, principal.id)
    for one in await people.list_accounts(connection, principal.id):
        await audit_log.record(connection, one.account_id, actor, "phone number confirmed")


async def finish_reset(
    database: Database, browser: Browser, *, token: str, code: str, password: str
) -> SignedIn | SecondFactorRequired | AccountClosed | NoAccount | Mismatch | None:
    """Set a new password after its code was entered, and end all other sessions; None for an expired token.

    With a second factor that comes first: a stolen number alone must not change the password.
    """
    by_phone = await _try_code(database, browser, Purpose.RESET, token, code)
    if not isinstance(by_phone, bool):
        return by_phone
    password_hash = await hash_secret(password, browser.address)
    async with database.transaction() as connection:
        verification = await verifications.lock(connection, hash_token(token))
        if verification is None:
            return None
        phone = verification.phone
        login = await logins.find(connection, PrincipalKind.CUSTOMER, phone)
        if login is None:
            return None
        principal = login.principal
        await logins.lock(connection, principal)
        login = await logins.find(connection, PrincipalKind.CUSTOMER, phone) or login
        if not login.has_account:
            return AccountClosed() if login.closed else NoAccount()
        if not login.phone_proved:
            await forget_login(connection, principal)
            await _mark_proved(connection, login, browser)
        await verifications.mark_done(connection, verification.id)
        if await second_factor.is_active(connection, principal):
            return await _begin_pending(connection, browser, principal, SignInStage.CODE, password_hash)
        actor = Actor(login.name, browser.address, principal.id)
        await _set_forgotten(connection, principal, password_hash, actor)
        return await begin_session(connection, browser, principal)


async def _try_code(
    database: Database, browser: Browser, purpose: Purpose, token: str, code: str
) -> bool | Mismatch | None:
    """Return True for the code of the text message, and False for that of the e-mail.

    The attempt is committed before the code is compared, so that parallel ones cannot exceed the limit. A
    code has five attempts and belongs to one browser, so strangers cannot use them up.
    """
    async with database.transaction() as connection:
        verification = await verifications.find(connection, hash_token(token))
        if verification is None or verification.purpose is not purpose:
            return None
        tried = await verifications.take_attempt(connection, verification.id)
        if tried is None:
            return Mismatch(0)
    if await matches(code, tried.code_hash, browser.address):
        return True
    # With an e-mail address both are compared, so that the time does not tell if the number has an account.
    has_email = verification.applicant is not None and verification.applicant.email is not None
    if has_email and await matches(code, tried.email_hash, browser.address):
        return False
    return Mismatch(tried.left)


async def begin_session(
    connection: Connection, browser: Browser, principal: Principal, *, proved: bool = True
) -> SignedIn:
    """Begin a session in place of the browser's old one, and forgive failed attempts.

    With a phone that is proved, the browser gets a token by which it is recognised, with attempts of its own.
    """
    await throttle.forgive(connection, principal.subject, browser)
    await _end_old(connection, browser, principal)
    token = new_token()
    session_id = new_id(_ms(await clock.read_now(connection)))
    await sessions.insert(connection, principal, session_id, hash_token(token), browser)
    device = new_token() if proved else None
    if device is not None:
        await devices.remember(connection, principal.subject, browser.device_sha256, hash_token(device))
    return SignedIn(token, device)


async def _end_old(connection: Connection, browser: Browser, principal: Principal) -> None:
    if browser.old_token is not None:
        await sessions.delete(connection, principal.kind, hash_token(browser.old_token))


async def sign_out(database: Database, kind: PrincipalKind, token: str) -> None:
    async with database.transaction() as connection:
        await sessions.delete(connection, kind, hash_token(token))


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
