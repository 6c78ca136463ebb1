"""Sends events to one endpoint: signs each request, waits for the response, and counts it."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from tumira.core import metrics, tracing
from tumira.core.ids import EVENT, write_id
from tumira.core.tracing import Tracer
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_client import CallFailedError, WebhookClient
from tumira.webhooks.http_response import HttpResponse
from tumira.webhooks.reader import PendingEvent
from tumira.webhooks.results import SendResult
from tumira.webhooks.signature import sign

Clock = Callable[[], datetime]


class EventSender:
    """Sends events to one endpoint; without a client every attempt fails for this reason."""

    def __init__(
        self, endpoint: Endpoint, client: WebhookClient | str, clock: Clock, tracer: Tracer | None
    ) -> None:
        self._endpoint = endpoint
        self._client = client
        self._clock = clock
        self._tracer = tracer

    async def send(self, pending: PendingEvent) -> SendResult:
        """Make one attempt; a failure is a result and not an exception."""
        loop = asyncio.get_running_loop()
        at = self._clock()
        began = loop.time()
        event_id = write_id(EVENT, pending.event.id)
        at_s = int(at.timestamp())
        headers = (
            ("webhook-id", event_id),
            ("webhook-timestamp", str(at_s)),
            ("webhook-signature", sign(self._endpoint.secrets_at(at), event_id, at_s, pending.body)),
        )
        response: HttpResponse | None = None
        problem: str | None = None
        if isinstance(self._client, str):
            problem = self._client
        else:
            try:
                response = await self._client.post(headers, pending.body)
            except CallFailedError as error:
                problem = str(error)
        result = SendResult(at, int((loop.time() - began) * 1000), response, problem)
        self._count(pending, result)
        return result

    def close(self) -> None:
        if isinstance(self._client, WebhookClient):
            self._client.close()

    def _count(self, pending: PendingEvent, result: SendResult) -> None:
        """Count an attempt, and add it to the trace of its message."""
        event, status = pending.event, result.status
        label = "delivered" if result.is_delivered else "failed" if status is None else "refused"
        metrics.WEBHOOKS.labels(label).inc()
        metrics.WEBHOOK_SECONDS.observe(result.duration_ms / 1000)
        if result.is_delivered:
            delay_s = (self._clock() - event.at).total_seconds()
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
                failed=not result.is_delivered,
            )
        )
