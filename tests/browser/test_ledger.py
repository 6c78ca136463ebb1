"""A journey through the ledger, without scripts."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.dashboard.test_ledger import LEDGER, sign_in
from tests.support.browser import PHONE, Opener, bring_session
from tests.support.identity.customers import ONE
from tests.support.processes.service import Service


@pytest.mark.long
def test_entries_are_filtered_followed_and_downloaded(service: Service, open_page: Opener) -> None:
    customer = sign_in(service)
    customer.fill(120)
    customer.refund(customer.send(), "HANDSET_ERROR")
    page = open_page(service.base, viewport=PHONE, javascript=False)
    bring_session(page, service.base, customer.token)
    page.goto(LEDGER)
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
