"""Changes that a customer makes to their own account; the audit log records each with its address."""

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from uuid import UUID

from tumira import audit_log
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.content import store as content_store
from tumira.content.store import digest_of
from tumira.core import money
from tumira.core.ids import AccountId
from tumira.identity import browsers, notify_owner
from tumira.identity.passwords import hash_secret
from tumira.identity.reauthenticate import PasswordCheck, Requester, confirm_password
from tumira.identity.store import devices, logins, sessions
from tumira.postgres.pool import Database
from tumira.webhooks import retries


@dataclass(frozen=True, slots=True)
class SpendLimits:
    """The most that a call and a day may cost; None for no limit."""

    per_call: Decimal | None
    per_day: Decimal | None


async def change_names(
    database: Database, account_id: AccountId, name: str, business: str, actor: Actor
) -> None:
    async with database.transaction() as connection:
        await accounts.set_names(connection, account_id, name, business)
        await audit_log.record(connection, account_id, actor, "profile changed", f"{name}, {business}")


async def change_email(database: Database, account_id: AccountId, email: str | None, actor: Actor) -> None:
    async with database.transaction() as connection:
        old_email = await logins.find_email(connection, account_id)
        if old_email == email:
            return
        await logins.set_email(connection, account_id, email)
        what = "email removed" if email is None else "email changed"
        await audit_log.record(connection, account_id, actor, what, email or "")
        await notify_owner.tell(connection, account_id, actor, what, old_email)


async def change_password(
    database: Database, requester: Requester, session_id: UUID, old: str, new: str, actor: Actor
) -> PasswordCheck:
    """Change the password after the old one was confirmed, and end all other sessions."""
    check = await confirm_password(database, requester, old)
    if check is not PasswordCheck.RIGHT:
        return check
    password_hash = await hash_secret(new, requester.address)
    async with database.transaction() as connection:
        await logins.set_password(connection, requester.account_id, password_hash)
        await sessions.delete_others(connection, requester.account_id, session_id)
        await devices.delete_all(connection, requester.phone)
        await notify_owner.note(connection, requester.account_id, actor, "password changed")
    return check


async def end_session(database: Database, account_id: AccountId, session_id: UUID, actor: Actor) -> bool:
    """End one of an account's sessions; False for an unknown session and for another account's."""
    async with database.transaction() as connection:
        browser = await sessions.delete_own(connection, account_id, session_id)
        if browser is None:
            return False
        await audit_log.record(connection, account_id, actor, "session ended", browsers.describe(browser))
    return True


async def end_other_sessions(
    database: Database, account_id: AccountId, session_id: UUID, actor: Actor
) -> None:
    async with database.transaction() as connection:
        ended = await sessions.delete_others(connection, account_id, session_id)
        await audit_log.record(connection, account_id, actor, "sessions ended", f"{ended} elsewhere")


async def change_limits(database: Database, account_id: AccountId, limits: SpendLimits, actor: Actor) -> None:
    """Change the spend limits from the next call on."""
    async with database.transaction() as connection:
        await accounts.set_limits(
            connection,
            account_id,
            daily_limit=limits.per_day,
            change_daily=True,
            call_limit=limits.per_call,
            change_call=True,
        )
        detail = f"per call {_amount(limits.per_call)}, per day {_amount(limits.per_day)}"
        await audit_log.record(connection, account_id, actor, "spend limits changed", detail)


def _amount(amount: Decimal | None) -> str:
    return "none" if amount is None else f"{money.write(amount)} USD"


async def change_notice(
    database: Database, account_id: AccountId, below: Decimal, actor: Actor, *, by_mail: bool
) -> None:
    """Change the low-balance warning, and whether it is also mailed."""
    async with database.transaction() as connection:
        await accounts.set_limits(connection, account_id, low_balance=below)
        await logins.set_low_balance_mail(connection, account_id, wanted=by_mail)
        detail = f"below {_amount(below)}, {'also by email' if by_mail else 'not by email'}"
        await audit_log.record(connection, account_id, actor, "low-balance notice changed", detail)


class ReviewOutcome(Enum):
    DONE = auto()
    NO_REFUSAL = auto()
    OTHER_TEXT = auto()


async def ask_review(
    database: Database, account_id: AccountId, digest: bytes, text: str, note: str, actor: Actor
) -> ReviewOutcome:
    """Ask the operator to review a refused text; its owner has to supply the text again."""
    async with database.transaction() as connection:
        if await content_store.find(connection, account_id, digest) is None:
            return ReviewOutcome.NO_REFUSAL
        # A form and a program may end lines differently.
        writings = (text, text.strip(), text.replace("\n", "\r\n"))
        written = next((one for one in writings if digest_of(one) == digest), None)
        if written is None:
            return ReviewOutcome.OTHER_TEXT
        await content_store.ask_review(connection, account_id, digest, note=note, text=written)
        await audit_log.record(connection, account_id, actor, "review of a refused text asked for")
    return ReviewOutcome.DONE


async def close_account(
    database: Database, requester: Requester, password: str, actor: Actor
) -> PasswordCheck:
    """Close an account permanently: sign-in, API and webhooks end; the balance stays."""
    check = await confirm_password(database, requester, password)
    if check is not PasswordCheck.RIGHT:
        return check
    async with database.transaction() as connection:
        # Locked first, so that a send finishes before or finds the account closed.
        held = await accounts.lock(connection, requester.account_id)
        paused = await accounts.close(connection, requester.account_id)
        await retries.suspend_retries(connection, paused)
        await sessions.delete_all(connection, requester.principal)
        await devices.delete_all(connection, requester.phone)
        await audit_log.record(
            connection, requester.account_id, actor, "account closed", f"balance {_amount(held.balance)}"
        )
    return check
