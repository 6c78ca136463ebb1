"""Leaving a long queue costs what leaving a short one does."""

import pytest

from tests.load.expiry import measure
from tests.support.postgres.databases import clone

COUNT = 3_000
OTHERS = 500_000


@pytest.mark.long
async def test_a_queue_expires_as_fast_behind_half_a_million_messages_as_alone(server_url: str) -> None:
    rates = []
    for others in (0, OTHERS):
        with clone(server_url) as url:
            rates.append((await measure(url, COUNT, others))[0])
    assert rates[1] > rates[0] / 2
