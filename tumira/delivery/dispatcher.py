"""Claims the next messages for a sender, ahead of the slots that will become free.

It also offers places to the web process on the same machine, which claims small sends as it accepts them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final
from uuid import UUID

import structlog
from msgspec import structs

from tumira.carriers.routes.rules import Routes
from tumira.content.passcodes import is_passcode
from tumira.core import metrics
from tumira.core.loops import log_failure
from tumira.delivery.clocks import Clocks
from tumira.delivery.direct_offers import BindOffer, DirectOffers
from tumira.delivery.lanes import BULK, NO_ROOM, SMALL, Room
from tumira.delivery.link import References
from tumira.delivery.sender import Sender
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest, PastAttempts
from tumira.postgres.connection import Connection
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import IN_KEY_ORDER, Database
from tumira.pricing.networks import country_of
from tumira.replies import opt_outs

LOOK_S: Final = 0.25
# A claim costs nearly the same for one message as for many. When nothing more waits, those that arrive within
# this time are claimed together; the time is in proportion to what the last claim found, up to this many.
BREATH_S: Final = 0.01
BREATH_FOUND: Final = 20
PAUSE_S: Final = 0.5
CLOSE_S: Final = 5.0
# Fewer places than this for each queue are not divided.
FEW: Final = 4

_log: Final = structlog.get_logger()


class Dispatcher:
    def __init__(
        self,
        sender: Sender,
        worker: str,
        database: Database,
        clocks: Clocks,
        routes: Routes,
        offers: DirectOffers | None = None,
    ) -> None:
        self._sender = sender
        self._worker = worker
        self._line = PinnedConnection(database, settings=IN_KEY_ORDER)
        self._clocks = clocks
        self._routes = routes
        # How many messages of each queue the last claim found; queues share the room in proportion.
        self._found: dict[str, int] = {}
        self._woken = asyncio.Event()
        self._closing = False
        # A claim of which it is not known whether it was committed.
        self._unsure: tuple[Sequence[ClaimedMessage], Mapping[UUID, PastAttempts], References] | None = None
        self._rounds = 0
        # The lanes of which the last claim took all that it might, so that more may wait.
        self._more = (True, True)
        self._notified = True
        # While it looks into the queue.
        self._is_looking = False
        self._segments = 1.0
        self._loop = asyncio.get_running_loop()
        self._offer: BindOffer | None = None
        # Carriers over HTTP register references with a claim, and the simulator asks there what it may take.
        if offers is not None and sender.carrier.http is None and not sender.carrier.simulator:
            self._offer = offers.add(sender.name, sender.carrier.id, self._take_direct)
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        self._notified = True
        self._woken.set()

    def room(self) -> None:
        if (
            not self._woken.is_set()
            and (self._notified or any(self._more))
            and self._is_due(self._sender.room())
        ):
            self._woken.set()
        self._offer_places()

    def _is_due(self, room: Room) -> bool:
        """Tell whether to claim now: there is room for what was just accepted, or enough for more to wait."""
        if self._notified:
            return bool(room.small or room.bulk_max)
        # In halves: a claim costs the same for one message as for many.
        enough = max(1, self._sender.ahead // 2)
        small, bulk = self._more
        return (small and room.small >= enough) or (bulk and room.bulk_max >= enough)

    async def close(self) -> None:
        """Stop; a claim in progress is finished, because it may be committed already."""
        self._closing = True
        if self._offer is not None:
            await self._offer.close()
        self._woken.set()
        await asyncio.wait({self._task}, timeout=CLOSE_S)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._line.terminate()

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
        room = self._sender.room()
        if self._is_due(room):
            self._notified, self._is_looking = False, True
            try:
                if await self._claim_within(room):
                    return
            finally:
                self._is_looking = False
        elif room == NO_ROOM:
            await self._line.let_go()
        self._offer_places()
        timer = self._loop.call_later(LOOK_S, self.wake)
        await self._woken.wait()
        self._woken.clear()
        timer.cancel()

    async def _claim_within(self, room: Room) -> bool:
        room = self._messages(room)
        if await self._claim_relieved(max(room.small, room.bulk_max)):
            return True
        wanted = self._wanted(room)
        if not wanted:
            # Another carrier serves its queues, perhaps for days.
            await self._line.let_go()
            return False
        found = await self._claim(wanted, room)
        if found and not any(self._more):
            await asyncio.sleep(BREATH_S * min(1.0, found / BREATH_FOUND))
        return found > 0

    async def _claim_relieved(self, most: int) -> bool:
        """Claim messages that another carrier left in doubt, from queues that this one does not serve."""
        sender = self._sender
        queues = self._routes.queues_relieved(sender.carrier)
        if not queues or not sender.is_healthy:
            return False
        connection = await self._line.begin()
        claimed = await queue.claim_avoiding(
            connection, queues, most, worker=self._worker, bind=sender.name, carrier_id=sender.carrier.id
        )
        return await self._commit(connection, claimed) > 0

    def _messages(self, room: Room) -> Room:
        """Return how many messages fit, by the average segments of those claimed lately."""
        return Room(*(ceil(places / self._segments) for places in (room.small, room.bulk, room.bulk_max)))

    def _wanted(self, room: Room) -> Sequence[ClaimRequest]:
        """Share the room among the queues that this carrier serves now."""
        names = self._routes.queues_of(self._sender.carrier, trying=not self._sender.is_healthy)
        # Each queue comes first in turn, so that none is left out while there are few places.
        self._rounds += 1
        start = self._rounds % len(names) if names else 0
        total = sum(self._found.get(name, 0) + 1 for name in names)

        def share(places: int, name: str) -> int:
            # With few places each is offered to all; the claim stops when they are taken.
            if places < FEW * len(names):
                return places
            return max(1, places * (self._found.get(name, 0) + 1) // total)

        return [
            self._wanted_in(
                name, Room(share(room.small, name), share(room.bulk, name), share(room.bulk_max, name))
            )
            for name in (*names[start:], *names[:start])
        ]

    def _wanted_in(self, name: str, room: Room) -> ClaimRequest:
        carrier = self._sender.carrier
        now = self._loop.time()
        return ClaimRequest(
            queue=name,
            small=room.small,
            bulk=room.bulk,
            bulk_max=room.bulk_max,
            small_floor=self._clocks.begin(now, name, SMALL) if room.small else 0,
            bulk_floor=self._clocks.begin(now, name, BULK) if room.bulk_max else 0,
            avoided=carrier.id if self._routes.is_avoided(carrier, name) else None,
        )

    async def _claim(self, wanted: Sequence[ClaimRequest], total: Room) -> int:
        sender = self._sender
        connection = await self._line.begin()
        claimed = await queue.claim(
            connection, wanted, total, worker=self._worker, bind=sender.name, carrier_id=sender.carrier.id
        )
        found = await self._commit(connection, claimed)
        self._note(wanted, total, claimed or ())
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
        if any(one.opted_out for one in claimed):
            claimed = await _spare_passcodes(connection, claimed)
        references = await self._sender.link.register(connection, claimed, past)
        self._unsure = claimed, past, references
        await self._line.commit()
        self._unsure = None
        self._submit(claimed, past, references)
        return max(1, len(claimed))

    async def _make_sure(
        self,
        claimed: Sequence[ClaimedMessage],
        past: Mapping[UUID, PastAttempts],
        references: References,
    ) -> None:
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
        self._submit([one for one in claimed if one.id in ours], past, references)

    def _offer_places(self) -> None:
        """Offer places for small sends, unless some wait in the queue already."""
        if self._offer is None or not self._offer.is_wanted or self._closing:
            return
        sender = self._sender
        places = 0
        if sender.is_healthy and not self._more[SMALL]:
            places = self._messages(sender.room()).small
        # Some may wait that were not looked for yet.
        may_rise = not (self._notified or self._is_looking)
        self._offer.update(self._routes.queues_of(sender.carrier, trying=False), places, may_rise=may_rise)

    def _take_direct(self, claimed: Sequence[ClaimedMessage]) -> None:
        """Submit messages that the web process claimed for us; they are on disk."""
        self._submit(claimed, {}, {})
        self._note_turns(claimed)
        self._offer_places()

    def _submit(
        self,
        claimed: Sequence[ClaimedMessage],
        past: Mapping[UUID, PastAttempts],
        references: References,
    ) -> None:
        submissions = []
        for one in claimed:
            submission = self._sender.link.prepare(one, past.get(one.id), references.get(one.id))
            if self._routes.has_routes:
                submission.cost = self._routes.cost_of(self._sender.carrier, one.country, one.network)
                if submission.sender is None:
                    submission.sender = self._routes.sender_of(self._sender.carrier, one.country, one.network)
            submissions.append(submission)
            self._segments += (one.segments - self._segments) / 64
        self._sender.take(submissions)

    def _note(self, wanted: Sequence[ClaimRequest], total: Room, claimed: Sequence[ClaimedMessage]) -> None:
        turns = self._note_turns(claimed)
        more = [False, False]
        found = [0, 0]
        for asked in wanted:
            small, bulk = (len(turns.get((asked.queue, lane), ())) for lane in (SMALL, BULK))
            self._found[asked.queue] = small + bulk
            found[SMALL] += small
            found[BULK] += bulk
            more[SMALL] |= small >= asked.small
            more[BULK] |= bulk >= max(asked.bulk, asked.bulk_max - small)
        self._more = (
            more[SMALL] or found[SMALL] >= total.small,
            more[BULK] or found[BULK] >= total.left_for_bulk(found[SMALL]),
        )
        self._is_looking = False

    def _note_turns(self, claimed: Sequence[ClaimedMessage]) -> Mapping[tuple[str, int], Sequence[int]]:
        """Note and return the turns that were claimed, by queue and lane."""
        now = self._loop.time()
        turns: dict[tuple[str, int], list[int]] = {}
        for one in claimed:
            turns.setdefault((one.queue, one.lane), []).append(one.turn)
        for (name, lane), own in turns.items():
            self._clocks.claimed(now, name, lane, min(own), max(own))
            metrics.CLAIMED.labels(country_of(name), lane).inc(len(own))
        return turns


async def _spare_passcodes(
    connection: Connection, claimed: Sequence[ClaimedMessage]
) -> Sequence[ClaimedMessage]:
    """Let one-time codes through to recipients who have opted out, unless the operator covers them too.

    A text to more than a few numbers is no code, whatever it says.
    """
    if (await opt_outs.get_settings(connection)).covers_passcodes:
        return claimed
    return [
        structs.replace(one, opted_out=False)
        if one.opted_out and one.lane == SMALL and is_passcode(one.body)
        else one
        for one in claimed
    ]
