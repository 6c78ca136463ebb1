"""Does a carrier that was in trouble come back?"""

from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from tests.support.engine import Engine, numbers, open_engine
from tumira.carriers.smpp.pdu import Status
from tumira.simulator.line import Line
from tumira.simulator.misbehaviours import Misbehaviour
from tumira.simulator.smsc import run_smsc


class Ailing(Misbehaviour):
    """The first n submits are refused with RTHROTTLED, or another status."""

    def __init__(self, value: int, status: int = Status.RTHROTTLED) -> None:
        super().__init__(value)
        self._status = status

    def judge(self, line: Line) -> int:  # noqa: ARG002 - all lines alike
        """Refuse it while ill."""
        self._count += 1
        return self._status if self._count <= self.value else 0


@pytest_asyncio.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    """Give an engine without carriers."""
    async with open_engine(database_url) as engine:
        yield engine


@pytest.mark.parametrize("countries", [["ZW"], None], ids=["one country", "all countries"])
async def test_a_carrier_that_was_in_trouble_is_tried_again_and_used_again(
    engine: Engine, countries: Sequence[str] | None
) -> None:
    async with run_smsc(misbehaviours=[Ailing(20, Status.RSYSERR)]) as smsc:
        await engine.add_carrier("one", smsc.port, countries)
        engine.start_worker()
        await engine.send(await engine.open_account(), numbers(20))
        await engine.until_all("delivered", wait_s=25)
        assert set(smsc.texts.counts.values()) == {1}
        assert await engine.audit() == []


@pytest.mark.parametrize("countries", [["ZW"], None], ids=["one country", "all countries"])
async def test_a_slow_carrier_serves_every_country(engine: Engine, countries: Sequence[str] | None) -> None:
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port, countries, tps=5)
        engine.start_worker()
        await engine.send(await engine.open_account(), numbers(3))
        await engine.until_all("delivered", wait_s=10)
        assert await engine.audit() == []
