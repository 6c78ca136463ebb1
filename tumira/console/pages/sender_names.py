"""Sender names: the queue of requests with their evidence, and the decisions."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import store as accounts
from tumira.console.session import OperatorSession, Services, page
from tumira.core.ids import ACCOUNT, SENDER_NAME, AccountId, SenderNameId, write_id
from tumira.core.translation import _, mark
from tumira.delivery.store import sender_refusals
from tumira.html import paging
from tumira.html.forms import Flag, Form, NoteField, TextField, read_path_id, read_query_id
from tumira.html.guards import or_404
from tumira.html.page import HEADERS, PRIVATE
from tumira.html.redirect import redirect
from tumira.pricing.store import get_tariff
from tumira.sender_names import manage, store
from tumira.sender_names.name_rules import PAPER_ENDINGS
from tumira.sender_names.places import describe_place, list_places, read_place
from tumira.sender_names.protected_names import KIND_WORDS
from tumira.sender_names.store import GrantState, SenderName

SENDER_NAMES: Final = "/operator/sender-names"
PAGE: Final = 25
WAITING_SHOWN: Final = 100
HISTORY_SHOWN: Final = 100
REFUSED_SINCE: Final = timedelta(days=30)

DONE: Final = {
    "granted": mark(
        "Name granted. It is used from the next message on, unless another name is in use there."
    ),
    "refused": mark("Name refused. The customer can read your note."),
    "revoked": mark("Name revoked. The next message goes out under the sender of the carrier."),
    "used": mark("The name is in use."),
}
_MISSING: Final = mark("This sender name does not exist")


class DecisionForm(Form):
    place = TextField(cut=40)
    note = NoteField(is_needed=False)


class GrantForm(DecisionForm):
    use = Flag()
    confirmed = Flag()
    reason = NoteField(is_needed=False)


def routes(services: Services) -> Sequence[Route]:
    return [
        *page(services, SENDER_NAMES, show_list),
        *page(
            services,
            SENDER_NAMES + "/{id}",
            show_name,
            {"/grant": grant, "/refuse": refuse, "/revoke": revoke, "/use": use},
        ),
        *page(services, SENDER_NAMES + "/{id}/paper", download_paper),
    ]


async def show_list(session: OperatorSession) -> Response:
    before = read_query_id(session.request, SENDER_NAME, "before")
    account = read_query_id(session.request, ACCOUNT, "account")
    last: SenderName | None = None
    async with session.database.connection() as connection:
        tariff = await get_tariff(connection)
        waiting: Sequence[SenderName] = ()
        refused: Sequence[sender_refusals.SenderRefusal] = ()
        if account is not None:
            names = await store.list_of_account(connection, AccountId(account))
        else:
            cursor = store.LATEST if before is None else SenderNameId(before)
            names, last = paging.cut(await store.list_before(connection, PAGE + 1, cursor), PAGE)
            if before is None:
                waiting = await store.list_waiting(connection, WAITING_SHOWN)
                refused = await sender_refusals.list_refusals(connection, REFUSED_SINCE, PAGE)
    return session.page(
        "sender_names.html.jinja",
        waiting=waiting,
        names=names,
        refused=refused,
        is_first=before is None and account is None,
        of_account=account is not None,
        older=None if last is None else f"{SENDER_NAMES}?before={write_id(SENDER_NAME, last.id)}",
        place=lambda place: describe_place(place, tariff),
        country_names=tariff.names,
        done=DONE,
    )


async def show_name(session: OperatorSession) -> Response:
    name_id = _name_id(session)
    async with session.database.connection() as connection:
        name = or_404(await store.find_name(connection, name_id), _(_MISSING))
        account = or_404(await accounts.find(connection, name.account_id), _(_MISSING))
        tariff = await get_tariff(connection)
        warnings = await manage.find_warnings(connection, name.account_id, name.name)
        history = await store.list_history(connection, name_id, HISTORY_SHOWN)
        others = [
            one for one in await store.list_of_account(connection, name.account_id) if one.id != name.id
        ]
    places = list_places(tariff)
    granted = [one.place for one in name.grants if one.state is GrantState.GRANTED]
    return session.page(
        "sender_name.html.jinja",
        name=name,
        account=account,
        warnings=warnings,
        kinds={one.kind: _(KIND_WORDS[one.kind]) for one in warnings.look_alikes},
        history=history,
        others=others,
        grantable=[(str(one), describe_place(one, tariff)) for one in places if one not in granted],
        refusable=[one for one in places if one not in granted],
        revocable=granted,
        place=lambda place: describe_place(place, tariff),
        filled={"place": next((str(one.place) for one in name.grants if one.state == "requested"), "")},
        done=DONE,
    )


def _name_id(session: OperatorSession) -> SenderNameId:
    return SenderNameId(read_path_id(session.request, SENDER_NAME, _(_MISSING)))


async def download_paper(session: OperatorSession) -> Response:
    """Send the paper as a file: no browser shows what a customer uploaded as a page of ours."""
    name_id = _name_id(session)
    async with session.database.connection() as connection:
        data, kind = or_404(
            await store.find_paper(connection, name_id), _("There is no paper, or it was erased")
        )
    file_name = f"{write_id(SENDER_NAME, name_id)}.{PAPER_ENDINGS[kind]}"
    headers = {
        **HEADERS,
        **PRIVATE,
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": f'attachment; filename="{file_name}"',
    }
    return Response(data, media_type=kind, headers=headers)


def _answer(name_id: SenderNameId, done: str) -> Response:
    return redirect(f"{SENDER_NAMES}/{write_id(SENDER_NAME, name_id)}?done={done}")


async def grant(session: OperatorSession) -> Response:
    form, name_id = await GrantForm.accept(session.request), _name_id(session)
    with form.blame():
        await manage.grant(
            session.database,
            name_id,
            read_place(form.place.data),
            note=form.note.data,
            actor=session.actor,
            use=form.use.data,
            look_alike_reason=form.reason.data if form.confirmed.data else "",
        )
    return _answer(name_id, "granted")


async def refuse(session: OperatorSession) -> Response:
    form, name_id = await DecisionForm.accept(session.request), _name_id(session)
    with form.blame():
        await manage.refuse(
            session.database, name_id, read_place(form.place.data), note=form.note.data, actor=session.actor
        )
    return _answer(name_id, "refused")


async def revoke(session: OperatorSession) -> Response:
    form, name_id = await DecisionForm.accept(session.request), _name_id(session)
    with form.blame():
        await manage.revoke(
            session.database, name_id, read_place(form.place.data), note=form.note.data, actor=session.actor
        )
    return _answer(name_id, "revoked")


async def use(session: OperatorSession) -> Response:
    form, name_id = await DecisionForm.accept(session.request), _name_id(session)
    with form.blame():
        await manage.use(session.database, name_id, read_place(form.place.data), actor=session.actor)
    return _answer(name_id, "used")
