"""Operators' access: adding and removing them, and their sign-in, always with a second factor.

The command line makes the first password, which is valid once: for choosing another password and setting up
the second factor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.core.ids import OperatorId, new_id
from tumira.identity import code_rules, notify_owner, second_factor, throttle, totp
from tumira.identity.passwords import LOCAL, hash_secret, matches
from tumira.identity.person_rules import check_name, clean_name
from tumira.identity.principal import Browser, PrincipalKind, subject_of
from tumira.identity.send_codes import hash_token
from tumira.identity.sign_in import Mismatch, SignedIn, TooManyAttempts, begin_session, remember_device
from tumira.identity.store import devices, operators, second_factors, sessions
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.operators import Operator, Role
from tumira.identity.store.sessions import SignInStage
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff

ONE_TIME_FOR: Final = timedelta(hours=72)


@dataclass(frozen=True, slots=True)
class PasswordAccepted:
    """The password was right; the token is for the next stage."""

    token: str
    stage: SignInStage


@dataclass(frozen=True, slots=True)
class SetUpCompleted:
    """A first session has begun; the recovery codes are shown once and kept nowhere."""

    signed_in: SignedIn
    recovery_codes: Sequence[str]


async def create(database: Database, *, phone: str, name: str, role: Role, actor: Actor) -> str:
    """Add an operator, and return their one-time password, which is kept nowhere."""
    password = totp.new_random_code()
    password_hash = await hash_secret(password, LOCAL)
    name = clean_name(name)
    fault = check_name(name)
    if fault is not None:
        raise OperatorError(f"The name cannot be used: {fault}")
    async with database.transaction() as connection:
        number = read_phone(await get_tariff(connection), phone)
        if number is None:
            raise OperatorError(
                f"{phone!r} is no number of a country that can be sent to, like +2637712xxxxx."
            )
        now = await clock.read_now(connection)
        if not await operators.insert(
            connection,
            OperatorId(new_id(int(now.timestamp() * 1000))),
            phone=number,
            name=name,
            role=role,
            password_hash=password_hash,
            valid_for=ONE_TIME_FOR,
        ):
            raise OperatorError(
                f"{number} is an operator already; `tumira operator reset` gives a new password."
            )
        await audit_log.record_by_operator(connection, actor, "operator added", f"{name}, {number}, {role}")
    return password


async def reset(database: Database, *, phone: str, actor: Actor) -> str:
    """Return a new one-time password for an operator, whose sessions and second factor end."""
    password = totp.new_random_code()
    password_hash = await hash_secret(password, LOCAL)
    async with database.transaction() as connection:
        operator = await get_operator(connection, phone)
        await operators.reset(connection, operator.id, password_hash, ONE_TIME_FOR)
        await _revoke_access(connection, operator, actor, "operator's password reset")
    return password


async def remove(database: Database, *, phone: str, actor: Actor) -> None:
    """Revoke an operator's access immediately."""
    async with database.transaction() as connection:
        operator = await get_operator(connection, phone)
        await operators.mark_removed(connection, operator.id)
        await _revoke_access(connection, operator, actor, "operator removed")


async def _revoke_access(connection: Connection, operator: Operator, actor: Actor, what: str) -> None:
    principal = operator.principal
    await second_factors.delete_recovery_codes(connection, principal)
    await sessions.delete_all(connection, principal)
    await devices.delete_all(connection, principal.subject)
    await notify_owner.note_operator(connection, principal, actor, what, operator.phone)


async def get_operator(connection: Connection, phone: str) -> Operator:
    number = read_phone(await get_tariff(connection), phone)
    operator = None if number is None else await operators.find_by_phone(connection, number)
    if operator is None:
        raise OperatorError("There is no operator with that number; `tumira operator list` shows them.")
    return operator


