"""What Compose and Upload offer from lists and saved texts, and the file that a send to lists becomes."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from tumira.contacts import list_file, store, text_store
from tumira.contacts.list_file import Part, Selection
from tumira.contacts.store import ContactList
from tumira.contacts.text_store import SavedText
from tumira.core.ids import CONTACT_LIST, SAVED_TEXT, ContactListId, SavedTextId, ScheduleId, new_id, read_id
from tumira.core.translation import _
from tumira.dashboard.session import CustomerSession
from tumira.html.forms import FormRefused
from tumira.html.paging import read_number
from tumira.pricing.destinations import RECIPIENTS_MAX
from tumira.pricing.gsm7 import is_blank
from tumira.pricing.phone_numbers import country_of, read_recipients
from tumira.pricing.quote import REFERENCE_MAX
from tumira.pricing.store import get_tariff
from tumira.sending.compose import Draft
from tumira.uploads import kept_files
from tumira.uploads.check_rows import Wanted
from tumira.uploads.csv_file import BYTES_MAX, ROWS_MAX
from tumira.uploads.kept_files import KeptFile
from tumira.uploads.places import MessageError

PARTS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ContactChoices:
    """Lists and texts to choose from, the lists that are chosen, and the parts in which they are sent."""

    lists: Sequence[ContactList]
    texts: Sequence[SavedText]
    selection: Selection
    # Counted from 1; 0 if none is chosen.
    part: int

    @property
    def chosen(self) -> Collection[ContactListId]:
        return [one.id for one in self.selection.lists]


async def list_choices(
    session: CustomerSession, written_ids: Sequence[str] = (), part: str = ""
) -> ContactChoices:
    """Return what a page offers, with lists chosen by their ids; those of others count as unknown."""
    async with session.database.connection() as connection:
        lists = await store.list_lists(connection, session.account_id)
        texts = await text_store.list_texts(connection, session.account_id)
        chosen = {read_id(CONTACT_LIST, one) for one in written_ids}
        selection = await list_file.select_lists(connection, [one for one in lists if one.id in chosen])
    return ContactChoices(lists, texts, selection, read_number(part, PARTS_MAX, 0))


async def find_message(session: CustomerSession, written_id: str) -> str | None:
    """Return the message of a saved text; None for an unknown one and for another account's."""
    text_id = read_id(SAVED_TEXT, written_id)
    if text_id is None:
        return None
    async with session.database.connection() as connection:
        saved = await text_store.find_text(connection, session.account_id, SavedTextId(text_id))
    return None if saved is None else saved.message


async def keep_file(
    session: CustomerSession,
    draft: Draft,
    choices: ContactChoices,
    start_at: datetime | None,
    replaces: ScheduleId | None,
) -> tuple[UUID, Wanted]:
    """Write and keep the file in which a draft is sent to lists and to numbers beside them; or refuse it.

    It shall be sent at `start_at`, in place of the scheduled send that it replaces.
    """
    selection = choices.selection
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        home = country_of(tariff, session.customer.phone)
        entries = read_recipients(tariff, draft.recipients, home)
        chosen = _choose_part(selection, choices.part)
        _refuse(draft, selection, chosen, len(entries))
        assert chosen is not None
        try:
            data = await list_file.write_part(
                connection, selection, chosen, draft.message, [entry.number for entry in entries]
            )
        except MessageError as error:
            raise FormRefused({"message": str(error)}) from error
    if len(data) > BYTES_MAX:
        said = _("These contacts take more than {most} MB. Remove columns from the lists.")
        raise FormRefused({"lists": said.format(most=BYTES_MAX // 1024**2)})
    kept = KeptFile(
        id=new_id(time.time_ns() // 1_000_000),
        file_name=selection.name_file(chosen),
        message=draft.message,
        country=home or "",
        reference=draft.reference,
        upload_id=None,
        start_at=start_at,
        replaces=replaces,
    )
    async with session.database.transaction() as connection:
        await kept_files.keep(connection, session.account_id, kept, data)
    wanted = Wanted(
        kept.file_name,
        data,
        draft.message,
        home,
        draft.reference or None,
        start_at=start_at,
        replaces=replaces,
    )
    return kept.id, wanted


def _choose_part(selection: Selection, place: int) -> Part | None:
    """Return the part that is chosen; the only one needs no choice."""
    if len(selection.parts) == 1:
        return selection.parts[0]
    return selection.parts[place - 1] if 0 < place <= len(selection.parts) else None


def _refuse(draft: Draft, selection: Selection, part: Part | None, numbers: int) -> None:
    """Refuse what cannot become a file."""
    faults: dict[str, str] = {}
    if not selection.contacts:
        faults["lists"] = _("These lists have no contacts.")
    elif part is None:
        said = _("One send reaches up to {most} contacts. Choose a part, and send the others afterwards.")
        faults["lists"] = said.format(most=f"{ROWS_MAX:,}")
    if numbers > RECIPIENTS_MAX or (part and numbers + part.last - part.first >= ROWS_MAX):
        faults["recipients"] = _("These are too many numbers beside the lists. Send to them separately.")
    if is_blank(draft.message):
        faults["message"] = _("Enter a message.")
    if len(draft.reference) > REFERENCE_MAX:
        faults["reference"] = _("Enter a reference of at most {most} characters.").format(most=REFERENCE_MAX)
    if faults:
        raise FormRefused(faults)
