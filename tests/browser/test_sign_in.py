"""Sign-up, sign-in and a forgotten password with a number as it is dialled at home."""

from typing import Final

from playwright.sync_api import expect

from tests.support.browser import Opener
from tests.support.hand import Hand, Way, ways
from tests.support.identity.people import PASSWORD, code_to, new_phone, pass_time
from tests.support.processes.service import Service
from tumira.pricing.phone_numbers import write_phone

NEW: Final = "another good password"
SOUTH_AFRICA: Final = "South Africa (+27)"


@ways("phone without scripts")
def test_a_local_number_signs_up_signs_in_and_gets_a_new_password(
    service: Service, open_page: Opener, way: Way
) -> None:
    hand = Hand.open(open_page, service.base, way)
    page, phone = hand.page, new_phone()
    local = f"0{phone[3:5]} {phone[5:8]} {phone[8:]}"
    page.goto("/")
    hand.link("Sign up")
    expect(hand.field("Country")).to_have_value("ZW")
    hand.fill("Full name", "Lerato Nkosi")
    hand.fill("Business name", "Nkosi Clinic")
    hand.fill("Phone number", local)
    hand.fill("Password", PASSWORD)
    hand.button("Create account")
    # Not a number of Zimbabwe: the page says so, and names the likely one.
    hand.expect_refused(f"This is not a mobile number in Zimbabwe. Did you mean {write_phone(phone)}?")
    hand.inspect("sign-up-refused")
    hand.select("Country", SOUTH_AFRICA)
    hand.fill("Password", PASSWORD)
    hand.button("Create account")
    hand.expect_heading("Verify your number")
    expect(hand.main).to_contain_text(write_phone(phone))
    hand.inspect("verify")
    hand.fill("Verification code", code_to(service, phone))
    hand.button("Verify")
    hand.expect_heading("Overview")

    hand.sign_out()
    hand.expect_heading("Sign in")
    hand.select("Country", SOUTH_AFRICA)
    hand.fill("Phone number", local.replace(" ", "-"))
    hand.submit("Password", "wrong")
    hand.expect_refused("Wrong phone number or password")
    expect(hand.field("Phone number")).to_have_value(write_phone(phone))
    hand.inspect("sign-in-refused")
    hand.submit("Password", PASSWORD)
    hand.expect_heading("Overview")

    hand.sign_out()
    pass_time(service, phone, "1 hour")
    hand.link("Forgot your password?")
    hand.select("Country", SOUTH_AFRICA)
    hand.fill("Phone number", local)
    hand.inspect("forgotten")
    hand.button("Send code")
    hand.expect_heading("Choose a new password")
    expect(hand.main).to_contain_text(write_phone(phone))
    hand.inspect("new-password")
    hand.fill("Verification code", code_to(service, phone))
    hand.fill("New password", NEW)
    hand.button("Set password")
    hand.expect_heading("Overview")
