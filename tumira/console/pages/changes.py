"""The history of what operators changed."""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response
from starlette.routing import Route

from tumira import audit_log as changes
from tumira.audit_log import LATEST
from tumira.console.session import OperatorSession, Services, view
from tumira.core.ids import ACCOUNT, AccountId, read_id, write_id

CHANGES: Final = "/operator/changes"
PAGE: Final = 50
ACTOR_MAX: Final = 200
ACCOUNT_MAX: Final = 40


def routes(services: Services) -> Sequence[Route]:
    return [view(services, CHANGES, show_changes)]


async def show_changes(session: OperatorSession) -> Response:
    asked = session.request.query_params
    actor = asked.get("actor", "").replace("\x00", "").strip()[:ACTOR_MAX]
    account = asked.get("account", "").strip()[:ACCOUNT_MAX]
    before = _read_before(asked.get("before", ""))
    account_id = read_id(ACCOUNT, account)
    if account and account_id is None:
        faults = {"account": "This is no account's id, as in acc_…"}
        return _page(session, 422, faults=faults, actor=actor, account=account, is_latest=True)
    async with session.database.connection() as connection:
        found = await changes.list_by_operators(
            connection,
            PAGE + 1,
            before,
            actor=actor or None,
            account_id=None if account_id is None else AccountId(account_id),
        )
    rows = [
        (one, None if one.account_id is None else write_id(ACCOUNT, one.account_id)) for one in found[:PAGE]
    ]
    older = found[PAGE - 1].id if len(found) > PAGE else None
    return _page(
        session,
        200,
        changes=rows,
        older=None if older is None else _path(actor, account, older),
        actor=actor,
        account=account,
        is_latest=before == LATEST,
    )


def _page(
    session: OperatorSession,
    status: int,
    *,
    actor: str,
    account: str,
    is_latest: bool,
    changes: Sequence[object] = (),
    older: str | None = None,
    faults: Mapping[str, str] | None = None,
) -> Response:
    return session.page(
        "operator_changes.html.jinja",
        status,
        changes=changes,
        older=older,
        latest=_path(actor, account),
        actor=actor,
        account=account,
        is_latest=is_latest,
        faults=faults or {},
    )


def _read_before(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(LATEST)) else LATEST
    return min(number, LATEST)


def _path(actor: str, account: str, before: int | None = None) -> str:
    asked = {"actor": actor, "account": account, "before": "" if before is None else str(before)}
    query = urlencode({name: value for name, value in asked.items() if value})
    return f"{CHANGES}?{query}" if query else CHANGES
