"""Operators' access: adding, resetting and removing them, and the set-up of their password and second factor.

The command line makes the first password, which is valid once: for choosing another password and setting up
the second factor.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.core.ids import OperatorId, new_id
from tumira.core.translation import _
from tumira.identity import notify_owner, second_factor, totp
from tumira.identity.passwords import LOCAL, hash_secret
from tumira.identity.person_rules import check_name, clean_name
from tumira.identity.principal import Browser, PrincipalKind
from tumira.identity.send_codes import hash_token
from tumira.identity.sign_in import Mismatch, SignedIn, TooManyAttempts, begin_session, count_attempt
from tumira.identity.store import devices, logins, operators, second_factors, sessions
from tumira.identity.store.operators import Operator, Role
from tumira.identity.store.sessions import PendingSignIn, SignInStage
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff

ONE_TIME_FOR: Final = timedelta(hours=72)


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
        raise OperatorError(_("The name cannot be used: {fault}").format(fault=fault))
    async with database.transaction() as connection:
        number = read_phone(await get_tariff(connection), phone)
        if number is None:
            raise OperatorError(
                _("{phone} is not a mobile number that we can send to. Enter it like +263771200001.").format(
                    phone=repr(phone)
                )
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
                _("{number} is an operator already. Reset their password instead.").format(number=number)
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
    await second_factors.delete(connection, principal)
    await sessions.delete_all(connection, principal)
    await devices.delete_all(connection, principal.subject)
    await notify_owner.note(connection, principal, actor, what, operator.phone)


async def get_operator(connection: Connection, phone: str) -> Operator:
    number = read_phone(await get_tariff(connection), phone)
    operator = None if number is None else await operators.find_by_phone(connection, number)
    if operator is None:
        raise OperatorError(
            _("There is no operator with that number. `tumira operator list` lists all operators.")
        )
    return operator


async def complete_set_up(
    database: Database, browser: Browser, *, token: str, password: str, code: str
) -> SetUpCompleted | Mismatch | TooManyAttempts | None:
    """Keep the chosen password once the device has shown its code; None for an expired token."""
    kind, stage = PrincipalKind.OPERATOR, SignInStage.NEW
    pending = await count_attempt(database, kind, stage, browser, token)
    if not isinstance(pending, PendingSignIn):
        return pending
    principal = pending.principal
    password_hash = await hash_secret(password, browser.address)
    async with database.transaction() as connection:
        # Under the lock nobody else resets the password, or completes the set-up with the same token.
        is_valid = await logins.lock(connection, principal) is not None
        if not is_valid or await sessions.find_pending(connection, kind, stage, hash_token(token)) is None:
            return None
        recovery_codes = await second_factor.activate(connection, principal, code)
        if recovery_codes is None:
            return Mismatch(0)
        await logins.set_password(connection, principal, password_hash)
        await sessions.delete_pending(connection, kind, hash_token(token))
        what = "operator chose a password and a second factor"
        await notify_owner.note(connection, principal, pending.actor(browser.address), what)
        return SetUpCompleted(await begin_session(connection, browser, principal), recovery_codes)
