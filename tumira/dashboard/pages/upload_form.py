"""The form for a file, which is kept so that a correction does not need it again."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.content.review import REVIEW_NOTE_MAX
from tumira.core.errors import ValidationFailed
from tumira.core.ids import SCHEDULE, ScheduleId, new_id, read_id, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.check_upload import start_check
from tumira.dashboard.downloads import Row, download_list
from tumira.dashboard.drafts import describe_draft, examine_pattern, send_for_review
from tumira.dashboard.pages.compose import UPLOAD_REVIEW
from tumira.dashboard.pages.contacts.choose import find_message, list_choices
from tumira.dashboard.pages.results import UPLOADS
from tumira.dashboard.pages.upload import BYTE_ORDER_MARK, KEPT, STATES
from tumira.dashboard.send_later import NO_SCHEDULE, find_changed
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.form_body import FILE_BYTES_MAX, File, read_upload
from tumira.html.forms import Faults, Form, FormRefused, TextField, at_most
from tumira.html.page import HEADERS, PRIVATE
from tumira.html.redirect import redirect
from tumira.pricing.gsm7 import is_blank
from tumira.pricing.phone_numbers import country_of
from tumira.pricing.quote import REFERENCE_MAX
from tumira.pricing.segments import SEGMENTS_MAX
from tumira.pricing.store import get_tariff
from tumira.sending.compose import Draft
from tumira.sending.lifecycle import TEXT_KEPT
from tumira.topups.states import TOP_UP_MIN
from tumira.uploads import kept_files
from tumira.uploads import store as uploads
from tumira.uploads.check_rows import Wanted
from tumira.uploads.csv_file import ROWS_MAX
from tumira.uploads.kept_files import KeptFile
from tumira.uploads.workbooks.write import XLSX, write_xlsx

INSERT: Final = UPLOADS + "/text"
RECENT: Final = 20
_TOO_LARGE: Final = 413
_FILE_GONE: Final = mark("We no longer have this file. Choose it again.")
# Spreadsheet programs drop the zero of a number that is not text, and completing it puts it back.
SAMPLE: Final = {
    "ZW": ("0771200001", "0771200002", "+263771200003"),
    "ZA": ("0821230001", "0821230002", "+27821230003"),
}
_SAMPLE_COLUMNS: Final = ("to", "name", "amount")
_SAMPLE_ROWS: Final = (("Tendai Moyo", "12.50"), ("Rudo Ncube", "8.00"), ("Thabo Dlamini", "31.40"))


class UploadForm(Form):
    message = TextField(lambda text: _("Enter a message.") if is_blank(text) else None, clean=str)
    country = TextField()
    reference = TextField(at_most(REFERENCE_MAX))
    kept = TextField()
    sheet = TextField(clean=str)
    # The scheduled send that it changes.
    schedule = TextField()
    note = TextField(cut=REVIEW_NOTE_MAX)
    # A saved text to insert.
    text = TextField()


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, UPLOADS, show_form),
        private(services, UPLOADS, check, "POST"),
        private(services, UPLOADS + "/sample.csv", download_sample),
        private(services, UPLOADS + "/sample.xlsx", download_sample_workbook),
        private(services, INSERT, begin_again),
        private(services, INSERT, insert_text, "POST"),
        private(services, UPLOAD_REVIEW, begin_again),
        private(services, UPLOAD_REVIEW, ask_review, "POST"),
    ]


async def show_form(session: CustomerSession) -> Response:
    """Show the form, empty or with the file that was checked before and what was typed beside it."""
    asked = session.request.query_params.get("file")
    if asked is not None:
        kept = await _find_kept(session)
        if kept is not None and asked == write_id(KEPT, kept.id):
            filled = {
                "message": kept.message,
                "country": kept.country,
                "reference": kept.reference,
                "sheet": kept.sheet,
                "schedule": "" if kept.replaces is None else write_id(SCHEDULE, kept.replaces),
            }
            return await _form(session, filled, {}, kept=kept)
        return await _form(session, await _empty(session), {"file": _(_FILE_GONE)}, 404)
    asked = session.request.query_params.get("schedule")
    if asked is not None:
        return await _form(session, await _scheduled(session, asked), {"file": _(_FILE_GONE)})
    message = await find_message(session, session.request.query_params.get("text", ""))
    return await _form(session, {**await _empty(session), "message": message or ""}, {})


async def _scheduled(session: CustomerSession, written_id: str) -> Mapping[str, str]:
    """Return what was typed for a scheduled file that is to be changed, whose content is gone."""
    empty = await _empty(session)
    schedule_id = read_id(SCHEDULE, written_id)
    found = await find_changed(session, None if schedule_id is None else ScheduleId(schedule_id))
    if found is None or not found.is_waiting:
        raise HTTPException(404, _(NO_SCHEDULE))
    return {**empty, "message": found.message, "reference": found.reference or "", "schedule": written_id}


async def insert_text(session: CustomerSession) -> Response:
    """Show the form again with a saved text, and with its file."""
    try:
        form, file = await _read(session)
    except FormRefused as refused:
        return await _form(session, refused.filled, refused.faults, refused.status)
    message = await find_message(session, form.text.data)
    kept, _data = await _keep(session, form, file)
    filled = form.filled if message is None else {**form.filled, "message": message}
    return await _form(session, filled, {}, kept=kept)


async def begin_again(_session: CustomerSession) -> Response:
    """Lead who comes without a text, after signing in again perhaps, to the form."""
    return redirect(UPLOADS)


async def _empty(session: CustomerSession) -> Mapping[str, str]:
    return {"message": "", "country": await _home(session), "reference": "", "sheet": "", "schedule": ""}


async def _home(session: CustomerSession) -> str:
    """Return the country of the customer's own number."""
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    return country_of(tariff, session.customer.phone) or ""


