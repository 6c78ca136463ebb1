"""Scheduled messages and files, and a clock that is moved past their time."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from tests.support.uploads.files import check_file
from tumira.audit_log import Actor
from tumira.core.errors import Refusal
from tumira.core.ids import AccountId, ScheduleId, UploadId, new_id
from tumira.postgres.pool import Database
from tumira.schedules import manage, store
from tumira.schedules.manage import NotWaiting, Scheduled
from tumira.schedules.start import start
from tumira.schedules.store import Schedule
from tumira.sending import compose
from tumira.sending.compose import Draft
from tumira.uploads import store as uploads
from tumira.uploads.check_rows import Wanted
from tumira.uploads.send import Changed, NoLongerAllowed, send_next_chunk
from tumira.uploads.worker import _BEFORE_ALL

TEXT: Final = "Your parcel 1042 is ready at our counter."
ACTOR: Final = Actor("owner", "127.0.0.1")


def in_minutes(minutes: float = 10) -> datetime:
    return datetime.now(UTC) + timedelta(minutes=minutes)


async def schedule(
    database: Database, account_id: AccountId, to: Sequence[str], text: str = TEXT, minutes: float = 10
) -> ScheduleId:
    """Schedule a message that must not be refused."""
    scheduled = await try_schedule(database, account_id, to, text, minutes)
    assert isinstance(scheduled, Scheduled), scheduled
    return scheduled.id


async def try_schedule(
    database: Database, account_id: AccountId, to: Sequence[str], text: str = TEXT, minutes: float = 10
) -> Scheduled | Refusal:
    draft = Draft(" ".join(to), text, "order 7")
    review = await compose.examine(database, account_id, draft)
    assert review.quote is not None, review.refusals
    schedule_id = ScheduleId(new_id(time.time_ns() // 1_000_000))
    return await manage.schedule_message(
        database, account_id, schedule_id, draft, review, in_minutes(minutes), ACTOR
    )


async def check_and_schedule(
    database: Database,
    account_id: AccountId,
    rows: Sequence[str],
    message: str = TEXT,
    replaces: ScheduleId | None = None,
) -> tuple[UploadId, Scheduled | NotWaiting | Changed | NoLongerAllowed | Refusal | None]:
    """Schedule a file, which may replace a scheduled send."""
    data = "\n".join(["to,name", *rows]).encode()
    wanted = Wanted("people.csv", data, message, None, None, replaces=replaces)
    upload_id = await check_file(database, account_id, wanted)
    assert isinstance(upload_id, UUID), upload_id
    async with database.connection() as connection:
        upload = await uploads.find(connection, account_id, UploadId(upload_id))
    assert upload is not None
    return upload.id, await manage.schedule_file(
        database, account_id, upload.id, upload.total_cost, in_minutes(), ACTOR
    )


async def make_due(database: Database, schedule_id: ScheduleId, late: timedelta = timedelta()) -> None:
    """Move the time of a schedule behind the database's clock, which decides."""
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE schedules SET start_at = clock_timestamp() - $2::interval WHERE id = $1",
            schedule_id,
            late,
        )


async def start_due(database: Database) -> int:
    """Begin all that is due as a worker does, and return how many were begun."""
    begun = 0
    while True:
        async with database.connection() as connection:
            found = await store.find_next(connection, [])
        if found is None or found.wait_s > 0:
            return begun
        begun += await start(database, found)


async def send_files(database: Database) -> None:
    """Send the chunks of all files that are in motion."""
    while await send_next_chunk(database, _BEFORE_ALL) is not None:
        pass


async def get(database: Database, account_id: AccountId, schedule_id: ScheduleId) -> Schedule:
    async with database.connection() as connection:
        found = await store.find(connection, account_id, schedule_id)
    assert found is not None
    return found


async def balance_of(database: Database, account_id: AccountId) -> Decimal:
    async with database.connection() as connection:
        balance: Decimal = await connection.fetchval("SELECT balance FROM accounts WHERE id = $1", account_id)
    return balance
