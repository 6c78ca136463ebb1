"""How do the events of one endpoint get there? A few at a time, each until it arrives or is put off."""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog
from msgspec import Struct

from tumira import events
from tumira.core import metrics
from tumira.core import tracing as traces
from tumira.core.backoff import DELIVERY_TRIES_MAX, delivery_wait_s
from tumira.core.database_errors import is_unavailable
from tumira.core.ids import EVENT, EventId, new_id, write_id
from tumira.core.loops import say_unavailable
from tumira.core.trace_exporter import Tracer
from tumira.events import WEBHOOK_TEST, Event, is_subscribed
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.sending import batches
from tumira.webhooks import attempts as deliveries
from tumira.webhooks import health as endpoint_health
from tumira.webhooks.attempts import Attempt, Progress, Replay
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.http_client import Answer, CallFailedError
from tumira.webhooks.payload import write_payload
from tumira.webhooks.record import Advance, Delivery
from tumira.webhooks.signature import sign

PAGE: Final = 200
# With so few left the next page is read.
FEW: Final = 64
UNRECORDED_MAX: Final = 500
REPLAYS_MAX: Final = 20
# A connection is kept this long when there is nothing to send.
IDLE_S: Final = 20.0
LOOK_S: Final = 1.0
PAUSE_S: Final = 0.5
ANSWER_MAX: Final = 1024
GONE: Final = 410

_log: Final = structlog.get_logger()

Clock = Callable[[], datetime]


class Client(Protocol):
    """Who makes the calls."""

    async def post(self, headers: Sequence[tuple[str, str]], body: bytes) -> Answer:
        """Make one call, or raise CallFailedError."""

    def close(self) -> None:
        """Let go of its connections."""


class Stream:
    """A stretch of an account's events that is being sent: what is new, or what is wanted once more."""

    def __init__(self, position: int, replay: Replay | None = None) -> None:
        self.replay = replay
        # Up to here it was read, which is more than what is done with.
        self.read = position
        self._under_way: dict[int, None] = {}

    @property
    def position(self) -> int:
        """Return up to which number everything is done with."""
        # In the order in which they were read, so the first is the lowest.
        first = next(iter(self._under_way), None)
        return self.read if first is None else first - 1

    @property
    def is_done(self) -> bool:
        """Tell whether this stretch has an end, and it was reached."""
        return self.replay is not None and self.position >= self.replay.until

    async def read_page(self, connection: Connection, endpoint: Endpoint) -> "_Page":
        """Return the next events, of which nothing is noted before `take`."""
        until = None if self.replay is None else self.replay.until
        page = await events.list_after(connection, endpoint.account_id, self.read, until, PAGE)
        wanted = [one for one in page if is_subscribed(endpoint.types, one.type) and self._is_asked_for(one)]
        read = page[-1].sequence if page else self.read
        if until is not None and len(page) < PAGE:
            read = until
        return _Page(self, wanted, read, is_full=len(page) == PAGE)

    def take(self, page: "_Page") -> bool:
        """Have the events of a page under way, and tell whether this was any progress."""
        before, self.read = self.read, page.read
        self._under_way.update(dict.fromkeys(one.sequence for one in page.events))
        return self.read > before

    def done(self, sequence: int) -> None:
        """Note that an event arrived, was put off or given up."""
        self._under_way.pop(sequence, None)

    def _is_asked_for(self, event: Event) -> bool:
        replay = self.replay
        if replay is None or replay.from_at is None or replay.until_at is None:
            return True
        return replay.from_at <= event.at <= replay.until_at


class _Page(Struct, frozen=True):
    """Events of a stream that the endpoint takes, and how far it is read with them."""

    stream: Stream
    events: Sequence[Event]
    read: int
    is_full: bool


class _Letter(Struct, gc=False):
    """An event on its way."""

    event: Event
    body: bytes
    # None for one that is tried again.
    stream: Stream | None
    tries: int = 0
    first_at: datetime | None = None


