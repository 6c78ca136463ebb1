"""Old weeks are dropped whole, once nothing in them is open."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from tests.support.delivery.settling import BLOCKED
from tests.support.postgres.databases import clone
from tests.support.postgres.old_weeks import MESSAGE_TABLES, OldBatch, add_batch, make_weeks, name_of
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import Batchers, broken_promises, open_batchers, send_call
from tumira.core.errors import OperatorError
from tumira.operations import retention
from tumira.operations.audit import runs
from tumira.operations.maintenance import drop_messages, run_task
from tumira.operations.retention import RetentionKind, drop_old
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.postgres.partitions import State
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.sending import batches
from tumira.sending.types import Answered

# Fewer than anybody may choose, so that there are few weeks to be made.
KEPT: Final = 2
OLD: Final = KEPT + 1
# Nobody is waited for in vain for long here.
SOON_MS: Final = 300


@dataclass(frozen=True, slots=True)
class Past:
    batchers: Batchers
    caller: Caller
    old: OldBatch
    young: OldBatch

    @property
    def database(self) -> Database:
        return self.batchers.database

    async def drop(self, kind: RetentionKind = RetentionKind.MESSAGES, weeks_kept: int = KEPT) -> int:
        return await drop_old(self.database, kind, weeks_kept, SOON_MS)

    async def send(self) -> None:
        assert isinstance(await self.batchers.batchers[0].ask(send_call(self.caller)), Answered)

    async def names(self, weeks_ago: int, tables: Sequence[str] = MESSAGE_TABLES) -> Mapping[str, str]:
        async with self.database.connection() as connection:
            return {table: await name_of(connection, table, weeks_ago) for table in tables}

    async def is_there(self, weeks_ago: int, tables: Sequence[str] = MESSAGE_TABLES) -> set[State]:
        async with self.database.connection() as connection:
            return {
                State(await partitions.SQL_STATE.value(connection, name=name))
                for name in (await self.names(weeks_ago, tables)).values()
            }

    async def execute(self, statement: str, *arguments: Any) -> None:
        async with self.database.connection() as connection:
            await connection.execute(statement, *arguments)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A database with a past, to be cloned."""

    name: str
    caller: Caller
    old: OldBatch
    young: OldBatch


async def _make_past(url: str) -> Pattern:
    caller = await new_caller(url)
    database = Database(url, connections_max=1)
    async with database.connection() as connection:
        await make_weeks(connection, OLD)
        old = await add_batch(connection, caller.id, OLD)
        young = await add_batch(connection, caller.id, KEPT)
    assert await broken_promises(database) == []
    await database.close()
    return Pattern(urlsplit(url).path.removeprefix("/"), caller, old, young)


@pytest.fixture(scope="module")
def pattern(server_url: str) -> Iterator[Pattern]:
    with clone(server_url) as url:
        yield asyncio.run(_make_past(url))


@pytest_asyncio.fixture
async def past(server_url: str, pattern: Pattern) -> AsyncIterator[Past]:
    with clone(server_url, pattern.name) as url:
        async with open_batchers(url, 1) as batchers:
            yield Past(batchers, pattern.caller, pattern.old, pattern.young)


async def until_blocked(connection: Connection) -> None:
    deadline = time.monotonic() + 30
    while not await connection.fetch(BLOCKED):
        assert time.monotonic() < deadline, "nobody waits"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def reader(past: Past, table: str = "messages") -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(past.database.url)
    try:
        transaction = connection.transaction(isolation="repeatable_read", readonly=True)
        await transaction.start()
        await connection.fetchval(f"SELECT count(*) FROM {table}")
        yield connection
        await transaction.rollback()
    finally:
        await connection.close()


async def test_an_old_week_goes_from_all_its_tables_and_the_next_one_stays(past: Past) -> None:
    assert await past.is_there(OLD) == {State.ATTACHED}

    assert await past.drop() == 1

    assert (await past.is_there(OLD), await past.is_there(KEPT)) == ({State.GONE}, {State.ATTACHED})
    assert await past.drop() == 0
    async with past.database.connection() as connection:
        assert await retention.list_leaving(connection, RetentionKind.MESSAGES) == []
        kept = await connection.fetch("SELECT id FROM batches ORDER BY id LIMIT 1")
        assert [row["id"] for row in kept] == [past.young.id]


