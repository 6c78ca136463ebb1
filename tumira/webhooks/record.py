"""What is written down after events were sent? Each try, what is tried again, and how far endpoints are."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tumira.core.ids import EndpointId, EventId
from tumira.postgres.connection import Connection
from tumira.webhooks import attempts as deliveries
from tumira.webhooks.attempts import Attempt, Progress, Retry


class Delivery(Struct, frozen=True, gc=False):
    """A try, and when the first try of the same event was."""

    attempt: Attempt
    first_at: datetime
    # Whether the event was sent before, and so may have a row that says when it is tried again.
    sent_before: bool


class Advance(Struct, frozen=True):
    """What happened at one endpoint: how far it is, and what was tried."""

    progress: Progress
    deliveries: Sequence[Delivery]
    # Of each stretch that is sent once more, how far it is; None when it is done.
    replays: dict[int, int | None]
    # Whether the endpoint works again, so that all that waits for it is sent at once.
    recovered: bool


async def record_deliveries(
    connection: Connection, worker: str, advances: Sequence[Advance], now: datetime, *, again: bool = False
) -> None:
    """Write what happened at some endpoints; those that were removed meanwhile are left out.

    `again` is for what may have been written before. The caller has begun a transaction, and commits it.
    """
    there = await deliveries.hold(connection, sorted(one.progress.endpoint_id for one in advances))
    here = [one for one in advances if one.progress.endpoint_id in there]
    if not here:
        return
    made = [delivery for one in here for delivery in one.deliveries]
    if made:
        add = deliveries.add_attempts_once if again else deliveries.add_attempts
        await add(connection, [delivery.attempt for delivery in made])
        await _write_retries(connection, made)
    recovered = [one.progress.endpoint_id for one in here if one.recovered]
    if recovered:
        await deliveries.hurry_retries(connection, recovered, now)
    replays = {number: position for one in here for number, position in one.replays.items()}
    if replays:
        await deliveries.advance_replays(
            connection,
            {number: position for number, position in replays.items() if position is not None},
            [number for number, position in replays.items() if position is None],
        )
    await deliveries.advance(connection, worker, [one.progress for one in here])
    disabled = [one.progress.endpoint_id for one in here if one.progress.disabled_for is not None]
    if disabled:
        await deliveries.park_retries(connection, disabled)


async def _write_retries(connection: Connection, made: Sequence[Delivery]) -> None:
    # An event may have been tried twice, as a retry and because it was wanted once more; the last try counts.
    last: dict[tuple[EndpointId, int, EventId], Attempt] = {}
    due_again: set[tuple[EndpointId, int, EventId]] = set()
    first_ats: dict[tuple[EndpointId, int, EventId], datetime] = {}
    for delivery in made:
        attempt = delivery.attempt
        key = (attempt.endpoint_id, attempt.sequence, attempt.event_id)
        last[key] = attempt
        first_ats[key] = delivery.first_at
        if delivery.sent_before:
            due_again.add(key)
    retries = [
        Retry(*key, attempt.number, first_ats[key], attempt.next_at)
        for key, attempt in last.items()
        if attempt.next_at is not None
    ]
    if retries:
        await deliveries.put_retries(connection, retries)
    done = [key for key in due_again if last[key].next_at is None]
    if done:
        await deliveries.drop_retries(connection, done)
