"""Codes that prove a number: when one may be sent, and how it reaches its owner.

A code leaves through the gateway itself, from an account of its own and unbilled; another one by e-mail if an
address was given. Whoever asks cannot tell whether the number has an account: what differs is only what the
text says.
"""

import secrets
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from hashlib import sha256
from typing import Final

from tumira.accounts import store as accounts
from tumira.core.ids import BatchId, message_ids, new_id
from tumira.identity import code_rules
from tumira.identity.code_rules import CodeLimits
from tumira.identity.passwords import hash_secret
from tumira.identity.store import devices, logins, verifications
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.sessions import SignedInCustomer
from tumira.identity.store.verifications import Applicant, Purpose, Verification
from tumira.identity.throttle import Browser, take
from tumira.mail import outbox
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.destinations import sort_recipients
from tumira.pricing.quote import Leg, Quote, SendRequest
from tumira.pricing.segments import measure
from tumira.pricing.store import get_tariff
from tumira.sending import fairness, lookups
from tumira.sending.insert import NewBatch, insert_batch

_MINUTES: Final = int(code_rules.LIFETIME.total_seconds() // 60)


@dataclass(frozen=True, slots=True)
class CodeSent:
    """A code is on its way, if there is somebody to get one; the token is for the browser that asked."""

    token: str


@dataclass(frozen=True, slots=True)
class CodeThrottled:
    """Nothing was sent: too many codes were asked for."""

    wait: timedelta


def new_token() -> str:
    """Make what a browser proves itself with."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> bytes:
    """Return what is kept of a token; it is too long to be guessed, so a plain hash will do."""
    return sha256(token.encode()).digest()


@dataclass(frozen=True, slots=True)
class SignUpDetails:
    """What somebody wrote about themselves to sign up; the password is hashed once the limits allow it."""

    name: str
    business: str
    email: str | None
    password: str = field(repr=False)


async def start_sign_up(
    database: Database,
    limits: CodeLimits,
    guest: Browser,
    *,
    phone: str,
    details: SignUpDetails,
    token: str | None,
) -> CodeSent | CodeThrottled:
    """Begin a sign-up; somebody who comes back to correct their details keeps the code that they got."""
    async with database.transaction() as connection:
        wait = await _wait(connection, limits, guest, Purpose.SIGN_UP, phone)
        if wait and await _own(connection, token, phone) is not None:
            # Nothing is sent for a correction, but its password is hashed.
            wait = await take(connection, AttemptKind.CORRECTION, phone, guest) or timedelta(0)
        if wait:
            return CodeThrottled(wait)
    password_hash = await hash_secret(details.password, guest.address)
    applicant = Applicant(details.name, details.business, details.email, password_hash)
    code = await _new_code(guest, by_email=details.email is not None)
    # Looked at once more, under the lock: meanwhile others may have got the last codes of an hour.
    async with database.transaction() as connection:
        await verifications.lock(connection)
        verification = await _own(connection, token, phone)
        if verification is not None:
            assert token is not None
            await verifications.change(connection, verification.id, applicant)
            verification = replace(verification, applicant=applicant)
        wait = await _wait(connection, limits, guest, Purpose.SIGN_UP, phone)
        if verification is None:
            if wait:
                return CodeThrottled(wait)
            token = new_token()
            verification = Verification(new_id(_now_ms()), Purpose.SIGN_UP, phone, applicant)
            await verifications.insert(connection, verification, hash_token(token))
        if not wait:
            await _send(connection, verification, code, guest)
    assert token is not None
    return CodeSent(token)


async def start_reset(
    database: Database, limits: CodeLimits, guest: Browser, *, phone: str
) -> CodeSent | CodeThrottled:
    """Begin to choose a new password; a number without an account gets nothing, and nobody can tell."""
    async with database.connection() as connection:
        wait = await _wait(connection, limits, guest, Purpose.RESET, phone)
    if wait:
        return CodeThrottled(wait)
    code = await _new_code(guest)
    token = new_token()
    async with database.transaction() as connection:
        await verifications.lock(connection)
        wait = await _wait(connection, limits, guest, Purpose.RESET, phone)
        if wait:
            return CodeThrottled(wait)
        verification = Verification(new_id(_now_ms()), Purpose.RESET, phone, None)
        await verifications.insert(connection, verification, hash_token(token))
        await _send(connection, verification, code, guest)
    return CodeSent(token)


async def send_again(
    database: Database, limits: CodeLimits, guest: Browser, *, token: str
) -> CodeSent | CodeThrottled | None:
    """Send another code, which is then the only one that counts; None for a token that is of no more use."""
    async with database.connection() as connection:
        verification = await verifications.find(connection, hash_token(token))
        if verification is None:
            return None
        wait = await _wait(connection, limits, guest, verification.purpose, verification.phone)
    if wait:
        return CodeThrottled(wait)
    code = await _new_code(guest, by_email=_email_of(verification) is not None)
    async with database.transaction() as connection:
        await verifications.lock(connection)
        verification = await verifications.find(connection, hash_token(token))
        if verification is None:
            return None
        wait = await _wait(connection, limits, guest, verification.purpose, verification.phone)
        if wait:
            return CodeThrottled(wait)
        await _send(connection, verification, code, guest)
    return CodeSent(token)


async def start_confirmation(
    database: Database, limits: CodeLimits, guest: Browser, *, visitor: SignedInCustomer
) -> CodeSent | CodeThrottled:
    """Send a code to the phone of somebody whose account was opened by e-mail alone."""
    async with database.connection() as connection:
        login = await logins.find(connection, visitor.phone)
        wait = await _wait(connection, limits, guest, Purpose.SIGN_UP, visitor.phone)
    if wait:
        return CodeThrottled(wait)
    assert login is not None
    assert login.password_hash is not None
    # The same password says that it is the same person, who keeps what they have written since.
    applicant = Applicant(visitor.name, visitor.business, None, login.password_hash)
    code = await _new_code(guest)
    token = new_token()
    async with database.transaction() as connection:
        await verifications.lock(connection)
        wait = await _wait(connection, limits, guest, Purpose.SIGN_UP, visitor.phone)
        if wait:
            return CodeThrottled(wait)
        verification = Verification(new_id(_now_ms()), Purpose.SIGN_UP, visitor.phone, applicant)
        await verifications.insert(connection, verification, hash_token(token))
        await _send(connection, verification, code, guest)
    return CodeSent(token)


@dataclass(frozen=True, slots=True)
class _Code:
    """A code for the phone, another for the e-mail if one is sent, and what is kept of them."""

    code: str = field(repr=False)
    hashed: str
    email_code: str | None = field(default=None, repr=False)
    email_hashed: str | None = None


async def _new_code(guest: Browser, *, by_email: bool = False) -> _Code:
    code = code_rules.new_code()
    hashed = await hash_secret(code, guest.address)
    if not by_email:
        return _Code(code, hashed)
    # Never the same: what was entered says which of the two was proved.
    email_code = next(other for other in iter(code_rules.new_code, None) if other != code)
    return _Code(code, hashed, email_code, await hash_secret(email_code, guest.address))


def _email_of(verification: Verification) -> str | None:
    return None if verification.applicant is None else verification.applicant.email


async def _own(connection: Connection, token: str | None, phone: str) -> Verification | None:
    """Return the sign-up that this browser has begun for this number."""
    found = None if token is None else await verifications.find(connection, hash_token(token))
    return found if found is not None and (found.purpose, found.phone) == (Purpose.SIGN_UP, phone) else None


async def _known_device(connection: Connection, guest: Browser, purpose: Purpose, phone: str) -> bytes | None:
    """Return the browser that asks for a new password, if somebody has signed in there before."""
    device = guest.device_sha256
    if purpose is not Purpose.RESET or device is None:
        return None
    return device if await devices.is_known(connection, phone, device) else None


async def _wait(
    connection: Connection, limits: CodeLimits, guest: Browser, purpose: Purpose, phone: str
) -> timedelta:
    """Return how long to wait for a code.

    Sign-ups and forgotten passwords count apart, each whether or not the number has an account: so neither
    stops the other, and nobody learns anything from the wait.
    """
    now = await verifications.now(connection)
    device = await _known_device(connection, guest, purpose, phone)
    asked = await verifications.list_asked(connection, purpose, phone, device)
    if device is not None:
        return code_rules.wait_for_phone([at for at, _ in asked], [], now)
    here = [at for at, address in asked if address == guest.address]
    return max(
        code_rules.wait_for_phone(here, [at for at, _ in asked], now),
        code_rules.wait_for_count(
            *await verifications.count_of_address(connection, guest.address), limits.per_address, now
        ),
        code_rules.wait_for_count(*await verifications.count_sent(connection, purpose), limits.in_all, now),
    )


async def _send(connection: Connection, verification: Verification, new: _Code, guest: Browser) -> None:
    purpose, phone, code = verification.purpose, verification.phone, new.code
    login = await logins.find(connection, phone)
    # The code counts where it leads somewhere: to the new password of an account, or to a new account. One
    # that was opened by e-mail alone stands in nobody's way who holds the phone.
    counts = login is not None
    if purpose is Purpose.SIGN_UP:
        counts = login is None or not login.phone_proved
    await verifications.insert_code(
        connection,
        new_id(_now_ms()),
        verification,
        address=guest.address,
        device=await _known_device(connection, guest, purpose, phone),
        code_hash=new.hashed if counts else None,
        email_hash=new.email_hashed if login is None else None,
        # A sign-up sends a text in any case, if not with the code.
        sent=counts or purpose is Purpose.SIGN_UP,
    )
    if purpose is Purpose.RESET:
        if counts:
            text = (
                f"Tumira: {code} is your code to choose a new password. It is valid for {_MINUTES} minutes."
            )
            await send_text(connection, phone, text)
        return
    text = f"Tumira: {code} is your verification code. It is valid for {_MINUTES} minutes."
    if not counts:
        text = (
            "Tumira: somebody, maybe you, tried to sign up with this number. It has an account: "
            "sign in, or choose a new password with Forgotten password."
        )
    await send_text(connection, phone, text)
    email = _email_of(verification)
    if email is not None and new.email_code is not None:
        await outbox.insert(
            connection,
            new_id(_now_ms()),
            email,
            f"{new.email_code} is your Tumira verification code",
            f"Your verification code is {new.email_code}. It is valid for {_MINUTES} minutes.\n\n"
            "Enter it on the page where you signed up to look around in your account. To top up, send or "
            "create API keys you need the code that we sent to your phone.\n\n"
            "If you did not sign up, ignore this message.\n",
            await verifications.now(connection) + code_rules.LIFETIME,
        )


async def send_text(connection: Connection, phone: str, text: str) -> None:
    """Hand a text of our own to the queue, at no cost, where the next message to be sent is taken from."""
    tariff = await get_tariff(connection)
    accepted = sort_recipients(tariff, "sms", [phone]).accepted
    if not accepted:
        # Nobody sends to that country any more.
        return
    recipient = accepted[0]
    _, facts = await lookups.read(connection, [], [])
    segments = measure(text).segments
    batch_id = BatchId(new_id(facts.now_us // 1000))
    lane = fairness.lane(1)
    leg = Leg(recipient.country, Decimal(0), 1)
    await insert_batch(
        connection,
        NewBatch(
            id=batch_id,
            account_id=accounts.SYSTEM,
            created_at=facts.now,
            request=SendRequest("sms", [phone], text, None, dry_run=False),
            quote=Quote([phone], [0], [leg], [], segments, Decimal(0), tariff.version),
            lane=lane,
            message_ids=message_ids(batch_id, 1),
            turns=[facts.clocks.get((recipient.country, lane), 0)],
        ),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
