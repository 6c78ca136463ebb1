"""API keys: list, create and revoke."""

from collections.abc import Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira.accounts import api_keys
from tumira.accounts.api_keys import NEWEST, Scope
from tumira.core.ids import KEY, KeyId, read_id, write_id
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import Faults, Form, TextField, Ticked, read_path_id
from tumira.html.redirect import redirect
from tumira.identity.manage_keys import (
    KEYS_A_DAY_MAX,
    KEYS_MAX,
    TooManyKeysError,
    TooManyKeysTodayError,
    create_key,
    revoke_key,
)
from tumira.identity.person_rules import check_name, clean_name

KEYS: Final = "/dashboard/keys"
REVOKED_SHOWN: Final = 20
_NO_KEY: Final = "You have no such key"
SCOPES: Final = {
    Scope.SEND: "send messages and price them",
    Scope.READ: "look batches and messages up",
    Scope.ACCOUNT: "read the balance and the prices",
}


class KeyForm(Form):
    name = TextField(check_name, clean=clean_name)
    scopes = Ticked(SCOPES, name="scope")


def routes(services: Services) -> Sequence[Route]:
    return [
        private(services, KEYS, show_keys),
        private(services, KEYS, create, "POST"),
        private(services, KEYS + "/{id}/revoke", revoke, "POST"),
    ]


async def show_keys(session: CustomerSession) -> Response:
    return await _page(session, {}, revoked="revoked" in session.request.query_params)


async def _page(session: CustomerSession, faults: Faults, status: int = 200, **values: Any) -> Response:
    shown = {"name": "", "scopes": tuple(SCOPES), "created": None, "revoked": False}
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
        public_url=session.services.public_url,
        faults=faults,
        **{**shown, **values},
    )


async def create(session: CustomerSession) -> Response:
    """Make a key, and show it this once."""
    form = await KeyForm.read(session.request)
    name, scopes = form.name.data, [Scope(value) for value in form.scopes.data]
    if form.faults:
        return await _page(session, form.faults, 422, name=name, scopes=scopes)
    try:
        _, key = await create_key(session.database, session.account_id, name, scopes, actor=session.actor)
    except TooManyKeysTodayError:
        fault = f"You have made {KEYS_A_DAY_MAX} keys in a day, which is the most. Try again tomorrow."
        return await _page(session, {"": fault}, 422, name=name, scopes=scopes)
    except TooManyKeysError:
        fault = f"You have {KEYS_MAX} keys in use, which is the most. Revoke one first."
        return await _page(session, {"": fault}, 422, name=name, scopes=scopes)
    return await _page(session, {}, created=key)


async def revoke(session: CustomerSession) -> Response:
    key_id = KeyId(read_path_id(session.request, KEY, _NO_KEY))
    if not await revoke_key(session.database, key_id, owner_id=session.account_id, actor=session.actor):
        raise HTTPException(404, _NO_KEY)
    return redirect(KEYS + "?revoked=1")


def _before(request: Request) -> KeyId:
    """Return the key before which revoked ones are shown; the newest if the address names none."""
    read = read_id(KEY, request.query_params.get("before", ""))
    return NEWEST if read is None else KeyId(read)
