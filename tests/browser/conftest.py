"""Fixtures for tests in a browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.browser import Opener, run_browser


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Give a browser that all files here share; each test has its own contexts, and so its own cookies."""
    with run_browser() as running:
        yield running


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Opener]:
    """Give what opens pages; something that goes wrong on one of them fails the test at its end."""
    opener = Opener(browser)
    try:
        yield opener
    finally:
        opener.close()