async def download_sample(session: CustomerSession) -> Response:
    """Send a small file that shows the columns, with numbers of the customer's own country."""
    rows = await _sample_rows(session)

    async def read(_after: None, _count_max: int) -> tuple[Sequence[Row], None]:
        return rows, None

    return download_list(session, "sample.csv", _SAMPLE_COLUMNS, read, BYTE_ORDER_MARK)


async def download_sample_workbook(session: CustomerSession) -> Response:
    """Send the same file as a workbook, whose cells keep their zeros when it is filled in."""
    data = write_xlsx([_SAMPLE_COLUMNS, *await _sample_rows(session)])
    headers = {**HEADERS, **PRIVATE, "Content-Disposition": 'attachment; filename="sample.xlsx"'}
    return Response(data, media_type=XLSX, headers=headers)


async def _sample_rows(session: CustomerSession) -> Sequence[Sequence[str]]:
    numbers = SAMPLE.get(await _home(session), SAMPLE["ZW"])
    return [(number, *cells) for number, cells in zip(numbers, _SAMPLE_ROWS, strict=True)]


async def _form(
    session: CustomerSession,
    filled: Mapping[str, str],
    faults: Faults,
    status: int = 200,
    *,
    kept: KeptFile | None = None,
    said: str | None = None,
) -> Response:
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        recent = await uploads.list_recent(connection, session.account_id, RECENT)
    draft = Draft("", filled["message"], "")
    review = await examine_pattern(session, draft.message)
    return session.page(
        "upload.html.jinja",
        status,
        draft=filled,
        found=await describe_draft(session, draft, review, filled.get("note", "")),
        review_path=UPLOAD_REVIEW,
        faults=faults,
        said=said,
        kept=kept,
        sheets=[(name, name) for name in kept.sheets] if kept else [],
        choices=await list_choices(session),
        insert_path=INSERT,
        countries=[
            ("", _("None: all numbers have a country code")),
            *((one.country, f"{one.name} (+{one.calling_code})") for one in tariff.destinations),
        ],
        recent=recent,
        states=STATES,
        rows_max=ROWS_MAX,
        bytes_max=FILE_BYTES_MAX,
        kept_days=TEXT_KEPT.days,
        segments_max=SEGMENTS_MAX,
        top_up_min=TOP_UP_MIN,
    )


