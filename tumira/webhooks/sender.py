"""Sends events to one endpoint: signs each request, and counts its response."""

import asyncio
import functools
from collections.abc import Callable
from datetime import datetime
from typing import Final

from tumira.core import metrics, tracing
from tumira.core.ids import EVENT, write_id
from tumira.core.tracing import Tracer
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_client import Outcome, WebhookClient
from tumira.webhooks.http_response import HttpResponse
from tumira.webhooks.reader import PendingEvent
from tumira.webhooks.results import SendResult
from tumira.webhooks.signature import sign

Clock = Callable[[], datetime]
# Is told the event, the result and the time.
OnResult = Callable[[PendingEvent, SendResult, datetime], None]

# Looking a label up costs as much as counting it.
_attempts: Final = functools.cache(metrics.WEBHOOKS.labels)


class EventSender:
    """Sends events to one endpoint; without a client every attempt fails for this reason."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: WebhookClient | str,
        clock: Clock,
        tracer: Tracer | None,
        on_result: OnResult,
    ) -> None:
        self._endpoint = endpoint
        self._client = client
        self._clock = clock
        self._tracer = tracer
        self._on_result = on_result
        self._loop = asyncio.get_running_loop()

    def send(self, pending: PendingEvent) -> None:
        """Make one attempt; `on_result` gets its result after this has returned."""
        at = self._clock()
        began = self._loop.time()

        def on_outcome(outcome: Outcome) -> None:
            duration_ms = int((self._loop.time() - began) * 1000)
            if isinstance(outcome, HttpResponse):
                result = SendResult(at, duration_ms, outcome, None)
            else:
                result = SendResult(at, duration_ms, None, outcome)
            now = self._clock()
            self._count(pending, result, now)
            self._on_result(pending, result, now)

        if isinstance(self._client, str):
            self._loop.call_soon(on_outcome, self._client)
            return
        event_id = write_id(EVENT, pending.event.id)
        at_s = int(at.timestamp())
        signature = sign(self._endpoint.secrets_at(at), event_id, at_s, pending.body)
        self._client.post(event_id, at_s, signature, pending.body, on_outcome)

    def close(self) -> None:
        """Close the connections now; attempts in flight have no result."""
        if isinstance(self._client, WebhookClient):
            self._client.abort()

    def _count(self, pending: PendingEvent, result: SendResult, now: datetime) -> None:
        """Count an attempt, and add it to the trace of its message."""
        event, status, is_delivered = pending.event, result.status, result.is_delivered
        label = "delivered" if is_delivered else "failed" if status is None else "refused"
        _attempts(label).inc()
        metrics.WEBHOOK_SECONDS.observe(result.duration_ms / 1000)
        if is_delivered:
            delay_s = (now - event.at).total_seconds()
            metrics.WEBHOOK_DELAY_SECONDS.observe(max(0.0, delay_s))
        about = event.message_id or event.batch_id
        if self._tracer is None or about is None or not self._tracer.wants(about):
            return
        start_ms = int(result.at.timestamp() * 1000)
        self._tracer.add(
            tracing.told(
                event.id,
                self._endpoint.id,
                pending.attempts + 1,
                event.type,
                about,
                tracing.nanoseconds(start_ms),
                tracing.nanoseconds(start_ms + result.duration_ms),
                {} if status is None else {"http.response.status_code": status},
                failed=not is_delivered,
            )
        )
