"""Runs the senders of one worker: takes its share of the binds, renews leases, follows carrier changes.

A worker renews its leases every second with its heartbeat; after ten seconds without one, the others declare
it dead. A sender submits nothing once half of that time has passed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from tumira.carriers import store as carriers
from tumira.carriers.http.access import callback_url, open_carrier
from tumira.carriers.routes import store as route_store
from tumira.carriers.routes.rules import CarrierRoute, Routes
from tumira.carriers.store import Carrier
from tumira.core import metrics
from tumira.core.ids import MessageId
from tumira.core.loops import forever, log_failure
from tumira.core.tracing import Tracer
from tumira.delivery.clocks import PUBLISH_S, Clocks
from tumira.delivery.direct_offers import DirectOffers
from tumira.delivery.dispatcher import Dispatcher
from tumira.delivery.follow_up import DOUBT_WAIT_S, give_back_claims
from tumira.delivery.http.client import DEFAULT_TIMEOUTS as DEFAULT_HTTP_TIMEOUTS
from tumira.delivery.http.client import CarrierClient, HttpTimeouts
from tumira.delivery.http.follower import HttpFollower
from tumira.delivery.http.link import HttpLink
from tumira.delivery.link import Link, LinkListener
from tumira.delivery.observer import FLUSH_S, Observer
from tumira.delivery.outcomes import LeftInDoubt
from tumira.delivery.recorder import Recorder
from tumira.delivery.sender import Sender
from tumira.delivery.settle import settle
from tumira.delivery.smpp.connection import DEFAULT_TIMEOUTS as DEFAULT_SMPP_TIMEOUTS
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.link import SmppLink
from tumira.delivery.store import binds, queue
from tumira.delivery.store import waiting as places
from tumira.delivery.store.binds import BindHealth, BindState
from tumira.postgres.connection import Connection
from tumira.postgres.notify import listen
from tumira.postgres.pool import Database
from tumira.pricing.store import list_countries
from tumira.webhooks import endpoints

LEASE_S: Final = 10.0
BEAT_S: Final = 1.0
LOST_CLAIM_S: Final = 15.0
LOST_CLAIMS_MAX: Final = 50_000
DRAIN_S: Final = 12.0
RECORD_S: Final = 5.0

_log: Final = structlog.get_logger()

Place = tuple[int, int]


@dataclass(slots=True)
class _Held:
    sender: Sender
    dispatcher: Dispatcher
    leaving: "asyncio.Task[None] | None" = None


@dataclass(frozen=True, slots=True)
class CarrierTerms:
    """How carriers are waited for, and for those over HTTP where they reach us and by which proxy we them."""

    smpp: SmppTimeouts = DEFAULT_SMPP_TIMEOUTS
    http: HttpTimeouts = DEFAULT_HTTP_TIMEOUTS
    public_url: str = ""
    proxy: str | None = None


DEFAULT_TERMS: Final = CarrierTerms()


class Supervisor:
    def __init__(
        self,
        database: Database,
        worker: str,
        terms: CarrierTerms = DEFAULT_TERMS,
        tracer: Tracer | None = None,
        data_dir: Path | None = None,
    ) -> None:
        self._database = database
        self._data_dir = data_dir
        self._offers = DirectOffers(worker, database.clock)
        self._worker = worker
        self._terms = terms
        self._observer = Observer(database, tracer)
        self._clocks = Clocks()
        self._routes = Routes()
        self._held: dict[Place, _Held] = {}
        self._recorders: dict[int, Recorder] = {}
        # Messages that this worker had claimed at the last look, and that no sender had.
        self._lost_claims: frozenset[UUID] = frozenset()
        self._lost_looked_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Work until cancelled, then disconnect from all carriers in good order."""
        async with self._offers.listening(self._data_dir, self._database.url):
            await self._run()

    async def _run(self) -> None:
        tasks = [
            asyncio.create_task(listen(self._database, self._wake)),
            asyncio.create_task(
                forever("publish turn clocks", lambda: self._clocks.publish(self._database), PUBLISH_S)
            ),
            asyncio.create_task(forever("write statistics", self._observer.flush, FLUSH_S)),
        ]
        try:
            # Not `forever`: a recorder that has died must end the worker.
            while True:
                await self._try(self._beat)
                await self._try(self._find_lost_claims)
                await self._try(self._close_left_open)
                for recorder in self._recorders.values():
                    recorder.check()
                await asyncio.sleep(BEAT_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop()

    async def _try(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Exception as error:  # noqa: BLE001 - carriers are kept as long as their leases last
            log_failure("could not renew carrier leases", error)

    def _wake(self) -> None:
        for held in self._held.values():
            held.dispatcher.wake()

    async def _beat(self) -> None:
        """Renew the leases, take our share of free binds, and update routes and rates."""
        async with self._database.connection() as connection:
            began = asyncio.get_running_loop().time()
            await self._database.clock.follow(connection)
            workers = await self._renew_leases(connection)
            active = await carriers.list_active(connection)
            self._observer.carriers.update({carrier.id: carrier.name for carrier in active})
            self._follow(active)
            health = await binds.list_binds(connection)
            for carrier in active:
                wanted = self._share(carrier, health, workers)
                if wanted:
                    taken = await binds.lease(connection, carrier.id, self._worker, wanted, LEASE_S)
                    for number in taken:
                        self._open(carrier, number)
            countries = await list_countries(connection)
            avoided = await queue.list_avoided(connection)
            routes = await route_store.list_routes(connection)
            tell_sent = await endpoints.list_subscribed_accounts(connection, "message.sent")
        for recorder in self._recorders.values():
            recorder.tell_sent = tell_sent
        self._pass_on(active, health, countries, avoided, routes, began)
        metrics.BEAT.set_to_current_time()

    async def _renew_leases(self, connection: Connection) -> int:
        """Send a heartbeat with the state of our binds; drop those whose lease is lost."""
        workers = await binds.heartbeat(connection, self._worker, LEASE_S)
        reports = [held.sender.report() for held in self._held.values()]
        if reports:
            kept = await binds.report(connection, reports, LEASE_S)
            for place in [place for place in self._held if place not in kept]:
                self._lose(place)
        return workers

    def _follow(self, active: Sequence[Carrier]) -> None:
        """Disconnect from carriers that were removed or changed; a changed one is bound again afterwards."""
        now = {carrier.id: carrier for carrier in active}
        for place, held in self._held.items():
            carrier = now.get(place[0])
            if carrier is None or carrier.changed_at != held.sender.carrier.changed_at:
                self._part(place)

    def _share(self, carrier: Carrier, health: Sequence[BindHealth], workers: int) -> Sequence[int]:
        """Return the free binds that we should take; give one up when we have more than our share."""
        own = {number: held for (carrier_id, number), held in self._held.items() if carrier_id == carrier.id}
        share = -(-carrier.settings.binds // workers)
        if any(held.leaving for held in own.values()):
            return ()
        if len(own) > share:
            self._part((carrier.id, max(own)))
            return ()
        taken = {one.number for one in health if one.carrier_id == carrier.id and one.lease_valid}
        free = [number for number in range(1, carrier.settings.binds + 1) if number not in taken | own.keys()]
        return free[: share - len(own)]

    def _open(self, carrier: Carrier, number: int) -> None:
        place = (carrier.id, number)
        recorder = self._recorders.get(carrier.id)
        if recorder is None:
            recorder = Recorder(self._database, carrier.id, self._worker, self._observer)
            self._recorders[carrier.id] = recorder
        recorder.refunded = frozenset(carrier.settings.refund)
        try:
            open_link = self._prepare_link(carrier, number, recorder)
        except ValueError as error:
            # Its profile or settings are those of another version; the lease ends by itself.
            _log.error("carrier cannot be used", carrier=carrier.name, problem=str(error))
            return
        sender = Sender(
            carrier, number, self._worker, recorder, self._observer, open_link, lambda: self._room(place)
        )
        self._held[place] = _Held(
            sender,
            Dispatcher(sender, self._worker, self._database, self._clocks, self._routes, self._offers),
        )

    def _prepare_link(
        self, carrier: Carrier, number: int, recorder: Recorder
    ) -> Callable[[LinkListener], Link]:
        if carrier.http is None:
            return partial(SmppLink, carrier, number, recorder, self._terms.smpp)
        http = open_carrier(carrier.http)
        timing = self._terms.http
        client = CarrierClient(http, carrier.settings.window_size, timing, self._terms.proxy)
        follower = None
        if number == 1:
            follower = HttpFollower(self._database, carrier, http, client, timing, self._observer)
        reports_to = callback_url(self._terms.public_url, carrier.http)
        return partial(HttpLink, carrier, number, http, client, timing, reports_to, follower)

    def _room(self, place: Place) -> None:
        held = self._held.get(place)
        if held is not None:
            held.dispatcher.room()

    def _pass_on(
        self,
        active: Sequence[Carrier],
        health: Sequence[BindHealth],
        countries: Sequence[str],
        avoided: Collection[tuple[str, int]],
        routes: Sequence[CarrierRoute],
        began: float,
    ) -> None:
        """Pass on the leases, each bind's share of its carrier's rate, and the routes."""
        well = {one.carrier_id for one in health if one.lease_valid and one.state is BindState.BOUND}
        for held in self._held.values():
            if held.sender.is_healthy:
                well.add(held.sender.carrier.id)
        self._routes.renew(active, well, countries, avoided, routes)
        for held in self._held.values():
            carrier = held.sender.carrier
            bound = sum(
                one.carrier_id == carrier.id and one.lease_valid and one.state is not BindState.DOWN
                for one in health
            )
            held.sender.renew(began + LEASE_S / 2, carrier.settings.tps / max(1, bound))

    def _lose(self, place: Place) -> None:
        held = self._held.pop(place)
        _log.warning("lease lost", bind=held.sender.name)
        held.sender.drop()
        if held.leaving is None:
            held.leaving = asyncio.create_task(held.dispatcher.close())

    def _part(self, place: Place) -> None:
        held = self._held[place]
        if held.leaving is None:
            held.leaving = asyncio.create_task(self._drain(place, held))

    async def _drain(self, place: Place, held: _Held) -> None:
        """Disconnect one bind; its lease is kept until that is done."""
        await held.dispatcher.close()
        await held.sender.drain(DRAIN_S)
        recorder = self._recorders.get(place[0])
        if recorder is not None:
            await recorder.drain(RECORD_S)
        try:
            async with self._database.connection() as connection:
                await binds.release(connection, self._worker, [place])
        except Exception as error:  # noqa: BLE001 - then the lease ends by itself
            _log.warning("could not release bind", bind=held.sender.name, error=repr(error))
        if self._held.get(place) is held:
            del self._held[place]

    async def _close_left_open(self) -> None:
        for held in self._held.values():
            held.sender.close_left_open()

    async def _find_lost_claims(self) -> None:
        """Put in doubt claims of this worker that no sender has had for a while.

        The connection may have broken just as a claim was committed, so that we never learnt of it. Messages
        that the web process claimed for us and that never came were certainly not submitted: they go into
        the queue.
        """
        now = asyncio.get_running_loop().time()
        if now - self._lost_looked_at < LOST_CLAIM_S or any(
            one.is_behind for one in self._recorders.values()
        ):
            return
        self._lost_looked_at = now
        came = frozenset(self._offers.came)
        never_came: Collection[UUID] = ()
        async with self._database.transaction() as connection:
            in_flight = await places.list_in_flight(connection, self._worker, LOST_CLAIMS_MAX)
            known: set[UUID] = set()
            known.update(*(held.sender.claimed for held in self._held.values()))
            lost = frozenset(in_flight.keys() - known)
            twice = lost & self._lost_claims
            if twice:
                direct = await places.list_direct(connection, sorted(twice), self._worker)
                never_came = self._offers.give_back(direct)
                _log.warning("claims without a sender", count=len(twice), never_came=len(never_came))
            doubted = twice.difference(never_came)
            if doubted:
                outcomes = [
                    LeftInDoubt(MessageId(one), in_flight[one], DOUBT_WAIT_S, "its claim was lost")
                    for one in doubted
                ]
                await settle(connection, outcomes, worker=self._worker)
        if never_came:
            async with self._database.transaction() as connection:
                await give_back_claims(connection, never_came, self._worker)
        if len(in_flight) < LOST_CLAIMS_MAX:
            self._offers.forget(came - in_flight.keys())
        self._lost_claims = lost - twice

    async def _stop(self) -> None:
        """Disconnect everywhere: nothing that was answered in time is left in doubt."""
        for place in self._held:
            self._part(place)
        leaving = {held.leaving for held in self._held.values() if held.leaving is not None}
        while leaving:
            _, leaving = await asyncio.wait(leaving, timeout=BEAT_S)
            if leaving:
                # The leases must not run out while answers are due.
                await self._try(self._renew_while_leaving)
        for recorder in self._recorders.values():
            # Each sender has waited for it already.
            await recorder.drain(BEAT_S)
            await recorder.close()
        await self._observer.flush()
        try:
            async with self._database.transaction() as connection:
                await self._give_back_direct(connection)
                await places.delete_worker(connection, self._worker)
        except Exception as error:  # noqa: BLE001 - then others find us dead
            _log.warning("could not remove worker", error=repr(error))

    async def _give_back_direct(self, connection: Connection) -> None:
        """Give to the queue what the web process claimed for us and never passed on; all binds have ended."""
        in_flight = await places.list_in_flight(connection, self._worker, LOST_CLAIMS_MAX)
        if in_flight:
            direct = await places.list_direct(connection, sorted(in_flight), self._worker)
            await give_back_claims(connection, self._offers.give_back(direct), self._worker)

    async def _renew_while_leaving(self) -> None:
        async with self._database.connection() as connection:
            await self._renew_leases(connection)
