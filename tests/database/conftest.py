"""Fixtures that tests of the database share."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.embedded import quick_directory, temporary_base
from tests.support.embedded_starts import quiet
from tests.support.settling import World, open_world
from tumira.store.embedded import start


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """Give a database with a carrier and an account."""
    async with open_world(database_url) as world:
        yield world


@pytest.fixture
def base() -> Iterator[Path]:
    """Give an empty directory in which starting is quick."""
    with temporary_base(quick_directory()) as made:
        yield made


@pytest.fixture
def new_dir(base: Path) -> Path:
    """Name a directory in which nothing was ever started."""
    return base / "data"


@pytest.fixture(scope="module")
def pattern() -> Iterator[Path]:
    """Give a directory that was used before, to be copied."""
    with temporary_base(quick_directory()) as made:
        with start(made / "data", quiet):
            pass
        yield made / "data"


@pytest.fixture
def data_dir(base: Path, pattern: Path) -> Path:
    """Give a directory that was used before and stopped cleanly; sooner had than a new one."""
    made = base / "data"
    subprocess.run(["cp", "-a", pattern, made], check=True)
    (made / "postgres.log").unlink()
    return made
