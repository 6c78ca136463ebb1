"""Journeys of an endpoint: set up, tested, paused, rotated, repaired and removed."""

import re
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import PHONE, Opener, check_accessibility
from tests.support.full_service import HOOK, LONG_HOOK, FullService, run_full_service
from tests.support.identity.people import SESSION, Person, sign_up

WEBHOOKS: Final = "/dashboard/webhooks"


@pytest.fixture(scope="module")
def full(server_url: str) -> Iterator[FullService]:
    with run_full_service(server_url) as full:
        yield full


def come_in(page: Page, full: FullService, person: Person) -> None:
    page.context.add_cookies([{"name": SESSION, "value": person.session, "url": full.service.base}])


def test_an_endpoint_is_set_up_looked_after_and_removed(full: FullService, open_page: Opener) -> None:
    newcomer = sign_up(full.service)
    page = open_page(full.service.base, viewport=PHONE)
    come_in(page, full, newcomer)
    page.goto(WEBHOOKS)

    page.get_by_label("URL").fill("https://10.0.0.1:5432/")
    page.get_by_label("Description (optional)").fill("Shop")
    for type_ in page.get_by_role("checkbox").all():
        type_.uncheck()
    page.get_by_role("button", name="Add endpoint").click()
    expect(page.get_by_role("alert")).to_contain_text("Tick at least one.")
    expect(page.get_by_label("Description (optional)")).to_have_value("Shop")
    check_accessibility(page)
    page.get_by_label("URL").fill(HOOK)
    page.get_by_role("checkbox", name="message.failed").check()
    page.get_by_role("button", name="Add endpoint").click()
    expect(page.locator("#secret")).to_have_text(re.compile(r"whsec_\S{44}"))
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    check_accessibility(page)

    page.get_by_role("link", name="Try it out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOOK)
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


def test_what_failed_is_sent_again(full: FullService, open_page: Opener) -> None:
    page = open_page(full.service.base, viewport=PHONE)
    come_in(page, full, full.person)
    page.goto(WEBHOOKS)
    page.get_by_role("table").get_by_role("link", name=LONG_HOOK, exact=True).click()
    page.get_by_role("button", name="Send again").click()
    expect(page.get_by_role("status")).to_contain_text("sent again")
    page.get_by_role("link", name="Older").click()
    expect(page.get_by_role("heading", name="Older tries")).to_be_visible()
    page.get_by_role("button", name="Replay").first.click()
    expect(page.get_by_role("status")).to_contain_text("The event")
