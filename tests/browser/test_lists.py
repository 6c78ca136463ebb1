"""The journey of a list: imported, completed, written to with a saved text; each person gets their own."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.browser.test_scheduled import choose_time
from tests.browser.test_upload import send_everything
from tests.support.browser import Opener, bring_session
from tests.support.hand import WAYS, Hand, Way, ways
from tests.support.identity.people import run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.identity import manage_accounts

FILE: Final = b"phone,name,amount\n0771200001,Tendai Moyo,12.50\n0771200002,Rudo Ncube,8.00\n12,Nobody,1.00\n"
TEXT: Final = "Dear {name}, you owe {amount}."
# What the page says while one types moves what stands below it a little.
SHIFT_MAX: Final = 0.1


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as service:
        yield service


@ways()
def test_a_list_is_written_to_later(service: Service, open_page: Opener, way: Way) -> None:
    person = sign_up(service, f"+26377120004{WAYS.index(way)}")
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    service.run(manage_accounts.credit, row["id"], Decimal(10), note="for tests", actor="test")
    hand = Hand.open(open_page, service.base, way)
    bring_session(hand.page, service.base, person.session)
    hand.page.goto("/dashboard")
    _make_list(hand)
    hand.go_to("Lists")
    hand.link("Members")
    hand.link("Write to this list")
    hand.fill("Message", TEXT)
    hand.unfold("Send later")
    choose_time(hand, 2, "08:30")
    hand.button("Send")
    hand.button("Send")
    # The time that was chosen came with it, and sending now takes another step.
    expect(hand.page.get_by_label("Time", exact=True)).to_have_value("08:30")
    hand.inspect("lists-later")
    hand.button("Schedule")
    expect(hand.page.locator("h1")).to_contain_text("08:30")
    assert not service.sql("SELECT FROM batches WHERE account_id = $1", row["id"])


@ways("phone by mouse")
def test_a_list_is_made_and_written_to(service: Service, open_page: Opener, way: Way) -> None:
    person = sign_up(service, f"+26377120002{WAYS.index(way)}")
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", person.phone)
    service.run(manage_accounts.credit, row["id"], Decimal(10), note="for tests", actor="test")
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    bring_session(page, service.base, person.session)
    page.goto("/dashboard")
    _make_list(hand)
    _save_text(hand)
    _write(hand)
    service.run(send_everything)
    expect(hand.main.get_by_text("3 of 3 messages sent")).to_be_visible()
    hand.link("Save recipients as a list")
    hand.submit("Name", "Those who owe")
    expect(hand.main.get_by_text("3 contacts")).to_be_visible()
    sent = service.sql(
        "SELECT recipient, body FROM messages WHERE account_id = $1 ORDER BY recipient", row["id"]
    )
    assert [(one["recipient"], one["body"]) for one in sent] == [
        ("+263771200001", "Dear Tendai Moyo, you owe 12.50."),
        ("+263771200002", "Dear Rudo Ncube, you owe 8.00."),
        ("+263771200003", "Dear Thabo Dlamini, you owe 31.40."),
    ]


def _make_list(hand: Hand) -> None:
    hand.go_to("Lists")
    hand.submit("Name", "Members")
    hand.expect_heading("Members")
    hand.choose_file("File", {"name": "members.csv", "mimeType": "text/csv", "buffer": FILE})
    hand.button("Import")
    hand.expect_told("2 contacts were added.")
    expect(hand.main.get_by_text("This number is too short.")).to_be_visible()
    hand.inspect(f"list-imported-{hand.way.javascript}")
    hand.fill("Number", "077 120 0003")
    hand.fill("name", "Thabo Dlamini")
    hand.button("Add")
    hand.expect_told("The contact was added.")
    # Who has no amount is shown as left out, so it is filled in.
    hand.link("Edit +263 77 120 0003")
    hand.fill("amount", "31.40")
    hand.inspect(f"list-contact-{hand.way.javascript}")
    hand.button("Save")
    hand.expect_told("The contact was saved.")
    hand.link("Columns and name")
    hand.fill("New column", "town")
    hand.button("Add column")
    expect(hand.main.get_by_text("{town}")).to_be_visible()
    hand.inspect(f"list-settings-{hand.way.javascript}")


def _save_text(hand: Hand) -> None:
    hand.page.goto("/dashboard/texts")
    hand.link("New text")
    hand.fill("Name", "Owing")
    hand.fill("Text", TEXT)
    hand.inspect(f"text-{hand.way.javascript}", SHIFT_MAX)
    hand.button("Save")
    hand.expect_told("The text was saved.")


def _write(hand: Hand) -> None:
    page = hand.page
    hand.go_to("Lists")
    hand.link("Members")
    hand.link("Write to this list")
    expect(page.get_by_role("checkbox", name="Members")).to_be_checked()
    hand.button("Insert")
    expect(hand.field("Message")).to_have_value(TEXT)
    expect(page.get_by_role("checkbox", name="Members")).to_be_checked()
    expect(page.locator(".total")).to_contain_text("3 contacts · The next page shows the price.")
    hand.inspect(f"compose-list-{hand.way.javascript}", SHIFT_MAX)
    hand.button("Send")
    hand.expect_heading("Members")
    expect(hand.main.get_by_text("of 3 rows can be sent")).to_be_visible()
    hand.unfold("Rows that can be sent")
    expect(hand.main.get_by_text("Dear Thabo Dlamini, you owe 31.40.")).to_be_visible()
    hand.inspect(f"list-checked-{hand.way.javascript}")
    hand.button("Send")
    hand.button("Confirm")
    expect(hand.main.get_by_text("0 of 3 messages sent")).to_be_visible()


@pytest.mark.long
@pytest.mark.parametrize("way", [WAYS[0], WAYS[3]], ids=lambda way: way.name)
def test_the_price_waits_for_the_check_while_a_list_is_ticked(
    service: Service, open_page: Opener, way: Way
) -> None:
    person = sign_up(service, f"+26377120003{WAYS.index(way)}")
    person.browser.post("/dashboard/lists", data={"name": "Staff"})
    hand = Hand.open(open_page, service.base, way)
    page = hand.page
    bring_session(page, service.base, person.session)
    page.goto("/dashboard/lists")
    hand.link("Staff")
    hand.fill("Number", "0771200001")
    hand.button("Add")
    page.goto("/dashboard/compose")
    hand.fill("Recipients", "0771200002")
    hand.fill("Message", "The office is closed on Friday.")
    expect(page.locator(".total")).to_contain_text("1 recipient · US$0.04")
    hand.unfold("Send to lists")
    hand.tick(page.get_by_role("checkbox", name="Staff"))
    expect(page.locator(".total")).to_contain_text("1 contact · The next page shows the price.")
    hand.tick(page.get_by_role("checkbox", name="Staff"), checked=False)
    expect(page.locator(".total")).to_contain_text("1 recipient · US$0.04")
    hand.inspect("compose-lists", SHIFT_MAX)
