"""Journeys through the settings: every form, the second factor, and closing the account."""

from base64 import b32decode
from typing import Final

from playwright.sync_api import expect

from tests.support.browser import Opener, bring_session
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import PASSWORD, Person, new_browser, sign_in, sign_up
from tests.support.processes.service import Service
from tumira.identity import totp

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


@ways("desk without scripts")
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
    # Enter in the only field saves it.
    hand.submit("Email (optional)", "rudo@example.com")
    hand.expect_told("Email address saved.")
    hand.fill("Limit per day (US$)", "five")
    hand.button("Save limits")
    hand.expect_refused("Limit per day")
    # The alert leads to the field.
    hand.link("Limit per day (US$)", page.get_by_role("alert"))
    hand.fill("Limit per day (US$)", "12.50")
    hand.fill("Limit per send (US$)", "5")
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
    hand.fill("Your password", NEW)
    hand.fill("Type CLOSE to confirm", "CLOSE")
    hand.button("Close account")
    hand.expect_heading("Account closed")
    hand.inspect("settings-closed")
    page.go_back()
    page.reload()
    hand.expect_heading("Sign in")
