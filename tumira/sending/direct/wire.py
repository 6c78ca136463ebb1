"""What the web process and a worker on the same machine say to each other about direct claims.

They speak over a Unix socket in a directory that only their own user may enter. A frame is its length, in
four octets, and a struct in MessagePack.
"""

import asyncio
import os
import stat
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from msgspec import DecodeError, Struct, msgpack

# Named in the sockets, so that processes of different versions that do not understand each other never meet.
VERSION: Final = 1
SUFFIX: Final = ".sock"
# `sun_path` holds 108 octets, the last of them a zero.
PATH_OCTETS_MAX: Final = 107
# A group of calls has at most 500 messages of at most 765 characters.
FRAME_MAX: Final = 4 * 1024 * 1024
# A peer that leaves more than this unread is disconnected. It meets us again, and both begin to count anew.
UNREAD_MAX: Final = FRAME_MAX

_LENGTH: Final = 4


class Offer(Struct, frozen=True, tag="offer"):
    """A bind takes messages of these queues: together `limit` of them, counted from its first offer."""

    token: str
    worker: str
    bind: str
    carrier_id: int
    queues: list[str]
    limit: int


class Withdrawal(Struct, frozen=True, tag="withdrawal"):
    """A bind takes no more messages; the web process says when the last one was passed on."""

    token: str


class DirectMessage(Struct, frozen=True, array_like=True, gc=False):
    """A message that was accepted and claimed at once, with all that its worker needs."""

    id: bytes
    batch_id: bytes
    account_id: bytes
    country: str
    network: str | None
    queue: str
    lane: int
    turn: int
    recipient: str
    segments: int
    body: str
    cost: Decimal
    created_at: datetime
    expires_at: datetime
    sender_name: str | None


class Claims(Struct, frozen=True, tag="claims"):
    """Messages that are on disk, in flight for a bind."""

    token: str
    messages: list[DirectMessage]


class Finished(Struct, frozen=True, tag="finished"):
    """After a withdrawal: nothing more will come for this bind."""

    token: str


ToWeb = Offer | Withdrawal
ToWorker = Claims | Finished

# The frames that one end receives.
Frame = TypeVar("Frame")

_encoder: Final = msgpack.Encoder()


class Listener(Protocol[Frame]):
    """The user of connections; no method may wait."""

    def met(self, peer: "Peer[Frame]") -> None:
        """Take note of a new connection."""

    def took(self, peer: "Peer[Frame]", frame: Frame) -> None: ...

    def lost(self, peer: "Peer[Frame]") -> None: ...


class Peer(asyncio.Protocol, Generic[Frame]):
    """One end of a connection; it passes on each frame that comes."""

    def __init__(self, kind: Any, listener: Listener[Frame]) -> None:
        self._decoder: msgpack.Decoder[Frame] = msgpack.Decoder(kind)
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._unread = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._listener.met(self)

    def data_received(self, data: bytes) -> None:
        unread = self._unread
        unread += data
        start = 0
        while len(unread) - start >= _LENGTH:
            end = start + _LENGTH + int.from_bytes(unread[start : start + _LENGTH])
            if end - start > FRAME_MAX:
                self.close()
                return
            if len(unread) < end:
                break
            try:
                frame = self._decoder.decode(memoryview(unread)[start + _LENGTH : end])
            except DecodeError:
                self.close()
                return
            start = end
            self._listener.took(self, frame)
        del unread[:start]

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport = None
        self._listener.lost(self)

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def send(self, frame: Struct) -> None:
        """Send a frame; it is lost if the peer is gone, or does not read."""
        transport = self._transport
        if transport is None:
            return
        if transport.get_write_buffer_size() > UNREAD_MAX:
            transport.abort()
            return
        written = _encoder.encode(frame)
        transport.write(len(written).to_bytes(_LENGTH) + written)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def sockets_in(data_dir: Path) -> Path:
    """Return the directory of the workers' sockets."""
    return data_dir.absolute() / "workers"


def name_start(database_url: str) -> str:
    """Return how the names of the sockets of one service begin: several may share a data directory."""
    return f"{VERSION}-{sha256(database_url.encode()).hexdigest()[:12]}-"


def find_problem(directory: Path) -> str:
    """Return why sockets in a directory cannot be trusted, and nothing if nobody else may put one there."""
    try:
        found = directory.stat()
    except PermissionError as error:
        return str(error)
    if found.st_uid != os.geteuid():
        return f"the directory belongs to user {found.st_uid}, and this process runs as {os.geteuid()}"
    return "others may enter the directory" if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) else ""
