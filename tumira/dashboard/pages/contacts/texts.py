"""Saved texts: written once with places, checked, and used in Compose and Upload."""

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.contacts import manage_texts, text_store
from tumira.contacts.list_rules import LIST_NAME_MAX
from tumira.contacts.manage_texts import MESSAGE_MAX, TEXTS_MAX
from tumira.contacts.text_store import SavedText
from tumira.content.review import REVIEW_NOTE_MAX
from tumira.core.ids import BATCH, SAVED_TEXT, UPLOAD, BatchId, SavedTextId, UploadId, read_id, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.drafts import describe_draft, examine_pattern, find_content, send_for_review
from tumira.dashboard.pages.compose import TEXT_REVIEW
from tumira.dashboard.pages.contacts.lists import TYPED_MAX
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Faults, Form, FormRefused, TextField, read_path_id
from tumira.html.guards import or_404
from tumira.html.redirect import redirect
from tumira.identity.person_rules import clean_name
from tumira.pricing.segments import SEGMENTS_MAX
from tumira.sending import batches
from tumira.sending.compose import Draft
from tumira.topups.states import TOP_UP_MIN
from tumira.uploads import chunks as upload_chunks
from tumira.uploads import store as uploads
from tumira.uploads.places import without_places

TEXTS: Final = "/dashboard/texts"
NEW: Final = TEXTS + "/new"
DONE: Final = {
    "saved": mark("The text was saved."),
    "refused": mark("The text was saved, but it would be refused: it reads like marketing."),
    "deleted": mark("The text was deleted."),
}
_NO_TEXT: Final = mark("This text does not exist. It may have been deleted")
_GONE: Final = mark("This text is not kept any more")


class SavedTextForm(Form):
    name = TextField(clean=clean_name, cut=TYPED_MAX)
    message = TextField(clean=str, cut=2 * MESSAGE_MAX)
    note = TextField(cut=REVIEW_NOTE_MAX)
    # The text that is changed, where a review is asked for; empty for a new one.
    text = TextField()


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, TEXTS, show_all),
        private(services, TEXTS, save_new, "POST"),
        private(services, NEW, show_new),
        private(services, TEXT_REVIEW, begin_again),
        private(services, TEXT_REVIEW, ask_review, "POST"),
        private(services, TEXTS + "/{id}", show),
        private(services, TEXTS + "/{id}", save, "POST"),
        private(services, TEXTS + "/{id}/delete", delete, "POST"),
    ]


async def show_all(session: CustomerSession) -> Response:
    async with session.database.connection() as connection:
        texts = await text_store.list_texts(connection, session.account_id)
    done = DONE.get(session.request.query_params.get("done", ""))
    return session.page("texts.html.jinja", texts=texts, done=done, texts_max=TEXTS_MAX)


async def begin_again(_session: CustomerSession) -> Response:
    """Lead who comes without a text, after signing in again perhaps, to the form."""
    return redirect(NEW)


async def show_new(session: CustomerSession) -> Response:
    """Show an empty form, or the text of a batch or a file."""
    message = await _find_sent(session, session.request.query_params.get("from", ""))
    return await _form(session, None, {"name": "", "message": message}, {})


async def show(session: CustomerSession) -> Response:
    saved = await _find(session)
    return await _form(session, saved, {"name": saved.name, "message": saved.message}, {})


async def _find(session: CustomerSession) -> SavedText:
    text_id = SavedTextId(read_path_id(session.request, SAVED_TEXT, _(_NO_TEXT)))
    async with session.database.connection() as connection:
        return or_404(await text_store.find_text(connection, session.account_id, text_id), _(_NO_TEXT))


async def _find_sent(session: CustomerSession, text: str) -> str:
    """Return the message of a batch or a file, with its places; empty if none is asked for."""
    if not text:
        return ""
    batch_id, upload_id = read_id(BATCH, text), read_id(UPLOAD, text)
    message: str | None = None
    async with session.database.connection() as connection:
        if batch_id is not None:
            batch = await batches.find(connection, session.account_id, BatchId(batch_id))
            if batch is not None and batch.body is not None:
                message = batch.body if batch.has_places else without_places(batch.body)
        elif upload_id is not None:
            upload = await uploads.find(connection, session.account_id, UploadId(upload_id))
            if upload is not None:
                start = await upload_chunks.find_next_good(connection, upload.id, 0)
                rows = await upload_chunks.list_good(connection, upload.id, start or 0, 1)
                has_places = any(row.body is not None for row in rows)
                message = upload.message if has_places else without_places(upload.message)
    if not message:
        raise HTTPException(404, _(_GONE))
    return message


async def _form(
    session: CustomerSession,
    saved: SavedText | None,
    filled: Mapping[str, str],
    faults: Faults,
    status: int = 200,
    said: str | None = None,
) -> Response:
    draft = Draft("", filled["message"], "")
    review = await examine_pattern(session, draft.message)
    return session.page(
        "text.html.jinja",
        status,
        saved=saved,
        here_path=TEXTS if saved is None else f"{TEXTS}/{write_id(SAVED_TEXT, saved.id)}",
        filled=filled,
        faults=faults,
        said=said,
        found=await describe_draft(session, draft, review, filled.get("note", "")),
        review_path=TEXT_REVIEW,
        name_max=LIST_NAME_MAX,
        message_max=MESSAGE_MAX,
        segments_max=SEGMENTS_MAX,
        top_up_min=TOP_UP_MIN,
    )


async def save_new(session: CustomerSession) -> Response:
    return await _save(session, None)


async def save(session: CustomerSession) -> Response:
    return await _save(session, await _find(session))


async def _save(session: CustomerSession, saved: SavedText | None) -> Response:
    form = await SavedTextForm.read(session.request)
    try:
        with form.blame():
            await manage_texts.save_text(
                session.database,
                session.account_id,
                form.name.data,
                form.message.data,
                session.actor,
                None if saved is None else saved.id,
            )
    except FormRefused as refused:
        return await _form(session, saved, refused.filled, refused.faults, refused.status)
    refused_text = find_content(await examine_pattern(session, form.message.data)) is not None
    return redirect(f"{TEXTS}?done={'refused' if refused_text else 'saved'}")


async def delete(session: CustomerSession) -> Response:
    saved = await _find(session)
    await manage_texts.delete_text(session.database, session.account_id, saved.id, session.actor)
    return redirect(f"{TEXTS}?done=deleted")


async def ask_review(session: CustomerSession) -> Response:
    """Keep a refused text for the operator to review, and show the form again."""
    form = await SavedTextForm.read(session.request)
    saved: SavedText | None = None
    text_id = read_id(SAVED_TEXT, form.text.data)
    if text_id is not None:
        async with session.database.connection() as connection:
            saved = await text_store.find_text(connection, session.account_id, SavedTextId(text_id))
    draft = Draft("", form.message.data, "")
    review = await examine_pattern(session, draft.message)
    answer = await send_for_review(session, draft, review, form.note.data)
    return await _form(session, saved, form.filled, answer.faults, answer.status, answer.said)
