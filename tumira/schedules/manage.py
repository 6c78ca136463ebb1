"""Schedule a message or a file, change it, and cancel it, until it begins.

The money is held when a send is scheduled, and the hold follows each change. Rows are locked in this order:
schedule, file, account.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from msgspec import structs

from tumira import VERSION, audit_log
from tumira.accounts import holds, message_settings
from tumira.accounts import store as accounts
from tumira.accounts.store import LockedAccount
from tumira.audit_log import Actor
from tumira.content import template_store
from tumira.content.weights import load_weights
from tumira.core import money
from tumira.core.errors import AccountSuspended, FieldError, InsufficientBalance, Refusal, ServiceUnavailable
from tumira.core.ids import SCHEDULE, AccountId, ScheduleId, UploadId, new_id, write_id
from tumira.core.translation import _
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import BUSY, Database
from tumira.pricing.phone_numbers import country_of
from tumira.pricing.store import get_tariff
from tumira.schedules import store
from tumira.schedules.store import NewSchedule, Schedule, ScheduleState
from tumira.schedules.times import check_start, write_start, zone_of
from tumira.sending.compose import Draft, Review
from tumira.sending.limits import over_balance, over_limit
from tumira.sending.low_balance import tell_low_balances
from tumira.uploads import chunks
from tumira.uploads import store as uploads
from tumira.uploads.price import price_rest
from tumira.uploads.screen import screen_rest
from tumira.uploads.send import Changed, NoLongerAllowed
from tumira.uploads.store import CHECKED, SCHEDULED

# Of each account at one time.
WAITING_MAX: Final = 50
ACCOUNT_WAIT_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The send waits for its time, from this call or from an earlier one."""

    id: ScheduleId


@dataclass(frozen=True, slots=True)
class NotWaiting:
    """Nothing was changed: the send has begun, was cancelled, or is not the account's."""


def judged_by() -> str:
    """Return the version of the content check."""
    return f"{VERSION}/{load_weights().version}"


@asynccontextmanager
async def _transaction(database: Database) -> AsyncIterator[Connection]:
    async with database.transaction() as connection:
        await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
        yield connection


async def get_zone(connection: Connection, account_id: AccountId) -> str:
    """Return the time zone in which an account's schedules are shown."""
    chosen = await message_settings.get_time_zone(connection, account_id)
    account = await accounts.find(connection, account_id)
    assert account is not None
    return zone_of(chosen, country_of(await get_tariff(connection), account.phone))


async def change_zone(database: Database, account_id: AccountId, zone: str, actor: Actor) -> None:
    async with database.transaction() as connection:
        await message_settings.set_time_zone(connection, account_id, zone)
        await audit_log.record(connection, account_id, actor, "time zone changed", zone)


async def schedule_message(
    database: Database,
    account_id: AccountId,
    schedule_id: ScheduleId,
    draft: Draft,
    review: Review,
    start_at: datetime,
    actor: Actor,
) -> Scheduled | Refusal:
    """Schedule a reviewed message, once for each id; raise a FieldError for a time that does not do."""
    try:
        async with _transaction(database) as connection:
            if await store.find(connection, account_id, schedule_id) is not None:
                return Scheduled(schedule_id)
            new = _message(account_id, schedule_id, draft, review, start_at)
            return await _insert(connection, new, actor)
    except Refusal as refusal:
        return refusal
    except BUSY:
        return ServiceUnavailable(retry_after_s=1)


def _message(
    account_id: AccountId, schedule_id: ScheduleId, draft: Draft, review: Review, start_at: datetime
) -> NewSchedule:
    assert review.quote is not None
    return NewSchedule(
        id=schedule_id,
        account_id=account_id,
        start_at=start_at,
        upload_id=None,
        recipients=review.quote.numbers,
        message=draft.message,
        reference=draft.reference or None,
        count=len(review.quote.numbers),
        cost=review.quote.total_cost,
        judged_by=judged_by(),
    )


async def _insert(connection: Connection, new: NewSchedule, actor: Actor) -> Scheduled:
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
    await _record(connection, new.account_id, actor, "send scheduled", _detail(new))
    return Scheduled(new.id)


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


def _detail(one: NewSchedule | Schedule) -> str:
    return (
        f"{write_id(SCHEDULE, one.id)}: {one.count} messages on {write_start(one.start_at)}, "
        f"{money.write(one.cost)} USD"
    )


async def _record(
    connection: Connection, account_id: AccountId, actor: Actor, what: str, detail: str
) -> None:
    await audit_log.record(connection, account_id, actor, what, detail)


async def change_message(
    database: Database,
    account_id: AccountId,
    schedule_id: ScheduleId,
    draft: Draft,
    review: Review,
    start_at: datetime,
    actor: Actor,
) -> Scheduled | NotWaiting | Refusal:
    """Replace text, recipients and time of a scheduled message, and hold what it costs now."""
    try:
        async with _transaction(database) as connection:
            before = await store.lock(connection, account_id, schedule_id)
            if before is None or not before.is_waiting or before.upload_id is not None:
                return NotWaiting()
            new = _message(account_id, schedule_id, draft, review, start_at)
            account = await accounts.lock(connection, account_id)
            now = await clock.read_now(connection)
            check_start(start_at, now)
            missing = max(new.cost - before.held, Decimal(0))
            await _check_money(connection, account, new.cost, missing, now)
            if missing:
                await _hold(connection, account, schedule_id, missing, now)
            else:
                await holds.release(connection, schedule_id, before.held - new.cost)
            await store.change(connection, await _ask_approval(connection, new, actor))
            await _record(connection, account_id, actor, "scheduled send changed", _detail(new))
            return Scheduled(schedule_id)
    except Refusal as refusal:
        return refusal
    except BUSY:
        return ServiceUnavailable(retry_after_s=1)


