"""All transactions lock rows in one order, so that no two ever wait for each other in a circle.

Each test stops a transaction at a row that has to be locked early, and then checks whether it holds a row
that has to be locked later. If it does, another transaction that keeps the order can deadlock with it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

import pytest

from tests.support.delivery.engine import numbers
from tests.support.delivery.settling import BLOCKED, World
from tests.support.schedules.sends import schedule
from tests.support.uploads.files import check_file
from tumira.accounts import store as accounts
from tumira.audit_log import Actor
from tumira.delivery import follow_up
from tumira.delivery.lanes import Room
from tumira.delivery.recent import RecentSegments
from tumira.delivery.settle import settle
from tumira.delivery.store import binds, queue, receipts, settlement, waiting
from tumira.delivery.store.binds import BindReport, BindState
from tumira.delivery.store.queue import ClaimRequest
from tumira.identity.code_rules import AttemptLimits
from tumira.identity.store import attempts
from tumira.identity.store.attempts import AttemptKind
from tumira.identity.store.expired import delete_expired
from tumira.operations.erasure import store as erasure
from tumira.operations.erasure.erase import read_number
from tumira.postgres.connection import Connection
from tumira.postgres.pool import IN_KEY_ORDER, KEY_LOOKUPS
from tumira.pricing.actions import set_price
from tumira.pricing.destinations import Price, PriceStatus
from tumira.pricing.phone_numbers import Subject
from tumira.schedules import store as schedules
from tumira.uploads import store as uploads
from tumira.uploads.check_rows import Wanted as FileWanted
from tumira.webhooks.manage import add_endpoint

WAIT_S: Final = 20.0
# Long enough for nobody here to end it, and over at once when a test has set it back.
LEASE_S: Final = 60.0
# An UPDATE may find its rows in the order in which they lie in the table.
BY_PLACE: Final = {"enable_indexscan": "off", "enable_seqscan": "off"}
# Or in the order of a table that it is joined with by hash.
BY_HASH: Final = {"enable_nestloop": "off", "enable_mergejoin": "off"}
TWO_COUNTRIES: Final = ("+263771200001", "+27821230001")

Step = Callable[[Connection], Awaitable[object]]


async def write_again(world: World, table: str, row_id: UUID) -> None:
    await world.rows(
        f"WITH gone AS (DELETE FROM {table} WHERE id = $1 RETURNING *)"
        f" INSERT INTO {table} SELECT * FROM gone",
        row_id,
    )


@asynccontextmanager
async def stopped_at(
    world: World, step: Step, row: str, *arguments: object, settings: dict[str, str] | None = None
) -> AsyncIterator[None]:
    holder = await world.engine.database.connect()
    mover = await world.engine.database.connect(settings or {})

    async def move() -> None:
        async with mover.transaction():
            await step(mover)

    held = holder.transaction()
    await held.start()
    assert len(await holder.fetch(f"{row} FOR UPDATE", *arguments)) == 1
    moving = asyncio.create_task(move())
    try:
        async with asyncio.timeout(WAIT_S):
            while not await world.rows(BLOCKED):
                assert not moving.done(), "it did not wait"
                await asyncio.sleep(0.01)
        yield
    finally:
        await held.rollback()
        await moving
        await holder.close()
        await mover.close()


async def is_free(world: World, row: str, *arguments: object) -> bool:
    assert len(await world.rows(row, *arguments)) == 1
    return len(await world.rows(f"{row} FOR UPDATE SKIP LOCKED", *arguments)) == 1


async def claim(world: World, connection: Connection, worker: str = "one") -> None:
    wanted = [ClaimRequest(country, 10, 10, 20, 0, 0) for country in ("ZA", "ZW")]
    await queue.claim(
        connection, wanted, Room(20, 10, 20), worker=worker, bind="one/1", carrier_id=world.carrier_id
    )


@pytest.mark.parametrize("table", ["messages", "batches"])
async def test_a_claim_locks_messages_and_batches_by_id(world: World, table: str) -> None:
    for _ in range(2):
        await world.send()
    first, second = [row["id"] for row in await world.rows(f"SELECT id FROM {table} ORDER BY id")]
    await write_again(world, table, first)
    row = f"SELECT FROM {table} WHERE id = $1"
    as_a_worker = {**KEY_LOOKUPS, **IN_KEY_ORDER}
    async with stopped_at(world, lambda line: claim(world, line), row, first, settings=as_a_worker):
        assert await is_free(world, row, second)
    assert set(await world.engine.statuses()) == {"sending"}


@pytest.mark.parametrize("table", ["messages", "batches"])
async def test_receipts_settled_from_memory_lock_messages_and_batches_by_id(world: World, table: str) -> None:
    for _ in range(2):
        await world.send()
    claimed = await world.claim(2)
    first, second = [row["id"] for row in await world.rows(f"SELECT id FROM {table} ORDER BY id")]
    await write_again(world, table, first)
    now = datetime.now(UTC)
    segments = RecentSegments()
    remembered = {one.id: segments.add(world.taken(one), one.recipient, now) for one in claimed}
    outcomes = [told for one in reversed(claimed) for told in (world.taken(one), world.reported(one))]

    async def record(connection: Connection) -> None:
        await settle(connection, outcomes, worker="one", remembered=cast("Any", remembered))

    row = f"SELECT FROM {table} WHERE id = $1"
    async with stopped_at(world, record, row, first, settings={**KEY_LOOKUPS, **IN_KEY_ORDER}):
        assert await is_free(world, row, second)
        if table == "messages":
            assert await is_free(world, "SELECT FROM in_flight LIMIT 1")
        else:
            assert not await is_free(world, "SELECT FROM messages LIMIT 1")
    assert await world.engine.statuses() == {"delivered": 2}


async def test_receipts_of_several_carriers_are_settled_at_once(world: World) -> None:
    await world.engine.add_carrier("two", 2776, refund="failed")
    ((two,),) = await world.rows("SELECT id FROM carriers WHERE name = 'two'")
    await world.send(3)
    known, first, second = sorted(await world.claim(3), key=lambda one: one.id)
    # Somebody was told of something before, so that there is a counter to be locked.
    await world.settle(world.taken(known), world.reported(known))
    await world.settle(*(world.taken(one) for one in (first, second)))
    await world.rows("UPDATE parts SET carrier_id = $1 WHERE message_id = $2", two, second.id)
    now = datetime.now(UTC)
    async with world.engine.database.transaction() as connection:
        await receipts.insert_unmatched(
            connection, world.carrier_id, [(world.receipt(first, "UNDELIV"), now)]
        )
        await receipts.insert_unmatched(connection, two, [(world.receipt(second, "UNDELIV"), now)])
    await world.rows("UPDATE unmatched_receipts SET next_try_at = clock_timestamp()")
    # Who records for the second carrier holds its message, and may want to tell the account of another one.
    row = "SELECT FROM messages WHERE id = $1"
    async with stopped_at(world, follow_up.retry_unmatched_receipts, row, second.id):
        assert await is_free(world, "SELECT FROM event_counters")
    # Each by its own carrier's rule.
    assert await world.ending(first.id) == ("undelivered", "UNKNOWN", Decimal("0.04"))
    assert await world.ending(second.id) == ("undelivered", "UNKNOWN", Decimal(0))


async def test_messages_of_several_dead_workers_are_put_in_doubt_by_id(world: World) -> None:
    await world.send(2)
    await world.claim(1, worker="b")
    await world.claim(1, worker="a")
    first, second = [
        row["message_id"] for row in await world.rows("SELECT message_id FROM in_flight ORDER BY 1")
    ]
    await world.rows("UPDATE in_flight SET worker = CASE WHEN message_id = $1 THEN 'b' ELSE 'a' END", first)
    await world.rows("INSERT INTO workers (id, seen_at) VALUES ('a', 'epoch'), ('b', 'epoch')")
    row = "SELECT FROM messages WHERE id = $1"
    async with stopped_at(
        world, lambda line: follow_up.take_over_from_dead(line, world.settings, LEASE_S), row, first
    ):
        assert await is_free(world, row, second)
    assert await world.incidents() == {"doubt": 2}
    assert not await world.rows("SELECT FROM workers")


async def test_binds_of_several_dead_workers_are_given_back_by_number(world: World) -> None:
    for worker, number in (("a", 2), ("b", 1)):
        async with world.engine.database.connection() as connection:
            await binds.lease(connection, world.carrier_id, worker, [number], LEASE_S)
            await world.rows("INSERT INTO workers (id, seen_at) VALUES ($1, 'epoch')", worker)
    # A worker that takes what is free looks at the binds in the order of their numbers.
    row = "SELECT FROM binds WHERE number = $1"
    async with stopped_at(
        world, lambda line: follow_up.take_over_from_dead(line, world.settings, LEASE_S), row, 1
    ):
        assert await is_free(world, row, 2)
    assert not await world.rows("SELECT FROM binds")


async def test_messages_to_several_countries_without_a_route_fail_at_once(world: World) -> None:
    await world.send()
    (known,) = await world.claim()
    await world.settle(world.taken(known), world.reported(known))
    await world.send(to=TWO_COUNTRIES)
    countries = [row["country"] for row in await world.rows("SELECT country FROM destinations")]
    row = "SELECT FROM messages WHERE country = $1 AND status = 'queued'"
    async with stopped_at(world, lambda line: follow_up.fail_unroutable(line, ()), row, countries[-1]):
        assert await is_free(world, "SELECT FROM event_counters")
    assert (await world.engine.statuses())["failed"] == 2


async def test_an_account_is_locked_when_its_messages_are_written(world: World) -> None:
    await world.send(3)

    async def expire(line: Connection) -> None:
        found = await follow_up.list_expired(line, datetime.now(UTC) + timedelta(hours=25))
        await follow_up.expire(line, found, {"ZW"})

    # Its calls wait for whoever holds it, so it is not held while the queue and the messages are written.
    account = "SELECT FROM accounts WHERE id = $1"
    async with stopped_at(world, expire, account, world.caller.id):
        assert not await is_free(world, "SELECT FROM queue LIMIT 1")
        assert not await is_free(world, "SELECT FROM messages LIMIT 1")
    assert await world.engine.statuses() == {"expired": 3}


async def test_accounts_that_are_refunded_are_locked_by_id(world: World) -> None:
    callers = sorted((world.caller, await world.engine.open_account()), key=lambda one: one.id)
    for caller in reversed(callers):
        await world.engine.send(caller, numbers(1))
    claimed = sorted(await world.claim(2), key=lambda one: one.account_id, reverse=True)
    await world.settle(*(world.taken(one) for one in claimed))
    first, second = (one.id for one in callers)
    await write_again(world, "accounts", first)
    outcomes = [world.reported(one, "UNDELIV") for one in claimed]

    async def record(connection: Connection) -> None:
        await settle(connection, outcomes, worker="one")

    row = "SELECT FROM accounts WHERE id = $1"
    async with stopped_at(world, record, row, first, settings=BY_PLACE):
        assert await is_free(world, row, second)
    assert await world.engine.statuses() == {"undelivered": 2}


@pytest.mark.parametrize("skip_locked", [False, True])
async def test_messages_are_locked_by_id(world: World, *, skip_locked: bool) -> None:
    await world.send(2)
    first, second = [row["id"] for row in await world.rows("SELECT id FROM messages ORDER BY id")]
    await write_again(world, "messages", first)
    row = "SELECT FROM messages WHERE id = $1"

    async def lock(connection: Connection) -> None:
        locked = await settlement.lock_messages(connection, [second, first], skip_locked=skip_locked)
        assert list(locked) == [first, second]

    if skip_locked:
        async with world.engine.database.transaction() as connection:
            await lock(connection)
            assert await settlement.lock_messages(connection, [first]) != {}
            async with world.engine.database.transaction() as other:
                assert await settlement.lock_messages(other, [first, second], skip_locked=True) == {}
        return
    async with stopped_at(world, lock, row, first, settings=BY_PLACE):
        assert await is_free(world, row, second)


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_message_that_leaves_the_queue_waits_for_nobody_who_claims_it(
    world: World, *, is_known: bool
) -> None:
    await world.send(2)
    rows = await world.rows("SELECT message_id, country, lane, turn FROM queue ORDER BY turn, message_id")
    found = {row["message_id"]: (row["country"], row["lane"], row["turn"]) for row in rows}
    first, _ = found
    async with world.engine.database.transaction() as claiming:
        await claiming.execute("SELECT FROM queue WHERE message_id = $1 FOR UPDATE", first)
        async with world.engine.database.transaction() as connection:
            await connection.execute("SET LOCAL lock_timeout = '2s'")
            countries = dict.fromkeys(found, "ZW")
            await waiting.delete_waiting(connection, countries, found if is_known else {})
            left = await connection.fetch("SELECT message_id FROM queue")
            assert [row["message_id"] for row in left] == [first]
            await connection.execute("ROLLBACK; BEGIN")


async def test_batches_are_locked_by_id(world: World) -> None:
    for _ in range(2):
        await world.send()
    first, second = [row["id"] for row in await world.rows("SELECT id FROM batches ORDER BY id")]
    await write_again(world, "batches", first)
    row = "SELECT FROM batches WHERE id = $1"
    async with stopped_at(
        world, lambda line: settlement.lock_batches(line, [second, first]), row, first, settings=BY_PLACE
    ):
        assert await is_free(world, row, second)


@pytest.mark.parametrize("settings", [BY_PLACE, BY_HASH], ids=["by place", "by hash"])
@pytest.mark.parametrize("step", ["report", "release", "lease"])
async def test_a_worker_writes_its_binds_in_the_order_of_their_numbers(
    world: World, step: str, settings: dict[str, str]
) -> None:
    async with world.engine.database.connection() as connection:
        for number in (2, 1):
            await binds.lease(connection, world.carrier_id, "one", [number], LEASE_S)
    places = [(world.carrier_id, number) for number in (2, 1)]
    told = [BindReport(*place, "one", BindState.BOUND, None, 0, None) for place in places]
    steps: dict[str, Step] = {
        "report": lambda line: binds.report(line, told, LEASE_S),
        "release": lambda line: binds.release(line, "one", places),
        "lease": lambda line: binds.lease(line, world.carrier_id, "one", [2, 1], LEASE_S),
    }
    row = "SELECT FROM binds WHERE number = $1"
    async with stopped_at(world, steps[step], row, 1, settings=settings):
        assert await is_free(world, row, 2)
    assert len(await world.rows("SELECT FROM binds")) == (0 if step == "release" else 2)


async def test_a_number_is_erased_from_schedules_by_id(world: World) -> None:
    number = "+263771200001"
    made = [await schedule(world.engine.database, world.caller.id, [number]) for _ in range(2)]
    first, second = sorted(made)
    await write_again(world, "schedules", first)
    erased = Subject("263", number.removeprefix("+263"))
    row = "SELECT FROM schedules WHERE id = $1"
    async with stopped_at(
        world,
        lambda line: schedules.erase_number(line, erased, UUID(int=(1 << 128) - 1)),
        row,
        first,
        settings=BY_PLACE,
    ):
        assert await is_free(world, row, second)


async def test_clocks_are_published_in_the_order_of_their_lanes(world: World) -> None:
    async with world.engine.database.connection() as connection:
        await queue.publish_clocks(connection, {("ZW", 0): 1, ("ZW", 1): 1})
    row = "SELECT FROM clocks WHERE country = 'ZW' AND lane = $1"
    async with stopped_at(
        world, lambda line: queue.publish_clocks(line, {("ZW", 1): 5, ("ZW", 0): 5}), row, 0
    ):
        assert await is_free(world, row, 1)
    turns = await world.rows("SELECT turn FROM clocks WHERE country = 'ZW'")
    assert [clock["turn"] for clock in turns] == [5, 5]


async def test_a_price_is_locked_after_the_tariff(world: World) -> None:
    price = Price("sms", "ZW", Decimal("0.05"), PriceStatus.ACTIVE)

    async def change(_line: Connection) -> None:
        await set_price(world.engine.database, price, Actor("tester"))

    async with stopped_at(world, change, "SELECT FROM tariff"):
        assert await is_free(world, "SELECT FROM prices WHERE country = 'ZW' AND status = 'active'")


async def test_closing_an_account_locks_its_endpoints_by_id(world: World) -> None:
    ids = []
    for place in range(2):
        endpoint, _ = await add_endpoint(
            world.engine.database,
            world.caller.id,
            f"https://example.com/{place}",
            None,
            "",
            allow_private=False,
        )
        ids.append(endpoint.id)
    first, second = sorted(ids)
    await write_again(world, "webhook_endpoints", first)
    row = "SELECT FROM webhook_endpoints WHERE id = $1"
    async with stopped_at(
        world, lambda line: accounts.close(line, world.caller.id), row, first, settings=BY_PLACE
    ):
        assert await is_free(world, row, second)


async def test_who_forgets_old_tries_waits_for_nobody(world: World) -> None:
    async with world.engine.database.connection() as connection:
        for phone in ("+263771200001", "+263771200002"):
            kind, limits = AttemptKind.PASSWORD, AttemptLimits()
            assert await attempts.take(connection, kind, phone, "127.0.0.1", limits) is None
    await world.rows("UPDATE attempts SET at = at - interval '2 days'")
    async with world.engine.database.transaction() as signing_in:
        await attempts.forgive(signing_in, "+263771200001", "127.0.0.1")
        async with world.engine.database.connection() as connection, asyncio.timeout(WAIT_S):
            assert await delete_expired(connection, 10) == 1


async def test_who_forgets_old_files_passes_over_those_that_are_being_erased(world: World) -> None:
    wanted = FileWanted(
        "people.csv", b"to,name\n+263771200001,Ada\n12,+263771200009", "Your parcel is here.", None, ""
    )
    upload_id = await check_file(world.engine.database, world.caller.id, wanted)
    assert isinstance(upload_id, UUID), upload_id
    await world.rows("UPDATE uploads SET created_at = created_at - interval '1 year'")
    subject = await read_number(world.engine.database, "+263771200009")
    async with world.engine.database.transaction() as erasing:
        erased = await erasure.erase_faults(erasing, subject, (), UUID(int=(1 << 128) - 1), 10)
        assert erased.others == {"bad_file_rows": 1}
        async with world.engine.database.connection() as connection, asyncio.timeout(WAIT_S):
            assert await uploads.erase_old(connection, 10) == 0
    async with world.engine.database.connection() as connection:
        assert await uploads.erase_old(connection, 10) == 1
