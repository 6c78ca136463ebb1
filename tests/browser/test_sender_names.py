"""A customer asks for a sender name, an operator decides, and the customer sees the decision."""

from typing import Final

import pytest
from playwright.sync_api import FilePayload, Locator, expect

from tests.support.browser import Opener, bring_session
from tests.support.hand import WAYS, Hand, Way, ways
from tests.support.identity.operators import COOKIE, OperatorBrowser, new_operator
from tests.support.identity.people import sign_up
from tests.support.processes.service import Service

# Each way has another: no name looks like that of another account.
NAMES: Final = ("Chipo Shop", "Baobab Inn", "Ncube Farm", "Rudo Travel", "Zuva Energy", "Gweru Glass")
PAPER: Final = b"%PDF-1.7 registration"


@pytest.fixture(scope="module")
def operator(service: Service) -> OperatorBrowser:
    return new_operator(service)


def ask(hand: Hand, name: str) -> None:
    """Ask for a name; what is wrong with one is shown while it is typed, or when it is sent."""
    page = hand.page
    hand.fill("Name", "Chipo_Shop!!!")
    if not hand.way.javascript:
        hand.fill("What do you send, and why is the name yours?", "Our shop")
        hand.button("Ask for this name")
        hand.expect_refused("There is a problem")
    expect(page.locator("main li.broken")).to_have_count(2)
    hand.inspect("sender-name-broken", 1)
    if hand.way.javascript:
        hand.fill("Name", "EC0CASH")
        expect(hand.main).to_contain_text("This looks like EcoCash")
    hand.fill("Name", name)
    if hand.way.javascript:
        expect(page.locator("main li.kept")).to_have_count(4)
        expect(page.locator("#shown")).to_have_text(name)
        expect(hand.main).not_to_contain_text("This looks like")
    hand.tick(page.get_by_label("South Africa"))
    hand.fill("What do you send, and why is the name yours?", f"{name}: your parcel is ready. Our own name.")
    hand.choose_file(
        "Paper (optional)", FilePayload(name="paper.pdf", mimeType="application/pdf", buffer=PAPER)
    )
    hand.button("Ask for this name")
    hand.expect_told("We have your request.")


def enter_console(service: Service, open_page: Opener, way: Way, operator: OperatorBrowser) -> Hand:
    hand = Hand.open(open_page, service.base, way)
    cookie = {"name": COOKIE, "value": operator.cookie, "url": service.base}
    hand.page.context.add_cookies([cookie])  # type: ignore[list-item]
    hand.page.goto("/operator")
    hand.go_to("Sender names")
    return hand


def decide(hand: Hand, decision: str, country: str, note: str) -> None:
    region: Locator = hand.page.get_by_role("region", name=decision)
    hand.select(region.get_by_label("Where"), country)
    hand.fill(region.get_by_label("Note to the customer"), note)
    hand.button(decision, region)


@ways()
def test_a_name_is_asked_for_granted_refused_and_revoked(
    service: Service, open_page: Opener, operator: OperatorBrowser, way: Way
) -> None:
    name = NAMES[WAYS.index(way)]
    person = sign_up(service, business=f"Business {WAYS.index(way)}")
    hand = Hand.open(open_page, service.base, way)
    bring_session(hand.page, service.base, person.session)
    hand.page.goto("/dashboard")
    hand.go_to("Sender names")
    ask(hand, name)
    hand.inspect("sender-name-asked")

    console = enter_console(service, open_page, way, operator)
    console.inspect("console-sender-names")
    console.link(name)
    console.expect_heading(name)
    expect(console.main).to_contain_text("Our own name.")
    paper = console.download(console.page.get_by_role("link", name="Download"))
    assert paper.read_bytes() == PAPER
    decide(console, "Grant", "Zimbabwe", "Registered on Friday")
    console.expect_told("Name granted.")
    decide(console, "Refuse", "South Africa", "Networks show numbers there")
    console.expect_told("Name refused.")
    console.inspect("console-sender-name")

    hand.page.reload()
    for text in ("Zimbabwe, in use", "Registered on Friday", "Networks show numbers there"):
        expect(hand.main).to_contain_text(text)
    decide(console, "Revoke", "Zimbabwe", "The network asked for it")
    console.expect_told("Name revoked.")
    hand.page.goto("/dashboard/sender-names")
    expect(hand.main).to_contain_text("The network asked for it")
    hand.unfold("History")
    expect(hand.page.locator(".history li")).to_have_count(5)
    hand.inspect("sender-name-revoked", 1)