async def sign_in(
    database: Database, browser: Browser, *, phone: str, password: str
) -> PasswordAccepted | Mismatch | TooManyAttempts:
    """Compare the password; the next stage is the second factor, or setting it up."""
    async with database.transaction() as connection:
        subject = subject_of(PrincipalKind.OPERATOR, phone)
        wait = await throttle.take(connection, AttemptKind.PASSWORD, subject, browser)
        if wait is not None:
            return TooManyAttempts(wait)
        operator = await operators.find_by_phone(connection, phone)
    if not await matches(password, None if operator is None else operator.password_hash, browser.address):
        return Mismatch(0)
    assert operator is not None
    async with database.transaction() as connection:
        locked = await operators.lock(connection, operator.id)
        now = await clock.read_now(connection)
        # A password that was changed while it was compared is not accepted.
        if locked is None or locked.password_hash != operator.password_hash or _has_expired(locked, now):
            return Mismatch(0)
        stage = SignInStage.CODE if locked.one_time_until is None else SignInStage.NEW
        if stage is SignInStage.NEW:
            # Anyone who used the one-time password before has seen the secret that was made then.
            await operators.delete_secret(connection, locked.id)
            await sessions.delete_all(connection, locked.principal)
        return PasswordAccepted(await begin_session(connection, browser, locked.principal, stage), stage)


def _has_expired(operator: Operator, now: datetime) -> bool:
    return operator.one_time_until is not None and operator.one_time_until < now


async def begin_factor(database: Database, token: str) -> tuple[Operator, bytes] | None:
    """Return who sets up their access and the secret for their device; None for an expired token."""
    async with database.transaction() as connection:
        operator = await _lock_at(connection, token, SignInStage.NEW)
        if operator is None:
            return None
        return operator, await operators.begin_factor(connection, operator.id, totp.new_secret())


async def complete_set_up(
    database: Database, browser: Browser, *, token: str, password: str, code: str
) -> SetUpCompleted | Mismatch | TooManyAttempts | None:
    """Keep the chosen password once the device has shown its code; None for an expired token."""
    recovery_codes = totp.new_recovery_codes()
    attempt = await _count_attempt(database, browser, token, SignInStage.NEW)
    if not isinstance(attempt, Operator):
        return attempt
    password_hash = await hash_secret(password, browser.address)
    async with database.transaction() as connection:
        operator = await _lock_at(connection, token, SignInStage.NEW)
        now = await clock.read_now(connection)
        if operator is None or operator.totp_secret is None or _has_expired(operator, now):
            return None
        step = totp.matching_step(
            operator.totp_secret, code_rules.read_code(code) or "", now, operator.totp_last_step
        )
        if step is None:
            return Mismatch(0)
        await operators.complete_set_up(connection, operator.id, password_hash, step)
        hashes = [totp.hash_recovery_code(one) for one in recovery_codes]
        await second_factors.insert_recovery_codes(connection, operator.principal, hashes)
        what = "operator chose a password and a second factor"
        await notify_owner.note_operator(connection, operator.principal, _actor(operator, browser), what)
        return SetUpCompleted(await _finish(connection, browser, operator, token), recovery_codes)


async def finish(
    database: Database, browser: Browser, *, token: str, code: str
) -> SignedIn | Mismatch | TooManyAttempts | None:
    """Begin a session after the second factor; None for an expired token."""
    attempt = await _count_attempt(database, browser, token, SignInStage.CODE)
    if not isinstance(attempt, Operator):
        return attempt
    async with database.transaction() as connection:
        operator = await _lock_at(connection, token, SignInStage.CODE)
        if operator is None:
            return None
        if not await second_factor.take(connection, operator.principal, code, _actor(operator, browser)):
            return Mismatch(0)
        return await _finish(connection, browser, operator, token)


async def _finish(connection: Connection, browser: Browser, operator: Operator, token: str) -> SignedIn:
    principal = operator.principal
    await throttle.forgive(connection, principal.subject, browser)
    await sessions.delete(connection, PrincipalKind.OPERATOR, hash_token(token))
    token = await begin_session(connection, browser, principal)
    return SignedIn(token, await remember_device(connection, browser, principal))


def _actor(operator: Operator, browser: Browser) -> Actor:
    return Actor(f"operator:{operator.name}", browser.address)


async def _count_attempt(
    database: Database, browser: Browser, token: str, stage: SignInStage
) -> Operator | TooManyAttempts | None:
    """Count an attempt before its code is compared, so that parallel ones cannot exceed the limit."""
    async with database.transaction() as connection:
        operator = await _lock_at(connection, token, stage)
        if operator is None:
            return None
        wait = await throttle.take(connection, AttemptKind.FACTOR, operator.principal.subject, browser)
        return operator if wait is None else TooManyAttempts(wait)


async def _lock_at(connection: Connection, token: str, stage: SignInStage) -> Operator | None:
    session = await sessions.find_operator(connection, hash_token(token))
    if session is None or session.stage is not stage:
        return None
    return await operators.lock(connection, session.operator_id)
