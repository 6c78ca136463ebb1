"""Fixtures of tests about people who sign up and sign in."""

from collections.abc import Iterator

import pytest

from tests.support.identity.people import run_behind_proxy
from tests.support.processes.service import Service


@pytest.fixture(scope="package")
def service(server_url: str) -> Iterator[Service]:
    """Give a running service in which everybody comes from an address of their own."""
    with run_behind_proxy(server_url) as running:
        yield running