async def schedule_file(
    database: Database,
    account_id: AccountId,
    upload_id: UploadId,
    agreed: Decimal,
    start_at: datetime,
    actor: Actor,
) -> Scheduled | Changed | NoLongerAllowed | Refusal | None:
    """Schedule a checked file at the agreed price; None if the account has no such file."""
    try:
        refused = await screen_rest(database, account_id, upload_id)
        if refused:
            return NoLongerAllowed(refused)
        async with _transaction(database) as connection:
            return await _schedule_file(connection, account_id, upload_id, agreed, start_at, actor)
    except Refusal as refusal:
        return refusal
    except BUSY:
        return ServiceUnavailable(retry_after_s=1)


async def _schedule_file(
    connection: Connection,
    account_id: AccountId,
    upload_id: UploadId,
    agreed: Decimal,
    start_at: datetime,
    actor: Actor,
) -> Scheduled | Changed | None:
    upload = await uploads.hold(connection, account_id, upload_id)
    if upload is None:
        return None
    if upload.state == SCHEDULED:
        earlier = await store.find_of_file(connection, account_id, upload_id)
        assert earlier is not None
        return Scheduled(earlier.id)
    offer = await price_rest(connection, upload)
    if (
        upload.state != CHECKED
        or upload.policy_version != await template_store.get_version(connection)
        or offer.unreachable
        or not offer.count
        or offer.total_cost != agreed
    ):
        return Changed()
    now = await clock.read_now(connection)
    new = NewSchedule(
        id=ScheduleId(new_id(int(now.timestamp() * 1000))),
        account_id=account_id,
        start_at=start_at,
        upload_id=upload_id,
        recipients=[],
        message=upload.message,
        reference=upload.reference,
        count=offer.count,
        cost=offer.total_cost,
        judged_by=judged_by(),
    )
    scheduled = await _insert(connection, new, actor)
    await uploads.mark_scheduled(connection, upload_id)
    return scheduled


async def change_start(
    database: Database, account_id: AccountId, schedule_id: ScheduleId, start_at: datetime, actor: Actor
) -> bool:
    """Change when a scheduled send begins; False if it does not wait any more."""
    async with _transaction(database) as connection:
        before = await store.lock(connection, account_id, schedule_id)
        if before is None or not before.is_waiting:
            return False
        check_start(start_at, await clock.read_now(connection))
        await store.set_start(connection, schedule_id, start_at)
        changed = structs.replace(before, start_at=start_at)
        await _record(connection, account_id, actor, "scheduled send changed", _detail(changed))
        return True


async def cancel(database: Database, account_id: AccountId, schedule_id: ScheduleId, actor: Actor) -> bool:
    """Cancel a scheduled send and release its money; False if it does not wait any more."""
    async with _transaction(database) as connection:
        return await _cancel(connection, account_id, schedule_id, actor)


async def cancel_all(connection: Connection, account_id: AccountId, actor: Actor) -> None:
    """Cancel all that an account has scheduled; call it before the account is locked."""
    for schedule_id in await store.list_waiting_ids(connection, account_id):
        await _cancel(connection, account_id, schedule_id, actor)


async def _cancel(
    connection: Connection, account_id: AccountId, schedule_id: ScheduleId, actor: Actor
) -> bool:
    before = await store.lock(connection, account_id, schedule_id)
    if before is None or not before.is_waiting:
        return False
    await end_unsent(connection, before, ScheduleState.CANCELLED)
    await _record(connection, account_id, actor, "scheduled send cancelled", _detail(before))
    return True


async def end_unsent(
    connection: Connection, schedule: Schedule, state: ScheduleState, problem: str | None = None
) -> None:
    """End a locked schedule without a send: its money is released, and a file is its owner's again."""
    if schedule.upload_id is not None:
        upload = await uploads.hold(connection, schedule.account_id, schedule.upload_id)
        if upload is not None and upload.state == SCHEDULED:
            await uploads.mark_checked(connection, upload.id)
    await holds.release(connection, schedule.id)
    await store.mark_ended(connection, schedule.id, state, problem=problem)


async def approve(database: Database, account_id: AccountId, schedule_id: ScheduleId, actor: Actor) -> bool:
    """Let a send begin that needs a second person; False if it does not wait for this one."""
    async with _transaction(database) as connection:
        before = await store.lock(connection, account_id, schedule_id)
        if before is None or not before.is_waiting or not before.lacks_approval:
            return False
        if before.asked_by is not None and actor.person_id == before.asked_by:
            return False
        await store.mark_approved(connection, schedule_id)
        await _record(connection, account_id, actor, "scheduled send approved", _detail(before))
        return True
