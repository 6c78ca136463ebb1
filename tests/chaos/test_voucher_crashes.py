"""A voucher that was taken is credited, once, when its worker is killed at any step."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Final

import pytest
import pytest_asyncio

from tests.support.chaos.mortal import KILLED, nursery
from tests.support.sending.batchers import broken_promises
from tests.support.topups.voucher_servers import run_issuers
from tests.support.topups.voucher_world import VoucherWorld, open_world
from tumira.core.ids import TopUpId
from tumira.topups.states import FailureReason, TopUpState
from tumira.topups.voucher_pins import Issuer

STEPS_MAX: Final = 100
VALUE: Final = Decimal("150.00")
# After this OTT is believed that it never heard of a voucher that is still whole; the others are asked again.
LATER: Final = "11 minutes"


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[VoucherWorld]:
    with run_issuers() as issuers:
        async with open_world(database_url, issuers) as world:
            yield world


async def check_after_a_death(
    world: VoucherWorld, issuer: Issuer, pin: str, top_up_id: TopUpId
) -> TopUpState:
    """Let another worker continue; what was taken was credited, and nothing else was."""
    assert await broken_promises(world.database) == []
    await world.pass_time(top_up_id, LATER)
    found = (await world.decide(top_up_id))[-1]
    taken = world.server_of(issuer).taken(pin)
    if found.state is TopUpState.CREDITED:
        assert (found.paid, taken) == (VALUE, VALUE)
    else:
        assert (found.state, found.reason, taken) == (
            TopUpState.FAILED,
            FailureReason.NEVER_ARRIVED,
            Decimal(0),
        )
    assert (found.due_at, found.sealed_pin) == (None, None)
    assert await broken_promises(world.database) == []
    return found.state


# In `make test`, top-ups by Paynow show the same: tests/chaos/test_top_up_races.py.
@pytest.mark.long
@pytest.mark.parametrize("issuer", [Issuer.OTT, Issuer.ONE_VOUCHER, Issuer.BLU])
async def test_a_worker_killed_at_any_step_leaves_a_voucher_taken_and_credited_once_or_not_at_all(
    world: VoucherWorld, issuer: Issuer
) -> None:
    ends: Counter[TopUpState] = Counter()
    with nursery(world.database.url, world.issuers.environment) as workers:
        for step in range(1, STEPS_MAX):
            pin = world.server_of(issuer).issue(str(VALUE))
            top_up_id = await world.start(await world.new_account(), issuer, pin)
            code = await asyncio.to_thread(workers.die_at, step)
            assert code in {0, KILLED}
            ends[await check_after_a_death(world, issuer, pin, top_up_id)] += 1
            if code == 0:
                break
        else:
            raise AssertionError("no run completed")
    assert ends.total() > 2 * 7
    assert ends[TopUpState.CREDITED] > ends[TopUpState.FAILED]
    # Only OTT is never called again for the money; the others repeat the call with the same reference.
    assert (ends[TopUpState.FAILED] > 0) is (issuer is Issuer.OTT)
