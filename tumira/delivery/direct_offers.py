"""Offers places of this worker's binds to the web process on the same machine, and takes what it claims.

`sending.direct.claims` is the other end. What is offered may be claimed at any moment, and is in doubt with
all else that a worker has claimed when the worker dies. So no more than `OFFERED_MAX` places of a bind are
offered at a time, and none while small sends wait in its queues.
"""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from tumira.core.ids import AccountId, BatchId, FastUUID, MessageId
from tumira.delivery.store.queue import ClaimedMessage
from tumira.postgres.clock import Clock
from tumira.sending.direct import wire
from tumira.sending.direct.wire import Claims, DirectMessage, Offer, Peer, ToWorker, Withdrawal

OFFERED_MAX: Final = 200
# The web process believes an offer for a second.
OFFER_EVERY_S: Final = 0.25
# How long a bind that ends waits for what was claimed for it: longer than the web process for a commit.
FINISH_S: Final = 6.0
# A message that comes later than this was given to the queue, or is about to be.
LATE: Final = timedelta(seconds=10)
# A socket that was made this long ago and refuses connections has no listener any more.
STALE_S: Final = 60.0

_log: Final = structlog.get_logger()

Take = Callable[[Sequence[ClaimedMessage]], None]


class BindOffer:
    """What one bind offers to each web process, and what came of it."""

    def __init__(self, offers: "DirectOffers", bind: str, carrier_id: int, take: Take) -> None:
        # Of this lease of the bind: what was claimed for an earlier one is not submitted under this one.
        self.token = secrets.token_hex(8)
        self.finished: set[Peer[ToWorker]] = set()
        self.has_finished = asyncio.Event()
        self.take: Final = take
        self._offers = offers
        self._bind = bind
        self._carrier_id = carrier_id
        self._taken: dict[Peer[ToWorker], int] = {}
        # What was offered last, and when.
        self._told: dict[Peer[ToWorker], tuple[Sequence[str], int, float]] = {}

    @property
    def is_wanted(self) -> bool:
        return bool(self._offers.peers)

    def update(self, queues: Sequence[str], places: int, *, may_rise: bool = True) -> None:
        """Offer `places` messages of these queues from now on, shared by the web processes.

        If it may not rise, no more than what is left of the last offer.
        """
        now = asyncio.get_running_loop().time()
        peers = self._offers.peers
        for peer in peers:
            share = min(places, OFFERED_MAX) // len(peers)
            taken = self._taken.get(peer, 0)
            told, limit, at = self._told.get(peer, ((), taken, 0.0))
            left = limit - taken
            if not may_rise:
                share = min(share, left)
            is_needed = left > share or share - left > share // 2 or list(told) != list(queues)
            if is_needed or (share and now - at >= OFFER_EVERY_S):
                self._told[peer] = queues, taken + share, now
                peer.send(
                    Offer(
                        self.token,
                        self._offers.worker,
                        self._bind,
                        self._carrier_id,
                        list(queues),
                        taken + share,
                    )
                )

    def took(self, peer: Peer[ToWorker], messages: Sequence[ClaimedMessage], count: int) -> None:
        self._taken[peer] = self._taken.get(peer, 0) + count
        if messages:
            self.take(messages)

    def forget(self, peer: Peer[ToWorker]) -> None:
        self._taken.pop(peer, None)
        self._told.pop(peer, None)
        self.has_finished.set()

    async def close(self) -> None:
        """Offer nothing more, and wait for what was claimed until now."""
        told = set(self._offers.peers)
        for peer in told:
            peer.send(Withdrawal(self.token))
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                while not self.finished.issuperset(told & self._offers.peers.keys()):
                    self.has_finished.clear()
                    await self.has_finished.wait()
        self._offers.remove(self)