async def check(session: CustomerSession) -> Response:
    try:
        form, file = await _read(session)
    except FormRefused as refused:
        return await _form(session, refused.filled, refused.faults, refused.status)
    country = form.country.data
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    if country and country not in tariff.names:
        form.faults["country"] = _("Choose a country from the list.")
    kept, data = await _keep(session, form, file)
    if kept is None:
        fault = _(_FILE_GONE) if form.kept.data else _("Choose a file.")
        form.faults = {"file": fault, **form.faults}
    if kept is None or form.faults:
        return await _form(session, form.filled, form.faults, ValidationFailed.status, kept=kept)
    try:
        return await start_check(session, kept.id, _wanted(kept, data))
    except FormRefused as refused:
        # A file that cannot be read is not offered again; of a workbook, its sheets were found.
        again = None if "file" in refused.faults else await _find_kept(session)
        again = again if again is not None and again.id == kept.id else None
        return await _form(session, form.filled, refused.faults, refused.status, kept=again)


async def _find_kept(session: CustomerSession) -> KeptFile | None:
    async with session.database.connection() as connection:
        return await kept_files.find(connection, session.account_id)


def _wanted(kept: KeptFile, data: bytes) -> Wanted:
    # Which sheet it is, is part of what the file is called.
    name = f"{kept.file_name}, {kept.sheet}" if kept.sheet in kept.sheets else kept.file_name
    return Wanted(
        name,
        data,
        kept.message,
        kept.country or None,
        kept.reference or None,
        kept.sheet or None,
        start_at=kept.start_at,
        replaces=kept.replaces,
    )


async def _read(session: CustomerSession) -> tuple[UploadForm, File]:
    try:
        body, file = await read_upload(session.request)
    except HTTPException as error:
        if error.status_code != _TOO_LARGE:
            raise
        # The other fields came behind the file, or were not read either.
        raise FormRefused({"file": f"{error.detail}."}, await _empty(session), _TOO_LARGE) from error
    return UploadForm.parse(body), file


async def ask_review(session: CustomerSession) -> Response:
    """Keep a refused text for the operator to review, and show the form again with its file."""
    try:
        form, file = await _read(session)
    except FormRefused as refused:
        return await _form(session, refused.filled, refused.faults, refused.status)
    kept, _data = await _keep(session, form, file)
    draft = Draft("", form.message.data, "")
    review = await examine_pattern(session, draft.message)
    answer = await send_for_review(session, draft, review, form.note.data)
    return await _form(session, form.filled, answer.faults, answer.status, kept=kept, said=answer.said)


async def _keep(session: CustomerSession, form: UploadForm, file: File) -> tuple[KeptFile | None, bytes]:
    """Keep the file that was chosen, or return the file that was kept before; None if there is neither."""
    is_new = bool(file.name or file.data)
    file_id = new_id(time.time_ns() // 1_000_000) if is_new else read_id(KEPT, form.kept.data)
    if file_id is None:
        return None, b""
    schedule_id = read_id(SCHEDULE, form.schedule.data)
    kept = KeptFile(
        id=file_id,
        file_name=file.name or "file.csv",
        message=form.message.data,
        country=form.country.data,
        reference=form.reference.data,
        upload_id=None,
        sheet=form.sheet.data,
        replaces=None if schedule_id is None else ScheduleId(schedule_id),
    )
    async with session.database.transaction() as connection:
        if is_new:
            await kept_files.keep(connection, session.account_id, kept, file.data)
            return kept, file.data
        found = await kept_files.reuse(connection, session.account_id, kept)
    return found or (None, b"")
