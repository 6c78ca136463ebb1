"""Keeps the results of deliveries until they are on disk: attempts, retries, positions and health."""

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog
from msgspec import Struct

from tumira.core.ids import EndpointId, EventId, new_id
from tumira.events import WEBHOOK_TEST
from tumira.postgres.connection import Connection
from tumira.sending.owner_notices import NoticeKind, notify_owners
from tumira.webhooks import attempts, leases, retries
from tumira.webhooks import health as endpoint_health
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_response import HttpResponse, is_success
from tumira.webhooks.leases import EndpointProgress
from tumira.webhooks.reader import EventReader, PendingEvent
from tumira.webhooks.retries import EventRetry
from tumira.webhooks.warn_owner import owner_warning

ANSWER_MAX: Final = 1024
GONE: Final = 410

_log: Final = structlog.get_logger()


class SendResult(Struct, frozen=True, gc=False):
    """The response to an event, or the problem because of which there was none."""

    at: datetime
    duration_ms: int
    response: HttpResponse | None
    problem: str | None

    @property
    def status(self) -> int | None:
        return None if self.response is None else self.response.status

    @property
    def is_delivered(self) -> bool:
        return is_success(self.status)


class AttemptMade(Struct, frozen=True, gc=False):
    """An attempt, and when the first attempt of the same event was."""

    attempt: Attempt
    first_at: datetime
    # Whether the event was sent before, so that it may have a row among the retries.
    sent_before: bool


class EndpointResults(Struct, frozen=True):
    """The results of one endpoint that are to be written."""

    progress: EndpointProgress
    made: Sequence[AttemptMade]
    # How far each replay is; None if it is done.
    replays: Mapping[int, int | None]
    # Whether the endpoint works again, so that all its retries become due.
    has_recovered: bool


class ResultKeeper:
    """Decides what follows from each result of one endpoint, and keeps it until it is written."""

    def __init__(self, endpoint: Endpoint, reader: EventReader) -> None:
        self.health = endpoint.health
        self.concurrency = 1 if self.health.is_probing else endpoint_health.CONCURRENCY_FIRST
        self.disabled_for: str | None = None
        # How many attempts are not on disk yet.
        self.unrecorded = 0
        self._endpoint = endpoint
        self._reader = reader
        self._made: list[AttemptMade] = []
        self._has_recovered = False

    def add(self, pending: PendingEvent, result: SendResult, now: datetime) -> None:
        next_at: datetime | None = None
        is_delivered = result.is_delivered
        if is_delivered:
            self._has_recovered = self._has_recovered or self.health.is_probing
            self.health = endpoint_health.succeeded(self.health, now)
        else:
            next_at = self._fail(pending, result, now)
        self.concurrency = endpoint_health.next_concurrency(self.concurrency, delivered=is_delivered)
        self._keep(pending, result, next_at)

    def take(self) -> EndpointResults:
        """Return the results to write, each once."""
        made, self._made = self._made, []
        has_recovered, self._has_recovered = self._has_recovered, False
        progress = EndpointProgress(
            self._endpoint.id,
            self._endpoint.changed_at,
            self._reader.live.position,
            self.health,
            self.disabled_for,
        )
        return EndpointResults(progress, made, self._reader.replay_positions(), has_recovered)

    def on_recorded(self, results: EndpointResults) -> None:
        self.unrecorded -= len(results.made)
        retried = [one.attempt.event_id for one in results.made if one.sent_before]
        self._reader.on_recorded(retried, results.replays)

    def _fail(self, pending: PendingEvent, result: SendResult, now: datetime) -> datetime | None:
        """Note a failure, and return when the event is sent again."""
        text = None if result.response is None else result.response.retry_after
        retry_after = endpoint_health.read_retry_after(text, now)
        chance = random.random()  # noqa: S311 - spreads retries, guards nothing
        warnings = self.health.warnings
        self.health = endpoint_health.failed(self.health, now, retry_after, chance)
        if self.health.warnings > warnings:
            _log.warning(
                "webhook endpoint keeps failing", endpoint=self._endpoint.url, since=self.health.failing_since
            )
        self._disable_if_hopeless(result, now)
        return self._next_attempt_at(pending, now, retry_after, chance)

    def _next_attempt_at(
        self, pending: PendingEvent, now: datetime, retry_after: timedelta | None, chance: float
    ) -> datetime | None:
        number = pending.attempts + 1
        if pending.event.type == WEBHOOK_TEST:
            return None
        succeeded_at = self.health.succeeded_at
        first_at = pending.first_at or now
        if number >= endpoint_health.ATTEMPTS_MAX and succeeded_at is not None and first_at < succeeded_at:
            # Other events were delivered meanwhile, so the endpoint refuses this event alone.
            return None
        wait = endpoint_health.retry_wait(number, chance)
        return now + max(wait, retry_after or wait)

    def _disable_if_hopeless(self, result: SendResult, now: datetime) -> None:
        if result.status == GONE:
            self.disabled_for = "It answered 410 Gone."
        elif self.health.must_be_disabled(now):
            days = endpoint_health.DISABLE_AFTER.days
            last = result.problem or result.status
            self.disabled_for = f"Nothing arrived for {days} days; the last try: {last}"
        if self.disabled_for is not None:
            _log.warning("webhook endpoint disabled", endpoint=self._endpoint.url, reason=self.disabled_for)

    def _keep(self, pending: PendingEvent, result: SendResult, next_at: datetime | None) -> None:
        event, response = pending.event, result.response
        if pending.cursor is not None:
            pending.cursor.done(event.sequence)
        attempt = Attempt(
            id=new_id(int(result.at.timestamp() * 1000)),
            endpoint_id=self._endpoint.id,
            event_id=event.id,
            sequence=event.sequence,
            type=event.type,
            number=pending.attempts + 1,
            at=result.at,
            duration_ms=result.duration_ms,
            status=result.status,
            problem=result.problem,
            answer="" if response is None else _printable(response.start),
            next_at=next_at,
        )
        sent_before = pending.cursor is not self._reader.live
        self._made.append(AttemptMade(attempt, pending.first_at or result.at, sent_before))
        self.unrecorded += 1


