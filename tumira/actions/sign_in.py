"""How does somebody get a session? With a number and its password, or with the code that proves it.

Who has a second factor is asked for it in both cases, and only then gets one.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tumira.actions import second_factor, tell_owner
from tumira.actions.passwords import hash_secret, matches
from tumira.actions.proofs import LIMITS
from tumira.actions.send_codes import hash_token, new_token
from tumira.ids import AccountId, new_id
from tumira.store import accounts, attempts, changes, logins, sessions, verifications
from tumira.store.changes import Actor
from tumira.store.database import Database
from tumira.store.sql import Connection
from tumira.store.verifications import Purpose, Verification

RATE_LIMIT: Final = 60
BROWSER_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Guest:
    """Somebody at a browser who is not signed in, or not any more once they are again."""

    address: str
    browser: str
    # The session that the browser had, which ends when another begins: nobody can plant one.
    old_token: str | None


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A session has begun; the token is for the browser alone."""

    token: str


@dataclass(frozen=True, slots=True)
class HalfWay:
    """The password was right, and the second factor is awaited; the token leads there."""

    token: str


@dataclass(frozen=True, slots=True)
class Closed:
    """All was right, but the account was closed by its owner."""


@dataclass(frozen=True, slots=True)
class Unproved:
    """The password is that of a sign-up whose number was not proved yet; the token leads on there."""

    token: str


@dataclass(frozen=True, slots=True)
class Mismatch:
    """It was not the right one; of a code, so many tries are left."""

    left: int


@dataclass(frozen=True, slots=True)
class TooOften:
    """Nothing was compared: too much was tried in vain, for this number or from this address."""

    wait: timedelta


@dataclass(frozen=True, slots=True)
class Over:
    """The code is too old or was tried too often; only another one helps."""


async def sign_in(
    database: Database, guest: Guest, *, phone: str, password: str
) -> SignedIn | HalfWay | Closed | Unproved | Mismatch | TooOften:
    """Begin a session for who knows the password of a number's account."""
    async with database.transaction() as connection:
        wait = await attempts.take(connection, phone, guest.address, LIMITS)
        if wait is not None:
            return TooOften(wait)
    async with database.connection() as connection:
        login = await logins.find(connection, phone)
        begun = await verifications.find_latest_sign_up(connection, phone)
    if await matches(password, None if login is None else login.password_hash):
        assert login is not None
        async with database.transaction() as connection:
            # One that was changed while it was compared opens nothing: whoever changed it ended all sessions.
            if await logins.hold(connection, login.account_id) != login.password_hash:
                return Mismatch(0)
            if login.closed:
                return Closed()
            if await _has_factor(connection, login.account_id):
                # Tries are not forgiven yet: a password that is known would let codes be guessed without end.
                return await _begin_half(connection, login.account_id)
            await attempts.forgive(connection, phone)
            return await _begin(connection, guest, login.account_id)
    # Also for a number that has an account: otherwise whoever begins a sign-up for it, and then signs in with
    # its password, would learn from the answer that it has one.
    if await matches(password, _hash_of(begun)):
        assert begun is not None
        token = new_token()
        async with database.transaction() as connection:
            await verifications.set_token(connection, begun.id, hash_token(token))
        return Unproved(token)
    return Mismatch(0)


def _hash_of(begun: Verification | None) -> str | None:
    return begun.applicant.password_hash if begun is not None and begun.applicant is not None else None


async def _has_factor(connection: Connection, account_id: AccountId) -> bool:
    factor = await logins.find_factor(connection, account_id)
    return factor is not None and factor.since is not None


async def _begin_half(
    connection: Connection, account_id: AccountId, password_hash: str | None = None
) -> HalfWay:
    token = new_token()
    await sessions.insert_half(connection, hash_token(token), account_id, password_hash)
    return HalfWay(token)


async def finish_sign_in(
    database: Database, guest: Guest, *, token: str, code: str
) -> SignedIn | Mismatch | TooOften | None:
    """Begin the session of who has the second factor too; None for a token that is of no more use."""
    async with database.transaction() as connection:
        half = await sessions.find_half(connection, hash_token(token))
        if half is None:
            return None
        wait = await attempts.take(connection, half.phone, guest.address, LIMITS)
        if wait is not None:
            return TooOften(wait)
    actor = Actor(changes.OWNER, guest.address)
    async with database.transaction() as connection:
        if not await second_factor.take(connection, half.account_id, code, actor):
            return Mismatch(0)
        # Whoever changed the password or the factor meanwhile has ended this too; then the code stays used.
        if not await sessions.delete_half(connection, hash_token(token)):
            return None
        if half.password_hash is not None:
            await _set_forgotten(connection, half.account_id, half.password_hash, actor)
        await attempts.forgive(connection, half.phone)
        return await _begin(connection, guest, half.account_id)


