"""The journey of an API key: created once, copied, used, and revoked after a question."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.browser import DESKTOP, PHONE, Opener, Viewport, bring_session, inspect
from tests.support.identity.people import count, run_behind_proxy, sign_up
from tests.support.processes.service import Service

MINE = "SELECT count(*) FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE a.phone = $1"


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.mark.parametrize(
    ("viewport", "javascript"),
    [
        pytest.param(PHONE, False, id="phone without scripts", marks=pytest.mark.long),
        pytest.param(DESKTOP, True, id="desk"),
    ],
)
def test_a_key_is_created_once_and_revoked_after_a_question(
    service: Service, open_page: Opener, viewport: Viewport, *, javascript: bool
) -> None:
    person = sign_up(service)
    page = open_page(service.base, viewport=viewport, javascript=javascript)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    bring_session(page, service.base, person.session)
    page.goto("/dashboard/keys")
    page.get_by_label("Key name").fill("web shop")
    page.get_by_role("button", name="Create API key").click()
    key = page.locator("#key").text_content() or ""
    assert re.fullmatch(r"tmr_\w{26}_\w{32}", key)
    expect(page.locator("#call")).to_contain_text(f"curl {service.base}/api/v1/messages")
    inspect(page, "key-created")
    if javascript:
        page.get_by_role("button", name="Copy").first.click()
        expect(page.locator('[data-copied="key"]')).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == key
    else:
        expect(page.get_by_role("button", name="Copy")).to_have_count(0)

    page.reload()
    expect(page.get_by_role("status").filter(has_text="already created")).to_be_visible()
    expect(page.locator("#key")).to_have_count(0)
    assert count(service, MINE, person.phone) == 1

    page.get_by_role("link", name="Revoke web shop").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Revoke “web shop”?")
    expect(page.get_by_text("never")).to_be_visible()
    inspect(page, "key-revoke")
    page.get_by_role("link", name="Keep it").click()
    assert service.call(key, "GET", "/balance").status_code == 200
    page.get_by_role("link", name="Revoke web shop").click()
    page.get_by_role("button", name="Revoke API key").press("Enter")
    expect(page.get_by_text("The API key was revoked.")).to_be_visible()
    assert service.call(key, "GET", "/balance").status_code == 401
