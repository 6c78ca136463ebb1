"""The history of what operators changed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from starlette.responses import Response
from starlette.routing import Route

from tumira import audit_log
from tumira.audit_log import LATEST, Change
from tumira.console.session import OperatorSession, Services, page
from tumira.core.ids import ACCOUNT, AccountId, read_id
from tumira.core.translation import mark
from tumira.html import paging
from tumira.html.forms import TYPED_MAX, FormRefused, ListFilterForm, TextField, account_id

CHANGES: Final = "/operator/changes"
PAGE: Final = 50
ACTOR_MAX: Final = 200


class ChangesFilter(ListFilterForm):
    actor = TextField(cut=ACTOR_MAX)
    account = TextField(account_id(mark("Enter an account ID. It begins with acc_.")), cut=TYPED_MAX)


def routes(services: Services) -> Sequence[Route]:
    return page(services, CHANGES, show_changes)


async def show_changes(session: OperatorSession) -> Response:
    asked = ChangesFilter.parse_query(session.request)
    before = paging.read_number(session.request.query_params.get("before", ""), LATEST, LATEST)
    found: Sequence[Change] = []
    if asked.faults:
        session = replace(session, refused=FormRefused(asked.faults))
    else:
        account = read_id(ACCOUNT, asked.account.data)
        async with session.database.connection() as connection:
            found = await audit_log.list_by_operators(
                connection,
                PAGE + 1,
                before,
                actor=asked.actor.data or None,
                account_id=None if account is None else AccountId(account),
            )
    changes, last = paging.cut(found, PAGE)
    return session.page(
        "operator_changes.html.jinja",
        changes=changes,
        older=None if last is None else asked.path(CHANGES, before=str(last.id)),
        latest=None if before == LATEST else asked.path(CHANGES),
        is_plain=asked.is_plain,
        filled=asked.filled,
    )
