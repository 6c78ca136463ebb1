"""Daily totals and open messages of an account."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import WORKER, World, open_world
from tests.support.delivery.traffic import miscounted
from tests.support.processes.service import Caller
from tumira.carriers import store as carriers
from tumira.core.days import local_day
from tumira.core.ids import AccountId, BatchId, MessageId, message_ids, new_id
from tumira.delivery.lanes import Room
from tumira.delivery.outcomes import Ended, Outcome
from tumira.delivery.settle import settle
from tumira.delivery.store import binds, queue
from tumira.delivery.store.binds import BindReport, BindState
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest
from tumira.operations import maintenance
from tumira.postgres.connection import Connection
from tumira.sending import daily_totals
from tumira.sending.daily_totals import Day, Waiting, WaitReason

THREE_DAYS: Final = timedelta(hours=73)
TOO_LONG: Final = timedelta(hours=25)
LONG: Final = "Your statement is ready. " * 8
SOUTH_AFRICANS: Final = ("+27821230001", "+27821230002")
STATUSES: Final = ("delivered", "undelivered", "expired", "failed", "unconfirmed")


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """Give a world without the audit at the end: these tests insert messages that no queue holds."""
    async with open_world(database_url) as world:
        yield world


def today() -> date:
    return local_day(datetime.now(UTC))


async def counted(world: World, account_id: AccountId | None = None) -> dict[str, int]:
    """Return how an account's messages of yesterday and today ended, without what is zero."""
    async with world.engine.database.connection() as connection:
        found = await daily_totals.days(
            connection, account_id or world.caller.id, today() - timedelta(days=1), today()
        )
    sums = {status: sum(getattr(day, status) for day in found) for status in STATUSES}
    return {status: count for status, count in sums.items() if count}


async def claim_in(world: World, country: str, count: int) -> Sequence[ClaimedMessage]:
    async with world.engine.database.transaction() as connection:
        claimed = await queue.claim(
            connection,
            [ClaimRequest(country, count, count, count, 0, 0)],
            Room(count, count, count),
            worker=WORKER,
            bind="one/1",
            carrier_id=world.carrier_id,
        )
    assert claimed is not None
    return claimed


async def accepted(world: World, account_id: AccountId, at: datetime, countries: Sequence[str]) -> list[UUID]:
    """Write a batch that was accepted at some moment and costs nothing, one message for each country."""
    batch_id = BatchId(new_id(int(at.timestamp() * 1000)))
    ids = list(message_ids(batch_id, len(countries)))
    await world.rows(
        "INSERT INTO batches (id, account_id, created_at, recipients, pending, segments, total_cost, status,"
        " channel) VALUES ($1, $2, $3, $4, $4, 1, 0, 'processing', 'sms')",
        batch_id,
        account_id,
        at,
        len(countries),
    )
    await world.rows(
        "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost)"
        " SELECT id, $2, $3, 1, country, '+263771200001', 0"
        " FROM unnest($1::uuid[], $4::text[]) AS message (id, country)",
        ids,
        batch_id,
        account_id,
        list(countries),
    )
    return ids


def failed(message_id: UUID) -> Ended:
    return Ended(MessageId(message_id), "queued", "failed", "NO_ROUTE")


async def end_by_receipt(world: World, claimed: ClaimedMessage, state: str) -> None:
    await world.settle(world.taken(claimed), world.reported(claimed, state))


@pytest.mark.parametrize(
    ("state", "status"), [("DELIVRD", "delivered"), ("UNDELIV", "undelivered"), ("EXPIRED", "expired")]
)
async def test_an_end_that_a_receipt_tells_of_is_counted_once_in_time_or_late(
    world: World, state: str, status: str
) -> None:
    await world.send(3)
    in_time, late, silent = await world.claim(3)
    await world.settle(*(world.taken(one) for one in (in_time, late, silent)))
    assert await counted(world) == {}
    for _ in range(2):
        await world.settle(world.reported(in_time, state), world.reported(in_time, state))
    assert await counted(world) == {status: 1}
    await world.give_up_receipts(THREE_DAYS)
    assert await counted(world) == {status: 1, "unconfirmed": 2}
    for _ in range(2):
        await world.settle(world.reported(late, state))
    assert await counted(world) == {status: 2, "unconfirmed": 1}
    assert await miscounted(world) == []


