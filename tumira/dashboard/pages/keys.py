"""Which API keys does an account have, and how does it get another?"""

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tumira import audit_log
from tumira.accounts import api_keys
from tumira.accounts.api_keys import Scope
from tumira.audit_log import Actor
from tumira.core.ids import KEY, KeyId, read_id, write_id
from tumira.dashboard.session import CustomerSession, Services, private
from tumira.html.forms import read_form
from tumira.html.guards import address_of
from tumira.html.redirect import redirect
from tumira.identity.manage_keys import (
    KEYS_A_DAY_MAX,
    KEYS_MAX,
    TooManyKeysError,
    TooManyKeysTodayError,
    create_key,
    revoke_own_key,
)
from tumira.identity.person_rules import check_name, clean_name

KEYS: Final = "/dashboard/keys"
REVOKED_SHOWN: Final = 20
_NEWEST: Final = KeyId(UUID(int=(1 << 128) - 1))
SCOPES: Final = {
    Scope.SEND: "send messages and price them",
    Scope.READ: "look batches and messages up",
    Scope.ACCOUNT: "read the balance and the prices",
}


def routes(services: Services) -> Sequence[Route]:
    """Return where these pages are."""
    return [
        private(services, KEYS, show_keys),
        private(services, KEYS, create, "POST"),
        private(services, KEYS + "/{id}/revoke", revoke, "POST"),
    ]


async def show_keys(session: CustomerSession) -> Response:
    """Show all keys, and the form for another."""
    return await _page(session, {}, revoked="revoked" in session.request.query_params)


async def _page(
    session: CustomerSession,
    faults: Mapping[str, str],
    status: int = 200,
    *,
    name: str = "",
    scopes: Sequence[str] = tuple(SCOPES),
    created: str | None = None,
    revoked: bool = False,
) -> Response:
    account_id, before = session.account_id, _before(session.request)
    async with session.database.connection() as connection:
        in_use = await api_keys.list_in_use(connection, account_id, KEYS_MAX)
        past = await api_keys.list_revoked(connection, account_id, before, REVOKED_SHOWN + 1)
    return session.page(
        "keys.html.jinja",
        status,
        keys=[(write_id(KEY, key.id), key) for key in in_use] if before == _NEWEST else [],
        past=[(write_id(KEY, key.id), key) for key in past[:REVOKED_SHOWN]],
        is_first=before == _NEWEST,
        older=write_id(KEY, past[REVOKED_SHOWN - 1].id) if len(past) > REVOKED_SHOWN else None,
        all_scopes=SCOPES,
        public_url=session.services.public_url,
        faults=faults,
        name=name,
        scopes=scopes,
        created=created,
        revoked=revoked,
    )


async def create(session: CustomerSession) -> Response:
    """Make a key, and show it this once."""
    form = await read_form(session.request)
    name = clean_name(form.text("name"))
    given = form.all("scope")
    scopes = [scope for scope in Scope if scope.value in given]
    faults = {}
    fault = check_name(name)
    if fault is not None:
        faults["name"] = fault
    if not scopes:
        faults["scopes"] = "Tick at least one."
    if faults:
        return await _page(session, faults, 422, name=name, scopes=scopes)
    try:
        _, key = await create_key(session.database, session.account_id, name, scopes, actor=_owner(session))
    except TooManyKeysTodayError:
        faults[""] = f"You have made {KEYS_A_DAY_MAX} keys within a day, and that is the most. Try tomorrow."
        return await _page(session, faults, 422, name=name, scopes=scopes)
    except TooManyKeysError:
        faults[""] = (
            f"You have {KEYS_MAX} keys in use, and that is the most. Revoke one that you do not need."
        )
        return await _page(session, faults, 422, name=name, scopes=scopes)
    return await _page(session, {}, created=key)


async def revoke(session: CustomerSession) -> Response:
    """End a key's use."""
    key_id = read_id(KEY, _path_id(session.request))
    if key_id is None or not await revoke_own_key(
        session.database, session.account_id, KeyId(key_id), actor=_owner(session)
    ):
        raise HTTPException(404, "You have no such key")
    return redirect(KEYS + "?revoked=1")


def _before(request: Request) -> KeyId:
    """Return the key before which revoked ones are shown; what is no key is the newest."""
    read = read_id(KEY, request.query_params.get("before", ""))
    return _NEWEST if read is None else KeyId(read)


def _owner(session: CustomerSession) -> Actor:
    return Actor(audit_log.OWNER, address_of(session.request))


def _path_id(request: Request) -> str:
    return str(request.path_params["id"])
