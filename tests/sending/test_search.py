"""Search of an account's batches."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.postgres.old_weeks import make_weeks
from tests.support.processes.service import new_caller
from tumira.core.ids import AccountId, BatchId, MessageId, first_id, message_ids, new_id
from tumira.sending import batches
from tumira.sending import search as search_batches
from tumira.sending.search import BatchFilter, FoundBatch, Search

WEEKS: Final = 30
NUMBERS: Final = ("+263771200001", "+263771200002", "+27821230001")

# By number, by reference, by both, and without either: each takes another way through the database.
WAYS: Final[Sequence[Mapping[str, Any]]] = (
    {},
    {"reference": "a"},
    {"number": NUMBERS[0]},
    {"number": NUMBERS[0], "reference": "a"},
)


@dataclass(slots=True)
class World:
    """An account whose batches are a minute apart."""

    connection: "asyncpg.Connection[asyncpg.Record]"
    account_id: AccountId
    stranger_id: AccountId
    at: datetime

    async def batch(
        self, *numbers: str, status: str = "completed", reference: str | None = None, **more: Any
    ) -> BatchId:
        """Let the account, or another one, have sent a batch a minute after the one before."""
        self.at += timedelta(minutes=1)
        account_id = more.get("account_id", self.account_id)
        batch_id = BatchId(new_id(int(self.at.timestamp() * 1000)))
        is_completed = status == "completed"
        await self.connection.execute(
            "INSERT INTO batches (id, account_id, created_at, completed_at, recipients, pending, segments,"
            " total_cost, refunded, status, channel, reference, body)"
            " VALUES ($1, $2, $3, $4, $5, $6, 1, 1, $7, $8, 'sms', $9, 'Hello')",
            batch_id,
            account_id,
            self.at,
            self.at if is_completed else None,
            len(numbers),
            0 if is_completed else len(numbers),
            more.get("refunded", Decimal(0)),
            status,
            reference,
        )
        await self.connection.executemany(
            "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost, status)"
            " VALUES ($1, $2, $3, 1, 'ZW', $4, 0.04, $5)",
            [
                (message_id, batch_id, account_id, number, "delivered" if is_completed else "queued")
                for message_id, number in zip(message_ids(batch_id, len(numbers)), numbers, strict=True)
            ],
        )
        return batch_id

    async def search(self, count_max: int = 50, look_max: int = 1000, **wanted: Any) -> Sequence[BatchId]:
        search = Search(**wanted)
        found: list[FoundBatch] = []
        for _ in range(100):
            results = await search_batches.search(
                self.connection, self.account_id, search, count_max, look_max
            )
            assert len(results.batches) <= count_max
            found.extend(results.batches)
            if results.older is None:
                return [one.id for one in found]
            search = replace(search, before=results.older)
        raise AssertionError("the search has no end")


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    caller, stranger = await new_caller(database_url), await new_caller(database_url)
    connection = await asyncpg.connect(database_url)
    yield World(connection, caller.id, stranger.id, datetime.now(UTC) - timedelta(hours=6))
    await connection.close()


async def test_each_filter_finds_what_fits_newest_first_and_nothing_of_others(world: World) -> None:
    one, two, _ = NUMBERS
    queued = await world.batch(one, status="queued", reference="a")
    processing = await world.batch(one, two, status="processing", reference="b")
    completed = await world.batch(two, reference="a")
    refunded = await world.batch(one, refunded=Decimal("0.04"))
    for reference in ("a", "b", None):
        await world.batch(
            *NUMBERS,
            account_id=world.stranger_id,
            status="queued",
            reference=reference,
            refunded=Decimal("0.04"),
        )
    for wanted, expected in (
        ({}, [refunded, completed, processing, queued]),
        ({"standing": BatchFilter.QUEUED}, [queued]),
        ({"standing": BatchFilter.PROCESSING}, [processing]),
        ({"standing": BatchFilter.COMPLETED}, [refunded, completed]),
        ({"standing": BatchFilter.REFUNDED}, [refunded]),
        ({"reference": "a"}, [completed, queued]),
        ({"reference": "A"}, []),
        ({"reference": "a", "standing": BatchFilter.QUEUED}, [queued]),
        ({"reference": "a", "standing": BatchFilter.REFUNDED}, []),
        ({"number": one}, [refunded, processing, queued]),
        ({"number": one, "standing": BatchFilter.REFUNDED}, [refunded]),
        ({"number": two, "standing": BatchFilter.COMPLETED}, [completed]),
        ({"number": one, "reference": "b"}, [processing]),
        ({"number": one, "reference": "b", "standing": BatchFilter.COMPLETED}, []),
        ({"number": NUMBERS[2]}, []),
    ):
        for count_max in (50, 1):
            assert await world.search(count_max, **wanted) == expected, wanted


async def test_dates_are_bounds_of_the_moment_of_sending(world: World) -> None:
    sent = [await world.batch(NUMBERS[0], reference="a") for _ in range(4)]
    moments = [
        first_id(int((world.at - timedelta(minutes=3 - place)).timestamp() * 1000)) for place in range(4)
    ]
    for wanted in WAYS:
        found = await world.search(**wanted, since=moments[1], before=moments[3])
        assert found == [sent[2], sent[1]], wanted


async def test_pages_leave_nothing_out_and_show_nothing_twice(world: World) -> None:
    sent = [await world.batch(NUMBERS[0], NUMBERS[1], reference="a") for _ in range(12)]
    for wanted in WAYS:
        for count_max in (1, 5, 11, 12, 13):
            assert await world.search(count_max, **wanted) == sent[::-1], (wanted, count_max)


@pytest.mark.long
async def test_pages_go_back_through_all_weeks(world: World) -> None:
    await make_weeks(world.connection, WEEKS, ["batches", "messages"])
    now, sent = world.at, []
    # One in each step back in time, the first and the last week that is there, and none in some between.
    for weeks_ago in (WEEKS, 20, 19, 5, 4, 3, 1, 0):
        world.at = now - timedelta(weeks=weeks_ago)
        sent.append(await world.batch(NUMBERS[0], reference="a", refunded=Decimal("0.04")))
    for wanted in (*WAYS, {"standing": BatchFilter.REFUNDED}):
        for count_max in (1, 3, 8, 9):
            assert await world.search(count_max, **wanted) == sent[::-1], (wanted, count_max)
    before = first_id(int((now - timedelta(weeks=4, days=-1)).timestamp() * 1000))
    since = first_id(int((now - timedelta(weeks=19, days=1)).timestamp() * 1000))
    for wanted in WAYS:
        assert await world.search(**wanted, since=since, before=before) == [sent[4], sent[3], sent[2]], wanted


async def test_a_search_that_finds_little_stops_and_goes_on_from_there(world: World) -> None:
    early = await world.batch(NUMBERS[0], reference="a", refunded=Decimal("0.04"))
    for _ in range(20):
        await world.batch(NUMBERS[0], reference="a")
    for way in WAYS[1:]:
        wanted = {**way, "standing": BatchFilter.REFUNDED}
        first = await search_batches.search(world.connection, world.account_id, Search(**wanted), 3, 4)
        assert first.batches == []
        assert first.older is not None
        assert first.stopped_at == world.at - timedelta(minutes=3)
        for look_max in (4, 7, 20, 21, 22):
            assert await world.search(3, look_max, **wanted) == [early], look_max


async def test_the_last_batch_that_was_looked_at_is_shown_if_it_fits(world: World) -> None:
    early = await world.batch(NUMBERS[0])
    fits = await world.batch(NUMBERS[0], refunded=Decimal("0.04"), reference="a")
    for _ in range(3):
        await world.batch(NUMBERS[0], reference="a")
    results = await search_batches.search(
        world.connection, world.account_id, Search(reference="a", standing=BatchFilter.REFUNDED), 3, 4
    )
    assert [one.id for one in results.batches] == [fits]
    assert results.older == fits
    assert await world.search(3, 4, standing=BatchFilter.REFUNDED) == [fits]
    assert (await world.search(3, 4))[-1] == early


async def test_a_number_shows_its_own_message_of_each_batch(world: World) -> None:
    batch_id = await world.batch(*NUMBERS)
    results = await search_batches.search(world.connection, world.account_id, Search(number=NUMBERS[1]), 10)
    (found,) = results.batches
    rows = await world.connection.fetch("SELECT id FROM messages WHERE recipient = $1", NUMBERS[1])
    assert (found.id, found.message_id, found.message_status) == (batch_id, rows[0]["id"], "delivered")
    plain = await search_batches.search(world.connection, world.account_id, Search(), 10)
    assert plain.batches[0].message_id is None


async def test_a_batch_is_its_owners_alone(world: World) -> None:
    batch_id = await world.batch(*NUMBERS, reference="a")
    found = await batches.find(world.connection, world.account_id, batch_id)
    assert found is not None
    assert (found.id, found.reference, found.body, found.recipients) == (batch_id, "a", "Hello", 3)
    assert await batches.find(world.connection, world.stranger_id, batch_id) is None
    assert await batches.find(world.connection, world.account_id, BatchId(new_id(1))) is None
    assert sum((await batches.count_messages(world.connection, world.stranger_id, batch_id)).values()) == 0
    assert await batches.list_messages(world.connection, world.stranger_id, batch_id, 10) == (
        [],
        False,
    )


async def test_messages_are_counted_by_status_and_listed_in_pages(world: World) -> None:
    numbers = [f"+26377120{place:04d}" for place in range(25)]
    batch_id = await world.batch(*numbers, status="processing")
    await world.batch(*numbers)
    await world.connection.execute(
        "UPDATE messages SET status = 'failed' WHERE batch_id = $1 AND recipient = ANY($2)",
        batch_id,
        numbers[::5],
    )
    counts = await batches.count_messages(world.connection, world.account_id, batch_id)
    assert {status: count for status, count in counts.items() if count} == {"queued": 20, "failed": 5}
    assert len(counts) == 8

    for status, expected in ((None, numbers), ("failed", numbers[::5]), ("sent", [])):
        for count_max in (5, 7, 25, 100):
            listed: list[str] = []
            after: MessageId | None = None
            is_more = True
            while is_more:
                page, is_more = await batches.list_messages(
                    world.connection, world.account_id, batch_id, count_max, status=status, after=after
                )
                listed.extend(message.recipient for message in page)
                after = page[-1].id if page else None
            assert listed == expected, (status, count_max)
