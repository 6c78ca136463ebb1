"""The journeys of an endpoint: set up, tested, rotated and removed; paused, resent to and resumed."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.support.browser import Opener, bring_session, page_height
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import PASSWORD, Person, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tests.support.webhooks.pages import URL, account_of, add, add_events, attempt, put_attempts
from tumira.dashboard.pages.webhooks import PAGE

# On a phone, with 20 attempts.
HEIGHT_MAX: Final = 2_500


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url, TUMIRA_WEBHOOKS_ALLOW_PRIVATE="1") as running:
        yield running


@ways()
def test_an_endpoint_is_set_up_looked_after_and_removed(
    service: Service, open_page: Opener, way: Way
) -> None:
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    bring_session(page, service.base, sign_up(service).session)
    page.goto("/dashboard")
    hand.go_to("Webhooks")
    hand.fill("URL", "https://10.0.0.1:5432/")
    hand.fill("Description (optional)", "Shop")
    hand.fill("Your password", PASSWORD)
    for type_ in page.get_by_role("checkbox").all():
        hand.tick(type_, checked=False)
    hand.button("Add endpoint")
    hand.expect_refused("Choose at least one.")
    expect(hand.field("Description (optional)")).to_have_value("Shop")
    hand.fill("URL", URL)
    hand.tick(page.get_by_role("checkbox", name="message.failed"))
    hand.fill("Your password", "not my password")
    hand.button("Add endpoint")
    hand.expect_refused("Wrong password.")
    hand.fill("Your password", PASSWORD)
    hand.button("Add endpoint")
    secret = page.locator("#secret")
    expect(secret).to_have_text(re.compile(r"whsec_\S{44}"))
    hand.inspect("endpoint-created")
    if way.javascript:
        hand.button("Copy")
        expect(page.locator('[data-copied="secret"]')).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == secret.inner_text()

    hand.link("Test the endpoint")
    hand.expect_heading(URL)
    expect(secret).to_have_count(0)
    hand.button("Send test")
    hand.expect_told("your server has not answered yet")
    hand.button("Pause")
    hand.expect_told("The endpoint is paused.")
    hand.button("Test and resume")
    hand.expect_told("your server has not answered yet")
    hand.unfold("Rotate secret")
    hand.fill(page.locator("#password"), PASSWORD)
    hand.button("Create new secret")
    expect(secret).to_have_text(re.compile(r"whsec_\S{44}"))
    hand.unfold("Change endpoint")
    hand.fill("Description (optional)", "Till")
    hand.button("Save")
    expect(page.get_by_text("Till", exact=True)).to_be_visible()
    _change_url(hand)
    expect(page.get_by_role("button", name="Remove endpoint")).to_be_hidden()
    hand.unfold("Remove endpoint")
    hand.button("Remove endpoint")
    expect(page.get_by_text("You have no endpoints yet.")).to_be_visible()


@ways()
def test_an_endpoint_that_is_backing_off_is_resumed_from_a_short_page(
    service: Service, open_page: Opener, way: Way
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
    fail(service, person)
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    bring_session(page, service.base, person.session)
    page.goto("/dashboard")
    # The overview warns, and leads to it.
    hand.link("See details")
    expect(page.get_by_role("row")).to_have_count(PAGE + 1)
    expect(page.get_by_text("Paused until")).to_be_visible()
    hand.inspect("endpoint-paused")
    assert page_height(page) < HEIGHT_MAX

    hand.press(page.get_by_role("button", name="Resend", exact=True).first)
    hand.expect_told("The event is being resent.")
    expect(page.get_by_text("Paused until")).to_have_count(0)
    expect(page.get_by_text("Next attempt")).to_be_visible()
    hand.unfold("Resend events")
    hand.fill("Since", "2020-01-01")
    hand.button("Resend events")
    hand.expect_refused("Choose a later day.")
    expect(hand.field("Since")).to_be_visible()
    hand.inspect("endpoint-resend")
    hand.fill("Since", str(datetime.now(UTC).date()))
    hand.choose(page.get_by_label("All events"))
    hand.button("Resend events")
    hand.expect_told("resent")

    fail(service, person)
    page.reload()
    hand.button("Test and resume")
    expect(page.get_by_text("Paused until")).to_have_count(0)


def fail(service: Service, person: Person) -> None:
    """Let the endpoint fail so often that it is left alone for some minutes."""
    service.sql(
        "UPDATE webhook_endpoints SET failures = 25, failing_since = now() - interval '2 hours',"
        " position = 1, warnings = 1, rest_until = now() + interval '5 minutes' WHERE account_id = $1",
        account_of(service, person),
    )


def _change_url(hand: Hand) -> None:
    hand.unfold("Change endpoint")
    hand.fill("URL", URL + "/new")
    hand.button("Save")
    # Another URL needs the password, and the form stays open.
    hand.expect_refused("Wrong password.")
    hand.fill(hand.page.locator("#password_for_url"), PASSWORD)
    hand.inspect("endpoint-changed")
    hand.button("Save")
    hand.expect_heading(URL + "/new")
