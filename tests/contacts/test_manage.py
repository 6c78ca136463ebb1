"""Lists and texts are kept within bounds, and belong to their account alone."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from tests.postgres.test_statements import plan
from tests.support.delivery.engine import Engine
from tests.support.processes.service import Caller
from tumira.audit_log import OWNER, Actor
from tumira.contacts import list_file, manage, manage_texts, store, text_store
from tumira.contacts.list_rules import (
    CELLS_MAX,
    CONTACTS_MAX,
    LISTS_MAX,
)
from tumira.contacts.manage import Imported
from tumira.contacts.manage_texts import MESSAGE_MAX, TEXTS_MAX
from tumira.contacts.store import ContactList
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import AccountId, ContactListId, SavedTextId, new_id
from tumira.operations.erasure import erase as erase_number
from tumira.replies import opt_outs
from tumira.replies.opt_outs import OptOutSource
from tumira.uploads.csv_file import ROWS_MAX, read_csv

OWN: Final = Actor(OWNER, "198.18.0.1")
ONE: Final = "+263771200001"
TWO: Final = "+263771200002"
FILL: Final = """
INSERT INTO contacts (list_id, number, cells)
SELECT $1, '+26377' || lpad(place::text, 7, '0'), ARRAY['Person ' || place]
  FROM generate_series(1, $2::integer) AS place
