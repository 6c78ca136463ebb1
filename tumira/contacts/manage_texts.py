"""Changes that customers make to their saved texts."""

import time
from typing import Final

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.contacts import store, text_store
from tumira.contacts.list_rules import check_list_name
from tumira.core.errors import FieldError
from tumira.core.ids import AccountId, SavedTextId, new_id
from tumira.core.translation import _
from tumira.postgres.pool import Database
from tumira.uploads.places import MessageError, read_places

TEXTS_MAX: Final = 100
# More than a message may have: its places are longer than what they are filled with.
MESSAGE_MAX: Final = 1_000


async def save_text(
    database: Database,
    account_id: AccountId,
    name: str,
    message: str,
    actor: Actor,
    text_id: SavedTextId | None = None,
) -> SavedTextId:
    """Save a text, or change one, whatever the content check says of it: that is said beside it."""
    _check(name, message)
    async with database.transaction() as connection:
        await store.lock(connection, account_id)
        texts = await text_store.list_texts(connection, account_id)
        others = [one for one in texts if one.id != text_id]
        if name.lower() in (one.name.lower() for one in others):
            raise FieldError("name", _("You already have a text with this name."))
        is_new = len(others) == len(texts)
        if is_new and len(texts) >= TEXTS_MAX:
            said = _("You have {most} texts, the most that can be kept. Delete one first.")
            raise FieldError("name", said.format(most=TEXTS_MAX))
        if is_new:
            text_id = SavedTextId(new_id(time.time_ns() // 1_000_000))
        assert text_id is not None
        await text_store.put_text(connection, account_id, text_id, name, message)
        what = "text saved" if is_new else "text changed"
        await audit_log.record(connection, account_id, actor, what, name)
    return text_id


def _check(name: str, message: str) -> None:
    fault = check_list_name(name)
    if fault is not None:
        raise FieldError("name", fault)
    if len(message) > MESSAGE_MAX:
        raise FieldError("message", _("Enter at most {length} characters.").format(length=MESSAGE_MAX))
    try:
        read_places(message)
    except MessageError as error:
        raise FieldError("message", str(error)) from error


async def delete_text(database: Database, account_id: AccountId, text_id: SavedTextId, actor: Actor) -> bool:
    """Delete a text; False for an unknown one and for another account's."""
    async with database.transaction() as connection:
        name = await text_store.delete_text(connection, account_id, text_id)
        if name is not None:
            await audit_log.record(connection, account_id, actor, "text deleted", name)
    return name is not None
