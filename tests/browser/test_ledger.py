"""Can everybody read the ledger and the page for topping up, on any screen, with scripts or without?"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.test_ledger import ADD_UP, LEDGER, TOP_UP, Owner, sign_in
from tests.support.browser import (
    DESKTOP,
    PHONE,
    WIDE,
    Opener,
    Viewport,
    check_accessibility,
    layout_shift,
    overflows,
    screenshot,
    wire_bytes,
)
from tests.support.identity.customers import ONE
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tumira.operations.maintenance import run_task

FIRST_BYTES_MAX: Final = 60_000
NEXT_BYTES_MAX: Final = 15_000
LONG: Final = "Kubatana-Tose-Trading-" * 5

LOOKS: Final = [
    pytest.param(PHONE, False, id="phone, light"),
    pytest.param(DESKTOP, True, id="desktop, dark", marks=pytest.mark.long),
    pytest.param(PHONE, True, id="phone, dark", marks=pytest.mark.long),
    pytest.param(DESKTOP, False, id="desktop, light", marks=pytest.mark.long),
    pytest.param(WIDE, False, id="wide, light", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def dashboard(server_url: str) -> Iterator[Service]:
    """Give a service whose books may be broken."""
    with clone(server_url) as url, run_web(url) as running:
        yield running


@pytest.fixture(scope="module")
def customer(dashboard: Service) -> Owner:
    """Give somebody whose money has moved in all ways."""
    one = sign_in(dashboard, "1234567.8912")
    one.fill(1030)
    dashboard.run(run_task, ADD_UP)
    one.top_up("5")
    one.send(ONE, "+27821230001", reference="W" * 64)
    one.refund(one.send(reference="order-7"), "HANDSET_ERROR")
    one.credit("-2.5", LONG)
    return one


def visit(customer: Owner, page: Page, path: str) -> Page:
    """Open a page as somebody who is signed in."""
    page.context.add_cookies(
        [{"name": "tumira_session", "value": customer.token, "url": customer.service.base}]
    )
    page.goto(path)
    return page


def look(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert overflows(page) == []
    assert layout_shift(page) == 0
    screenshot(page, name)
    check_accessibility(page)


@pytest.mark.parametrize(("viewport", "dark"), LOOKS)
def test_everybody_can_read_these_pages_on_any_screen(
    customer: Owner, open_page: Opener, viewport: Viewport, *, dark: bool
) -> None:
    page = visit(customer, open_page(customer.service.base, viewport=viewport, dark=dark), LEDGER)
    look(page, "ledger")
    page.goto(LEDGER + "?kind=refunds&from=2026-02-30")
    look(page, "ledger-faulty")
    page.goto(LEDGER + "?kind=top-ups&to=2020-01-01")
    look(page, "ledger-nothing")
    page.goto(TOP_UP + "?amount=12.50")
    look(page, "top-up")
    page.goto(TOP_UP + "?amount=1")
    look(page, "top-up-faulty")


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP])
def test_broken_books_are_shown_to_everybody(
    dashboard: Service, open_page: Opener, viewport: Viewport
) -> None:
    customer = sign_in(dashboard)
    customer.send()
    dashboard.sql("UPDATE accounts SET balance = balance + 1 WHERE id = $1", customer.caller.id)
    page = visit(customer, open_page(dashboard.base, viewport=viewport), LEDGER)
    expect(page.get_by_role("alert")).to_contain_text("They come to US$99.96, and your balance is US$100.96.")
    look(page, "ledger-broken")


@pytest.mark.parametrize("javascript", [True, False])
def test_entries_are_filtered_followed_and_downloaded(
    customer: Owner, open_page: Opener, *, javascript: bool
) -> None:
    page = open_page(customer.service.base, viewport=PHONE, javascript=javascript)
    visit(customer, page, LEDGER)
    expect(page.get_by_role("heading", name="These entries add up to your balance")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("link", name="Newest").click()
    today = (datetime.now(UTC) + timedelta(hours=2)).date()
    page.get_by_label("Kind").select_option("refunds")
    page.get_by_label("From").fill(str(today - timedelta(days=1)))
    page.get_by_label("To").fill(str(today))
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("+US$0.04")
    expect(page.get_by_label("Kind")).to_have_value("refunds")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download CSV").click()
    downloaded = downloading.value.path().read_text()
    assert re.search(rf"refunds,,0\.0400,,bat_\w+,,msg_\w+,{re.escape(ONE)},", downloaded)
    page.get_by_role("link", name=f"message to {ONE}").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(ONE)
    page.go_back()
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tbody tr")).to_have_count(50)


@pytest.mark.parametrize("javascript", [True, False])
def test_an_amount_is_calculated(customer: Owner, open_page: Opener, *, javascript: bool) -> None:
    page = open_page(customer.service.base, viewport=PHONE, javascript=javascript)
    visit(customer, page, TOP_UP)
    page.get_by_label("Amount").fill("4")
    page.get_by_role("button", name="Calculate", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The smallest top-up is US$5.00.")
    page.get_by_label("Amount").fill("5")
    page.get_by_role("button", name="Calculate", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text(
        "125 messages to Zimbabwe or 250 messages to South Africa"
    )


def test_these_pages_are_light(customer: Owner, open_page: Opener) -> None:
    page = open_page(customer.service.base, viewport=PHONE)
    for path in (LEDGER, TOP_UP):
        visit(customer, page, path)
        assert wire_bytes(page) < FIRST_BYTES_MAX
        page.goto(path)
        assert wire_bytes(page) < NEXT_BYTES_MAX, path
