"""Can an operator look after accounts and top-ups, on a phone as on a desk, with scripts and without?"""

import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import (
    DESKTOP,
    PHONE,
    Opener,
    Viewport,
    check_accessibility,
    layout_shift,
    overflows,
    screenshot,
    wire_bytes,
)
from tests.support.identity.operators import COOKIE, OperatorBrowser, new_operator
from tests.support.identity.people import Person, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.audit_log import Actor
from tumira.core.ids import ACCOUNT, TOP_UP, AccountId, TopUpId, new_id, write_id
from tumira.identity import manage_accounts
from tumira.identity.store.operators import Role
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.settle import settle
from tumira.topups.states import (
    Currency,
    Expired,
    InDoubt,
    Method,
    Paid,
    ProviderAnswer,
    Reversed,
    StillPending,
)
from tumira.topups.store import NewTopUp

ACCOUNTS: Final = "/operator/accounts"
TOP_UPS: Final = "/operator/top-ups"
SHIFT_MAX: Final = 0.01
FIRST_VISIT_MAX: Final = 60_000
LOOKS: Final = [
    pytest.param(PHONE, False, id="phone, light"),
    pytest.param(DESKTOP, True, id="desktop, dark", marks=pytest.mark.long),
    pytest.param(PHONE, True, id="phone, dark", marks=pytest.mark.long),
    pytest.param(DESKTOP, False, id="desktop, light", marks=pytest.mark.long),
]

