"""An operator helps customers: finds messages, opens and credits accounts, issues vouchers, reviews texts."""

from collections.abc import Iterator
from decimal import Decimal

import pytest
from playwright.sync_api import expect

from tests.support.browser import Opener
from tests.support.full_service import FullService, account_of, run_full_service
from tests.support.hand import WAYS, Hand, Way, ways
from tests.support.identity.operators import COOKIE
from tests.support.identity.people import sign_up
from tumira.identity import manage_accounts


@pytest.fixture(scope="module")
def full(server_url: str) -> Iterator[FullService]:
    with run_full_service(server_url) as full:
        yield full


def enter(full: FullService, open_page: Opener, way: Way) -> Hand:
    hand = Hand.open(open_page, full.service.base, way)
    cookie = {"name": COOKIE, "value": full.admin.cookie, "url": full.service.base}
    hand.page.context.add_cookies([cookie])  # type: ignore[list-item]
    hand.page.goto("/operator")
    return hand


@ways()
def test_a_code_that_did_not_come_is_found(full: FullService, open_page: Opener, way: Way) -> None:
    hand = enter(full, open_page, way)
    page = hand.page
    expect(page.get_by_role("heading", name="Needs action")).to_be_visible()
    hand.submit("Find a message", "077 120 0003")
    expect(page.get_by_role("heading", name="Messages to +263")).to_be_visible()
    expect(page.get_by_role("row")).to_have_count(4)
    hand.inspect("console-messages")
    hand.press(page.get_by_role("rowheader").first.get_by_role("link"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Message to ••••••003")
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline.get_by_role("listitem").first).to_contain_text("Accepted")
    hand.go_to("Changes")
    expect(page.get_by_role("row", name="Number searched").first).to_contain_text("••••••003: newest msg_")
    hand.go_to("Messages")
    hand.fill("Phone number, message ID or batch ID", "my code")
    hand.button("Search")
    hand.expect_refused("There is a problem")
    hand.inspect("console-messages-fault")


@ways()
def test_an_account_is_opened_and_credited_by_its_number(
    full: FullService, open_page: Opener, way: Way
) -> None:
    hand = enter(full, open_page, way)
    last = WAYS.index(way)
    hand.go_to("Accounts")
    hand.link("Open an account")
    hand.fill("Phone number", f"082 123 990{last}")
    hand.select("Country", "South Africa")
    hand.fill("Full name", "Sipho Dube")
    hand.fill("Business name", f"Dube Taxis {last}")
    hand.fill("Opening balance in US$ (optional)", "5")
    hand.button("Open account")
    hand.expect_refused("Enter a note for the opening balance.")
    hand.inspect("console-account-new")
    hand.fill("Note", "Cash at the office")
    hand.button("Open account")
    hand.expect_heading(f"Dube Taxis {last}")
    hand.expect_told("The account is open.")

    hand.go_to("Accounts")
    hand.unfold("Credit by phone number")
    hand.fill("Phone number of the customer", f"+27 82 123 990{last}")
    hand.fill("Amount in US$", "12.50")
    hand.fill("Note", "Cash at the office")
    hand.button("Continue")
    for text in (f"Dube Taxis {last}", "US$5.00", "US$17.50"):
        expect(hand.main).to_contain_text(text)
    hand.inspect("console-credit")
    hand.button("Credit US$12.50")
    hand.expect_told("The balance was changed.")
    rows = full.service.sql("SELECT balance FROM accounts WHERE phone = $1", f"+2782123990{last}")
    assert [row["balance"] for row in rows] == [Decimal("17.5")]


@ways()
def test_an_account_is_found_credited_and_suspended(full: FullService, open_page: Opener, way: Way) -> None:
    service = full.service
    business = f"Ncube Hardware {WAYS.index(way)}"
    person = sign_up(service, business=business)
    service.run(
        manage_accounts.credit, account_of(service, person), Decimal("123.45"), note="Cash", actor="cli:root"
    )
    hand = enter(full, open_page, way)
    page = hand.page
    hand.go_to("Accounts")
    hand.fill("Find an account", business.lower())
    hand.button("Search")
    hand.link(business)
    hand.expect_heading(business)
    hand.unfold("Change limits")
    hand.fill("Fair-share weight", "1000")
    hand.button("Save limits")
    hand.expect_refused("Fair-share weight")
    hand.unfold("Credit or debit")
    hand.fill("Amount in US$", "6.55")
    hand.fill("Note", "Paid at the office")
    hand.button("Continue")
    expect(page.get_by_text("US$130.00")).to_be_visible()
    hand.button("Credit US$6.55")
    hand.expect_told("The balance was changed.")
    hand.unfold("Suspend")
    hand.fill(page.locator("#suspend_note"), "Asked for by the owner")
    hand.button("Suspend account")
    expect(page.get_by_text("The customer can sign in but cannot send").first).to_be_visible()
    hand.unfold("Lift the suspension")
    hand.fill(page.locator("#suspend_note"), "They changed their mind")
    hand.button("Lift suspension")
    hand.expect_told("The account can send again.")
    expect(page.get_by_role("row", name="They changed their mind")).to_be_visible()
    # Its owner sees what was done, and the reason where it was money.
    seen = person.browser.get("/dashboard/settings/changes").text
    assert "Paid at the office" in seen
    assert "Account may send again" in seen
    assert "They changed their mind" not in seen


@ways()
def test_vouchers_are_issued_downloaded_and_one_voided(
    full: FullService, open_page: Opener, way: Way
) -> None:
    hand = enter(full, open_page, way)
    page = hand.page
    hand.go_to("Vouchers")
    hand.fill("Amount of each, in US$", "10")
    hand.fill("Number of vouchers", "2")
    hand.fill("Last valid day (optional)", "2099-12-31")
    hand.fill("Note", "For the shop in Gweru")
    hand.button("Continue")
    hand.expect_heading("Issue 2 vouchers?")
    expect(hand.main).to_contain_text("2099-12-31")
    hand.button("Issue 2 vouchers")
    codes = page.get_by_label("Voucher codes").get_by_role("listitem")
    expect(codes).to_have_count(2)
    shown = codes.all_inner_texts()
    hand.inspect("console-vouchers")
    file = hand.download(page.get_by_role("button", name="Download CSV")).read_text()
    assert [line.split(",")[0] for line in file.splitlines()] == ["code", *shown]
    page.reload()
    expect(hand.main).not_to_contain_text(shown[0])
    hand.press(page.get_by_role("rowheader").first.get_by_role("link"))
    hand.fill("Reason", "Lost at the shop")
    hand.button("Void voucher")
    hand.expect_told("The voucher is void.")


@ways()
def test_the_money_of_some_days_is_looked_at(full: FullService, open_page: Opener, way: Way) -> None:
    hand = enter(full, open_page, way)
    page = hand.page
    hand.go_to("Money")
    owed = page.locator(".figures div", has_text="Owed to customers")
    # What is held for scheduled sends is the customers' too.
    (row,) = full.service.sql("SELECT sum(balance) + (SELECT sum(held) FROM schedules) AS owed FROM accounts")
    expect(owed).to_contain_text(f"US${row['owed']:,.2f}")
    hand.inspect("console-money")
    hand.fill("First day", "2020-01-01")
    hand.button("Show")
    hand.expect_refused("Choose at most 366 days.")
    hand.fill("Last day", "2020-02-01")
    hand.button("Show")
    expect(page.get_by_text("No money was moved on these days.")).to_be_visible()


@ways()
def test_a_refused_text_is_reviewed(full: FullService, open_page: Opener, way: Way) -> None:
    person = sign_up(full.service, business=f"Gym {WAYS.index(way)}")
    text = f"BIG SALE this weekend only! Members of gym {way.name} get 50% off. Shop now and save big!"
    person.browser.post("/dashboard/compose/review", data={"message": text, "note": "They asked for it."})
    hand = enter(full, open_page, way)
    page = hand.page
    # The start page names what waits.
    hand.press(page.locator(".needs a", has_text="review").first)
    hand.expect_heading("Content")
    hand.inspect("console-content")
    hand.press(page.get_by_role("link", name=f"Review the text of Gym {WAYS.index(way)},").first)
    hand.expect_heading("Refused text")
    expect(page.locator(".quoted.shown")).to_have_text(text)
    expect(hand.main).to_contain_text("They asked for it.")
    hand.fill("Template", text.replace("BIG", "{size}"))
    hand.select("Decision", "Allow texts like this")
    hand.fill("Note to the customer", "Members only.")
    hand.inspect("console-refusal")
    hand.button("Save template")
    hand.expect_heading("Content")
    hand.expect_told("saved")
    settings = person.browser.get("/dashboard/settings").text
    assert "Members only." in settings
