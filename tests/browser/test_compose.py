"""The compose form counts, prices and warns while typing as the server does, and works without scripts."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pytest
from playwright.sync_api import Page, Request, expect

from tests.dashboard.test_compose import Writer, sign_in
from tests.support.browser import (
    PHONE,
    Opener,
    bring_session,
    check_accessibility,
    inspect,
    overflows,
    press,
    screenshot,
    wire_bytes,
)
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import Person, run_behind_proxy, sign_up
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tumira.audit_log import OPERATOR
from tumira.identity import manage_accounts
from tumira.pricing.actions import add_destination, set_price
from tumira.pricing.destinations import Destination, Price, PriceStatus

COMPOSE: Final = "/dashboard/compose"
ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."
OFFER: Final = "Get 20% off your next order with the code SAVE20!"
MANY: Final = "+263 77 120 0001, 00263771200002; 27821230001\n0242000000 +447700900123"
FIRST_VISIT_MAX: Final = 30_000
SHIFT_MAX: Final = 0.01


@pytest.fixture(scope="module")
def dashboard(server_url: str) -> Iterator[Service]:
    with clone(server_url) as url, run_web(url) as running:
        running.run(add_destination, Destination("ZM", "260", "Zambia", (8, 9)), OPERATOR)
        running.run(set_price, Price("sms", "ZM", Decimal("0.0123"), PriceStatus.ACTIVE), OPERATOR)
        yield running


def visit(customer: Writer, page: Page) -> Page:
    bring_session(page, customer.service.base, customer.token)
    page.goto(COMPOSE)
    return page


def write(page: Page, recipients: str, message: str) -> None:
    page.get_by_label("Recipients").fill(recipients)
    page.get_by_label("Message").fill(message)


@pytest.mark.long
def test_segments_encoding_room_and_prices_are_shown_while_typing(
    dashboard: Service, open_page: Opener
) -> None:
    page = visit(sign_in(dashboard), open_page(dashboard.base))
    write(page, MANY, "a" * 160)
    size, total = page.locator(".size"), page.locator(".send .total")
    expect(size).to_have_text("1 segment GSM-7 0 characters left")
    expect(total).to_have_text("3 recipients · US$0.10 · 2 left out")
    expect(page.locator(".left-out li")).to_have_count(2)
    expect(page.locator(".left-out")).to_contain_text("0242000000 This is not a mobile number in Zimbabwe.")
    expect(page.locator("#preview")).to_have_text("a" * 160)
    page.get_by_label("Message").press_sequentially("b")
    expect(size).to_have_text("2 segments GSM-7 145 characters left")
    expect(total).to_contain_text("US$0.20")
    page.get_by_label("Message").fill("a" * 766)
    expect(size).to_contain_text("6 segments")
    expect(page.get_by_text("at most 5 segments")).to_have_count(2)
    # Said once, after a rest.
    expect(page.locator("#spoken")).to_contain_text("6 segments")
    # What is shown while typing is what is confirmed.
    write(page, "+260971200001, +26097120001 " + MANY, f"{ORDER}\n\n{ORDER} []\u20ac\U0001f600{ORDER}")
    expect(total).to_contain_text("5 recipients")
    shown = (
        total.inner_text(),
        page.locator(".size strong").inner_text(),
        page.locator(".size .badge").inner_text(),
    )
    press(page, "Send")
    expect(page.locator("h1")).to_have_text("Send this message?")
    expect(page.locator("#total")).to_have_text(shown[0])
    expect(page.locator(".size strong")).to_have_text(shown[1])
    expect(page.locator(".size .badge")).to_have_text(shown[2])


@pytest.mark.long
def test_what_forces_ucs_2_is_named_and_can_be_spelt_plainly(dashboard: Service, open_page: Opener) -> None:
    page = visit(sign_in(dashboard), open_page(dashboard.base))
    write(page, MANY, "a" * 75 + "\u2019\u200b")
    expect(page.get_by_text("UCS-2", exact=True)).to_be_visible()
    spelling = page.locator("[data-live=spelling]")
    expect(spelling).to_contain_text("\u2019 zero-width space (U+200B)")
    expect(spelling).to_contain_text("saves 1 segment (US$0.10)")
    press(page, "Use plain spelling")
    expect(page.get_by_label("Message")).to_have_value("a" * 75 + "'")
    expect(page.get_by_text("GSM-7", exact=True)).to_be_visible()
    expect(spelling).to_have_text("")
    page.keyboard.press("Control+z")
    expect(page.get_by_label("Message")).to_have_value("a" * 75 + "\u2019\u200b")
    page.get_by_label("Message").fill("\u4f60\u2019")
    expect(spelling).to_contain_text("There is no plain spelling for \u4f60")
    expect(page.get_by_role("button", name="Use plain spelling")).to_have_count(0)


@pytest.mark.long
def test_the_verdict_is_asked_for_after_a_rest_and_shows_the_words(
    dashboard: Service, open_page: Opener
) -> None:
    customer = sign_in(dashboard)
    page = visit(customer, open_page(dashboard.base, viewport=PHONE, dark=True))
    asked: list[Request] = []

    def note(request: Request) -> None:
        if request.resource_type == "fetch" and request.url.endswith("/check"):
            asked.append(request)

    page.on("request", note)
    message = page.get_by_label("Message")
    message.press_sequentially(f"{ORDER} {OFFER}")
    verdict = page.locator("#verdict")
    expect(verdict.locator("mark").first).to_be_visible()
    expect(verdict).to_contain_text(f"“{OFFER}”")
    assert overflows(page) == []
    check_accessibility(page)
    # A machine that is busy may type with pauses, but never so that each key would be worth a request.
    assert len(asked) < len(ORDER) / 4
    message.fill(ORDER)
    expect(verdict).to_have_text("Checked: this text can be sent.")
    message.fill("Short")
    expect(verdict).to_contain_text("No marketing")
    # Who is signed out while typing is told before anything is lost.
    dashboard.sql("DELETE FROM sessions WHERE account_id = $1", customer.caller.id)
    message.fill(ORDER)
    expect(page.get_by_text("You are signed out.")).to_be_visible()


@pytest.fixture(scope="module")
def shop(server_url: str) -> Iterator[tuple[Service, Person]]:
    """Give a shopkeeper in Harare with ten cents."""
    with run_behind_proxy(server_url) as service:
        person = sign_up(service, "+263771200001")
        (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
        service.run(manage_accounts.credit, row["id"], Decimal("0.10"), note="for tests", actor="test")
        yield service, person


@ways()
def test_a_shopkeeper_is_told_what_is_wrong_and_what_to_do(
    shop: tuple[Service, Person], open_page: Opener, way: Way
) -> None:
    service, person = shop
    hand = Hand.open(open_page, service.base, way)
    page, javascript = hand.page, way.javascript
    bring_session(page, service.base, person.session)
    page.goto(COMPOSE)
    assert wire_bytes(page) <= FIRST_VISIT_MAX
    hand.inspect("compose-empty", SHIFT_MAX)
    # Local numbers, one of which is left out; the balance is too low.
    hand.fill("Recipients", "077 120 0001, 0771200002 0771200003\n0242 000 000")
    hand.fill("Message", ORDER)
    if not javascript:
        hand.button("Send")
    expect(page.get_by_text("+263\xa077\xa0120\xa00001, +263\xa077\xa0120\xa00002")).to_be_visible()
    expect(page.locator(".left-out")).to_contain_text("This is not a mobile number in Zimbabwe.")
    expect(page.locator(".send .total")).to_have_text("3 recipients · US$0.12 · 1 left out")
    expect(page.get_by_text("Your balance is US$0.02 too low.")).to_be_visible()
    expect(page.locator("#top-up")).to_have_attribute(
        "href", "/dashboard/top-up?amount=5" + (".00" if javascript else "")
    )
    hand.inspect(f"compose-low-{javascript}", 1)
    # A text that is taken for marketing is sent for review.
    refused = f"{OFFER} {way.name}"
    hand.fill("Recipients", "0771200001")
    hand.fill("Message", refused)
    if not javascript:
        hand.button("Send")
    expect(page.locator("#verdict mark").first).to_be_visible()
    expect(page.locator(".send")).to_contain_text("The text is refused.")
    hand.unfold("Ask for a review")
    hand.fill("Why do people need it? (optional)", "Members asked for it.")
    hand.inspect(f"compose-refused-{javascript}", 1)
    hand.button("Send for review")
    hand.expect_told("sent for review")
    expect(hand.field("Message")).to_have_value(refused)
    screenshot(page, f"compose-asked-{javascript}")
    hand.link("Settings", hand.main)
    expect(page.get_by_text("Under review").first).to_be_visible()


@pytest.mark.parametrize(
    "javascript", [True, pytest.param(False, marks=pytest.mark.long)], ids=["scripts", "no scripts"]
)
def test_a_message_is_composed_confirmed_and_sent(
    dashboard: Service, open_page: Opener, *, javascript: bool
) -> None:
    customer = sign_in(dashboard)
    page = visit(customer, open_page(dashboard.base, viewport=PHONE, javascript=javascript))
    write(page, MANY, f"{ORDER}\n{OFFER}")
    press(page, "Send")
    expect(page.get_by_role("alert")).to_contain_text("marketing")
    expect(page.locator("#verdict mark").first).to_be_visible()
    expect(page.get_by_label("Message")).to_have_value(f"{ORDER}\n{OFFER}")
    page.get_by_label("Message").fill(f"{ORDER}\nThank you.")
    # Enter sends the message, and does not ask for a review.
    page.get_by_label("Reference (optional)").fill("order-1042")
    page.get_by_label("Reference (optional)").press("Enter")
    press(page, "Back")
    expect(page.get_by_label("Recipients")).to_have_value(MANY)
    expect(page.get_by_label("Message")).to_have_value(f"{ORDER}\nThank you.")
    expect(page.get_by_label("Reference (optional)")).to_have_value("order-1042")
    press(page, "Send")
    expect(page.locator("#total")).to_contain_text("US$0.10")
    inspect(page, f"compose-confirm-{javascript}")
    page.get_by_role("button", name="Confirm", exact=True).dblclick()
    page.wait_for_url(re.compile("/dashboard/batches/bat_"))
    (batch,) = customer.batches()
    assert tuple(batch.values()) == (f"{ORDER}\nThank you.", "order-1042", 3, Decimal("0.1000"))
