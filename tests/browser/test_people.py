"""The journeys of people: invited by an owner, joining, asking for an approval, and leaving."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.browser.test_scheduled import choose_time
from tests.support.browser import Opener, bring_session
from tests.support.hand import Hand, Way, ways
from tests.support.identity.members import add, link_and_code
from tests.support.identity.people import PASSWORD, Person, new_phone, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.core.ids import AccountId
from tumira.identity import manage_accounts
from tumira.identity.roles import MemberRole

ORDER: Final = "Your order 1042 has been shipped and will arrive on Friday."


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        yield running


def visit(service: Service, open_page: Opener, way: Way, person: Person) -> Hand:
    hand = Hand.open(open_page, service.base, way)
    bring_session(hand.page, service.base, person.session)
    hand.page.goto("/dashboard")
    return hand


@ways("phone by mouse")
def test_a_person_is_invited_joins_gets_another_role_and_goes(
    service: Service, open_page: Opener, way: Way
) -> None:
    owner, phone = visit(service, open_page, way, sign_up(service)), new_phone()
    owner.go_to("People")
    owner.fill("Phone number", phone)
    owner.select("Role", "Sender")
    owner.fill("Your password", "wrong")
    owner.button("Send invitation")
    owner.expect_refused("Wrong password")
    owner.fill("Your password", PASSWORD)
    owner.button("Send invitation")
    owner.expect_told("Invitation sent.")
    owner.inspect("people-invited")

    path, code = link_and_code(service, phone)
    guest = Hand.open(open_page, service.base, way)
    guest.page.goto(path)
    guest.expect_heading("Join Moyo Stores")
    guest.fill("Code", code)
    guest.fill("Your name", "Rudo Dube")
    guest.fill("Choose a password", PASSWORD)
    guest.button("Join")
    guest.expect_heading("Overview")
    # What a sender may not use is not in the menu, and its address says whom to ask.
    expect(guest.page.locator("nav.side").get_by_role("link", name="API keys")).to_have_count(0)
    guest.page.goto("/dashboard/keys")
    guest.expect_heading("Not allowed")
    expect(guest.page.get_by_text("Ask Tariro Moyo to change your role.")).to_be_visible()
    guest.inspect("people-forbidden")

    owner.go_to("People")
    owner.link("Change Rudo Dube")
    owner.select("Role", "Developer")
    owner.fill(owner.page.locator("#password"), PASSWORD)
    owner.button("Save role")
    owner.expect_told("Role changed.")
    guest.page.goto("/dashboard/keys")
    guest.expect_heading("API keys")

    owner.link("Change Rudo Dube")
    owner.fill(owner.page.locator("#password_to_remove"), PASSWORD)
    owner.button("Remove person")
    owner.expect_told("Person removed.")
    guest.page.goto("/dashboard")
    guest.expect_heading("Sign in")
    owner.link("History of changes")
    owner.expect_heading("History of changes")
    expect(owner.page.get_by_text("Rudo Dube: sender to developer")).to_be_visible()
    owner.inspect("people-history")


@ways()
def test_a_scheduled_send_is_declined_with_a_reason(service: Service, open_page: Opener, way: Way) -> None:
    boss = sign_up(service)
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", boss.phone)
    service.run(manage_accounts.credit, AccountId(row["id"]), Decimal(10), note="Cash", actor="test")
    service.sql("UPDATE accounts SET approval_above = 0.05 WHERE id = $1", row["id"])
    colleague = add(service, boss, MemberRole.SENDER)
    owner, sender = (visit(service, open_page, way, one) for one in (boss, colleague))
    sender.go_to("Compose")
    sender.fill("Recipients", "+263771200001, +263771200002")
    sender.fill("Message", ORDER)
    sender.unfold("Send later")
    choose_time(sender, 2, "08:30")
    sender.button("Send")
    sender.button("Schedule")
    expect(sender.main).to_contain_text("A second person has to approve this send.")
    owner.go_to("Overview")
    owner.link("Look")
    owner.press(owner.main.get_by_role("link", name="2 messages"))
    owner.inspect("schedule-second")
    owner.fill("Reason", "Not on a Friday")
    owner.button("Decline")
    owner.expect_told("Declined. Nothing is sent, and the money is back in the balance.")
    sender.go_to("Overview")
    sender.link("See why")
    expect(sender.main).to_contain_text("Tariro Moyo declined it: Not on a Friday")
    sender.inspect("schedule-declined")


@ways()
def test_a_large_message_is_approved_by_a_second_person(
    service: Service, open_page: Opener, way: Way
) -> None:
    boss = sign_up(service)
    (row,) = service.sql("SELECT id FROM accounts WHERE phone = $1", boss.phone)
    service.run(manage_accounts.credit, AccountId(row["id"]), Decimal(10), note="Cash", actor="test")
    colleague = add(service, boss, MemberRole.SENDER)
    owner, sender = (visit(service, open_page, way, one) for one in (boss, colleague))
    owner.go_to("People")
    owner.link("Approvals of large sends")
    owner.fill("Ask above (US$)", "0.05")
    owner.fill("Your password", PASSWORD)
    owner.button("Save rule")
    owner.expect_told("Rule saved.")

    sender.go_to("Compose")
    sender.fill("Recipients", "+263771200001, +263771200002")
    sender.fill("Message", ORDER)
    sender.button("Send")
    sender.button("Confirm")
    sender.expect_heading("2 messages by Rudo Dube")
    expect(sender.page.get_by_text("needs approval", exact=True)).to_be_visible()
    expect(sender.page.get_by_role("button", name="Approve and send")).to_have_count(0)
    sender.inspect("approval-own")

    owner.go_to("Overview")
    owner.link("Look")
    owner.link("2 messages")
    expect(owner.page.get_by_text(ORDER)).to_be_visible()
    owner.inspect("approval-second")
    owner.button("Approve and send")
    owner.expect_told("Approved. The messages are on their way.")
    owner.link("See the batch")
    expect(owner.page.get_by_text(ORDER)).to_be_visible()
    sender.go_to("People")
    sender.link("Leave this account")
    sender.fill("Your password", PASSWORD)
    sender.button("Leave account")
    sender.expect_heading("Sign in")
