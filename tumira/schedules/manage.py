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
from uuid import UUID

from msgspec import structs

from tumira import VERSION, audit_log
from tumira.accounts import holds, message_settings
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.content import template_store
from tumira.content.weights import load_weights
from tumira.core.errors import Refusal, ServiceUnavailable
from tumira.core.ids import AccountId, ScheduleId, UploadId, new_id
from tumira.core.translation import _
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import BUSY, Database
from tumira.pricing.phone_numbers import country_of
from tumira.pricing.store import get_tariff
from tumira.schedules import files, hold_price, store
from tumira.schedules.store import NewSchedule, Schedule, ScheduleState
from tumira.schedules.times import check_start, zone_of
from tumira.sending.compose import Draft, Review
from tumira.uploads import store as uploads
from tumira.uploads.price import price_rest
from tumira.uploads.screen import screen_rest
from tumira.uploads.send import Changed, NoLongerAllowed
from tumira.uploads.store import CHECKED, SCHEDULED

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
            await hold_price.insert(connection, new, actor)
            return Scheduled(schedule_id)
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
            await hold_price.change(connection, before, new, actor)
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
) -> Scheduled | NotWaiting | Changed | NoLongerAllowed | Refusal | None:
    """Schedule a checked file at the agreed price, in place of the send that it replaces, if it does.

    None if the account has no such file.
    """
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
) -> Scheduled | NotWaiting | Changed | None:
    before = await _lock_replaced(connection, account_id, upload_id)
    upload = await uploads.hold(connection, account_id, upload_id)
    if upload is None:
        return None
    if upload.state == SCHEDULED:
        earlier = await store.find_of_file(connection, account_id, upload_id)
        assert earlier is not None
        return Scheduled(earlier.id)
    if upload.replaces is not None and (before is None or not before.is_waiting):
        return NotWaiting()
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
        id=ScheduleId(new_id(int(now.timestamp() * 1000))) if before is None else before.id,
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
    if before is None:
        await hold_price.insert(connection, new, actor)
    else:
        await hold_price.change(connection, before, new, actor)
        if before.upload_id is not None:
            await uploads.delete_scheduled(connection, before.upload_id)
    await uploads.mark_scheduled(connection, upload_id)
    await files.keep(connection, account_id, new.id, upload_id)
    return Scheduled(new.id)


async def _lock_replaced(
    connection: Connection, account_id: AccountId, upload_id: UploadId
) -> Schedule | None:
    """Lock the schedule that a file changes, and the file that it has so far."""
    upload = await uploads.find(connection, account_id, upload_id)
    if upload is None or upload.replaces is None:
        return None
    before = await store.lock(connection, account_id, upload.replaces)
    if before is not None and before.upload_id is not None:
        await uploads.hold(connection, account_id, before.upload_id)
    return before


async def edit_file(database: Database, account_id: AccountId, schedule_id: ScheduleId) -> UUID | None:
    """Offer the file of a scheduled send for another check, which changes nothing yet.

    Return the id under which it is kept; None if it does not wait any more, or its file is gone.
    """
    async with database.transaction() as connection:
        before = await store.find(connection, account_id, schedule_id)
        if before is None or not before.is_waiting:
            return None
        now = await clock.read_now(connection)
        kept_id = new_id(int(now.timestamp() * 1000))
        is_kept = await files.offer(connection, account_id, schedule_id, kept_id)
    return kept_id if is_kept else None


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
        await hold_price.record(connection, actor, "scheduled send changed", changed)
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
    await hold_price.record(connection, actor, "scheduled send cancelled", before)
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
        before = await _lock_unapproved(connection, account_id, schedule_id, actor)
        if before is None:
            return False
        await store.mark_approved(connection, schedule_id)
        await hold_price.record(connection, actor, "scheduled send approved", before)
        return True


async def _lock_unapproved(
    connection: Connection, account_id: AccountId, schedule_id: ScheduleId, actor: Actor
) -> Schedule | None:
    """Lock a send that waits for a second person, if this is not the one who asked for it."""
    before = await store.lock(connection, account_id, schedule_id)
    if before is None or not before.is_waiting or not before.lacks_approval:
        return None
    is_own = before.asked_by is not None and actor.person_id == before.asked_by
    return None if is_own else before


async def decline(
    database: Database, account_id: AccountId, schedule_id: ScheduleId, note: str, actor: Actor
) -> bool:
    """End a send that another person asked for, and say why; False if it does not wait for this one."""
    async with _transaction(database) as connection:
        before = await _lock_unapproved(connection, account_id, schedule_id, actor)
        if before is None:
            return False
        problem = _("{name} declined it: {note}").format(name=actor.name, note=note)
        await end_unsent(connection, before, ScheduleState.NOT_SENT, problem)
        await hold_price.record(connection, actor, "scheduled send declined", before)
        return True
