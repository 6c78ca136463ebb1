"""The event log: numbers without gaps, visible in their order."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
import pytest_asyncio

from tests.support.processes.service import new_caller
from tests.support.webhooks.world import BALANCE_LOW, DATA
from tumira import events
from tumira.core.ids import AccountId, EventId, new_id
from tumira.events import Event, NewEvent, record_events
from tumira.postgres.pool import Database

WRITERS: Final = 6
EVENTS: Final = 2_000
GROUP_MAX: Final = 40
PAGE: Final = 97


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url, connections_max=WRITERS + 4)
    yield database
    await database.close()


async def open_accounts(database: Database, count: int) -> Sequence[AccountId]:
    return [(await new_caller(database.url)).id for _ in range(count)]


async def write(database: Database, account_ids: Sequence[AccountId], left: list[int], seed: int) -> int:
    chance = random.Random(seed)
    told = 0
    while left[0] > 0:
        size = min(left[0], chance.randint(1, GROUP_MAX))
        left[0] -= size
        news = [NewEvent(chance.choice(account_ids), BALANCE_LOW, data=DATA) for _ in range(size)]
        if chance.random() < 0.1:
            async with database.connection() as connection:
                undone = connection.transaction()
                await undone.start()
                await record_events(connection, news, datetime.now(UTC))
                await undone.rollback()
        async with database.transaction() as connection:
            await record_events(connection, news, datetime.now(UTC))
            # Some keep their numbers to themselves for a while.
            await asyncio.sleep(chance.choice((0, 0, 0.002)))
        told += size
    return told


async def read(
    database: Database, account_id: AccountId, done: asyncio.Event
) -> tuple[Sequence[Event], Sequence[int]]:
    seen: list[Event] = []
    lasts: list[int] = []
    while True:
        is_last = done.is_set()
        async with database.connection() as connection:
            lasts.append(await events.last_sequence(connection, account_id))
            after = seen[-1].sequence if seen else 0
            page = await events.list_after(connection, account_id, after, None, PAGE)
        seen.extend(page)
        # What the counter says is there already.
        assert len(page) == PAGE or len(seen) >= lasts[-1]
        if is_last and len(page) < PAGE:
            return seen, lasts
        await asyncio.sleep(0)


async def test_events_of_parallel_writers_are_read_without_a_hole_while_they_are_written(
    database: Database,
) -> None:
    account_ids = await open_accounts(database, 3)
    done = asyncio.Event()
    readers = [asyncio.create_task(read(database, account_id, done)) for account_id in account_ids]
    left = [EVENTS]
    told = await asyncio.gather(*(write(database, account_ids, left, seed) for seed in range(WRITERS)))
    assert sum(told) == EVENTS
    done.set()
    total = 0
    for reader in readers:
        seen, lasts = await reader
        assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))
        assert len({event.id for event in seen}) == len(seen) == lasts[-1]
        assert lasts == sorted(lasts)
        total += len(seen)
    assert total == EVENTS


async def test_an_event_of_a_transaction_that_is_not_committed_holds_back_those_that_follow(
    database: Database,
) -> None:
    (account_id,) = await open_accounts(database, 1)
    news = [NewEvent(account_id, BALANCE_LOW, data=DATA)]

    async def add_events() -> None:
        async with database.transaction() as connection:
            await record_events(connection, news, datetime.now(UTC))

    async def visible() -> Sequence[int]:
        async with database.connection() as connection:
            return [one.sequence for one in await events.list_after(connection, account_id, 0, None, 10)]

    await add_events()
    async with database.transaction() as connection:
        await record_events(connection, news, datetime.now(UTC))
        later = asyncio.create_task(add_events())
        done, _ = await asyncio.wait({later}, timeout=0.2)
        assert not done
        assert await visible() == [1]
    await later
    assert await visible() == [1, 2, 3]


async def test_accounts_do_not_wait_for_each_other(database: Database) -> None:
    one, other = await open_accounts(database, 2)
    async with database.transaction() as holding:
        await record_events(holding, [NewEvent(one, BALANCE_LOW, data=DATA)], datetime.now(UTC))
        async with asyncio.timeout(40), database.transaction() as connection:
            await record_events(connection, [NewEvent(other, BALANCE_LOW, data=DATA)], datetime.now(UTC))
    async with database.connection() as connection:
        assert await events.last_sequence(connection, one) == 1
        assert await events.last_sequence(connection, other) == 1


async def test_events_are_listed_up_to_a_number_by_their_numbers_and_by_their_ids_for_their_account_alone(
    database: Database,
) -> None:
    one, other = await open_accounts(database, 2)
    news = [NewEvent(account_id, BALANCE_LOW, data=DATA) for account_id in (one, other) * 5]
    async with database.transaction() as connection:
        await record_events(connection, news, datetime.now(UTC))
    async with database.connection() as connection:
        some = await events.list_after(connection, one, 1, 4, 10)
        assert [event.sequence for event in some] == [2, 3, 4]
        assert [event.sequence for event in await events.list_after(connection, one, 1, 4, 2)] == [2, 3]
        numbered = await events.list_by_sequence(connection, one, [5, 1, 99])
        assert sorted(event.sequence for event in numbered) == [1, 5]
        assert {event.account_id for event in (*some, *numbered)} == {one}
        assert await events.find(connection, one, some[0].id) == some[0]
        assert await events.find(connection, other, some[0].id) is None


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("", None),
        (" all ", None),
        ("message.failed", ["message.failed"]),
        ("batch.completed, message.sent", ["message.sent", "batch.completed"]),
    ],
)
def test_types_are_read_in_the_order_of_the_list(text: str, types: Sequence[str] | None) -> None:
    assert events.parse_types(text) == types


@pytest.mark.parametrize("text", ["message.seen", "message.sent,", "webhook.test", "message.sent, all"])
def test_a_type_that_cannot_be_chosen_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="There is no event"):
        events.parse_types(text)


def test_who_chose_nothing_gets_all_and_everybody_gets_a_test() -> None:
    assert events.is_subscribed(None, "message.sent")
    assert events.is_subscribed(["message.sent"], "message.sent")
    assert not events.is_subscribed(["message.sent"], "message.failed")
    assert events.is_subscribed([], events.WEBHOOK_TEST)
    assert events.WEBHOOK_TEST not in events.SUBSCRIBABLE
    assert set(events.SUBSCRIBABLE) >= events.REPLY_EVENTS
    assert len(events.REPLY_EVENTS) == 3


async def test_the_numbers_between_two_times_are_those_of_the_account(database: Database) -> None:
    first, second = await open_accounts(database, 2)
    start = datetime.now(UTC) - timedelta(minutes=10)
    async with database.transaction() as connection:
        for minute in range(4):
            at = start + timedelta(minutes=minute)
            await record_events(
                connection, [NewEvent(one, BALANCE_LOW, data=DATA) for one in (first, second, second)], at
            )
        # A test of an endpoint has no number.
        await events.insert_event(
            connection,
            Event(
                EventId(new_id(time.time_ns() // 1_000_000)),
                first,
                0,
                events.WEBHOOK_TEST,
                None,
                None,
                start,
                DATA,
            ),
        )
        until = start + timedelta(minutes=2)
        assert await events.find_range(connection, first, start, until) == (1, 3)
        assert await events.find_range(connection, second, start + timedelta(minutes=1), until) == (3, 6)
        nothing = (start - timedelta(hours=2), start - timedelta(hours=1))
        assert await events.find_range(connection, first, *nothing) is None


def test_the_first_unknown_type_is_named() -> None:
    names = [f"message.unknown{place:02}" for place in range(20)]
    with pytest.raises(ValueError, match=r"There is no event 'message\.unknown00'"):
        events.parse_types(",".join(reversed(names)))
