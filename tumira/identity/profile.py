"""Changes that people make to their account and their own login; the audit log records each."""

from datetime import date
from decimal import Decimal
from uuid import UUID

from msgspec import structs

from tumira import audit_log
from tumira.accounts import message_settings
from tumira.accounts import store as accounts
from tumira.accounts.lifetimes import Lifetimes
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.contacts import store as contacts
from tumira.contacts import text_store
from tumira.core import money
from tumira.identity import browsers, notify_owner
from tumira.identity.passwords import hash_secret
from tumira.identity.reauthenticate import PasswordCheck, Requester, confirm_password
from tumira.identity.store import devices, logins, people, sessions
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.schedules.manage import cancel_all
from tumira.sender_names import store as sender_names
from tumira.sending import code_stops
from tumira.webhooks import retries


async def _record(connection: Connection, owner: Requester, what: str, detail: str = "") -> None:
    await audit_log.record(connection, owner.account_id, owner.actor, what, detail)


async def change_names(database: Database, owner: Requester, name: str, business: str) -> None:
    async with database.transaction() as connection:
        await accounts.set_names(connection, owner.account_id, name, business)
        await _record(connection, owner, "profile changed", f"{name}, {business}")


async def change_own_name(database: Database, person: Requester, name: str) -> None:
    async with database.transaction() as connection:
        await people.set_name(connection, person.principal.id, name)
        await _record(connection, person, "name changed", name)


async def change_email(database: Database, owner: Requester, email: str | None) -> None:
    async with database.transaction() as connection:
        old_email = await logins.find_email(connection, owner.principal.id)
        if old_email == email:
            return
        await logins.set_email(connection, owner.principal.id, email)
        what = "email removed" if email is None else "email changed"
        await notify_owner.note(
            connection, owner.principal, owner.actor, what, email or "", old_email=old_email
        )


async def change_password(
    database: Database, owner: Requester, session_id: UUID, old: str, new: str
) -> PasswordCheck:
    """Change the password after the old one was confirmed, and end all other sessions."""
    check = await confirm_password(database, owner, old)
    if check is not PasswordCheck.RIGHT:
        return check
    password_hash = await hash_secret(new, owner.address)
    async with database.transaction() as connection:
        await logins.set_password(connection, owner.principal, password_hash)
        await sessions.delete_all(connection, owner.principal, session_id)
        await devices.delete_all(connection, owner.principal.subject)
        await notify_owner.note(connection, owner.principal, owner.actor, "password changed")
    return check


async def end_session(database: Database, owner: Requester, session_id: UUID) -> bool:
    """End one of a person's sessions; False for an unknown session and for another person's."""
    async with database.transaction() as connection:
        browser = await sessions.delete_own(connection, owner.principal.id, session_id)
        if browser is None:
            return False
        await _record(connection, owner, "session ended", browsers.describe(browser))
    return True


async def end_other_sessions(database: Database, owner: Requester, session_id: UUID) -> None:
    async with database.transaction() as connection:
        ended = await sessions.delete_all(connection, owner.principal, session_id)
        await _record(connection, owner, "sessions ended", f"{ended} elsewhere")


async def change_limits(
    database: Database, owner: Requester, per_call: Decimal | None, per_day: Decimal | None
) -> None:
    """Change the most that a call and a day may cost, from the next call on; None for no limit."""
    async with database.transaction() as connection:
        await accounts.set_limits(
            connection,
            owner.account_id,
            daily_limit=per_day,
            change_daily=True,
            call_limit=per_call,
            change_call=True,
        )
        detail = f"per call {_amount(per_call)}, per day {_amount(per_day)}"
        await _record(connection, owner, "spend limits changed", detail)


def _amount(amount: Decimal | None) -> str:
    return "none" if amount is None else f"{money.write(amount)} USD"


