"""Journeys through the settings: second factor, profile, limits and closing the account."""

from base64 import b32decode
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.support.browser import PHONE, Opener, bring_session, inspect
from tests.support.identity.people import PASSWORD, sign_up
from tests.support.processes.service import Service
from tumira.identity import totp

SETTINGS: Final = "/dashboard/settings"
NEW: Final = "another good password"


def code_of(secret: str) -> str:
    return totp.authenticator(b32decode(secret.replace(" ", ""))).now()


@pytest.mark.long
def test_the_second_factor_is_set_up_and_asked_for(service: Service, open_page: Opener) -> None:
    person = sign_up(service)
    page = open_page(service.base, viewport=PHONE, javascript=False)
    bring_session(page, service.base, person.session)
    page.goto(SETTINGS)
    page.get_by_role("link", name="Set up").click()
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Set up").click()
    inspect(page, "settings-factor-secret")
    page.get_by_label("Authentication code").fill(code_of(page.locator("#secret").inner_text()))
    page.get_by_role("button", name="Turn on").click()
    codes = page.get_by_role("list", name="Recovery codes").get_by_role("listitem").all_inner_texts()
    assert len(codes) == totp.RECOVERY_CODES
    inspect(page, "settings-factor-codes")
    page.get_by_role("link", name="I have saved them").click()
    page.context.clear_cookies()

    page.goto("/dashboard/sign-in?next=/dashboard/settings")
    page.get_by_label("Phone number").fill(person.phone)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Enter your code")
    inspect(page, "sign-in-code")
    page.get_by_label("Authentication code").fill("abc")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_contain_text("Wrong code")
    page.get_by_label("Authentication code").fill(codes[0])
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Settings")
    expect(page.get_by_text("9 recovery codes left")).to_be_visible()


@pytest.mark.long
def test_settings_are_changed_and_the_account_closed_without_scripts(
    service: Service, open_page: Opener
) -> None:
    person = sign_up(service)
    page = open_page(service.base, viewport=PHONE, javascript=False)
    bring_session(page, service.base, person.session)
    page.goto(SETTINGS)
    page.get_by_label("Full name").fill("Rudo Dube")
    page.get_by_label("Business name").fill("Dube Pharmacy")
    page.get_by_role("button", name="Save profile").click()
    expect(page.get_by_role("status")).to_have_text("Profile saved.")
    page.get_by_label("Email (optional)").fill("rudo@example.com")
    page.get_by_role("button", name="Save email").click()
    page.get_by_label("Limit per day").fill("five")
    page.get_by_role("button", name="Save limits").click()
    expect(page.get_by_role("alert")).to_contain_text("Limit per day")
    page.get_by_label("Limit per send").fill("5")
    page.get_by_label("Limit per day").fill("12.50")
    page.get_by_role("button", name="Save limits").click()
    page.get_by_label("Alert below").fill("2")
    page.get_by_label("By email").uncheck()
    page.get_by_role("button", name="Save alerts").click()
    expect(page.get_by_label("Full name")).to_have_value("Rudo Dube")
    expect(page.get_by_label("Email (optional)")).to_have_value("rudo@example.com")
    expect(page.get_by_label("Limit per send")).to_have_value("5")
    expect(page.get_by_label("Limit per day")).to_have_value("12.50")
    expect(page.get_by_label("Alert below")).to_have_value("2")
    expect(page.get_by_label("By email")).not_to_be_checked()
    page.get_by_label("Current password").fill(PASSWORD)
    page.get_by_label("New password").fill(NEW)
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_role("status")).to_contain_text("Password changed.")
    page.get_by_role("link", name="history of changes").click()
    expect(page.get_by_role("row")).to_have_count(6)
    page.goto(SETTINGS)
    page.get_by_label("Your password").fill(NEW)
    page.get_by_label("Type CLOSE to confirm").fill("CLOSE")
    page.get_by_role("button", name="Close account").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Account closed")
    inspect(page, "settings-closed")
    page.goto(SETTINGS)
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
