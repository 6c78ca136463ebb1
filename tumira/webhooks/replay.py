"""Sending events again that an endpoint missed, for its owner or for an operator."""

from datetime import datetime, timedelta
from typing import Final

from tumira import events
from tumira.core.ids import EndpointId, EventId, first_id
from tumira.core.translation import _
from tumira.events import is_subscribed
from tumira.postgres import clock
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.webhooks import attempts, retries
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.manage import OPERATOR, By, EndpointError, lock_active, note, send_now
from tumira.webhooks.retries import EventRetry

REPLAYABLE: Final = timedelta(days=30)
REPLAYS_MAX: Final = 20
# Failed events that are sent again at a time.
FAILED_MAX: Final = 10_000


async def replay_event(
    database: Database, endpoint_id: EndpointId, event_id: EventId, *, by: By = OPERATOR
) -> int:
    """Have one event sent again; return 0 if it was not sent yet."""
    async with database.transaction() as connection:
        endpoint = await lock_active(connection, endpoint_id, by)
        event = await events.find(connection, endpoint.account_id, event_id)
        if event is None:
            raise EndpointError(
                "There is no such event; `tumira webhook attempts` shows those that were sent.",
                plain=_("The event is no longer kept, so it cannot be resent."),
            )
        if event.at < await clock.read_now(connection) - REPLAYABLE:
            raise EndpointError(
                _("The event is older than {days} days, so it cannot be resent.").format(days=REPLAYABLE.days)
            )
        if event.sequence == 0:
            raise EndpointError(
                "A test is not sent twice; `tumira webhook test` sends another.",
                plain=_("A test cannot be resent. Send another test instead."),
            )
        if not is_subscribed(endpoint.types, event.type):
            raise EndpointError(
                f"The endpoint does not take {event.type}; `tumira webhook change` can change that.",
                plain=_("The endpoint no longer receives {type}. Select it under Events first.").format(
                    type=event.type
                ),
            )
        if event.sequence > endpoint.position:
            return 0
        await _replay(connection, endpoint, event.sequence - 1, event.sequence)
    return 1


async def replay_after(database: Database, endpoint_id: EndpointId, after: int, *, by: By = OPERATOR) -> int:
    """Have all events above a number sent again; return how many numbers that are."""
    async with database.transaction() as connection:
        endpoint = await lock_active(connection, endpoint_id, by)
        # Events above its position are sent anyway.
        until = endpoint.position
        if after >= until:
            return 0
        await _replay(connection, endpoint, after, until)
    return until - after


async def replay_between(
    database: Database,
    endpoint_id: EndpointId,
    from_at: datetime,
    until_at: datetime,
    *,
    by: By = OPERATOR,
) -> int:
    """Have the events between two times sent again; return how many numbers are read for that."""
    async with database.transaction() as connection:
        endpoint = await lock_active(connection, endpoint_id, by)
        bounds = await events.find_range(connection, endpoint.account_id, from_at, until_at)
        if bounds is None or bounds[0] > endpoint.position:
            return 0
        first, last = bounds[0], min(bounds[1], endpoint.position)
        await _replay(connection, endpoint, first - 1, last, (from_at, until_at))
    return last - first + 1


async def _replay(
    connection: Connection,
    endpoint: Endpoint,
    position: int,
    until: int,
    between: tuple[datetime, datetime] | None = None,
) -> None:
    if len(await retries.list_replays(connection, endpoint.id, REPLAYS_MAX)) >= REPLAYS_MAX:
        raise EndpointError(_("Too many events are being resent. Wait until that is done."))
    await retries.insert_replay(connection, endpoint.id, position, until, between)
    await send_now(connection, endpoint)


async def replay_failed(
    database: Database, endpoint_id: EndpointId, since: datetime, *, by: By = OPERATOR
) -> int:
    """Have the events of which every attempt since then failed sent again now; return how many."""
    async with database.transaction() as connection:
        now = await clock.read_now(connection)
        endpoint = await lock_active(connection, endpoint_id, by)
        since_id = first_id(int(max(since, now - REPLAYABLE).timestamp() * 1000))
        failed = await attempts.list_failed_events(
            connection, endpoint.id, since_id, endpoint.types, FAILED_MAX
        )
        if failed:
            # From the first attempt on: their number of attempts begins at 0 again.
            again = [
                EventRetry(endpoint.id, sequence, event_id, 0, now, now) for sequence, event_id in failed
            ]
            await retries.upsert_retries(connection, again)
            await send_now(connection, endpoint)
            if by.on_console:
                await note(connection, by, endpoint, "failed events replayed", f"{len(failed)}")
    return len(failed)
