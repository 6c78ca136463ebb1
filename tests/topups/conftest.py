"""Fixtures of the tests of top-ups."""

from collections.abc import Iterator

import pytest

from tests.support.postgres.databases import clone


@pytest.fixture(scope="module")
def url(server_url: str) -> Iterator[str]:
    """Give a database that the tests of a file share; each opens accounts of its own."""
    with clone(server_url) as made:
        yield made
