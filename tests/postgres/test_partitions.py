"""Weekly partitions."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest_asyncio

from tests.support.postgres.old_weeks import make_weeks, name_of
from tumira.core.ids import first_id
from tumira.postgres import clock, partitions
from tumira.postgres.connection import Connection
from tumira.postgres.partitions import State


@pytest_asyncio.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    """Give a connection to a migrated database; what a test does there is undone."""
    connection = await asyncpg.connect(database_url)
    transaction = connection.transaction()
    await transaction.start()
    yield connection
    await transaction.rollback()
    await connection.close()


async def test_a_worker_that_comes_back_after_nine_weeks_makes_the_weeks_of_now(
    connection: Connection,
) -> None:
    monday = await partitions.this_week(connection)
    for table in partitions.TABLES:
        for week in await partitions.list_weeks(connection, table):
            await connection.execute(f"DROP TABLE {week.name}")
        start = monday - timedelta(weeks=9)
        await partitions._create(connection, table, partitions._name(table, start), start, 100)

    created = await partitions.create_ahead(connection)

    assert len(created) == len(partitions.TABLES) * (partitions.WEEKS_AHEAD + 2)
    assert await partitions.weeks_left(connection) == partitions.WEEKS_AHEAD
    assert await partitions.create_ahead(connection) == []


async def test_weeks_that_a_clock_made_far_ahead_are_in_nobodys_way(connection: Connection) -> None:
    monday = await partitions.this_week(connection)
    for weeks in (9, 10, 520):
        start = monday + timedelta(weeks=weeks)
        await partitions._create(connection, "events", partitions._name("events", start), start, 100)

    assert await partitions.create_ahead(connection) == []
    assert await partitions.weeks_left(connection) == partitions.WEEKS_AHEAD


async def test_the_weeks_of_a_table_are_told_with_their_bounds_and_others_are_left_alone(
    connection: Connection,
) -> None:
    await make_weeks(connection, 2, ["events"])
    await connection.execute(
        "CREATE TABLE events_before PARTITION OF events FOR VALUES FROM (MINVALUE)"
        " TO ('01000000-0000-0000-0000-000000000000')"
    )

    weeks = await partitions.list_weeks(connection, "events")

    monday = await partitions.this_week(connection)
    begins = [
        int((monday + timedelta(weeks=place)).timestamp() * 1000)
        for place in range(-2, partitions.WEEKS_AHEAD + 2)
    ]
    assert [week.low for week in weeks] == [first_id(at) for at in begins[:-1]]
    assert [week.high for week in weeks] == [first_id(at) for at in begins[1:]]
    assert weeks[0].name == await name_of(connection, "events", 2)
    assert await partitions.state_of(connection, weeks[0]) is State.ATTACHED


async def test_the_weeks_of_some_ids_are_named_the_newest_first_without_those_ahead(
    connection: Connection,
) -> None:
    await make_weeks(connection, 10, ["batches"])
    now = await clock.read_now(connection)
    last = partitions._name("batches", now + partitions.AHEAD)
    lowest, highest = UUID(int=0), UUID(int=(1 << 128) - 1)

    every = await partitions.names_within(connection, "batches", lowest, highest)

    assert every[0] == last
    assert every[-1] == await name_of(connection, "batches", 10)
    assert [*every] == sorted(every, reverse=True)
    monday = await partitions.this_week(connection)
    low, high = (first_id(int((monday - timedelta(weeks=weeks)).timestamp() * 1000)) for weeks in (8, 6))
    assert await partitions.names_within(connection, "batches", low, UUID(int=high.int - 1)) == [
        await name_of(connection, "batches", weeks) for weeks in (7, 8)
    ]
    assert await partitions.names_within(connection, "batches", lowest, UUID(int=1)) == []
