"""Pages that check a file, show which of its rows can be sent, and send these once that is confirmed."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.core import money
from tumira.core.errors import ServiceUnavailable, ValidationFailed
from tumira.core.ids import UPLOAD, UploadId, write_id
from tumira.dashboard.downloads import Row, download_list
from tumira.dashboard.pages import sent_file
from tumira.dashboard.refusal_words import say_refusal
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.form_body import FILE_BYTES_MAX, FormBody, read_upload
from tumira.html.forms import Faults, Form, TextField, at_most, read_path_id
from tumira.html.redirect import redirect
from tumira.pricing.gsm7 import is_blank
from tumira.pricing.quote import REFERENCE_MAX
from tumira.pricing.store import get_tariff
from tumira.sending.lifecycle import TEXT_KEPT
from tumira.uploads import checks as file_checks
from tumira.uploads import chunks as upload_chunks
from tumira.uploads import send
from tumira.uploads import store as uploads
from tumira.uploads.check_file import Busy, Pending, Unfinished
from tumira.uploads.check_rows import BadFile, BadMessage, Wanted
from tumira.uploads.checks import FileCheck
from tumira.uploads.csv_file import NUMBER_NAMES, ROWS_MAX, name_key
from tumira.uploads.send import Begun, Changed, NoLongerAllowed
from tumira.uploads.store import CHECKED, SENDING, SENT, STOPPED, Upload

PLACE: Final = "/dashboard/upload"

PAGE: Final = 100
RECENT: Final = 20
SAMPLES: Final = 3

_TOO_LARGE: Final = 413

_STATES: Final = {CHECKED: "not sent", SENDING: "sending", SENT: "sent", STOPPED: "stopped"}
_CODES: Final = {
    "INVALID_NUMBER": "without a valid number",
    "UNSUPPORTED_DESTINATION": "to a country that we do not send to",
    "DUPLICATE": "the same as a row above",
    "TOO_MANY_SEGMENTS": "with too long a text",
    "CONTENT_REJECTED": "with marketing",
    "EMPTY_TEXT": "without a text",
    "MISSING_VALUE": "without a value that the message needs",
    "NO_LONGER_ALLOWED": "no longer allowed since the check",
}
_CHANGED: Final = (
    "The prices have changed since this was shown. Nothing was sent: look again, and confirm if you agree."
)
_UNREACHABLE: Final = "Some of these numbers cannot be sent to any more. Check the file again to see which."
_NO_FILE: Final = "There is no such file; we keep one for a week"
_QUEUE_FULL: Final = "Too many files are being checked right now. Try again in a minute."
_INTERRUPTED: Final = "The check was interrupted on our side. Choose the file again."
_BUSY: Final = (
    "No answer came in time, so this may not be on its way. Press Confirm again: however often you press, "
    "each message is sent once and paid for once."
)


class UploadForm(Form):
    message = TextField(lambda text: "Write the message." if is_blank(text) else None, clean=str)
    country = TextField()
    reference = TextField(at_most(REFERENCE_MAX))


class FileConfirmForm(Form):
    agreed = TextField()


_EMPTY: Final = UploadForm(FormBody({})).filled


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, PLACE, show_form),
        private(services, PLACE, check, "POST"),
        private(services, PLACE + "/{id}", show),
        private(services, PLACE + "/{id}/send", ask),
        private(services, PLACE + "/{id}/send", confirm, "POST"),
        private(services, PLACE + "/{id}/progress", show_progress),
        private(services, PLACE + "/{id}/bad-rows.csv", download),
    ]


async def show_form(session: CustomerSession) -> Response:
    return await _form(session, _EMPTY, {})


async def _form(
    session: CustomerSession, draft: Mapping[str, str], faults: Faults, status: int = 200
) -> Response:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        recent = await uploads.list_recent(connection, session.account_id, RECENT)
    return session.page(
        "upload.html.jinja",
        status,
        draft=draft,
        faults=faults,
        countries=[
            ("", "None"),
            *((one.country, f"{one.name} (+{one.calling_code})") for one in tariff.destinations),
        ],
        recent=recent,
        states=_STATES,
        rows_max=ROWS_MAX,
        bytes_max=FILE_BYTES_MAX,
        kept_days=TEXT_KEPT.days,
    )


async def check(session: CustomerSession) -> Response:
    try:
        body, file = await read_upload(session.request)
    except HTTPException as error:
        if error.status_code != _TOO_LARGE:
            raise
        # The other fields came behind the file, or were not read either.
        return await _form(session, _EMPTY, {"file": f"{error.detail}."}, _TOO_LARGE)
    form = UploadForm.parse(body)
    country = form.country.data
    if not file.name and not file.data:
        form.faults = {"file": "Choose a file.", **form.faults}
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    if country and country not in tariff.names:
        form.faults["country"] = "Choose one of the list."
    if form.faults:
        return await _form(session, form.filled, form.faults, ValidationFailed.status)
    wanted = Wanted(
        file.name or "file.csv",
        file.data,
        form.message.data,
        country or None,
        form.reference.data or None,
    )
    checked = await session.services.checker.check(
        session.account_id, wanted, lambda: _hang_up(session.request)
    )
    match checked:
        case BadMessage():
            return await _form(session, form.filled, {"message": checked.problem}, ValidationFailed.status)
        case BadFile() | Unfinished():
            return await _form(session, form.filled, {"file": checked.problem}, ValidationFailed.status)
        case Busy():
            return await _form(session, form.filled, {"": _QUEUE_FULL}, ServiceUnavailable.status)
        case Pending():
            return redirect(_path(checked.upload_id))
    return redirect(_path(checked))


async def _hang_up(request: Request) -> None:
    """Wait until the browser that sent this request is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def show(session: CustomerSession) -> Response:
    upload = await _find_any(session)
    if isinstance(upload, FileCheck):
        return session.page("upload_checking.html.jinja", **_checking(upload))
    if upload.state == CHECKED:
        return await _verdict(session, upload)
    return await sent_file.show_sent(session, upload)


