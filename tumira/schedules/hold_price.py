"""Stores a scheduled send, new or changed, with the hold of its price.

The caller has locked the schedule that is changed, and its files; the account is locked here.
"""

from datetime import datetime
from decimal import Decimal
from typing import Final

from msgspec import structs

from tumira import audit_log
from tumira.accounts import holds, message_settings
from tumira.accounts import store as accounts
from tumira.accounts.store import LockedAccount
from tumira.audit_log import Actor
from tumira.core import money
from tumira.core.errors import AccountSuspended, FieldError, InsufficientBalance
from tumira.core.ids import SCHEDULE, ScheduleId, write_id
from tumira.core.translation import _
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.schedules import store
from tumira.schedules.store import NewSchedule, Schedule
from tumira.schedules.times import check_start, write_start
from tumira.sending.limits import over_balance, over_limit
from tumira.sending.low_balance import tell_low_balances
from tumira.uploads import chunks

# Of each account at one time.
WAITING_MAX: Final = 50


async def insert(connection: Connection, new: NewSchedule, actor: Actor) -> None:
    """Store a schedule and hold its money; raise the refusal if that is not possible."""
    account = await accounts.lock(connection, new.account_id)
    now = await clock.read_now(connection)
    check_start(new.start_at, now)
    if await store.count_waiting(connection, new.account_id) >= WAITING_MAX:
        raise FieldError(
            "day",
            _("You have {most} scheduled sends, which is the most. Cancel one first.").format(
                most=WAITING_MAX
            ),
        )
    await _check_money(connection, account, new.cost, new.cost, now)
    await store.insert(connection, await _ask_approval(connection, new, actor))
    await _hold(connection, account, new.id, new.cost, now)
    await record(connection, actor, "send scheduled", new)


async def change(connection: Connection, before: Schedule, new: NewSchedule, actor: Actor) -> None:
    """Store a new version of a schedule, and hold what it costs now; or raise the refusal.

    The new version needs another approval.
    """
    account = await accounts.lock(connection, new.account_id)
    now = await clock.read_now(connection)
    check_start(new.start_at, now)
    missing = max(new.cost - before.held, Decimal(0))
    await _check_money(connection, account, new.cost, missing, now)
    if missing:
        await _hold(connection, account, new.id, missing, now)
    else:
        await holds.release(connection, new.id, before.held - new.cost)
    await store.change(connection, await _ask_approval(connection, new, actor))
    await record(connection, actor, "scheduled send changed", new)


async def _ask_approval(connection: Connection, new: NewSchedule, actor: Actor) -> NewSchedule:
    """Note who asked for a send, and whether its cost needs another person's approval."""
    above = await message_settings.find_approval_above(connection, new.account_id)
    return structs.replace(
        new, approval_needed=above is not None and new.cost > above, asked_by=actor.person_id
    )


async def _check_money(
    connection: Connection, account: LockedAccount, cost: Decimal, missing: Decimal, now: datetime
) -> None:
    """Raise the refusal of a send that the account may not make, or of which it cannot pay the rest.

    The limit of the day is that of another day. Files that are being sent have the first claim.
    """
    if account.suspended:
        raise AccountSuspended
    promised = await chunks.sum_promised(connection, account.id)
    left = structs.replace(
        account, spent_today=Decimal(0), balance=max(account.balance - promised, Decimal(0))
    )
    refusal = over_limit(left, cost, now) or over_balance(left, missing)
    if refusal is not None:
        raise refusal


async def _hold(
    connection: Connection, account: LockedAccount, schedule_id: ScheduleId, amount: Decimal, now: datetime
) -> None:
    if not await holds.hold(connection, account.id, schedule_id, amount):
        raise InsufficientBalance.of(amount, account.balance)
    before, account.balance = account.balance, account.balance - amount
    if before >= account.low_balance > account.balance:
        await tell_low_balances(connection, [account], now)


async def record(connection: Connection, actor: Actor, what: str, one: NewSchedule | Schedule) -> None:
    """Write a change of a schedule to the account's history."""
    detail = (
        f"{write_id(SCHEDULE, one.id)}: {one.count} messages on {write_start(one.start_at)}, "
        f"{money.write(one.cost)} USD"
    )
    await audit_log.record(connection, one.account_id, actor, what, detail)
