"""How does somebody get a session? With a number and its password, or with the code that proves it.

Who has a second factor is asked for it in both cases, and only then gets one.
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
from tumira.identity.send_codes import hash_token, new_token
from tumira.identity.store import devices, logins, sessions, verifications
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.verifications import Applicant, Purpose, Verification
from tumira.identity.throttle import Browser
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

RATE_LIMIT: Final = 60
USER_AGENT_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session has begun; both tokens are for the browser alone.

    The second one outlives the session, and says that somebody has signed in there before.
    """

    token: str
    # None while the phone was not proved: until then nobody is known to be the owner.
    device: str | None


@dataclass(frozen=True, slots=True)
class SecondFactorRequired:
    """The password was right, and the second factor is awaited; the token leads there."""

    token: str


@dataclass(frozen=True, slots=True)
class AccountClosed:
    """All was right, but the account was closed by its owner."""


@dataclass(frozen=True, slots=True)
class SignUpUnfinished:
    """The password is that of a sign-up whose number was not proved yet; the token leads on there."""

    token: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """It was not the right one; of a code, so many tries are left."""

    left: int


@dataclass(frozen=True, slots=True)
class TooManyAttempts:
    """Nothing was compared: too much was tried in vain, from this address or for this number."""

    wait: timedelta


@dataclass(frozen=True, slots=True)
class CodeExpired:
    """The code is too old or was tried too often; only another one helps."""


async def sign_in(
    database: Database, guest: Browser, *, phone: str, password: str
) -> SignedIn | SecondFactorRequired | AccountClosed | SignUpUnfinished | Mismatch | TooManyAttempts:
    """Begin a session for who knows the password of a number's account."""
    async with database.transaction() as connection:
        wait = await throttle.take(connection, AttemptKind.PASSWORD, phone, guest)
        if wait is not None:
            return TooManyAttempts(wait)
    async with database.connection() as connection:
        login = await logins.find(connection, phone)
        begun = await verifications.find_latest_sign_up(connection, phone)
    if await matches(password, None if login is None else login.password_hash, guest.address):
        assert login is not None
        async with database.transaction() as connection:
            # One that was changed while it was compared opens nothing: whoever changed it ended all sessions.
            if await logins.hold(connection, login.account_id) != login.password_hash:
                return Mismatch(0)
            if login.closed:
                return AccountClosed()
            if await _has_factor(connection, login.account_id):
                # Tries are not forgiven yet: a password that is known would let codes be guessed without end.
                return await _begin_half(connection, login.account_id)
            await throttle.forgive(connection, phone, guest)
            return await _begin(connection, guest, login.account_id, phone, proved=login.phone_proved)
    # Also for a number that has an account: otherwise whoever begins a sign-up for it, and then signs in with
    # its password, would learn from the answer that it has one.
    if await matches(password, _hash_of(begun), guest.address):
        assert begun is not None
        token = new_token()
        async with database.transaction() as connection:
            await verifications.set_token(connection, begun.id, hash_token(token))
        return SignUpUnfinished(token)
    return Mismatch(0)


def _hash_of(begun: Verification | None) -> str | None:
    return begun.applicant.password_hash if begun is not None and begun.applicant is not None else None


async def _has_factor(connection: Connection, account_id: AccountId) -> bool:
    factor = await logins.find_factor(connection, account_id)
    return factor is not None and factor.since is not None


async def _begin_half(
    connection: Connection, account_id: AccountId, password_hash: str | None = None
) -> SecondFactorRequired:
    token = new_token()
    await sessions.insert_pending(connection, hash_token(token), account_id, password_hash)
    return SecondFactorRequired(token)


async def finish_sign_in(
    database: Database, guest: Browser, *, token: str, code: str
) -> SignedIn | Mismatch | TooManyAttempts | None:
    """Begin the session of who has the second factor too; None for a token that is of no more use."""
    async with database.transaction() as connection:
        half = await sessions.find_pending(connection, hash_token(token))
        if half is None:
            return None
        kind = AttemptKind.FACTOR if half.password_hash is None else AttemptKind.RESET_FACTOR
        wait = await throttle.take(connection, kind, half.phone, guest)
        if wait is not None:
            return TooManyAttempts(wait)
    actor = Actor(audit_log.OWNER, guest.address)
    async with database.transaction() as connection:
        if not await second_factor.take(connection, half.account_id, code, actor):
            return Mismatch(0)
        # Whoever changed the password or the factor meanwhile has ended this too; then the code stays used.
        if not await sessions.delete_pending(connection, hash_token(token)):
            return None
        if half.password_hash is not None:
            await _set_forgotten(connection, half.account_id, half.phone, half.password_hash, actor)
        await throttle.forgive(connection, half.phone, guest)
        return await _begin(connection, guest, half.account_id, half.phone)


async def _set_forgotten(
    connection: Connection, account_id: AccountId, phone: str, password_hash: str, actor: Actor
) -> None:
    await logins.set_password(connection, account_id, password_hash)
    await sessions.delete_all(connection, account_id)
    await devices.delete_all(connection, phone)
    await notify_owner.note(connection, account_id, actor, "password changed", "after it was forgotten")


async def finish_sign_up(
    database: Database, guest: Browser, *, token: str, code: str
) -> SignedIn | Mismatch | CodeExpired | None:
    """Open the account of who has a code; None for a token that is of no more use.

    The code of the e-mail opens it to be looked at. The code of the text proves the number, which also takes
    over an account that somebody else has opened by e-mail.
    """
    tried = await _try_code(database, guest, Purpose.SIGN_UP, token, code)
    if not isinstance(tried, _Right):
        return tried
    async with database.transaction() as connection:
        verification = await verifications.hold(connection, hash_token(token))
        if verification is None:
            return None
        assert verification.applicant is not None
        account_id = await _open_or_take_over(
            connection, guest, verification, verification.applicant, by_phone=tried.by_phone
        )
        if account_id is None:
            return None
        if tried.by_phone:
            return await _prove(connection, guest, verification, account_id)
        await verifications.forget_email(connection, verification.id)
        return await _begin(connection, guest, account_id, verification.phone, proved=False)


