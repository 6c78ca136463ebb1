"""The places that a bind offers to web processes on its machine, as one of them hears it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.support.delivery.paper_link import Line, open_dispatcher, open_line
from tests.support.delivery.settling import WORKER, World
from tests.support.sending.batchers import PATIENCE_S, until
from tests.support.sending.peers import Notes, meeting
from tumira.carriers.store import HttpAccess
from tumira.delivery import dispatcher
from tumira.delivery.clocks import Clocks
from tumira.delivery.direct_offers import DirectOffers
from tumira.delivery.dispatcher import Dispatcher
from tumira.delivery.store import queue
from tumira.sending.direct.wire import Finished, Offer, Peer, ToWeb, ToWorker, Withdrawal

NEVER_S: Final = 1000.0
HTTP: Final = HttpAccess("example", None, "http://127.0.0.1", {}, {}, "token")


async def test_places_are_offered_once_its_queues_were_looked_into(world: World) -> None:
    offers, web = DirectOffers(WORKER, world.engine.database.clock), Notes[ToWeb]()

    def limits() -> list[int]:
        return [frame.limit for frame in web.said if isinstance(frame, Offer)]

    await world.send()
    async with (
        open_line(world) as line,
        open_dispatcher(world, line) as claiming,
        meeting(web, offers),
    ):
        carrier = line.sender.carrier
        claiming._offer = offers.add(line.sender.name, carrier.id, claiming._take_direct)
        # It serves no queue at first.
        line.routes.renew([], set(), [])
        line.renew()
        claiming.wake()
        await until(lambda: claiming._rounds and not claiming._is_looking)
        line.routes.renew([carrier], {carrier.id}, ["ZW"])
        claiming.room()
        await until(lambda: limits() and limits()[-1] > 0)
        # What waited is submitted before.
        assert limits()[0] == 0
        assert len(line.link.submits) == 1


class Machine:
    """A web process beside a worker, and what it heard of the places of one bind."""

    def __init__(self, world: World) -> None:
        self.offers = DirectOffers(WORKER, world.engine.database.clock)
        self.web = Notes[ToWeb]()
        self.far: Peer[ToWorker]
        self.near: Peer[ToWeb]

    @property
    def offered(self) -> list[Offer]:
        return [frame for frame in self.web.said if isinstance(frame, Offer)]

    @property
    def limits(self) -> list[int]:
        return [offer.limit for offer in self.offered]

    async def hear_offer(self, claiming: Dispatcher) -> None:
        """Return when places are offered, after the first look into the queue."""
        await until(lambda: claiming._rounds and not claiming._is_looking)
        claiming.room()
        await self.hear_all()
        assert self.limits[-1] > 0

    async def hear_all(self) -> None:
        """Return when the web process has heard all that was said until now."""
        last = Withdrawal("last word")
        self.far.send(last)
        await until(lambda: last in self.web.said)
        self.web.frames = [one for one in self.web.frames if one[1] != last]


@asynccontextmanager
async def open_machine(world: World, line: Line) -> AsyncIterator[tuple[Dispatcher, Machine]]:
    machine = Machine(world)
    claiming = Dispatcher(line.sender, WORKER, world.engine.database, Clocks(), line.routes, machine.offers)
    try:
        async with meeting(machine.web, machine.offers) as (machine.near, machine.far):
            await until(lambda: machine.offers.peers)
            yield claiming, machine
    finally:
        await claiming.close()


async def test_places_are_offered_for_the_queues_that_a_bind_serves_while_it_is_well(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
    async with open_line(world) as line:
        line.renew()
        async with open_machine(world, line) as (claiming, machine):
            # A whole window, and as many ahead.
            places = 2 * line.sender.carrier.settings.window_size
            await machine.hear_offer(claiming)
            for is_up, limit in ((False, 0), (True, places)):
                line.link.is_up = is_up
                claiming.room()
                await machine.hear_all()
                assert machine.limits[-1] == limit
            # Another carrier comes first from now on.
            carrier = line.sender.carrier
            first = replace(carrier, id=carrier.id + 1, priority=carrier.priority - 1)
            line.routes.renew([first, carrier], {first.id, carrier.id}, ["ZW"])
            claiming.room()
            await machine.hear_all()
            assert [sorted(offer.queues) for offer in machine.offered][-2:] == [["ZA", "ZW"], []]


async def test_no_more_places_are_offered_while_the_queues_are_looked_into(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
    claim = queue.claim
    is_looking, go_on = asyncio.Event(), asyncio.Event()
    go_on.set()

    async def claim_slowly(*given: Any, **more: Any) -> Any:
        claimed = await claim(*given, **more)
        is_looking.set()
        await go_on.wait()
        return claimed

    monkeypatch.setattr(queue, "claim", claim_slowly)
    async with open_line(world) as line:
        line.renew()
        async with open_machine(world, line) as (claiming, machine):
            await machine.hear_offer(claiming)
            line.link.is_up = False
            claiming.room()
            await machine.hear_all()
            assert machine.limits[-1] == 0
            line.link.is_up = True
            is_looking.clear()
            go_on.clear()
            claiming.wake()
            await is_looking.wait()
            claiming.room()
            await machine.hear_all()
            assert machine.limits[-1] == 0
            go_on.set()
            await until(lambda: machine.limits[-1] > 0)


async def test_no_places_are_offered_while_small_sends_wait_in_the_queue(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
    await world.rows("UPDATE carriers SET window_size = 4")
    await world.send(10)
    async with open_line(world) as line:
        line.renew()
        async with open_machine(world, line) as (claiming, machine):
            await until(lambda: len(line.sender.claimed) == 8)
            # The place that is free now is for one of those that wait.
            line.link.answer(line.link.submits[0])
            assert line.sender.room().small == 1
            claiming.room()
            await machine.hear_all()
            assert not any(machine.limits)


async def test_a_bind_that_ends_takes_its_offer_back_and_makes_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "LOOK_S", NEVER_S)
    async with open_line(world) as line:
        line.renew()
        async with open_machine(world, line) as (claiming, machine):
            await machine.hear_offer(claiming)
            line.link.is_up = False
            claiming.room()
            closing = asyncio.create_task(claiming.close())
            await until(lambda: isinstance(machine.web.said[-1], Withdrawal))
            line.link.is_up = True
            claiming.room()
            await machine.hear_all()
            token = machine.offered[-1].token
            assert machine.web.said[-1] == Withdrawal(token)
            assert not closing.done()
            machine.near.send(Finished(token))
            await asyncio.wait_for(closing, PATIENCE_S)


@pytest.mark.parametrize(
    ("http", "simulator", "is_offered"), [(None, False, True), (HTTP, False, False), (None, True, False)]
)
async def test_only_binds_over_smpp_to_real_carriers_offer_places(
    world: World, *, http: HttpAccess | None, simulator: bool, is_offered: bool
) -> None:
    async with open_line(world) as line:
        line.sender.carrier = replace(line.sender.carrier, http=http, simulator=simulator)
        async with open_machine(world, line) as (claiming, machine):
            claiming.room()
            await machine.hear_all()
            expected = {("one/1", world.carrier_id)} if is_offered else set()
            assert {(offer.bind, offer.carrier_id) for offer in machine.offered} == expected
