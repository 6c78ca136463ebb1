"""Which binds does this worker hold? Takes its share, keeps the leases, and follows the carriers' rows.

A worker says every second that it lives and renews its leases with that; who has not done so for ten seconds
is taken for dead by the others. A link hands nothing over once half of that time has passed.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from tumira.carriers.smpp.peer import DEFAULT_TIMING, Timing
from tumira.engine.clocks import Clocks
from tumira.engine.dispatcher import Dispatcher
from tumira.engine.link import Link
from tumira.engine.recorder import Recorder
from tumira.engine.routes import Routes
from tumira.store import carriers, places, prices
from tumira.store.carriers import BindState, Carrier, Health
from tumira.store.database import Database, is_unavailable
from tumira.store.waking import listen

LEASE_S: Final = 10.0
BEAT_S: Final = 1.0
DRAIN_S: Final = 12.0
RECORD_S: Final = 5.0

_log: Final = structlog.get_logger()

Place = tuple[int, int]


@dataclass(slots=True)
class _Held:
    """A bind of ours, and who claims for it."""

    link: Link
    dispatcher: Dispatcher


class Supervisor:
    """Runs the links of one worker."""

    def __init__(self, database: Database, worker: str, timing: Timing = DEFAULT_TIMING) -> None:
        self._database = database
        self._worker = worker
        self._timing = timing
        self._clocks = Clocks()
        self._routes = Routes()
        self._held: dict[Place, _Held] = {}
        self._recorders: dict[int, Recorder] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until cancelled, then part from all carriers in good order."""
        tasks = [
            asyncio.create_task(listen(self._database, self._wake)),
            asyncio.create_task(self._publish()),
        ]
        try:
            while True:
                try:
                    await self._beat()
                except Exception as error:  # noqa: BLE001 - carriers are kept as long as their leases last
                    if is_unavailable(error):
                        _log.warning("database unavailable", error=repr(error))
                    else:
                        _log.error("carriers not followed", exc_info=error)
                await asyncio.sleep(BEAT_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop()

    def _wake(self) -> None:
        for held in self._held.values():
            held.dispatcher.wake()

    async def _publish(self) -> None:
        while True:
            try:
                await self._clocks.publish(self._database)
            except Exception as error:  # noqa: BLE001 - the next time will tell the same and more
                _log.warning("clocks not published", error=repr(error))
                await asyncio.sleep(BEAT_S)

    async def _beat(self) -> None:
        """Say that we live, keep what is ours, take our share of what is free, and look how all are."""
        began = asyncio.get_running_loop().time()
        async with self._database.connection() as connection:
            workers = await carriers.heartbeat(connection, self._worker, LEASE_S)
            active = await carriers.list_active(connection)
            self._follow(active)
            reports = [held.link.report() for held in self._held.values()]
            kept = await carriers.report(connection, reports, LEASE_S) if reports else set()
            for place in self._held.keys() - kept:
                self._lose(place)
            health = await carriers.list_binds(connection)
            for carrier in active:
                wanted = self._share(carrier, health, workers)
                if wanted:
                    taken = await carriers.lease(connection, carrier.id, self._worker, wanted, LEASE_S)
                    for number in taken:
                        self._open(carrier, number)
            countries = await prices.list_countries(connection)
        self._renew(active, health, countries, began)

    def _follow(self, active: Sequence[Carrier]) -> None:
        """Part from carriers that were removed or changed; what changed is bound anew at the next beat."""
        now = {carrier.id: carrier for carrier in active}
        for place, held in list(self._held.items()):
            carrier = now.get(place[0])
            if carrier is None or carrier.changed_at != held.link.carrier.changed_at:
                self._part(place)

    def _share(self, carrier: Carrier, health: Sequence[Health], workers: int) -> Sequence[int]:
        """Return the free numbers that we should take; give one up when we have more than our share."""
        own = [number for carrier_id, number in self._held if carrier_id == carrier.id]
        leaving = any(task.get_name() == str(carrier.id) for task in self._closing)
        share = -(-carrier.settings.binds // workers)
        if len(own) > share and not leaving:
            self._part((carrier.id, max(own)))
            return ()
        others = {one.number for one in health if one.carrier_id == carrier.id and one.lease_valid}
        free = [
            number
            for number in range(1, carrier.settings.binds + 1)
            if number not in others and number not in own
        ]
        # What is leaving must have gone before its number is taken again.
        return () if leaving else free[: max(0, share - len(own))]

    def _open(self, carrier: Carrier, number: int) -> None:
        place = (carrier.id, number)
        recorder = self._recorders.get(carrier.id)
        if recorder is None:
            recorder = Recorder(self._database, carrier.id, self._worker)
            self._recorders[carrier.id] = recorder
        recorder.refunded = frozenset(carrier.settings.refund)
        link = Link(carrier, number, self._worker, recorder, self._timing, lambda: self._room(place))
        self._held[place] = _Held(
            link, Dispatcher(link, self._worker, self._database, self._clocks, self._routes)
        )

    def _room(self, place: Place) -> None:
        held = self._held.get(place)
        if held is not None:
            held.dispatcher.room()

    def _renew(
        self, active: Sequence[Carrier], health: Sequence[Health], countries: Sequence[str], began: float
    ) -> None:
        """Pass on the leases, each bind's share of its carrier's rate, and who serves which country."""
        well = {one.carrier_id for one in health if one.lease_valid and one.state is BindState.BOUND}
        for held in self._held.values():
            if held.link.is_well:
                well.add(held.link.carrier.id)
        self._routes.renew(active, well, countries)
        for held in self._held.values():
            carrier = held.link.carrier
            bound = sum(
                one.carrier_id == carrier.id and one.lease_valid and one.state is not BindState.DOWN
                for one in health
            )
            held.link.renew(began + LEASE_S / 2, carrier.settings.tps / max(1, bound))

    def _lose(self, place: Place) -> None:
        held = self._held.pop(place)
        _log.warning("lease lost", bind=held.link.bind)
        held.link.lose()
        self._close_later(place, held.dispatcher.close())

    def _part(self, place: Place) -> None:
        held = self._held.pop(place)
        self._close_later(place, self._drain(place, held))

    def _close_later(self, place: Place, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing, name=str(place[0]))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _drain(self, place: Place, held: _Held) -> None:
        await held.dispatcher.close()
        await held.link.drain(DRAIN_S)
        recorder = self._recorders.get(place[0])
        if recorder is not None:
            await recorder.drain(RECORD_S)
        try:
            async with self._database.connection() as connection:
                await carriers.release(connection, self._worker, [place])
        except Exception as error:  # noqa: BLE001 - then the lease ends by itself
            _log.warning("bind not released", bind=held.link.bind, error=repr(error))

    async def _stop(self) -> None:
        """Part from everybody: nothing is left in doubt that was answered in time."""
        for place in list(self._held):
            self._part(place)
        if self._closing:
            await asyncio.wait(self._closing, timeout=DRAIN_S + 2 * RECORD_S)
        for recorder in self._recorders.values():
            await recorder.drain(RECORD_S)
            await recorder.close()
        try:
            async with self._database.transaction() as connection:
                await places.sign_off(connection, self._worker)
        except Exception as error:  # noqa: BLE001 - then others find us dead
            _log.warning("worker not signed off", error=repr(error))