async def test_the_ledger_stays_and_the_audit_finds_nothing_after_a_week_has_gone(past: Past) -> None:
    await past.drop()
    await past.drop(RetentionKind.EVENTS)

    assert await broken_promises(past.database) == []
    async with past.database.connection() as connection:
        assert (
            await connection.fetchval("SELECT count(*) FROM transfers WHERE batch_id = $1", past.old.id) == 2
        )
        sent = await batches.list_named(connection, [past.old.id, past.young.id], past.caller.id)
    assert list(sent) == [past.young.id]


OPEN: Final = {
    "batches that are not completed": (
        "UPDATE batches SET completed_at = NULL, pending = 1, status = 'processing' WHERE id = $1"
    ),
    "messages that have not ended": "UPDATE messages SET status = 'sent' WHERE batch_id = $1",
    "messages that wait to be sent": (
        "INSERT INTO retries (message_id, due_at) SELECT id, now() FROM messages WHERE batch_id = $1"
    ),
    "does not add up, as `batch_cost`": "UPDATE messages SET cost = cost + 1 WHERE batch_id = $1",
    "does not add up, as `debit`": "UPDATE batches SET account_id = gen_random_uuid() WHERE id = $1",
    "does not add up, as `refund`": (
        "UPDATE messages SET refunded_at = now(), status = 'failed' WHERE batch_id = $1"
    ),
    "does not add up, as `refunded`": "UPDATE batches SET refunded = 0.01 WHERE id = $1",
    "does not add up, as `owner`": (
        "UPDATE messages SET account_id = gen_random_uuid() WHERE batch_id = $1 AND refunded_at IS NULL"
    ),
    "does not add up, as `pending`": "UPDATE batches SET status = 'queued' WHERE id = $1",
}


async def test_a_week_with_something_open_or_wrong_stays_and_those_after_it_too(past: Past) -> None:
    for words, statement in OPEN.items():
        async with past.database.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(statement, past.old.id)
            (week, *_) = await retention.list_old(connection, RetentionKind.MESSAGES, KEPT)
            problem = await retention.problem_of(connection, week)
            await transaction.rollback()
        assert problem is not None, words
        assert words in problem
    await past.execute(OPEN["messages that have not ended"], past.old.id)

    with pytest.raises(
        OperatorError, match=r"is kept, because it has 2 messages that have not ended: run `tumira"
    ):
        await past.drop(weeks_kept=1)

    assert await past.is_there(OLD) | await past.is_there(KEPT) == {State.ATTACHED}
    async with past.database.connection() as connection:
        border = await connection.fetchval("SELECT id FROM kept_from WHERE kind = 'messages'")
    assert border < past.old.id


async def test_events_go_before_their_messages_and_the_audit_compares_what_is_left(past: Past) -> None:
    assert await past.drop(RetentionKind.EVENTS) == 1

    assert (await past.is_there(OLD, ["events"]), await past.is_there(OLD)) == (
        {State.GONE},
        {State.ATTACHED},
    )
    assert await broken_promises(past.database) == []


async def test_events_that_an_endpoint_still_waits_for_stay(past: Past) -> None:
    await past.execute(
        "INSERT INTO webhook_endpoints (id, account_id, url, secret, position)"
        " VALUES (gen_random_uuid(), $1, 'https://example.org', sha256('x'), 3)",
        past.caller.id,
    )

    with pytest.raises(OperatorError, match="it has 1 endpoints that were not told of all of it"):
        await past.drop(RetentionKind.EVENTS)
    await past.execute("UPDATE webhook_endpoints SET position = 4")
    await past.execute(
        "INSERT INTO webhook_retries (endpoint_id, sequence, event_id, tries, first_at, due_at)"
        " SELECT gen_random_uuid(), sequence, id, 1, now(), now() FROM events WHERE sequence = 2"
    )
    with pytest.raises(OperatorError, match="it has 1 events that are tried again"):
        await past.drop(RetentionKind.EVENTS)

    # Those of an endpoint that is paused do not wait for ever.
    await past.execute("UPDATE webhook_retries SET due_at = 'infinity'")
    await past.execute("UPDATE webhook_endpoints SET position = 0, state = 'paused'")
    assert await past.drop(RetentionKind.EVENTS) == 1


