"""A developer finds the way from the front page to a first call, copies it, and comes back."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.browser import DESKTOP, PHONE, Opener, Viewport, inspect
from tests.support.identity.people import run_behind_proxy
from tests.support.processes.service import Service
from tumira.delivery.manage_carriers import keep_simulator


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        running.run(keep_simulator, 2775)
        yield running


@pytest.mark.parametrize(
    ("viewport", "javascript"),
    [
        pytest.param(PHONE, True, id="phone"),
        pytest.param(DESKTOP, False, id="desk without scripts", marks=pytest.mark.long),
    ],
)
def test_the_guide_leads_to_a_first_call_and_back(
    service: Service, open_page: Opener, viewport: Viewport, *, javascript: bool
) -> None:
    page = open_page(service.base, viewport=viewport, javascript=javascript)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/")
    page.get_by_role("navigation", name="Site").get_by_role("link", name="Docs").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Developer guide")
    expect(page.locator("#api-url")).to_have_text(f"{service.base}/api/v1")
    # One language at a time, by keyboard too.
    php = page.locator("#send-php")
    expect(php).to_be_hidden()
    page.locator("summary", has_text="PHP").first.press("Enter")
    expect(php).to_contain_text(f"file_get_contents('{service.base}/api/v1/messages'")
    expect(page.locator("#send-curl")).to_be_hidden()
    expect(page.get_by_role("cell", name="undelivered").first).to_be_visible()
    inspect(page, "guide")
    if javascript:
        page.locator("[data-copies=send-php]").click()
        expect(page.locator("[data-copied=send-php]")).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()").startswith("<?php\n$message")
    else:
        expect(page.locator("[data-copies=send-php]")).to_be_hidden()
    page.get_by_role("navigation", name="On this page").get_by_role("link", name="Reference").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("API reference")
    page.get_by_role("link", name="verify", exact=True).click()
    expect(page.get_by_role("heading", name="Verify webhooks")).to_be_in_viewport()
    page.get_by_role("link", name="Dashboard").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
    page.go_back()
    page.get_by_role("link", name="Tumira", exact=True).click()
    expect(page).to_have_url(f"{service.base}/")