async def _set_forgotten(
    connection: Connection, account_id: AccountId, password_hash: str, actor: Actor
) -> None:
    await logins.set_password(connection, account_id, password_hash)
    await sessions.delete_all(connection, account_id)
    await tell_owner.note(connection, account_id, actor, "password changed", "after it was forgotten")


async def finish_sign_up(
    database: Database, guest: Guest, *, token: str, code: str
) -> SignedIn | Mismatch | TooOften | Over | None:
    """Open the account of who has the code; None for a token that is of no more use."""
    tried = await _try_code(database, guest, Purpose.SIGN_UP, token, code)
    if not isinstance(tried, Verification):
        return tried
    async with database.transaction() as connection:
        verification = await verifications.hold(connection, hash_token(token))
        if verification is None:
            return None
        applicant = verification.applicant
        assert applicant is not None
        account_id = AccountId(new_id(_ms(await verifications.now(connection))))
        if not await accounts.insert(
            connection, account_id, verification.phone, applicant.name, applicant.business, RATE_LIMIT
        ):
            # The number got an account since the code was sent.
            return None
        await logins.insert(connection, account_id, applicant.email, applicant.password_hash)
        return await _prove(connection, guest, verification, account_id)


async def finish_reset(
    database: Database, guest: Guest, *, token: str, code: str, password: str
) -> SignedIn | HalfWay | Closed | Mismatch | TooOften | Over | None:
    """Set the password of who has the code, and end all other sessions; None as above.

    With a second factor that has to come first, or whoever got hold of the number could do so.
    """
    tried = await _try_code(database, guest, Purpose.RESET, token, code)
    if not isinstance(tried, Verification):
        return tried
    password_hash = await hash_secret(password)
    async with database.transaction() as connection:
        verification = await verifications.hold(connection, hash_token(token))
        login = None if verification is None else await logins.find(connection, verification.phone)
        if verification is None or login is None:
            return None
        await logins.hold(connection, login.account_id)
        if login.closed:
            return Closed()
        if await _has_factor(connection, login.account_id):
            await verifications.mark_done(connection, verification.id)
            return await _begin_half(connection, login.account_id, password_hash)
        await _set_forgotten(connection, login.account_id, password_hash, Actor(changes.OWNER, guest.address))
        return await _prove(connection, guest, verification, login.account_id)


async def _try_code(
    database: Database, guest: Guest, purpose: Purpose, token: str, code: str
) -> Verification | Mismatch | TooOften | Over | None:
    """Compare a code; the try is on disk before, so that no number of them at once makes one too many."""
    async with database.transaction() as connection:
        verification = await verifications.find(connection, hash_token(token))
        if verification is None or verification.purpose is not purpose:
            return None
        wait = await attempts.take(connection, verification.phone, guest.address, LIMITS)
        if wait is not None:
            return TooOften(wait)
        tried = await verifications.take_try(connection, verification.id)
        if tried is None:
            return Over()
    return verification if await matches(code, tried.code_hash) else Mismatch(tried.left)


async def _prove(
    connection: Connection, guest: Guest, verification: Verification, account_id: AccountId
) -> SignedIn:
    await verifications.mark_done(connection, verification.id)
    await attempts.forgive(connection, verification.phone)
    return await _begin(connection, guest, account_id)


async def _begin(connection: Connection, guest: Guest, account_id: AccountId) -> SignedIn:
    if guest.old_token is not None:
        await sessions.delete(connection, hash_token(guest.old_token))
    token = new_token()
    session_id = new_id(_ms(await verifications.now(connection)))
    await sessions.insert(
        connection, session_id, hash_token(token), account_id, guest.address, guest.browser[:BROWSER_MAX]
    )
    return SignedIn(token)


async def sign_out(database: Database, token: str) -> None:
    """End a session."""
    async with database.transaction() as connection:
        await sessions.delete(connection, hash_token(token))


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
