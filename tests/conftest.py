"""Fixtures that all tests share."""

from collections.abc import Iterator

import pytest

from tests.support.embedded import quick_directory
from tests.support.postgres import clone, run_server
from tests.support.service import Service, run_web
from tumira.runtime import configure_logging


@pytest.fixture(scope="session", autouse=True)
def _plain_log_lines() -> None:
    configure_logging("error")


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """Give a PostgreSQL server for the whole run."""
    with run_server(quick_directory()) as url:
        yield url


@pytest.fixture
def database_url(server_url: str) -> Iterator[str]:
    """Give a migrated database of the test's own."""
    with clone(server_url) as url:
        yield url


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a running service that the tests of a file share; each opens accounts of its own."""
    with clone(server_url) as url, run_web(url) as running:
        yield running
