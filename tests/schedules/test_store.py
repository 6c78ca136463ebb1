"""Which schedules each statement finds, in which order, and which it leaves alone."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from tests.support.delivery.engine import Engine, numbers
from tests.support.schedules.sends import ACTOR, TEXT, check_and_schedule, get, make_due, schedule
from tumira.core.ids import AccountId, ScheduleId
from tumira.pricing.phone_numbers import Subject
from tumira.schedules import manage, store
from tumira.schedules.manage import Scheduled
from tumira.schedules.store import Schedule, ScheduleState

DAY: Final = timedelta(days=1)


def ids(found: Sequence[Schedule]) -> list[ScheduleId]:
    return [one.id for one in found]


async def several(engine: Engine, account_id: AccountId, *minutes: float) -> list[ScheduleId]:
    return [await schedule(engine.database, account_id, numbers(1), minutes=after) for after in minutes]


async def end(engine: Engine, account_id: AccountId, schedule_id: ScheduleId, ago: timedelta) -> None:
    assert await manage.cancel(engine.database, account_id, schedule_id, ACTOR)
    await engine.rows(
        "UPDATE schedules SET ended_at = clock_timestamp() - $2::interval WHERE id = $1", schedule_id, ago
    )


async def test_lists_are_of_one_account_and_in_order(engine: Engine) -> None:
    own, other = (await engine.open_account("9")).id, (await engine.open_account("9")).id
    late, soon, ended, older = await several(engine, own, 30, 20, 40, 50)
    (foreign,) = await several(engine, other, 10)
    await end(engine, own, ended, DAY)
    await end(engine, own, older, 2 * DAY)
    await end(engine, other, foreign, DAY)
    (waiting_elsewhere,) = await several(engine, other, 10)
    async with engine.database.connection() as connection:
        assert ids(await store.list_waiting(connection, own, 9)) == [soon, late]
        assert ids(await store.list_waiting(connection, own, 1)) == [soon]
        assert await store.count_waiting(connection, own) == 2
        assert await store.list_waiting_ids(connection, own) == sorted([late, soon])
        assert ids(await store.list_ended(connection, own, 9)) == [ended, older]
        assert ids(await store.list_ended(connection, own, 1)) == [ended]
        lately = await store.list_ended(connection, own, 9, within=timedelta(hours=30))
        assert ids(lately) == [ended]
        assert await store.list_ended(connection, own, 9, states=[ScheduleState.SENT]) == []
        assert await store.list_unapproved(connection, own) == []
    await engine.rows("UPDATE schedules SET approval_needed = true WHERE id <> $1", late)
    async with engine.database.connection() as connection:
        assert ids(await store.list_unapproved(connection, own)) == [soon]
    await engine.rows("UPDATE schedules SET approval_needed = true")
    async with engine.database.connection() as connection:
        assert ids(await store.list_unapproved(connection, own)) == [soon, late]
        assert ids(await store.list_unapproved(connection, other)) == [waiting_elsewhere]
    assert await manage.approve(engine.database, own, soon, ACTOR)
    async with engine.database.connection() as connection:
        assert ids(await store.list_unapproved(connection, own)) == [late]


async def test_the_next_to_begin_is_the_soonest_that_waits_and_is_not_skipped(engine: Engine) -> None:
    own = (await engine.open_account("9")).id
    late, soon, cancelled = await several(engine, own, 30, 20, 10)
    assert await manage.cancel(engine.database, own, cancelled, ACTOR)
    async with engine.database.connection() as connection:
        following = await store.find_next(connection, [])
        assert following is not None
        assert (following.id, following.account_id, following.upload_id) == (soon, own, None)
        assert 19 * 60 < following.wait_s <= 20 * 60
        after = await store.find_next(connection, [soon])
        assert after is not None
        assert after.id == late
        assert await store.find_next(connection, [soon, late]) is None


async def test_only_what_is_due_and_waits_is_claimed_and_by_one_alone(engine: Engine) -> None:
    own = (await engine.open_account("9")).id
    due, early, cancelled = await several(engine, own, 10, 20, 30)
    assert await manage.cancel(engine.database, own, cancelled, ACTOR)
    for one in (due, cancelled):
        await make_due(engine.database, one)
    async with engine.database.transaction() as connection:
        found = [await store.claim(connection, one) for one in (due, early, cancelled)]
        assert [None if one is None else one.id for one in found] == [due, None, None]
        async with engine.database.transaction() as other:
            await other.execute("SET LOCAL lock_timeout = '2s'")
            assert await store.claim(other, due) is None


async def test_a_schedule_is_found_by_its_account_alone(engine: Engine) -> None:
    own, other = (await engine.open_account("9")).id, (await engine.open_account("9")).id
    first, second = await several(engine, own, 10, 20)
    upload_id, scheduled = await check_and_schedule(engine.database, own, [f"{numbers(1)[0]},Rudo"])
    assert isinstance(scheduled, Scheduled)
    async with engine.database.connection() as connection:
        for find in (store.find, store.lock):
            found = await find(connection, own, first)
            assert found is not None
            assert found.id == first
            assert await find(connection, other, first) is None
        assert await store.list_recipients(connection, own, first) == list(numbers(1))
        assert await store.list_recipients(connection, other, first) == []
        assert await store.list_recipients(connection, own, scheduled.id) == []
        of_file = await store.find_of_file(connection, own, upload_id)
        assert of_file is not None
        assert of_file.id == scheduled.id
        assert await store.find_of_file(connection, other, upload_id) is None
    # The last one counts when a file was scheduled, cancelled and scheduled again.
    assert await manage.cancel(engine.database, own, scheduled.id, ACTOR)
    await engine.rows("UPDATE schedules SET upload_id = $1 WHERE id = $2", upload_id, second)
    async with engine.database.connection() as connection:
        of_file = await store.find_of_file(connection, own, upload_id)
        assert of_file is not None
        assert of_file.id == max(scheduled.id, second)
    await engine.rows("UPDATE schedules SET upload_id = NULL WHERE id = $1", second)


async def test_old_ones_are_erased_and_deleted_a_few_at_a_time_the_oldest_first(engine: Engine) -> None:
    own = (await engine.open_account("9")).id
    every = await several(engine, own, 10, 20, 30, 40)
    for place, one in enumerate(every[:3]):
        await end(engine, own, one, (20 - place) * DAY)

    async def forget(count_max: int) -> int:
        async with engine.database.transaction() as connection:
            return await store.forget_old(connection, count_max)

    async def erased() -> list[bool]:
        return [(await get(engine.database, own, one)).erased_at is not None for one in every]

    assert await forget(2) == 2
    assert await erased() == [True, True, False, False]
    # What was erased is not erased again.
    assert await forget(2) == 1
    assert await erased() == [True, True, True, False]
    assert await forget(2) == 0
    await engine.rows("UPDATE schedules SET ended_at = ended_at - interval '80 days'")
    # One that another transaction has is left for later.
    async with engine.database.transaction() as holder:
        await holder.execute("SELECT FROM schedules WHERE id = $1 FOR UPDATE", every[1])
        assert await forget(1) == 1
        assert await forget(9) == 1
    left = await engine.rows("SELECT id FROM schedules ORDER BY id")
    assert [row["id"] for row in left] == sorted([every[1], every[3]])


async def test_a_number_is_taken_out_of_what_was_scheduled_before(engine: Engine) -> None:
    own, other = (await engine.open_account("9")).id, (await engine.open_account("9")).id
    number = "+263771200000"
    both = await schedule(engine.database, own, [number, "+263771200001"], minutes=20)
    alone = await schedule(engine.database, other, [number], minutes=10)
    ended = await schedule(engine.database, own, [number, "+263771200001"], minutes=30)
    without = await schedule(engine.database, own, ["+263771200001"])
    await end(engine, own, ended, DAY)
    await engine.rows("UPDATE schedules SET reference = 'for 0771-200 000' WHERE id = $1", both)
    subject = Subject("263", "771200000")
    async with engine.database.transaction() as connection:
        listed = await store.list_to(connection, number, 9)
        assert [one["account_id"] for one in listed] == [other, own, own]
        assert {one["message"] for one in listed} == {TEXT}
        assert len(await store.list_to(connection, number, 2)) == 2
        assert await store.erase_number(connection, subject, UUID(int=0)) == []
        found = await store.erase_number(connection, subject, last_id_of(both, alone, ended))
        assert sorted(found) == sorted([own, other, own])
        assert await store.list_to(connection, number, 9) == []
        recipients = [await store.list_recipients(connection, own, one) for one in (both, without)]
        assert recipients == [["+263771200001"], ["+263771200001"]]
    changed = [
        await get(engine.database, account_id, one)
        for account_id, one in ((own, both), (other, alone), (own, ended), (own, without))
    ]
    assert [(one.message, one.reference, one.count) for one in changed] == [
        (TEXT, None, 1),
        ("", "order 7", 0),
        (TEXT, "order 7", 2),
        (TEXT, "order 7", 1),
    ]


def last_id_of(*found: ScheduleId) -> UUID:
    return UUID(int=max(one.int for one in found) + 1)


async def test_a_time_zone_and_an_approval_are_recorded_with_who_did_it(engine: Engine) -> None:
    own = (await engine.open_account("9")).id
    await manage.change_zone(engine.database, own, "Africa/Johannesburg", ACTOR)
    async with engine.database.connection() as connection:
        assert await manage.get_zone(connection, own) == "Africa/Johannesburg"
    rows = await engine.rows("SELECT detail FROM changes WHERE what = 'time zone changed'")
    assert [row["detail"] for row in rows] == ["Africa/Johannesburg"]


async def test_the_file_of_a_scheduled_send_is_offered_for_another_check_while_it_waits(
    engine: Engine,
) -> None:
    own, other = (await engine.open_account("9")).id, (await engine.open_account("9")).id
    _, scheduled = await check_and_schedule(engine.database, own, [f"{numbers(1)[0]},Rudo"])
    assert isinstance(scheduled, Scheduled)
    (message,) = await several(engine, own, 10)
    for one in (scheduled.id, message):
        # Without its data there is nothing to offer.
        assert await manage.edit_file(engine.database, own, one) is None
    await engine.rows(
        "INSERT INTO scheduled_files VALUES ($1, 'a.csv', 'to', '', '', '', '', '{}', clock_timestamp())",
        scheduled.id,
    )
    assert await manage.edit_file(engine.database, other, scheduled.id) is None
    assert await manage.edit_file(engine.database, own, scheduled.id) is not None
    assert (await get(engine.database, own, scheduled.id)).is_waiting
    assert await manage.cancel(engine.database, own, scheduled.id, ACTOR)
    assert await manage.edit_file(engine.database, own, scheduled.id) is None
