"""API keys: list, create and revoke, after a question."""

from collections.abc import Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import api_keys
from tumira.accounts.api_keys import NEWEST, Scope
from tumira.core.ids import KEY, KeyId, read_id, write_id
from tumira.core.translation import _, mark
from tumira.dashboard.pages.settings import ask_password
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Faults, Form, FormId, Secret, TextField, Ticked, new_form_id, read_path_id
from tumira.html.redirect import redirect
from tumira.identity.manage_keys import (
    KEYS_A_DAY_MAX,
    KEYS_MAX,
    KeyExistsError,
    TooManyKeysError,
    TooManyKeysTodayError,
    create_key,
    revoke_key,
)
from tumira.identity.person_rules import PASSWORD_MAX, check_name, clean_name

KEYS: Final = "/dashboard/keys"
REVOKED_SHOWN: Final = 20
_NO_KEY: Final = mark("This API key does not exist")
SCOPES: Final = {
    Scope.SEND: mark("Send messages and check prices"),
    Scope.READ: mark("Read batches and messages"),
    Scope.ACCOUNT: mark("Read the balance and the price list"),
}

# What is said after a change, by the name in the address.
DONE: Final = {
    "revoked": mark("The API key was revoked. Calls with it are refused from now on."),
    "exists": mark(
        "The API key was already created, and is shown only once. If you did not copy it, revoke it and "
        "create another."
    ),
}


class KeyForm(Form):
    name = TextField(check_name, clean=clean_name)
    scopes = Ticked(SCOPES, name="scope")
    password = Secret(cut=PASSWORD_MAX)
    # Becomes the id of the key, so that a form which is sent again makes no second key.
    form = FormId(KEY)


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, KEYS, show_keys),
        private(services, KEYS, create, "POST"),
        private(services, KEYS + "/{id}/revoke", ask_to_revoke),
        private(services, KEYS + "/{id}/revoke", revoke, "POST"),
    ]


async def show_keys(session: CustomerSession) -> Response:
    query = session.request.query_params
    return await _page(session, {}, done=next((text for name, text in DONE.items() if name in query), None))


async def _page(session: CustomerSession, faults: Faults, status: int = 200, **values: Any) -> Response:
    shown = {"name": "", "scopes": tuple(SCOPES), "created": None, "done": None}
    account_id, before = session.account_id, _before(session.request)
    async with session.database.connection() as connection:
        in_use = await api_keys.list_in_use(connection, account_id, KEYS_MAX)
        past = await api_keys.list_revoked(connection, account_id, REVOKED_SHOWN + 1, before)
    return session.page(
        "keys.html.jinja",
        status,
        keys=in_use if before == NEWEST else [],
        past=past[:REVOKED_SHOWN],
        is_first=before == NEWEST,
        older=write_id(KEY, past[REVOKED_SHOWN - 1].id) if len(past) > REVOKED_SHOWN else None,
        all_scopes=SCOPES,
        form_id=new_form_id(KEY),
        public_url=session.services.public_url,
        faults=faults,
        **{**shown, **values},
    )


async def create(session: CustomerSession) -> Response:
    """Make a key, and show it this once; the same form sent again shows that there is one."""
    form = await KeyForm.read(session.request)
    name, scopes = form.name.data, [Scope(value) for value in form.scopes.data]
    if form.form.typed and form.form.data is None:
        form.faults[""] = _("This page was open for too long. Press Create API key again.")
    if not form.faults:
        refused = await ask_password(session, form.password.data)
        if refused is not None:
            return await _page(session, {"password": refused[0]}, refused[1], name=name, scopes=scopes)
    if form.faults:
        return await _page(session, form.faults, 422, name=name, scopes=scopes)
    key_id = None if form.form.data is None else KeyId(form.form.data)
    try:
        made = await create_key(
            session.database, session.account_id, name, scopes, actor=session.actor, key_id=key_id
        )
    except KeyExistsError:
        return redirect(KEYS + "?exists=1")
    except TooManyKeysTodayError:
        text = _("You have created {count} API keys in a day, which is the limit. Try again tomorrow.")
        fault = text.format(count=KEYS_A_DAY_MAX)
        return await _page(session, {"": fault}, 422, name=name, scopes=scopes)
    except TooManyKeysError:
        fault = _("You have {count} active API keys, which is the limit. Revoke one first.").format(
            count=KEYS_MAX
        )
        return await _page(session, {"": fault}, 422, name=name, scopes=scopes)
    return await _page(session, {}, created=made[1])


async def ask_to_revoke(session: CustomerSession) -> Response:
    """Show what a key is used for before it is revoked."""
    key_id = _read_key_id(session)
    async with session.database.connection() as connection:
        key = await api_keys.find(connection, session.account_id, key_id)
    if key is None:
        raise HTTPException(404, _(_NO_KEY))
    if key.revoked_at is not None:
        return redirect(KEYS)
    return session.page("key_revoke.html.jinja", key=key, all_scopes=SCOPES)


async def revoke(session: CustomerSession) -> Response:
    key_id = _read_key_id(session)
    if not await revoke_key(session.database, key_id, owner_id=session.account_id, actor=session.actor):
        raise HTTPException(404, _(_NO_KEY))
    return redirect(KEYS + "?revoked=1")


def _read_key_id(session: CustomerSession) -> KeyId:
    return KeyId(read_path_id(session.request, KEY, _(_NO_KEY)))


def _before(request: Request) -> KeyId:
    """Return the key before which revoked ones are shown; the newest if the address names none."""
    read = read_id(KEY, request.query_params.get("before", ""))
    return NEWEST if read is None else KeyId(read)
