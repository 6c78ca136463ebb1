"""The result of a file: one page, one download; and resends, of files and batches, to those that failed."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

from msgspec import structs
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.errors import (
    IdempotencyConflict,
    IdempotencyInProgress,
    InsufficientBalance,
    ServiceUnavailable,
    ValidationFailed,
)
from tumira.core.ids import MESSAGE, UPLOAD, BatchId, MessageId, UploadId, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.approving import ask_for_message
from tumira.dashboard.downloads import Row, download_list
from tumira.dashboard.drafts import review_draft
from tumira.dashboard.pages.batches import (
    BATCHES,
    MESSAGE_COLUMNS,
    MESSAGES_PAGE,
    batch_path,
    find_batch,
    message_row,
    shares,
)
from tumira.dashboard.refusal_words import say_refusal
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Form, TextField, read_path_id, read_query_id
from tumira.html.redirect import redirect
from tumira.postgres.connection import Connection
from tumira.pricing.store import get_tariff
from tumira.sending import batch_messages, batches, compose, resend
from tumira.sending.batches import Batch, BatchDetails
from tumira.sending.compose import Draft, Review
from tumira.sending.lifecycle import FAILED, FAILURE_REASONS, MESSAGE_STATUSES, TEXT_KEPT, is_final
from tumira.uploads import chunks as upload_chunks
from tumira.uploads import store as uploads
from tumira.uploads.chunks import CHUNK_MAX, ChunkSummary
from tumira.uploads.csv_file import find_number_column
from tumira.uploads.resend import prepare_resend, resend_id
from tumira.uploads.rows import RowCode, RowFault
from tumira.uploads.store import CHECKED, SENDING, SENT, Upload

UPLOADS: Final = "/dashboard/upload"
REFUSED_PAGE: Final = 100
# Of a row of the download that did not become a message.
NOT_SENT: Final = "not_sent"
WAITING: Final = "waiting"

NO_FILE: Final = mark("This file does not exist. Files that are not sent are deleted after 7 days")
_CHANGED: Final = mark(
    "The price has changed since this page was shown. Nothing was sent. Check it and confirm."
)
_UNANSWERED: Final = mark(
    "We do not know yet whether this was sent. Press Resend again: it is sent and charged only once."
)
_COLUMNS: Final = ("row", *MESSAGE_COLUMNS)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, UPLOADS + "/{id}/messages.csv", download_rows),
        private(services, UPLOADS + "/{id}/resend", resend_file, "POST"),
        private(services, BATCHES + "/{id}/resend", ask_resend),
        private(services, BATCHES + "/{id}/resend", confirm_resend, "POST"),
    ]


def upload_path(upload_id: UploadId) -> str:
    return f"{UPLOADS}/{write_id(UPLOAD, upload_id)}"


async def show_sent(session: CustomerSession, upload: Upload) -> Response:
    """Show the result of a file, and its messages: those that failed first."""
    result = await _result(session, upload)
    chosen = session.request.query_params.get("status") or None
    if chosen is not None and chosen not in MESSAGE_STATUSES:
        raise HTTPException(404, _("This status does not exist"))
    after = read_query_id(session.request, MESSAGE, "after")
    async with session.database.connection() as connection:
        messages, is_more = await batch_messages.list_messages_of(
            connection,
            session.account_id,
            result["batch_ids"],
            MESSAGES_PAGE,
            statuses=FAILED if chosen is None else [chosen],
            after=None if after is None else MessageId(after),
        )
        tariff = await get_tariff(connection)
        refused = await list_refused(connection, upload)
    return session.page(
        "upload_sent.html.jinja",
        **result,
        messages=messages,
        chosen=chosen,
        is_first=after is None,
        is_more=is_more,
        country_names=tariff.names,
        reasons=FAILURE_REASONS,
        refused=refused,
    )


async def show_progress(session: CustomerSession, upload: Upload) -> Response:
    return session.services.templates.page(
        "upload_progress.html.jinja", may=session.may, **await _result(session, upload)
    )


async def _result(session: CustomerSession, upload: Upload) -> dict[str, Any]:
    async with session.database.connection() as connection:
        chunks, named = await _list_chunks(connection, upload)
        bad = await uploads.count_faults(connection, upload.id)
        sent = list(named)
        counted = await batch_messages.count_each(connection, session.account_id, sent)
        again = await uploads.find(connection, session.account_id, resend_id(upload.id))
    counts = _add_up(counted)
    pending = sum(count for status, count in counts.items() if not is_final(status))
    failed = sum(counts[status] for status in FAILED)
    left = [chunk for chunk in chunks if chunk.batch_id is None]
    is_open = upload.state == SENDING or bool(pending)
    return {
        "upload": upload,
        "here_path": upload_path(upload.id),
        "chunks": chunks,
        "batch_ids": sent,
        "is_open": is_open,
        "handed": sum(counts.values()),
        "ended": sum(counts.values()) - pending,
        "counts": counts,
        "shares": shares(counts),
        "statuses": MESSAGE_STATUSES,
        "failed": failed,
        "paid": sum((batch.total_cost for batch in named.values()), Decimal(0)),
        "refunded": sum((batch.refunded for batch in named.values()), Decimal(0)),
        "left_cost": sum((chunk.cost for chunk in left), Decimal(0)),
        "bad": sum(bad.values()),
        "can_resend": upload.state == SENT and upload.erased_at is None and not is_open and failed > 0,
        "text_days": TEXT_KEPT.days,
        "resent_path": None if again is None or again.state == CHECKED else upload_path(again.id),
    }


async def _list_chunks(
    connection: Connection, upload: Upload
) -> tuple[Sequence[ChunkSummary], Mapping[BatchId, Batch]]:
    """Return the chunks of a file and the batches of those that were sent, in order.

    Chunks whose batches are no longer kept are left out.
    """
    chunks = await upload_chunks.list_chunks(connection, upload.id)
    sent = [chunk.batch_id for chunk in chunks if chunk.batch_id is not None]
    named = await batches.list_named(connection, sent, upload.account_id)
    left = [chunk for chunk in chunks if chunk.batch_id is None or chunk.batch_id in named]
    return left, {batch_id: named[batch_id] for batch_id in sent if batch_id in named}


def _add_up(counted: Mapping[BatchId, Mapping[str, int]]) -> Mapping[str, int]:
    return {status: sum(one[status] for one in counted.values()) for status in MESSAGE_STATUSES}


async def list_refused(connection: Connection, upload: Upload) -> Sequence[RowFault]:
    """Return rows that were refused after the check; reading them takes nothing where there are none."""
    if not upload.refused:
        return []
    codes = [RowCode.NO_LONGER_ALLOWED.value, RowCode.RECIPIENT_LIMIT.value]
    return await uploads.list_faults(connection, upload.id, REFUSED_PAGE, codes=codes)


async def resend_file(session: CustomerSession) -> Response:
    """Prepare a file of the failed rows, and ask for its confirmation."""
    upload = await _find(session)
    prepared = await prepare_resend(session.database, session.account_id, upload.id)
    return redirect(upload_path(upload.id) if prepared is None else f"{upload_path(prepared)}/send")


async def _find(session: CustomerSession) -> Upload:
    upload_id = UploadId(read_path_id(session.request, UPLOAD, _(NO_FILE)))
    async with session.database.connection() as connection:
        upload = await uploads.find(connection, session.account_id, upload_id)
    if upload is None:
        raise HTTPException(404, _(NO_FILE))
    return upload


class _Place(NamedTuple):
    """How far a download is: a chunk, a place in it and the message before; or behind all chunks, a line."""

    chunk: int = 0
    place: int = 0
    message: MessageId | None = None
    line: int = 0


async def download_rows(session: CustomerSession) -> Response:
    """Send every row of a file: those with a message in their order, then those that cannot be sent."""
    upload = await _find(session)
    async with session.database.connection() as connection:
        chunks, _named = await _list_chunks(connection, upload)

    async def read(at: _Place | None, count_max: int) -> tuple[Sequence[Row], _Place | None]:
        at = at or _Place()
        async with session.database.connection() as connection:
            if at.chunk < len(chunks):
                return await _good_rows(connection, upload, chunks[at.chunk], at, count_max)
            faults = await uploads.list_faults(connection, upload.id, count_max, after=at.line)
        place = find_number_column(upload.columns)
        rows = [
            _unsent_row(
                fault.line, fault.cells[place] if place < len(fault.cells) else "", NOT_SENT, fault.code
            )
            for fault in faults
        ]
        return rows, at._replace(line=faults[-1].line) if len(faults) == count_max else None

    return download_list(session, f"{write_id(UPLOAD, upload.id)}.csv", _COLUMNS, read)


async def _good_rows(
    connection: Connection, upload: Upload, chunk: ChunkSummary, at: _Place, count_max: int
) -> tuple[Sequence[Row], _Place]:
    """Return some rows of a chunk with the messages that they became, and the place behind them."""
    good = await upload_chunks.list_good(
        connection, upload.id, chunk.number * CHUNK_MAX + at.place, count_max
    )
    rows: Sequence[Row]
    after = at.message
    if chunk.batch_id is None:
        rows = [_unsent_row(one.line, one.recipient, WAITING) for one in good]
    else:
        messages, _is_more = await batches.list_messages(
            connection, upload.account_id, chunk.batch_id, count_max, after=after
        )
        rows = [(one.line, *message_row(message)) for one, message in zip(good, messages, strict=True)]
        after = messages[-1].id
    place = at.place + len(good)
    if place < chunk.count:
        return rows, at._replace(place=place, message=after)
    return rows, _Place(at.chunk + 1)


def _unsent_row(line: int, number: str, status: str, reason: str | None = None) -> Row:
    values = {"row": line, "number": number, "status": status, "failure_reason": reason}
    return [values.get(column) for column in _COLUMNS]


class ResendForm(Form):
    terms = TextField()


async def ask_resend(session: CustomerSession) -> Response:
    """Show what it costs to send a batch again to the recipients whose messages failed."""
    batch, draft = await _find_resend(session)
    if draft is None:
        return redirect(batch_path(batch.id))
    return _resend_page(session, batch, draft, await review_draft(session, draft))


async def confirm_resend(session: CustomerSession) -> Response:
    """Send it, once, if it costs what was shown."""
    terms = (await ResendForm.read(session.request)).terms.data
    batch, draft = await _find_resend(session)
    if draft is None:
        return redirect(batch_path(batch.id))
    review = await compose.examine(session.database, session.account_id, draft)
    if review.refusals or review.quote is None:
        return _resend_page(session, batch, draft, review)
    if terms != compose.write_terms(review.quote):
        return _resend_page(session, batch, draft, review, 409, _(_CHANGED))
    token = resend.resend_token(batch.id)
    waiting = await ask_for_message(session, token, draft, review)
    if waiting is not None:
        return waiting
    sent = await compose.send(
        session.services.batcher, session.account_id, token, draft, review, session.actor
    )
    match sent:
        case str():
            return redirect(f"{BATCHES}/{sent}")
        case IdempotencyConflict():
            # It was sent before, when other messages had failed.
            return redirect(batch_path(batch.id))
        case ValidationFailed():
            return _resend_page(session, batch, draft, review, 409, _(_CHANGED))
        case ServiceUnavailable() | IdempotencyInProgress():
            return _resend_page(session, batch, draft, review, 503, _(_UNANSWERED))
    return _resend_page(session, batch, draft, structs.replace(review, refusals=[sent]))


async def _find_resend(session: CustomerSession) -> tuple[BatchDetails, Draft | None]:
    """Return a batch and what can be sent again of it; nothing if that was done before."""
    async with session.database.connection() as connection:
        batch = await find_batch(session, connection)
        if await resend.find_resent(connection, session.account_id, batch.id) is not None:
            return batch, None
        return batch, await resend.find_draft(connection, session.account_id, batch)


def _resend_page(
    session: CustomerSession,
    batch: BatchDetails,
    draft: Draft,
    review: Review,
    status: int = 200,
    notice: str | None = None,
) -> Response:
    short = next((one for one in review.refusals if isinstance(one, InsufficientBalance)), None)
    return session.page(
        "resend.html.jinja",
        review.refusals[0].status if review.refusals else status,
        batch_path=batch_path(batch.id),
        draft=draft,
        quote=review.quote,
        terms=None if review.quote is None else compose.write_terms(review.quote),
        country_names=review.tariff.names,
        problems=[say_refusal(one) for one in review.refusals],
        shortfall=None if short is None else Decimal(short.details[0]["shortfall"]),
        notice=notice,
    )
