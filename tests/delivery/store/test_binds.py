"""Leases of binds that one worker holds at a time, and the health of carriers that follows from them."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import asyncpg
import pytest
import pytest_asyncio
from msgspec import structs

from tests.support.postgres.databases import sibling
from tumira.carriers import store as carriers
from tumira.carriers import url as carrier_url
from tumira.carriers.store import Carrier
from tumira.delivery.carrier_health import CarrierHealth, list_carriers
from tumira.delivery.store import binds
from tumira.delivery.store.binds import BindReport, BindState
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

SETTINGS: Final = carrier_url.parse("smpp://user:hushhush@smpp.example.com?window=10&tps=50&binds=4")
LEASE_S: Final = 60.0
ENDED_S: Final = 0.0
RACES: Final = 40


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[Connection]:
    async with database.connection() as connection:
        yield connection


@pytest_asyncio.fixture
async def rival(database: Database) -> AsyncIterator[Connection]:
    async with database.connection() as connection:
        yield connection


@pytest_asyncio.fixture
async def carrier_id(connection: Connection) -> int:
    await carriers.upsert(connection, "main", SETTINGS, None, 100)
    return (await existing(connection, "main")).id


async def existing(connection: Connection, name: str) -> Carrier:
    found = await carriers.find(connection, name)
    assert found is not None
    return found


def told(carrier_id: int, number: int, state: BindState = BindState.BOUND, worker: str = "one") -> BindReport:
    return BindReport(carrier_id, number, worker, state, problem=None, outstanding=3, pace=50)


async def test_a_bind_is_leased_once_until_its_lease_ends(connection: Connection, carrier_id: int) -> None:
    assert await binds.lease(connection, carrier_id, "one", [2, 1, 2], LEASE_S) == [1, 2]
    assert await binds.lease(connection, carrier_id, "two", [1, 2, 3], LEASE_S) == [3]
    assert await binds.lease(connection, carrier_id, "one", [1, 2, 3], ENDED_S) == [1, 2]
    # Its own lease has ended, and it may have it again as long as nobody else took it.
    assert await binds.lease(connection, carrier_id, "one", [1], LEASE_S) == [1]
    assert await binds.lease(connection, carrier_id, "two", [1, 2], LEASE_S) == [2]
    assert await binds.lease(connection, carrier_id, "one", [], LEASE_S) == []
    holders = [(bind.number, bind.worker, bind.lease_valid) for bind in await binds.list_binds(connection)]
    assert holders == [(1, "one", True), (2, "two", True), (3, "two", True)]


async def test_a_renewed_lease_keeps_what_was_told_and_a_new_holder_starts_afresh(
    connection: Connection, carrier_id: int
) -> None:
    await binds.lease(connection, carrier_id, "one", [1], LEASE_S)
    await binds.report(
        connection, [structs.replace(told(carrier_id, 1, BindState.FAILING), problem="x" * 500)], LEASE_S
    )
    (before,) = await binds.list_binds(connection)
    assert (before.state, before.problem, before.outstanding, before.pace) == ("failing", "x" * 200, 3, 50)

    await binds.lease(connection, carrier_id, "one", [1], ENDED_S)
    assert await binds.list_binds(connection) == [structs.replace(before, lease_valid=False)]

    await binds.lease(connection, carrier_id, "two", [1], LEASE_S)
    (after,) = await binds.list_binds(connection)
    assert (after.worker, after.state, after.problem) == ("two", "connecting", None)
    assert (after.outstanding, after.pace, after.lease_valid) == (0, None, True)
    assert after.since > before.since
    # Since when changes with the state alone.
    seen = []
    for state in (BindState.BOUND, BindState.BOUND, BindState.DOWN):
        await binds.report(connection, [told(carrier_id, 1, state, "two")], LEASE_S)
        (bind,) = await binds.list_binds(connection)
        seen.append(bind.since)
    assert seen[0] == seen[1] < seen[2]


async def test_a_report_renews_what_is_still_held_and_says_what_is(
    connection: Connection, carrier_id: int
) -> None:
    await binds.lease(connection, carrier_id, "one", [1, 2], ENDED_S)
    await binds.lease(connection, carrier_id, "two", [2, 3], LEASE_S)
    reports = [told(carrier_id, number) for number in (4, 3, 2, 1)]

    assert await binds.report(connection, reports, LEASE_S) == {(carrier_id, 1)}
    kept = {bind.number: bind for bind in await binds.list_binds(connection)}
    assert [(one.worker, one.state, one.lease_valid) for one in kept.values()] == [
        ("one", "bound", True),
        ("two", "connecting", True),
        ("two", "connecting", True),
    ]
    assert await binds.report(connection, [], LEASE_S) == set()
    # And a worker gives back its own binds alone.
    await binds.release(connection, "two", [(carrier_id, 1), (carrier_id, 3), (carrier_id + 1, 2)])
    assert [bind.number for bind in await binds.list_binds(connection)] == [1, 2]


async def test_a_dead_worker_is_buried_by_one_and_its_binds_are_free(
    connection: Connection, rival: Connection, carrier_id: int
) -> None:
    # Each counts those that were seen.
    seen = [await binds.heartbeat(connection, worker, LEASE_S) for worker in ("one", "two", "one")]
    assert seen == [1, 2, 2]
    await binds.lease(connection, carrier_id, "one", [1, 2], LEASE_S)
    await binds.lease(connection, carrier_id, "two", [3], LEASE_S)
    assert await binds.lock_dead_workers(connection, LEASE_S) == []
    await connection.execute("UPDATE workers SET seen_at = seen_at - interval '61 s' WHERE id = 'one'")

    async with connection.transaction():
        assert await binds.lock_dead_workers(connection, LEASE_S) == ["one"]
        assert await binds.lock_dead_workers(rival, LEASE_S) == []
        # One that is not dead after all waits for its burial, and then lives again without its binds.
        risen = asyncio.create_task(binds.heartbeat(rival, "one", LEASE_S))
        await binds.delete_workers(connection, ["one"])

    assert await risen == 2
    assert await binds.lock_dead_workers(connection, LEASE_S) == []
    assert await binds.report(connection, [told(carrier_id, 1)], LEASE_S) == set()
    assert [bind.worker for bind in await binds.list_binds(connection)] == ["two"]


async def until(holds: Callable[[], Awaitable[object]]) -> None:
    for _ in range(3000):
        if await holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


async def test_a_dead_worker_that_froze_inside_a_statement_lets_go_of_its_rows(
    connection: Connection, database_url: str
) -> None:
    frozen = Database(database_url, connections_max=1)
    frozen.name_sessions("host:1:dead")
    try:
        wire = await frozen.connect()
        await binds.heartbeat(connection, "host:1:dead", LEASE_S)
        await connection.execute("UPDATE workers SET seen_at = seen_at - interval '61 s'")
        await wire.execute("BEGIN; SELECT FROM workers FOR UPDATE")
        # A statement is announced, and nothing follows: the server waits for the rest, and is not idle.
        wire._transport.write(  # type: ignore[attr-defined]
            b"P" + struct.pack("!i", 4 + 10 + 2) + b"\0SELECT 1\0" + struct.pack("!h", 0)
        )
        is_active = "SELECT state = 'active' FROM pg_stat_activity WHERE pid = $1"
        await until(lambda: connection.fetchval(is_active, wire.get_server_pid()))
        assert await binds.lock_dead_workers(connection, LEASE_S) == []

        assert await binds.end_sessions_of_dead_workers(connection, LEASE_S) == 1
        await until(lambda: binds.lock_dead_workers(connection, LEASE_S))
    finally:
        wire.terminate()
        await frozen.close()


async def test_of_two_workers_that_race_for_a_bind_exactly_one_gets_it(
    connection: Connection, rival: Connection, carrier_id: int
) -> None:
    won: dict[str, int] = {"one": 0, "two": 0}
    for number in range(RACES):
        if number % 2:
            # Every other time there is a row already, left by a worker that is gone.
            await binds.lease(connection, carrier_id, "gone", [number], ENDED_S)
        one, two = await asyncio.gather(
            binds.lease(connection, carrier_id, "one", [number], LEASE_S),
            binds.lease(rival, carrier_id, "two", [number], LEASE_S),
        )
        assert sorted([*one, *two]) == [number]
        won["one"] += len(one)
        won["two"] += len(two)
    held = [bind.worker for bind in await binds.list_binds(connection)]
    assert {worker: held.count(worker) for worker in won} == won


async def test_without_the_look_under_the_lock_both_would_get_it(
    connection: Connection, rival: Connection, carrier_id: int
) -> None:
    async def is_free(line: Connection) -> bool:
        return not await line.fetchval("SELECT EXISTS (SELECT FROM binds WHERE leased_until > now())")

    async def take(line: Connection, worker: str) -> None:
        await line.execute(
            "INSERT INTO binds (carrier_id, number, worker, leased_until, state)"
            " VALUES ($1, 1, $2, now() + interval '1 minute', 'connecting')"
            " ON CONFLICT (carrier_id, number) DO UPDATE SET worker = excluded.worker",
            carrier_id,
            worker,
        )

    looks = [await is_free(connection), await is_free(rival)]
    await take(connection, "one")
    await take(rival, "two")
    assert looks == [True, True]


async def test_workers_that_lease_report_and_give_back_at_once_never_block_each_other(
    database: Database, carrier_id: int
) -> None:
    numbers = list(range(1, 9))

    async def work(worker: str, order: Sequence[int]) -> None:
        async with database.connection() as line:
            for _ in range(20):
                mine = await binds.lease(line, carrier_id, worker, order, ENDED_S)
                reports = [told(carrier_id, number, worker=worker) for number in order if number in mine]
                await binds.report(line, reports, ENDED_S)
                await binds.release(line, worker, [(carrier_id, number) for number in order[::3]])
                await binds.delete_workers(line, [worker])

    # A deadlock would be an error of one of them.
    await asyncio.gather(*(work(str(place), numbers[:: 1 if place % 2 else -1]) for place in range(4)))


async def test_a_carrier_is_as_well_as_the_best_of_its_binds(
    database: Database, connection: Connection, carrier_id: int
) -> None:
    async def health() -> CarrierHealth:
        (state,) = await list_carriers(database)
        return state.health

    assert await health() == "no worker"
    await binds.lease(connection, carrier_id, "one", [1, 2], LEASE_S)
    assert await health() == "down"
    for state, word in (
        (BindState.DOWN, "down"),
        (BindState.FAILING, "failing"),
        (BindState.THROTTLED, "throttled"),
        (BindState.BOUND, "well"),
    ):
        reports = [told(carrier_id, 1, state), told(carrier_id, 2, BindState.DOWN)]
        await binds.report(connection, reports, LEASE_S)
        assert await health() == word
    await binds.lease(connection, carrier_id, "one", [1], ENDED_S)
    assert await health() == "down"


async def test_only_the_sessions_of_a_dead_worker_in_this_database_are_ended(
    database_url: str, connection: Connection
) -> None:
    async def open_session(worker: str, url: str = database_url) -> asyncpg.Connection:
        return await asyncpg.connect(url, server_settings={"application_name": f"tumira {worker}"})

    for worker in ("dead", "alive"):
        await binds.heartbeat(connection, worker, LEASE_S)
    await connection.execute("UPDATE workers SET seen_at = 'epoch' WHERE id = 'dead'")
    dead, alive = await open_session("dead"), await open_session("alive")
    elsewhere = await open_session("dead", sibling(database_url, "postgres"))
    try:
        assert await binds.end_sessions_of_dead_workers(connection, LEASE_S) == 1
        assert await alive.fetchval("SELECT 1") == await elsewhere.fetchval("SELECT 1") == 1
        with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.PostgresError)):
            await dead.fetchval("SELECT 1")
    finally:
        for session in (dead, alive, elsewhere):
            await session.close(timeout=5)


async def test_a_worker_that_was_taken_for_dead_does_not_end_the_session_on_which_it_asks(
    database_url: str,
) -> None:
    database = Database(database_url, connections_max=1)
    database.name_sessions("late")
    try:
        async with database.connection() as line:
            await binds.heartbeat(line, "late", LEASE_S)
            await line.execute("UPDATE workers SET seen_at = 'epoch'")
            assert await binds.end_sessions_of_dead_workers(line, LEASE_S) == 0
            assert await line.fetchval("SELECT 1") == 1
    finally:
        await database.close()


async def test_a_report_and_a_release_are_of_one_bind_of_one_carrier(
    connection: Connection, carrier_id: int
) -> None:
    await carriers.upsert(connection, "other", SETTINGS, None, 100)
    other_id = (await existing(connection, "other")).id
    for carrier in (carrier_id, other_id):
        await binds.lease(connection, carrier, "one", [1, 2], LEASE_S)
    assert await binds.report(connection, [told(carrier_id, 1)], LEASE_S) == {(carrier_id, 1)}
    states = {(bind.carrier_id, bind.number): bind.state for bind in await binds.list_binds(connection)}
    assert states == {
        (carrier_id, 1): "bound",
        (carrier_id, 2): "connecting",
        (other_id, 1): "connecting",
        (other_id, 2): "connecting",
    }
    await binds.release(connection, "one", [(carrier_id, 1)])
    left = [(bind.carrier_id, bind.number) for bind in await binds.list_binds(connection)]
    assert left == [(carrier_id, 2), (other_id, 1), (other_id, 2)]


async def test_binds_are_listed_by_carrier_and_number(connection: Connection, carrier_id: int) -> None:
    await carriers.upsert(connection, "other", SETTINGS, None, 100)
    other_id = (await existing(connection, "other")).id
    for carrier, number in ((other_id, 1), (carrier_id, 2), (other_id, 2), (carrier_id, 1)):
        await binds.lease(connection, carrier, "one", [number], LEASE_S)
    listed = [(bind.carrier_id, bind.number) for bind in await binds.list_binds(connection)]
    assert listed == [(carrier_id, 1), (carrier_id, 2), (other_id, 1), (other_id, 2)]


async def test_who_gives_back_binds_waits_for_nobody_who_writes_those_of_others(
    connection: Connection, rival: Connection, carrier_id: int
) -> None:
    await binds.lease(connection, carrier_id, "one", [1], LEASE_S)
    await binds.lease(connection, carrier_id, "two", [2], LEASE_S)
    await binds.lease(connection, carrier_id, "dead", [3], LEASE_S)
    async with rival.transaction(), connection.transaction():
        await rival.execute("SELECT FROM binds WHERE number = 1 FOR UPDATE")
        await connection.execute("SET LOCAL lock_timeout = '2s'")
        await binds.release(connection, "two", [(carrier_id, 1), (carrier_id, 2)])
        await binds.delete_workers(connection, ["dead"])
    assert [bind.worker for bind in await binds.list_binds(connection)] == ["one"]


async def test_a_country_has_a_carrier_while_one_that_covers_it_is_bound(
    connection: Connection, carrier_id: int
) -> None:
    async def without() -> set[str]:
        return await binds.countries_without_carrier(connection)

    async def bound(carrier: int, state: BindState = BindState.BOUND) -> None:
        await binds.report(connection, [told(carrier, 1, state)], LEASE_S)

    everywhere = {"ZA", "ZW"}
    await binds.lease(connection, carrier_id, "one", [1], LEASE_S)
    for state in set(BindState) - {BindState.BOUND}:
        await bound(carrier_id, state)
        assert await without() == everywhere
    await bound(carrier_id)
    assert await without() == set()
    await carriers.upsert(connection, "main", SETTINGS, ["ZW"], 100)
    assert await without() == {"ZA"}
    await carriers.remove(connection, "main")
    assert await without() == everywhere
    # The simulator counts where no other carrier is in use, and one that was removed is not.
    await carriers.upsert(connection, "trial", SETTINGS, None, 1000, simulator=True)
    trial_id = (await existing(connection, "trial")).id
    await binds.lease(connection, trial_id, "one", [1], LEASE_S)
    await bound(trial_id)
    assert await without() == set()
    await carriers.upsert(connection, "main", SETTINGS, ["ZW"], 100)
    assert await without() == set()
    await bound(carrier_id, BindState.DOWN)
    assert await without() == {"ZW"}
