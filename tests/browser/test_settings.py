"""Journeys through the settings: every form, the second factor, and closing the account."""

from base64 import b32decode
from decimal import Decimal
from typing import Final

from playwright.sync_api import expect

from tests.support.browser import Opener, bring_session
from tests.support.full_service import account_of
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import PASSWORD, Person, new_browser, sign_in, sign_up
from tests.support.processes.service import Service
from tumira.accounts.api_keys import Scope
from tumira.accounts.passcode_limits import PasscodeLimits
from tumira.identity import manage_accounts, totp
from tumira.identity.manage_keys import create_key

NEW: Final = "another good password"


def code_of(secret: str) -> str:
    return totp.authenticator(b32decode(secret.replace(" ", ""))).now()


def visit(service: Service, open_page: Opener, way: Way, person: Person) -> Hand:
    hand = Hand.open(open_page, service.base, way)
    bring_session(hand.page, service.base, person.session)
    hand.page.goto("/dashboard")
    hand.go_to("Settings")
    return hand


@ways()
def test_the_second_factor_is_set_up_and_asked_for(service: Service, open_page: Opener, way: Way) -> None:
    person = sign_up(service)
    hand = visit(service, open_page, way, person)
    page = hand.page
    hand.link("Set up")
    hand.submit("Your password", PASSWORD)
    hand.inspect("settings-factor-secret")
    secret = page.locator("#secret").inner_text()
    if way.javascript:
        hand.button("Copy")
        expect(page.locator('[data-copied="secret"]')).to_have_text("Copied")
    hand.fill("Authentication code", code_of(secret))
    hand.button("Turn on")
    listed = page.get_by_role("list", name="Recovery codes").get_by_role("listitem")
    expect(listed).to_have_count(totp.RECOVERY_CODES)
    codes = listed.all_inner_texts()
    hand.inspect("settings-factor-codes")
    hand.link("I have saved them")
    hand.expect_heading("Settings")
    hand.sign_out()

    hand.expect_heading("Sign in")
    hand.fill("Phone number", person.phone)
    hand.submit("Password", PASSWORD)
    hand.expect_heading("Enter your code")
    hand.inspect("sign-in-code")
    hand.submit("Authentication code", "abc")
    hand.expect_refused("Wrong code")
    hand.fill("Authentication code", codes[0])
    hand.button("Continue")
    hand.expect_heading("Overview")
    hand.go_to("Settings")
    expect(page.get_by_text("9 recovery codes left")).to_be_visible()


@ways()
def test_lifetimes_and_the_passcode_guard_are_set(service: Service, open_page: Opener, way: Way) -> None:
    person = sign_up(service)
    # Accounts of tests have none, because they may send many codes to a number.
    service.run(manage_accounts.set_passcode_limits, account_of(service, person), lambda _: PasscodeLimits())
    hand = visit(service, open_page, way, person)
    page = hand.page
    hand.fill("Passcodes (minutes)", "90")
    hand.button("Save lifetimes")
    hand.expect_refused("Passcodes (minutes)")
    hand.fill("Passcodes (minutes)", "5")
    hand.fill("Other messages (hours)", "12")
    hand.button("Save lifetimes")
    hand.expect_told("Lifetimes saved.")
    expect(hand.field("Passcodes (minutes)")).to_have_value("5")
    hand.inspect("settings-lifetimes")

    hand.link("Limits and what was stopped")
    hand.expect_heading("Passcode guard")
    hand.fill("To one number in 10 minutes", "none")
    hand.button("Save limits")
    hand.expect_refused("To one number in 10 minutes")
    hand.fill("To one number in 10 minutes", "1")
    hand.fill("To neighbouring numbers in 10 minutes", "2")
    hand.button("Save limits")
    hand.expect_told("Passcode limits saved.")
    send_passcodes(service, person)
    page.goto("/dashboard/settings/passcodes")
    expect(page.get_by_role("region", name="What was stopped").get_by_role("row")).to_have_count(3)
    hand.inspect("settings-passcodes-stopped")
    hand.button("Let through +26377120")
    hand.expect_told("no longer stopped")
    hand.button("Guard again +26377120")
    hand.expect_told("guarded again")
    hand.submit("One of the numbers", "+27 82 123 0001")
    hand.expect_told("no longer stopped")
    hand.inspect("settings-passcodes")


