"""Search for the messages to a number."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

import asyncpg
import pytest_asyncio

from tests.support.postgres.databases import clone
from tumira.core.ids import AccountId, BatchId, MessageId, first_id, message_ids, new_id
from tumira.postgres import partitions
from tumira.sending import recipients

RARE: Final = "+263771200001"
OFTEN: Final = "+263771200002"
OTHER: Final = "+263771200003"
ALL: Final = (UUID(int=0), UUID(int=(1 << 128) - 1))
WEEKS: Final = 3

INDEXES: Final = """
    SELECT week.relname, week.reloptions AS week_options, index.reloptions AS index_options,
           pg_get_indexdef(index.oid) AS definition, pg_index.indisvalid
      FROM pg_inherits AS part
      JOIN pg_index ON indexrelid = part.inhrelid
      JOIN pg_class AS index ON index.oid = indexrelid
      JOIN pg_class AS week ON week.oid = indrelid
     WHERE part.inhparent = 'messages_by_number'::regclass
"""


@dataclass(frozen=True, slots=True)
class World:
    """Three weeks of messages of two accounts: many to one number, few to another, and the ids of each."""

    connection: "asyncpg.Connection[asyncpg.Record]"
    owner: AccountId
    stranger: AccountId
    rare: Sequence[UUID]
    often: Sequence[UUID]

    async def find(
        self,
        number: str,
        bounds: tuple[UUID, UUID] = ALL,
        count_max: int = 10_000,
        *,
        account_id: AccountId | None = None,
        newest_first: bool = True,
    ) -> Sequence[UUID]:
        sent = await recipients.list_sent(
            self.connection, number, bounds, count_max, account_id=account_id, newest_first=newest_first
        )
        return [one.id for one in sent]


@pytest_asyncio.fixture(scope="module")
async def world(server_url: str) -> AsyncIterator[World]:
    with clone(server_url) as url:
        connection = await asyncpg.connect(url)
        monday = partitions._monday(datetime.now(UTC))
        await partitions._create(
            connection,
            "messages",
            partitions._name("messages", monday - timedelta(weeks=2)),
            monday - timedelta(weeks=2),
            50,
        )
        owner, stranger = AccountId(uuid4()), AccountId(uuid4())
        made: dict[str, list[UUID]] = {RARE: [], OFTEN: [], OTHER: []}
        for week in range(WEEKS):
            at = monday - timedelta(weeks=week)
            for turn in range(1500):
                number = RARE if turn in {0, 750, 1499} else OFTEN if turn % 10 == 0 else OTHER
                batch_id = BatchId(new_id(int(at.timestamp() * 1000) + turn))
                made[number].append(message_ids(batch_id, 1)[0])
        records = [
            (one, one, stranger if place % 4 == 0 else owner, 1, "ZW", number, "0.04")
            for number, ids in made.items()
            for place, one in enumerate(sorted(ids))
        ]
        await connection.executemany(
            "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7::text::numeric)",
            sorted(records),
        )
        yield World(connection, owner, stranger, sorted(made[RARE]), sorted(made[OFTEN]))
        await connection.close()


async def _check(world: World) -> None:
    for number, made in ((RARE, world.rare), (OFTEN, world.often)):
        assert await world.find(number) == made[::-1]
        assert await world.find(number, newest_first=False) == made
        own = [one for place, one in enumerate(made) if place % 4]
        assert await world.find(number, account_id=world.owner) == own[::-1]
        for count_max in (1, 2, 101, 300, 500):
            assert await world.find(number, count_max=count_max) == made[::-1][:count_max]
            assert await world.find(number, count_max=count_max, newest_first=False) == made[:count_max]
        middle = made[len(made) // 2]
        assert await world.find(number, (middle, ALL[1]), newest_first=False) == made[len(made) // 2 :]
        assert await world.find(number, (ALL[0], middle)) == made[: len(made) // 2][::-1]
        assert await world.find(number, (middle, middle)) == []
    assert await world.find("+263771299999") == []
    assert await world.find(RARE, account_id=AccountId(uuid4())) == []


async def test_messages_are_found_in_order_before_and_after_their_pages_were_summarised(
    world: World,
) -> None:
    await _check(world)
    for week in await partitions.names(world.connection, "messages"):
        await world.connection.execute(f"VACUUM {week}")
    await _check(world)


async def test_a_number_that_comes_into_summarised_pages_later_is_found(world: World) -> None:
    await world.connection.execute("VACUUM messages")
    changed = world.often[100]
    asking = world.connection.transaction()
    await asking.start()
    await world.connection.execute("UPDATE messages SET recipient = '+263771288888' WHERE id = $1", changed)
    assert await world.find("+263771288888") == [changed]
    assert changed not in await world.find(OFTEN)
    await asking.rollback()


async def test_a_thousand_messages_of_one_moment_are_put_in_order(world: World) -> None:
    batch_id = BatchId(new_id(int(datetime.now(UTC).timestamp() * 1000)))
    ids = message_ids(batch_id, 1000)
    asking = world.connection.transaction()
    await asking.start()
    await world.connection.executemany(
        "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost)"
        " VALUES ($1, $2, $3, 1, 'ZW', '+263771277777', 0.04)",
        [(one, batch_id, world.owner) for one in ids],
    )
    assert await world.find("+263771277777", count_max=10) == list(ids[::-1])[:10]
    assert await world.find("+263771277777", newest_first=False) == list(ids)
    await asking.rollback()


async def test_what_was_cut_is_not_looked_for(world: World) -> None:
    asking = world.connection.transaction()
    await asking.start()
    await world.connection.execute("UPDATE number_retention SET up_to = $1", world.rare[3])
    assert await world.find(RARE, newest_first=False) == world.rare[3:]
    await asking.rollback()


async def test_a_search_leaves_the_settings_of_a_transaction_as_they_were(world: World) -> None:
    for value in ("on", "off"):
        async with world.connection.transaction():
            await world.connection.execute(f"SET LOCAL enable_seqscan = {value}")
            await world.find(RARE)
            assert await world.connection.fetchval("SHOW enable_seqscan") == value
        assert await world.connection.fetchval("SHOW enable_seqscan") == "on"


async def test_new_weeks_have_the_index_and_are_vacuumed_often(world: World) -> None:
    rows = await world.connection.fetch(INDEXES)
    assert {row["relname"] for row in rows} == set(await partitions.names(world.connection, "messages"))
    for row in rows:
        assert "autovacuum_vacuum_insert_threshold=100000" in row["week_options"]
        assert row["index_options"] == ["pages_per_range=32"]
        assert "n_distinct_per_range='1100'" in row["definition"]
        assert row["indisvalid"]
    assert await world.connection.fetchval(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = 'messages_by_number'::regclass"
    )


async def test_weeks_ahead_are_not_looked_at(world: World) -> None:
    spans = await recipients._spans(world.connection, ALL, newest_first=True)
    now = MessageId(first_id(int((datetime.now(UTC) + timedelta(days=1, minutes=1)).timestamp() * 1000)))
    assert all(span.low < now for span in spans)
    # Tomorrow may be in the next week.
    assert WEEKS <= len(spans) <= WEEKS + 1