async def test_a_refusal_an_expiry_and_a_missing_route_are_counted(world: World) -> None:
    await world.send(3)
    refused, put_off = await world.claim(2)
    await world.settle(world.refused(refused), world.put_off(put_off))
    assert await counted(world) == {"failed": 1}
    await world.resume_due(TOO_LONG)
    assert await counted(world) == {"failed": 1, "expired": 1}
    await world.fail_unroutable()
    assert await counted(world) == {"failed": 2, "expired": 1}
    assert await miscounted(world) == []


async def test_a_message_is_counted_once_however_it_came_to_its_end(world: World) -> None:
    await world.send(2)
    overtaken, left_open = await world.claim(2)
    # A receipt that overtakes its answer, and a message that is left open and resolved in one group.
    await world.settle(world.doubtful(overtaken), world.taken(left_open))
    await world.settle(world.taken(overtaken), world.reported(overtaken))
    await world.resume_due()
    await world.settle(Ended(left_open.id, "sent", "unconfirmed", None), world.reported(left_open))
    assert await counted(world) == {"delivered": 2}
    # A message of several segments.
    await world.send(body=LONG)
    (claimed,) = await world.claim()
    await world.settle(world.taken(claimed, 1, complete=False), world.taken(claimed, 2))
    await world.settle(world.reported(claimed, number=1))
    assert await counted(world) == {"delivered": 2}
    await world.settle(world.reported(claimed, number=2))
    assert await counted(world) == {"delivered": 3}
    assert await miscounted(world) == []


async def test_what_has_not_ended_is_not_counted(world: World) -> None:
    await world.send(5)
    taken, put_off, doubtful, returned = await world.claim(4)
    await world.settle(
        world.taken(taken),
        world.reported(taken, "ENROUTE"),
        world.put_off(put_off),
        world.doubtful(doubtful),
        world.returned(returned),
    )
    assert await world.rows("SELECT FROM traffic") == []


async def test_an_end_that_is_undone_is_not_counted(world: World) -> None:
    await world.send()
    (claimed,) = await world.claim()
    outcomes: Sequence[Outcome] = [world.taken(claimed), world.reported(claimed)]
    async with world.engine.database.connection() as connection:
        undone = connection.transaction()
        await undone.start()
        await settle(connection, outcomes, worker=WORKER)
        await undone.rollback()
    assert await counted(world) == {}
    await world.settle(*outcomes)
    assert await counted(world) == {"delivered": 1}


async def test_a_group_of_several_accounts_days_and_countries_is_counted_to_each(world: World) -> None:
    other = await world.engine.open_account()
    # Two hours before the midnight of UTC it is midnight here.
    midnight = (datetime.now(UTC) - timedelta(days=1)).replace(hour=22, minute=0, second=0, microsecond=0)
    yesterday = local_day(midnight)
    before = yesterday - timedelta(days=1)
    ids = [
        *await accepted(world, world.caller.id, midnight - timedelta(milliseconds=1), ["ZW", "ZA", "ZW"]),
        *await accepted(world, world.caller.id, midnight, ["ZW"]),
        *await accepted(world, world.caller.id, midnight + timedelta(hours=1), ["ZW"]),
        *await accepted(world, other.id, midnight, ["ZA", "ZA"]),
    ]
    await world.settle(*(failed(one) for one in reversed(ids)))

    async with world.engine.database.connection() as connection:
        own = await daily_totals.days(connection, world.caller.id, before, yesterday)
        others = await daily_totals.days(connection, other.id, before, yesterday)
        assert await daily_totals.days(connection, other.id, before, before) == []
    assert own == [
        Day(before, "ZA", 0, 0, 0, 1, 0),
        Day(before, "ZW", 0, 0, 0, 2, 0),
        Day(yesterday, "ZW", 0, 0, 0, 2, 0),
    ]
    assert others == [Day(yesterday, "ZA", 0, 0, 0, 2, 0)]
    assert (own[0].lost, own[1].ended) == (1, 2)
    assert await miscounted(world) == []


