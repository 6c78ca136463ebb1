"""Batches and messages: search, progress, one message's timeline, and downloads."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.days import local_day
from tumira.core.ids import BATCH, MESSAGE, BatchId, MessageId, first_id, read_id, write_id
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.delivery.store import timeline as timelines
from tumira.delivery.store.timeline import Timeline, TimelineEntry
from tumira.html.forms import Choice, PeriodForm, Text, read_path_id
from tumira.html.page import LOCAL, write_machine_time
from tumira.html.tables import download, write_rows
from tumira.pricing.destinations import Tariff
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff
from tumira.sending import search as search_batches
from tumira.sending.batches import Message
from tumira.sending.lifecycle import FAILURE_REASONS, MESSAGE_STATUSES, TEXT_KEPT, is_final
from tumira.sending.search import BatchDetails, BatchFilter, Found, Search

BATCHES: Final = "/dashboard/batches"
MESSAGES: Final = "/dashboard/messages"

PAGE: Final = 50
MESSAGES_PAGE: Final = 100
# Writing this many rows takes a few milliseconds, during which no other request is answered.
PIECE: Final = 250
ROWS_MAX: Final = 100_000
# A search that finds little looks at many batches for each row.
PIECES_MAX: Final = 1_000
# Downloads must not take all connections.
DOWNLOADS_AT_ONCE: Final = 2

# What carriers report before a message has ended.
ON_ITS_WAY: Final = frozenset({"ENROUTE", "ACCEPTD", "UNKNOWN"})

STANDINGS: Final = {
    BatchFilter.ANY: "any",
    BatchFilter.QUEUED: "queued",
    BatchFilter.PROCESSING: "processing",
    BatchFilter.COMPLETED: "completed",
    BatchFilter.REFUNDED: "with refunds",
}

# The width of the bar in its units, and the narrowest share that can still be seen.
_BAR: Final = 1000
_SHARE_MIN: Final = 8

BATCH_COLUMNS: Final = (
    "batch_id",
    "reference",
    "status",
    "created_at_utc",
    "completed_at_utc",
    "recipients",
    "recipients_pending",
    "segments_each",
    "cost_usd",
    "refunded_usd",
)
FOUND_COLUMNS: Final = ("number", "message_id", "message_status")
MESSAGE_COLUMNS: Final = (
    "message_id",
    "number",
    "country",
    "status",
    "segments",
    "cost_usd",
    "refunded_usd",
    "sent_at_utc",
    "delivered_at_utc",
    "refunded_at_utc",
    "failure_reason",
)


def routes(services: Services) -> Sequence[Route]:
    downloads = Downloads(asyncio.Semaphore(DOWNLOADS_AT_ONCE))
    return [
        private(services, BATCHES, show_batches),
        private(services, BATCHES + ".csv", downloads.batches),
        private(services, BATCHES + "/{id}", show_batch),
        private(services, BATCHES + "/{id}/progress", show_progress),
        private(services, BATCHES + "/{id}/messages.csv", downloads.messages),
        private(services, MESSAGES + "/{id}", show_message),
    ]


class SearchForm(PeriodForm):
    number = Text()
    reference = Text()
    status = Choice(
        ["", *BatchFilter], clean=lambda text: "" if text.strip() == BatchFilter.ANY else text.strip()
    )

    def search(self, tariff: Tariff) -> Search | None:
        """Return what to look for; None if something is wrong with the form."""
        number = read_phone(tariff, self.number.data) if self.number.data else None
        if self.number.data and number is None:
            self.faults["number"] = "Write the number with its country code, like +263 77 120 0001."
        if self.faults:
            return None
        first, last = self.from_.data, self.to.data
        return Search(
            number=number,
            reference=self.reference.data or None,
            standing=BatchFilter(self.status.data or BatchFilter.ANY),
            since=search_batches.LOWEST if first is None else _first_id_of(first),
            before=search_batches.HIGHEST if last is None else _first_id_of(last + timedelta(days=1)),
        )


async def show_batches(session: CustomerSession) -> Response:
    asked = SearchForm.parse_query(session.request)
    before = session.request.query_params.get("before")
    async with session.database.connection() as connection:
        search = asked.search(await get_tariff(connection))
        results = None
        if search is not None:
            if before is not None:
                search = replace(search, before=min(search.before, _read(BATCH, before, "page")))
            results = await search_batches.search(connection, session.account_id, search, PAGE)
    older = None if results is None or results.older is None else write_id(BATCH, results.older)
    return session.page(
        "batches.html.jinja",
        422 if asked.faults else 200,
        asked=asked,
        number=None if search is None else search.number,
        results=results,
        is_first=before is None,
        newest=asked.path(BATCHES),
        older=older and asked.path(BATCHES, before=older),
        download=asked.path(BATCHES + ".csv"),
        rows_max=ROWS_MAX,
        statuses=[("" if one is BatchFilter.ANY else one.value, words) for one, words in STANDINGS.items()],
        batch_name=_batch_name,
        message_name=_message_name,
    )


def _first_id_of(day: date) -> UUID:
    midnight = datetime(day.year, day.month, day.day, tzinfo=LOCAL)
    return first_id(int(midnight.timestamp() * 1000))


def _read(prefix: str, text: str, what: str) -> UUID:
    identifier = read_id(prefix, text)
    if identifier is None:
        raise HTTPException(404, f"There is no such {what}")
    return identifier


def _batch_name(batch_id: BatchId) -> str:
    return write_id(BATCH, batch_id)


def _message_name(message_id: MessageId) -> str:
    return write_id(MESSAGE, message_id)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the bar, in its units."""

    status: str
    start: int
    width: int