_references: Final = iter(range(10_000))


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a service that the tests of this file share."""
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> OperatorBrowser:
    """Give an operator who may change things."""
    return new_operator(service)


def come_in(page: Page, service: Service, operator: OperatorBrowser) -> None:
    page.context.add_cookies([{"name": COOKIE, "value": operator.cookie, "url": service.base}])


def check(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert not overflows(page)
    assert layout_shift(page) <= SHIFT_MAX
    check_accessibility(page)
    screenshot(page, name)


async def _start(database: Database, new: NewTopUp) -> None:
    async with database.transaction() as connection:
        await top_ups.insert(connection, new)


def top_up(service: Service, account_id: AccountId, *answer: ProviderAnswer) -> TopUpId:
    """Begin a top-up and let its provider say something about it."""
    top_up_id = TopUpId(new_id(time.time_ns() // 1_000_000))
    new = NewTopUp(top_up_id, account_id, Method.PAYNOW, "ecocash", Currency.USD, asked=Decimal(5))
    service.run(_start, new)
    for one in answer:
        service.run(settle, top_up_id, one)
    return top_up_id


def paid() -> Paid:
    return Paid(f"20261116-{next(_references):06}", Decimal(5))


def busy_account(service: Service, business: str) -> tuple[Person, AccountId]:
    """Return somebody whose account has some of everything."""
    person = sign_up(service, business=business)
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    account_id = AccountId(row["id"])
    operator = Actor("operator:Rudo Operator", "198.18.0.1")
    service.run(
        manage_accounts.credit, account_id, Decimal("123.45"), note="Paid in cash " * 9, actor="cli:root"
    )
    service.run(manage_accounts.review, account_id, consent=True, actor=operator, note="By letter")
    service.sql(
        "INSERT INTO traffic (account_id, day, country, delivered, failed, unconfirmed)"
        " SELECT $1, current_date - n, 'ZW', 40 + n * 7 % 30, n % 4, n % 3 FROM generate_series(0, 25) AS n",
        account_id,
    )
    service.sql(
        "INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes, last_used_at, revoked_at)"
        " SELECT uuidv7(), $1, 'Shop till ' || n, sha256('a'), '{account:read}', now(),"
        " CASE WHEN n > 2 THEN now() END FROM generate_series(1, 4) AS n",
        account_id,
    )
    service.sql(
        "INSERT INTO webhook_endpoints (id, account_id, url, secret, position, failing_since)"
        " VALUES (uuidv7(), $1, $2, sha256('a'), 0, now())",
        account_id,
        "https://example.com/a/very/long/path/" + "x" * 80,
    )
    service.sql(
        "UPDATE logins SET totp_secret = substr(sha256('a'), 1, 20), totp_since = now()"
        " WHERE account_id = $1",
        account_id,
    )
    return person, account_id


@pytest.mark.parametrize(("viewport", "dark"), LOOKS)
def test_accounts_and_top_ups_can_be_used_by_everybody(
    service: Service, admin: OperatorBrowser, open_page: Opener, viewport: Viewport, *, dark: bool
) -> None:
    _, account_id = busy_account(service, "Moyo Stores and Sons (Private) Limited")
    doubt = top_up(
        service, account_id, StillPending("PN-7"), InDoubt("no answer within 45 seconds", is_last=True)
    )
    top_up(service, account_id, Expired(), paid())
    back = top_up(service, account_id, paid(), Reversed("the customer's bank took it back"))
    page = open_page(service.base, viewport=viewport, dark=dark)
    come_in(page, service, admin)
    page.goto(ACCOUNTS)
    check(page, "console-accounts")
    page.goto(f"{ACCOUNTS}?q=zzz")
    check(page, "console-accounts-none")
    page.goto(f"{ACCOUNTS}/{write_id(ACCOUNT, account_id)}")
    expect(page.get_by_role("img", name="messages in the last 30 days")).to_be_visible()
    check(page, "console-account")
    page.get_by_label("Fair-share weight").fill("1000")
    page.get_by_role("button", name="Save limits").click()
    expect(page.get_by_role("alert")).to_contain_text("Fair-share weight")
    check(page, "console-account-faults")
    page.goto(TOP_UPS)
    check(page, "console-top-ups")
    page.goto(f"{TOP_UPS}/{write_id(TOP_UP, back)}")
    check(page, "console-top-up-back")
    page.goto(f"{TOP_UPS}/{write_id(TOP_UP, doubt)}")
    check(page, "console-top-up")
    page.get_by_label("How you know").fill("On the statement of Monday")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Credit this top-up?")
    check(page, "console-top-up-confirm")


@pytest.mark.parametrize("javascript", [True, False], ids=["with scripts", "without scripts"])
def test_an_account_is_found_credited_and_suspended(
    service: Service, admin: OperatorBrowser, open_page: Opener, *, javascript: bool
) -> None:
    business = f"Ncube {'Hardware' if javascript else 'Motors'}"
    person, _ = busy_account(service, business)
    page = open_page(service.base, viewport=PHONE if javascript else DESKTOP, javascript=javascript)
    come_in(page, service, admin)
    page.goto(ACCOUNTS)
    page.get_by_label("Look for").fill(business.lower())
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=business).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(business)
    page.get_by_label("Amount in US$").fill("6.55")
    page.locator("#credit_note").fill("Paid at the office")
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("US$130.00")).to_be_visible()
    page.get_by_role("button", name="Credit US$6.55").click()
    expect(page.get_by_role("status")).to_contain_text("The balance is changed.")
    page.locator("#suspend_note").fill("Asked for by the owner")
    page.get_by_role("button", name="Suspend the account").click()
    expect(page.get_by_text("it can look things up, and not send").first).to_be_visible()
    page.locator("#suspend_note").fill("They changed their mind")
    page.get_by_role("button", name="Lift the suspension").click()
    expect(page.get_by_role("status")).to_have_text("The account may send again.")
    expect(page.get_by_role("row", name="They changed their mind")).to_be_visible()
    # Its owner sees what was done, and the reason where it was money.
    seen = person.browser.get("/dashboard/settings/changes").text
    assert "Paid at the office" in seen
    assert "Account may send again" in seen
    assert "They changed their mind" not in seen


def test_a_doubt_is_decided(service: Service, admin: OperatorBrowser, open_page: Opener) -> None:
    _, account_id = busy_account(service, "Sibanda Butchery")
    top_up(service, account_id, InDoubt("no answer within 45 seconds", is_last=True))
    page = open_page(service.base, viewport=PHONE)
    come_in(page, service, admin)
    page.goto(TOP_UPS)
    page.get_by_role("region", name="In doubt").get_by_role("link", name="Paynow, EcoCash of Sibanda").click()
    page.get_by_label("How you know").fill("On the statement of Monday")
    page.get_by_role("button", name="Go on").click()
    page.get_by_role("button", name="Credit it").click()
    expect(page.get_by_role("status")).to_have_text("The top-up is credited.")
    expect(page.get_by_text("Decided by")).to_be_visible()


def test_a_viewer_finds_no_forms(service: Service, open_page: Opener) -> None:
    viewer = new_operator(service, role=Role.VIEWER, name="Tendai Viewer")
    _, account_id = busy_account(service, "Phiri Salon")
    doubt = top_up(service, account_id, InDoubt("no answer", is_last=True))
    page = open_page(service.base, viewport=DESKTOP)
    come_in(page, service, viewer)
    for path in (
        f"{ACCOUNTS}/{write_id(ACCOUNT, account_id)}",
        f"{TOP_UPS}/{write_id(TOP_UP, doubt)}",
    ):
        page.goto(path)
        expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
        check(page, "console-viewer")


def test_the_pages_cost_little_on_the_wire(
    service: Service, admin: OperatorBrowser, open_page: Opener
) -> None:
    _, account_id = busy_account(service, "Banda Books")
    for path in (ACCOUNTS, f"{ACCOUNTS}/{write_id(ACCOUNT, account_id)}", TOP_UPS):
        page = open_page(service.base, viewport=PHONE)
        come_in(page, service, admin)
        page.goto(path)
        assert wire_bytes(page) < FIRST_VISIT_MAX, path
        page.context.close()
