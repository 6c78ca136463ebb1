"""A carrier that does exactly what a test says, octet by octet, and shares no code with ours."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ssl import SSLContext
from typing import NamedTuple

from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.replies.parts import ReplyPart
from tumira.delivery.smpp.session import SessionListener

WAIT_S = 20


class Heard(NamedTuple):
    """One PDU that our end sent."""

    command: int
    status: int
    sequence: int
    body: bytes


def pdu(command: int, sequence: int, body: bytes = b"", status: int = 0) -> bytes:
    return struct.pack(">IIII", 16 + len(body), command, status, sequence) + body


def delivery(text: bytes, esm_class: int = 4, tlvs: bytes = b"") -> bytes:
    addresses = b"\0\x01\x01263771200001\0\x05\x00Tumira\0"
    return b"".join((addresses, bytes((esm_class, 0, 0, 0, 0, 0, 0, 0, 0, len(text))), text, tlvs))


@dataclass
class Line:
    """The carrier's end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def hear(self) -> Heard:
        async with asyncio.timeout(WAIT_S):
            length, command, status, sequence = struct.unpack(">IIII", await self.reader.readexactly(16))
            return Heard(command, status, sequence, await self.reader.readexactly(length - 16))

    async def hear_many(self, count: int) -> Sequence[Heard]:
        return [await self.hear() for _ in range(count)]

    async def hear_end(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.reader.read()

    async def say(self, *pieces: bytes) -> None:
        self.writer.write(b"".join(pieces))
        await self.writer.drain()

    async def let_in(self, *following: bytes) -> Heard:
        bind = await self.hear()
        await self.say(pdu(bind.command | 0x8000_0000, bind.sequence, b"smsc\0"), *following)
        return bind

    def drop(self) -> None:
        self.writer.transport.abort()


class Carrier:
    """Listens on a free port of the loopback."""

    def __init__(self) -> None:
        self.port = 0
        self._lines: asyncio.Queue[Line] = asyncio.Queue()
        self._open: list[Line] = []

    async def line(self) -> Line:
        async with asyncio.timeout(WAIT_S):
            return await self._lines.get()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        self._open.append(line)
        self._lines.put_nowait(line)

    @asynccontextmanager
    async def listening(self, context: SSLContext | None = None) -> AsyncIterator["Carrier"]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            for line in self._open:
                line.drop()
            server.close()
            await server.wait_closed()


class RecordingListener(SessionListener):
    """Hears what a session tells, and lets a test wait for it."""

    def __init__(self) -> None:
        self.answers: list[tuple[object, int, str]] = []
        self.overdue: list[object] = []
        self.receipts: list[Receipt] = []
        self.replies: list[ReplyPart] = []
        self.tokens: list[object] = []
        self.lots = 0
        self.ends: list[tuple[Sequence[object], str]] = []
        self._changed = asyncio.Event()

    def answered(self, tag: object, status: int, carrier_ref: str) -> None:
        self.answers.append((tag, status, carrier_ref))
        self._changed.set()

    def unanswered(self, tag: object) -> None:
        self.overdue.append(tag)
        self._changed.set()

    def received(self, receipt: Receipt, token: object) -> None:
        self.receipts.append(receipt)
        self.tokens.append(token)
        self._changed.set()

    def replied(self, part: ReplyPart, token: object) -> None:
        self.replies.append(part)
        self.tokens.append(token)
        self._changed.set()

    def settled(self) -> None:
        self.lots += 1
        self._changed.set()

    def ended(self, unanswered: Sequence[object], problem: str) -> None:
        self.ends.append((unanswered, problem))
        self._changed.set()

    async def wait(
        self, *, answers: int = 0, overdue: int = 0, receipts: int = 0, replies: int = 0, ends: int = 0
    ) -> None:
        async with asyncio.timeout(WAIT_S):
            while (
                len(self.answers) < answers
                or len(self.overdue) < overdue
                or len(self.receipts) < receipts
                or len(self.replies) < replies
                or len(self.ends) < ends
            ):
                self._changed.clear()
                await self._changed.wait()
