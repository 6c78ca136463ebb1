"""Customers' sign-in, sign-up and password reset, and the beginning of every session.

A session begins with a number and its password, or with a code sent to that number. With a second factor,
both need that too.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tumira import audit_log
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.core.ids import AccountId, new_id
from tumira.identity import notify_owner, second_factor, throttle
from tumira.identity.passwords import hash_secret, matches
from tumira.identity.principal import Browser, Principal, PrincipalKind
from tumira.identity.send_codes import hash_token, new_token
from tumira.identity.store import devices, logins, second_factors, sessions, verifications
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.sessions import SignInStage
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
    """The password or the code was right; the token is for the page that asks for the second factor."""

    token: str


@dataclass(frozen=True, slots=True)
class AccountClosed:
    """The password or the code was right, but the owner has closed the account."""


@dataclass(frozen=True, slots=True)
class SignUpUnfinished:
    """The password is that of a sign-up whose number is not proved yet; the token is for its code."""

    token: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The password or the code was wrong; `left` is the number of attempts that a code still has."""

    left: int


@dataclass(frozen=True, slots=True)
class TooManyAttempts:
    """Nothing was compared: there were too many failed attempts from this address or for this number."""

    wait: timedelta


@dataclass(frozen=True, slots=True)
class CodeExpired:
    """The code is too old or was tried too often; another has to be sent."""


async def sign_in(
    database: Database, browser: Browser, *, phone: str, password: str
) -> SignedIn | SecondFactorRequired | AccountClosed | SignUpUnfinished | Mismatch | TooManyAttempts:
    async with database.transaction() as connection:
        wait = await throttle.take(connection, AttemptKind.PASSWORD, phone, browser)
        if wait is not None:
            return TooManyAttempts(wait)
    async with database.connection() as connection:
        login = await logins.find(connection, phone)
        begun = await verifications.find_latest_sign_up(connection, phone)
    if await matches(password, None if login is None else login.password_hash, browser.address):
        assert login is not None
        async with database.transaction() as connection:
            # A password that was changed while it was compared is not accepted: the change ended sessions.
            if await logins.lock(connection, login.account_id) != login.password_hash:
                return Mismatch(0)
            if login.closed:
                return AccountClosed()
            if await second_factor.is_active(connection, _account(login.account_id, phone)):
                # Attempts are not forgiven yet: a known password would allow guessing codes without end.
                return await _begin_pending(connection, login.account_id)
            await throttle.forgive(connection, phone, browser)
            principal = _account(login.account_id, phone)
            return await _begin(connection, browser, principal, proved=login.phone_proved)
    # Also for a number that has an account: otherwise the answer would tell a stranger, who began a sign-up
    # for the number and signs in with that password, that it has one.
    if await matches(password, _hash_of(begun), browser.address):
        assert begun is not None
        token = new_token()
        async with database.transaction() as connection:
            await verifications.set_token(connection, begun.id, hash_token(token))
        return SignUpUnfinished(token)
    return Mismatch(0)


def _hash_of(begun: Verification | None) -> str | None:
    return begun.applicant.password_hash if begun is not None and begun.applicant is not None else None


def _account(account_id: AccountId, phone: str) -> Principal:
    return Principal(PrincipalKind.ACCOUNT, account_id, phone)


async def _begin_pending(
    connection: Connection, account_id: AccountId, password_hash: str | None = None
) -> SecondFactorRequired:
    token = new_token()
    await sessions.insert_pending(connection, hash_token(token), account_id, password_hash)
    return SecondFactorRequired(token)


