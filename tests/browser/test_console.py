"""Operators' journeys through the console, on a phone and on a desk, without scripts where that differs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import DESKTOP, PHONE, Opener, Viewport, inspect
from tests.support.full_service import FullService, run_full_service
from tests.support.hand import Hand, Way, ways
from tests.support.identity.operators import (
    COOKIE,
    PASSWORD,
    OperatorBrowser,
    create,
    read_secret,
)
from tests.support.processes.service import Service
from tumira.identity import totp

TOP_UPS: Final = "/operator/top-ups"
CARRIERS: Final = "/operator/carriers"
RECEIPTS: Final = "/operator/receipts"
WEBHOOKS: Final = "/operator/webhooks"
TRAFFIC: Final = "/operator/traffic"


@pytest.fixture(scope="module")
def full(server_url: str) -> Iterator[FullService]:
    with run_full_service(server_url) as full:
        yield full


@pytest.fixture
def service(full: FullService) -> Service:
    return full.service


@pytest.fixture
def admin(full: FullService) -> OperatorBrowser:
    return full.admin


def come_in(page: Page, service: Service, operator: OperatorBrowser, path: str) -> Page:
    page.context.add_cookies([{"name": COOKIE, "value": operator.cookie, "url": service.base}])
    page.goto(path)
    return page


@ways()
def test_an_operator_signs_in_for_the_first_time_and_again(
    service: Service, open_page: Opener, way: Way
) -> None:
    phone, password = create(service, name="Tino First")
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    page.goto("/operator/changes")
    hand.fill("Phone number", phone)
    hand.submit("Password", password)
    expect(page.locator("#secret")).to_be_visible()
    hand.inspect("console-set-up")
    authenticator = totp.authenticator(read_secret(page.content()))
    hand.fill(page.get_by_label("Password"), PASSWORD)
    hand.fill(page.locator("#code"), authenticator.now())
    hand.press(hand.main.locator("form button").last)
    hand.expect_heading("Recovery codes")
    hand.inspect("console-recovery-codes")
    hand.link("I have saved them")
    hand.expect_heading("Start")
    hand.go_to("Changes")
    expect(hand.main).to_contain_text("Operator chose a password and a second factor")
    hand.sign_out()
    hand.expect_heading("Operator sign-in")
    hand.fill("Phone number", phone)
    hand.submit("Password", PASSWORD)
    # A code is accepted once, and so is that of the step before.
    hand.submit("Authentication code", authenticator.at(datetime.now(UTC), 1))
    hand.expect_heading("Start")


@pytest.mark.long
def test_a_country_is_added_and_its_price_set(
    service: Service, open_page: Opener, admin: OperatorBrowser
) -> None:
    name, code = "Botswana", "BW"
    page = open_page(service.base, viewport=PHONE, javascript=False)
    come_in(page, service, admin, "/operator/prices")
    add = page.get_by_role("region", name="Add a country")
    for label, value in (("Name", name), ("Country code", code), ("Calling code", "0"), ("Digits", "x")):
        add.get_by_label(label).first.fill(value)
    page.get_by_role("button", name="Add country").click()
    expect(page.get_by_role("alert")).to_contain_text("Calling code")
    page.locator("#calling_code").fill("267")
    page.locator("#lengths").fill("9")
    page.get_by_role("button", name="Add country").click()
    expect(page.get_by_role("status")).to_contain_text("Country added.")

    now = page.get_by_role("region", name="Set a price")
    now.get_by_label("Country").select_option(name)
    now.get_by_label("Price").fill("0.03")
    now.get_by_role("button").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Check the price")
    inspect(page, "console-price-confirm")
    page.get_by_role("button", name="Set price").click()
    expect(page.get_by_role("status")).to_contain_text("Price set.")


def test_an_admin_puts_things_right_on_a_phone(
    service: Service, admin: OperatorBrowser, open_page: Opener
) -> None:
    page = open_page(service.base, viewport=PHONE, javascript=False)
    come_in(page, service, admin, RECEIPTS)
    page.get_by_role("link", name="a-prefix-that").first.click()
    page.get_by_role("radio").first.check()
    page.get_by_role("region", name="Possible matches").get_by_label("Reason").fill("The carrier said so")
    page.get_by_role("button", name="Match receipt").click()
    expect(page.get_by_role("status")).to_contain_text("Receipt matched.")
    page.get_by_role("link", name="a-prefix-that").first.click()
    page.get_by_role("region", name="Dismiss this receipt").get_by_label("Reason").fill("A test of theirs")
    page.get_by_role("button", name="Dismiss receipt").click()
    expect(page.get_by_role("status")).to_contain_text("Receipt dismissed.")
    page.goto(CARRIERS)
    name = "added"
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_label("URL").fill("smpp://user:hushhush@127.0.0.1:9")
    page.get_by_role("button", name="Add carrier").click()
    expect(page.get_by_role("status")).to_contain_text("Carrier added.")
    page.get_by_role("link", name=f"Charts and settings of {name}").click()
    page.get_by_label("Window").fill("0")
    page.get_by_role("button", name="Save settings").click()
    expect(page.get_by_role("alert")).to_contain_text("Window")
    inspect(page, "console-carrier-fault")
    page.get_by_label("Window").fill("10")
    page.get_by_label("Priority").fill("55")
    page.get_by_role("button", name="Save settings").click()
    expect(page.get_by_role("status")).to_contain_text("Settings saved.")
    page.get_by_role("button", name="Test connection").click()
    expect(page.get_by_role("alert")).to_contain_text("127.0.0.1:9 refused the connection.")
    page.get_by_label("Carrier name").fill(name)
    page.get_by_role("button", name="Remove carrier").click()
    expect(page.get_by_role("status")).to_contain_text("Carrier removed.")
    page.goto(WEBHOOKS)
    page.get_by_role("button", name="Try now").first.click()
    expect(page.get_by_role("status")).to_contain_text("The endpoint is active")


def count_a_day(service: Service) -> None:
    """Count messages in each of the last 24 hours, more of them by day, and some errors."""
    service.sql(
        "INSERT INTO outcomes"
        " SELECT date_trunc('hour', now()) - back * interval '1 hour', id, 'Econet', 'ZW', outcome,"
        "        share * (20 + 15 * (back % 12))"
        "   FROM carriers, generate_series(0, 23) AS back,"
        "        (VALUES ('sent', 20), ('delivered', 18), ('failed', 1), ('UNKNOWN_SUBSCRIBER', 1),"
        "                ('ABSENT_SUBSCRIBER', 1), ('RTHROTTLED (0x58)', 2)) AS ends (outcome, share)"
        "  WHERE name = 'main' ON CONFLICT DO NOTHING"
    )
    service.sql(
        "INSERT INTO latencies"
        " SELECT date_trunc('hour', now()) - back * interval '1 hour', 'handover', 'Econet', 'ZW', 0, bucket,"
        "        100 / bucket"
        "   FROM generate_series(0, 23) AS back, generate_series(3, 9 + back % 3) AS bucket"
        " ON CONFLICT DO NOTHING"
    )


@pytest.mark.long
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP])
def test_charts_fill_their_cards_and_have_tables(
    service: Service, admin: OperatorBrowser, open_page: Opener, viewport: Viewport
) -> None:
    count_a_day(service)
    page = open_page(service.base, viewport=viewport, javascript=False)
    for path, names in (
        (
            TRAFFIC,
            (
                "Messages per hour",
                "Time from acceptance to submission",
                "Failed messages by reason",
                "Messages per day",
            ),
        ),
        (f"{CARRIERS}/main", ("Messages per hour", "Failed messages by reason", "Errors from the carrier")),
    ):
        come_in(page, service, admin, path)
        for name in names:
            card = page.get_by_role("region", name=name, exact=True)
            chart, around = card.locator("svg.chart").bounding_box(), card.bounding_box()
            assert chart is not None
            assert around is not None
            # On its left are the figures, and around both is the card's edge.
            assert around["width"] - chart["width"] <= 48 + 2 * 21
            assert chart["height"] >= 170
            summary = card.get_by_text("Show as a table")
            summary.focus()
            page.keyboard.press("Enter")
            expect(card.get_by_role("table")).to_be_visible()
        inspect(page, f"console-charts{path.replace('/', '-')}")


@pytest.mark.long
def test_an_open_page_shows_what_is_new_by_itself(
    service: Service, admin: OperatorBrowser, open_page: Opener
) -> None:
    page = open_page(service.base, viewport=DESKTOP)
    come_in(page, service, admin, TRAFFIC)
    page.clock.install()
    page.goto(TRAFFIC)
    expect(page.get_by_text("Updates automatically.")).to_be_visible()
    doubt = page.locator('[data-live="in-doubt"]')
    expect(doubt).to_have_text("0")
    service.sql("INSERT INTO retries VALUES (gen_random_uuid(), now(), true, 1)")
    page.clock.run_for(5_100)
    expect(doubt).to_have_text("1")
    service.sql("DELETE FROM retries")
    with page.expect_response("**/operator/traffic/now"):
        page.clock.run_for(5_100)
    expect(doubt).to_have_text("0")
    # After ten minutes nobody may be there any more.
    page.clock.fast_forward(600_000)
    expect(page.get_by_text("Updates have stopped.")).to_be_visible()
