"""Can somebody run the gateway from a browser, on a phone as on a desk, with scripts and without?"""

from datetime import datetime, timedelta
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
)
from tests.support.identity.operators import (
    COOKIE,
    PASSWORD,
    OperatorBrowser,
    create,
    new_operator,
    read_secret,
)
from tests.support.identity.people import new_phone
from tests.support.processes.service import Caller, Service
from tumira.audit_log import Actor
from tumira.console.session import NAVIGATION
from tumira.content.store import digest_of
from tumira.html.page import LOCAL
from tumira.identity import profile as manage_login
from tumira.identity import totp
from tumira.identity.store.operators import Role
from tumira.operations.audit import runs
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task

ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
DUE: Final = next(task for task in MAINTENANCE_TASKS if task.name == "put prices into force")
LONG: Final = "Kubatana-Tose-Trading-" * 4
LOOKS: Final = [
    pytest.param(PHONE, False, id="phone, light"),
    pytest.param(DESKTOP, True, id="desktop, dark", marks=pytest.mark.long),
    pytest.param(PHONE, True, id="phone, dark", marks=pytest.mark.long),
    pytest.param(DESKTOP, False, id="desktop, light", marks=pytest.mark.long),
]
SCRIPTS: Final = pytest.mark.parametrize("javascript", [True, False], ids=["with scripts", "without scripts"])


@pytest.fixture(scope="module")
def admin(service: Service) -> OperatorBrowser:
    return new_operator(service, name="Rudo Admin")


@pytest.fixture(scope="module")
def asker(service: Service) -> Caller:
    """Give an account that asked about a refused text, beside much else that the pages show."""
    caller = service.open_account()
    service.sql("UPDATE accounts SET business = $2 WHERE id = $1", caller.id, LONG)
    service.send(caller, body=ADVERT)
    service.run(
        manage_login.ask_review,
        caller.id,
        digest_of(ADVERT),
        ADVERT,
        LONG,
        actor=Actor("owner", "198.18.0.1"),
    )
    service.sql("INSERT INTO workers (id) VALUES ('worker-with-a-long-name.example:4711:0123abcd')")
    service.sql(
        "INSERT INTO audits (asked_by, started_at, finished_at, broken) VALUES ('cli:root', now(), now(),"
        """ '{"balance": [{"account_id": "01a1e3e8-8720-7e72-9f64-dbc7935f15cc", "balance": "7.0000"}]}')"""
    )
    service.sql(
        "INSERT INTO price_schedule (channel, country, price_usd, from_at, set_by)"
        " VALUES ('sms', 'ZW', 0.05, now() + interval '9 days', $1)",
        LONG,
    )
    return caller


def come_in(page: Page, service: Service, operator: OperatorBrowser, path: str) -> Page:
    page.context.add_cookies([{"name": COOKIE, "value": operator.cookie, "url": service.base}])
    page.goto(path)
    return page


def check(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert overflows(page) == []
    assert layout_shift(page) == 0
    screenshot(page, name)
    check_accessibility(page)


@pytest.mark.parametrize(("viewport", "dark"), LOOKS)
def test_everybody_can_read_these_pages_on_any_screen(
    service: Service,
    open_page: Opener,
    admin: OperatorBrowser,
    asker: Caller,
    viewport: Viewport,
    *,
    dark: bool,
) -> None:
    page = come_in(open_page(service.base, viewport=viewport, dark=dark), service, admin, "/operator/prices")
    check(page, "console-prices")
    for label, value in (("Name", "Zambia"), ("Two letters", "ZM"), ("Calling code", "0"), ("Digits", "x")):
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Add the country").click()
    expect(page.get_by_role("alert")).to_contain_text("Calling code")
    check(page, "console-prices-faults")
    page.goto(f"/operator/content/refusals/{asker.account_id}/{digest_of(ADVERT).hex()}")
    check(page, "console-refusal")
    for name in ("content", "content/templates", "system", "changes"):
        page.goto(f"/operator/{name}")
        check(page, "console-" + name.replace("/", "-"))


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_every_page_is_found_in_the_navigation(
    service: Service, open_page: Opener, admin: OperatorBrowser, viewport: Viewport
) -> None:
    page = come_in(open_page(service.base, viewport=viewport), service, admin, "/operator")
    for place in NAVIGATION:
        if viewport is PHONE:
            page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name=place.name, exact=True).click()
        page.wait_for_url(service.base + place.path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)


@SCRIPTS
def test_an_operator_signs_in_for_the_first_time(
    service: Service, open_page: Opener, *, javascript: bool
) -> None:
    phone, password = create(service, name="Tino First")
    page = open_page(service.base, viewport=PHONE, javascript=javascript)
    page.goto("/operator/changes")
    check_accessibility(page)
    page.get_by_label("Phone number").fill(phone)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    check_accessibility(page)
    secret = read_secret(page.content())
    page.get_by_label("Password").fill(PASSWORD)
    page.locator("#code").fill(totp.authenticator(secret).now())
    page.locator("main button").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Recovery codes")
    check_accessibility(page)
    page.get_by_role("link", name="I have kept them").click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.goto("/operator/changes")
    expect(page.get_by_role("main")).to_contain_text("Operator chose a password and a second factor")