async def test_groups_that_end_messages_of_the_same_accounts_at_once_count_each_of_them_once(
    world: World,
) -> None:
    callers = [world.caller, await world.engine.open_account(), await world.engine.open_account()]
    now = datetime.now(UTC)
    groups = [
        [
            failed(one)
            for place in range(4)
            for caller in callers
            for one in await accepted(world, caller.id, now - timedelta(days=place), ["ZW", "ZA"])
        ]
        for _ in range(6)
    ]

    async def end(group: Sequence[Ended]) -> None:
        for start in range(0, len(group), 8):
            await world.settle(*group[start : start + 8])

    await asyncio.gather(*(end(group[::-1] if place % 2 else group) for place, group in enumerate(groups)))

    (row,) = await world.rows("SELECT sum(failed) AS failed FROM traffic")
    assert row["failed"] == 6 * 4 * 3 * 2
    assert await miscounted(world) == []


async def test_without_the_order_two_groups_would_wait_for_each_other(world: World) -> None:
    """The twin of those above: the same rows, each group counting them as its messages came."""

    async def count(connection: Connection, country: str) -> None:
        await connection.execute(
            "INSERT INTO traffic (account_id, day, country, failed) VALUES ($1, $2, $3, 1)"
            " ON CONFLICT (account_id, day, country) DO UPDATE SET failed = traffic.failed + 1",
            world.caller.id,
            today(),
            country,
        )

    async with world.engine.database.connection() as one, world.engine.database.connection() as other:
        for connection in (one, other):
            await connection.execute("BEGIN")
        await count(one, "ZA")
        await count(other, "ZW")
        results = await asyncio.gather(count(one, "ZW"), count(other, "ZA"), return_exceptions=True)
        assert [type(result) for result in results].count(asyncpg.DeadlockDetectedError) == 1
        for connection in (one, other):
            await connection.execute("ROLLBACK")


async def test_a_late_receipt_for_what_nobody_counted_shows_no_number_below_zero(world: World) -> None:
    await world.send()
    (claimed,) = await world.claim()
    await world.settle(world.taken(claimed))
    await world.give_up_receipts(THREE_DAYS)
    await world.rows("TRUNCATE traffic")
    await world.settle(world.reported(claimed))
    async with world.engine.database.connection() as connection:
        day = local_day(claimed.created_at)
        found = await daily_totals.days(connection, world.caller.id, day, day)
    assert found == [Day(day, "ZW", 1, 0, 0, 0, 0)]


async def waiting_of(world: World, caller: Caller, count_max: int = 1000) -> Sequence[Waiting]:
    async with world.engine.database.connection() as connection:
        return await daily_totals.waiting(connection, caller.id, count_max)