async def _verdict(session: CustomerSession, upload: Upload) -> Response:
    after, start = _number(session, "after"), _number(session, "from")
    async with session.database.connection() as connection:
        offer = await send.price_rest(connection, upload)
        counts = await uploads.count_faults(connection, upload.id)
        faults = await uploads.list_faults(connection, upload.id, PAGE + 1, after=after)
        good = await upload_chunks.list_good(connection, upload.id, start, PAGE)
        next_start = await upload_chunks.find_next_good(connection, upload.id, start + PAGE)
        tariff = await get_tariff(connection)
    return session.page(
        "upload_checked.html.jinja",
        upload=upload,
        here_path=_path(upload.id),
        offer=offer,
        country_names=tariff.names,
        shortfall=max(offer.total_cost - session.customer.balance, Decimal(0)),
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


async def ask(session: CustomerSession) -> Response:
    upload = await _find(session)
    if upload.state in {SENDING, SENT} or not upload.recipients:
        return redirect(_path(upload.id))
    return await _confirmation(session, upload)


async def _confirmation(
    session: CustomerSession, upload: Upload, faults: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    async with session.database.connection() as connection:
        offer = await send.price_rest(connection, upload)
        first = await upload_chunks.find_next_good(connection, upload.id, 0)
        samples = await upload_chunks.list_good(connection, upload.id, first or 0, SAMPLES)
        refused = await sent_file.list_refused(connection, upload)
        tariff = await get_tariff(connection)
    faults = faults or {}
    if offer.unreachable:
        faults = {"": _UNREACHABLE}
    return session.page(
        "upload_confirm.html.jinja",
        status,
        upload=upload,
        here_path=_path(upload.id),
        faults=faults,
        offer=offer,
        agreed=money.write(offer.total_cost),
        country_names=tariff.names,
        samples=samples,
        refused=refused,
        sent=upload.recipients - offer.count - offer.unreachable,
        balance_after=session.customer.balance - offer.total_cost,
    )


async def confirm(session: CustomerSession) -> Response:
    """Have a file sent, or the rest of it, if it costs what was shown."""
    upload = await _find(session)
    agreed = _read_amount((await FileConfirmForm.read(session.request)).agreed.data)
    decided = await send.confirm(session.database, session.account_id, upload.id, agreed)
    match decided:
        case None:
            raise HTTPException(404, "There is no such file")
        case Begun():
            return redirect(_path(upload.id))
        case Changed():
            return await _confirmation(session, await _find(session), {"": _CHANGED}, 409)
        case NoLongerAllowed():
            return await _show_refused(session, decided.count)
    said = _BUSY if isinstance(decided, ServiceUnavailable) else say_refusal(decided)
    return await _confirmation(session, upload, {"": said}, decided.status)


async def _show_refused(session: CustomerSession, count: int) -> Response:
    """Ask again about what is left of a file, and say what was left out."""
    upload = await _find(session)
    if upload.state == SENT or not upload.recipients:
        return redirect(_path(upload.id))
    rows = "1 row is" if count == 1 else f"{count:,} rows are"
    said = f"{rows} no longer allowed, and left out. Nothing was sent: look again, and confirm if you agree."
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
        return session.services.templates.page("upload_checking_progress.html.jinja", **_checking(upload))
    if upload.state == CHECKED:
        return session.services.templates.page(
            "upload_checking_progress.html.jinja",
            rows=upload.rows,
            done=upload.rows,
            problem=None,
            is_over=True,
        )
    return await sent_file.show_progress(session, upload)


def _checking(check: FileCheck) -> Mapping[str, Any]:
    problem = _INTERRUPTED if check.problem is None and check.is_dead else check.problem
    return {
        "file_name": check.file_name,
        "here_path": _path(check.upload_id),
        "rows": check.rows,
        "done": check.done,
        "problem": problem,
        "is_over": problem is not None,
    }


async def download(session: CustomerSession) -> Response:
    upload = await _find(session)
    columns = list(upload.columns)
    if not any(name_key(column) in NUMBER_NAMES for column in columns) and columns[0] == "column1":
        # A file without a header gets one, so that it is read the same way when it comes back corrected.
        columns[0] = NUMBER_NAMES[0]

    async def read(after: int | None, count_max: int) -> tuple[Sequence[Row], int | None]:
        async with session.database.connection() as connection:
            faults = await uploads.list_faults(connection, upload.id, count_max, after=after or 0)
        rows = [(*fault.cells, fault.line, fault.code, fault.reason, fault.suggestion) for fault in faults]
        return rows, faults[-1].line if len(faults) == count_max else None

    # The mark tells spreadsheets that this is UTF-8.
    return download_list(
        session,
        f"bad-rows-{write_id(UPLOAD, upload.id)}.csv",
        [*columns, "row", "code", "reason", "suggestion"],
        read,
        b"\xef\xbb\xbf",
    )


async def _find(session: CustomerSession) -> Upload:
    upload = await _find_any(session)
    if isinstance(upload, FileCheck):
        raise HTTPException(404, "This file is not checked yet")
    return upload


async def _find_any(session: CustomerSession) -> Upload | FileCheck:
    account_id = session.account_id
    upload_id = UploadId(read_path_id(session.request, UPLOAD, _NO_FILE))
    async with session.database.connection() as connection:
        found = (
            await uploads.find(connection, account_id, upload_id)
            or await file_checks.look(connection, account_id, upload_id)
            # Its check may have ended in between.
            or await uploads.find(connection, account_id, upload_id)
        )
    if found is None:
        raise HTTPException(404, _NO_FILE)
    return found


def _number(session: CustomerSession, name: str) -> int:
    """Return the row from which to show; the first if the address names none."""
    text = session.request.query_params.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= len(str(10 * ROWS_MAX)) else 0


def _path(upload_id: UploadId) -> str:
    return f"{PLACE}/{write_id(UPLOAD, upload_id)}"
