"""Codes that prove a number: when one may be sent, and how it reaches its owner.

A code is sent through the gateway itself, from the system account and unbilled, and another code by e-mail if
an address was given. The answer does not tell whether the number has an account: only the text differs.
"""

import secrets
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from hashlib import sha256
from typing import Final

from tumira.core.ids import new_id
from tumira.core.translation import _
from tumira.identity import code_rules
from tumira.identity.code_rules import CodeLimits
from tumira.identity.passwords import hash_secret
from tumira.identity.principal import Browser, PrincipalKind
from tumira.identity.store import devices, logins, verifications
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.sessions import SignedInCustomer
from tumira.identity.store.verifications import Applicant, Purpose, Verification
from tumira.identity.throttle import take
from tumira.mail import outbox
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.sending.system_text import send_text

_MINUTES: Final = int(code_rules.LIFETIME.total_seconds() // 60)


@dataclass(frozen=True, slots=True)
class CodeSent:
    """A code was sent if the number may get one; the token is for the browser that asked."""

    token: str


@dataclass(frozen=True, slots=True)
class CodeThrottled:
    """Nothing was sent: too many codes were asked for."""

    wait: timedelta


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> bytes:
    """Hash a token for the database; it is too long to be guessed, so SHA-256 is enough."""
    return sha256(token.encode()).digest()


async def start_sign_up(
    database: Database,
    limits: CodeLimits,
    browser: Browser,
    *,
    phone: str,
    name: str,
    business: str,
    email: str | None,
    password: str,
    token: str | None,
) -> CodeSent | CodeThrottled:
    """Begin a sign-up; a customer who comes back to correct the details keeps the code that was sent."""
    async with database.transaction() as connection:
        wait = await _wait(connection, limits, browser, Purpose.SIGN_UP, phone)
        if wait and await _find_own(connection, token, phone) is not None:
            # Nothing is sent for a correction, but its password is hashed.
            wait = await take(connection, AttemptKind.CORRECTION, phone, browser) or timedelta(0)
        if wait:
            return CodeThrottled(wait)
    # The password is hashed only if the limits allow a code.
    applicant = Applicant(name, business, email, await hash_secret(password, browser.address))
    code = await _new_code(browser, by_email=email is not None)
    async with database.transaction() as connection:
        # Checked again under the lock: meanwhile others may have got the last codes of an hour.
        await verifications.lock_codes(connection)
        wait = await _wait(connection, limits, browser, Purpose.SIGN_UP, phone)
        verification = await _find_own(connection, token, phone)
        if verification is not None:
            await verifications.change(connection, verification.id, applicant)
            verification = replace(verification, applicant=applicant)
        elif wait:
            return CodeThrottled(wait)
        else:
            token = new_token()
            verification = Verification(new_id(_now_ms()), Purpose.SIGN_UP, phone, applicant)
            await verifications.insert(connection, verification, hash_token(token))
        if not wait:
            await _send(connection, verification, code, browser)
    assert token is not None
    return CodeSent(token)


async def start_reset(
    database: Database, limits: CodeLimits, browser: Browser, *, phone: str
) -> CodeSent | CodeThrottled:
    """Begin a password reset; a number without an account gets nothing, and the answer does not tell."""
    verification = Verification(new_id(_now_ms()), Purpose.RESET, phone, None)
    return await _start(database, limits, browser, verification)


async def start_confirmation(
    database: Database, limits: CodeLimits, browser: Browser, *, customer: SignedInCustomer
) -> CodeSent | CodeThrottled:
    """Send a code to the phone of a customer whose account was opened by e-mail alone."""
    async with database.connection() as connection:
        login = await logins.find(connection, PrincipalKind.CUSTOMER, customer.person_phone)
    assert login is not None
    assert login.password_hash is not None
    # The same password shows that it is the same person, who keeps what they have entered since.
    applicant = Applicant(customer.name, customer.business, None, login.password_hash)
    verification = Verification(new_id(_now_ms()), Purpose.SIGN_UP, customer.person_phone, applicant)
    return await _start(database, limits, browser, verification)


async def _start(
    database: Database, limits: CodeLimits, browser: Browser, verification: Verification
) -> CodeSent | CodeThrottled:
    started = await _send_code(database, limits, browser, verification, None)
    assert started is not None
    return started


async def send_again(
    database: Database, limits: CodeLimits, browser: Browser, *, token: str
) -> CodeSent | CodeThrottled | None:
    """Send another code, which replaces the one before; None for an expired token."""
    async with database.connection() as connection:
        verification = await verifications.find(connection, hash_token(token))
    if verification is None:
        return None
    return await _send_code(database, limits, browser, verification, token)


async def _send_code(
    database: Database, limits: CodeLimits, browser: Browser, verification: Verification, token: str | None
) -> CodeSent | CodeThrottled | None:
    """Send a code for a new verification, or for that of a token; None if that expired meanwhile."""
    async with database.connection() as connection:
        wait = await _wait(connection, limits, browser, verification.purpose, verification.phone)
    if wait:
        return CodeThrottled(wait)
    code = await _new_code(browser, by_email=_email_of(verification) is not None)
    async with database.transaction() as connection:
        await verifications.lock_codes(connection)
        wait = await _wait(connection, limits, browser, verification.purpose, verification.phone)
        if wait:
            return CodeThrottled(wait)
        if token is None:
            token = new_token()
            await verifications.insert(connection, verification, hash_token(token))
        found = await verifications.find(connection, hash_token(token))
        if found is None:
            return None
        await _send(connection, found, code, browser)
    return CodeSent(token)


@dataclass(frozen=True, slots=True)
class _Code:
    """A code for the phone, another for the e-mail if one is sent, and their hashes."""

    code: str = field(repr=False)
    hashed: str
    email_code: str | None = field(default=None, repr=False)
    email_hashed: str | None = None


async def _new_code(browser: Browser, *, by_email: bool = False) -> _Code:
    code = code_rules.new_code()
    hashed = await hash_secret(code, browser.address)
    if not by_email:
        return _Code(code, hashed)
    # Never the same: the code that is entered shows which of the two was proved.
    email_code = next(other for other in iter(code_rules.new_code, None) if other != code)
    return _Code(code, hashed, email_code, await hash_secret(email_code, browser.address))


def _email_of(verification: Verification) -> str | None:
    return None if verification.applicant is None else verification.applicant.email


async def _find_own(connection: Connection, token: str | None, phone: str) -> Verification | None:
    found = None if token is None else await verifications.find(connection, hash_token(token))
    return found if found is not None and (found.purpose, found.phone) == (Purpose.SIGN_UP, phone) else None


async def _known_device(
    connection: Connection, browser: Browser, purpose: Purpose, phone: str
) -> bytes | None:
    """Return the device that asks for a password reset, if this number has signed in there before."""
    device = browser.device_sha256
    if purpose is not Purpose.RESET or device is None:
        return None
    return device if await devices.is_known(connection, phone, device) else None


async def _wait(
    connection: Connection, limits: CodeLimits, browser: Browser, purpose: Purpose, phone: str
) -> timedelta:
    """Return how long to wait for a code.

    Sign-ups and password resets count apart, each whether or not the number has an account: so neither stops
    the other, and the wait tells nothing about the account.
    """
    device = await _known_device(connection, browser, purpose, phone)
    asked = await verifications.read_asked(connection, purpose, phone, browser.address, device)
    now = asked.now
    if device is not None:
        return code_rules.wait_for_phone(asked.everywhere, [], now)
    return max(
        code_rules.wait_for_phone(asked.here, asked.everywhere, now),
        code_rules.wait_for_count(asked.of_address, asked.of_address_since, limits.per_address, now),
        code_rules.wait_for_count(asked.sent, asked.sent_since, limits.in_all, now),
    )


async def _send(connection: Connection, verification: Verification, new: _Code, browser: Browser) -> None:
    purpose, phone, code = verification.purpose, verification.phone, new.code
    login = await logins.find(connection, PrincipalKind.CUSTOMER, phone)
    # A code is valid if it leads to the new password of an account, or to a new account. An account that was
    # opened by e-mail alone can be taken over by the holder of the phone.
    counts = login is not None
    if purpose is Purpose.SIGN_UP:
        counts = login is None or login.is_free or not login.phone_proved
    await verifications.insert_code(
        connection,
        new_id(_now_ms()),
        verification,
        address=browser.address,
        device=await _known_device(connection, browser, purpose, phone),
        code_hash=new.hashed if counts else None,
        email_hash=new.email_hashed if login is None else None,
        # A sign-up sends a text in any case, if not with the code.
        sent=counts or purpose is Purpose.SIGN_UP,
    )
    if purpose is Purpose.RESET:
        if counts:
            text = _(
                "Tumira: {code} is your code to choose a new password. It is valid for {minutes} minutes. "
                "Do not share it."
            ).format(code=code, minutes=_MINUTES)
            await send_text(connection, phone, text)
        return
    text = _(
        "Tumira: {code} is your verification code. It is valid for {minutes} minutes. Do not share it."
    ).format(code=code, minutes=_MINUTES)
    if not counts:
        text = _(
            "Tumira: You cannot sign up with this number: it already has an account. Sign in, or choose a "
            "new password. Not you? Ignore this message."
        )
    await send_text(connection, phone, text)
    email = _email_of(verification)
    if email is not None and new.email_code is not None:
        await outbox.insert(
            connection,
            new_id(_now_ms()),
            email,
            _("{code} is your Tumira verification code").format(code=new.email_code),
            _(
                "Your verification code is {code}. It is valid for {minutes} minutes.\n\n"
                "Enter it on the page where you signed up to look around in your account. To top up, send "
                "messages or create API keys, you need the code that we sent to your phone.\n\n"
                "If you did not sign up, ignore this email.\n"
            ).format(code=new.email_code, minutes=_MINUTES),
            await clock.read_now(connection) + code_rules.LIFETIME,
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
