"""How does somebody who runs the gateway come in? With a password of their own and a second factor, always.

Their first password is made by the command line and is good for one thing: to choose another, and to set up
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
from tumira.identity import code_rules, notify_owner, throttle, totp
from tumira.identity.passwords import LOCAL, hash_secret, matches
from tumira.identity.person_rules import check_name, clean_name
from tumira.identity.send_codes import hash_token, new_token
from tumira.identity.sign_in import USER_AGENT_MAX, Mismatch, TooManyAttempts
from tumira.identity.store import devices, operators, verifications
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.operators import Operator, Role, SignInStage
from tumira.identity.throttle import Browser, operator_subject
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff

ONE_TIME_FOR: Final = timedelta(hours=72)


@dataclass(frozen=True, slots=True)
class PasswordAccepted:
    """The password was right; the token leads on, to the stage that it says."""

    token: str
    stage: SignInStage
    # Says from now on that an operator has signed in at this browser; None before they are in.
    device: str | None = None


@dataclass(frozen=True, slots=True)
class SetUpCompleted:
    """A session has begun; the recovery codes are shown once and kept nowhere."""

    token: str
    device: str
    recovery_codes: Sequence[str]


async def create(database: Database, *, phone: str, name: str, role: Role, actor: Actor) -> str:
    """Add an operator, and return their password, which is shown once."""
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
        now = await verifications.now(connection)
        operator_id = OperatorId(new_id(int(now.timestamp() * 1000)))
        if (
            await operators.insert(
                connection,
                operator_id,
                phone=number,
                name=name,
                role=role,
                password_hash=password_hash,
                good_for=ONE_TIME_FOR,
            )
            is None
        ):
            raise OperatorError(
                f"{number} is an operator already; `tumira operator reset` gives a new password."
            )
        await audit_log.record_by_operator(connection, actor, "operator added", f"{name}, {number}, {role}")
    return password


async def reset(database: Database, *, phone: str, actor: Actor) -> str:
    """Give an operator a new first password, which ends their sessions and their second factor."""
    password = totp.new_random_code()
    password_hash = await hash_secret(password, LOCAL)
    async with database.transaction() as connection:
        operator = await _existing(connection, phone)
        await operators.reset(connection, operator.id, password_hash, ONE_TIME_FOR)
        await devices.delete_all(connection, operator_subject(operator.phone))
        await audit_log.record_by_operator(connection, actor, "operator's password reset", operator.phone)
        await notify_owner.tell_operator(connection, operator.id, operator.phone, "password reset")
    return password


async def remove(database: Database, *, phone: str, actor: Actor) -> None:
    """Let an operator in no more."""
    async with database.transaction() as connection:
        operator = await _existing(connection, phone)
        await operators.remove(connection, operator.id)
        await devices.delete_all(connection, operator_subject(operator.phone))
        await audit_log.record_by_operator(connection, actor, "operator removed", operator.phone)
        await notify_owner.tell_operator(connection, operator.id, operator.phone, "removed")


async def _existing(connection: Connection, phone: str) -> Operator:
    number = read_phone(await get_tariff(connection), phone)
    operator = None if number is None else await operators.find_by_phone(connection, number)
    if operator is None:
        raise OperatorError("There is no operator with that number; `tumira operator list` shows them.")
    return operator


async def sign_in(
    database: Database, guest: Browser, *, phone: str, password: str
) -> PasswordAccepted | Mismatch | TooManyAttempts:
    """Let somebody who knows the password go on to the second factor, or to set theirs up."""
    async with database.transaction() as connection:
        wait = await throttle.take(connection, AttemptKind.PASSWORD, operator_subject(phone), guest)
        if wait is not None:
            return TooManyAttempts(wait)
        operator = await operators.find_by_phone(connection, phone)
    if not await matches(password, None if operator is None else operator.password_hash, guest.address):
        return Mismatch(0)
    assert operator is not None
    async with database.transaction() as connection:
        held = await operators.hold(connection, operator.id)
        now = await verifications.now(connection)
        # One that was changed while it was compared opens nothing.
        if held is None or held.password_hash != operator.password_hash or _is_over(held, now):
            return Mismatch(0)
        stage = SignInStage.CODE if held.one_time_until is None else SignInStage.NEW
        if stage is SignInStage.NEW:
            # Whoever had the password before them has seen the secret that was made then.
            await operators.drop_secret(connection, held.id)
        return PasswordAccepted(await _begin(connection, guest, held.id, stage), stage)


def _is_over(operator: Operator, now: datetime) -> bool:
    return operator.one_time_until is not None and operator.one_time_until < now


async def begin_factor(database: Database, token: str) -> tuple[Operator, bytes] | None:
    """Return who is moving in and the secret for their device; None for a token that is of no more use."""
    async with database.transaction() as connection:
        operator = await _at(connection, token, SignInStage.NEW)
        if operator is None:
            return None
        return operator, await operators.begin_factor(connection, operator.id, totp.new_secret())


async def complete_set_up(
    database: Database, guest: Browser, *, token: str, password: str, code: str
) -> SetUpCompleted | Mismatch | TooManyAttempts | None:
    """Keep the password that somebody chose, once their device has shown the code; None as above."""
    recovery_codes = totp.new_recovery_codes()
    hashes = [totp.hash_recovery_code(one) for one in recovery_codes]
    operator = await _count_try(database, guest, token, SignInStage.NEW)
    if operator is None or isinstance(operator, TooManyAttempts):
        return operator
    password_hash = await hash_secret(password, guest.address)
    async with database.transaction() as connection:
        held = await _at(connection, token, SignInStage.NEW)
        now = await verifications.now(connection)
        if held is None or held.totp_secret is None or _is_over(held, now):
            return None
        step = await _step(connection, held, code)
        if step is None:
            return Mismatch(0)
        await operators.move_in(connection, held.id, password_hash, step, hashes)
        await throttle.forgive(connection, operator_subject(held.phone), guest)
        actor = Actor(f"operator:{held.name}", guest.address)
        await audit_log.record_by_operator(connection, actor, "operator chose a password and a second factor")
        await notify_owner.tell_operator(connection, held.id, held.phone, "moved in")
        await operators.delete_session(connection, hash_token(token))
        begun = await _begin(connection, guest, held.id, SignInStage.IN)
        return SetUpCompleted(begun, await _remember(connection, guest, held), recovery_codes)


async def finish(
    database: Database, guest: Browser, *, token: str, code: str
) -> PasswordAccepted | Mismatch | TooManyAttempts | None:
    """Begin the session of who has the second factor too; None as above."""
    operator = await _count_try(database, guest, token, SignInStage.CODE)
    if operator is None or isinstance(operator, TooManyAttempts):
        return operator
    async with database.transaction() as connection:
        held = await _at(connection, token, SignInStage.CODE)
        if held is None:
            return None
        if not await _take(connection, held, code, guest):
            return Mismatch(0)
        await throttle.forgive(connection, operator_subject(held.phone), guest)
        await operators.delete_session(connection, hash_token(token))
        begun = await _begin(connection, guest, held.id, SignInStage.IN)
        return PasswordAccepted(begun, SignInStage.IN, await _remember(connection, guest, held))


async def sign_out(database: Database, token: str) -> None:
    """End a session."""
    async with database.transaction() as connection:
        await operators.delete_session(connection, hash_token(token))


async def _count_try(
    database: Database, guest: Browser, token: str, stage: SignInStage
) -> Operator | TooManyAttempts | None:
    """Count a try of a code before it is compared, so that no number of them at once makes one too many."""
    async with database.transaction() as connection:
        operator = await _at(connection, token, stage)
        if operator is None:
            return None
        wait = await throttle.take(connection, AttemptKind.FACTOR, operator_subject(operator.phone), guest)
        return operator if wait is None else TooManyAttempts(wait)


async def _at(connection: Connection, token: str, stage: SignInStage) -> Operator | None:
    visitor = await operators.find_session(connection, hash_token(token))
    if visitor is None or visitor.stage is not stage:
        return None
    return await operators.hold(connection, visitor.operator_id)


async def _step(connection: Connection, operator: Operator, text: str) -> int | None:
    code = code_rules.read_code(text)
    if code is None or operator.totp_secret is None:
        return None
    now = await verifications.now(connection)
    return totp.matching_step(operator.totp_secret, code, now, operator.totp_last_step)


async def _take(connection: Connection, operator: Operator, text: str, guest: Browser) -> bool:
    """Use up a code of the device, or a recovery code; False if it is neither."""
    step = await _step(connection, operator, text)
    if step is not None:
        return await operators.take_step(connection, operator.id, step)
    recovery = totp.read_recovery_code(text)
    if recovery is None or not await operators.take_recovery_code(
        connection, operator.id, totp.hash_recovery_code(recovery)
    ):
        return False
    left = f"{operator.recovery_codes - 1} left"
    await audit_log.record_by_operator(
        connection, Actor(f"operator:{operator.name}", guest.address), "recovery code used", left
    )
    await notify_owner.tell_operator(connection, operator.id, operator.phone, "recovery code used")
    return True


async def _begin(connection: Connection, guest: Browser, operator_id: OperatorId, stage: SignInStage) -> str:
    if guest.old_token is not None:
        await operators.delete_session(connection, hash_token(guest.old_token))
    token = new_token()
    now = await verifications.now(connection)
    await operators.insert_session(
        connection,
        new_id(int(now.timestamp() * 1000)),
        hash_token(token),
        operator_id,
        stage,
        guest.address,
        guest.browser[:USER_AGENT_MAX],
    )
    return token


async def _remember(connection: Connection, guest: Browser, operator: Operator) -> str:
    device = new_token()
    await devices.remember(
        connection, operator_subject(operator.phone), guest.device_sha256, hash_token(device)
    )
    return device