async def change_notice(
    database: Database, owner: Requester, below: Decimal, *, by_mail: bool, by_text: bool
) -> None:
    """Change the threshold of the low-balance notice, and how all notices come to this owner."""
    async with database.transaction() as connection:
        await accounts.set_limits(connection, owner.account_id, low_balance=below)
        await logins.set_notices(connection, owner.principal.id, by_mail=by_mail, by_text=by_text)
        ways = [name for name, wanted in (("email", by_mail), ("text message", by_text)) if wanted]
        detail = f"below {_amount(below)}, by {' and '.join(ways) or 'webhook alone'}"
        await _record(connection, owner, "low-balance notice changed", detail)


async def change_lifetimes(database: Database, owner: Requester, lifetimes: Lifetimes) -> None:
    """Change how long messages are worth delivering that are accepted from now on."""
    async with database.transaction() as connection:
        await message_settings.set_lifetimes(connection, owner.account_id, lifetimes)
        await _record(connection, owner, "lifetimes changed", describe_lifetimes(lifetimes))


def describe_lifetimes(lifetimes: Lifetimes) -> str:
    return f"passcodes {lifetimes.passcode_minutes} minutes, other messages {lifetimes.message_hours} hours"


async def change_passcode_limits(database: Database, owner: Requester, limits: PasscodeLimits) -> None:
    """Change the limits on passcodes; whether they apply is the operator's to change."""
    async with database.transaction() as connection:
        before = await message_settings.get_passcode_limits(connection, owner.account_id)
        limits = structs.replace(limits, is_on=before.is_on)
        await message_settings.set_passcode_limits(connection, owner.account_id, limits)
        await _record(connection, owner, "passcode limits changed", describe_limits(limits))


def describe_limits(limits: PasscodeLimits) -> str:
    words = (
        f"{one or 'the default'} {what}"
        for one, what in (
            (limits.number, "to a number in 10 minutes"),
            (limits.number_day, "in a day"),
            (limits.range, "to a range in 10 minutes"),
        )
    )
    return f"{'on' if limits.is_on else 'off'}: {', '.join(words)}"


async def lift_range(database: Database, owner: Requester, prefix: str, today: date) -> bool:
    """Let all passcodes to a range of numbers pass; False if too many are lifted."""
    async with database.transaction() as connection:
        # Locked first, as by a send.
        await accounts.lock(connection, owner.account_id)
        if not await code_stops.lift_range(connection, owner.account_id, prefix, today):
            return False
        await _record(connection, owner, "passcode guard lifted", f"numbers beginning with {prefix}")
    return True


async def guard_range(database: Database, owner: Requester, prefix: str, today: date) -> None:
    """Guard a range of numbers again."""
    async with database.transaction() as connection:
        await accounts.lock(connection, owner.account_id)
        if await code_stops.guard_range(connection, owner.account_id, prefix, today):
            await _record(connection, owner, "passcode guard set again", f"numbers beginning with {prefix}")


async def close_account(database: Database, owner: Requester, password: str) -> PasswordCheck:
    """Close an account permanently: sign-in, API and webhooks end; the balance stays."""
    check = await confirm_password(database, owner, password)
    if check is not PasswordCheck.RIGHT:
        return check
    async with database.transaction() as connection:
        # Before the account, as by who changes a list.
        await contacts.lock(connection, owner.account_id)
        await cancel_all(connection, owner.account_id, owner.actor)
        # Locked first, so that a send finishes before or finds the account closed.
        held = await accounts.lock(connection, owner.account_id)
        paused = await accounts.close(connection, owner.account_id)
        await retries.suspend_retries(connection, paused)
        await sessions.delete_in_account(connection, owner.account_id)
        await devices.delete_all(connection, owner.principal.subject)
        await contacts.delete_of_account(connection, owner.account_id)
        await text_store.delete_of_account(connection, owner.account_id)
        await sender_names.close_account(connection, owner.account_id, audit_log.OWNER)
        await _record(connection, owner, "account closed", f"balance {_amount(held.balance)}")
    return check