@SCRIPTS
def test_a_country_is_added_and_its_price_set_now_and_for_later(
    service: Service, open_page: Opener, admin: OperatorBrowser, *, javascript: bool
) -> None:
    name, code = ("Zambia", "ZM") if javascript else ("Botswana", "BW")
    page = open_page(service.base, viewport=PHONE, javascript=javascript)
    come_in(page, service, admin, "/operator/prices")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Two letters").fill(code)
    page.get_by_label("Calling code").fill("260" if javascript else "267")
    page.get_by_label("Digits after it").fill("9")
    page.get_by_role("button", name="Add the country").click()
    expect(page.get_by_role("status")).to_contain_text("The country is added")

    now = page.get_by_role("region", name="Set a price")
    now.get_by_label("Country").select_option(name)
    now.get_by_label("Price").fill("0.03")
    now.get_by_role("button").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Is this price right?")
    check(page, "console-price-confirm")
    page.get_by_role("button", name="Set it").click()
    expect(page.get_by_role("status")).to_contain_text("The price is set")

    later = page.get_by_role("region", name="Schedule a price")
    later.get_by_label("Country").select_option(name)
    later.get_by_label("New price").fill("0.0199")
    moment = datetime.now(LOCAL) + timedelta(days=1)
    later.get_by_label("Counts from").fill(f"{moment:%Y-%m-%dT%H:%M}")
    later.get_by_role("button").click()
    expect(page.get_by_role("main")).to_contain_text("US$0.03 a segment")
    expect(page.get_by_role("main")).to_contain_text("US$0.0199 a segment")
    page.get_by_role("button", name="Schedule it").click()
    row = page.get_by_role("row", name=name).filter(has_text="US$0.0199")
    expect(row).to_contain_text(f"{moment:%-d %b %Y, %H:%M}")
    service.sql("UPDATE price_schedule SET from_at = from_at - interval '2 days' WHERE country = $1", code)
    assert service.run(run_task, DUE) == 1
    page.reload()
    expect(page.get_by_role("row", name=name)).to_contain_text("US$0.0199")


def test_a_review_is_answered_on_a_phone(service: Service, open_page: Opener, admin: OperatorBrowser) -> None:
    caller = service.open_account()
    service.sql("UPDATE accounts SET business = 'Cobbler' WHERE id = $1", caller.id)
    service.send(caller, body=ADVERT)
    service.run(
        manage_login.ask_review, caller.id, digest_of(ADVERT), ADVERT, "By contract", actor=Actor("owner")
    )
    page = come_in(open_page(service.base, viewport=PHONE), service, admin, "/operator/content")
    page.get_by_role("region", name="Asked for review").get_by_role("row", name="Cobbler").get_by_role(
        "link"
    ).click()
    expect(page.get_by_role("main")).to_contain_text("By contract")
    expect(page.get_by_label("Template")).to_have_value(ADVERT.replace("50", "{number}"))
    page.get_by_label("What becomes of it").select_option("let such texts pass")
    page.get_by_role("button", name="Keep the template").click()
    expect(page.get_by_role("status")).to_contain_text("pass from the next call on")
    assert service.send(caller, body=ADVERT).status_code == 202
    page.get_by_role("link", name="Templates that allow and refuse").click()
    page.get_by_role("row", name="Cobbler").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status")).to_contain_text("removed")
    assert service.send(caller, body=ADVERT).status_code == 422


def test_an_audit_is_run_and_an_operator_let_in(
    service: Service, open_page: Opener, admin: OperatorBrowser
) -> None:
    page = come_in(open_page(service.base, viewport=DESKTOP), service, admin, "/operator/system")
    page.get_by_role("button", name="Run audit").click()
    expect(page.get_by_role("status")).to_contain_text("An audit is asked for")
    expect(page.get_by_role("button", name="Run audit")).to_be_disabled()
    assert service.run(runs.run_next)
    page.goto("/operator/system")
    expect(page.get_by_role("main")).to_contain_text("Every promise holds")
    check(page, "console-system-clean")
    page.get_by_label("Name").fill("Vimbai Viewer")
    page.get_by_label("Phone number").fill(new_phone())
    page.get_by_label("Role").select_option("Viewer: changes nothing")
    page.get_by_role("button", name="Add the operator").click()
    expect(page.locator("#password")).to_be_visible()
    check(page, "console-system-password")
    page.goto("/operator/changes")
    expect(page.get_by_role("main")).to_contain_text("Operator added")


def test_a_viewer_finds_nothing_to_press(service: Service, open_page: Opener, asker: Caller) -> None:
    viewer = new_operator(service, Role.VIEWER, "Vimbai Viewer")
    page = come_in(open_page(service.base, viewport=DESKTOP), service, viewer, "/operator/prices")
    refusal = f"/operator/content/refusals/{asker.account_id}/{digest_of(ADVERT).hex()}"
    for path in ("/operator/prices", "/operator/content/templates", refusal, "/operator/system"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
        check_accessibility(page)
