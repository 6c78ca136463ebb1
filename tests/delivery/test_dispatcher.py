"""A claim is submitted once it is known to be committed, and once only."""

from typing import Final

import pytest

from tests.support.delivery.paper_link import open_dispatcher, open_line
from tests.support.delivery.settling import World
from tumira.delivery import dispatcher
from tumira.postgres.pinned_connection import PinnedConnection

WAIT_S: Final = 20.0


@pytest.mark.parametrize("committed", [True, False])
async def test_a_claim_whose_commit_is_unknown_is_submitted_once(
    world: World, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    monkeypatch.setattr(dispatcher, "PAUSE_S", 0.01)
    real = PinnedConnection.commit
    lost: list[int] = []

    async def commit(self: PinnedConnection, *, durable: bool = True) -> None:
        if lost:
            await real(self, durable=durable)
            return
        lost.append(1)
        if committed:
            await real(self, durable=durable)
        self.terminate()
        raise ConnectionError("the answer is lost")

    await world.send(3)
    async with open_line(world) as line:
        line.renew()
        monkeypatch.setattr(PinnedConnection, "commit", commit)
        async with open_dispatcher(world, line):

            async def submitted() -> bool:
                return len(line.link.submits) >= 3

            await world.engine.until(submitted, "the claim was lost", WAIT_S)
        assert lost
        assert len(set(line.link.submits)) == len(line.link.submits) == 3
        assert await world.engine.statuses() == {"sending": 3}
        assert await world.incidents() == {}


async def test_a_claim_that_another_worker_has_by_now_is_not_submitted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fail-over may have undone it: who has the message now is read again before it is submitted."""
    monkeypatch.setattr(dispatcher, "PAUSE_S", 0.01)
    real = PinnedConnection.commit
    lost: list[int] = []

    async def commit(self: PinnedConnection, *, durable: bool = True) -> None:
        await real(self, durable=durable)
        if not lost:
            lost.append(1)
            await world.rows("UPDATE in_flight SET worker = 'another' WHERE message_id = $1", second.id)
            raise ConnectionError("the answer is lost")

    await world.send(2)
    first, second = sorted(await world.claim(2), key=lambda one: one.id)
    await world.settle(world.returned(first), world.returned(second))
    async with open_line(world) as line:
        line.renew()
        monkeypatch.setattr(PinnedConnection, "commit", commit)
        async with open_dispatcher(world, line) as claiming:

            async def looked() -> bool:
                return bool(line.link.submits) and claiming._unsure is None

            await world.engine.until(looked, "the claim was lost", WAIT_S)
        assert line.link.submits == [(first.id, 1)]
        assert list(line.sender.claimed) == [first.id]


async def test_what_another_carrier_left_in_doubt_is_claimed_before_its_own_queues(world: World) -> None:
    await world.send(1, to=["+263771200001"])
    (doubted,) = await world.claim()
    await world.settle(world.doubtful(doubted))
    await world.resume_due()
    await world.rows("UPDATE queue SET avoid = $1", world.carrier_id + 1)
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        claiming._closing = True
        line.renew()
        # It serves none of its own, so it has only what others left.
        line.routes._relieving = {world.carrier_id: ("ZW",)}
        assert await claiming._claim_relieved(5)
        assert line.link.submits == [(doubted.id, 1)]
        assert not await claiming._claim_relieved(5)
        line.routes._relieving = {}
        assert not await claiming._claim_relieved(5)


async def test_a_sender_without_a_lease_claims_nothing(world: World) -> None:
    await world.send(2)
    async with open_line(world) as line, open_dispatcher(world, line) as claiming:
        for _ in range(3):
            claiming.wake()
            await world.rows("SELECT pg_sleep(0.01)")
        assert await world.engine.statuses() == {"queued": 2}
        line.renew()
        claiming.wake()

        async def submitted() -> bool:
            return len(line.link.submits) == 2

        await world.engine.until(submitted, "nothing was claimed", WAIT_S)
