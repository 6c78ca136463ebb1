"""How do spans get to the collector? In batches, over HTTP, without anybody waiting; or they are dropped."""

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from uuid import UUID

import httpx
import msgspec
import structlog

from tumira import VERSION
from tumira.core import metrics
from tumira.core import tracing as traces
from tumira.core.ids import BATCH, read_id
from tumira.core.settings.tracing import Tracing
from tumira.core.tracing import Span

WAITING_MAX: Final = 5_000
BATCH_MAX: Final = 500
EVERY_S: Final = 1.0
CALL_S: Final = 5.0
# After a failure: long enough not to hammer, short enough to miss little.
PAUSE_S: Final = 10.0

_BATCH: Final = re.compile(rb'"batch_id":"(bat_[0-9a-z]{26})"')
_OK: Final = 200
_OK_END: Final = 300

_log: Final = structlog.get_logger()
_encode: Final = msgspec.json.Encoder().encode
_sent: Final = metrics.SPANS.labels("sent")
_dropped: Final = metrics.SPANS.labels("dropped")


class Tracer:
    """Takes the spans of one process; a collector that is away or slow costs spans, and nothing else."""

    def __init__(self, tracing: Tracing, process: str) -> None:
        self._tracing = tracing
        self._process = process
        self._waiting: deque[Span] = deque()
        self._client = httpx.AsyncClient(timeout=CALL_S, trust_env=False)

    def wants(self, identifier: UUID) -> bool:
        """Tell whether the spans of a batch or message are kept."""
        return traces.is_sampled(identifier, self._tracing.share)

    def add(self, span: Span) -> None:
        """Have a span sent some time."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(span)
        else:
            _dropped.inc()

    def accepted(self, response: bytes, start_ns: int, end_ns: int) -> None:
        """Note the call that brought a batch, by the answer that its caller got."""
        found = _BATCH.search(response)
        batch_id = None if found is None else read_id(BATCH, found[1].decode())
        if batch_id is not None and self.wants(batch_id):
            self.add(traces.accepted(batch_id, start_ns, end_ns, {}))

    async def run(self) -> None:
        """Send what waits until cancelled."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                while self._waiting:
                    if not await self._send():
                        await asyncio.sleep(PAUSE_S)
        finally:
            # The last spans of a process that ends, if they can be had at once.
            for _ in range(WAITING_MAX // BATCH_MAX):
                if not self._waiting or not await self._send():
                    break
            await self._client.aclose()

    async def _send(self) -> bool:
        """Send the next spans, and tell whether they arrived; those that did not are dropped."""
        spans = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        body = _encode(traces.write_otlp(spans, self._process, VERSION))
        headers = {"Content-Type": "application/json"}
        try:
            answer = await self._client.post(self._tracing.url, content=body, headers=headers)
        except httpx.HTTPError as error:
            problem = type(error).__name__
        else:
            if _OK <= answer.status_code < _OK_END:
                _sent.inc(len(spans))
                return True
            problem = f"status {answer.status_code}"
        _dropped.inc(len(spans))
        _log.warning("spans dropped", count=len(spans), problem=problem)
        return False


@asynccontextmanager
async def tracing(settings: Tracing | None, process: str) -> "AsyncIterator[Tracer | None]":
    """Lend a tracer that sends as long as this lasts; None when no collector was named."""
    if settings is None:
        yield None
        return
    tracer = Tracer(settings, process)
    running = asyncio.create_task(tracer.run())
    try:
        yield tracer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
