"""Traces: the spans of a message, made after the fact, and their export to a collector.

The messages of a batch share the head of its id, so every process finds the same trace for a message and the
same id for each span of it: nothing has to be passed along. One trace is one batch.

Spans are exported in batches over HTTP without delaying a message. A collector that is away or slow costs
spans, and nothing else. docs/decisions/0040 says why this is not the OpenTelemetry SDK.
"""

import asyncio
import hashlib
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import IntEnum
from typing import Any, Final
from uuid import UUID

import httpx
import msgspec
import structlog
from msgspec import Struct

from tumira import VERSION
from tumira.core import metrics
from tumira.core.ids import BATCH, BatchId, message_bounds, read_id, write_id
from tumira.core.settings.tracing import Tracing

WAITING_MAX: Final = 5_000
BATCH_MAX: Final = 500
EVERY_S: Final = 1.0
CALL_S: Final = 5.0
# After a failure.
PAUSE_S: Final = 10.0

_BATCH: Final = re.compile(rb'"batch_id":"(bat_[0-9a-z]{26})"')
_OK: Final = 200
_OK_END: Final = 300

_log: Final = structlog.get_logger()
_encode: Final = msgspec.json.Encoder().encode
_sent: Final = metrics.SPANS.labels("sent")
_dropped: Final = metrics.SPANS.labels("dropped")

SCALE: Final = 1 << 32
_NS_PER_MS: Final = 1_000_000

ACCEPT: Final = "accept"
# The name under which collectors know it.
SUBMISSION: Final = "hand-over"
RECEIPT: Final = "receipt"
WEBHOOK: Final = "webhook"

# The step that an event reports; other events may happen without a carrier.
_TOLD_STEP: Final[Mapping[str, str]] = {
    "message.sent": SUBMISSION,
    "message.delivered": RECEIPT,
    "message.undelivered": RECEIPT,
}

Value = str | int | bool


class SpanKind(IntEnum):
    """SpanKind of opentelemetry/proto/trace/v1/trace.proto."""

    SERVER = 2
    CLIENT = 3
    CONSUMER = 5


class Span(Struct, frozen=True):
    """A step of a message; times are in nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    failed: bool = False


def trace_of(identifier: UUID) -> UUID:
    """Return the trace of a batch or of one of its messages."""
    return message_bounds(BatchId(identifier))[0]


def is_sampled(identifier: UUID, share: float) -> bool:
    """Tell whether the trace of a batch or message is in the sampled share; all processes agree."""
    digest = hashlib.blake2s(trace_of(identifier).bytes, digest_size=4).digest()
    return int.from_bytes(digest) < share * SCALE


def _name(step: str, *about: UUID | int) -> str:
    """Return the id of a span; every process derives the same from the same ids."""
    digest = hashlib.blake2s(step.encode(), digest_size=8)
    for one in about:
        digest.update(one.bytes if isinstance(one, UUID) else one.to_bytes(8))
    return digest.hexdigest()


def accepted(batch_id: UUID, start_ns: int, end_ns: int, attributes: Mapping[str, Value]) -> Span:
    """Return the first span: the call that was accepted."""
    trace = trace_of(batch_id)
    named = {"tumira.batch": write_id(BATCH, batch_id), **attributes}
    return Span(trace.hex, _name(ACCEPT, trace), "", ACCEPT, SpanKind.SERVER, start_ns, end_ns, named)


def submitted(message_id: UUID, start_ns: int, end_ns: int, attributes: Mapping[str, Value]) -> Span:
    """Return the submission to a carrier, from the claim to the carrier's last answer."""
    trace = trace_of(message_id)
    own, parent = _name(SUBMISSION, message_id), _name(ACCEPT, trace)
    return Span(trace.hex, own, parent, SUBMISSION, SpanKind.CLIENT, start_ns, end_ns, attributes)


def received(message_id: UUID, start_ns: int, end_ns: int, attributes: Mapping[str, Value]) -> Span:
    """Return the wait for the receipt, from the submission on."""
    trace = trace_of(message_id)
    own, parent = _name(RECEIPT, message_id), _name(SUBMISSION, message_id)
    return Span(trace.hex, own, parent, RECEIPT, SpanKind.CONSUMER, start_ns, end_ns, attributes)


def told(
    event_id: UUID,
    endpoint_id: UUID,
    tries: int,
    event_type: str,
    about: UUID,
    start_ns: int,
    end_ns: int,
    attributes: Mapping[str, Value],
    *,
    failed: bool,
) -> Span:
    """Return an attempt to deliver an event about a message or batch to an endpoint."""
    trace = trace_of(about)
    step = _TOLD_STEP.get(event_type)
    return Span(
        trace.hex,
        _name(WEBHOOK, event_id, endpoint_id, tries),
        _name(ACCEPT, trace) if step is None else _name(step, about),
        WEBHOOK,
        SpanKind.CLIENT,
        start_ns,
        end_ns,
        {"tumira.event": event_type, "tumira.try": tries, **attributes},
        failed=failed,
    )


def nanoseconds(at_ms: int) -> int:
    return at_ms * _NS_PER_MS


def write_otlp(spans: Sequence[Span], process: str, version: str) -> dict[str, Any]:
    """Encode spans as an ExportTraceServiceRequest in OTLP's JSON, in which 64-bit numbers are strings."""
    resource = {"service.name": "tumira", "service.namespace": process, "service.version": version}
    scope = {"name": "tumira", "version": version}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": scope, "spans": [_write(span) for span in spans]}],
            }
        ]
    }


def _write(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "parentSpanId": span.parent_id,
        "name": span.name,
        "kind": int(span.kind),
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(max(span.start_ns, span.end_ns)),
        "attributes": _attributes(span.attributes),
        # STATUS_CODE_ERROR, or left unset.
        "status": {"code": 2} if span.failed else {},
    }


def _attributes(values: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}


class Tracer:
    """The spans of one process that wait for export."""

    def __init__(self, tracing: Tracing, process: str) -> None:
        self._tracing = tracing
        self._process = process
        self._waiting: deque[Span] = deque()
        self._client = httpx.AsyncClient(timeout=CALL_S, trust_env=False)

    def wants(self, identifier: UUID) -> bool:
        return is_sampled(identifier, self._tracing.share)

    def add(self, span: Span) -> None:
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(span)
        else:
            _dropped.inc()

    def accepted(self, response: bytes, start_ns: int, end_ns: int) -> None:
        """Add the span of a call, whose batch is found in the response."""
        found = _BATCH.search(response)
        batch_id = None if found is None else read_id(BATCH, found[1].decode())
        if batch_id is not None and self.wants(batch_id):
            self.add(accepted(batch_id, start_ns, end_ns, {}))

    async def run(self) -> None:
        """Export until cancelled."""
        try:
            while True:
                await asyncio.sleep(EVERY_S)
                while self._waiting:
                    if not await self._send():
                        await asyncio.sleep(PAUSE_S)
        finally:
            # The last spans of a process that ends, unless the collector is away.
            for _ in range(WAITING_MAX // BATCH_MAX):
                if not self._waiting or not await self._send():
                    break
            await self._client.aclose()

    async def _send(self) -> bool:
        """Export the next spans, and tell whether they arrived; the others are dropped."""
        spans = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        body = _encode(write_otlp(spans, self._process, VERSION))
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
    """Yield a tracer that exports meanwhile; None without a collector."""
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