async def finish_sign_in(
    database: Database, browser: Browser, *, token: str, code: str
) -> SignedIn | Mismatch | TooManyAttempts | None:
    """Begin a session after the second factor; None for an expired token."""
    async with database.transaction() as connection:
        pending = await sessions.find_pending(connection, hash_token(token))
        if pending is None:
            return None
        kind = AttemptKind.FACTOR if pending.password_hash is None else AttemptKind.RESET_FACTOR
        wait = await throttle.take(connection, kind, pending.phone, browser)
        if wait is not None:
            return TooManyAttempts(wait)
    principal = _account(pending.account_id, pending.phone)
    actor = Actor(audit_log.OWNER, browser.address)
    async with database.transaction() as connection:
        if not await second_factor.take(connection, principal, code, actor):
            return Mismatch(0)
        # A change of the password or the factor meanwhile has ended this sign-in; the code stays used.
        if not await sessions.delete_pending(connection, hash_token(token)):
            return None
        if pending.password_hash is not None:
            await _set_forgotten(connection, principal, pending.password_hash, actor)
        await throttle.forgive(connection, pending.phone, browser)
        return await _begin(connection, browser, principal)


async def _set_forgotten(
    connection: Connection, principal: Principal, password_hash: str, actor: Actor
) -> None:
    account_id = AccountId(principal.id)
    await logins.set_password(connection, account_id, password_hash)
    await sessions.delete_all(connection, principal)
    await devices.delete_all(connection, principal.subject)
    await notify_owner.note(connection, account_id, actor, "password changed", "after it was forgotten")


async def finish_sign_up(
    database: Database, browser: Browser, *, token: str, code: str
) -> SignedIn | Mismatch | CodeExpired | None:
    """Open the account of a sign-up whose code was entered; None for an expired token.

    The code of the e-mail opens an account that can only be looked at. The code of the text proves the
    number, which also takes over an account that another person has opened by e-mail.
    """
    tried = await _try_code(database, browser, Purpose.SIGN_UP, token, code)
    if not isinstance(tried, _Right):
        return tried
    async with database.transaction() as connection:
        verification = await verifications.lock(connection, hash_token(token))
        if verification is None:
            return None
        assert verification.applicant is not None
        account_id = await _open_or_take_over(
            connection, browser, verification, verification.applicant, by_phone=tried.by_phone
        )
        if account_id is None:
            return None
        if tried.by_phone:
            return await _prove(connection, browser, verification, account_id)
        await verifications.forget_email(connection, verification.id)
        return await _begin(connection, browser, _account(account_id, verification.phone), proved=False)


async def _open_or_take_over(
    connection: Connection,
    browser: Browser,
    verification: Verification,
    applicant: Applicant,
    *,
    by_phone: bool,
) -> AccountId | None:
    """Return the account of a sign-up; None when the number got one since the code was sent."""
    login = await logins.find(connection, verification.phone)
    if login is None:
        account_id = AccountId(new_id(_ms(await clock.read_now(connection))))
        if not await accounts.insert(
            connection, account_id, verification.phone, applicant.name, applicant.business, RATE_LIMIT
        ):
            return None
        await logins.insert(
            connection, account_id, applicant.email, applicant.password_hash, phone_proved=by_phone
        )
        return account_id
    await logins.lock(connection, login.account_id)
    login = await logins.find(connection, verification.phone)
    if login is None or login.phone_proved or not by_phone:
        return None
    if login.password_hash != applicant.password_hash:
        # Probably another person's: nothing of theirs stays.
        await _forget_unproved(connection, _account(login.account_id, verification.phone))
        await accounts.set_names(connection, login.account_id, applicant.name, applicant.business)
        await logins.set_email(connection, login.account_id, applicant.email)
        await logins.set_password(connection, login.account_id, applicant.password_hash)
    await _mark_proved(connection, login.account_id, browser)
    return login.account_id


async def _forget_unproved(connection: Connection, principal: Principal) -> None:
    """Delete what was set up before the phone was proved."""
    await logins.set_email(connection, AccountId(principal.id), None)
    await second_factors.delete(connection, AccountId(principal.id))
    await sessions.delete_all(connection, principal)


async def _mark_proved(connection: Connection, account_id: AccountId, browser: Browser) -> None:
    await logins.mark_proved(connection, account_id)
    await audit_log.record(
        connection, account_id, Actor(audit_log.OWNER, browser.address), "phone number confirmed"
    )


