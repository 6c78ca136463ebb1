"""Direct claims: small sends that are claimed for a worker on this machine as they are accepted.

A worker offers places of a bind. While there are some, a small send goes into flight for that bind instead of
into the queue, and its messages are passed to the worker as soon as they are on disk. So they skip the queue,
the claim and the commit of the claim. Everything else goes through the queue, and so does everything where no
worker offers anything.

A message that was claimed and never came to its worker was certainly not submitted: the worker gives it to
the queue (`delivery.supervisor`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import structlog
from msgspec import structs

from tumira.core import metrics
from tumira.core.loops import forever
from tumira.sending.direct import wire
from tumira.sending.direct.wire import (
    Claims,
    DirectMessage,
    Finished,
    Offer,
    Peer,
    ToWeb,
    Withdrawal,
)
from tumira.sending.insert import Flight, NewBatch

CONNECT_EVERY_S: Final = 1.0
CONNECT_TIMEOUT_S: Final = 1.0
# A worker offers again every quarter of a second; one that is frozen gets nothing for long.
OFFER_VALID_S: Final = 1.0
# Far more than the workers of one machine.
SOCKETS_MAX: Final = 64

_log: Final = structlog.get_logger()


class OfferedBind:
    """A bind of a worker on this machine, with what it offers and what was used of that."""

    __slots__ = (
        "batches",
        "flight",
        "is_withdrawn",
        "limit",
        "peer",
        "queues",
        "token",
        "used",
        "valid_until",
    )

    # By the last offer.
    limit: int
    valid_until: float

    def __init__(self, peer: Peer[ToWeb], offer: Offer) -> None:
        self.peer = peer
        self.token = offer.token
        self.flight = Flight(offer.worker, offer.bind, offer.carrier_id)
        self.queues: Sequence[str] = ()
        self.used = 0
        # The batches that use it and are not passed on yet.
        self.batches = 0
        self.is_withdrawn = False


class ClaimGroup:
    """The direct claims of one group of calls: its caller passes them on, or cancels them."""

    __slots__ = ("_claimed", "_claims", "has_queued")

    def __init__(self, claims: "DirectClaims") -> None:
        self._claims = claims
        self._claimed: list[tuple[OfferedBind, NewBatch, str | None]] = []
        # Whether any message of the group went into the queue.
        self.has_queued = False

    @property
    def are_all(self) -> bool:
        """Tell whether all messages of the group are claimed, and there are some."""
        return bool(self._claimed) and not self.has_queued

    def claim(self, batch: NewBatch, sender_name: str | None) -> NewBatch:
        """Claim the messages of a batch of one leg for the bind that has the most places, if one has enough.

        The batch is returned as it has to be written.
        """
        count = len(batch.message_ids)
        bind = self._claims.find(batch.legs[0].queue, count)
        if bind is None:
            self.has_queued = True
            return batch
        bind.used += count
        bind.batches += 1
        batch = structs.replace(batch, flight=bind.flight)
        self._claimed.append((bind, batch, sender_name))
        return batch

    def pass_on(self) -> None:
        """Give the messages to their workers: they are on disk now."""
        frames: dict[OfferedBind, list[DirectMessage]] = {}
        for bind, batch, sender_name in self._claimed:
            frames.setdefault(bind, []).extend(_messages(batch, sender_name))
        for bind, messages in frames.items():
            bind.peer.send(Claims(bind.token, messages))
            metrics.CLAIMED_DIRECTLY.inc(len(messages))
        self._end()

    def cancel(self) -> None:
        """Give the places back: nothing was written, or it is not known whether it was."""
        for bind, batch, _ in self._claimed:
            bind.used -= len(batch.message_ids)
        self._end()

    def _end(self) -> None:
        for bind, _, _ in self._claimed:
            bind.batches -= 1
            self._claims.finish(bind)
        self._claimed = []


class DirectClaims:
    """The offers of all workers on this machine."""

    def __init__(self, data_dir: Path | None = None, database_url: str = "") -> None:
        self._directory = None if data_dir is None else wire.sockets_in(data_dir)
        self._pattern = f"{wire.name_start(database_url)}*{wire.SUFFIX}"
        self._peers: dict[str, Peer[ToWeb]] = {}
        self._binds: dict[tuple[Peer[ToWeb], str], OfferedBind] = {}
        self._by_queue: dict[str, list[OfferedBind]] = {}
        self._has_warned = False

    def begin(self) -> ClaimGroup:
        return ClaimGroup(self)

    def find(self, queue: str, count: int) -> OfferedBind | None:
        """Return the bind that has the most places for a queue, if it has enough."""
        best, most = None, count - 1
        offering = self._by_queue.get(queue)
        if not offering:
            return None
        now = asyncio.get_running_loop().time()
        for bind in offering:
            left = bind.limit - bind.used
            if left > most and now < bind.valid_until:
                best, most = bind, left
        return best

    def finish(self, bind: OfferedBind) -> None:
        """Tell a worker that withdrew a bind that nothing more comes for it, once that is so."""
        if bind.is_withdrawn and bind.batches == 0:
            bind.peer.send(Finished(bind.token))
            self._binds.pop((bind.peer, bind.token), None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to the workers on this machine, and to those that start later."""
        if self._directory is None:
            yield
            return
        connecting = asyncio.create_task(forever("connect to workers", self._connect, CONNECT_EVERY_S))
        try:
            yield
        finally:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            for peer in self._peers.values():
                peer.close()

    async def _connect(self) -> None:
        directory = self._directory
        assert directory is not None
        try:
            problem = wire.find_problem(directory)
        except FileNotFoundError:
            # No worker has run here yet.
            return
        if problem:
            if not self._has_warned:
                self._has_warned = True
                _log.warning("all messages go through the queue", directory=str(directory), problem=problem)
            return
        found = sorted(directory.glob(self._pattern))[:SOCKETS_MAX]
        for path in found:
            # A socket that nobody listens to was left by a worker that died.
            if path.name not in self._peers:
                with suppress(OSError, TimeoutError):
                    async with asyncio.timeout(CONNECT_TIMEOUT_S):
                        _, peer = await asyncio.get_running_loop().create_unix_connection(
                            lambda: Peer[ToWeb](ToWeb, self), str(path)
                        )
                    if peer.is_open:
                        self._peers[path.name] = peer

    # Called by the connections.

    def met(self, peer: Peer[ToWeb]) -> None: ...

    def took(self, peer: Peer[ToWeb], frame: ToWeb) -> None:
        place = (peer, frame.token)
        bind = self._binds.get(place)
        if isinstance(frame, Withdrawal):
            if bind is None:
                peer.send(Finished(frame.token))
                return
            bind.is_withdrawn = True
            bind.limit = 0
            self.finish(bind)
            return
        if bind is None:
            bind = self._binds[place] = OfferedBind(peer, frame)
        bind.limit = frame.limit
        bind.valid_until = asyncio.get_running_loop().time() + OFFER_VALID_S
        if list(bind.queues) != frame.queues:
            bind.queues = frame.queues
            self._sort()

    def lost(self, peer: Peer[ToWeb]) -> None:
        self._peers = {name: one for name, one in self._peers.items() if one is not peer}
        self._binds = {place: bind for place, bind in self._binds.items() if bind.peer is not peer}
        self._sort()

    def _sort(self) -> None:
        self._by_queue = {}
        for bind in self._binds.values():
            for queue in bind.queues:
                self._by_queue.setdefault(queue, []).append(bind)


def _messages(batch: NewBatch, sender_name: str | None) -> Sequence[DirectMessage]:
    (leg,) = batch.legs
    return [
        DirectMessage(
            id=identifier.bytes,
            batch_id=batch.id.bytes,
            account_id=batch.account_id.bytes,
            country=leg.country,
            network=leg.network,
            queue=leg.queue,
            lane=batch.lane,
            turn=turn,
            recipient=number,
            segments=leg.segments,
            body=batch.request.body,
            cost=leg.cost,
            created_at=batch.created_at,
            expires_at=batch.created_at + batch.lifetime,
            sender_name=sender_name,
        )
        for identifier, number, turn in zip(batch.message_ids, batch.quote.numbers, batch.turns, strict=True)
    ]