def _printable(start: bytes) -> str:
    """Return the start of a response as text that PostgreSQL can store."""
    if not start:
        return ""
    return start[:ANSWER_MAX].decode(errors="replace").replace("\0", "\ufffd")


async def record_results(
    connection: Connection,
    worker: str,
    results: Sequence[EndpointResults],
    now: datetime,
    *,
    is_repeated: bool = False,
) -> None:
    """Write the results of some endpoints, in the caller's transaction; removed endpoints are left out.

    If it is repeated, an earlier transaction may have written the same results already.
    """
    existing = await leases.lock_endpoints(connection, sorted(one.progress.endpoint_id for one in results))
    kept = [one for one in results if one.progress.endpoint_id in existing]
    if not kept:
        return
    made = [attempt for one in kept for attempt in one.made]
    if made:
        insert = attempts.insert_missing_attempts if is_repeated else attempts.insert_attempts
        await insert(connection, [one.attempt for one in made])
        await _write_retries(connection, made)
    recovered = [one.progress.endpoint_id for one in kept if one.has_recovered]
    if recovered:
        await retries.make_retries_due(connection, recovered, now)
    replays = {number: position for one in kept for number, position in one.replays.items()}
    if replays:
        await retries.save_replay_positions(
            connection,
            {number: position for number, position in replays.items() if position is not None},
            [number for number, position in replays.items() if position is None],
        )
    await leases.save_progress(connection, worker, [one.progress for one in kept])
    warnings = [owner_warning(existing[one.progress.endpoint_id], worker, one.progress) for one in kept]
    notices = [notice for notice in warnings if notice is not None]
    if notices:
        await notify_owners(connection, NoticeKind.ENDPOINT, notices, now)
    disabled = [one.progress.endpoint_id for one in kept if one.progress.disabled_for is not None]
    if disabled:
        await retries.suspend_retries(connection, disabled)


async def _write_retries(connection: Connection, made: Sequence[AttemptMade]) -> None:
    # An event may have been sent twice, as a retry and as part of a replay; the last attempt counts.
    last: dict[tuple[EndpointId, int, EventId], AttemptMade] = {}
    sent_before: set[tuple[EndpointId, int, EventId]] = set()
    for one in made:
        key = (one.attempt.endpoint_id, one.attempt.sequence, one.attempt.event_id)
        last[key] = one
        if one.sent_before:
            sent_before.add(key)
    scheduled = [
        EventRetry(*key, one.attempt.number, one.first_at, one.attempt.next_at)
        for key, one in last.items()
        if one.attempt.next_at is not None
    ]
    if scheduled:
        await retries.upsert_retries(connection, scheduled)
    done = [key for key in sent_before if last[key].attempt.next_at is None]
    if done:
        await retries.delete_retries(connection, done)
