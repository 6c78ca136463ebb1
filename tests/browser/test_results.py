"""A shop follows what it sent: live results, a resend to those that failed, and a file as one entry."""

import csv
import io
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import FilePayload, expect

from tests.support.browser import Opener, bring_session
from tests.support.browser_node import credit, run_node
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import Person, sign_up
from tests.support.postgres.embedded import wait_for
from tests.support.processes.service import Service

TEXT: Final = "Your parcel is at the desk."
# The simulator's number that is not in use, and the one that it refuses at once.
UNKNOWN: Final = "+263771209901"
REFUSED: Final = "+263771209905"
GOOD: Final = "+263771208001"
LATE_MS: Final = 30_000
STEPS: Final = 5


@pytest.fixture(scope="module")
def node(server_url: str) -> Iterator[Service]:
    with run_node(server_url) as one:
        yield one


def new_shop(node: Service) -> Person:
    """Open an account with a balance."""
    person = sign_up(node)
    credit(node, person.phone, "5")
    return person


def until(hand: Hand, text: str, *, reloads_itself: bool = False) -> None:
    """Wait until the page says something, where its script does not run after it is loaded again."""
    if not (hand.way.javascript or reloads_itself):
        wait_for(lambda: bool(hand.page.reload()) and text in hand.main.inner_text())
    expect(hand.main).to_contain_text(text, timeout=LATE_MS)


def enter(node: Service, open_page: Opener, way: Way) -> Hand:
    hand = Hand.open(open_page, node.base, way)
    bring_session(hand.page, node.base, new_shop(node).session)
    hand.page.goto("/dashboard")
    return hand


@ways()
def test_results_come_in_and_the_failed_ones_are_sent_again(
    node: Service, open_page: Opener, way: Way
) -> None:
    hand = enter(node, open_page, way)
    page = hand.page
    # The overview leads: what to do first, to the top-up, and to the first message.
    steps = page.get_by_role("region", name="First steps")
    expect(steps.get_by_role("listitem")).to_have_count(STEPS)
    expect(page.get_by_text("Test mode: messages to")).to_be_visible()
    hand.inspect("first-steps")
    hand.link("For developers: create an API key", steps)
    hand.expect_heading("API keys")
    hand.go_to("Overview")
    hand.link("Top up", hand.main)
    hand.expect_heading("Top up")
    hand.link("Tumira")
    hand.link("Send", hand.main)
    hand.fill("Recipients", f"{UNKNOWN}, {REFUSED}, {GOOD}")
    hand.fill("Message", TEXT)
    hand.button("Send")
    hand.button("Confirm")
    expect(page.locator("h1")).to_contain_text("Batch of")

    hand.go_to("Batches")
    until(hand, "1 delivered · 2 failed")
    hand.link(TEXT)
    hand.link("Resend to 2 failed")
    hand.expect_heading("Resend to 2 failed recipients?")
    expect(hand.main).to_contain_text("US$0.08")
    hand.inspect("resend")
    first = page.url.removesuffix("/resend")
    hand.button("Resend")
    expect(page.locator("h1")).to_contain_text("Batch of")
    expect(hand.main).to_contain_text("Recipients2")
    again = page.url
    assert again != first
    until(hand, "2 of 2 messages done.")
    hand.inspect("resent")

    hand.go_to("Overview")
    latest = page.get_by_role("region", name="Latest batches")
    hand.press(latest.get_by_role("link", name=TEXT).last)
    expect(page).to_have_url(first)
    hand.link("see the new batch")
    expect(page).to_have_url(again)
    hand.go_to("Overview")
    hand.button("Hide these steps")
    expect(steps).to_have_count(0)
    hand.inspect("overview")
    hand.link("All batches")
    hand.expect_heading("Batches")


@ways()
def test_a_file_is_one_entry_with_one_result(node: Service, open_page: Opener, way: Way) -> None:
    hand = enter(node, open_page, way)
    page = hand.page
    hand.go_to("Upload")
    sheet = f"to,name\n{GOOD},Anna\n{UNKNOWN},Ben\n12,Cara"
    file: FilePayload = {"name": "parcels.csv", "mimeType": "text/csv", "buffer": sheet.encode()}
    hand.choose_file("Spreadsheet or CSV file", file)
    hand.fill("Message", "Dear {name}, your parcel is at the desk.")
    hand.button("Check")
    expect(hand.main).to_contain_text("of 3 rows can be sent")
    hand.button("Send")
    hand.expect_heading("Send 2 messages?")
    expect(hand.main).to_contain_text("US$0.08")
    hand.button("Confirm")
    hand.expect_heading("parcels.csv")
    until(hand, "2 of 2 messages sent, 2 done.", reloads_itself=True)
    page.reload()
    expect(page.get_by_role("row").filter(has_text=UNKNOWN)).to_contain_text("The number is not in use.")
    hand.inspect("file-result")
    saved = hand.download(page.get_by_role("link", name="Download CSV of all rows"))
    rows = list(csv.DictReader(io.StringIO(saved.read_text())))
    assert [(row["row"], row["status"]) for row in rows] == [
        ("2", "delivered"),
        ("3", "undelivered"),
        ("4", "not_sent"),
    ]

    hand.go_to("Batches")
    entry = page.get_by_role("row").filter(has_text="parcels.csv")
    expect(entry).to_have_count(1)
    expect(entry).to_contain_text("1 delivered · 1 failed")
    hand.link("parcels.csv")
    hand.button("Resend to 1 failed")
    hand.expect_heading("Send 1 message?")
    expect(hand.main).to_contain_text("US$0.04")
    hand.button("Confirm")
    until(hand, "1 of 1 message sent, 1 done.", reloads_itself=True)
    hand.go_to("Batches")
    hand.press(page.get_by_role("link", name="parcels.csv").last)
    expect(page.get_by_role("link", name="see the result")).to_be_visible()
