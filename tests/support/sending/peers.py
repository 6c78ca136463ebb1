"""Connections between a web process and a worker, both in one process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, Generic

from msgspec import Struct, msgpack, structs

from tests.support.sending.batchers import until
from tumira.core.ids import AccountId, BatchId, message_ids, new_id
from tumira.pricing.legs import split_by_network
from tumira.pricing.quote import Leg, Quote, ValidRequest
from tumira.sending.direct.wire import Frame, Listener, Offer, Peer, ToWeb, ToWorker
from tumira.sending.insert import NewBatch

BODY: Final = "Your code is 493817."
OFFER: Final = Offer("token", "worker", "one/1", 7, ["ZW"], 10)


class Notes(Generic[Frame]):
    """A user of connections that only notes what happens."""

    def __init__(self) -> None:
        self.met_peers: list[Peer[Frame]] = []
        self.frames: list[tuple[Peer[Frame], Frame]] = []
        self.lost_peers: list[Peer[Frame]] = []

    def met(self, peer: Peer[Frame]) -> None:
        self.met_peers.append(peer)

    def took(self, peer: Peer[Frame], frame: Frame) -> None:
        self.frames.append((peer, frame))

    def lost(self, peer: Peer[Frame]) -> None:
        self.lost_peers.append(peer)

    @property
    def said(self) -> list[Frame]:
        return [frame for _, frame in self.frames]


@asynccontextmanager
async def meeting(
    web: Listener[ToWeb], worker: Listener[ToWorker]
) -> AsyncIterator[tuple[Peer[ToWeb], Peer[ToWorker]]]:
    """Connect the ends of a web process and of a worker."""
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    _, of_web = await loop.create_connection(lambda: Peer[ToWeb](ToWeb, web), sock=near)
    _, of_worker = await loop.create_connection(lambda: Peer[ToWorker](ToWorker, worker), sock=far)
    try:
        yield of_web, of_worker
    finally:
        of_web.close()
        of_worker.close()
        await until(lambda: not of_web.is_open and not of_worker.is_open)


def offer(limit: int = 10, **changed: object) -> Offer:
    return structs.replace(OFFER, limit=limit, **changed)


def new_batch(*to: str, account_id: AccountId | None = None) -> NewBatch:
    """Return a batch of one leg as the batcher makes it, with turns that tell its messages apart."""
    quote = Quote(
        to, [0] * len(to), [Leg("ZW", Decimal("0.04"), len(to))], [], 1, Decimal("0.04") * len(to), 1
    )
    now = datetime.now(UTC)
    batch_id = BatchId(new_id(int(now.timestamp() * 1000)))
    return NewBatch(
        batch_id,
        account_id or AccountId(new_id(0)),
        now,
        ValidRequest("sms", to, BODY, None, dry_run=False),
        quote,
        0,
        message_ids(batch_id, len(to)),
        range(1000, 1000 + len(to)),
        *split_by_network(quote, None, {}),
        timedelta(hours=1),
    )


def octets_of(frame: Struct) -> bytes:
    """Return a frame as it is sent."""
    written = msgpack.encode(frame)
    return len(written).to_bytes(4) + written
