"""Replies and opt-outs: on the pages of customers and operators, and from a handset to the next send."""

from collections.abc import Iterator
from typing import Final

import httpx
import pytest
from playwright.sync_api import FilePayload, expect

from tests.browser.test_journey import begin, prove
from tests.dashboard.test_replies import received
from tests.dashboard.test_upload import sign_in
from tests.support.browser import PHONE, Opener, bring_session
from tests.support.browser_node import credit, run_node, texts_of
from tests.support.hand import WAYS, Hand, Way, ways
from tests.support.identity.operators import COOKIE, OperatorBrowser, new_operator
from tests.support.identity.people import code_in
from tests.support.postgres.embedded import wait_for
from tests.support.processes.service import NO_TLS, Service

NUMBER: Final = "+263771200001"
SHOWN: Final = "+263\xa077\xa0120\xa00001"
TEXT: Final = "Your order 1042 is ready at our counter."
LATE_MS: Final = 15_000


def search(hand: Hand, label: str, text: str) -> None:
    """Search a whole list; on a phone the fields are folded."""
    if hand.way.viewport is PHONE:
        hand.unfold("Search")
    hand.fill(label, text)
    hand.button("Search")


def clear(hand: Hand) -> None:
    hand.link("Clear")
    expect(hand.page.get_by_role("link", name="Clear")).to_have_count(0)


def read_replies(hand: Hand) -> None:
    page = hand.page
    hand.inspect("replies")
    search(hand, "Text", "coming")
    expect(page.get_by_role("row")).to_have_count(2)
    clear(hand)
    search(hand, "Number", "12")
    hand.expect_refused("Enter a full number")
    clear(hand)
    hand.link(SHOWN)
    hand.expect_heading(SHOWN)
    expect(page.locator(".ours").first).to_contain_text(TEXT)
    expect(page.locator(".theirs").first).to_contain_text("Thanks, I am coming")
    hand.inspect("conversation")
    hand.link("Replies", hand.main)


def keep_opt_outs(hand: Hand) -> None:
    page = hand.page
    hand.link("Opt-outs", hand.main)
    hand.expect_heading("Opt-outs")
    expect(page.get_by_text("Nobody has opted out.")).to_be_visible()
    hand.fill("Numbers", "077 120 0001, 12")
    hand.button("Add")
    hand.expect_told("1 number was added.")
    expect(hand.main).to_contain_text("1 entry is not a mobile number that we send to")
    hand.inspect("opt-outs-added")
    file = f"phone,name\n{NUMBER},Anna\n+27821230001,Ben\n".encode()
    hand.choose_file("File", FilePayload(name="gone.csv", mimeType="text/csv", buffer=file))
    hand.button("Import")
    hand.expect_told("1 number was added. 1 was already in the list.")
    downloaded = hand.download(page.get_by_role("link", name="Download CSV")).read_text()
    assert len(downloaded.splitlines()) == 1 + 2
    search(hand, "Number", "+27 82 123 0001")
    expect(page.get_by_role("row")).to_have_count(2)
    hand.button("Remove +27\xa082\xa0123\xa00001")
    hand.expect_told("You can send to this number again.")
    hand.inspect("opt-outs")


@ways()
def test_replies_are_read_and_opt_outs_are_kept(service: Service, open_page: Opener, way: Way) -> None:
    customer = sign_in(service)
    service.send(customer.caller, to=NUMBER, body=TEXT)
    received(customer, "Thanks, I am coming", "Which counter?")
    hand = Hand.open(open_page, service.base, way)
    bring_session(hand.page, service.base, customer.token)
    hand.page.goto("/dashboard")
    hand.go_to("Replies")
    read_replies(hand)
    keep_opt_outs(hand)
    hand.go_to("Compose")
    hand.fill("Recipients", "0771200001")
    hand.fill("Message", TEXT)
    if not way.javascript:
        hand.button("Send")
    expect(hand.main).to_contain_text("This recipient has opted out of your messages.", timeout=LATE_MS)


@pytest.fixture(scope="module")
def operator(service: Service) -> OperatorBrowser:
    return new_operator(service)


