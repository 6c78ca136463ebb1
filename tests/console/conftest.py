"""A service for each file of tests, with an admin and a viewer."""

from collections.abc import Iterator

import httpx
import pytest

from tests.support.console.operators import signed_in
from tests.support.identity.people import run_behind_proxy
from tests.support.processes.service import Service
from tumira.identity.store.operators import Role


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a running service in which every browser comes from an address of its own."""
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> httpx.Client:
    return signed_in(service)


@pytest.fixture(scope="module")
def viewer(service: Service) -> httpx.Client:
    return signed_in(service, Role.VIEWER, "Vimbai Viewer")
