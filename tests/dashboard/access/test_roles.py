"""Every role on every route of the dashboard, with real requests."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.support.full_service import add_endpoint
from tests.support.identity.members import add, one_of_each
from tests.support.identity.people import NAME, Person, goes_to, new_browser, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.core.ids import write_id
from tumira.dashboard.permissions import ASKS_PASSWORD, ROUTES, PrivateRoute, check_table, needed_for
from tumira.identity.roles import MemberRole

# What the table must say, written by hand: what each role is for, and what it must not do.
EVERYBODY: Final = frozenset(MemberRole)
OWNER, DEVELOPER, FINANCE, SENDER, VIEWER = MemberRole
ALLOWED: Final = {
    "GET /dashboard": EVERYBODY,
    "GET /dashboard/batches": EVERYBODY,
    "GET /dashboard/replies": EVERYBODY,
    "GET /dashboard/settings": EVERYBODY,
    "POST /dashboard/settings/password": EVERYBODY,
    "POST /dashboard/people/leave": EVERYBODY,
    "GET /dashboard/compose": {OWNER, SENDER},
    "POST /dashboard/compose/confirm": {OWNER, SENDER},
    "POST /dashboard/upload": {OWNER, SENDER},
    "POST /dashboard/upload/{id}/send": {OWNER, SENDER},
    "POST /dashboard/batches/{id}/resend": {OWNER, SENDER},
    "POST /dashboard/opt-outs": {OWNER, SENDER},
    "GET /dashboard/scheduled": EVERYBODY,
    "POST /dashboard/upload/{id}/schedule": {OWNER, SENDER},
    "POST /dashboard/scheduled/{id}/edit": {OWNER, SENDER},
    "POST /dashboard/scheduled/{id}/time": {OWNER, SENDER},
    "POST /dashboard/scheduled/{id}/cancel": {OWNER, SENDER},
    "POST /dashboard/scheduled/{id}/approve": {OWNER, SENDER},
    "POST /dashboard/scheduled/{id}/decline": {OWNER, SENDER},
    "GET /dashboard/lists/{id}": EVERYBODY,
    "POST /dashboard/lists": {OWNER, SENDER},
    "POST /dashboard/lists/{id}/contacts": {OWNER, SENDER},
    "POST /dashboard/texts": {OWNER, SENDER},
    "GET /dashboard/top-up": {OWNER, FINANCE},
    "POST /dashboard/top-up/voucher": {OWNER, FINANCE},
    "GET /dashboard/ledger": {OWNER, FINANCE},
    "GET /dashboard/ledger.csv": {OWNER, FINANCE},
    "GET /dashboard/papers/{number}.pdf": {OWNER, FINANCE},
    "GET /dashboard/papers/statements/{month}.csv": {OWNER, FINANCE},
    "POST /dashboard/settings/billing": {OWNER, FINANCE},
    "GET /dashboard/keys": {OWNER, DEVELOPER},
    "POST /dashboard/keys": {OWNER, DEVELOPER},
    "POST /dashboard/webhooks/{id}/rotate": {OWNER, DEVELOPER},
    "POST /dashboard/settings/lifetimes": {OWNER, DEVELOPER},
    "POST /dashboard/approvals/{id}/approve": {OWNER, SENDER},
    "POST /dashboard/approvals": {OWNER},
    "POST /dashboard/people": {OWNER},
    "POST /dashboard/people/{id}/role": {OWNER},
    "POST /dashboard/people/{id}/remove": {OWNER},
    "POST /dashboard/settings/limits": {OWNER},
    "POST /dashboard/settings/close": {OWNER},
    "GET /dashboard/settings/changes": {OWNER},
    "POST /dashboard/sender-names": {OWNER},
}
LONG: Final = pytest.mark.long
# An owner gets every page, which takes as long as all others together.
SOME_LONG: Final = [
    pytest.param(role, marks=LONG if role in {OWNER, DEVELOPER} else ()) for role in MemberRole
]
MAY: Final = {
    "read": EVERYBODY,
    "send": {OWNER, SENDER},
    "money": {OWNER, FINANCE},
    "develop": {OWNER, DEVELOPER},
    "own": {OWNER},
}


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture(scope="module")
def team(service: Service) -> Mapping[MemberRole, Person]:
    return one_of_each(service, sign_up(service))


def test_the_table_says_what_the_roles_are_for() -> None:
    for route, roles in ALLOWED.items():
        needed = ROUTES[route]
        assert needed is not None
        assert MAY[needed.value] == roles, route


@pytest.mark.parametrize("role", SOME_LONG)
def test_a_role_does_what_the_table_says_and_nothing_else(
    team: Mapping[MemberRole, Person], role: MemberRole
) -> None:
    browser = team[role].browser
    wrong = {}
    for route, needed in ROUTES.items():
        if needed is None:
            continue
        method, _, path = route.partition(" ")
        # Nothing exists under these ids, and no form is filled in: nothing happens.
        answer = browser.request(method, re.sub(r"{\w+}", "x", path))
        is_refused = answer.status_code == 403
        if is_refused == (role in MAY[needed.value]):
            wrong[route] = answer.status_code
        if is_refused:
            assert "Not allowed" in answer.text
            assert NAME in answer.text, "it says whom to ask"
        assert answer.status_code < 500, (route, answer.text)
    assert wrong == {}


# What each of these forms sends that asks for the password, which is wrong or missing here.
SENSITIVE: Final = {
    "POST /dashboard/approvals": {"approval_above": "5"},
    "POST /dashboard/keys": {"name": "till", "scope": "messages:send"},
    "POST /dashboard/webhooks": {"url": "https://hooks.example.com/two", "type": "balance.low"},
    "POST /dashboard/webhooks/{id}/change": {"url": "https://hooks.example.com/three", "type": "balance.low"},
    "POST /dashboard/webhooks/{id}/rotate": {"seen": ""},
    "POST /dashboard/settings/email": {"email": "thief@example.com"},
    "POST /dashboard/settings/password": {"new_password": "a thief's password"},
    "POST /dashboard/settings/second-factor": {},
    "POST /dashboard/settings/second-factor/off": {"code": "123456"},
    "POST /dashboard/people/leave": {},
    "POST /dashboard/people": {"phone": "+263771200099", "role": "owner"},
    "POST /dashboard/people/{id}/role": {"role": "owner"},
    "POST /dashboard/people/{id}/remove": {},
    "POST /dashboard/settings/limits": {"call_limit": "", "daily_limit": ""},
    "POST /dashboard/settings/close": {"word": "CLOSE"},
}


def test_sensitive_changes_ask_for_the_password_again(service: Service) -> None:
    owner = sign_up(service)
    viewer = add(service, owner, MemberRole.VIEWER)
    endpoint = add_endpoint(owner, "https://hooks.example.com/one")
    (row,) = service.sql("SELECT id FROM people WHERE phone = $1", viewer.phone)
    ids = {"webhooks": endpoint, "people": write_id("per_", row["id"])}
    history = owner.browser.get("/dashboard/settings/changes").text
    assert set(SENSITIVE) == ASKS_PASSWORD
    for route, fields in SENSITIVE.items():
        path = route.removeprefix("POST ")
        path = path.replace("{id}", ids.get(path.split("/")[2], ""))
        answer = owner.browser.post(path, data={"pressed": "1", **fields})
        assert answer.status_code in {422, 429}, route
        assert re.search("Wrong password|Too many", answer.text), route
    # Nothing was changed, and nobody has gone.
    assert owner.browser.get("/dashboard/settings/changes").text == history
    assert viewer.browser.get("/dashboard").status_code == 200


def test_nobody_comes_in_without_a_session(service: Service) -> None:
    browser = new_browser(service)
    for route, needed in ROUTES.items():
        method, _, path = route.partition(" ")
        if needed is not None:
            answer = browser.request(method, re.sub(r"{\w+}", "x", path))
            assert str(goes_to(answer)).startswith("/dashboard/sign-in"), route


@pytest.mark.parametrize(
    "role", [pytest.param(role, marks=() if role is SENDER else LONG) for role in MemberRole]
)
def test_pages_link_only_to_what_a_role_may_use(team: Mapping[MemberRole, Person], role: MemberRole) -> None:
    pages = [
        path
        for method, _, path in (route.partition(" ") for route, needed in ROUTES.items() if needed)
        if method == "GET" and "{" not in path and "." not in path
    ]
    browser = team[role].browser
    for page in pages:
        answer = browser.get(page)
        if answer.status_code != 200:
            continue
        for target in set(re.findall(r'(?:href|action)="(/dashboard[^"?#]*)', answer.text)):
            for method in ("GET", "POST"):
                needed = ROUTES.get(f"{method} {target}")
                is_form = f'action="{target}"' in answer.text
                if needed is not None and is_form == (method == "POST"):
                    assert role in MAY[needed.value], (role, page, target)


def test_a_route_that_the_table_does_not_name_stops_the_start() -> None:
    async def answer(_request: Request) -> Response:
        raise NotImplementedError

    with pytest.raises(RuntimeError, match="GET /dashboard/new is not in"):
        needed_for("GET", "/dashboard/new")
    for route in (Route("/dashboard/new", answer), Route("/dashboard/compose", answer)):
        with pytest.raises(RuntimeError, match="not as in"):
            check_table([route])
    with pytest.raises(RuntimeError, match="POST /dashboard/compose"):
        check_table([PrivateRoute("/dashboard/compose", answer)])
