"""A customer's server for webhooks: it takes events, fails, is slow, breaks connections or goes away."""

import asyncio
import hmac
import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, cast

from tests.proof.simulation.network import Address, End, SimulatedNetwork


@dataclass(slots=True)
class Call:
    at: float
    event_id: str
    type: str
    sequence: int
    data: Any
    body: bytes
    is_accepted: bool = False


@dataclass(slots=True)
class Receiver:
    name: str
    address: Address
    secret: str
    network: SimulatedNetwork
    chance: Random
    fails: float = 0.0
    hangs: float = 0.0
    breaks: float = 0.0
    slow_s: tuple[float, float] = (0.001, 0.1)
    calls: list[Call] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)

    def open(self) -> None:
        self.network.listen(self.address, lambda: _Connection(self))

    def close(self) -> None:
        self.network.stop_listening(self.address)
        for end in tuple(self.ends):
            end.abort()

    def happens(self, likely: float) -> bool:
        return likely > 0 and self.chance.random() < likely


class _Connection(asyncio.Protocol):
    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._data = bytearray()
        self._end: End

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._end = cast("End", transport)
        self._receiver.ends.append(self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._end in self._receiver.ends:
            self._receiver.ends.remove(self._end)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while True:
            head, found, rest = bytes(self._data).partition(b"\r\n\r\n")
            if not found:
                return
            lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:])
            length = int(headers["content-length"])
            if len(rest) < length:
                return
            del self._data[: len(head) + 4 + length]
            self._take(headers, rest[:length])

    def _take(self, headers: dict[str, str], body: bytes) -> None:
        receiver = self._receiver
        loop = receiver.network.loop
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        key = b64decode(receiver.secret.removeprefix("whsec_"))
        wanted = "v1," + b64encode(hmac.digest(key, signed, sha256)).decode()
        if wanted not in headers["webhook-signature"].split():
            receiver.problems.append(f"{receiver.name}: {headers['webhook-id']} has a wrong signature")
        told = json.loads(body)
        call = Call(loop.now_s, headers["webhook-id"], told["type"], told["sequence"], told["data"], body)
        receiver.calls.append(call)
        loop.trace.note(loop.now_s, f"{receiver.name} event {call.sequence} {call.type}")
        if receiver.happens(receiver.hangs):
            return
        if receiver.happens(receiver.breaks):
            loop.at(0.01, self._end.abort)
            return
        call.is_accepted = not receiver.happens(receiver.fails)
        status = b"200 OK" if call.is_accepted else b"503 Service Unavailable"
        answer = b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n"
        loop.at(receiver.chance.uniform(*receiver.slow_s), self._end.write, answer)
