"""Which spans make up the trace of a message? Accept, hand-over, receipt and webhook, made after the fact.

All messages of a batch share the head of its id, so that every process finds the same trace for a message by
itself, and the same name for each span of it: nothing has to be carried along. One trace is one batch.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from tumira.core.ids import BATCH, BatchId, message_bounds, write_id

SCALE: Final = 1 << 32
_NS_PER_MS: Final = 1_000_000

ACCEPT: Final = "accept"
HAND_OVER: Final = "hand-over"
RECEIPT: Final = "receipt"
WEBHOOK: Final = "webhook"

# Which step an event tells of; those that are not here may have come about without a carrier.
_TOLD_STEP: Final[Mapping[str, str]] = {
    "message.sent": HAND_OVER,
    "message.delivered": RECEIPT,
    "message.undelivered": RECEIPT,
}

Value = str | int | bool


class Kind(IntEnum):
    """The numbers that OTLP has for what a span is about; opentelemetry/proto/trace/v1/trace.proto."""

    SERVER = 2
    CLIENT = 3
    CONSUMER = 5


class Span(Struct, frozen=True):
    """A step of a message; times are in nanoseconds since 1970."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    failed: bool = False


def trace_of(identifier: UUID) -> UUID:
    """Return the trace to which a batch or one of its messages belongs."""
    return message_bounds(BatchId(identifier))[0]


def is_sampled(identifier: UUID, share: float) -> bool:
    """Tell whether the trace of a batch or message is among the share that is kept; all processes agree."""
    digest = hashlib.blake2s(trace_of(identifier).bytes, digest_size=4).digest()
    return int.from_bytes(digest) < share * SCALE


def _name(step: str, *about: UUID | int) -> str:
    """Return the id of a span; whoever knows what it is about finds the same."""
    digest = hashlib.blake2s(step.encode(), digest_size=8)
    for one in about:
        digest.update(one.bytes if isinstance(one, UUID) else one.to_bytes(8))
    return digest.hexdigest()


def accepted(batch_id: UUID, start_ns: int, end_ns: int, attributes: Mapping[str, Value]) -> Span:
    """Return the first span: a call brought the batch."""
    trace = trace_of(batch_id)
    named = {"tumira.batch": write_id(BATCH, batch_id), **attributes}
    return Span(trace.hex, _name(ACCEPT, trace), "", ACCEPT, Kind.SERVER, start_ns, end_ns, named)


def handed_over(message_id: UUID, start_ns: int, end_ns: int, attributes: Mapping[str, Value]) -> Span:
    """Return that a carrier took a message, from its claim to the carrier's last answer."""
    trace = trace_of(message_id)
    return Span(
        trace.hex,
        _name(HAND_OVER, message_id),
        _name(ACCEPT, trace),
        HAND_OVER,
        Kind.CLIENT,
        start_ns,
        end_ns,
        attributes,
    )


def received(message_id: UUID, start_ns: int, end_ns: int, attributes: Mapping[str, Value]) -> Span:
    """Return that the receipt of a message came, from its hand-over on."""
    return Span(
        trace_of(message_id).hex,
        _name(RECEIPT, message_id),
        _name(HAND_OVER, message_id),
        RECEIPT,
        Kind.CONSUMER,
        start_ns,
        end_ns,
        attributes,
    )


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
    """Return that an endpoint was told of an event about a message or batch, or that it was tried."""
    trace = trace_of(about)
    step = _TOLD_STEP.get(event_type)
    return Span(
        trace.hex,
        _name(WEBHOOK, event_id, endpoint_id, tries),
        _name(ACCEPT, trace) if step is None else _name(step, about),
        WEBHOOK,
        Kind.CLIENT,
        start_ns,
        end_ns,
        {"tumira.event": event_type, "tumira.try": tries, **attributes},
        failed=failed,
    )


def nanoseconds(at_ms: int) -> int:
    """Return a moment in milliseconds as OTLP counts."""
    return at_ms * _NS_PER_MS


def write_otlp(spans: Sequence[Span], process: str, version: str) -> dict[str, Any]:
    """Write spans as an ExportTraceServiceRequest in OTLP's JSON, in which 64-bit numbers are texts."""
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
