"""Fixtures that all tests share."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.embedded import quick_directory
from tests.support.postgres import clone, run_server
from tests.support.service import Service, run_web
from tumira.runtime import configure_logging


def pytest_configure(config: pytest.Config) -> None:
    """Let properties be tried in the same way every time where all is tried, and never against the clock."""
    settings.register_profile(
        "steady",
        # A machine that does other things as well takes its time, and that says nothing about the code.
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=config.getoption("markexpr") == "not long",
    )
    settings.load_profile("steady")


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
