"""Latency statistics are added up, kept for two weeks, and read by index."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.delivery.settling import World
from tests.support.postgres.databases import clone
from tumira.core.ids import BatchId, first_id, message_ids, new_id
from tumira.delivery.outcomes import CarrierRefused
from tumira.delivery.store import hourly
from tumira.delivery.store import latency as latencies
from tumira.delivery.store.latency import (
    EndCount,
    LatencyStep,
    NetworkEnds,
    NetworkTimes,
    SubmissionCount,
    Windows,
)
from tumira.operations import totals
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.operations.totals import Accepted, Elsewhere
from tumira.postgres.pool import KEY_LOOKUPS, PLANNED_ONCE, Database
from tumira.postgres.statement import Statement

NOW: Final = datetime(2026, 11, 16, 12, 34, 56, 789, UTC)
SLOT: Final = datetime(2026, 11, 16, 12, 30, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
FORGET: Final = next(task for task in MAINTENANCE_TASKS if task.name == "forget old latencies")


@pytest.fixture(scope="module")
def shared_url(server_url: str) -> Iterator[str]:
    with clone(server_url) as url:
        yield url


@pytest_asyncio.fixture
async def database(shared_url: str) -> AsyncIterator[Database]:
    database = Database(shared_url, settings=KEY_LOOKUPS)
    async with database.connection() as connection:
        await connection.execute("TRUNCATE latencies, outcomes, traffic, queue, retries, in_flight, messages")
    yield database
    await database.close()


def test_a_slot_is_ten_minutes() -> None:
    assert latencies.slot_of(NOW) == SLOT
    assert latencies.slot_of(SLOT) == SLOT
    assert latencies.slot_of(SLOT - timedelta(microseconds=1)) == SLOT - latencies.SLOT


async def test_counts_of_several_workers_are_added_up(database: Database) -> None:
    timings = {
        (LatencyStep.SUBMISSION.value, "Econet", "ZW", 0, 4): 3,
        (LatencyStep.SUBMISSION.value, "Econet", "ZW", 1, 9): 2,
        (LatencyStep.RECEIPT.value, "Econet", "ZW", 0, 8): 5,
    }
    outcomes = {(1, "Econet", "ZW", "delivered"): 4, (1, "Econet", "ZW", "RTHROTTLED (0x58)"): 1}

    async def work(slot: datetime) -> None:
        async with database.transaction() as connection:
            await latencies.add_timings(connection, slot, timings)
            await latencies.add_outcomes(connection, slot, outcomes)

    await asyncio.gather(*(work(SLOT) for _ in range(4)), work(SLOT - HOUR))
    async with database.connection() as connection:
        assert await latencies.list_submissions(connection, SLOT - HOUR, SLOT) == [
            SubmissionCount("ZW", 0, 4, 12, 15),
            SubmissionCount("ZW", 1, 9, 8, 10),
        ]
        assert await latencies.list_ends(connection, SLOT - HOUR, SLOT) == [
            EndCount("ZW", "RTHROTTLED (0x58)", 4, 5),
            EndCount("ZW", "delivered", 16, 20),
        ]
        day_later = NOW + timedelta(days=1)
        windows = Windows.until(NOW, (0, 1, 2), 7)
        later = Windows.until(day_later, (1, 2, 3), 7)
        assert await latencies.list_network_times(connection, windows, NOW) == [
            NetworkTimes(LatencyStep.SUBMISSION, "Econet", "ZW", 4, (12, 15, 15, 0)),
            NetworkTimes(LatencyStep.RECEIPT, "Econet", "ZW", 8, (20, 25, 25, 0)),
        ]
        assert await latencies.list_network_ends(connection, windows, NOW, ["delivered"]) == [
            NetworkEnds("Econet", "ZW", "delivered", (16, 20, 20, 0))
        ]
        # At the same time of the next day, this is what is usual.
        assert await latencies.list_network_ends(connection, later, day_later, ["delivered"]) == [
            NetworkEnds("Econet", "ZW", "delivered", (0, 0, 0, 20))
        ]


async def test_slots_are_forgotten_after_two_weeks_and_not_before(database: Database) -> None:
    now = datetime.now(UTC)
    for days in (13, 15):
        slot = latencies.slot_of(now - timedelta(days=days))
        async with database.connection() as connection:
            await latencies.add_timings(connection, slot, {("handover", "Econet", "ZW", 0, 4): 1})
            await latencies.add_outcomes(connection, slot, {(1, "Econet", "ZW", "delivered"): 1})
    assert await run_task(database, FORGET) == 2
    assert await run_task(database, FORGET) == 0
    async with database.connection() as connection:
        for table in ("latencies", "outcomes"):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 1


async def test_what_no_carrier_ended_is_counted_with_its_end(world: World) -> None:
    await world.send(3)
    (claimed,) = await world.claim(1)
    await world.settle(CarrierRefused(claimed.id, "CARRIER_REJECTED"))
    await world.expire_waiting(timedelta(hours=25))
    rows = await world.rows("SELECT carrier_id, network, country, outcome, count FROM outcomes ORDER BY 4")
    assert [tuple(row) for row in rows] == [
        (latencies.NO_CARRIER, "Econet", "ZW", "CARRIER_REJECTED", 1),
        (latencies.NO_CARRIER, "Econet", "ZW", "QUEUE_EXPIRED", 2),
        (latencies.NO_CARRIER, "Econet", "ZW", "expired", 2),
        (latencies.NO_CARRIER, "Econet", "ZW", "failed", 1),
    ]


async def add_messages(
    connection: "asyncpg.Connection[asyncpg.Record]", at: datetime, count: int, country: str = "ZW"
) -> None:
    batch_id = BatchId(new_id(int(at.timestamp() * 1000)))
    await connection.executemany(
        "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost)"
        " VALUES ($1, $2, $2, 1, $3, '+263771200001', 0)",
        [(identifier, batch_id, country) for identifier in message_ids(batch_id, count)],
    )


@pytest.mark.usefixtures("database")
async def test_what_was_accepted_is_counted_and_beyond_a_bound_concluded(shared_url: str) -> None:
    now = datetime.now(UTC)
    connection = await asyncpg.connect(shared_url)
    await add_messages(connection, now - timedelta(minutes=5), 20)
    await add_messages(connection, now - timedelta(minutes=50), 10)
    await add_messages(connection, now - timedelta(minutes=50), 7, "ZA")
    await add_messages(connection, now - timedelta(minutes=70), 500)
    bounds = (now - HOUR, now - timedelta(minutes=10), now)
    assert await totals.accepted(connection, *bounds) == [
        Accepted("ZA", 0, 7, is_estimate=False),
        Accepted("ZW", 20, 30, is_estimate=False),
    ]
    # Twenty in five minutes are forty in ten, and 240 in an hour.
    (estimate,) = await totals.accepted(connection, *bounds, count_max=20)
    assert estimate == Accepted("ZW", 40, 240, is_estimate=True)
    await connection.close()


async def test_what_waits_is_counted_by_country_and_lane_with_the_age_of_its_oldest(
    database: Database,
) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    async with database.connection() as connection:
        rows = [
            ("ZW", 0, 5, now_ms),
            ("ZW", 1, 1, now_ms - 1_000),
            ("ZW", 1, 2, now_ms - 60_000),
            ("ZW", 1, 3, now_ms - 2_000),
            ("ZA", 1, 9, now_ms - 5_000),
        ]
        await connection.executemany(
            "INSERT INTO queue (country, lane, turn, message_id) VALUES ($1, $2, $3, $4)",
            [(country, lane, turn, new_id(at_ms)) for country, lane, turn, at_ms in rows],
        )
        await connection.execute("INSERT INTO retries VALUES (gen_random_uuid(), now(), true, 1)")
        await connection.execute(
            "INSERT INTO retries SELECT gen_random_uuid(), now(), false, 1 FROM generate_series(1, 2)"
        )
        await connection.execute(
            "INSERT INTO in_flight SELECT gen_random_uuid(), 'w', 'b', now(), 1 FROM generate_series(1, 4)"
        )
        found = [(one.country, one.lane, one.count, one.oldest_ms) for one in await totals.stands(connection)]
        assert found == [
            ("ZA", 1, 1, now_ms - 5_000),
            ("ZW", 0, 1, now_ms),
            ("ZW", 1, 3, now_ms - 60_000),
        ]
        assert [one.count for one in await totals.stands(connection, 2)] == [1, 1, 2]
        assert await totals.elsewhere(connection) == Elsewhere(in_flight=4, retries=2, in_doubt=1)
        assert await totals.elsewhere(connection, 2) == Elsewhere(in_flight=2, retries=1, in_doubt=1)


# Ten days of slots and a year of days, of which a page wants some; and a long queue.
FULL: Final = """
    INSERT INTO latencies
    SELECT timestamptz '2026-11-16 12:30Z' - back * interval '10 minutes', step, network, 'ZW', lane, bucket,
           1
      FROM generate_series(0, 1499) back, unnest(ARRAY['handover', 'receipt']) step,
           unnest(ARRAY['Econet', 'NetOne']) network, generate_series(0, 1) lane,
           generate_series(3, 7) bucket;
    INSERT INTO outcomes
    SELECT timestamptz '2026-11-16 12:30Z' - back * interval '10 minutes', 1, network, 'ZW', outcome, 1
      FROM generate_series(0, 1499) back, unnest(ARRAY['Econet', 'NetOne']) network,
           unnest(ARRAY['delivered', 'undelivered', 'failed', 'expired', 'unconfirmed']) outcome;
    INSERT INTO traffic (account_id, day, country, delivered)
    SELECT md5(account::text)::uuid, date '2026-11-16' - back, 'ZW', 1
      FROM generate_series(1, 50) account, generate_series(0, 364) back;
    INSERT INTO queue (country, lane, turn, message_id)
    SELECT 'ZW', 1, turn, gen_random_uuid() FROM generate_series(1, 10000) turn;
    INSERT INTO in_flight SELECT gen_random_uuid(), 'w', 'b', now(), 1 FROM generate_series(1, 10000);
    INSERT INTO retries SELECT gen_random_uuid(), now(), false, 1 FROM generate_series(1, 10000);
