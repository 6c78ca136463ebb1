"""Operators' journeys through the console, on a phone and on a desk, without scripts where that differs."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import DESKTOP, PHONE, Opener, check_accessibility, inspect
from tests.support.full_service import ADVERT, FullService, account_of, add_top_up, run_full_service
from tests.support.identity.operators import (
    COOKIE,
    PASSWORD,
    OperatorBrowser,
    create,
    new_operator,
    read_secret,
)
from tests.support.identity.people import new_phone, sign_up
from tests.support.processes.service import Service
from tumira.audit_log import Actor
from tumira.console.session import NAVIGATION
from tumira.content.store import digest_of
from tumira.html.page import LOCAL
from tumira.identity import manage_accounts, totp
from tumira.identity import profile as manage_login
from tumira.identity.store.operators import Role
from tumira.operations.audit import runs
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.topups.states import PaymentInDoubt

ACCOUNTS: Final = "/operator/accounts"
TOP_UPS: Final = "/operator/top-ups"
CARRIERS: Final = "/operator/carriers"
RECEIPTS: Final = "/operator/receipts"
WEBHOOKS: Final = "/operator/webhooks"
TRAFFIC: Final = "/operator"
DUE: Final = next(task for task in MAINTENANCE_TASKS if task.name == "put prices into force")


@pytest.fixture(scope="module")
def full(server_url: str) -> Iterator[FullService]:
    with run_full_service(server_url) as full:
        yield full


@pytest.fixture
def service(full: FullService) -> Service:
    return full.service


@pytest.fixture
def admin(full: FullService) -> OperatorBrowser:
    return full.admin


def come_in(page: Page, service: Service, operator: OperatorBrowser, path: str) -> Page:
    page.context.add_cookies([{"name": COOKIE, "value": operator.cookie, "url": service.base}])
    page.goto(path)
    return page


def test_every_page_is_found_in_the_navigation(
    service: Service, open_page: Opener, admin: OperatorBrowser
) -> None:
    page = come_in(open_page(service.base, viewport=PHONE), service, admin, "/operator")
    for place in NAVIGATION:
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name=place.name, exact=True).click()
        page.wait_for_url(service.base + place.path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)


def test_an_operator_signs_in_for_the_first_time(service: Service, open_page: Opener) -> None:
    phone, password = create(service, name="Tino First")
    page = open_page(service.base, viewport=PHONE, javascript=False)
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


def test_a_country_is_added_and_its_price_set_now_and_for_later(
    service: Service, open_page: Opener, admin: OperatorBrowser
) -> None:
    name, code = "Botswana", "BW"
    page = open_page(service.base, viewport=PHONE, javascript=False)
    come_in(page, service, admin, "/operator/prices")
    for label, value in (("Name", name), ("Two letters", code), ("Calling code", "0"), ("Digits", "x")):
        page.get_by_label(label).fill(value)
    page.get_by_role("button", name="Add the country").click()
    expect(page.get_by_role("alert")).to_contain_text("Calling code")
    inspect(page, "console-prices-faults")
    page.get_by_label("Calling code").fill("267")
    page.get_by_label("Digits after it").fill("9")
    page.get_by_role("button", name="Add the country").click()
    expect(page.get_by_role("status")).to_contain_text("The country is added")

    now = page.get_by_role("region", name="Set a price")
    now.get_by_label("Country").select_option(name)
    now.get_by_label("Price").fill("0.03")
    now.get_by_role("button").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Is this price right?")
    inspect(page, "console-price-confirm")
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


def test_an_audit_is_run_and_an_operator_added(
    service: Service, open_page: Opener, admin: OperatorBrowser
) -> None:
    page = come_in(open_page(service.base, viewport=DESKTOP), service, admin, "/operator/system")
    page.get_by_role("button", name="Run audit").click()
    expect(page.get_by_role("status")).to_contain_text("An audit is asked for")
    expect(page.get_by_role("button", name="Run audit")).to_be_disabled()
    assert service.run(runs.run_next)
    page.goto("/operator/system")
    expect(page.get_by_role("button", name="Run audit")).to_be_enabled()
    page.get_by_label("Name").fill("Vimbai Viewer")
    page.get_by_label("Phone number").fill(new_phone())
    page.get_by_label("Role").select_option("Viewer: changes nothing")
    page.get_by_role("button", name="Add the operator").click()
    expect(page.locator("#password")).to_be_visible()
    inspect(page, "console-system-password")
    page.goto("/operator/changes")
    expect(page.get_by_role("main")).to_contain_text("Operator added")


def test_a_viewer_finds_no_forms(full: FullService, open_page: Opener) -> None:
    viewer = new_operator(full.service, Role.VIEWER, "Vimbai Viewer")
    page = come_in(open_page(full.service.base, viewport=DESKTOP), full.service, viewer, TRAFFIC)
    for path in (
        CARRIERS,
        CARRIERS + "/main",
        RECEIPTS,
        RECEIPTS + "/1",
        WEBHOOKS,
        ACCOUNTS + "/{account}",
        TOP_UPS + "/{doubt}",
        "/operator/prices",
        "/operator/content/templates",
        "/operator/content/refusals/{account}/{digest}",
        "/operator/system",
    ):
        page.goto(path.format(**full.paths))
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
        expect(page.get_by_role("main").get_by_role("radio")).to_have_count(0)
        check_accessibility(page)


def test_an_account_is_found_credited_and_suspended(
    service: Service, admin: OperatorBrowser, open_page: Opener
) -> None:
    business = "Ncube Hardware"
    person = sign_up(service, business=business)
    account_id = account_of(service, person)
    service.run(manage_accounts.credit, account_id, Decimal("123.45"), note="Cash", actor="cli:root")
    page = open_page(service.base, viewport=PHONE, javascript=False)
    come_in(page, service, admin, ACCOUNTS)
    page.get_by_label("Look for").fill(business.lower())
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name=business).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(business)
    page.get_by_label("Fair-share weight").fill("1000")
    page.get_by_role("button", name="Save limits").click()
    expect(page.get_by_role("alert")).to_contain_text("Fair-share weight")
    inspect(page, "console-account-faults")
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
    account_id = account_of(service, sign_up(service, business="Sibanda Butchery"))
    add_top_up(service, account_id, PaymentInDoubt("no answer within 45 seconds", is_last=True))
    page = open_page(service.base, viewport=PHONE)
    come_in(page, service, admin, TOP_UPS)
    page.get_by_role("region", name="In doubt").get_by_role("link", name="Paynow, EcoCash of Sibanda").click()
    page.get_by_label("How you know").fill("On the statement of Monday")
    page.get_by_role("button", name="Go on").click()
    inspect(page, "console-top-up-confirm")
    page.get_by_role("button", name="Credit it").click()
    expect(page.get_by_role("status")).to_have_text("The top-up is credited.")
    expect(page.get_by_text("Decided by")).to_be_visible()


def test_an_admin_puts_things_right_on_a_phone(
    service: Service, admin: OperatorBrowser, open_page: Opener
) -> None:
    page = open_page(service.base, viewport=PHONE, javascript=False)
    come_in(page, service, admin, RECEIPTS)
    page.get_by_role("link", name="a-prefix-that").first.click()
    page.get_by_role("radio").first.check()
    page.get_by_role("region", name="What it may be about").get_by_label("Note").fill("The carrier said so")
    page.get_by_role("button", name="Match by hand").click()
    expect(page.get_by_role("status")).to_contain_text("The receipt is matched")
    page.get_by_role("link", name="a-prefix-that").first.click()
    page.get_by_role("region", name="Dismiss it").get_by_label("Note").fill("A test of theirs")
    page.get_by_role("button", name="Dismiss the receipt").click()
    expect(page.get_by_role("status")).to_contain_text("The receipt is dismissed")
    page.goto(CARRIERS)
    name = "added"
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_label("URL").fill("smpp://user:hushhush@127.0.0.1:9")
    page.get_by_role("button", name="Add the carrier").click()
    expect(page.get_by_role("status")).to_contain_text("The carrier is added")
    page.get_by_role("link", name=f"Change or test {name}").click()
    page.get_by_label("Window").fill("0")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Window")
    inspect(page, "console-carrier-fault")
    page.get_by_label("Window").fill("10")
    page.get_by_label("Priority").fill("55")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("The carrier is changed")
    page.get_by_role("button", name="Test the connection").click()
    expect(page.get_by_role("alert")).to_contain_text("Nobody listens on 127.0.0.1:9")
    page.get_by_label("Name of the carrier").fill(name)
    page.get_by_role("button", name="Remove the carrier").click()
    expect(page.get_by_role("status")).to_contain_text("The carrier is removed")
    page.goto(WEBHOOKS)
    page.get_by_role("button", name="Try now").first.click()
    expect(page.get_by_role("status")).to_contain_text("The endpoint is active")


def test_an_open_page_shows_what_is_new_by_itself(
    service: Service, admin: OperatorBrowser, open_page: Opener
) -> None:
    page = open_page(service.base, viewport=DESKTOP)
    come_in(page, service, admin, TRAFFIC)
    page.clock.install()
    page.goto(TRAFFIC)
    expect(page.get_by_text("Updates by itself.")).to_be_visible()
    doubt = page.locator('[data-live="in-doubt"]')
    expect(doubt).to_have_text("0")
    service.sql("INSERT INTO retries VALUES (gen_random_uuid(), now(), true, 1)")
    page.clock.run_for(5_100)
    expect(doubt).to_have_text("1")
    service.sql("DELETE FROM retries")
    with page.expect_response("**/operator/traffic/now"):
        page.clock.run_for(5_100)
    expect(doubt).to_have_text("0")
    # After ten minutes nobody may be there any more.
    page.clock.fast_forward(600_000)
    expect(page.get_by_text("This page no longer updates by itself.")).to_be_visible()


def test_without_scripts_a_link_refreshes_the_page(
    service: Service, admin: OperatorBrowser, open_page: Opener
) -> None:
    page = open_page(service.base, viewport=PHONE, javascript=False)
    come_in(page, service, admin, TRAFFIC)
    page.goto(TRAFFIC)
    expect(page.get_by_text("Updates by itself.")).to_have_count(0)
    service.sql("INSERT INTO retries VALUES (gen_random_uuid(), now(), true, 1)")
    page.get_by_role("link", name="Refresh").click()
    expect(page.locator('[data-live="in-doubt"]')).to_have_text("1")
    service.sql("DELETE FROM retries")