"""


async def new_list(engine: Engine, caller: Caller, name: str = "Members", *numbers: str) -> ContactListId:
    return await manage.create_list(engine.database, caller.id, name, OWN, numbers)


async def put(
    engine: Engine, caller: Caller, list_id: ContactListId, number: str, *cells: str, **more: str
) -> str:
    return await manage.put_contact(engine.database, caller.id, list_id, number, cells, "ZW", OWN, **more)


async def bring(engine: Engine, caller: Caller, list_id: ContactListId, text: str) -> Imported:
    file = read_csv(text.encode())
    return await manage.import_file(engine.database, caller.id, list_id, file, "ZW", OWN)


async def find(engine: Engine, account_id: AccountId, list_id: ContactListId) -> ContactList | None:
    async with engine.database.connection() as connection:
        return await store.find_list(connection, account_id, list_id)


async def contacts(
    engine: Engine, caller: Caller, list_id: ContactListId, **search: str
) -> Mapping[str, Sequence[str]]:
    found = await find(engine, caller.id, list_id)
    assert found is not None
    async with engine.database.connection() as connection:
        listed = await store.list_contacts(connection, found, 100, **search)
    return {one.number: one.cells for one in listed}


async def changes(engine: Engine, caller: Caller) -> Sequence[tuple[str, str]]:
    rows = await engine.rows(
        "SELECT what, detail FROM changes WHERE account_id = $1 AND what <> 'key created' ORDER BY id",
        caller.id,
    )
    return [(row["what"], row["detail"]) for row in rows]


async def test_a_list_is_filled_changed_and_deleted(engine: Engine) -> None:
    caller = await engine.open_account()
    list_id = await new_list(engine, caller)
    assert await put(engine, caller, list_id, "077 120 0001", " Ada ") == ONE
    imported = await bring(engine, caller, list_id, f"to,amount\n{ONE},5\n0771200002,7\n12,9")
    assert (imported.added, imported.updated, imported.repeated, len(imported.faults)) == (1, 1, 0, 1)
    assert await contacts(engine, caller, list_id) == {ONE: ["Ada", "5"], TWO: ["", "7"]}

    await manage.rename_column(engine.database, caller.id, list_id, "amount", "due", OWN)
    await manage.add_column(engine.database, caller.id, list_id, "town", OWN)
    await put(engine, caller, list_id, TWO, "Ben", "8", "Harare", before=TWO)
    await manage.remove_column(engine.database, caller.id, list_id, "due", OWN)
    assert await contacts(engine, caller, list_id) == {ONE: ["Ada"], TWO: ["Ben", "Harare"]}
    found = await find(engine, caller.id, list_id)
    assert found is not None
    assert (found.columns, found.contacts) == (["name", "town"], 2)

    # A contact gets another number; its old one is gone.
    await put(engine, caller, list_id, "0771200003", "Ben", before=TWO)
    assert list(await contacts(engine, caller, list_id)) == [ONE, "+263771200003"]
    assert await manage.remove_contact(engine.database, caller.id, list_id, ONE, OWN)
    assert not await manage.remove_contact(engine.database, caller.id, list_id, ONE, OWN)
    await manage.rename_list(engine.database, caller.id, list_id, "Guests", OWN)
    await manage.delete_list(engine.database, caller.id, list_id, OWN)
    assert await find(engine, caller.id, list_id) is None
    assert await engine.rows("SELECT FROM contacts WHERE list_id = $1", list_id) == []
    assert await changes(engine, caller) == [
        ("list created", "Members"),
        ("contact added", "Members: number ending in 001"),
        ("contacts imported", "Members: 1 added, 1 updated"),
        ("list column renamed", "Members: amount to due"),
        ("list column added", "Members: town"),
        ("contact changed", "Members: number ending in 002"),
        ("list column removed", "Members: due"),
        ("contact changed", "Members: number ending in 003"),
        ("contact removed", "Members: number ending in 001"),
        ("list renamed", "Members to Guests"),
        ("list deleted", "Guests, 1 contacts"),
    ]


async def test_what_cannot_be_kept_is_refused_beside_its_field(engine: Engine) -> None:
    caller = await engine.open_account()
    list_id = await new_list(engine, caller, "Members", ONE)
    await put(engine, caller, list_id, TWO, "x" * CELLS_MAX)

    async def refused(field: str, call: object) -> str:
        with pytest.raises(FieldError) as error:
            await call  # type: ignore[misc]
        assert error.value.field == field
        return str(error.value)

    assert "already have a list" in await refused("name", new_list(engine, caller, "MEMBERS"))
    await refused("name", new_list(engine, caller, ""))
    await refused("number", put(engine, caller, list_id, "12"))
    assert "already in the list" in await refused("number", put(engine, caller, list_id, ONE))
    assert "already in the list" in await refused("number", put(engine, caller, list_id, ONE, before=TWO))
    await refused("", put(engine, caller, list_id, "0771200003", "x" * (CELLS_MAX + 1)))
    await refused("column", manage.add_column(engine.database, caller.id, list_id, "Name", OWN))
    await refused("column", manage.remove_column(engine.database, caller.id, list_id, "gone", OWN))
    await refused("file", bring(engine, caller, list_id, "to,{x}\n0771200001,1"))
    # What would become too long stays as it was.
    imported = await bring(engine, caller, list_id, f"to,amount\n{TWO},5")
    assert [one.cells for one in imported.faults] == [[TWO, ""]]
    assert await contacts(engine, caller, list_id) == {ONE: [], TWO: ["x" * CELLS_MAX]}


async def test_an_account_has_so_many_lists_and_texts_at_most(engine: Engine) -> None:
    caller = await engine.open_account()
    for place in range(LISTS_MAX):
        await new_list(engine, caller, f"List {place}")
    with pytest.raises(FieldError, match="the most that can be kept"):
        await new_list(engine, caller, "One more")
    for place in range(TEXTS_MAX):
        await manage_texts.save_text(engine.database, caller.id, f"Text {place}", "Hello {name}", OWN)
    with pytest.raises(FieldError, match="the most that can be kept"):
        await manage_texts.save_text(engine.database, caller.id, "One more", "Hello", OWN)


@pytest.mark.long
async def test_an_account_has_so_many_contacts_at_most_and_sends_to_them_in_parts(engine: Engine) -> None:
    caller = await engine.open_account()
    first, second = await new_list(engine, caller), await new_list(engine, caller, "More")
    await engine.rows(FILL, first, CONTACTS_MAX - 1)
    # Of two at once, one finds room.
    outcomes = await asyncio.gather(
        *(put(engine, caller, second, f"+27821230{place:03}") for place in range(2)), return_exceptions=True
    )
    assert [isinstance(one, FieldError) for one in outcomes].count(True) == 1
    with pytest.raises(FieldError, match="exceed 100,000"):
        await bring(engine, caller, second, "to\n0821230009\n+27821230008")
    with pytest.raises(FieldError, match="exceed 100,000"):
        await new_list(engine, caller, "Third", ONE)

    # The longest list is sent in parts, and searched as a whole.
    async with engine.database.connection() as connection:
        lists = [one for one in await store.list_lists(connection, caller.id) if one.contacts]
        selection = await list_file.select_lists(connection, lists)
        assert selection.contacts == CONTACTS_MAX
        assert [(part.first, part.last) for part in selection.parts] == [
            (start + 1, start + ROWS_MAX) for start in range(0, CONTACTS_MAX, ROWS_MAX)
        ]
        seen = [
            row.cells[0]
            for part in selection.parts[-2:]
            for row in read_csv(await list_file.write_part(connection, selection, part, "Hi {name}")).rows
        ]
    assert len(set(seen)) == len(seen) == 2 * ROWS_MAX
    assert list(await contacts(engine, caller, first, text="person 99999")) == ["+263770099999"]
    assert list(await contacts(engine, caller, first, text="099999", digits="099999")) == ["+263770099999"]


async def test_pages_and_sends_walk_through_a_list_by_its_key(engine: Engine) -> None:
    """As many rows as make a sequential scan tempting, in a table that nobody analysed."""
    caller = await engine.open_account()
    list_id = await new_list(engine, caller)
    await engine.rows(FILL, list_id, 20_000)
    values = {
        "account_id": caller.id,
        "list_id": list_id,
        "number": ONE,
        "numbers": f"{{{ONE},{TWO}}}",
        "after": ONE,
        "text": "",
        "digits": "",
        "count_max": 50,
    }
    async with engine.database.connection() as connection:
        for statement, index in (
            (store.SQL_LIST_CONTACTS, "contacts_pkey"),
            (store.SQL_LIST_NUMBERS, "contacts_pkey"),
            (store.SQL_FIND_CELLS, "contacts_pkey"),
            (store.SQL_LIST_MEMBERSHIPS, "contacts_by_number"),
        ):
            found = await plan(connection, statement, values)
            assert f'"Index Name": "{index}"' in found, statement.text
            scanned = re.findall(r'"Node Type": "Seq Scan"[^}]*?"Relation Name": "(\w+)"', found)
            assert "contacts" not in scanned, statement.text


async def test_nobody_changes_or_sees_a_list_or_text_of_another(engine: Engine) -> None:
    owner, other = await engine.open_account(), await engine.open_account()
    list_id = await new_list(engine, owner, "Members", ONE)
    text_id = await manage_texts.save_text(engine.database, owner.id, "Hello", "Hello {name}", OWN)
    unknown = ContactListId(new_id(0))
    for foreign in (list_id, unknown):
        assert await find(engine, other.id, foreign) is None
        for call in (
            manage.rename_list(engine.database, other.id, foreign, "Mine", OWN),
            manage.delete_list(engine.database, other.id, foreign, OWN),
            manage.add_column(engine.database, other.id, foreign, "x", OWN),
            put(engine, other, foreign, TWO),
            manage.remove_contact(engine.database, other.id, foreign, ONE, OWN),
            bring(engine, other, foreign, f"to\n{TWO}"),
        ):
            with pytest.raises(OperatorError, match="This list was deleted"):
                await call
    async with engine.database.connection() as connection:
        assert await store.list_lists(connection, other.id) == []
        assert await text_store.find_text(connection, other.id, text_id) is None
    assert not await manage_texts.delete_text(engine.database, other.id, text_id, OWN)
    # The id of another's text is as good as none: a text of their own is saved.
    own = await manage_texts.save_text(engine.database, other.id, "Hello", "Mine", OWN, text_id)
    assert own != text_id
    async with engine.database.connection() as connection:
        kept = await text_store.find_text(connection, owner.id, text_id)
    assert kept is not None
    assert kept.message == "Hello {name}"
    assert await contacts(engine, owner, list_id) == {ONE: []}


async def test_opt_outs_are_shown_beside_contacts(engine: Engine) -> None:
    caller, other = await engine.open_account(), await engine.open_account()
    list_id = await new_list(engine, caller, "Members", ONE, TWO)
    async with engine.database.transaction() as connection:
        await opt_outs.add(connection, caller.id, [ONE], OptOutSource.REPLY)
        await opt_outs.add(connection, other.id, [TWO], OptOutSource.REPLY)
    found = await find(engine, caller.id, list_id)
    assert found is not None
    async with engine.database.connection() as connection:
        listed = await store.list_contacts(connection, found, 10)
    assert [(one.number, one.opted_out) for one in listed] == [(ONE, True), (TWO, False)]


async def test_texts_are_saved_changed_and_deleted(engine: Engine) -> None:
    caller = await engine.open_account()
    text_id = await manage_texts.save_text(
        engine.database, caller.id, "Parcel", "Dear {name}, it is here.", OWN
    )
    same = await manage_texts.save_text(engine.database, caller.id, "Parcel", "Dear {name}!", OWN, text_id)
    assert same == text_id
    for name, message, words in (
        ("parcel", "Hello", "already have a text"),
        ("", "Hello", "Enter a name"),
        ("Empty", " ", "Write the message"),
        ("Brace", "Dear {name", "write it twice"),
        ("Long", "x" * (MESSAGE_MAX + 1), f"at most {MESSAGE_MAX}"),
    ):
        with pytest.raises(FieldError, match=words):
            await manage_texts.save_text(engine.database, caller.id, name, message, OWN)
    async with engine.database.connection() as connection:
        texts = await text_store.list_texts(connection, caller.id)
    assert [(one.name, one.message) for one in texts] == [("Parcel", "Dear {name}!")]
    assert await manage_texts.delete_text(engine.database, caller.id, text_id, OWN)
    assert not await manage_texts.delete_text(engine.database, caller.id, SavedTextId(text_id), OWN)
    assert [what for what, _ in await changes(engine, caller)] == [
        "text saved",
        "text changed",
        "text deleted",
    ]


@pytest.mark.long
async def test_imports_an_erasure_and_a_lost_column_at_once_leave_every_number_once(engine: Engine) -> None:
    caller = await engine.open_account()
    list_id = await new_list(engine, caller)
    await manage.add_column(engine.database, caller.id, list_id, "amount", OWN)
    numbers = [f"+2637712{place:05}" for place in range(300)]
    gone = numbers[7]
    subject = await erase_number.read_number(engine.database, gone)

    async def bring_some(start: int) -> None:
        rows = [f"{number},Person {start},{start}" for number in numbers[start : start + 100]]
        await bring(engine, caller, list_id, "\n".join(["to,name,amount", *rows]))

    await bring_some(0)
    await asyncio.gather(
        *(bring_some(start) for start in range(10, 201, 10)),
        manage.remove_column(engine.database, caller.id, list_id, "amount", OWN),
        erase_number.erase_number(
            engine.database, subject, note="a letter", actor=OWN, tell=lambda _step: None
        ),
    )
    found = await find(engine, caller.id, list_id)
    assert found is not None
    assert found.contacts == len(numbers) - 1
    assert gone not in await contacts(engine, caller, list_id)
    assert await engine.rows("SELECT FROM erasures WHERE finished_at IS NULL") == []