@ways()
def test_an_operator_edits_the_words_that_opt_out(
    service: Service, open_page: Opener, operator: OperatorBrowser, way: Way
) -> None:
    hand = Hand.open(open_page, service.base, way)
    cookie = {"name": COOKIE, "value": operator.cookie, "url": service.base}
    hand.page.context.add_cookies([cookie])  # type: ignore[list-item]
    hand.page.goto("/operator/replies")
    hand.inspect("console-replies")
    hand.link("Words and rules for opt-outs")
    hand.fill("Word", "Asante, hapana!")
    hand.select("Meaning", "opts out")
    hand.fill("Language", "Swahili")
    hand.tick(hand.page.get_by_label("Active", exact=True), checked=False)
    hand.button("Save word")
    hand.expect_told("Word saved.")
    expect(hand.page.get_by_role("row", name="asante hapana")).to_contain_text("only shown")
    hand.inspect("console-words")
    hand.button("Remove asante hapana")
    hand.expect_told("Word removed.")
    hand.tick(hand.page.get_by_label("An opt-out also stops one-time codes"))
    hand.fill("Confirmation", "šŋ " * 60)
    hand.button("Save rules")
    hand.expect_refused("too long")
    hand.fill("Confirmation", "You get no more texts from {business}.")
    hand.button("Save rules")
    hand.expect_told("Rules saved.")
    hand.tick(hand.page.get_by_label("An opt-out also stops one-time codes"), checked=False)
    hand.fill("Confirmation", "")
    hand.button("Save rules")
    hand.expect_told("Rules saved.")


@pytest.fixture(scope="module")
def node(server_url: str) -> Iterator[Service]:
    with run_node(server_url) as one:
        yield one


def reply(node: Service, number: str, text: str) -> None:
    def is_taken() -> bool:
        asked = {"from": number, "to": "Tumira", "text": text}
        answer = httpx.post(
            node.base + "/simulator/replies", json=asked, trust_env=False, verify=NO_TLS, timeout=40
        )
        return answer.status_code == 202

    wait_for(is_taken)


def until_shown(hand: Hand, path: str, text: str) -> None:
    """Load a page until the worker has handled what it shows."""

    def is_shown() -> bool:
        hand.page.goto(path)
        return text in hand.page.inner_text("main").replace("\xa0", " ")

    wait_for(is_shown)


def send(hand: Hand, number: str, text: str) -> None:
    hand.go_to("Compose")
    hand.fill("Recipients", number)
    hand.fill("Message", text)
    hand.button("Send")
    hand.button("Confirm")
    expect(hand.main).to_contain_text(number)


@ways()
def test_a_handset_replies_and_stop_is_honoured(node: Service, open_page: Opener, way: Way) -> None:
    place = WAYS.index(way)
    owner, recipient = f"+26377120810{place}", f"+26377120820{place}"
    shown = f"+263 77 120 820{place}"
    hand = Hand.open(open_page, node.base, way)
    begin(hand.page, owner)
    wait_for(lambda: texts_of(node, owner) != [])
    prove(hand.page, code_in(texts_of(node, owner)[-1]))
    credit(node, owner, "5")
    hand.go_to("Replies")
    expect(hand.page.get_by_text("No replies yet.")).to_be_visible()
    send(hand, recipient, TEXT)
    wait_for(lambda: texts_of(node, recipient) == [TEXT])

    handsets = Hand.open(open_page, node.base, way)
    handsets.page.goto("/simulator")
    box = handsets.field(f"Reply from {recipient} to Tumira")
    handsets.fill(box, "Thanks, I am coming")
    if way.javascript:
        # A text that comes meanwhile does not take away what is being written.
        send(hand, recipient, f"Your order 105{place} is ready at our counter.")
        expect(handsets.page.get_by_text(f"order 105{place}")).to_be_visible(timeout=LATE_MS)
        expect(box).to_have_value("Thanks, I am coming")
    handsets.inspect("simulator-reply")
    box.press("Enter")
    handsets.expect_told("Reply sent.")
    expect(box).to_have_value("")
    handsets.inspect("simulator-replied")

    until_shown(hand, "/dashboard/replies", "Thanks, I am coming")
    hand.link(shown.replace(" ", "\xa0"))
    expect(hand.page.locator(".theirs").last).to_contain_text("Thanks, I am coming")
    expect(hand.page.locator(".ours").first).to_contain_text(TEXT)
    reply(node, recipient, "Stop.")
    until_shown(hand, "/dashboard/opt-outs", shown)
    hand.go_to("Compose")
    hand.fill("Recipients", recipient)
    hand.fill("Message", TEXT)
    if not way.javascript:
        hand.button("Send")
    expect(hand.main).to_contain_text("opted out of your messages", timeout=LATE_MS)
