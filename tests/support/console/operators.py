"""Operators who are signed in without password and code, and what their changes leave behind."""

import re
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import httpx

from tests.support.identity.customers import link
from tests.support.identity.operators import COOKIE
from tests.support.identity.people import new_browser, new_phone
from tests.support.processes.service import Service
from tumira.core.ids import AccountId, OperatorId, new_id
from tumira.identity.principal import Browser, Principal, PrincipalKind
from tumira.identity.send_codes import hash_token, new_token
from tumira.identity.store import operators, sessions
from tumira.identity.store.operators import Role
from tumira.postgres.pool import Database

NAME: Final = "Rudo Operator"
ACTOR: Final = f"operator:{NAME}"
# What a page must show as text.
NASTY: Final = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>{{7*7}}"


def signed_in(service: Service, role: Role = Role.ADMIN, name: str = NAME) -> httpx.Client:
    """Add an operator, and return a browser of theirs; nothing is hashed, so this is quick."""
    token = new_token()
    service.run(_begin_session, token, role, name)
    browser = new_browser(service)
    browser.cookies.set(COOKIE, token, domain="127.0.0.1", path="/")
    return browser


async def _begin_session(database: Database, token: str, role: Role, name: str) -> None:
    operator_id, phone = OperatorId(new_id(time.time_ns() // 1_000_000)), new_phone()
    async with database.transaction() as connection:
        assert await operators.insert(
            connection,
            operator_id,
            phone=phone,
            name=name,
            role=role,
            password_hash="",
            valid_for=timedelta(hours=1),
        )
        await sessions.insert(
            connection,
            Principal(PrincipalKind.OPERATOR, operator_id, phone),
            new_id(time.time_ns() // 1_000_000),
            hash_token(token),
            Browser("198.18.0.1", "test", token, None),
        )


def hidden(page: httpx.Response) -> dict[str, str]:
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page.text))


def changes_of(service: Service, account_id: AccountId) -> Sequence[tuple[Any, ...]]:
    """Return actor, what and detail of what operators changed about an open account, the latest last."""
    statement = (
        "SELECT actor, what, detail FROM operator_changes WHERE account_id = $1"
        " AND what <> 'account opened' ORDER BY id"
    )
    return [tuple(row) for row in service.sql(statement, account_id)]


def last_change(service: Service) -> dict[str, Any]:
    return dict(service.sql("SELECT * FROM operator_changes ORDER BY id DESC LIMIT 1")[0])


def walk(browser: httpx.Client, path: str, more: str, pattern: str, pages_max: int = 10) -> list[str]:
    """Return what a pattern finds on a page and on those that the link `more` leads to."""
    found: list[str] = []
    where: str | None = path
    for _ in range(pages_max):
        assert where is not None
        page = browser.get(where)
        assert page.status_code == 200, page.text
        found += re.findall(pattern, page.text)
        where = link(page.text, more)
        if where is None:
            return found
    raise AssertionError("the pages do not end")
