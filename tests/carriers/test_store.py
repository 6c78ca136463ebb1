"""Carriers in the database."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

import asyncpg
import pytest
import pytest_asyncio

from tumira.carriers import store as carriers
from tumira.carriers.store import Carrier
from tumira.carriers.url import parse
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

PASSWORD: Final = "hushhush"
SETTINGS: Final = parse(
    f"smpp://user:{PASSWORD}@smpp.example.com?window=10&tps=50&binds=4&refund=expired,failed"
)


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[Connection]:
    async with database.connection() as connection:
        yield connection


async def existing(connection: Connection, name: str) -> Carrier:
    found = await carriers.find(connection, name)
    assert found is not None
    return found


async def test_a_carrier_is_read_as_it_was_put(connection: Connection) -> None:
    assert await carriers.upsert(connection, "main", SETTINGS, ["ZW", "ZA"], 7)

    found = await existing(connection, "main")
    assert (found.settings, found.countries, found.priority) == (SETTINGS, ("ZW", "ZA"), 7)
    assert found.settings.refund == ("failed", "expired")
    assert PASSWORD not in repr(found)
    for name, priority in (("late", 200), ("beta", 100), ("alpha", 100), ("first", 0)):
        await carriers.upsert(connection, name, SETTINGS, None, priority)
    active = await carriers.list_active(connection)
    assert [carrier.name for carrier in active] == ["first", "main", "alpha", "beta", "late"]
    assert active[1] == found


async def test_a_carrier_changed_or_added_again_keeps_its_number(connection: Connection) -> None:
    assert await carriers.upsert(connection, "main", SETTINGS, None, 100)
    first = await existing(connection, "main")

    assert not await carriers.upsert(connection, "main", replace(SETTINGS, tps=0, refund=()), ["ZA"], 5)
    changed = await existing(connection, "main")
    assert (changed.id, changed.settings.tps, changed.settings.refund) == (first.id, 0, ())
    assert changed.countries == ("ZA",)
    assert changed.changed_at > first.changed_at

    assert await carriers.remove(connection, "main")
    assert not await carriers.remove(connection, "main")
    assert await carriers.find(connection, "main") is None
    assert await carriers.list_active(connection) == []
    assert await carriers.exists_ever(connection, "main")
    assert not await carriers.exists_ever(connection, "other")

    assert await carriers.upsert(connection, "main", SETTINGS, None, 100)
    assert (await existing(connection, "main")).id == first.id


async def test_the_database_refuses_what_no_url_can_say(connection: Connection) -> None:
    for broken in (
        replace(SETTINGS, port=0),
        replace(SETTINGS, bind_mode="receiver"),
        replace(SETTINGS, binds=33),
        replace(SETTINGS, window_size=10_001),
        replace(SETTINGS, tps=100_001),
        replace(SETTINGS, in_doubt="drop"),
        replace(SETTINGS, doubt_wait_s=0),
        replace(SETTINGS, refund=("delivered",)),
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await carriers.upsert(connection, "main", broken, None, 100)
