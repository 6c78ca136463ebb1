"""A visitor reads the front page, the rules and the prices, and finds the way to sign up."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.browser import Opener
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import run_behind_proxy
from tests.support.processes.service import Service


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url, TUMIRA_SUPPORT_EMAIL="help@example.com") as running:
        yield running


@ways()
def test_a_visitor_learns_what_it_costs_and_what_may_be_sent(
    service: Service, open_page: Opener, way: Way
) -> None:
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    page.goto("/")
    for name in ("EcoCash", "OneMoney", "USDT"):
        expect(page.locator(".methods")).to_contain_text(name)
    expect(page.get_by_text("planned, not charged yet")).to_be_hidden()
    hand.unfold("Price table with planned prices")
    expect(page.get_by_text("planned, not charged yet").first).to_be_visible()
    expect(page.get_by_role("link", name="help@example.com").first).to_have_attribute(
        "href", "mailto:help@example.com"
    )
    about = page.get_by_role("navigation", name="About this service")
    for name in ("Contact", "Terms", "Privacy", "What you may send"):
        hand.link(name, about)
        hand.expect_heading(name)
    hand.inspect("content-policy")
    # What is behind the sign-in leads there first.
    hand.link("Compose", hand.main)
    hand.expect_heading("Sign in")
    page.go_back()
    hand.link("Tumira")
    hand.link("Create an account", hand.main)
    hand.expect_heading("Sign up")
