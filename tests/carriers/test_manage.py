"""Carriers are checked before they are added, and removed once."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import pytest
import pytest_asyncio

from tumira.carriers import store as carriers
from tumira.carriers.manage import add_carrier, remove_carrier
from tumira.core.errors import OperatorError
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

PASSWORD: Final = "hushhush"
URL: Final = f"smpp://user:{PASSWORD}@smpp.example.com?window=10&tps=50&binds=4&refund=expired,failed"


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


@pytest_asyncio.fixture
async def connection(database: Database) -> AsyncIterator[Connection]:
    async with database.connection() as connection:
        yield connection


REFUSED: Final[Sequence[tuple[str, str, Sequence[str] | None, int, str]]] = (
    ("Main", URL, None, 100, "Enter a name of up to 32"),
    ("x" * 33, URL, None, 100, "Enter a name of up to 32"),
    ("main", URL + "&window=1", None, 100, "twice"),
    (URL, "main", None, 100, "Enter a name of up to 32"),
    ("main", URL, [URL], 100, "One of these is not a country that you can send to"),
    ("main", URL, [], 100, "at least one country"),
    ("main", URL, ["ZW", "XX"], 100, "XX is not a country that you can send to. You can send to: ZA, ZW."),
    ("main", URL, None, 2**31, "Enter a priority"),
)


async def test_what_cannot_be_a_carrier_is_refused_in_words(
    database: Database, connection: Connection
) -> None:
    for name, url, countries, priority, words in REFUSED:
        with pytest.raises(OperatorError) as refused:
            await add_carrier(database, name, url, countries, priority)
        assert words in str(refused.value)
        assert PASSWORD not in str(refused.value)
    assert await carriers.list_active(connection) == []


async def test_a_carrier_that_is_not_there_cannot_be_removed(database: Database) -> None:
    with pytest.raises(OperatorError, match="There is no carrier named main"):
        await remove_carrier(database, "main")
    assert await add_carrier(database, "main", URL, ["ZA", "ZW", "ZA"], 1)
    await remove_carrier(database, "main")
    with pytest.raises(OperatorError, match="already been removed"):
        await remove_carrier(database, "main")
