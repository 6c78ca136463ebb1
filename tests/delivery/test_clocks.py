"""The highest turn that was claimed is published once, and claims go on from below it."""

import asyncio

import pytest

from tests.support.delivery.settling import World
from tumira.delivery.clocks import Clocks
from tumira.delivery.lanes import BOTTOM, BULK, FLOOR_AGE_S, SMALL
from tumira.postgres.pool import Database


async def published(world: World) -> dict[tuple[str, int], int]:
    rows = await world.rows("SELECT country, lane, turn FROM clocks WHERE turn > 0")
    return {(row["country"], row["lane"]): row["turn"] for row in rows}


async def test_the_highest_turn_of_each_lane_is_published(world: World) -> None:
    clocks = Clocks()
    clocks.claimed(0, "ZW", SMALL, 10, 30)
    clocks.claimed(0, "ZW", SMALL, 5, 20)
    clocks.claimed(0, "ZW", BULK, 7, 7)
    async with asyncio.timeout(10):
        await clocks.publish(world.engine.database)
        assert await published(world) == {("ZW", SMALL): 30, ("ZW", BULK): 7}
        clocks.claimed(0, "ZW", SMALL, 40, 50)
        await clocks.publish(world.engine.database)
    assert await published(world) == {("ZW", SMALL): 50, ("ZW", BULK): 7}
    # There is nothing new, so it waits.
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await clocks.publish(world.engine.database)


async def test_claims_begin_below_what_was_published_some_seconds_ago(world: World) -> None:
    clocks = Clocks()
    now = asyncio.get_running_loop().time()
    assert clocks.begin(now, "ZW", SMALL) == BOTTOM
    clocks.claimed(now, "ZW", SMALL, 10, 30)
    await clocks.publish(world.engine.database)
    now = asyncio.get_running_loop().time()
    assert clocks.begin(now, "ZW", SMALL) == BOTTOM
    assert clocks.begin(now + FLOOR_AGE_S, "ZW", SMALL) == 10
    assert clocks.begin(now + FLOOR_AGE_S + 0.5, "ZW", SMALL) == 30
    assert clocks.begin(now + FLOOR_AGE_S + 0.5, "ZW", BULK) == BOTTOM


async def test_what_could_not_be_published_is_published_later(world: World) -> None:
    clocks = Clocks()
    clocks.claimed(0, "ZW", SMALL, 10, 30)
    away = Database("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(Exception):  # noqa: B017, PT011 - however it fails
        await clocks.publish(away)
    await away.close()
    # It waits for no other claim, and a lower one changes nothing.
    async with asyncio.timeout(10):
        await clocks.publish(world.engine.database)
        assert await published(world) == {("ZW", SMALL): 30}
        clocks.claimed(0, "ZW", SMALL, 10, 20)
        await clocks.publish(world.engine.database)
    assert await published(world) == {("ZW", SMALL): 30}
