"""Second factor: a code of an authenticator app, or a recovery code in its place, each accepted once."""

from collections.abc import Sequence

from tumira.audit_log import Actor
from tumira.core.settings.support import Support
from tumira.identity import code_rules, notify_owner, totp
from tumira.identity.principal import Principal
from tumira.identity.reauthenticate import PasswordCheck, Requester, confirm_password
from tumira.identity.store import attempts, logins, second_factors
from tumira.identity.store.second_factors import Factor
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database


async def begin(database: Database, requester: Requester, password: str) -> PasswordCheck:
    """Make a secret for the owner's device; it counts after the first code."""
    check = await confirm_password(database, requester, password)
    if check is PasswordCheck.RIGHT:
        async with database.transaction() as connection:
            await second_factors.begin(connection, requester.principal, totp.new_secret())
    return check


async def confirm(
    database: Database, requester: Requester, code: str, support: Support
) -> Sequence[str] | None:
    """Turn the factor on and return its recovery codes; None for a wrong code."""
    async with database.transaction() as connection:
        recovery_codes = await activate(connection, requester.principal, code)
        if recovery_codes is not None:
            what = "second factor turned on"
            await notify_owner.note(connection, requester.principal, requester.actor, what, support=support)
    return recovery_codes


async def turn_off(database: Database, requester: Requester, password: str, code: str) -> PasswordCheck:
    """Turn the factor off; the answer does not say whether the password or the code was wrong."""
    check = await confirm_password(database, requester, password)
    if check is not PasswordCheck.RIGHT:
        return check
    principal, actor = requester.principal, requester.actor
    async with database.transaction() as connection:
        if not await take(connection, principal, code, actor):
            return PasswordCheck.WRONG
        await second_factors.delete(connection, principal)
        await attempts.forgive(connection, principal.subject, requester.address)
        await notify_owner.note(connection, principal, actor, "second factor turned off")
    return PasswordCheck.RIGHT


async def is_active(connection: Connection, principal: Principal) -> bool:
    factor = await second_factors.find(connection, principal)
    return factor is not None and factor.since is not None


async def activate(connection: Connection, principal: Principal, text: str) -> Sequence[str] | None:
    """Turn on a factor whose device shows this code; return its recovery codes, which are kept nowhere."""
    await logins.lock(connection, principal)
    factor = await second_factors.find(connection, principal)
    if factor is None or factor.since is not None:
        return None
    step = await _find_step(connection, factor, code_rules.read_code(text) or "")
    if step is None:
        return None
    recovery_codes = totp.new_recovery_codes()
    hashes = [totp.hash_recovery_code(one) for one in recovery_codes]
    await second_factors.activate(connection, principal, step, hashes)
    return recovery_codes


async def take(connection: Connection, principal: Principal, text: str, actor: Actor) -> bool:
    """Use up a code of the device, or a recovery code; False if it is neither."""
    # Locked until the commit: the same code, entered elsewhere at the same time, comes too late.
    await logins.lock(connection, principal)
    factor = await second_factors.find(connection, principal)
    if factor is None or factor.since is None:
        return False
    code = code_rules.read_code(text)
    if code is not None:
        step = await _find_step(connection, factor, code)
        return step is not None and await second_factors.take_step(connection, principal, step)
    recovery = totp.read_recovery_code(text)
    if recovery is None or not await second_factors.take_recovery_code(
        connection, principal, totp.hash_recovery_code(recovery)
    ):
        return False
    left = f"{factor.recovery_codes - 1} left"
    await notify_owner.note(connection, principal, actor, "recovery code used", left)
    return True


async def _find_step(connection: Connection, factor: Factor, code: str) -> int | None:
    return totp.matching_step(factor.secret, code, await clock.read_now(connection), factor.last_step)
