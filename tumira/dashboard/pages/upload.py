"""Pages that check a file, show which of its rows can be sent, and send these once that is confirmed."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.approvals import store as approvals
from tumira.carriers.manage import list_senders
from tumira.core import money
from tumira.core.errors import FieldError, Refusal, ServiceUnavailable
from tumira.core.ids import UPLOAD, UploadId, write_id
from tumira.core.translation import _, mark, ngettext
from tumira.dashboard.approving import approval_path, ask_for_file
from tumira.dashboard.downloads import Row, download_list
from tumira.dashboard.drafts import examine_pattern, find_content
from tumira.dashboard.pages import results
from tumira.dashboard.pages.results import UPLOADS, upload_path
from tumira.dashboard.refusal_words import say_refusal
from tumira.dashboard.send_later import (
    NOW,
    TOO_LATE,
    Later,
    LaterForm,
    describe_later,
    find_changed,
    path_of,
)
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import TextField, read_path_id
from tumira.html.page import write_count
from tumira.html.redirect import redirect
from tumira.pricing.store import get_tariff
from tumira.schedules import manage
from tumira.schedules import store as schedules
from tumira.schedules.manage import NotWaiting, Scheduled
from tumira.schedules.times import write_start
from tumira.uploads import checks as file_checks
from tumira.uploads import chunks as upload_chunks
from tumira.uploads import kept_files, send
from tumira.uploads import store as uploads
from tumira.uploads.checks import FileCheck
from tumira.uploads.csv_file import NUMBER_NAMES, ROWS_MAX, name_key
from tumira.uploads.kept_files import KeptFile
from tumira.uploads.price import price_rest
from tumira.uploads.rows import RowCode
from tumira.uploads.send import Begun, Changed, NoLongerAllowed
from tumira.uploads.store import CHECKED, SCHEDULED, SENDING, SENT, STOPPED, Upload

# The id of a file that is kept for a correction.
KEPT: Final = "fil_"
# Tells spreadsheets that a file is in UTF-8.
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

PAGE: Final = 100
SAMPLES: Final = 3

STATES: Final = {
    CHECKED: mark("not sent"),
    SCHEDULED: mark("scheduled"),
    SENDING: mark("sending"),
    SENT: mark("sent"),
    STOPPED: mark("stopped"),
}
_CODES: Final = {
    "INVALID_NUMBER": mark("without a valid number"),
    "UNSUPPORTED_DESTINATION": mark("to a country that we do not send to"),
    "DUPLICATE": mark("same as an earlier row"),
    "TOO_MANY_SEGMENTS": mark("text too long"),
    "CONTENT_REJECTED": mark("refused as marketing"),
    "EMPTY_TEXT": mark("without a text"),
    "MISSING_VALUE": mark("without a value that the message needs"),
    "NO_LONGER_ALLOWED": mark("no longer allowed"),
    "RECIPIENT_OPTED_OUT": mark("opted out of your messages"),
    "RECIPIENT_LIMIT": mark("stopped by the passcode guard"),
}
_CHANGED: Final = mark(
    "The prices have changed since this page was shown. Nothing was sent. Check the price, then confirm."
)
_UNREACHABLE: Final = mark(
    "We can no longer send to some of these numbers. Check the file again to see which ones."
)
_INTERRUPTED: Final = mark("The check was interrupted on our side. Check the file again.")
_BUSY: Final = mark(
    "No answer came in time, so the messages may not have been sent. Press Confirm again. Each message is "
    "sent and charged only once, however often you press."
)


class FileConfirmForm(LaterForm):
    agreed = TextField()


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, UPLOADS + "/{id}", show),
        private(services, UPLOADS + "/{id}/send", ask),
        private(services, UPLOADS + "/{id}/send", confirm, "POST"),
        private(services, UPLOADS + "/{id}/schedule", schedule, "POST"),
        private(services, UPLOADS + "/{id}/progress", show_progress),
        private(services, UPLOADS + "/{id}/bad-rows.csv", download),
    ]


async def show(session: CustomerSession) -> Response:
    upload = await _find_any(session)
    if isinstance(upload, FileCheck):
        return session.page("upload_checking.html.jinja", **await _checking(session, upload))
    if upload.state == CHECKED:
        return await _verdict(session, upload)
    if upload.state == SCHEDULED:
        return await _show_schedule(session, upload)
    return await results.show_sent(session, upload)


async def _show_schedule(session: CustomerSession, upload: Upload) -> Response:
    async with session.database.connection() as connection:
        found = await schedules.find_of_file(connection, session.account_id, upload.id)
    assert found is not None, "a scheduled file has a schedule"
    return redirect(path_of(found.id))


async def _verdict(session: CustomerSession, upload: Upload) -> Response:
    after, start = _number(session, "after"), _number(session, "from")
    async with session.database.connection() as connection:
        offer = await price_rest(connection, upload)
        counts = await uploads.count_faults(connection, upload.id)
        faults = await uploads.list_faults(connection, upload.id, PAGE + 1, after=after)
        good = await upload_chunks.list_good(connection, upload.id, start, PAGE)
        next_start = await upload_chunks.find_next_good(connection, upload.id, start + PAGE)
        tariff = await get_tariff(connection)
        kept = await kept_files.find(connection, session.account_id)
    changed = await find_changed(session, upload.replaces)
    held = Decimal(0) if changed is None else changed.held
    shortfall = max(offer.total_cost - session.customer.balance - held, Decimal(0))
    correct_path = _correct_path(kept, upload.id)
    return session.page(
        "upload_checked.html.jinja",
        upload=upload,
        here_path=upload_path(upload.id),
        offer=offer,
        country_names=tariff.names,
        changes=changed and write_start(changed.start_at),
        shortfall=shortfall,
        correct_path=correct_path,
        review_path=correct_path if await _is_refused(session, upload, counts) else None,
        counts=counts,
        codes=_CODES,
        bad=sum(counts.values()),
        faults=faults[:PAGE],
        after=after,
        next_after=faults[PAGE - 1].line if len(faults) > PAGE else None,
        good=good,
        start=start,
        next_start=next_start,
    )


async def _is_refused(session: CustomerSession, upload: Upload, counts: Mapping[str, int]) -> bool:
    """Tell whether rows are refused for the message itself, which can be reviewed, not for their values."""
    if RowCode.CONTENT_REJECTED not in counts:
        return False
    return find_content(await examine_pattern(session, upload.message)) is not None


async def ask(session: CustomerSession) -> Response:
    upload = await _find(session)
    if upload.state in {SCHEDULED, SENDING, SENT} or not upload.recipients:
        return redirect(upload_path(upload.id))
    async with session.database.connection() as connection:
        approval = await approvals.find_of_upload(connection, session.account_id, upload.id)
    return await _confirmation(session, upload) if approval is None else redirect(approval_path(approval.id))


async def _confirmation(
    session: CustomerSession,
    upload: Upload,
    faults: Mapping[str, str] | None = None,
    status: int = 200,
    later: Later = NOW,
) -> Response:
    async with session.database.connection() as connection:
        offer = await price_rest(connection, upload)
        first = await upload_chunks.find_next_good(connection, upload.id, 0)
        samples = await upload_chunks.list_good(connection, upload.id, first or 0, SAMPLES)
        refused = await results.list_refused(connection, upload)
        tariff = await get_tariff(connection)
    faults = faults or {}
    changed = await find_changed(session, upload.replaces)
    if offer.unreachable:
        faults = {"": _(_UNREACHABLE)}
    is_late = upload.replaces is not None and (changed is None or not changed.is_waiting)
    if is_late:
        faults = {"": _(TOO_LATE)}
    held = Decimal(0) if changed is None else changed.held
    start_at = upload.start_at or (None if changed is None else changed.start_at)
    if later == NOW and start_at is not None:
        later = Later.of(start_at)
    balance_after = session.customer.balance + held - offer.total_cost
    return session.page(
        "upload_confirm.html.jinja",
        status,
        upload=upload,
        here_path=upload_path(upload.id),
        faults=faults,
        changes=changed and write_start(changed.start_at),
        # Whether its time was chosen before, so that it is not sent now by mistake.
        is_planned=start_at is not None and upload.state == CHECKED,
        can_send=bool(offer.count) and not offer.unreachable and not is_late,
        offer=offer,
        agreed=money.write(offer.total_cost),
        country_names=tariff.names,
        samples=samples,
        refused=refused,
        sent=upload.recipients - offer.count - offer.unreachable,
        balance_after=balance_after,
        senders=await list_senders(session.database, session.account_id),
        later=await describe_later(session, later) if upload.state == CHECKED else None,
    )


async def confirm(session: CustomerSession) -> Response:
    """Have a file sent, or the rest of it, if it costs what was shown."""
    upload = await _find(session)
    agreed = _read_amount((await FileConfirmForm.read(session.request)).agreed.data)
    if upload.replaces is not None:
        # It changes a scheduled send, and is not sent beside it.
        return redirect(f"{upload_path(upload.id)}/send")
    # The rest of a file that was stopped was agreed to before.
    if upload.state == CHECKED:
        async with session.database.connection() as connection:
            offer = await price_rest(connection, upload)
        if offer.count and offer.total_cost == agreed:
            waiting = await ask_for_file(session, upload.id, offer.count, agreed)
            if waiting is not None:
                return waiting
    decided = await send.confirm(session.database, session.account_id, upload.id, agreed, session.actor)
    return await _answer(session, upload, decided)


async def schedule(session: CustomerSession) -> Response:
    """Have a file sent later, if it costs what was shown."""
    upload = await _find(session)
    form = await FileConfirmForm.read(session.request)
    agreed = _read_amount(form.agreed.data)
    try:
        start_at = form.read_start(session.database.clock.now())
        decided = await manage.schedule_file(
            session.database, session.account_id, upload.id, agreed, start_at, session.actor
        )
    except FieldError as error:
        return await _confirmation(session, upload, {error.field: str(error)}, 422, form.later)
    return await _answer(session, upload, decided, form.later)


async def _answer(
    session: CustomerSession,
    upload: Upload,
    decided: Begun | Scheduled | NotWaiting | Changed | NoLongerAllowed | Refusal | None,
    later: Later = NOW,
) -> Response:
    match decided:
        case None:
            raise HTTPException(404, _(results.NO_FILE))
        case Begun():
            return redirect(upload_path(upload.id))
        case Scheduled():
            return redirect(f"{path_of(decided.id)}?done=scheduled")
        case NotWaiting():
            return await _confirmation(session, upload, {"": _(TOO_LATE)}, 409, later)
        case Changed():
            return await _confirmation(session, await _find(session), {"": _(_CHANGED)}, 409, later)
        case NoLongerAllowed():
            return await _show_refused(session, decided.count)
    said = _(_BUSY) if isinstance(decided, ServiceUnavailable) else say_refusal(decided)
    return await _confirmation(session, upload, {"": said}, decided.status, later)


async def _show_refused(session: CustomerSession, count: int) -> Response:
    """Ask again about what is left of a file, and say what was left out."""
    upload = await _find(session)
    if upload.state == SENT or not upload.recipients:
        return redirect(upload_path(upload.id))
    said = ngettext(
        "{count} row is no longer allowed and left out. Nothing was sent. Check the price, then confirm.",
        "{count} rows are no longer allowed and left out. Nothing was sent. Check the price, then confirm.",
        count,
    ).format(count=write_count(count))
    return await _confirmation(session, upload, {"": said}, 409)


def _read_amount(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation:
        amount = Decimal(-1)
    # What is no amount was not agreed to.
    return amount if amount.is_finite() else Decimal(-1)


async def show_progress(session: CustomerSession) -> Response:
    upload = await _find_any(session)
    if isinstance(upload, FileCheck):
        values = await _checking(session, upload)
        return session.services.templates.page(
            "upload_checking_progress.html.jinja", may=session.may, **values
        )
    if upload.state == CHECKED:
        return session.services.templates.page(
            "upload_checking_progress.html.jinja",
            may=session.may,
            rows=upload.rows,
            done=upload.rows,
            problem=None,
            correct_path=None,
            is_over=True,
        )
    return await results.show_progress(session, upload)


async def _checking(session: CustomerSession, check: FileCheck) -> Mapping[str, Any]:
    problem = _(_INTERRUPTED) if check.problem is None and check.is_dead else check.problem
    async with session.database.connection() as connection:
        kept = await kept_files.find(connection, session.account_id)
    return {
        "correct_path": _correct_path(kept, check.upload_id),
        "file_name": check.file_name,
        "here_path": upload_path(check.upload_id),
        "rows": check.rows,
        "done": check.done,
        "problem": problem,
        "is_over": problem is not None,
    }


async def download(session: CustomerSession) -> Response:
    upload = await _find(session)
    columns = list(upload.columns)
    if columns[:1] == ["column1"] and not any(name_key(column) in NUMBER_NAMES for column in columns):
        # A file without a header gets one, so that it is read the same way when it comes back corrected.
        columns[0] = NUMBER_NAMES[0]

    async def read(after: int | None, count_max: int) -> tuple[Sequence[Row], int | None]:
        async with session.database.connection() as connection:
            faults = await uploads.list_faults(connection, upload.id, count_max, after=after or 0)
        rows = [(*fault.cells, fault.line, fault.code, fault.reason, fault.suggestion) for fault in faults]
        return rows, faults[-1].line if len(faults) == count_max else None

    return download_list(
        session,
        f"bad-rows-{write_id(UPLOAD, upload.id)}.csv",
        [*columns, "row", "code", "reason", "suggestion"],
        read,
        BYTE_ORDER_MARK,
    )


async def _find(session: CustomerSession) -> Upload:
    upload = await _find_any(session)
    if isinstance(upload, FileCheck):
        raise HTTPException(404, _("This file is not checked yet"))
    return upload


async def _find_any(session: CustomerSession) -> Upload | FileCheck:
    account_id = session.account_id
    upload_id = UploadId(read_path_id(session.request, UPLOAD, _(results.NO_FILE)))
    async with session.database.connection() as connection:
        found = (
            await uploads.find(connection, account_id, upload_id)
            or await file_checks.look(connection, account_id, upload_id)
            # Its check may have ended in between.
            or await uploads.find(connection, account_id, upload_id)
        )
    if found is None:
        raise HTTPException(404, _(results.NO_FILE))
    return found


def _number(session: CustomerSession, name: str) -> int:
    """Return the row from which to show; the first if the address names none."""
    text = session.request.query_params.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= len(str(10 * ROWS_MAX)) else 0


def _correct_path(kept: KeptFile | None, upload_id: UploadId) -> str | None:
    """Return where to correct the message of a file, while we have the file."""
    if kept is None or kept.upload_id != upload_id:
        return None
    return f"{UPLOADS}?file={write_id(KEPT, kept.id)}"
