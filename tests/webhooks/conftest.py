"""Fixtures of the webhook tests."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.support.postgres.databases import clone
from tests.support.processes.service import new_caller
from tests.support.webhooks.office import Office
from tests.support.webhooks.receivers import Authority
from tests.support.webhooks.world import Hooks, open_hooks
from tumira.postgres.pool import Database


@pytest_asyncio.fixture
async def hooks(database_url: str) -> AsyncIterator[Hooks]:
    async with open_hooks(database_url) as hooks:
        yield hooks


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def shared_url(server_url: str) -> Iterator[str]:
    with clone(server_url) as url:
        yield url


@pytest_asyncio.fixture
async def office(shared_url: str) -> AsyncIterator[Office]:
    """Give two new accounts on the database that the tests of a file share."""
    ours, theirs = await new_caller(shared_url), await new_caller(shared_url)
    database = Database(shared_url)
    try:
        yield Office(database, ours.id, theirs.id)
    finally:
        await database.close()
