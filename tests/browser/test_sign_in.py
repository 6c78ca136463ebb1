"""Sign-up, sign-in and a forgotten password with a number as it is dialled at home."""

from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import DESKTOP, PHONE, Opener, Viewport, inspect
from tests.support.identity.people import PASSWORD, code_to, new_phone, pass_time
from tests.support.processes.service import Service
from tumira.pricing.phone_numbers import write_phone

NEW: Final = "another good password"


def heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(text)


def sign_in(page: Page, phone: str, password: str) -> None:
    """Sign in with nothing but the keyboard, as far as the sign-in page is open."""
    page.get_by_label("Country").focus()
    page.keyboard.type("South")
    page.keyboard.press("Tab")
    page.keyboard.press("Control+a")
    page.keyboard.type(phone)
    page.keyboard.press("Tab")
    page.keyboard.type(password)
    page.keyboard.press("Enter")


@pytest.mark.parametrize(
    ("viewport", "javascript"),
    [
        pytest.param(PHONE, True, id="phone"),
        pytest.param(DESKTOP, False, id="desktop without scripts", marks=pytest.mark.long),
    ],
)
def test_a_local_number_signs_up_signs_in_and_gets_a_new_password(
    service: Service, open_page: Opener, viewport: Viewport, *, javascript: bool
) -> None:
    page = open_page(service.base, viewport=viewport, javascript=javascript)
    phone = new_phone()
    local = f"0{phone[3:5]} {phone[5:8]} {phone[8:]}"
    page.goto("/dashboard/sign-up")
    expect(page.get_by_label("Country")).to_have_value("ZW")
    page.get_by_label("Full name").fill("Lerato Nkosi")
    page.get_by_label("Business name").fill("Nkosi Clinic")
    page.get_by_label("Phone number").fill(local)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    # Not a number of Zimbabwe: the page says so, and names the likely one.
    expect(page.get_by_role("alert")).to_contain_text(
        f"This is not a mobile number in Zimbabwe. Did you mean {write_phone(phone)}?"
    )
    inspect(page, "sign-up-refused")
    page.get_by_label("Country").select_option("South Africa (+27)")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    heading(page, "Verify your number")
    expect(page.get_by_role("main")).to_contain_text(write_phone(phone))
    inspect(page, "verify")
    page.get_by_label("Verification code").fill(code_to(service, phone))
    page.get_by_role("button", name="Verify").click()
    heading(page, "Overview")

    page.context.clear_cookies()
    page.goto("/dashboard/sign-in?next=/dashboard/keys")
    sign_in(page, local.replace(" ", "-"), "wrong")
    expect(page.get_by_role("alert")).to_contain_text("Wrong phone number or password")
    expect(page.get_by_label("Phone number")).to_have_value(write_phone(phone))
    inspect(page, "sign-in-refused")
    sign_in(page, local, PASSWORD)
    heading(page, "API keys")

    page.context.clear_cookies()
    pass_time(service, phone, "1 hour")
    page.goto("/dashboard/sign-in")
    page.get_by_role("link", name="Forgot your password?").click()
    page.get_by_label("Phone number").fill(local)
    page.get_by_label("Country").select_option("ZA")
    inspect(page, "forgotten")
    page.get_by_role("button", name="Send code").click()
    heading(page, "Choose a new password")
    expect(page.get_by_role("main")).to_contain_text(write_phone(phone))
    inspect(page, "new-password")
    page.get_by_label("Verification code").fill(code_to(service, phone))
    page.get_by_label("New password").fill(NEW)
    page.get_by_role("button", name="Set password").click()
    heading(page, "Overview")
