"""A database whose papers and balances add up after the test, and an account without money on it."""

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.support.papers import broken_papers
from tests.support.processes.service import Caller, new_caller
from tumira.postgres.pool import Database


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    assert await broken_papers(database) == []
    await database.close()


@pytest_asyncio.fixture
async def caller(database_url: str) -> Caller:
    return await new_caller(database_url, "0")