async def test_it_is_known_what_every_message_waits_for(world: World) -> None:
    await world.send(8)
    await world.send(to=SOUTH_AFRICANS)
    taken, ended, put_off, doubtful, _, _ = await world.claim(6)
    await world.settle(
        world.taken(taken),
        world.taken(ended),
        world.reported(ended),
        world.put_off(put_off),
        world.doubtful(doubtful),
    )
    (south_african,) = await claim_in(world, "ZA", 1)
    await world.settle(world.taken(south_african))
    other = await world.engine.open_account()
    await world.engine.send(other, numbers(1))

    assert await waiting_of(world, world.caller) == [
        Waiting("ZA", WaitReason.RECEIPT, 1),
        Waiting("ZA", WaitReason.TURN, 1),
        Waiting("ZW", WaitReason.DOUBT, 1),
        Waiting("ZW", WaitReason.RECEIPT, 1),
        Waiting("ZW", WaitReason.RETRY, 1),
        Waiting("ZW", WaitReason.SENDING, 2),
        Waiting("ZW", WaitReason.TURN, 2),
    ]
    assert await waiting_of(world, other) == [Waiting("ZW", WaitReason.TURN, 1)]
    await world.resume_due()
    assert Waiting("ZW", WaitReason.TURN, 4) in await waiting_of(world, world.caller)


async def test_messages_that_have_ended_do_not_hide_those_that_wait(world: World) -> None:
    now = datetime.now(UTC)
    old = await accepted(world, world.caller.id, now - timedelta(days=2), ["ZW"] * 30)
    await accepted(world, world.caller.id, now, ["ZA"] * 3)
    await world.settle(*(failed(one) for one in old[1:]))
    assert await waiting_of(world, world.caller, 4) == [
        Waiting("ZA", WaitReason.TURN, 3),
        Waiting("ZW", WaitReason.TURN, 1),
    ]
    # The oldest are looked at first, and it does not look for ever.
    assert await waiting_of(world, world.caller, 1) == [Waiting("ZW", WaitReason.TURN, 1)]


async def test_what_waits_is_counted_to_the_day_on_which_it_was_accepted(world: World) -> None:
    other = await world.engine.open_account()
    midnight = datetime.now(UTC).replace(hour=22, minute=0, second=0, microsecond=0) - timedelta(days=1)
    day = local_day(midnight)
    late = await accepted(world, world.caller.id, midnight - timedelta(milliseconds=1), ["ZW", "ZA"])
    await accepted(world, world.caller.id, midnight, ["ZW"])
    await accepted(world, world.caller.id, midnight + timedelta(minutes=1), ["ZW"] * 3)
    await accepted(world, other.id, midnight, ["ZW"])
    poor = await world.engine.open_account()
    assert await waiting_of(world, poor) == []
    async with world.engine.database.connection() as connection:
        assert await daily_totals.waiting_by_day(connection, poor.id) == []
        assert await daily_totals.waiting_by_day(connection, world.caller.id) == [
            (day - timedelta(days=1), 2),
            (day, 4),
        ]
        await world.settle(failed(late[0]))
        assert await daily_totals.waiting_by_day(connection, world.caller.id) == [
            (day - timedelta(days=1), 1),
            (day, 4),
        ]


async def test_a_country_is_without_a_carrier_unless_a_bind_that_serves_it_is_up_and_held(
    world: World,
) -> None:
    async with world.engine.database.connection() as connection:

        async def look() -> set[str]:
            without = await binds.countries_without_carrier(connection)
            assert await maintenance._well_countries(connection) == {"ZA", "ZW"} - without
            return without

        async def report(carrier_id: int, state: BindState) -> None:
            await binds.lease(connection, carrier_id, WORKER, [1], 60)
            await binds.report(connection, [BindReport(carrier_id, 1, WORKER, state, None, 0, None)], 60)

        assert await look() == {"ZA", "ZW"}
        await report(world.carrier_id, BindState.CONNECTING)
        assert await look() == {"ZA", "ZW"}
        await report(world.carrier_id, BindState.BOUND)
        assert await look() == set()
        await connection.execute("UPDATE binds SET leased_until = clock_timestamp()")
        assert await look() == {"ZA", "ZW"}

        await world.engine.add_carrier("two", 2776, ["ZA"])
        two = await carriers.find(connection, "two")
        assert two is not None
        await report(two.id, BindState.BOUND)
        assert await look() == {"ZW"}
        await carriers.remove(connection, "two")
        assert await look() == {"ZA", "ZW"}