class DirectOffers:
    """The binds of one worker that take direct claims, and the messages that came."""

    def __init__(self, worker: str, clock: Clock) -> None:
        self.worker: Final = worker
        self.peers: dict[Peer[ToWorker], None] = {}
        # Messages that came and may still be in flight; and those that were given to the queue instead.
        self.came: set[UUID] = set()
        self._given_back: frozenset[UUID] = frozenset()
        self._clock = clock
        self._binds: dict[str, BindOffer] = {}

    def add(self, bind: str, carrier_id: int, take: Take) -> BindOffer:
        offer = BindOffer(self, bind, carrier_id, take)
        self._binds[offer.token] = offer
        return offer

    def remove(self, offer: BindOffer) -> None:
        self._binds.pop(offer.token, None)

    def give_back(self, ids: Collection[UUID]) -> Collection[UUID]:
        """Return those of these messages that never came, which are refused from now on."""
        # Those of the look before are refused by their age.
        self._given_back = frozenset(ids) - self.came
        return self._given_back

    def forget(self, ids: Collection[UUID]) -> None:
        """Forget messages that are not in flight any more."""
        self.came.difference_update(ids)

    @asynccontextmanager
    async def listening(self, data_dir: Path | None, database_url: str) -> AsyncIterator[None]:
        """Listen for the web process of this machine; without that, all messages go through the queue."""
        server = None
        if data_dir is not None:
            name = f"{wire.name_start(database_url)}{secrets.token_hex(6)}{wire.SUFFIX}"
            path = wire.sockets_in(data_dir) / name
            try:
                server = await self._listen(path)
            except OSError as error:
                _log.warning("cannot listen for the web process", path=str(path), problem=str(error))
        try:
            yield
        finally:
            if server is not None:
                server.close()
                for peer in list(self.peers):
                    peer.close()
                with suppress(OSError):
                    path.unlink()

    async def _listen(self, path: Path) -> asyncio.Server:
        if len(os.fsencode(path)) > wire.PATH_OCTETS_MAX:
            raise OSError("the path of the data directory is too long for a socket")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if problem := wire.find_problem(path.parent):
            raise OSError(problem)
        for other in sorted(path.parent.glob(f"*{wire.SUFFIX}")):
            await _remove_stale(other)
        loop = asyncio.get_running_loop()
        return await loop.create_unix_server(lambda: Peer[ToWorker](ToWorker, self), str(path))

    # Called by the connections.

    def met(self, peer: Peer[ToWorker]) -> None:
        self.peers[peer] = None

    def took(self, peer: Peer[ToWorker], frame: ToWorker) -> None:
        offer = self._binds.get(frame.token)
        if offer is None:
            # Its bind is gone; the messages are given to the queue when they are missed.
            return
        if not isinstance(frame, Claims):
            offer.finished.add(peer)
            offer.has_finished.set()
            return
        late = self._clock.now() - LATE
        messages = [
            message
            for message in map(_claimed, frame.messages)
            if message.claimed_at > late and message.id not in self._given_back
        ]
        self.came.update(message.id for message in messages)
        offer.took(peer, messages, len(frame.messages))

    def lost(self, peer: Peer[ToWorker]) -> None:
        self.peers.pop(peer, None)
        for offer in self._binds.values():
            offer.forget(peer)


async def _remove_stale(path: Path) -> None:
    """Remove the socket of a worker that died."""
    with suppress(OSError):
        try:
            transport, _ = await asyncio.get_running_loop().create_unix_connection(
                asyncio.Protocol, str(path)
            )
        except ConnectionRefusedError:
            # A new one refuses too, until its worker listens.
            _remove_old(path)
        else:
            transport.close()


def _remove_old(path: Path) -> None:
    if time.time() - path.stat().st_mtime > STALE_S:
        path.unlink()


def _claimed(message: DirectMessage) -> ClaimedMessage:
    return ClaimedMessage(
        id=MessageId(FastUUID(message.id)),
        batch_id=BatchId(FastUUID(message.batch_id)),
        account_id=AccountId(FastUUID(message.account_id)),
        country=message.country,
        lane=message.lane,
        turn=message.turn,
        again=False,
        recipient=message.recipient,
        segments=message.segments,
        body=message.body,
        avoid=None,
        queue=message.queue,
        network=message.network,
        cost=message.cost,
        created_at=message.created_at,
        expires_at=message.expires_at,
        claimed_at=message.created_at,
        sender_name=message.sender_name,
    )
