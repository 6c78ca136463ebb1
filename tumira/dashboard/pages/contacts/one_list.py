"""One contact list: its contacts, searched and page by page, its import and download."""

import re
from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.contacts import manage, store
from tumira.contacts.list_rules import CELLS_MAX, CONTACTS_MAX, NUMBER_COLUMN, clean_cells
from tumira.contacts.manage import Imported
from tumira.contacts.store import Contact, ContactList
from tumira.core.errors import FieldError
from tumira.core.ids import CONTACT_LIST, ContactListId, write_id
from tumira.core.translation import _, mark, ngettext
from tumira.dashboard.downloads import Row, download_list
from tumira.dashboard.pages.contacts.lists import LISTS, list_path
from tumira.dashboard.pages.upload import BYTE_ORDER_MARK
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html import paging
from tumira.html.form_body import FILE_BYTES_MAX, read_fields, read_upload
from tumira.html.forms import Faults, Form, ListFilterForm, TextField, read_path_id
from tumira.html.guards import or_404
from tumira.html.page import write_count
from tumira.html.redirect import redirect
from tumira.pricing.phone_numbers import country_of
from tumira.pricing.store import get_tariff
from tumira.uploads.csv_file import ROWS_MAX, CsvError
from tumira.uploads.workbooks.convert import ManySheets
from tumira.uploads.workbooks.reader import ReaderBusy

PAGE: Final = 25
# Columns beside the number that the table shows; a contact's page has them all.
SHOWN_COLUMNS: Final = 4
FAULTS_SHOWN: Final = 20

NO_LIST: Final = mark("This list does not exist. It may have been deleted")
_NO_CONTACT: Final = mark("This contact does not exist. It may have been removed")
_SHEETS: Final = mark("Several sheets of this workbook have rows. Choose one of them, and the file again.")
_BUSY: Final = mark("Too many files are being read right now. Try again in a minute.")
DONE: Final = {
    "created": mark("The list was created."),
    "added": mark("The contact was added."),
    "saved": mark("The contact was saved."),
    "removed": mark("The contact was removed."),
    "settings": mark("The list was changed."),
}
_NUMBER: Final = re.compile("[0-9]{7,15}")
_DIGITS: Final = re.compile(r"[0-9+\s().\-]+")
_NOT_A_DIGIT: Final = re.compile("[^0-9]")


class ContactSearchForm(ListFilterForm):
    q = TextField(cut=60)

    @property
    def digits(self) -> str:
        """The digits of a number as it is stored: without the zero or zeros before it."""
        text = self.q.data
        return _NOT_A_DIGIT.sub("", text).lstrip("0") if _DIGITS.fullmatch(text) else ""


class ContactForm(Form):
    number = TextField(cut=40)


def routes(services: Services) -> Sequence[Route]:
    one = LISTS + "/{id}"
    return [
        private(services, one, show),
        private(services, one + "/contacts.csv", download),
        private(services, one + "/contacts", add, "POST"),
        private(services, one + "/contacts/{number}", show_contact),
        private(services, one + "/contacts/{number}", save, "POST"),
        private(services, one + "/contacts/{number}/remove", remove, "POST"),
        private(services, one + "/import", import_file, "POST"),
    ]


async def find_list(session: CustomerSession) -> ContactList:
    """Return the list of the address; 404 for an unknown one and for another account's."""
    list_id = ContactListId(read_path_id(session.request, CONTACT_LIST, _(NO_LIST)))
    async with session.database.connection() as connection:
        return or_404(await store.find_list(connection, session.account_id, list_id), _(NO_LIST))


async def show(session: CustomerSession) -> Response:
    done = DONE.get(session.request.query_params.get("done", ""))
    return await _page(session, {}, done=None if done is None else _(done))


async def _page(
    session: CustomerSession,
    faults: Faults,
    status: int = 200,
    *,
    number: str = "",
    cells: Sequence[str] = (),
    done: str | None = None,
    imported: Imported | None = None,
    sheets: Sequence[str] = (),
) -> Response:
    found = await find_list(session)
    asked = ContactSearchForm.parse_query(session.request)
    after = session.request.query_params.get("after", "")
    async with session.database.connection() as connection:
        listed = await store.list_contacts(
            connection,
            found,
            PAGE + 1,
            after=f"+{after}" if _NUMBER.fullmatch(after) else "",
            text=asked.q.data,
            digits=asked.digits,
        )
        tariff = await get_tariff(connection)
    home = country_of(tariff, session.customer.phone)
    shown, last = paging.cut(listed, PAGE)
    path = list_path(found.id)
    width = len(found.columns)
    return session.page(
        "list.html.jinja",
        status,
        list=found,
        here_path=path,
        asked=asked,
        contacts=[(one, clean_cells(one.cells, width)) for one in shown],
        columns=found.columns[:SHOWN_COLUMNS],
        is_first=not after,
        first_path=asked.path(path),
        next_path=None if last is None else asked.path(path, after=last.number.removeprefix("+")),
        home=next((one for one in tariff.destinations if one.country == home), None),
        faults=faults,
        number=number,
        cells=clean_cells(cells, width),
        done=done,
        imported=imported,
        sheets=[(name, name) for name in sheets],
        faults_shown=FAULTS_SHOWN,
        rows_max=ROWS_MAX,
        bytes_max=FILE_BYTES_MAX,
        contacts_max=CONTACTS_MAX,
        cells_max=CELLS_MAX,
    )


