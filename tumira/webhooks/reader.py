"""Reads the events to send to one endpoint: due retries, new events and replays, each with its payload."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import structlog
from msgspec import Struct

from tumira import events
from tumira.core.ids import EVENT, EventId, write_id
from tumira.events import Event, is_subscribed
from tumira.postgres.connection import Connection
from tumira.replies import store as replies
from tumira.sending import batches
from tumira.webhooks import retries
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.payload import reply_of, write_payload
from tumira.webhooks.retries import Replay

PAGE: Final = 200
REPLAYS_MAX: Final = 20
_LATEST: Final = datetime.max.replace(tzinfo=UTC)

_log: Final = structlog.get_logger()


class EventCursor:
    """A position in an account's event log: that of the new events, or that of a replay."""

    def __init__(self, position: int, replay: Replay | None = None) -> None:
        self.replay = replay
        # The last number that was read; some of the events before it are still in flight.
        self._read = position
        self._in_flight: dict[int, None] = {}

    @property
    def position(self) -> int:
        """Return the number up to which every event is done."""
        # In the order in which they were read, so the first is the lowest.
        first = next(iter(self._in_flight), None)
        return self._read if first is None else first - 1

    @property
    def is_done(self) -> bool:
        """Tell whether this is a replay that reached its end."""
        return self.replay is not None and self.position >= self.replay.until

    async def read_page(self, connection: Connection, endpoint: Endpoint) -> "_Page":
        """Return the next events; the cursor moves only with `accept`."""
        until = None if self.replay is None else self.replay.until
        page = await events.list_after(connection, endpoint.account_id, self._read, until, PAGE)
        wanted = [one for one in page if is_subscribed(endpoint.types, one.type) and self._is_asked_for(one)]
        read = page[-1].sequence if page else self._read
        if until is not None and len(page) < PAGE:
            read = until
        return _Page(self, wanted, read, is_full=len(page) == PAGE)

    def accept(self, page: "_Page") -> bool:
        """Count the events of a page as in flight, and tell whether the cursor moved."""
        before, self._read = self._read, page.read
        self._in_flight.update(dict.fromkeys(one.sequence for one in page.events))
        return self._read > before

    def done(self, sequence: int) -> None:
        """Note that an event was delivered, scheduled for a retry, or given up."""
        self._in_flight.pop(sequence, None)

    def _is_asked_for(self, event: Event) -> bool:
        replay = self.replay
        if replay is None or replay.from_at is None or replay.until_at is None:
            return True
        return replay.from_at <= event.at <= replay.until_at


class _Page(Struct, frozen=True):
    """The next events of a cursor that the endpoint subscribes to."""

    cursor: EventCursor
    events: Sequence[Event]
    read: int
    is_full: bool


class PendingEvent(Struct, gc=False):
    """An event to send."""

    event: Event
    body: bytes
    # None for a retry.
    cursor: EventCursor | None
    attempts: int = 0
    first_at: datetime | None = None


class ReadEvents(Struct, frozen=True):
    """The events that a read found."""

    pending: Sequence[PendingEvent]
    # Whether a cursor moved, also over events that are not sent; that is to be written.
    has_moved: bool
    # Whether there are more events to read now.
    has_more: bool


class EventReader:
    """Reads one endpoint's events, none of them twice, and knows how far each cursor is."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.live = EventCursor(endpoint.position)
        self._endpoint = endpoint
        self._replays: dict[int, EventCursor] = {}
        # Retries that were read and whose results are not written yet.
        self._retries_in_hand: set[EventId] = set()

    async def read(
        self, connection: Connection, now: datetime, *, is_probing: bool, only_pages: bool = False
    ) -> ReadEvents:
        """Read the next events; nothing is noted unless all of them could be read.

        With `only_pages` no due retries and no new replays are looked for.
        """
        due: Sequence[PendingEvent] = ()
        if not only_pages:
            due = await self._read_retries(connection, now, is_probing=is_probing)
            for replay in await retries.list_replays(connection, self._endpoint.id, REPLAYS_MAX):
                self._replays.setdefault(replay.id, EventCursor(replay.position, replay))
        cursors = (self.live, *self._replays.values())
        pages = [await cursor.read_page(connection, self._endpoint) for cursor in cursors]
        fresh = [PendingEvent(event, b"", page.cursor) for page in pages for event in page.events]
        pending = await _write_bodies(connection, [*due, *fresh])
        self._retries_in_hand.update(retry.event.id for retry in due)
        has_moved = False
        for page in pages:
            has_moved = page.cursor.accept(page) or has_moved
        for one in fresh:
            if not one.body and one.cursor is not None:
                one.cursor.done(one.event.sequence)
        return ReadEvents(pending, has_moved, has_more=any(page.is_full for page in pages))

    def replay_positions(self) -> Mapping[int, int | None]:
        """Return how far each replay is; None if it is done."""
        return {
            number: None if cursor.is_done else cursor.position for number, cursor in self._replays.items()
        }

    def on_recorded(self, retried: Collection[EventId], replays: Mapping[int, int | None]) -> None:
        """Note that these results are on disk: the retries may be read again when they are due."""
        self._retries_in_hand.difference_update(retried)
        for number, position in replays.items():
            if position is None:
                # Not before: while its row exists it would be read as another replay.
                self._replays.pop(number, None)

    async def _read_retries(
        self, connection: Connection, now: datetime, *, is_probing: bool
    ) -> Sequence[PendingEvent]:
        found = await retries.list_due_retries(connection, self._endpoint.id, now, PAGE)
        if not found and is_probing:
            # The oldest event, due or not.
            found = await retries.list_due_retries(connection, self._endpoint.id, _LATEST, 1)
        due = {retry.event_id: retry for retry in found if retry.event_id not in self._retries_in_hand}
        if not due:
            return ()
        sequences = [retry.sequence for retry in due.values()]
        read = await events.list_by_sequence(connection, self._endpoint.account_id, sequences)
        pending = [
            PendingEvent(event, b"", None, retry.attempts, retry.first_at)
            for event in read
            if (retry := due.pop(event.id, None)) is not None
        ]
        if due:
            # Their events were deleted with their week.
            gone = [(retry.endpoint_id, retry.sequence, retry.event_id) for retry in due.values()]
            await retries.delete_retries(connection, gone)
        return pending


async def _write_bodies(connection: Connection, pending: Sequence[PendingEvent]) -> Sequence[PendingEvent]:
    message_ids = {one.event.message_id for one in pending if one.event.message_id is not None}
    batch_ids = {one.event.batch_id for one in pending if one.event.batch_id is not None}
    messages = await batches.list_named_messages(connection, list(message_ids))
    their_batches = await batches.list_named(connection, list(batch_ids))
    reply_ids = {one.event.id: reply_id for one in pending if (reply_id := reply_of(one.event)) is not None}
    their_replies = await replies.list_named(connection, list(reply_ids.values()))
    for one in pending:
        event = one.event
        message = None if event.message_id is None else messages.get(event.message_id)
        batch = None if event.batch_id is None else their_batches.get(event.batch_id)
        reply = their_replies.get(reply_ids[event.id]) if event.id in reply_ids else None
        if (
            (event.message_id and message is None)
            or (event.batch_id and batch is None)
            or (event.id in reply_ids and reply is None)
        ):
            _log.error("event without its message or batch", event=write_id(EVENT, event.id))
        else:
            one.body = write_payload(event, message, batch, reply)
    return [one for one in pending if one.body]
