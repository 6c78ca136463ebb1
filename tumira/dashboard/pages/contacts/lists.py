"""All contact lists of an account; a list can be made of the recipients of a batch or a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.contacts import manage, store, text_store
from tumira.contacts.list_rules import CONTACTS_MAX, LIST_NAME_MAX, LISTS_MAX
from tumira.core.ids import BATCH, CONTACT_LIST, UPLOAD, BatchId, ContactListId, UploadId, read_id, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Faults, Form, FormRefused, TextField
from tumira.html.redirect import redirect
from tumira.identity.person_rules import clean_name
from tumira.sending import batches
from tumira.uploads import chunks as upload_chunks
from tumira.uploads import store as uploads
from tumira.uploads.chunks import CHUNK_MAX
from tumira.uploads.csv_file import ROWS_MAX

LISTS: Final = "/dashboard/lists"
TYPED_MAX: Final = 2 * LIST_NAME_MAX

DONE: Final = {"deleted": mark("The list was deleted.")}
_NO_SOURCE: Final = mark("These recipients are not kept any more")


class NewListForm(Form):
    name = TextField(clean=clean_name, cut=TYPED_MAX)
    # The id of a batch or a file whose recipients are put into the list.
    source = TextField()


@dataclass(frozen=True, slots=True)
class Source:
    """A batch or a file, with the numbers that it was sent to and that are not erased."""

    written_id: str
    numbers: Sequence[str]


def list_path(list_id: ContactListId) -> str:
    return f"{LISTS}/{write_id(CONTACT_LIST, list_id)}"


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, LISTS, show),
        private(services, LISTS, create, "POST"),
    ]


async def show(session: CustomerSession) -> Response:
    done = DONE.get(session.request.query_params.get("done", ""))
    source = await _find_source(session, session.request.query_params.get("from", ""))
    return await _page(session, {}, source=source, done=done)


async def _page(
    session: CustomerSession,
    faults: Faults,
    status: int = 200,
    *,
    filled: Mapping[str, str] | None = None,
    source: Source | None = None,
    done: str | None = None,
) -> Response:
    async with session.database.connection() as connection:
        lists = await store.list_lists(connection, session.account_id)
        texts = await text_store.list_texts(connection, session.account_id)
    return session.page(
        "lists.html.jinja",
        status,
        lists=lists,
        texts=len(texts),
        faults=faults,
        filled=filled or {"name": ""},
        source=source,
        done=done,
        lists_max=LISTS_MAX,
        contacts_max=CONTACTS_MAX,
        name_max=LIST_NAME_MAX,
    )


async def create(session: CustomerSession) -> Response:
    form = await NewListForm.read(session.request)
    source = await _find_source(session, form.source.data)
    try:
        with form.blame():
            list_id = await manage.create_list(
                session.database,
                session.account_id,
                form.name.data,
                session.actor,
                [] if source is None else source.numbers,
            )
    except FormRefused as refused:
        return await _page(session, refused.faults, refused.status, filled=refused.filled, source=source)
    return redirect(f"{list_path(list_id)}?done=created")


async def _find_source(session: CustomerSession, text: str) -> Source | None:
    """Find the batch or file that a new list is made of; None if it is made of nothing."""
    if not text:
        return None
    batch_id, upload_id = read_id(BATCH, text), read_id(UPLOAD, text)
    numbers: Sequence[str] = []
    if batch_id is not None:
        numbers = await _list_of_batch(session, BatchId(batch_id))
    elif upload_id is not None:
        numbers = await _list_of_file(session, UploadId(upload_id))
    kept = [number for number in dict.fromkeys(numbers) if number[1:].isdigit()]
    if not kept:
        raise HTTPException(404, _(_NO_SOURCE))
    return Source(text, kept)


async def _list_of_batch(session: CustomerSession, batch_id: BatchId) -> Sequence[str]:
    async with session.database.connection() as connection:
        messages, _is_more = await batches.list_messages(connection, session.account_id, batch_id)
    return [one.recipient for one in messages]


async def _list_of_file(session: CustomerSession, upload_id: UploadId) -> Sequence[str]:
    numbers: list[str] = []
    async with session.database.connection() as connection:
        if await uploads.find(connection, session.account_id, upload_id) is None:
            return []
        for start in range(0, ROWS_MAX, CHUNK_MAX):
            rows = await upload_chunks.list_good(connection, upload_id, start, CHUNK_MAX)
            numbers += [row.recipient for row in rows]
    return numbers
