"""The settings of a contact list: its name, its columns, and its end."""

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.contacts import manage
from tumira.contacts.list_rules import COLUMN_NAME_MAX, COLUMNS_MAX, LIST_NAME_MAX, NUMBER_COLUMN
from tumira.core.translation import _
from tumira.dashboard.pages.contacts.lists import LISTS, TYPED_MAX, list_path
from tumira.dashboard.pages.contacts.one_list import find_list
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Faults, Flag, Form, FormRefused, TextField
from tumira.html.redirect import redirect
from tumira.identity.person_rules import clean_name

_COLUMN_CUT: Final = 2 * COLUMN_NAME_MAX


class ListNameForm(Form):
    name = TextField(clean=clean_name, cut=TYPED_MAX)


class ColumnForm(Form):
    column = TextField(clean=clean_name, cut=_COLUMN_CUT)
    # The column that is renamed or removed.
    old = TextField(cut=_COLUMN_CUT)


class DeleteListForm(Form):
    sure = Flag()


def routes(services: Services) -> Sequence[Route]:
    one = LISTS + "/{id}"
    return [
        private(services, one + "/settings", show),
        private(services, one + "/rename", rename, "POST"),
        private(services, one + "/columns", add_column, "POST"),
        private(services, one + "/columns/rename", rename_column, "POST"),
        private(services, one + "/columns/remove", remove_column, "POST"),
        private(services, one + "/delete", delete, "POST"),
    ]


async def show(session: CustomerSession) -> Response:
    return await _page(session, {})


async def _page(
    session: CustomerSession, faults: Faults, filled: Mapping[str, str] | None = None
) -> Response:
    found = await find_list(session)
    filled = filled or {}
    return session.page(
        "list_settings.html.jinja",
        422 if faults else 200,
        list=found,
        here_path=list_path(found.id),
        faults=faults,
        name=filled.get("name", found.name),
        column="" if filled.get("old") else filled.get("column", ""),
        old=filled.get("old", ""),
        renamed=filled.get("column", ""),
        name_max=LIST_NAME_MAX,
        column_max=COLUMN_NAME_MAX,
        columns_max=COLUMNS_MAX,
        number_column=NUMBER_COLUMN,
    )


async def rename(session: CustomerSession) -> Response:
    found = await find_list(session)
    form = await ListNameForm.read(session.request)
    try:
        with form.blame():
            await manage.rename_list(
                session.database, session.account_id, found.id, form.name.data, session.actor
            )
    except FormRefused as refused:
        return await _page(session, refused.faults, refused.filled)
    return redirect(f"{list_path(found.id)}?done=settings")


async def add_column(session: CustomerSession) -> Response:
    found = await find_list(session)
    form = await ColumnForm.read(session.request)
    try:
        with form.blame():
            await manage.add_column(
                session.database, session.account_id, found.id, form.column.data, session.actor
            )
    except FormRefused as refused:
        return await _page(session, refused.faults, refused.filled)
    return redirect(f"{list_path(found.id)}/settings#columns")


async def rename_column(session: CustomerSession) -> Response:
    found = await find_list(session)
    form = await ColumnForm.read(session.request)
    try:
        with form.blame():
            await manage.rename_column(
                session.database,
                session.account_id,
                found.id,
                form.old.data,
                form.column.data,
                session.actor,
            )
    except FormRefused as refused:
        return await _page(session, refused.faults, refused.filled)
    return redirect(f"{list_path(found.id)}/settings#columns")


async def remove_column(session: CustomerSession) -> Response:
    found = await find_list(session)
    form = await ColumnForm.read(session.request)
    try:
        with form.blame():
            await manage.remove_column(
                session.database, session.account_id, found.id, form.old.data, session.actor
            )
    except FormRefused as refused:
        return await _page(session, refused.faults, refused.filled)
    return redirect(f"{list_path(found.id)}/settings#columns")


async def delete(session: CustomerSession) -> Response:
    found = await find_list(session)
    form = await DeleteListForm.read(session.request)
    if not form.sure.data:
        return await _page(session, {"sure": _("Tick the box to delete the list.")})
    await manage.delete_list(session.database, session.account_id, found.id, session.actor)
    return redirect(f"{LISTS}?done=deleted")
