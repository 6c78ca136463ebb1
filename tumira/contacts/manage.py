"""Changes that customers make to their contact lists."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.contacts import list_rules, store
from tumira.contacts.list_rules import (
    CONTACTS_MAX,
    FIRST_COLUMNS,
    LISTS_MAX,
    Cells,
    ListError,
    check_cells,
    check_column,
    check_list_name,
    clean_cells,
    merge_cells,
    read_contacts,
)
from tumira.contacts.store import ContactList
from tumira.core.errors import FieldError, OperatorError
from tumira.core.ids import AccountId, ContactListId, new_id
from tumira.core.translation import _
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import read_phone
from tumira.pricing.store import get_tariff
from tumira.uploads.csv_file import CsvFile
from tumira.uploads.rows import RowFault


class Imported(Struct, frozen=True):
    """The outcome of an import."""

    added: int
    # In the list before.
    updated: int
    # Rows with a number of a row before.
    repeated: int
    faults: Sequence[RowFault]


async def create_list(
    database: Database, account_id: AccountId, name: str, actor: Actor, numbers: Sequence[str] = ()
) -> ContactListId:
    """Create a list, empty or with some numbers that messages were sent to."""
    list_id = ContactListId(new_id(time.time_ns() // 1_000_000))
    async with database.transaction() as connection:
        await store.lock(connection, account_id)
        lists = await store.list_lists(connection, account_id)
        if len(lists) >= LISTS_MAX:
            said = _("You have {most} lists, the most that can be kept. Delete one first.")
            raise FieldError("name", said.format(most=LISTS_MAX))
        _check_name(name, lists)
        await store.insert_list(connection, account_id, list_id, name, FIRST_COLUMNS)
        await _make_room(connection, account_id, len(numbers), "name")
        await store.put_contacts(connection, list_id, dict.fromkeys(numbers, ()))
        detail = f"{name}, {len(numbers)} contacts" if numbers else name
        await audit_log.record(connection, account_id, actor, "list created", detail)
    return list_id


def _check_name(name: str, others: Sequence[ContactList]) -> None:
    fault = check_list_name(name)
    if fault is None and name.lower() in (one.name.lower() for one in others):
        fault = _("You already have a list with this name.")
    if fault is not None:
        raise FieldError("name", fault)


async def _make_room(connection: Connection, account_id: AccountId, more: int, field: str) -> None:
    """Refuse more contacts than an account may have."""
    kept = await store.count_contacts(connection, account_id)
    if kept + more > CONTACTS_MAX:
        said = _("Your lists have {kept} contacts. With {more} more they exceed {most}. Delete some first.")
        raise FieldError(field, said.format(kept=f"{kept:,}", more=f"{more:,}", most=f"{CONTACTS_MAX:,}"))


async def _hold(connection: Connection, account_id: AccountId, list_id: ContactListId) -> ContactList:
    """Return a list that nobody else changes now."""
    await store.lock(connection, account_id)
    found = await store.find_list(connection, account_id, list_id)
    if found is None:
        raise OperatorError(_("This list was deleted."))
    return found


async def rename_list(
    database: Database, account_id: AccountId, list_id: ContactListId, name: str, actor: Actor
) -> None:
    async with database.transaction() as connection:
        held = await _hold(connection, account_id, list_id)
        others = await store.list_lists(connection, account_id)
        _check_name(name, [one for one in others if one.id != list_id])
        await store.rename_list(connection, list_id, name)
        await audit_log.record(connection, account_id, actor, "list renamed", f"{held.name} to {name}")


async def delete_list(
    database: Database, account_id: AccountId, list_id: ContactListId, actor: Actor
) -> None:
    """Delete a list with all its contacts."""
    async with database.transaction() as connection:
        held = await _hold(connection, account_id, list_id)
        await store.delete_list(connection, list_id)
        detail = f"{held.name}, {held.contacts} contacts"
        await audit_log.record(connection, account_id, actor, "list deleted", detail)


async def add_column(
    database: Database, account_id: AccountId, list_id: ContactListId, name: str, actor: Actor
) -> None:
    async with database.transaction() as connection:
        held = await _hold(connection, account_id, list_id)
        try:
            columns = list_rules.add_column(held.columns, name)
        except ListError as error:
            raise FieldError("column", str(error)) from error
        await store.set_columns(connection, list_id, columns)
        await _record_column(connection, held, actor, "column added", name)


async def rename_column(
    database: Database, account_id: AccountId, list_id: ContactListId, old: str, new: str, actor: Actor
) -> None:
    async with database.transaction() as connection:
        held = await _hold(connection, account_id, list_id)
        place = _find_column(held, old)
        fault = check_column(new, [*held.columns[:place], *held.columns[place + 1 :]])
        if fault is not None:
            raise FieldError("column", fault)
        columns = [*held.columns[:place], new, *held.columns[place + 1 :]]
        await store.set_columns(connection, list_id, columns)
        await _record_column(connection, held, actor, "column renamed", f"{old} to {new}")


async def remove_column(
    database: Database, account_id: AccountId, list_id: ContactListId, name: str, actor: Actor
) -> None:
    """Remove a column, with what all contacts have in it."""
    async with database.transaction() as connection:
        held = await _hold(connection, account_id, list_id)
        place = _find_column(held, name)
        await store.remove_cells(connection, list_id, place)
        await store.set_columns(connection, list_id, [*held.columns[:place], *held.columns[place + 1 :]])
        await _record_column(connection, held, actor, "column removed", name)


def _find_column(held: ContactList, name: str) -> int:
    if name not in held.columns:
        raise FieldError("column", _("This list has no column “{name}” any more.").format(name=name))
    return held.columns.index(name)


async def _record_column(
    connection: Connection, held: ContactList, actor: Actor, what: str, detail: str
) -> None:
    await audit_log.record(connection, held.account_id, actor, f"list {what}", f"{held.name}: {detail}")


async def put_contact(
    database: Database,
    account_id: AccountId,
    list_id: ContactListId,
    written: str,
    cells: Sequence[str],
    country: str | None,
    actor: Actor,
    *,
    before: str | None = None,
) -> str:
    """Add a contact, or change the one with the number `before`, and return its number."""
    async with database.transaction() as connection:
        held = await _hold(connection, account_id, list_id)
        number = read_phone(await get_tariff(connection), written, country)
        if number is None:
            raise FieldError(
                "number", _("Enter a mobile number, for example 0771200001 or +263 77 120 0001.")
            )
        kept = clean_cells(cells, len(held.columns))
        problem = check_cells(kept)
        if problem is not None:
            raise FieldError("", problem)
        if number != before:
            if await store.find_cells(connection, list_id, [number]):
                raise FieldError("number", _("This number is already in the list."))
            if before is None or not await store.delete_contact(connection, list_id, before):
                await _make_room(connection, account_id, 1, "")
        await store.put_contacts(connection, list_id, {number: kept})
        what = "contact added" if before is None else "contact changed"
        await _record_contact(connection, held, actor, what, number)
    return number


async def _record_contact(
    connection: Connection, held: ContactList, actor: Actor, what: str, number: str
) -> None:
    # History is kept longer than numbers may be.
    detail = f"{held.name}: number ending in {number[-3:]}"
    await audit_log.record(connection, held.account_id, actor, what, detail)


async def remove_contact(
    database: Database, account_id: AccountId, list_id: ContactListId, number: str, actor: Actor
) -> bool:
    async with database.transaction() as connection:
        held = await _hold(connection, account_id, list_id)
        is_gone = await store.delete_contact(connection, list_id, number)
        if is_gone:
            await _record_contact(connection, held, actor, "contact removed", number)
        return is_gone


async def import_file(
    database: Database,
    account_id: AccountId,
    list_id: ContactListId,
    file: CsvFile,
    country: str | None,
    actor: Actor,
) -> Imported:
    """Add the contacts of a file to a list; those that are in it get the file's values.

    Numbers without a country code are numbers of `country`.
    """
    async with database.transaction() as connection:
        held = await _hold(connection, account_id, list_id)
        try:
            tariff = await get_tariff(connection)
            read = await asyncio.to_thread(read_contacts, tariff, country, held.columns, file)
        except ListError as error:
            raise FieldError("file", str(error)) from error
        known = await store.find_cells(connection, list_id, list(read.contacts))
        merged, faults = _merge(known, read.contacts, file)
        new = len(merged.keys() - known.keys())
        await _make_room(connection, account_id, new, "file")
        await store.set_columns(connection, list_id, read.columns)
        await store.put_contacts(connection, list_id, merged)
        detail = f"{held.name}: {new} added, {len(merged) - new} updated"
        await audit_log.record(connection, account_id, actor, "contacts imported", detail)
    return Imported(new, len(merged) - new, read.repeated, [*read.faults, *faults])


def _merge(
    known: Mapping[str, Sequence[str]], read: Mapping[str, Cells], file: CsvFile
) -> tuple[Mapping[str, Cells], Sequence[RowFault]]:
    """Complete contacts that a list has; those that would become too long stay as they are."""
    merged: dict[str, Cells] = {}
    faults = []
    for number, cells in read.items():
        both = merge_cells(known.get(number, ()), cells)
        problem = check_cells(both)
        if problem is None:
            merged[number] = both
        else:
            row = [""] * len(file.columns)
            row[file.number_column] = number
            faults.append(RowFault(0, row, list_rules.TOO_LONG, problem, None))
    return merged, faults
