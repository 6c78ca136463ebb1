"""The journey of an API key: created once, copied, used, and revoked after a question."""

import re
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.support.browser import Opener, bring_session
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import PASSWORD, count, run_behind_proxy, sign_up
from tests.support.processes.service import Service

MINE: Final = "SELECT count(*) FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE a.phone = $1"


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


@ways()
def test_a_key_is_created_once_and_revoked_after_a_question(
    service: Service, open_page: Opener, way: Way
) -> None:
    person = sign_up(service)
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    bring_session(page, service.base, person.session)
    page.goto("/dashboard")
    hand.go_to("API keys")
    hand.fill("Key name", "web shop")
    hand.tick(page.get_by_role("checkbox", name="account:read"), checked=False)
    hand.fill("Your password", PASSWORD)
    hand.button("Create API key")
    key = page.locator("#key").text_content() or ""
    assert re.fullmatch(r"tmr_\w{26}_\w{32}", key)
    expect(page.locator("#call")).to_contain_text(f"curl {service.base}/api/v1/messages")
    hand.inspect("key-created")
    if way.javascript:
        hand.press(page.get_by_role("button", name="Copy").first)
        expect(page.locator('[data-copied="key"]')).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == key
    else:
        expect(page.get_by_role("button", name="Copy")).to_have_count(0)

    page.reload()
    hand.expect_told("already created")
    expect(page.locator("#key")).to_have_count(0)
    assert count(service, MINE, person.phone) == 1

    hand.link("Revoke web shop")
    hand.expect_heading("Revoke “web shop”?")
    expect(page.get_by_text("never")).to_be_visible()
    hand.inspect("key-revoke")
    hand.link("Keep it")
    assert service.call(key, "GET", "/balance").status_code == 403
    hand.link("Revoke web shop")
    hand.button("Revoke API key")
    hand.expect_told("The API key was revoked.")
    assert service.call(key, "GET", "/balance").status_code == 401
