"""Fixtures that tests of the contract share."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.support.paynow_server import PaynowServer, paynow_server
from tests.support.smpp_peer import Carrier


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
    """Give a carrier that does what the test says."""
    async with Carrier().listening() as listening:
        yield listening


@pytest.fixture
def paynow() -> Iterator[PaynowServer]:
    """Give a Paynow that tells nothing by itself: nobody listens at the address that we give."""
    with paynow_server() as running:
        running.tells = False
        running.numbers = itertools.count(9510)
        yield running
