"""Callers that send one message after the other, half of them on one connection while it lasts."""

import asyncio
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.support.chaos.node import until
from tests.support.processes.service import send_request

CALLERS: Final = 8
CALLS_BETWEEN: Final = 50


class Callers:
    def __init__(self, base: str, key: str) -> None:
        self._port = int(base.rpartition(":")[2])
        self._requests = {keep: send_request(key, keep=keep) for keep in (False, True)}
        self._ended = threading.Event()
        # Whoever calls after the node was asked to stop may find the door closing.
        self.node_stops_at = math.inf
        self.statuses: Counter[int] = Counter()
        self.failed: list[str] = []

    @contextmanager
    def calling(self) -> Iterator[None]:
        thread = threading.Thread(target=asyncio.run, args=(self._run(),))
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def wait_for_more(self) -> None:
        wanted = self.statuses.total() + CALLS_BETWEEN
        until(lambda: self.statuses.total() >= wanted or self.failed, "nothing is answered")

    async def _run(self) -> None:
        await asyncio.gather(*(self._call(keep=place % 2 == 0) for place in range(CALLERS)))

    async def _call(self, *, keep: bool) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                while await self._once(reader, writer, keep=keep) and not self._ended.is_set():
                    began = time.monotonic()
                writer.close()
            except (OSError, asyncio.IncompleteReadError) as error:
                if began < self.node_stops_at:
                    self.failed.append(repr(error))
                return

    async def _once(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, keep: bool) -> bool:
        """Make a call, and tell whether the connection can be used for another."""
        writer.write(self._requests[keep])
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        found = re.search(r"content-length: (\d+)", head)
        assert found is not None
        await reader.readexactly(int(found[1]))
        self.statuses[int(head[9:12])] += 1
        return keep and "connection: close" not in head
