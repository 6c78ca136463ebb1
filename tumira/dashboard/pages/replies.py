"""Replies of recipients, the conversation with each, and the list of those who opted out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.days import local_day
from tumira.core.ids import MESSAGE, REPLY, first_id, made_at_ms, write_id
from tumira.core.translation import _, mark, ngettext
from tumira.dashboard.downloads import ROWS_MAX, Row, download_list
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html import paging
from tumira.html.form_body import read_upload
from tumira.html.forms import Form, ListFilterForm, TextField, read_query_id
from tumira.html.page import write_machine_time
from tumira.html.redirect import redirect
from tumira.pricing.phone_numbers import country_of, read_phone, read_recipients
from tumira.pricing.store import get_tariff
from tumira.replies import manage, opt_outs
from tumira.replies import store as replies
from tumira.replies.manage import Added
from tumira.replies.opt_outs import OptOut, OptOutSource
from tumira.replies.store import HIGHEST, LOWEST, Reply
from tumira.sending import recipients
from tumira.sending.lifecycle import TEXT_KEPT
from tumira.uploads.csv_file import CsvError
from tumira.uploads.workbooks.convert import ManySheets
from tumira.uploads.workbooks.reader import ReaderBusy

REPLIES: Final = "/dashboard/replies"
OPT_OUTS: Final = "/dashboard/opt-outs"

PAGE: Final = 25
# The latest texts of each side of a conversation.
CONVERSATION: Final = 50
TYPED_MAX: Final = 20_000
UNREADABLE_SHOWN: Final = 20
NUMBER_DIGITS: Final = range(7, 16)

REPLY_COLUMNS: Final = (
    "reply_id",
    "received_at_utc",
    "from",
    "to",
    "text",
    "complete",
    "message_id",
    "meaning",
)
OPT_OUT_COLUMNS: Final = ("number", "source", "added_at_utc")

MEANINGS: Final = {
    "stop": mark("opted out"),
    "start": mark("opted in"),
    "maybe_stop": mark("probably an opt-out"),
}
SOURCES: Final = {
    OptOutSource.REPLY: mark("replied STOP"),
    OptOutSource.PAGE: mark("added by hand"),
    OptOutSource.IMPORT: mark("imported"),
}
_NOT_A_NUMBER: Final = mark("Enter a full number, for example 0771200001 or +263 77 120 0001.")
_SHEETS: Final = mark("Several sheets of this workbook have rows. Choose one of them, and the file again.")
_BUSY: Final = mark("Too many files are being read right now. Try again in a minute.")
_A_DAY: Final = timedelta(days=1)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, REPLIES, show_replies),
        private(services, REPLIES + ".csv", download_replies),
        private(services, REPLIES + "/{number}", show_conversation),
        private(services, OPT_OUTS, show_opt_outs),
        private(services, OPT_OUTS, add_numbers, "POST"),
        private(services, OPT_OUTS + ".csv", download_opt_outs),
        private(services, OPT_OUTS + "/import", import_file, "POST"),
        private(services, OPT_OUTS + "/remove", remove, "POST"),
    ]


class ReplySearchForm(ListFilterForm):
    number = TextField(cut=40)
    text = TextField(cut=100)


class OptOutSearchForm(ListFilterForm):
    number = TextField(cut=40)


class AddForm(Form):
    numbers = TextField(cut=TYPED_MAX)


class RemoveForm(Form):
    number = TextField(cut=40)


async def _read_number(session: CustomerSession, form: ListFilterForm, text: str) -> str | None:
    """Read the number to search for; a fault of the form if it is none."""
    if not text:
        return None
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    number = read_phone(tariff, text, country_of(tariff, session.customer.phone))
    if number is None:
        form.faults["number"] = _(_NOT_A_NUMBER)
    return number


async def show_replies(session: CustomerSession) -> Response:
    asked = ReplySearchForm.parse_query(session.request)
    number = await _read_number(session, asked, asked.number.data)
    before = read_query_id(session.request, REPLY, "before")
    found: Sequence[Reply] = []
    if not asked.faults:
        found = await _list(session, number, asked.text.data, before or HIGHEST, PAGE + 1)
    shown, last = paging.cut(found, PAGE)
    return session.page(
        "replies.html.jinja",
        422 if asked.faults else 200,
        asked=asked,
        replies=shown,
        meanings=MEANINGS,
        is_first=before is None,
        pages=asked.pages(REPLIES, None if last is None else write_id(REPLY, last.id)),
        rows_max=ROWS_MAX,
        text_days=TEXT_KEPT.days,
    )


async def _list(
    session: CustomerSession, number: str | None, text: str, before: UUID, count_max: int
) -> Sequence[Reply]:
    # Older replies have no text to look for.
    since = first_id(int((datetime.now(UTC) - TEXT_KEPT - _A_DAY).timestamp() * 1000)) if text else LOWEST
    async with session.database.connection() as connection:
        return await replies.list_of_account(
            connection, session.account_id, count_max, before=before, since=since, text=text, number=number
        )


async def download_replies(session: CustomerSession) -> Response:
    asked = ReplySearchForm.parse_query(session.request)
    number = await _read_number(session, asked, asked.number.data)
    if asked.faults:
        raise HTTPException(422, _("This filter is not valid. Go back and change it"))

    async def read(before: Reply | None, count_max: int) -> tuple[Sequence[Row], Reply | None]:
        found = await _list(
            session, number, asked.text.data, HIGHEST if before is None else before.id, count_max + 1
        )
        shown, last = paging.cut(found, count_max)
        return [_row(one) for one in shown], last

    return download_list(session, f"replies-{local_day(datetime.now(UTC))}.csv", REPLY_COLUMNS, read)


def _row(reply: Reply) -> Row:
    return (
        write_id(REPLY, reply.id),
        write_machine_time(reply.received_at),
        reply.number,
        reply.destination,
        reply.text,
        "yes" if reply.is_complete else "no",
        reply.message_id and write_id(MESSAGE, reply.message_id),
        reply.meaning,
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A text of a conversation, theirs or ours."""

    at: datetime
    text: str | None
    # Of a reply what it asked for, of a message its status.
    state: str | None
    path: str | None = None
    is_reply: bool = False
    is_complete: bool = True


