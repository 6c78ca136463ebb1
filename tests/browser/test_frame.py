"""The frame of every page: the way to the top-up, and a balance that follows the account."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pytest
from playwright.sync_api import Page, Request, expect

from tests.support.browser import PHONE, Opener, bring_session
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import Person, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.identity import manage_accounts

NOW: Final = "/dashboard/balance/now"
TOP_UP: Final = "Top up US$5.00 or more"
TOO_LOW: Final = "Your balance is too low to send a message."
HIDE: Final = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url, TUMIRA_SUPPORT_PHONE="+263 77 120 0001") as running:
        yield running


def visit(page: Page, service: Service, person: Person, path: str) -> Page:
    bring_session(page, service.base, person.session)
    page.goto(path)
    return page


@ways()
def test_a_customer_without_balance_is_led_to_a_top_up_with_its_amount(
    service: Service, open_page: Opener, way: Way
) -> None:
    hand = Hand.open(open_page, service.base, way)
    page = visit(hand.page, service, sign_up(service), "/dashboard/batches")
    expect(page.get_by_role("link", name="+263 77 120 0001")).to_have_attribute("href", "tel:+263771200001")
    hand.inspect("frame-without-balance")
    hand.link(TOP_UP)
    expect(page.locator("input[name=amount]").first).to_have_value("5.00")
    expect(page.get_by_text(TOO_LOW)).to_have_count(0)
    hand.go_to("API keys")
    hand.link("Balance US$0.00")
    expect(page).to_have_url(f"{service.base}/dashboard/top-up")


@pytest.mark.long
def test_the_balance_follows_the_account_while_the_page_is_seen(service: Service, open_page: Opener) -> None:
    person = sign_up(service)
    (account,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    page = open_page(service.base, viewport=PHONE)
    asked: list[str] = []

    def note(request: Request) -> None:
        if request.url.endswith(NOW):
            asked.append(request.method)

    page.on("request", note)
    page.clock.install()
    visit(page, service, person, "/dashboard/keys")
    expect(page.get_by_text(TOO_LOW)).to_be_visible()
    service.run(manage_accounts.credit, account["id"], Decimal("20.0099"), note="cash", actor="cli:root")
    with page.expect_response(f"**{NOW}"):
        page.clock.run_for(10_100)
    expect(page.get_by_role("link", name="Balance US$20.00")).to_be_visible()
    expect(page.get_by_text("Your balance has been topped up.")).to_be_visible()

    # A page that nobody sees asks nothing; one that is seen again asks at once.
    page.evaluate(HIDE, arg=True)
    before = len(asked)
    page.clock.run_for(300_000)
    assert len(asked) == before
    with page.expect_response(f"**{NOW}"):
        page.evaluate(HIDE, arg=False)

    # After ten minutes it asks no more.
    page.clock.fast_forward(600_000)
    page.evaluate("0")
    before = len(asked)
    page.clock.run_for(300_000)
    assert len(asked) == before