async def test_as_many_weeks_as_are_kept_stay_whatever_the_time_is(past: Past) -> None:
    # As after a jump of the clock: these weeks are far in the past, and none is there for the time between.
    async with past.database.connection() as connection:
        for weeks in range(KEPT + 1):
            for table in MESSAGE_TABLES:
                await connection.execute(f"DROP TABLE {await name_of(connection, table, weeks)}")
        assert await retention.list_old(connection, RetentionKind.MESSAGES, KEPT) == []
        (week,) = await retention.list_old(connection, RetentionKind.MESSAGES, 0)
        assert week.low < past.old.id < week.high


async def test_weeks_ahead_are_never_old(past: Past) -> None:
    async with past.database.connection() as connection:
        found = await retention.list_old(connection, RetentionKind.ATTEMPTS, 0)
        ahead = await name_of(connection, "webhook_attempts", 0)
    assert ahead not in {week.name for one in found for week in one.tables}
    assert len(found) == OLD


async def test_others_send_while_a_week_waits_for_a_long_reader_and_it_goes_after_that(past: Past) -> None:
    async with reader(past) as long:
        seen = await long.fetchval("SELECT count(*) FROM messages")
        dropping = asyncio.create_task(past.drop())
        while not dropping.done():
            await past.send()
        with pytest.raises(OperatorError, match="a transaction that is older still uses messages"):
            await dropping
        names = await past.names(OLD)
        async with past.database.connection() as connection:
            states = [
                State(await partitions.SQL_STATE.value(connection, name=names[table]))
                for table in MESSAGE_TABLES
            ]
            assert states == [State.DETACHED, State.PENDING, State.ATTACHED, State.ATTACHED]
            # Whoever began before still sees all of it, others do not.
            assert await long.fetchval("SELECT count(*) FROM messages") == seen
            assert not await connection.fetchval(
                "SELECT EXISTS (SELECT FROM messages WHERE batch_id = $1)", past.old.id
            )
        assert await broken_promises(past.database) == []
        with pytest.raises(OperatorError, match="a transaction that is older still uses messages"):
            await past.drop()
        await past.send()

    assert await past.drop() == 1

    assert await past.is_there(OLD) == {State.GONE}
    assert await broken_promises(past.database) == []


async def test_twin_a_week_that_is_dropped_in_its_table_stops_all_who_send_behind_a_long_reader(
    past: Past,
) -> None:
    names = await past.names(OLD)
    dropper = await asyncpg.connect(past.database.url)
    async with reader(past), past.database.connection() as connection:
        dropping = asyncio.create_task(dropper.execute(f"DROP TABLE {names['messages']}"))
        await until_blocked(connection)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await connection.execute(
                f"BEGIN; SET LOCAL lock_timeout = '{SOON_MS}ms'; LOCK TABLE messages IN ROW EXCLUSIVE MODE"
            )
        await connection.execute("ROLLBACK")
    await dropping
    await dropper.close()


async def test_no_week_goes_while_somebody_audits_and_nobody_audits_while_one_goes(past: Past) -> None:
    async with runs.snapshot(past.database):
        assert await past.drop() == 0
    async with retention.alone(past.database, RetentionKind.MESSAGES, SOON_MS):
        assert await past.drop() == 0
        auditing = asyncio.create_task(broken_promises(past.database))
        async with past.database.connection() as connection:
            await until_blocked(connection)
        assert not auditing.done()
    assert await auditing == []

    assert await past.drop() == 1


async def test_what_slips_into_a_week_on_its_way_is_found_before_it_is_dropped(past: Past) -> None:
    async with past.database.connection() as connection:
        (week,) = await retention.list_old(connection, RetentionKind.MESSAGES, KEPT)
        await retention.mark_leaving(connection, week)
    await past.execute(OPEN["messages that have not ended"], past.old.id)

    for _ in range(2):
        with pytest.raises(
            OperatorError, match="was detached and is not dropped, because it has 2 messages that"
        ):
            await past.drop()
    assert await past.is_there(OLD) == {State.DETACHED}

    # The operator has looked at it.
    for name in (await past.names(OLD)).values():
        await past.execute(f"DROP TABLE {name}")
    assert await past.drop() == 1
    assert await past.drop() == 0


async def test_the_worker_drops_what_the_operator_does_not_want_to_keep(past: Past) -> None:
    database = Database(past.database.url, connections_max=1, settings=KEY_LOOKUPS)
    assert await run_task(database, drop_messages(KEPT)) == 1
    await database.close()
    assert await past.is_there(OLD) == {State.GONE}
