"""How does somebody show that they also hold a device? With its code of the moment, each taken once.

Whoever has lost the device has recovery codes, each good once in its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tumira.audit_log import Actor
from tumira.core.ids import AccountId
from tumira.identity import code_rules, notify_owner, totp
from tumira.identity.reauthenticate import PasswordCheck, Requester, confirm_password
from tumira.identity.store import attempts, logins, verifications
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database


@dataclass(frozen=True, slots=True)
class InUse:
    """The factor is asked for from now on; these codes are shown once and kept nowhere."""

    recovery_codes: Sequence[str]


async def begin(database: Database, suspect: Requester, password: str) -> PasswordCheck:
    """Make a secret for somebody's device, which counts once they have shown that it is there."""
    proof = await confirm_password(database, suspect, password)
    if proof is PasswordCheck.RIGHT:
        async with database.transaction() as connection:
            await logins.begin_factor(connection, suspect.account_id, totp.new_secret())
    return proof


async def confirm(database: Database, account_id: AccountId, code: str, actor: Actor) -> InUse | None:
    """Ask for the factor from now on; None for a code that the device does not show."""
    recovery_codes = totp.new_recovery_codes()
    async with database.transaction() as connection:
        await logins.hold(connection, account_id)
        factor = await logins.find_factor(connection, account_id)
        if factor is None or factor.since is not None:
            return None
        now = await verifications.now(connection)
        step = totp.matching_step(factor.secret, code_rules.read_code(code) or "", now, factor.last_step)
        if step is None:
            return None
        hashes = [totp.hash_recovery_code(one) for one in recovery_codes]
        await logins.use_factor(connection, account_id, step, hashes)
        await notify_owner.note(connection, account_id, actor, "second factor turned on")
    return InUse(recovery_codes)


async def turn_off(
    database: Database, suspect: Requester, password: str, code: str, actor: Actor
) -> PasswordCheck:
    """Ask for the password alone from now on; both have to be right, and nobody learns which was not."""
    proof = await confirm_password(database, suspect, password)
    if proof is not PasswordCheck.RIGHT:
        return proof
    async with database.transaction() as connection:
        if not await take(connection, suspect.account_id, code, actor):
            return PasswordCheck.WRONG
        await logins.drop_factor(connection, suspect.account_id)
        await attempts.forgive(connection, suspect.phone, suspect.address)
        await notify_owner.note(connection, suspect.account_id, actor, "second factor turned off")
    return PasswordCheck.RIGHT


async def take(connection: Connection, account_id: AccountId, text: str, actor: Actor) -> bool:
    """Use up a code of the device, or a recovery code; False if it is neither."""
    # Held until the commit: the same code at the same time, somewhere else, comes too late.
    await logins.hold(connection, account_id)
    factor = await logins.find_factor(connection, account_id)
    if factor is None or factor.since is None:
        return False
    code = code_rules.read_code(text)
    if code is not None:
        now = await verifications.now(connection)
        step = totp.matching_step(factor.secret, code, now, factor.last_step)
        return step is not None and await logins.take_step(connection, account_id, step)
    recovery = totp.read_recovery_code(text)
    if recovery is None or not await logins.take_recovery_code(
        connection, account_id, totp.hash_recovery_code(recovery)
    ):
        return False
    left = factor.recovery_codes - 1
    await notify_owner.note(connection, account_id, actor, "recovery code used", f"{left} left")
    return True
