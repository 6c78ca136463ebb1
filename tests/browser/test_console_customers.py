"""An operator helps customers: finds a message, opens an account, credits it and issues vouchers."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import DESKTOP, PHONE, Opener, inspect
from tests.support.full_service import FullService, run_full_service
from tests.support.identity.operators import COOKIE

# A phone without scripts, and a desk with them.
SCREENS: Final = pytest.mark.parametrize(
    ("viewport", "javascript"),
    [
        pytest.param(PHONE, False, id="phone without scripts"),
        pytest.param(DESKTOP, True, id="desk", marks=pytest.mark.long),
    ],
)


@pytest.fixture(scope="module")
def full(server_url: str) -> Iterator[FullService]:
    with run_full_service(server_url) as full:
        yield full


def enter(full: FullService, open_page: Opener, **options: Any) -> Page:
    page = open_page(full.service.base, **options)
    page.context.add_cookies([{"name": COOKIE, "value": full.admin.cookie, "url": full.service.base}])
    page.goto("/operator")
    return page


def go_to(page: Page, name: str) -> None:
    """Take the way that the navigation offers."""
    menu = page.get_by_role("button", name="Menu")
    if menu.is_visible():
        menu.click()
    page.get_by_role("navigation", name="Console").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


@SCREENS
def test_a_code_that_did_not_come_is_found(
    full: FullService, open_page: Opener, viewport: Any, *, javascript: bool
) -> None:
    page = enter(full, open_page, viewport=viewport, javascript=javascript)
    expect(page.get_by_role("heading", name="Needs action")).to_be_visible()
    # By the keyboard alone.
    page.get_by_label("Find a message").focus()
    page.keyboard.type("077 120 0003")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Messages to +263")).to_be_visible()
    expect(page.get_by_role("row")).to_have_count(4)
    inspect(page, "console-messages")
    page.get_by_role("rowheader").first.get_by_role("link").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Message to ••••••003")
    timeline = page.get_by_role("region", name="Timeline")
    expect(timeline.get_by_role("listitem").first).to_contain_text("Accepted")
    go_to(page, "Changes")
    expect(page.get_by_role("row", name="Number searched").first).to_contain_text("••••••003: newest msg_")
    go_to(page, "Messages")
    page.get_by_label("Phone number, message ID or batch ID").fill("my code")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("There is a problem")
    inspect(page, "console-messages-fault")


@SCREENS
def test_an_account_is_opened_and_credited_by_its_number(
    full: FullService, open_page: Opener, viewport: Any, *, javascript: bool
) -> None:
    page = enter(full, open_page, viewport=viewport, javascript=javascript)
    last = "4" if javascript else "5"
    go_to(page, "Accounts")
    page.get_by_role("link", name="Open an account").click()
    page.get_by_label("Phone number").fill(f"082 123 990{last}")
    page.get_by_label("Country").select_option("South Africa")
    page.get_by_label("Full name").fill("Sipho Dube")
    page.get_by_label("Business name").fill(f"Dube Taxis {last}")
    page.get_by_label("Opening balance").fill("5")
    page.get_by_role("button", name="Open account").click()
    expect(page.get_by_role("alert")).to_contain_text("Enter a note for the opening balance.")
    inspect(page, "console-account-new")
    page.get_by_label("Note").fill("Cash at the office")
    page.get_by_role("button", name="Open account").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Dube Taxis {last}")
    expect(page.get_by_role("status")).to_contain_text("The account is open.")

    go_to(page, "Accounts")
    page.get_by_text("Credit by phone number").click()
    page.get_by_label("Phone number of the customer").fill(f"+27 82 123 990{last}")
    page.get_by_label("Amount in US$").fill("12.50")
    page.get_by_label("Note").fill("Cash at the office")
    page.get_by_role("button", name="Continue").click()
    facts = page.get_by_role("main")
    for text in (f"Dube Taxis {last}", "US$5.00", "US$17.50"):
        expect(facts).to_contain_text(text)
    inspect(page, "console-credit")
    page.get_by_role("button", name="Credit US$12.50").click()
    expect(page.get_by_role("status")).to_contain_text("The balance was changed.")
    rows = full.service.sql("SELECT balance FROM accounts WHERE phone = $1", f"+2782123990{last}")
    assert [row["balance"] for row in rows] == [Decimal("17.5")]


@SCREENS
def test_vouchers_are_issued_and_downloaded(
    full: FullService, open_page: Opener, viewport: Any, *, javascript: bool
) -> None:
    page = enter(full, open_page, viewport=viewport, javascript=javascript)
    go_to(page, "Vouchers")
    page.get_by_label("Amount of each").fill("10")
    page.get_by_label("Number of vouchers").fill("2")
    page.get_by_label("Note").fill("For the shop in Gweru")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Issue 2 vouchers?")
    page.get_by_role("button", name="Issue 2 vouchers").click()
    codes = page.get_by_label("Voucher codes").get_by_role("listitem")
    expect(codes).to_have_count(2)
    shown = codes.all_inner_texts()
    inspect(page, "console-vouchers")
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download CSV").click()
    file = Path(downloading.value.path()).read_text()
    assert [line.split(",")[0] for line in file.splitlines()] == ["code", *shown]
    page.reload()
    expect(page.get_by_role("main")).not_to_contain_text(shown[0])


@SCREENS
def test_the_money_of_some_days_is_looked_at(
    full: FullService, open_page: Opener, viewport: Any, *, javascript: bool
) -> None:
    page = enter(full, open_page, viewport=viewport, javascript=javascript)
    go_to(page, "Money")
    owed = page.locator(".figures div", has_text="Owed to customers")
    (row,) = full.service.sql("SELECT sum(balance) AS owed FROM accounts")
    expect(owed).to_contain_text(f"US${row['owed']:,.2f}")
    inspect(page, "console-money")
    page.get_by_label("First day").fill("2020-01-01")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose at most 366 days.")
    page.get_by_label("Last day").fill("2020-02-01")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No money was moved on these days.")).to_be_visible()
