"""Batches and messages: search, progress, one message's history, and downloads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import accumulate
from typing import Any, Final
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.days import local_day, local_midnight
from tumira.core.ids import BATCH, MESSAGE, BatchId, MessageId, first_id, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.downloads import ROWS_MAX, Row, download_list
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.delivery.store import timeline as timelines
from tumira.delivery.store.timeline import Timeline, TimelineEntry
from tumira.html.forms import Choice, PeriodForm, TextField, read_path_id, read_query_id
from tumira.html.page import write_machine_time
from tumira.postgres.connection import Connection
from tumira.pricing.destinations import Tariff
from tumira.pricing.phone_numbers import country_of, read_phone
from tumira.pricing.store import get_tariff
from tumira.sending import batches, resend
from tumira.sending import search as search_batches
from tumira.sending.batches import BatchDetails, Message
from tumira.sending.lifecycle import FAILED, FAILURE_REASONS, MESSAGE_STATUSES, TEXT_KEPT, is_final
from tumira.sending.search import HIGHEST, LOWEST, BatchFilter, FoundBatch, Search
from tumira.uploads.entries import list_entries

BATCHES: Final = "/dashboard/batches"
MESSAGES: Final = "/dashboard/messages"

PAGE: Final = 25
MESSAGES_PAGE: Final = 50

# What carriers report before a message has ended.
ON_ITS_WAY: Final = frozenset({"ENROUTE", "ACCEPTD", "UNKNOWN"})

STATUSES: Final = (
    ("", mark("any")),
    (BatchFilter.QUEUED, mark("queued")),
    (BatchFilter.PROCESSING, mark("processing")),
    (BatchFilter.COMPLETED, mark("completed")),
    (BatchFilter.REFUNDED, mark("with refunds")),
)

_NO_BATCH: Final = mark("This batch does not exist or is no longer kept")
_NO_MESSAGE: Final = mark("This message does not exist or is no longer kept")

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
    return [
        private(services, BATCHES, show_batches),
        private(services, BATCHES + ".csv", download_batches),
        private(services, BATCHES + "/{id}", show_batch),
        private(services, BATCHES + "/{id}/progress", show_progress),
        private(services, BATCHES + "/{id}/messages.csv", download_messages),
        private(services, MESSAGES + "/{id}", show_message),
    ]


class BatchSearchForm(PeriodForm):
    number = TextField()
    reference = TextField()
    status = Choice(
        ["", *BatchFilter], clean=lambda text: "" if text.strip() == BatchFilter.ANY else text.strip()
    )

    def search(self, tariff: Tariff, phone: str) -> Search | None:
        """Return what to look for; None if something is wrong with the form.

        Local numbers are completed for the country of the account's own number.
        """
        home = country_of(tariff, phone)
        number = read_phone(tariff, self.number.data, home) if self.number.data else None
        if self.number.data and number is None:
            self.faults["number"] = _("Enter a full number, for example 0771200001 or +263 77 120 0001.")
        if self.faults:
            return None
        first, last = self.from_.data, self.to.data
        return Search(
            number=number,
            reference=self.reference.data or None,
            standing=BatchFilter(self.status.data or BatchFilter.ANY),
            since=LOWEST if first is None else _first_id_of(first),
            before=HIGHEST if last is None else _first_id_of(last + timedelta(days=1)),
        )


async def show_batches(session: CustomerSession) -> Response:
    asked = BatchSearchForm.parse_query(session.request)
    before = read_query_id(session.request, BATCH, "before")
    found = None
    async with session.database.connection() as connection:
        search = asked.search(await get_tariff(connection), session.customer.phone)
        if search is not None:
            search = replace(search, before=min(search.before, before or HIGHEST))
            found = await list_entries(
                connection, session.account_id, search, PAGE, is_filtered=not asked.is_plain
            )
    older = None if found is None or found.older is None else write_id(BATCH, found.older)
    return session.page(
        "batches.html.jinja",
        422 if asked.faults else 200,
        asked=asked,
        number=None if search is None else search.number,
        found=found,
        is_open=found is not None and any(entry.is_open for entry in found.entries),
        is_first=before is None,
        here_path=asked.path(BATCHES, **({} if before is None else {"before": write_id(BATCH, before)})),
        pages=asked.pages(BATCHES, older),
        rows_max=ROWS_MAX,
        statuses=[(value, _(name)) for value, name in STATUSES],
    )


def _first_id_of(day: date) -> UUID:
    return first_id(int(local_midnight(day).timestamp() * 1000))


def shares(counts: Mapping[str, int]) -> Sequence[tuple[str, int, int]]:
    """Divide the bar among the statuses with messages: where the part of each begins, and how wide it is."""
    present = {status: count for status, count in counts.items() if count}
    total = sum(present.values())
    if not total:
        return []
    widths = {status: max(_SHARE_MIN, _BAR * count // total) for status, count in present.items()}
    # What rounding left over, and what small shares were given, is the largest one's.
    largest = max(widths, key=widths.__getitem__)
    widths[largest] += _BAR - sum(widths.values())
    starts = accumulate(widths.values(), initial=0)
    return [(status, start, width) for (status, width), start in zip(widths.items(), starts, strict=False)]


async def find_batch(session: CustomerSession, connection: Connection) -> BatchDetails:
    batch_id = BatchId(read_path_id(session.request, BATCH, _(_NO_BATCH)))
    batch = await batches.find(connection, session.account_id, batch_id)
    if batch is None:
        raise HTTPException(404, _(_NO_BATCH))
    return batch


def batch_path(batch_id: BatchId) -> str:
    return f"{BATCHES}/{write_id(BATCH, batch_id)}"


async def _progress(session: CustomerSession) -> dict[str, Any]:
    async with session.database.connection() as connection:
        batch = await find_batch(session, connection)
        counts = await batches.count_messages(connection, session.account_id, batch.id)
        failed = sum(counts[status] for status in FAILED)
        resent, can_resend = None, False
        if failed and batch.completed_at is not None:
            resent = await resend.find_resent(connection, session.account_id, batch.id)
            draft = await resend.find_draft(connection, session.account_id, batch)
            can_resend = resent is None and draft is not None
    # The messages are read after the batch and may have gone on since; all figures are counted from them.
    pending = sum(count for status, count in counts.items() if not is_final(status))
    return {
        "batch": batch,
        "here_path": batch_path(batch.id),
        "counts": counts,
        "shares": shares(counts),
        "ended": batch.recipients - pending,
        "statuses": MESSAGE_STATUSES,
        "failed": failed,
        "resent": resent,
        "can_resend": can_resend,
    }


async def show_progress(session: CustomerSession) -> Response:
    return session.services.templates.page(
        "batch_progress.html.jinja", may=session.may, **await _progress(session)
    )


async def show_batch(session: CustomerSession) -> Response:
    progress = await _progress(session)
    batch: BatchDetails = progress["batch"]
    status = session.request.query_params.get("status") or None
    if status is not None and status not in MESSAGE_STATUSES:
        raise HTTPException(404, _("This status does not exist"))
    after = read_query_id(session.request, MESSAGE, "after")
    async with session.database.connection() as connection:
        messages, is_more = await batches.list_messages(
            connection,
            session.account_id,
            batch.id,
            MESSAGES_PAGE,
            status=status,
            after=None if after is None else MessageId(after),
        )
        tariff = await get_tariff(connection)
    return session.page(
        "batch.html.jinja",
        **progress,
        messages=messages,
        country_names=tariff.names,
        chosen=status,
        is_first=after is None,
        is_more=is_more,
        reasons=FAILURE_REASONS,
        text_days=TEXT_KEPT.days,
    )


async def show_message(session: CustomerSession) -> Response:
    message_id = MessageId(read_path_id(session.request, MESSAGE, _(_NO_MESSAGE)))
    async with session.database.connection() as connection:
        message = await timelines.read_for(connection, session.account_id, message_id)
        tariff = await get_tariff(connection)
    if message is None:
        raise HTTPException(404, _(_NO_MESSAGE))
    return session.page(
        "message.html.jinja",
        message=message,
        message_id=write_id(MESSAGE, message_id),
        country=tariff.names.get(message.country, message.country),
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


async def download_batches(session: CustomerSession) -> Response:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        search = BatchSearchForm.parse_query(session.request).search(tariff, session.customer.phone)
    if search is None:
        raise HTTPException(422, _("This search is not valid. Go back and change it"))

    async def read(before: UUID | None, count_max: int) -> tuple[Sequence[Row], UUID | None]:
        further = search if before is None else replace(search, before=before)
        async with session.database.connection() as connection:
            found = await search_batches.search(connection, session.account_id, further, count_max)
        return [_batch_row(batch, search.number) for batch in found.batches], found.older

    columns = BATCH_COLUMNS if search.number is None else (*BATCH_COLUMNS, *FOUND_COLUMNS)
    return download_list(session, f"batches-{local_day(datetime.now(UTC))}.csv", columns, read)


async def download_messages(session: CustomerSession) -> Response:
    async with session.database.connection() as connection:
        batch = await find_batch(session, connection)

    async def read(after: MessageId | None, count_max: int) -> tuple[Sequence[Row], MessageId | None]:
        async with session.database.connection() as connection:
            messages, is_more = await batches.list_messages(
                connection, session.account_id, batch.id, count_max, after=after
            )
        return [message_row(message) for message in messages], messages[-1].id if is_more else None

    return download_list(session, f"{write_id(BATCH, batch.id)}.csv", MESSAGE_COLUMNS, read)


def _batch_row(found: FoundBatch, number: str | None) -> Row:
    own: Row = ()
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


def message_row(message: Message) -> Row:
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
