"""Fixtures that all tests share."""

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from tests.support.delivery.engine import Engine, open_engine
from tests.support.delivery.settling import World, open_world
from tests.support.delivery.smpp_peer import Carrier
from tests.support.delivery.traffic import miscounted
from tests.support.markers import KINDS, kind_of
from tests.support.postgres.databases import FORGETFUL, clone, run_server
from tests.support.postgres.embedded import quick_directory, temporary_base
from tests.support.postgres.embedded_starts import copy_of, quiet
from tests.support.processes.service import Service, run_web
from tests.support.topups.paynow_server import PaynowServer, paynow_server
from tumira.postgres.embedded.server import start
from tumira.runtime import configure_logging

EXAMPLES_SHORT = 30
EXAMPLES_LONG = 300


def pytest_configure(config: pytest.Config) -> None:
    """Try the same few examples of a property in `make test`, and many random ones in `make test-long`."""
    short = config.getoption("markexpr") == "not long"
    settings.register_profile(
        "tumira",
        # A busy machine is slow, which says nothing about the code.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=short,
        max_examples=EXAMPLES_SHORT if short else EXAMPLES_LONG,
    )
    settings.load_profile("tumira")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test by what it needs, so that `-m unit` runs the quick ones."""
    # To find it out takes a second, in each of the test processes, and most runs do not ask.
    asked = item.config.getoption("markexpr")
    if isinstance(item, pytest.Function) and any(kind in asked for kind in KINDS):
        item.add_marker(kind_of(item))


def pytest_collection_finish() -> None:
    """Keep thousands of tests out of the rounds of the garbage collector."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _plain_log_lines() -> None:
    configure_logging("error")


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    with run_server(quick_directory(), FORGETFUL) as url:
        yield url


@pytest.fixture
def database_url(server_url: str) -> Iterator[str]:
    with clone(server_url) as url:
        yield url


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a running service that the tests of a file share; each opens accounts of its own."""
    with clone(server_url) as url, run_web(url) as running:
        yield running


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """Give a database with a carrier and an account; its audit and daily totals are right after the test."""
    async with open_world(database_url) as world:
        yield world
        assert await world.engine.audit() == []
        assert await miscounted(world) == []


@pytest_asyncio.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    """Give an engine without carriers and workers, whose audit is clean after the test."""
    async with open_engine(database_url) as engine:
        yield engine
        assert await engine.audit() == []


@pytest.fixture
def base() -> Iterator[Path]:
    with temporary_base(quick_directory()) as made:
        yield made


@pytest.fixture
def new_dir(base: Path) -> Path:
    return base / "data"


@pytest.fixture(scope="module")
def pattern() -> Iterator[Path]:
    with temporary_base(quick_directory()) as made:
        with start(made / "data", quiet):
            pass
        yield made / "data"


@pytest.fixture
def data_dir(base: Path, pattern: Path) -> Path:
    """Give a directory that was used before and stopped cleanly; sooner had than a new one."""
    return copy_of(pattern, base / "data")


@pytest.fixture
async def nothing_fails_unseen() -> AsyncIterator[None]:
    """Fail a test when something was raised inside the event loop, which would only be logged."""
    raised: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: raised.append(context))
    yield
    loop.set_exception_handler(before)
    assert raised == []


@pytest.fixture
async def carrier() -> AsyncIterator[Carrier]:
    async with Carrier().listening() as listening:
        yield listening


@pytest.fixture
def paynow() -> Iterator[PaynowServer]:
    with paynow_server() as running:
        running.tells = False
        running.numbers = itertools.count(9510)
        yield running