class Courier:
    """Delivers to one endpoint, which is ours as long as it runs."""

    def __init__(
        self,
        endpoint: Endpoint,
        client: Client,
        database: Database,
        clock: Clock,
        report: Callable[[], None],
        tracer: Tracer | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._client = client
        self._database = database
        self._clock = clock
        self._report = report
        self._tracer = tracer
        self._loop = asyncio.get_running_loop()
        self._live = Stream(endpoint.position)
        self._replays: dict[int, Stream] = {}
        self._backlog: deque[_Letter] = deque()
        # Events that are due again and that we have, until that is written down.
        self._in_hand: set[EventId] = set()
        self._under_way: set[asyncio.Task[None]] = set()
        self._health = endpoint.health
        self._places = 1 if self._health.is_on_trial else endpoint_health.PLACES_FIRST
        self._disabled_for: str | None = None
        self._recovered = False
        self._made: list[Delivery] = []
        # How many tries are not on disk yet.
        self._unrecorded = 0
        self._all_recorded = asyncio.Event()
        self._all_recorded.set()
        # Whether there is progress that nobody was told of.
        self._is_news = False
        self._look = True
        self._closing = False
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Look for what is new, due again or wanted once more."""
        self._look = True
        self._woken.set()

    def close(self) -> None:
        """Begin nothing new; `run` returns when what is under way has ended."""
        self._closing = True
        self._woken.set()

    async def run(self) -> None:
        """Deliver until there is nothing to do for a while, or nothing shall be sent."""
        idle_since = self._loop.time()
        try:
            while not self._is_over:
                await self._try(self._step)
                if self._under_way or self._backlog or self._unrecorded:
                    idle_since = self._loop.time()
                elif self._loop.time() - idle_since > IDLE_S:
                    break
                await self._rest()
            self._backlog.clear()
            while self._under_way:
                await asyncio.wait(self._under_way)
        finally:
            for task in self._under_way:
                task.cancel()
            self._client.close()

    @property
    def _is_over(self) -> bool:
        return self._closing or self._disabled_for is not None or self._health.rests(self._clock())

    async def _try(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Exception as error:  # noqa: BLE001 - nothing is lost: it is read again
            self._look = True
            if is_unavailable(error):
                say_unavailable("events not read", error, endpoint=self.endpoint.url)
            else:
                _log.error("events not read", endpoint=self.endpoint.url, exc_info=error)
            await asyncio.sleep(PAUSE_S)

    async def _rest(self) -> None:
        timer = self._loop.call_later(LOOK_S, self._woken.set)
        await self._woken.wait()
        self._woken.clear()
        timer.cancel()

    async def _step(self) -> None:
        if self._look and len(self._backlog) < FEW and self._unrecorded < UNRECORDED_MAX:
            self._look = False
            async with self._database.connection() as connection:
                await self._read_on(connection)
        self._begin()

    async def _read_on(self, connection: Connection) -> None:
        """Read what is due again, new or wanted once more; nothing is noted unless all of it was read."""
        retries = await self._read_retries(connection)
        for replay in await deliveries.list_replays(connection, self.endpoint.id, REPLAYS_MAX):
            self._replays.setdefault(replay.id, Stream(replay.position, replay))
        streams = (self._live, *self._replays.values())
        pages = [await stream.read_page(connection, self.endpoint) for stream in streams]
        fresh = [_Letter(event, b"", page.stream) for page in pages for event in page.events]
        letters = await self._write_letters(connection, [*retries, *fresh])
        self._in_hand.update(retry.event.id for retry in retries)
        for page in pages:
            # What nobody wants is passed over at once, and that is to be written down too.
            self._is_news = page.stream.take(page) or self._is_news
            self._look = self._look or page.is_full
        for letter in fresh:
            if not letter.body and letter.stream is not None:
                letter.stream.done(letter.event.sequence)
        self._backlog.extend(letters)
        if self._is_news and not self._backlog and not self._under_way:
            self._report()

    async def _read_retries(self, connection: Connection) -> Sequence[_Letter]:
        """Read what is due again; on trial also one that is not, to see whether the endpoint works again."""
        found = await deliveries.list_retries(connection, self.endpoint.id, self._clock(), PAGE)
        if not found and self._health.is_on_trial:
            found = await deliveries.list_oldest_retry(connection, self.endpoint.id)
        due = {retry.event_id: retry for retry in found if retry.event_id not in self._in_hand}
        if not due:
            return ()
        numbers = [retry.sequence for retry in due.values()]
        read = await events.list_by_sequence(connection, self.endpoint.account_id, numbers)
        letters = [
            _Letter(event, b"", None, retry.tries, retry.first_at)
            for event in read
            if (retry := due.pop(event.id, None)) is not None
        ]
        if due:
            # Their events are gone with their week.
            gone = [(retry.endpoint_id, retry.sequence, retry.event_id) for retry in due.values()]
            await deliveries.drop_retries(connection, gone)
        return letters

    async def _write_letters(self, connection: Connection, letters: Sequence[_Letter]) -> Sequence[_Letter]:
        """Write the bodies, and return the letters that have one."""
        message_ids = {one.event.message_id for one in letters if one.event.message_id is not None}
        batch_ids = {one.event.batch_id for one in letters if one.event.batch_id is not None}
        messages = await batches.list_named_messages(connection, sorted(message_ids))
        their_batches = await batches.list_named(connection, sorted(batch_ids))
        for letter in letters:
            event = letter.event
            message = None if event.message_id is None else messages.get(event.message_id)
            batch = None if event.batch_id is None else their_batches.get(event.batch_id)
            if (event.message_id and message is None) or (event.batch_id and batch is None):
                _log.error("event without its message", event=write_id(EVENT, event.id))
            else:
                letter.body = write_payload(event, message, batch)
        return [letter for letter in letters if letter.body]

    def _begin(self) -> None:
        """Send as many as the endpoint takes well."""
        while (
            self._backlog
            and len(self._under_way) < self._places
            and self._unrecorded < UNRECORDED_MAX
            and not self._is_over
        ):
            task = self._loop.create_task(self._deliver(self._backlog.popleft()))
            self._under_way.add(task)
            task.add_done_callback(self._ended)
        if len(self._backlog) < FEW and self._look:
            self._woken.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Not the endpoint's fault, and the event is not done with: it is read again by whoever is next.
            _log.error("event not delivered", endpoint=self.endpoint.url, exc_info=task.exception())
            self._closing = True
        self._begin()
        if not self._under_way:
            self._woken.set()

    async def _deliver(self, letter: _Letter) -> None:
        at = self._clock()
        began = self._loop.time()
        event_id = write_id(EVENT, letter.event.id)
        at_s = int(at.timestamp())
        headers = (
            ("webhook-id", event_id),
            ("webhook-timestamp", str(at_s)),
            ("webhook-signature", sign(self.endpoint.secrets_at(at), event_id, at_s, letter.body)),
        )
        answer: Answer | None = None
        problem: str | None = None
        try:
            answer = await self._client.post(headers, letter.body)
        except CallFailedError as error:
            problem = str(error)
        self._judge(letter, at, int((self._loop.time() - began) * 1000), answer, problem)

    def _judge(
        self, letter: _Letter, at: datetime, duration_ms: int, answer: Answer | None, problem: str | None
    ) -> None:
        """Decide what follows from an answer, or from none."""
        now = self._clock()
        status = None if answer is None else answer.status
        arrived = status is not None and 200 <= status < 300  # noqa: PLR2004 - what HTTP calls success
        next_at: datetime | None = None
        if arrived:
            self._recovered = self._recovered or self._health.is_on_trial
            self._health = endpoint_health.succeeded(self._health, now)
        else:
            text = None if answer is None else answer.retry_after
            retry_after = endpoint_health.read_retry_after(text, now)
            chance = random.random()  # noqa: S311 - spreads, guards nothing
            warnings = self._health.warnings
            self._health = endpoint_health.failed(self._health, now, retry_after, chance)
            if self._health.warnings > warnings:
                _log.warning("endpoint fails", endpoint=self.endpoint.url, since=self._health.failing_since)
            next_at = self._next_try(letter, now, retry_after, chance)
            self._disable_if_hopeless(now, status, problem)
        self._places = endpoint_health.places(self._places, arrived=arrived)
        self._note(letter, at, duration_ms, answer, problem, next_at)
        self._count(letter, at, now, duration_ms, status, arrived=arrived)

    def _next_try(
        self, letter: _Letter, now: datetime, retry_after: timedelta | None, chance: float
    ) -> datetime | None:
        tries = letter.tries + 1
        if letter.event.type == WEBHOOK_TEST:
            return None
        well_since = self._health.succeeded_at
        if tries >= DELIVERY_TRIES_MAX and well_since is not None and (letter.first_at or now) < well_since:
            # Others arrived meanwhile, so it is this event that the endpoint will not take.
            return None
        wait = timedelta(seconds=delivery_wait_s(tries, chance))
        return now + max(wait, retry_after or wait)

    def _disable_if_hopeless(self, now: datetime, status: int | None, problem: str | None) -> None:
        if status == GONE:
            self._disabled_for = "It answered 410 Gone."
        elif self._health.is_hopeless(now):
            days = endpoint_health.DISABLE_AFTER.days
            self._disabled_for = f"Nothing arrived for {days} days; the last try: {problem or status}"
        if self._disabled_for is not None:
            _log.warning("endpoint disabled", endpoint=self.endpoint.url, reason=self._disabled_for)

    def _note(
        self,
        letter: _Letter,
        at: datetime,
        duration_ms: int,
        answer: Answer | None,
        problem: str | None,
        next_at: datetime | None,
    ) -> None:
        event = letter.event
        if letter.stream is not None:
            letter.stream.done(event.sequence)
        attempt = Attempt(
            new_id(int(at.timestamp() * 1000)),
            self.endpoint.id,
            event.id,
            event.sequence,
            event.type,
            letter.tries + 1,
            at,
            duration_ms,
            None if answer is None else answer.status,
            problem,
            "" if answer is None else _plain(answer.start),
            next_at,
        )
        sent_before = letter.stream is not self._live
        self._made.append(Delivery(attempt, letter.first_at or at, sent_before))
        self._unrecorded += 1
        self._all_recorded.clear()
        self._report()

    def _count(
        self,
        letter: _Letter,
        at: datetime,
        now: datetime,
        duration_ms: int,
        status: int | None,
        *,
        arrived: bool,
    ) -> None:
        """Count a try, and note it where its message is traced."""
        event = letter.event
        result = "delivered" if arrived else "failed" if status is None else "refused"
        metrics.WEBHOOKS.labels(result).inc()
        metrics.WEBHOOK_SECONDS.observe(duration_ms / 1000)
        if arrived:
            metrics.WEBHOOK_DELAY_SECONDS.observe(max(0.0, (now - event.at).total_seconds()))
        about = event.message_id or event.batch_id
        if self._tracer is None or about is None or not self._tracer.wants(about):
            return
        start_ms = int(at.timestamp() * 1000)
        self._tracer.add(
            traces.told(
                event.id,
                self.endpoint.id,
                letter.tries + 1,
                event.type,
                about,
                traces.nanoseconds(start_ms),
                traces.nanoseconds(start_ms + duration_ms),
                {} if status is None else {"http.response.status_code": status},
                failed=not arrived,
            )
        )

    # What is written down.

    def advance(self) -> Advance:
        """Return what is to be written down, once."""
        made, self._made = self._made, []
        recovered, self._recovered = self._recovered, False
        self._is_news = False
        progress = Progress(
            self.endpoint.id, self.endpoint.changed_at, self._live.position, self._health, self._disabled_for
        )
        replays = {
            number: None if stream.is_done else stream.position for number, stream in self._replays.items()
        }
        return Advance(progress, made, replays, recovered)

    def recorded(self, advance: Advance) -> None:
        """Go on: this is on disk."""
        self._unrecorded -= len(advance.deliveries)
        self._in_hand.difference_update(one.attempt.event_id for one in advance.deliveries if one.sent_before)
        for number, position in advance.replays.items():
            if position is None:
                # Not before: its row would be taken for another wish.
                self._replays.pop(number, None)
        if advance.recovered:
            self._look = True
        self._begin()
        if not self._unrecorded:
            self._all_recorded.set()
            self._woken.set()

    async def wait_until_recorded(self) -> None:
        """Wait until everything that it did is on disk."""
        await self._all_recorded.wait()


def _plain(start: bytes) -> str:
    """Return the start of an answer as text that PostgreSQL can keep."""
    return start[:ANSWER_MAX].decode(errors="replace").replace("\0", "\ufffd")