def send_passcodes(service: Service, person: Person) -> None:
    """Have a number stopped, and then its range."""
    account_id = account_of(service, person)
    service.run(manage_accounts.credit, account_id, Decimal(5), note="Cash", actor="cli:root")
    _, key = service.run(create_key, account_id, "shop", tuple(Scope))
    rejected = []
    for last in (1, 1, 2, 3, 4):
        to = f"+26377120000{last}"
        answer = service.call(
            key, "POST", "/messages", json={"channel": "sms", "to": to, "body": "Your code is 493817."}
        )
        assert answer.status_code == 202, answer.text
        rejected += [one["code"] for one in answer.json()["rejected"]]
    assert set(rejected) == {"RECIPIENT_LIMIT"}


@ways()
def test_every_setting_is_changed_and_the_account_closed(
    service: Service, open_page: Opener, way: Way
) -> None:
    person = sign_up(service)
    sign_in(new_browser(service), person.phone)
    hand = visit(service, open_page, way, person)
    page = hand.page
    hand.fill("Contact name", "Rudo Dube")
    hand.fill("Business name", "Dube Pharmacy")
    hand.button("Save profile")
    hand.expect_told("Profile saved.")
    hand.fill("Email (optional)", "rudo@example.com")
    # Enter in the last field saves it.
    hand.fill(page.locator("#password_for_email"), PASSWORD)
    page.keyboard.press("Enter")
    hand.expect_told("Email address saved.")
    hand.fill("Limit per day (US$)", "five")
    hand.fill(page.locator("#password_for_limits"), "not my password")
    hand.button("Save limits")
    hand.expect_refused("Limit per day")
    # The alert leads to the field.
    hand.link("Limit per day (US$)", page.get_by_role("alert"))
    hand.fill("Limit per day (US$)", "12.50")
    hand.fill("Limit per send (US$)", "5")
    hand.fill(page.locator("#password_for_limits"), "not my password")
    hand.button("Save limits")
    hand.expect_refused("Wrong password.")
    hand.fill(page.locator("#password_for_limits"), PASSWORD)
    hand.button("Save limits")
    hand.expect_told("Spending limits saved.")
    hand.fill("Alert below (US$)", "2")
    hand.tick(page.get_by_label("By email"), checked=False)
    # No mail server is set, and the page says so.
    expect(page.get_by_text("Email is not set up on this service, so no email is sent.")).to_be_visible()
    hand.button("Save alerts")
    hand.expect_told("Low-balance alert saved.")
    for label, value in (
        ("Contact name", "Rudo Dube"),
        ("Email (optional)", "rudo@example.com"),
        ("Limit per send (US$)", "5"),
        ("Limit per day (US$)", "12.50"),
        ("Alert below (US$)", "2"),
    ):
        expect(hand.field(label)).to_have_value(value)
    expect(page.get_by_label("By email")).not_to_be_checked()
    hand.button("Sign out everywhere else")
    hand.expect_told("signed out")
    hand.fill("Current password", PASSWORD)
    hand.fill("New password", NEW)
    hand.button("Change password")
    hand.expect_told("Password changed.")
    hand.link("history of changes")
    hand.expect_heading("History of changes")
    assert page.get_by_role("row").count() > len(("profile", "email", "limits", "alerts", "password"))
    hand.go_to("Settings")
    hand.fill(page.locator("#password_to_close"), NEW)
    hand.fill("Type CLOSE to confirm", "CLOSE")
    hand.button("Close account")
    hand.expect_heading("Account closed")
    hand.inspect("settings-closed")
    page.go_back()
    page.reload()
    hand.expect_heading("Sign in")