async def finish_reset(
    database: Database, browser: Browser, *, token: str, code: str, password: str
) -> SignedIn | SecondFactorRequired | AccountClosed | Mismatch | CodeExpired | None:
    """Set a new password after its code was entered, and end all other sessions; None for an expired token.

    With a second factor that comes first: a stolen number alone must not change the password.
    """
    tried = await _try_code(database, browser, Purpose.RESET, token, code)
    if not isinstance(tried, _Right):
        return tried
    password_hash = await hash_secret(password, browser.address)
    async with database.transaction() as connection:
        verification = await verifications.lock(connection, hash_token(token))
        login = None if verification is None else await logins.find(connection, verification.phone)
        if verification is None or login is None:
            return None
        await logins.lock(connection, login.account_id)
        login = await logins.find(connection, verification.phone) or login
        if login.closed:
            return AccountClosed()
        principal = _account(login.account_id, verification.phone)
        if not login.phone_proved:
            await _forget_unproved(connection, principal)
            await _mark_proved(connection, login.account_id, browser)
        if await second_factor.is_active(connection, principal):
            await verifications.mark_done(connection, verification.id)
            return await _begin_pending(connection, login.account_id, password_hash)
        actor = Actor(audit_log.OWNER, browser.address)
        await _set_forgotten(connection, principal, password_hash, actor)
        return await _prove(connection, browser, verification, login.account_id)


@dataclass(frozen=True, slots=True)
class _Right:
    """The code was right: that of the text message, or that of the e-mail."""

    by_phone: bool


async def _try_code(
    database: Database, browser: Browser, purpose: Purpose, token: str, code: str
) -> _Right | Mismatch | CodeExpired | None:
    """Compare a code; the attempt is committed before, so that parallel ones cannot exceed the limit.

    A code has five attempts and belongs to one browser, so strangers cannot use them up.
    """
    async with database.transaction() as connection:
        verification = await verifications.find(connection, hash_token(token))
        if verification is None or verification.purpose is not purpose:
            return None
        tried = await verifications.take_attempt(connection, verification.id)
        if tried is None:
            return CodeExpired()
    if await matches(code, tried.code_hash, browser.address):
        return _Right(by_phone=True)
    # With an e-mail address both are compared, so that the time does not tell if the number has an account.
    has_email = verification.applicant is not None and verification.applicant.email is not None
    if has_email and await matches(code, tried.email_hash, browser.address):
        return _Right(by_phone=False)
    return Mismatch(tried.left)


async def _prove(
    connection: Connection, browser: Browser, verification: Verification, account_id: AccountId
) -> SignedIn:
    await verifications.mark_done(connection, verification.id)
    await throttle.forgive(connection, verification.phone, browser)
    return await _begin(connection, browser, _account(account_id, verification.phone))


async def _begin(
    connection: Connection, browser: Browser, principal: Principal, *, proved: bool = True
) -> SignedIn:
    token = await begin_session(connection, browser, principal)
    return SignedIn(token, await remember_device(connection, browser, principal) if proved else None)


async def begin_session(
    connection: Connection, browser: Browser, principal: Principal, stage: SignInStage = SignInStage.IN
) -> str:
    """Begin a session in place of the browser's old one, and return its token."""
    if browser.old_token is not None:
        await sessions.delete(connection, principal.kind, hash_token(browser.old_token))
    token = new_token()
    session_id = new_id(_ms(await clock.read_now(connection)))
    await sessions.insert(connection, principal, session_id, hash_token(token), browser, stage)
    return token


async def remember_device(connection: Connection, browser: Browser, principal: Principal) -> str:
    """Return a new token by which this browser is recognised, with attempts of its own."""
    device = new_token()
    await devices.remember(connection, principal.subject, browser.device_sha256, hash_token(device))
    return device


async def sign_out(database: Database, kind: PrincipalKind, token: str) -> None:
    async with database.transaction() as connection:
        await sessions.delete(connection, kind, hash_token(token))


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