async def show_conversation(session: CustomerSession) -> Response:
    digits = str(session.request.path_params["number"])
    if not (digits.isascii() and digits.isdigit() and len(digits) in NUMBER_DIGITS):
        raise HTTPException(404, _("This number does not exist"))
    number, account_id = f"+{digits}", session.account_id
    async with session.database.connection() as connection:
        received = await replies.list_of_account(connection, account_id, CONVERSATION, number=number)
        sent = await recipients.list_sent(
            connection, number, (LOWEST, HIGHEST), CONVERSATION, account_id=account_id
        )
        texts = await recipients.list_texts(connection, account_id, sent)
        opted_out = await opt_outs.find_one(connection, account_id, number)
    lines = [
        Line(one.received_at, one.text, one.meaning, is_reply=True, is_complete=one.is_complete)
        for one in received
    ]
    lines += [
        Line(
            datetime.fromtimestamp(made_at_ms(one.id) / 1000, UTC),
            one.text,
            one.status,
            f"/dashboard/messages/{write_id(MESSAGE, one.id)}",
        )
        for one in texts
    ]
    return session.page(
        "conversation.html.jinja",
        number=number,
        lines=sorted(lines, key=lambda line: line.at),
        meanings=MEANINGS,
        opted_out=opted_out,
        sources=SOURCES,
        text_days=TEXT_KEPT.days,
    )


async def show_opt_outs(session: CustomerSession) -> Response:
    return await _opt_outs(session)


