"""The journey of an endpoint: set up, tested, paused, rotated and removed."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.support.browser import (
    DESKTOP,
    PHONE,
    Opener,
    Viewport,
    bring_session,
    check_accessibility,
    inspect,
    page_height,
)
from tests.support.identity.people import run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tests.support.webhooks.pages import URL, account_of, add, add_events, attempt, put_attempts
from tumira.dashboard.pages.webhooks import PAGE, WEBHOOKS

# On a phone, with 20 attempts.
HEIGHT_MAX: Final = 2_500


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

    page.get_by_role("link", name="Test the endpoint").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(URL)
    expect(page.locator("#secret")).to_have_count(0)
    page.get_by_role("button", name="Send test").click()
    expect(page.get_by_role("status")).to_contain_text("your server has not answered yet")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("status")).to_contain_text("The endpoint is paused.")
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text("The endpoint is active.")
    page.get_by_text("Rotate secret").click()
    page.get_by_role("button", name="Create new secret").click()
    expect(page.locator("#secret")).to_have_text(re.compile(r"whsec_\S{44}"))
    page.get_by_text("Change endpoint").click()
    page.get_by_label("Description (optional)").fill("Till")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Till", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Remove endpoint")).to_be_hidden()
    page.get_by_text("Remove endpoint").first.click()
    page.get_by_role("button", name="Remove endpoint").click()
    expect(page.get_by_text("You have no endpoints yet.")).to_be_visible()


@pytest.mark.parametrize(
    "viewport", [PHONE, pytest.param(DESKTOP, marks=pytest.mark.long)], ids=["phone", "desk"]
)
def test_a_paused_endpoint_is_resumed_from_a_short_page_without_scripts(
    service: Service, open_page: Opener, viewport: Viewport
) -> None:
    person = sign_up(service)
    service.sql("UPDATE accounts SET balance = 5 WHERE phone = $1", person.phone)
    endpoint = add(person, URL + "/a-path-of-the-usual-length")
    (event_id,) = add_events(service, person)
    made = [
        attempt(endpoint, event_id, at=datetime.now(UTC) - timedelta(minutes=minutes), status=503, number=11)
        for minutes in range(PAGE + 1)
    ]
    put_attempts(service, endpoint, made)
    service.sql(
        "UPDATE webhook_endpoints SET failures = 25, failing_since = now() - interval '2 hours',"
        " position = 1, warnings = 1, rest_until = now() + interval '5 minutes' WHERE account_id = $1",
        account_of(service, person),
    )
    page = open_page(service.base, viewport=viewport, javascript=False)
    bring_session(page, service.base, person.session)
    page.goto(f"{WEBHOOKS}/{endpoint}")

    expect(page.get_by_role("row")).to_have_count(PAGE + 1)
    expect(page.get_by_text("Paused until")).to_be_visible()
    inspect(page, "endpoint-paused")
    assert page_height(page) < HEIGHT_MAX

    page.get_by_role("button", name="Resend", exact=True).first.click()
    expect(page.get_by_role("status")).to_contain_text("The event is being resent.")
    expect(page.get_by_text("Paused until")).to_have_count(0)
    expect(page.get_by_text("Next attempt")).to_be_visible()
    page.get_by_text("Resend events").first.press("Enter")
    page.get_by_label("Since").fill("2020-01-01")
    page.get_by_role("button", name="Resend events").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose a later day.")
    expect(page.get_by_label("Since")).to_be_visible()
    inspect(page, "endpoint-resend")
