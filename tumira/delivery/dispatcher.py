"""Claims the next messages for a sender, never more than it has room for."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import structlog

from tumira.core import metrics
from tumira.core.loops import log_failure
from tumira.delivery import lanes
from tumira.delivery.clocks import Clocks
from tumira.delivery.lanes import Places
from tumira.delivery.routing import Routes
from tumira.delivery.sender import Sender
from tumira.delivery.store import queue
from tumira.delivery.store.queue import BULK, SMALL, ClaimedMessage, ClaimRequest, PastAttempts
from tumira.postgres.connection import Connection
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import IN_KEY_ORDER, Database

LOOK_S: Final = 0.25
# After a claim that left room, messages that arrive within this time are claimed together.
BREATH_S: Final = 0.01
PAUSE_S: Final = 0.5
CLOSE_S: Final = 5.0
# A claim costs the same for one message as for many, so a full window is refilled in quarters.
TOP_UP: Final = 4
# Fewer places than this for each country are not divided.
FEW: Final = 4

_log: Final = structlog.get_logger()


class _Country:
    __slots__ = ("bulk_waits", "found", "owed")

    def __init__(self) -> None:
        self.owed = 0
        self.bulk_waits = True
        # How many the last claim found; countries share the room in proportion.
        self.found = 0


class Dispatcher:
    def __init__(
        self, sender: Sender, worker: str, database: Database, clocks: Clocks, routes: Routes
    ) -> None:
        self._sender = sender
        self._worker = worker
        self._line = PinnedConnection(database, settings=IN_KEY_ORDER)
        self._clocks = clocks
        self._routes = routes
        self._countries: dict[str, _Country] = {}
        self._woken = asyncio.Event()
        self._closing = False
        # A claim of which it is not known whether it was committed.
        self._unsure: tuple[Sequence[ClaimedMessage], Mapping[UUID, PastAttempts]] | None = None
        self._rounds = 0
        self._more = False
        self._notified = True
        self._segments = 1.0
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        self._notified = True
        self._woken.set()

    def room(self) -> None:
        if self._notified or self._more:
            free = self._sender.free()
            if free >= self._enough() or (free and self._notified):
                self._woken.set()

    async def close(self) -> None:
        """Stop; a claim in progress is finished, because it may be committed already."""
        self._closing = True
        self._woken.set()
        await asyncio.wait({self._task}, timeout=CLOSE_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._line.terminate()

    def _enough(self) -> int:
        return max(1, self._sender.capacity // TOP_UP)

    async def _run(self) -> None:
        while not self._closing:
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - the loop goes on when the database is back
                await self._line.roll_back(error)
                log_failure("could not claim messages", error, bind=self._sender.name)
                await asyncio.sleep(PAUSE_S)

    async def _look(self) -> None:
        """Claim once if there is room, and wait until there is reason to claim again."""
        if self._unsure is not None:
            await self._make_sure(*self._unsure)
        free = self._sender.free()
        if free and (self._notified or free >= self._enough()):
            if self._notified:
                self._notified = False
                for country in self._countries.values():
                    country.bulk_waits = True
            if await self._claim_within(free):
                return
        else:
            await self._line.let_go()
        timer = self._loop.call_later(LOOK_S, self.wake)
        await self._woken.wait()
        self._woken.clear()
        timer.cancel()

    async def _claim_within(self, free: int) -> bool:
        most = self._messages(free)
        if await self._claim_relieved(most):
            return True
        for _ in range(2):
            wanted = self._wanted(free)
            if not wanted:
                # Another carrier serves its countries, perhaps for days.
                await self._line.let_go()
                return False
            found = await self._claim(wanted, most)
            # Lane 1 may have more than it was let, and gets it as its messages are answered.
            self._more = found > 0 or any(one.bulk_max < one.small + one.bulk for one in wanted)
            if found:
                if found < most:
                    await asyncio.sleep(BREATH_S)
                return True
            if all(one.small for one in wanted):
                return False
            # The places were lane 1's, and it has nothing: now that this is known, they are lane 0's.
        return False

    async def _claim_relieved(self, most: int) -> bool:
        """Claim messages that another carrier left in doubt, in countries that this one does not serve."""
        sender = self._sender
        countries = self._routes.countries_relieved(sender.carrier)
        if not countries or not sender.is_healthy:
            return False
        connection = await self._line.begin()
        claimed = await queue.claim_avoiding(
            connection, countries, most, worker=self._worker, bind=sender.name, carrier_id=sender.carrier.id
        )
        return await self._commit(connection, claimed) > 0

    def _messages(self, free: int) -> int:
        """Return how many messages fit, by the average segments of those claimed lately."""
        return max(1, int(free / self._segments))

    def _wanted(self, free: int) -> Sequence[ClaimRequest]:
        """Share the room among the countries that this carrier serves now, and the lanes of each."""
        names = self._routes.countries_of(self._sender.carrier, trying=not self._sender.is_healthy)
        most = self._messages(free)
        now = self._loop.time()
        # Each country comes first in turn, so that none is left out while there are few places.
        self._rounds += 1
        start = self._rounds % len(names) if names else 0
        total = sum(self._country(name).found + 1 for name in names)
        bulk_outstanding = self._sender.bulk_outstanding
        wanted = []
        for name in (*names[start:], *names[:start]):
            country = self._country(name)
            # With few places each is offered to all; the claim stops when they are taken.
            share = most if most < FEW * len(names) else max(1, most * (country.found + 1) // total)
            window = max(share, self._sender.carrier.settings.window_size)
            places = lanes.places(
                share, window, bulk_outstanding, country.owed, bulk_waits=country.bulk_waits
            )
            # The tenth that is kept from lane 1 is kept from all countries together.
            bulk_outstanding += places.bulk_max if most >= FEW * len(names) else 0
            wanted.append(self._wanted_in(name, places, now))
        return wanted

    def _wanted_in(self, name: str, places: Places, now: float) -> ClaimRequest:
        carrier = self._sender.carrier
        return ClaimRequest(
            country=name,
            small=places.small,
            bulk=places.bulk,
            bulk_max=places.bulk_max,
            small_floor=self._clocks.begin(now, name, SMALL) if places.small else 0,
            bulk_floor=self._clocks.begin(now, name, BULK) if places.bulk_max else 0,
            avoided=carrier.id if self._routes.is_avoided(carrier, name) else None,
        )

    def _country(self, name: str) -> _Country:
        return self._countries.setdefault(name, _Country())

    async def _claim(self, wanted: Sequence[ClaimRequest], most: int) -> int:
        sender = self._sender
        connection = await self._line.begin()
        claimed = await queue.claim(
            connection, wanted, most, worker=self._worker, bind=sender.name, carrier_id=sender.carrier.id
        )
        found = await self._commit(connection, claimed)
        self._note(wanted, claimed or ())
        return found

    async def _commit(self, connection: Connection, claimed: Sequence[ClaimedMessage] | None) -> int:
        if claimed is None:
            # Nothing was changed, so there is nothing to wait for the disk for. The next claim is begun at
            # once: that is one round trip less between a message and its carrier.
            await connection.execute("ROLLBACK")
            await self._line.begin_ahead()
            return 0
        again = [one.id for one in claimed if one.again]
        past = await queue.read_past_attempts(connection, again) if again else {}
        self._unsure = claimed, past
        await self._line.commit()
        self._unsure = None
        self._submit(claimed, past)
        return max(1, len(claimed))

    async def _make_sure(self, claimed: Sequence[ClaimedMessage], past: Mapping[UUID, PastAttempts]) -> None:
        """Find out whether a claim was committed whose answer was lost, and continue with it if so.

        A fail-over may undo a claim that the standby does not have, and another worker may submit the
        message. So the claim is read, made durable, and read again.
        """
        connection = await self._line.begin()
        seen = await queue.list_claimed(connection, [one.id for one in claimed], self._worker)
        await self._line.end_sure()
        connection = await self._line.begin()
        ours = await queue.list_claimed(connection, sorted(seen), self._worker)
        await connection.execute("ROLLBACK")
        self._unsure = None
        self._submit([one for one in claimed if one.id in ours], past)

    def _submit(self, claimed: Sequence[ClaimedMessage], past: Mapping[UUID, PastAttempts]) -> None:
        submissions = []
        for one in claimed:
            submissions.append(self._sender.writer.prepare(one, past.get(one.id)))
            self._segments += (one.segments - self._segments) / 64
        self._sender.take(submissions)

    def _note(self, wanted: Sequence[ClaimRequest], claimed: Sequence[ClaimedMessage]) -> None:
        now = self._loop.time()
        turns: dict[tuple[str, int], list[int]] = {}
        for one in claimed:
            turns.setdefault((one.country, one.lane), []).append(one.turn)
        for (name, lane), own in turns.items():
            self._clocks.claimed(now, name, lane, min(own), max(own))
            metrics.CLAIMED.labels(name, lane).inc(len(own))
        for asked in wanted:
            country = self._country(asked.country)
            small, bulk = (len(turns.get((asked.country, lane), ())) for lane in (SMALL, BULK))
            country.found = small + bulk
            country.owed = lanes.owed_after(country.owed, small, bulk)
            country.bulk_waits = bulk >= min(asked.small + asked.bulk - small, asked.bulk_max)