async def _opt_outs(
    session: CustomerSession,
    status: int = 200,
    *,
    added: Added | None = None,
    faults: dict[str, str] | None = None,
    numbers: str = "",
    sheets: Sequence[str] = (),
) -> Response:
    asked = OptOutSearchForm.parse_query(session.request)
    number = await _read_number(session, asked, asked.number.data)
    before = _read_cursor(session)
    found: Sequence[OptOut] = []
    async with session.database.connection() as connection:
        if number is not None:
            one = await opt_outs.find_one(connection, session.account_id, number)
            found = [] if one is None else [one]
        elif not asked.faults:
            found = await opt_outs.list_of_account(connection, session.account_id, before, PAGE + 1)
        count = await opt_outs.count(connection, session.account_id)
        settings = await opt_outs.get_settings(connection)
    shown, last = paging.cut(found, PAGE)
    older = None if last is None else f"{paging.write_time(last.added_at)}-{last.number.removeprefix('+')}"
    query = session.request.query_params
    return session.page(
        "opt_outs.html.jinja",
        422 if asked.faults else status,
        asked=asked,
        opted_out=shown,
        count=count,
        sources=SOURCES,
        covers_passcodes=settings.covers_passcodes,
        is_first=before == opt_outs.LATEST,
        pages=asked.pages(OPT_OUTS, older),
        rows_max=ROWS_MAX,
        added=None if added is None else _say(added),
        unreadable=[] if added is None else added.unreadable[:UNREADABLE_SHOWN],
        unreadable_more=0 if added is None else max(0, len(added.unreadable) - UNREADABLE_SHOWN),
        faults=faults or {},
        numbers=numbers,
        sheets=[(name, name) for name in sheets],
        done=_("The opt-out was removed. You can send to this number again.") if "removed" in query else None,
    )


def _say(added: Added) -> str:
    said = ngettext("{count} number was added.", "{count} numbers were added.", added.added).format(
        count=f"{added.added:,}"
    )
    if added.known:
        known = ngettext("{count} was already in the list.", "{count} were already in the list.", added.known)
        said += " " + known.format(count=f"{added.known:,}")
    return said


def _read_cursor(session: CustomerSession) -> tuple[datetime, str]:
    """Read before which opt-out the list begins; the newest if the address names none."""
    time, _dash, digits = session.request.query_params.get("before", "").partition("-")
    at = paging.read_time(time)
    return opt_outs.LATEST if at is None else (at, f"+{digits}")


async def add_numbers(session: CustomerSession) -> Response:
    form = await AddForm.read(session.request)
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    home = country_of(tariff, session.customer.phone)
    written = [entry.written for entry in read_recipients(tariff, form.numbers.data, home)]
    if not written:
        faults = {"numbers": _("Enter at least one number.")}
        return await _opt_outs(session, 422, faults=faults)
    return await _add(session, written, home, OptOutSource.PAGE)


async def import_file(session: CustomerSession) -> Response:
    """Add the numbers of a file; a workbook with several sheets is chosen again, with one of them."""
    try:
        fields, file = await read_upload(session.request)
        sheet = fields.raw("sheet") or None
        rows = await session.services.checker.tables.read(session.account_id, file.data, sheet)
    except ReaderBusy:
        return await _opt_outs(session, 503, faults={"file": _(_BUSY)})
    except CsvError as error:
        return await _opt_outs(session, 422, faults={"file": str(error)})
    except HTTPException as error:
        return await _opt_outs(session, error.status_code, faults={"file": f"{error.detail}."})
    if isinstance(rows, ManySheets):
        return await _opt_outs(session, 422, faults={"sheet": _(_SHEETS)}, sheets=rows.names)
    column = rows.number_column
    written = [row.cells[column] if column < len(row.cells) else "" for row in rows.rows]
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    return await _add(session, written, country_of(tariff, session.customer.phone), OptOutSource.IMPORT)


async def _add(
    session: CustomerSession, written: Sequence[str], home: str | None, source: OptOutSource
) -> Response:
    added = await manage.opt_out(
        session.database, session.account_id, written, home, source=source, actor=session.actor
    )
    return await _opt_outs(session, added=added)


async def remove(session: CustomerSession) -> Response:
    form = await RemoveForm.read(session.request)
    await manage.opt_in(session.database, session.account_id, form.number.data, actor=session.actor)
    return redirect(OPT_OUTS + "?removed=1")


async def download_opt_outs(session: CustomerSession) -> Response:
    async def read(before: OptOut | None, count_max: int) -> tuple[Sequence[Row], OptOut | None]:
        cursor = opt_outs.LATEST if before is None else (before.added_at, before.number)
        async with session.database.connection() as connection:
            found = await opt_outs.list_of_account(connection, session.account_id, cursor, count_max + 1)
        shown, last = paging.cut(found, count_max)
        return [(one.number, one.source.value, write_machine_time(one.added_at)) for one in shown], last

    return download_list(session, f"opt-outs-{local_day(datetime.now(UTC))}.csv", OPT_OUT_COLUMNS, read)