def shares(counts: Mapping[str, int]) -> Sequence[Share]:
    """Divide the bar among the statuses in which there are messages."""
    present = {status: count for status, count in counts.items() if count}
    total = sum(present.values())
    if not total:
        return []
    widths = {status: max(_SHARE_MIN, _BAR * count // total) for status, count in present.items()}
    # What rounding left over, and what small shares were given, is the largest one's.
    largest = max(widths, key=widths.__getitem__)
    widths[largest] += _BAR - sum(widths.values())
    divided: list[Share] = []
    start = 0
    for status, width in widths.items():
        divided.append(Share(status, start, width))
        start += width
    return divided


async def _progress(session: CustomerSession) -> dict[str, Any]:
    batch_id = BatchId(read_path_id(session.request, BATCH, "There is no such batch"))
    account_id = session.account_id
    async with session.database.connection() as connection:
        batch = await search_batches.find(connection, account_id, batch_id)
        if batch is None:
            raise HTTPException(404, "There is no such batch, or it is no longer kept")
        counts = await search_batches.count_messages(connection, account_id, batch_id)
    # The messages are read after the batch and may have gone on since; all figures are counted from them.
    pending = sum(count for status, count in counts.items() if not is_final(status))
    return {
        "batch": batch,
        "batch_id": write_id(BATCH, batch_id),
        "counts": counts,
        "shares": shares(counts),
        "ended": batch.recipients - pending,
        "statuses": MESSAGE_STATUSES,
    }


async def show_progress(session: CustomerSession) -> Response:
    return session.services.templates.page("batch_progress.html.jinja", **await _progress(session))


async def show_batch(session: CustomerSession) -> Response:
    progress = await _progress(session)
    batch: BatchDetails = progress["batch"]
    query = session.request.query_params
    status = query.get("status") or None
    if status is not None and status not in MESSAGE_STATUSES:
        raise HTTPException(404, "There is no such status")
    after = query.get("after")
    async with session.database.connection() as connection:
        messages, is_more = await search_batches.list_messages(
            connection,
            session.account_id,
            batch.id,
            MESSAGES_PAGE,
            status=status,
            after=None if after is None else MessageId(_read(MESSAGE, after, "page")),
        )
        names = _country_names(await get_tariff(connection))
    here = f"{BATCHES}/{progress['batch_id']}"
    filtered = {"status": status} if status else {}
    following = {**filtered, "after": _message_name(messages[-1].id)} if is_more else None
    return session.page(
        "batch.html.jinja",
        **progress,
        messages=messages,
        country_names=names,
        chosen=status,
        is_first=after is None,
        first=f"{here}?{urlencode(filtered)}#messages" if filtered else f"{here}#messages",
        following=following and f"{here}?{urlencode(following)}#messages",
        reasons=FAILURE_REASONS,
        message_name=_message_name,
        text_days=TEXT_KEPT.days,
    )


def _country_names(tariff: Tariff) -> Mapping[str, str]:
    return {destination.country: destination.name for destination in tariff.destinations}


async def show_message(session: CustomerSession) -> Response:
    message_id = MessageId(read_path_id(session.request, MESSAGE, "There is no such message"))
    async with session.database.connection() as connection:
        message = await timelines.read_for(connection, session.account_id, message_id)
        names = _country_names(await get_tariff(connection))
    if message is None:
        raise HTTPException(404, "There is no such message, or it is no longer kept")
    return session.page(
        "message.html.jinja",
        message=message,
        message_id=write_id(MESSAGE, message_id),
        batch_id=write_id(BATCH, message.batch_id),
        country=names.get(message.country, message.country),
        meaning=MESSAGE_STATUSES[message.status].meaning,
        reasons=FAILURE_REASONS,
        meanings=MESSAGE_STATUSES,
        on_its_way=ON_ITS_WAY,
        is_refunded=any(entry.event == "refunded" for entry in message.entries),
        told=told(message),
    )


def told(message: Timeline) -> Sequence[TimelineEntry]:
    """Return the entries of a timeline that mean something to a customer."""
    kept: list[TimelineEntry] = []
    for entry in message.entries:
        is_step = entry.event in {"submitted", "answered"}
        is_repeated = entry.event == "claimed" and bool(kept) and kept[-1].event == "claimed"
        # Where there is one part, its report and the message's end are the same news.
        is_end = (
            entry.event == "receipt"
            and message.segments == 1
            and is_final(message.status)
            and entry.state not in ON_ITS_WAY
        )
        if not (is_step or is_repeated or is_end):
            kept.append(entry)
    return kept


@dataclass(frozen=True, slots=True)
class Downloads:
    """CSV downloads; a few at a time read from the database."""

    turns: asyncio.Semaphore

    async def batches(self, session: CustomerSession) -> Response:
        async with session.database.connection() as connection:
            search = SearchForm.parse_query(session.request).search(await get_tariff(connection))
        if search is None:
            raise HTTPException(422, "This search cannot be read; go back and change it")
        name = f"batches-{local_day(datetime.now(UTC))}.csv"
        return download(session.request, name, self._found(session, search))

    async def _found(self, session: CustomerSession, search: Search) -> AsyncIterator[bytes]:
        own = () if search.number is None else FOUND_COLUMNS
        yield write_rows([(*BATCH_COLUMNS, *own)])
        left = ROWS_MAX
        for _ in range(PIECES_MAX):
            # The connection is released before the piece is sent, so a slow reader blocks nobody.
            async with self.turns, session.database.connection() as connection:
                results = await search_batches.search(
                    connection, session.account_id, search, min(PIECE, left)
                )
            left -= len(results.batches)
            yield write_rows([_batch_row(found, search.number) for found in results.batches])
            if results.older is None or not left:
                return
            search = replace(search, before=results.older)

    async def messages(self, session: CustomerSession) -> Response:
        batch_id = BatchId(read_path_id(session.request, BATCH, "There is no such batch"))
        async with session.database.connection() as connection:
            batch = await search_batches.find(connection, session.account_id, batch_id)
        if batch is None:
            raise HTTPException(404, "There is no such batch, or it is no longer kept")
        return download(
            session.request, f"{write_id(BATCH, batch_id)}.csv", self._messages(session, batch_id)
        )

    async def _messages(self, session: CustomerSession, batch_id: BatchId) -> AsyncIterator[bytes]:
        yield write_rows([MESSAGE_COLUMNS])
        after = None
        for _ in range(PIECES_MAX):
            async with self.turns, session.database.connection() as connection:
                messages, is_more = await search_batches.list_messages(
                    connection, session.account_id, batch_id, PIECE, after=after
                )
            yield write_rows([_message_row(message) for message in messages])
            if not is_more:
                return
            after = messages[-1].id


def _batch_row(found: Found, number: str | None) -> Sequence[object]:
    own: Sequence[object] = ()
    if number is not None and found.message_id is not None:
        own = (number, write_id(MESSAGE, found.message_id), found.message_status)
    return (
        write_id(BATCH, found.id),
        found.reference,
        found.status,
        _time(found.created_at),
        _time(found.completed_at),
        found.recipients,
        found.pending,
        found.segments,
        money.write(found.total_cost),
        money.write(found.refunded),
        *own,
    )


def _message_row(message: Message) -> Sequence[object]:
    return (
        write_id(MESSAGE, message.id),
        message.recipient,
        message.country,
        message.status,
        message.segments,
        money.write(message.cost),
        money.write(message.cost) if message.refunded_at is not None else None,
        _time(message.sent_at),
        _time(message.delivered_at),
        _time(message.refunded_at),
        message.failure_reason,
    )


def _time(at: datetime | None) -> str | None:
    return None if at is None else write_machine_time(at)
