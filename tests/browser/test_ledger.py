"""Journeys through the ledger and its receipts."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.dashboard.test_ledger import LEDGER, Owner, sign_in
from tests.support.browser import PHONE, Opener, bring_session, page_height, screenshot
from tests.support.hand import Hand, Way, ways
from tests.support.identity.customers import ONE
from tests.support.processes.service import Service
from tumira.pricing.phone_numbers import write_phone

TALL_MAX: Final = 2500
SHOWN: Final = write_phone(ONE)


@pytest.fixture(scope="module")
def owner(service: Service) -> Owner:
    """Give a customer with a page of entries of all kinds, some with long notes."""
    customer = sign_in(service)
    for place in range(4):
        customer.credit("20", "Paid in cash at the counter of the shop in Mutare, for November")
        customer.send(ONE, "+27821230001", reference=f"order-{place}-" + "x" * 50)
        customer.refund(customer.send(), "ABSENT_SUBSCRIBER")
        customer.top_up("5.4054")
    return customer


@ways()
def test_a_page_of_entries_is_short_and_a_credit_leads_to_its_receipt(
    service: Service, owner: Owner, open_page: Opener, way: Way
) -> None:
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    bring_session(page, service.base, owner.token)
    page.goto(LEDGER)
    expect(page.locator("tbody tr")).to_have_count(20)
    screenshot(page, "ledger-20")
    if way.viewport is PHONE:
        # Folded on a phone, and open on a desk.
        expect(page.get_by_label("Kind")).to_be_hidden()
        assert page_height(page) < TALL_MAX
        hand.unfold("Filter")
    hand.select("Kind", "Credits and deductions")
    hand.button("Filter")
    expect(page.locator("tbody tr")).to_have_count(5)
    hand.inspect("ledger")
    hand.press(page.get_by_role("link", name="Credit, with receipt").first)
    hand.expect_heading("Receipt")
    expect(page.get_by_text("Paid in cash at the counter")).to_be_visible()
    expect(page.get_by_role("button", name="Print")).to_be_visible(visible=way.javascript)
    hand.inspect("receipt")
    page.emulate_media(media="print")
    for hidden in (".bar", ".help", "[data-print]", ".back"):
        expect(page.locator(hidden)).to_be_hidden()
    screenshot(page, "receipt-paper")
    page.emulate_media(media="screen")


@ways()
def test_where_nothing_can_be_paid_online_the_page_calculates_and_names_support(
    service: Service, owner: Owner, open_page: Opener, way: Way
) -> None:
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    bring_session(page, service.base, owner.token)
    page.goto("/dashboard/top-up?amount=0.08")
    expect(hand.field("Amount in US dollars")).to_have_value("5.00")
    expect(page.get_by_text("To arrange a payment, contact support")).to_be_visible()
    hand.submit("Amount in US dollars", "20")
    expect(page).to_have_url(re.compile(r"amount=20$"))
    expect(page.locator("[data-price]").first).to_have_text("500")
    hand.inspect("top-up-none")


@pytest.mark.long
def test_entries_are_filtered_followed_and_downloaded(service: Service, open_page: Opener) -> None:
    customer = sign_in(service)
    customer.fill(120)
    customer.refund(customer.send(), "HANDSET_ERROR")
    page = open_page(service.base, viewport=PHONE, javascript=False)
    bring_session(page, service.base, customer.token)
    page.goto(LEDGER)
    expect(page.get_by_text("Your entries add up to your balance")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(20)
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr")).to_have_count(20)
    page.get_by_role("link", name="Newest").click()
    page.get_by_text("Filter", exact=True).first.click()
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
    page.get_by_role("link", name=f"Refund for {SHOWN}").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(SHOWN)
    page.go_back()
    page.get_by_role("link", name="Clear").click()
    expect(page.locator("tbody tr")).to_have_count(20)
