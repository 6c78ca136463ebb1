"""The journey of an endpoint: set up, tested, paused, rotated and removed."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.browser import PHONE, Opener, bring_session, check_accessibility
from tests.support.identity.people import run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tests.support.webhooks.pages import URL
from tumira.dashboard.pages.webhooks import WEBHOOKS


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url, TUMIRA_WEBHOOKS_ALLOW_PRIVATE="1") as running:
        yield running


@pytest.mark.long
def test_an_endpoint_is_set_up_looked_after_and_removed(service: Service, open_page: Opener) -> None:
    page = open_page(service.base, viewport=PHONE)
    bring_session(page, service.base, sign_up(service).session)
    page.goto(WEBHOOKS)

    page.get_by_label("URL").fill("https://10.0.0.1:5432/")
    page.get_by_label("Description (optional)").fill("Shop")
    for type_ in page.get_by_role("checkbox").all():
        type_.uncheck()
    page.get_by_role("button", name="Add endpoint").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose at least one.")
    expect(page.get_by_label("Description (optional)")).to_have_value("Shop")
    page.get_by_label("URL").fill(URL)
    page.get_by_role("checkbox", name="message.failed").check()
    page.get_by_role("button", name="Add endpoint").click()
    expect(page.locator("#secret")).to_have_text(re.compile(r"whsec_\S{44}"))
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    check_accessibility(page)

    page.get_by_role("link", name="Try it out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(URL)
    expect(page.locator("#secret")).to_have_count(0)
    page.get_by_role("button", name="Send test").click()
    expect(page.get_by_role("status")).to_contain_text("The test is on its way")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("The endpoint is paused.")
    page.get_by_role("button", name="Resume with what waited").click()
    expect(page.get_by_role("status")).to_contain_text("The endpoint is active.")
    page.get_by_text("Rotate secret").click()
    page.get_by_role("button", name="Make a new secret").click()
    expect(page.locator("#secret")).to_have_text(re.compile(r"whsec_\S{44}"))
    page.get_by_label("Description (optional)").fill("Till")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Till", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Yes, remove the endpoint")).to_be_hidden()
    page.get_by_text("Remove", exact=True).click()
    page.get_by_role("button", name="Yes, remove the endpoint").click()
    expect(page.get_by_text("You have no endpoint yet.")).to_be_visible()