async def _open_or_take_over(
    connection: Connection,
    guest: Browser,
    verification: Verification,
    applicant: Applicant,
    *,
    by_phone: bool,
) -> AccountId | None:
    """Return the account of a sign-up; None when the number got one since the code was sent."""
    login = await logins.find(connection, verification.phone)
    if login is None:
        account_id = AccountId(new_id(_ms(await verifications.now(connection))))
        if not await accounts.insert(
            connection, account_id, verification.phone, applicant.name, applicant.business, RATE_LIMIT
        ):
            return None
        await logins.insert(
            connection, account_id, applicant.email, applicant.password_hash, phone_proved=by_phone
        )
        return account_id
    await logins.hold(connection, login.account_id)
    login = await logins.find(connection, verification.phone)
    if login is None or login.phone_proved or not by_phone:
        return None
    if login.password_hash != applicant.password_hash:
        # Another person's, as far as anybody can tell: nothing of theirs stays.
        await _forget_unproved(connection, login.account_id)
        await accounts.set_names(connection, login.account_id, applicant.name, applicant.business)
        await logins.set_email(connection, login.account_id, applicant.email)
        await logins.set_password(connection, login.account_id, applicant.password_hash)
    await _mark_proved(connection, login.account_id, guest)
    return login.account_id


async def _forget_unproved(connection: Connection, account_id: AccountId) -> None:
    """Undo what somebody set up who had not proved the phone, should there be anything."""
    await logins.set_email(connection, account_id, None)
    await logins.drop_factor(connection, account_id)
    await sessions.delete_all(connection, account_id)


async def _mark_proved(connection: Connection, account_id: AccountId, guest: Browser) -> None:
    await logins.mark_proved(connection, account_id)
    await audit_log.record(
        connection, account_id, Actor(audit_log.OWNER, guest.address), "phone number confirmed"
    )


async def finish_reset(
    database: Database, guest: Browser, *, token: str, code: str, password: str
) -> SignedIn | SecondFactorRequired | AccountClosed | Mismatch | CodeExpired | None:
    """Set the password of who has the code, and end all other sessions; None as above.

    With a second factor that has to come first, or whoever got hold of the number could do so.
    """
    tried = await _try_code(database, guest, Purpose.RESET, token, code)
    if not isinstance(tried, _Right):
        return tried
    password_hash = await hash_secret(password, guest.address)
    async with database.transaction() as connection:
        verification = await verifications.hold(connection, hash_token(token))
        login = None if verification is None else await logins.find(connection, verification.phone)
        if verification is None or login is None:
            return None
        await logins.hold(connection, login.account_id)
        login = await logins.find(connection, verification.phone) or login
        if login.closed:
            return AccountClosed()
        if not login.phone_proved:
            await _forget_unproved(connection, login.account_id)
            await _mark_proved(connection, login.account_id, guest)
        if await _has_factor(connection, login.account_id):
            await verifications.mark_done(connection, verification.id)
            return await _begin_half(connection, login.account_id, password_hash)
        actor = Actor(audit_log.OWNER, guest.address)
        await _set_forgotten(connection, login.account_id, verification.phone, password_hash, actor)
        return await _prove(connection, guest, verification, login.account_id)


@dataclass(frozen=True, slots=True)
class _Right:
    """The code was the one of the text; or, if not by phone, the one of the e-mail."""

    by_phone: bool


async def _try_code(
    database: Database, guest: Browser, purpose: Purpose, token: str, code: str
) -> _Right | Mismatch | CodeExpired | None:
    """Compare a code; the try is on disk before, so that no number of them at once makes one too many.

    A code has five tries of its own and belongs to one browser, so nothing that strangers do uses them up.
    """
    async with database.transaction() as connection:
        verification = await verifications.find(connection, hash_token(token))
        if verification is None or verification.purpose is not purpose:
            return None
        tried = await verifications.take_attempt(connection, verification.id)
        if tried is None:
            return CodeExpired()
    if await matches(code, tried.code_hash, guest.address):
        return _Right(by_phone=True)
    # Whoever gave an e-mail address is made to wait for both, whether or not the number has an account.
    has_email = verification.applicant is not None and verification.applicant.email is not None
    if has_email and await matches(code, tried.email_hash, guest.address):
        return _Right(by_phone=False)
    return Mismatch(tried.left)


async def _prove(
    connection: Connection, guest: Browser, verification: Verification, account_id: AccountId
) -> SignedIn:
    await verifications.mark_done(connection, verification.id)
    await throttle.forgive(connection, verification.phone, guest)
    return await _begin(connection, guest, account_id, verification.phone)


async def _begin(
    connection: Connection, guest: Browser, account_id: AccountId, phone: str, *, proved: bool = True
) -> SignedIn:
    if guest.old_token is not None:
        await sessions.delete(connection, hash_token(guest.old_token))
    token = new_token()
    session_id = new_id(_ms(await verifications.now(connection)))
    await sessions.insert(
        connection, session_id, hash_token(token), account_id, guest.address, guest.browser[:USER_AGENT_MAX]
    )
    if not proved:
        return SignedIn(token, None)
    device = new_token()
    await devices.remember(connection, phone, guest.device_sha256, hash_token(device))
    return SignedIn(token, device)


async def sign_out(database: Database, token: str) -> None:
    """End a session."""
    async with database.transaction() as connection:
        await sessions.delete(connection, hash_token(token))


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