async def download(session: CustomerSession) -> Response:
    """Send all contacts as a file that can be imported and uploaded again."""
    found = await find_list(session)
    width = len(found.columns)

    async def read(after: str | None, count_max: int) -> tuple[Sequence[Row], str | None]:
        async with session.database.connection() as connection:
            listed = await store.list_cells(connection, found.id, after or "", count_max)
        rows = [(number, *clean_cells(cells, width)) for number, cells in listed.items()]
        return rows, rows[-1][0] if len(rows) == count_max else None

    name = f"{write_id(CONTACT_LIST, found.id)}.csv"
    return download_list(session, name, [NUMBER_COLUMN, *found.columns], read, BYTE_ORDER_MARK)


async def find_home(session: CustomerSession) -> str | None:
    """Return the country of the customer's own number, for which local numbers are completed."""
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
    return country_of(tariff, session.customer.phone)


async def add(session: CustomerSession) -> Response:
    found = await find_list(session)
    body = await read_fields(session.request)
    form, cells = ContactForm.parse(body), body.getlist("cell")
    try:
        await manage.put_contact(
            session.database,
            session.account_id,
            found.id,
            form.number.data,
            cells,
            await find_home(session),
            session.actor,
        )
    except FieldError as error:
        faults = {error.field: str(error)}
        return await _page(session, faults, 422, number=form.number.data, cells=cells)
    return redirect(f"{list_path(found.id)}?done=added")


async def _find_contact(session: CustomerSession, of: ContactList) -> Contact:
    digits = str(session.request.path_params["number"])
    if not _NUMBER.fullmatch(digits):
        raise HTTPException(404, _(_NO_CONTACT))
    async with session.database.connection() as connection:
        return or_404(await store.find_contact(connection, of, f"+{digits}"), _(_NO_CONTACT))


async def show_contact(session: CustomerSession) -> Response:
    found = await find_list(session)
    contact = await _find_contact(session, found)
    return _contact(session, found, contact, {})


def _contact(
    session: CustomerSession,
    of: ContactList,
    contact: Contact,
    faults: Faults,
    filled: tuple[str, Sequence[str]] | None = None,
) -> Response:
    number, cells = filled or (contact.number, contact.cells)
    return session.page(
        "contact_edit.html.jinja",
        422 if faults else 200,
        list=of,
        list_path=list_path(of.id),
        here_path=f"{list_path(of.id)}/contacts/{contact.number.removeprefix('+')}",
        contact=contact,
        number=number,
        cells=clean_cells(cells, len(of.columns)),
        faults=faults,
        cells_max=CELLS_MAX,
    )


async def save(session: CustomerSession) -> Response:
    found = await find_list(session)
    contact = await _find_contact(session, found)
    body = await read_fields(session.request)
    form, cells = ContactForm.parse(body), body.getlist("cell")
    try:
        await manage.put_contact(
            session.database,
            session.account_id,
            found.id,
            form.number.data,
            cells,
            await find_home(session),
            session.actor,
            before=contact.number,
        )
    except FieldError as error:
        return _contact(session, found, contact, {error.field: str(error)}, (form.number.data, cells))
    return redirect(f"{list_path(found.id)}?done=saved")


async def remove(session: CustomerSession) -> Response:
    found = await find_list(session)
    contact = await _find_contact(session, found)
    await manage.remove_contact(session.database, session.account_id, found.id, contact.number, session.actor)
    return redirect(f"{list_path(found.id)}?done=removed")


async def import_file(session: CustomerSession) -> Response:
    """Add the contacts of a file; a workbook with several sheets is chosen again, with one of them."""
    found = await find_list(session)
    try:
        fields, file = await read_upload(session.request)
        sheet = fields.raw("sheet") or None
        read = await session.services.checker.tables.read(session.account_id, file.data, sheet)
        if isinstance(read, ManySheets):
            return await _page(session, {"sheet": _(_SHEETS)}, 422, sheets=read.names)
        imported = await manage.import_file(
            session.database, session.account_id, found.id, read, await find_home(session), session.actor
        )
    except (CsvError, FieldError) as error:
        return await _page(session, {"file": str(error)}, 422)
    except ReaderBusy:
        return await _page(session, {"file": _(_BUSY)}, 503)
    except HTTPException as error:
        return await _page(session, {"file": f"{error.detail}."}, error.status_code)
    return await _page(session, {}, done=_say(imported), imported=imported)


def _say(imported: Imported) -> str:
    """Say what an import did, in one line."""
    words = ngettext("{count} contact was added", "{count} contacts were added", imported.added)
    said = [words.format(count=write_count(imported.added))]
    if imported.updated:
        words = ngettext("{count} was updated", "{count} were updated", imported.updated)
        said.append(words.format(count=write_count(imported.updated)))
    if imported.repeated:
        words = ngettext(
            "{count} repeated row was merged", "{count} repeated rows were merged", imported.repeated
        )
        said.append(words.format(count=write_count(imported.repeated)))
    return ", ".join(said) + "."
