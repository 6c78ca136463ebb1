"""Journeys through the ledger and the calculator of top-ups, without scripts."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.test_ledger import ADD_UP, LEDGER, TOP_UP, Owner, sign_in
from tests.support.browser import PHONE, Opener, inspect
from tests.support.identity.customers import ONE
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tumira.operations.maintenance import run_task

LONG: Final = "Kubatana-Tose-Trading-" * 5


@pytest.fixture(scope="module")
def dashboard(server_url: str) -> Iterator[Service]:
    with clone(server_url) as url, run_web(url) as running:
        yield running


@pytest.fixture(scope="module")
def customer(dashboard: Service) -> Owner:
    one = sign_in(dashboard, "1234567.8912")
    one.fill(1030)
    dashboard.run(run_task, ADD_UP)
    one.top_up("5")
    one.send(ONE, "+27821230001", reference="W" * 64)
    one.refund(one.send(reference="order-7"), "HANDSET_ERROR")
    one.credit("-2.5", LONG)
    return one


def visit(customer: Owner, page: Page, path: str) -> Page:
    page.context.add_cookies(
        [{"name": "tumira_session", "value": customer.token, "url": customer.service.base}]
    )
    page.goto(path)
    return page


def test_broken_books_are_shown(dashboard: Service, open_page: Opener) -> None:
    customer = sign_in(dashboard)
    customer.send()
    dashboard.sql("UPDATE accounts SET balance = balance + 1 WHERE id = $1", customer.caller.id)
    page = visit(customer, open_page(dashboard.base, viewport=PHONE), LEDGER)
    expect(page.get_by_role("alert")).to_contain_text("They come to US$99.96, and your balance is US$100.96.")
    inspect(page, "ledger-broken")


def test_entries_are_filtered_followed_and_downloaded(customer: Owner, open_page: Opener) -> None:
    page = open_page(customer.service.base, viewport=PHONE, javascript=False)
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


def test_an_amount_is_calculated(customer: Owner, open_page: Opener) -> None:
    page = open_page(customer.service.base, viewport=PHONE, javascript=False)
    visit(customer, page, TOP_UP)
    page.get_by_label("Amount").fill("4")
    page.get_by_role("button", name="Calculate", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The smallest top-up is US$5.00.")
    page.get_by_label("Amount").fill("5")
    page.get_by_role("button", name="Calculate", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text(
        "125 messages to Zimbabwe or 250 messages to South Africa"
    )
