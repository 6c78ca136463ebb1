"""A developer finds the way from the front page to a first call, copies it, and comes back."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.browser import Opener
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import run_behind_proxy
from tests.support.processes.service import Service
from tumira.carriers.manage import keep_simulator


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        running.run(keep_simulator, 2775)
        yield running


@ways()
def test_the_guide_leads_to_a_first_call_and_back(service: Service, open_page: Opener, way: Way) -> None:
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    page.goto("/")
    hand.link("Docs", page.get_by_role("navigation", name="Site"))
    hand.expect_heading("Developer guide")
    expect(page.locator("#api-url")).to_have_text(f"{service.base}/api/v1")
    # One language at a time.
    php = page.locator("#send-php")
    expect(php).to_be_hidden()
    hand.unfold("PHP")
    expect(php).to_contain_text(f"file_get_contents('{service.base}/api/v1/messages'")
    expect(page.locator("#send-curl")).to_be_hidden()
    expect(page.get_by_role("cell", name="undelivered").first).to_be_visible()
    hand.inspect("guide")
    if way.javascript:
        hand.press(page.locator("[data-copies=send-php]"))
        expect(page.locator("[data-copied=send-php]")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()").startswith("<?php\n$message")
    else:
        expect(page.locator("[data-copies=send-php]")).to_be_hidden()
    hand.link("Reference", page.get_by_role("navigation", name="On this page"))
    hand.expect_heading("API reference")
    hand.link("verify")
    expect(page.get_by_role("heading", name="Verify webhooks")).to_be_in_viewport()
    hand.link("Dashboard")
    hand.expect_heading("Sign in")
    page.go_back()
    hand.link("Tumira")
    expect(page).to_have_url(f"{service.base}/")
