"""Connections that break."""

import asyncio
import select

import asyncpg
import pytest

from tumira.core.database_errors import is_unavailable
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import LOST, Database


async def _end_all(url: str) -> None:
    """End every other connection to the database, as a server that stops does."""
    database = Database(url)
    try:
        async with database.connection() as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
    finally:
        await database.close()


async def _in_transaction(database: Database, begun: asyncio.Event, go_on: asyncio.Event) -> None:
    async with database.transaction() as connection:
        await connection.execute("SELECT 1")
        begun.set()
        await go_on.wait()
        await connection.execute("SELECT 2")


async def test_whoever_is_cancelled_while_the_server_goes_away_hears_of_the_cancellation(
    database_url: str,
) -> None:
    database = Database(database_url)
    begun = asyncio.Event()
    task = asyncio.create_task(_in_transaction(database, begun, asyncio.Event()))
    await begun.wait()
    await _end_all(database_url)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await database.close()


async def test_what_broke_a_connection_is_what_its_transaction_raises(database_url: str) -> None:
    database = Database(database_url)
    begun = asyncio.Event()

    async def wait() -> None:
        async with database.transaction() as connection:
            begun.set()
            await connection.execute("SELECT pg_sleep(60)")

    task = asyncio.create_task(wait())
    await begun.wait()
    await _end_all(database_url)

    with pytest.raises(LOST):
        await task
    await database.close()


async def test_whoever_is_not_cancelled_hears_that_the_server_went_away(database_url: str) -> None:
    database = Database(database_url)
    begun, go_on = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(_in_transaction(database, begun, go_on))
    await begun.wait()
    await _end_all(database_url)

    go_on.set()

    with pytest.raises(Exception) as caught:  # noqa: PT011 - the kinds are many; what they have in common is below
        await task
    assert is_unavailable(caught.value)
    await database.close()


async def test_a_process_without_processor_time_in_a_transaction_hears_that_the_server_went_away(
    database_url: str,
) -> None:
    database = Database(database_url, settings={"idle_in_transaction_session_timeout": "10ms"})

    connection = await database.connect()
    await connection.execute("BEGIN")
    socket = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]

    # The loop stands still until the server has ended the session, and then sends before it reads.
    assert select.select([socket.fileno()], [], [], 30)[0]

    with pytest.raises(Exception) as caught:  # noqa: PT011 - as above
        await connection.execute("SELECT 1")
    assert is_unavailable(caught.value)
    # Whether this is what it hears depends on how soon the server closes the connection.
    assert is_unavailable(asyncpg.IdleInTransactionSessionTimeoutError())
    connection.terminate()


async def test_a_rollback_that_fails_in_whatever_way_raises_nothing_and_another_connection_follows(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(database_url)
    line = PinnedConnection(database)
    broken = await line.begin()

    async def fail(*_arguments: object, **_options: object) -> None:
        # What asyncpg said of a server that was killed while it answered.
        raise asyncpg.InternalClientError("cannot switch to state 15")

    with monkeypatch.context() as patch:
        patch.setattr(type(broken), "execute", fail)
        await line.roll_back(ValueError())
    connection = await line.begin()
    assert connection is not broken
    assert await connection.fetchval("SELECT 1") == 1
    line.terminate()
    await database.close()


async def test_a_connection_whose_transaction_was_cancelled_is_not_used_again(database_url: str) -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    database = Database(database_url, connections_max=1)
    begun, go_on = asyncio.Event(), asyncio.Event()
    go_on.set()
    for turn in range(100):
        task = asyncio.create_task(_in_transaction(database, begun, go_on))
        # A different moment of beginning, working and ending each time.
        await asyncio.sleep(turn * 0.00005)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with database.connection() as connection:
        assert not connection.is_in_transaction()
    await database.close()
    assert not complaints