"""


def nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for one in node:
            yield from nodes(one)
    elif isinstance(node, dict):
        if "Node Type" in node:
            yield node
        for one in node.values():
            yield from nodes(one)


def literal(value: Any) -> str:
    return "'{" + ",".join(f'"{one}"' for one in value) + "}'" if isinstance(value, list) else f"'{value}'"


async def rows_read(
    connection: "asyncpg.Connection[asyncpg.Record]", statement: Statement, **values: Any
) -> int:
    arguments = ", ".join(literal(values[name]) for name in statement.names)
    await connection.execute(f"PREPARE explained AS {statement.text}")
    rows: Sequence[asyncpg.Record] = await connection.fetch(
        f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF, COSTS OFF) EXECUTE explained ({arguments})"
    )
    await connection.execute("DEALLOCATE explained")
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(json.loads(rows[0][0]))
        if "Scan" in node["Node Type"]
        and node.get("Relation Name", "destinations") not in {"destinations", "lanes"}
    )


@pytest.mark.usefixtures("database")
async def test_a_page_reads_the_slots_and_days_that_it_shows_however_many_there_are(shared_url: str) -> None:
    connection = await asyncpg.connect(shared_url)
    await connection.execute(FULL)
    for name, value in PLANNED_ONCE.items():
        await connection.execute(f"SET {name} = {value}")
    windows = dict(Windows.until(NOW, (1, 6, 24), 7).parameters(NOW))
    slots = len(windows["slots"])
    assert slots == 145 + 7 * 7 - 1
    windows["slots"] = [str(slot) for slot in windows["slots"]]
    names = {"countries": ["ZW", "ZW", "ZA"], "queues": ["ZW", "ZW-econet", "ZA"]}
    for when in ("never analysed", "analysed"):
        if when == "analysed":
            await connection.execute("VACUUM ANALYZE latencies, outcomes, traffic, queue, retries, in_flight")
        hour = {"since": SLOT - HOUR, "lately": SLOT}
        assert await rows_read(connection, latencies.SQL_SUBMISSIONS, **hour) <= 7 * 40, when
        assert await rows_read(connection, latencies.SQL_ENDS, **hour) == 7 * 10, when
        assert await rows_read(connection, latencies.SQL_NETWORK_TIMES, **windows) <= slots * 40, when
        read = await rows_read(connection, latencies.SQL_NETWORK_ENDS, **windows, outcomes=["delivered"])
        assert read <= slots * 10, when
        assert await rows_read(connection, hourly.SQL_SUBMISSION_TIMES, since=SLOT - HOUR) <= 7 * 40, when
        assert await rows_read(connection, hourly.SQL_OUTCOMES, since=SLOT - HOUR, carrier_id=1) == 70, when
        month = {"first_day": date(2026, 10, 18), "last_day": date(2026, 11, 16)}
        assert await rows_read(connection, totals.SQL_DAYS, **month) == 30 * 50, when
        read = await rows_read(connection, totals.SQL_STANDS, **names, count_max=100)
        assert round(read) == 100, when
        assert await rows_read(connection, totals.SQL_ELSEWHERE, count_max=100) == 200, when
        old = {"before": SLOT, "count_max": 100}
        undone = connection.transaction()
        await undone.start()
        assert await rows_read(connection, latencies.SQL_DELETE_OLD, **old) <= 201, when
        await undone.rollback()
    since = first_id(int(NOW.timestamp() * 1000))
    assert await rows_read(connection, totals.SQL_ACCEPTED, since=since, lately=since, count_max=9) == 0
    await connection.close()
