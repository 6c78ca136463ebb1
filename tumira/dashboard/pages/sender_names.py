"""Sender names: ask for one, see its state in each country, and its history."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from tumira.core.errors import FieldError
from tumira.core.translation import _
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.form_body import FormBody, read_upload
from tumira.html.forms import TYPED_MAX, Faults, Form, TextField
from tumira.html.redirect import redirect
from tumira.pricing.store import get_tariff
from tumira.sender_names import manage, store
from tumira.sender_names.manage import NameRequest
from tumira.sender_names.name_rules import NAME_MAX, NOTE_MAX, PAPER_BYTES_MAX, check_name, list_rules
from tumira.sender_names.places import describe_place
from tumira.sender_names.protected_names import KIND_WORDS

SENDER_NAMES: Final = "/dashboard/sender-names"
HISTORY_SHOWN: Final = 20
_TOO_LARGE: Final = 413


class SenderNameForm(Form):
    # Spaces at the ends are against the rules, and are shown to be.
    name = TextField(clean=str, cut=TYPED_MAX)
    note = TextField(cut=2 * NOTE_MAX)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, SENDER_NAMES, show),
        private(services, SENDER_NAMES, ask, "POST"),
        private(services, SENDER_NAMES + "/check", check, "POST"),
    ]


async def show(session: CustomerSession) -> Response:
    is_done = session.request.query_params.get("done") == "asked"
    said = _("We have your request. We tell you as soon as it is decided.") if is_done else None
    return await _page(session, {}, said=said)


async def _page(
    session: CustomerSession,
    faults: Faults,
    status: int = 200,
    *,
    filled: Mapping[str, str] | None = None,
    countries: Sequence[str] | None = None,
    said: str | None = None,
) -> Response:
    filled = filled or {"name": "", "note": ""}
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        names = await store.list_of_account(connection, session.account_id)
        histories = {one.id: await store.list_history(connection, one.id, HISTORY_SHOWN) for one in names}
    chosen = set(tariff.names) if countries is None else set(countries)
    return session.page(
        "sender_names.html.jinja",
        status,
        faults=faults,
        filled=filled,
        said=said,
        countries=[(country, name, country in chosen) for country, name in tariff.names.items()],
        names=names,
        histories=histories,
        place=lambda place: describe_place(place, tariff),
        name_max=NAME_MAX,
        note_max=NOTE_MAX,
        bytes_max=PAPER_BYTES_MAX,
        paper_days=store.PAPER_KEPT.days,
        **await _judge(session, filled["name"]),
    )


async def _judge(session: CustomerSession, name: str) -> Mapping[str, Any]:
    """Return the rules with those that a name breaks, and whom it may be taken for.

    Of other accounts nothing is said but that there is one.
    """
    found = None
    if name and check_name(name) is None:
        async with session.database.connection() as connection:
            found = await manage.find_warnings(connection, session.account_id, name)
    return {
        "is_typed": bool(name),
        "rules": list_rules(name),
        "look_alikes": [(one.name, _(KIND_WORDS[one.kind])) for one in found.look_alikes] if found else [],
        "is_taken": bool(found and found.others),
    }


async def check(session: CustomerSession) -> Response:
    """Tell the script of the form which rules a name breaks, and whom it may be taken for."""
    form = await SenderNameForm.read(session.request)
    return session.services.templates.page(
        "sender_name_checked.html.jinja", **await _judge(session, form.name.data)
    )


async def ask(session: CustomerSession) -> Response:
    try:
        body, file = await read_upload(session.request, PAPER_BYTES_MAX)
    except HTTPException as error:
        if error.status_code != _TOO_LARGE:
            raise
        most = PAPER_BYTES_MAX // (1024 * 1024)
        fault = _("The paper is larger than {most} MB. Choose a smaller file.").format(most=most)
        # The other fields were not read, or only in part.
        return await _page(session, {"paper": fault}, _TOO_LARGE)
    form, countries = SenderNameForm.parse(body), _countries(body)
    request = NameRequest(form.name.data, countries, form.note.data, file.data)
    try:
        await manage.ask(session.database, session.account_id, request, session.actor)
    except FieldError as error:
        faults = {error.field: str(error)}
        return await _page(session, faults, 422, filled=form.filled, countries=countries)
    return redirect(f"{SENDER_NAMES}?done=asked")


def _countries(body: FormBody) -> Sequence[str]:
    return body.getlist("country")
