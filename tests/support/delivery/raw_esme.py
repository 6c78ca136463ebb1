"""A client that speaks SMPP to the simulator octet by octet."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tumira.delivery.smpp.pdu import (
    RESPONSE,
    Command,
    Pdu,
    ShortMessage,
    Splitter,
    bind_body,
    short_message_body,
    write,
)

PATIENCE_S: Final = 30.0
NUMBER: Final = "263771200001"


class RawEsme:
    """A client that sends only what a test says, and answers nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.chunks: list[bytes] = []
        self._splitter = Splitter()
        self._came: deque[Pdu] = deque()
        self._sequence = 0

    async def bind(self, command: Command = Command.BIND_TRANSCEIVER, system_id: str = "raw") -> Pdu:
        self.send(command, bind_body(system_id, "secret"))
        return await self.next()

    def send(self, command: int, body: bytes = b"") -> int:
        self._sequence += 1
        self.writer.write(write(command, self._sequence, body))
        return self._sequence

    def submit(self, number: str = NUMBER, text: bytes = b"Your code is 493817.", **fields: Any) -> int:
        message = ShortMessage(
            source_ton=5,
            source="Tumira",
            destination_ton=1,
            destination_npi=1,
            destination=number,
            registered_delivery=1,
            text=text,
        )
        return self.send(Command.SUBMIT_SM, short_message_body(message._replace(**fields)))

    def acknowledge(self, pdu: Pdu, status: int = 0) -> None:
        self.writer.write(write(pdu.command | RESPONSE, pdu.sequence, b"\0", status))

    async def next(self) -> Pdu:
        while not self._came:
            if self._splitter.broken is not None:
                raise self._splitter.broken
            chunk = await asyncio.wait_for(self.reader.read(65536), PATIENCE_S)
            if not chunk:
                raise ConnectionError("The simulator has closed the connection.")
            self.chunks.append(chunk)
            self._came.extend(self._splitter.feed(chunk))
        return self._came.popleft()

    async def take(self, count: int) -> Sequence[Pdu]:
        return [await self.next() for _ in range(count)]

    async def is_alive(self) -> bool:
        sequence = self.send(Command.ENQUIRE_LINK)
        try:
            while (pdu := await self.next()).command != Command.ENQUIRE_LINK_RESP:
                pass
        except ConnectionError:
            return False
        return pdu.sequence == sequence


@asynccontextmanager
async def raw_esme(
    port: int, command: Command | None = Command.BIND_TRANSCEIVER, system_id: str = "raw"
) -> AsyncIterator[RawEsme]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    esme = RawEsme(reader, writer)
    try:
        if command is not None:
            answer = await esme.bind(command, system_id)
            assert (answer.command, answer.status) == (command | RESPONSE, 0)
        yield esme
    finally:
        writer.transport.abort()


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.001)
