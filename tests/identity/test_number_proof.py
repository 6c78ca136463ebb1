"""A number belongs to who holds its phone: an e-mail address proves nothing about it."""

import re
from typing import Final, cast

import httpx

from tests.support.identity.operators import new_operator
from tests.support.identity.people import (
    DEVICE,
    PASSWORD,
    VERIFICATION,
    alert,
    begin_sign_up,
    code_in,
    code_to,
    count,
    goes_to,
    is_signed_in,
    mail_code_to,
    new_browser,
    new_phone,
    pass_time,
    set_password,
    sign_in,
    sign_up,
    texts_to,
    verify,
)
from tests.support.processes.service import Service
from tumira.core.ids import ACCOUNT, write_id
from tumira.core.settings.payments import Payments
from tumira.dashboard.app import Dashboard
from tumira.identity.code_rules import CodeLimits
from tumira.postgres.pool import Database
from tumira.sending.batcher import Batcher

EVE: Final = "eve@example.org"
EVIL: Final = "chosen by eve"
NEW: Final = "another good password"
VERIFY: Final = "/dashboard/verify"
START: Final = "/dashboard/verify/start"
UNCONFIRMED: Final = "Your phone number is not confirmed yet"
KEY: Final = {"name": "shop", "scope": "messages:send"}
DASHBOARD: Final = Dashboard(
    Database("postgresql://nowhere"),
    cast("Batcher", None),
    public_url="",
    code_limits=CodeLimits(),
    webhooks_allow_private=False,
    payments=Payments(),
)
# What somebody does who is not signed in, or leaves.
PUBLIC: Final = re.compile(r"/dashboard/(sign-|verify|forgotten|new-password)")
FORMS: Final = [
    re.sub(r"\{[^}]+\}", "0" * 26, route.path)
    for route in DASHBOARD.routes()
    if "POST" in (route.methods or ()) and not PUBLIC.match(route.path)
]


def squat(service: Service, phone: str, email: str = EVE) -> httpx.Client:
    """Sign up with a number whose phone one does not hold, and confirm that by e-mail."""
    browser = new_browser(service)
    begin_sign_up(browser, phone, name="Eve", business="Evil", email=email, password=EVIL)
    entered = verify(browser, mail_code_to(service, email))
    assert goes_to(entered) == "/dashboard", alert(entered)
    return browser


def account_of(service: Service, phone: str) -> tuple[object, ...]:
    rows = service.sql(
        "SELECT a.name, a.business, l.email, l.phone_proved_at IS NOT NULL, l.totp_since"
        "  FROM accounts a JOIN logins l ON l.account_id = a.id WHERE a.phone = $1",
        phone,
    )
    return tuple(rows[0])


def made_with(service: Service, phone: str) -> int:
    tables = ("api_keys", "webhook_endpoints", "top_ups", "uploads", "batches", "changes")
    rows = " + ".join(f"(SELECT count(*) FROM {one} t WHERE t.account_id = a.id)" for one in tables)
    return count(
        service,
        f"SELECT {rows} + (SELECT count(*) FROM devices d WHERE d.phone = a.phone)"
        " + (SELECT count(*) FROM logins l WHERE l.account_id = a.id AND l.totp_secret IS NOT NULL)"
        " FROM accounts a WHERE phone = $1",
        phone,
    )


def test_who_has_only_the_mail_looks_around_and_makes_nothing(service: Service) -> None:
    phone = new_phone()
    browser = squat(service, phone)
    assert len(FORMS) > 25
    for path in ("", "/keys", "/webhooks", "/top-up", "/compose", "/upload", "/settings", "/ledger"):
        page = browser.get("/dashboard" + path)
        assert (page.status_code, UNCONFIRMED in page.text) == (200, True), path
    for path in FORMS:
        answer = browser.post(path, data={**KEY, "password": EVIL})
        assert goes_to(answer) == VERIFY, path
    assert DEVICE not in browser.cookies
    assert made_with(service, phone) == 0
    assert account_of(service, phone) == ("Eve", "Evil", EVE, False, None)


def test_the_code_of_the_text_still_opens_the_rest(service: Service) -> None:
    phone = new_phone()
    browser = new_browser(service)
    begin_sign_up(browser, phone, name="Eve", business="Evil", email=EVE, password=EVIL)
    by_mail, by_text = mail_code_to(service, EVE), code_to(service, phone)
    assert by_mail != by_text
    assert f"another code to <strong>{EVE}</strong>" in browser.get(VERIFY).text
    assert goes_to(verify(browser, by_mail)) == "/dashboard"
    page = browser.get(VERIFY).text
    assert phone in page
    # The other code has done what it is for.
    assert EVE not in page
    assert "tries are left" in alert(verify(browser, by_mail))
    assert goes_to(verify(browser, by_text)) == "/dashboard"
    assert account_of(service, phone) == ("Eve", "Evil", EVE, True, None)
    assert UNCONFIRMED not in browser.get("/dashboard").text
    assert browser.post("/dashboard/keys", data=KEY).status_code == 200
    assert VERIFICATION not in browser.cookies


def test_the_phone_is_confirmed_later_and_elsewhere(service: Service) -> None:
    phone, operator = new_phone(), new_operator(service).browser
    squat(service, phone)
    (account,) = service.sql("SELECT id FROM accounts WHERE phone = $1", phone)
    page = f"/operator/accounts/{write_id(ACCOUNT, account['id'])}"
    assert "signed up by e-mail alone" in operator.get(page).text
    browser = new_browser(service)
    assert goes_to(sign_in(browser, phone, EVIL)) == "/dashboard"
    assert "Send a code to my phone" in browser.get(VERIFY).text
    refused = browser.post(START)
    assert (refused.status_code, "Too many codes" in alert(refused)) == (429, True)
    pass_time(service, phone, "31 seconds")
    assert goes_to(browser.post(START)) == VERIFY
    assert goes_to(verify(browser, code_to(service, phone))) == "/dashboard"
    assert account_of(service, phone) == ("Eve", "Evil", EVE, True, None)
    assert "signed up by e-mail alone" not in operator.get(page).text
    assert goes_to(browser.post(START)) == "/dashboard"
    assert goes_to(new_browser(service).post(START)) == "/dashboard/sign-in"


def test_the_owner_signs_up_as_if_nobody_had_squatted_the_number(service: Service) -> None:
    phone = new_phone()
    eve = squat(service, phone)
    pass_time(service, phone, "31 seconds")
    owner = sign_up(service, phone, email="owner@example.org")
    assert account_of(service, phone) == ("Tariro Moyo", "Moyo Stores", "owner@example.org", True, None)
    assert owner.browser.post("/dashboard/keys", data=KEY).status_code == 200
    # Nothing of Eve's is left: neither her session nor her password nor the sign-up that she began.
    assert not is_signed_in(eve)
    assert sign_in(new_browser(service), phone, EVIL).status_code in {303, 422}
    assert goes_to(sign_in(new_browser(service), phone, PASSWORD)) == "/dashboard"
    of_account = "FROM sessions s JOIN accounts a ON a.id = s.account_id WHERE a.phone = $1"
    assert count(service, f"SELECT count(*) {of_account}", phone) == 2


def test_a_new_password_by_text_wins_over_all_that_was_set_up_before(service: Service) -> None:
    phone = new_phone()
    eve = squat(service, phone)
    # As it could be done before the phone had to be proved for it.
    service.sql(
        "UPDATE logins SET totp_secret = decode(repeat('00', 20), 'hex'), totp_since = now()"
        " WHERE account_id = (SELECT id FROM accounts WHERE phone = $1)",
        phone,
    )
    browser = new_browser(service)
    browser.post("/dashboard/forgotten", data={"phone": phone})
    assert goes_to(set_password(browser, code_to(service, phone), NEW)) == "/dashboard"
    assert account_of(service, phone)[2:] == (None, True, None)
    assert not is_signed_in(eve)
    assert UNCONFIRMED not in browser.get("/dashboard").text
    assert goes_to(sign_in(new_browser(service), phone, NEW)) == "/dashboard"


def test_a_mail_opens_no_number_that_has_an_account_proved_or_not(service: Service) -> None:
    proved, squatted = sign_up(service).phone, new_phone()
    squat(service, squatted, "first@example.org")
    for phone in (proved, squatted):
        pass_time(service, phone, "1 hour")
        browser = new_browser(service)
        begin_sign_up(browser, phone, email="second@example.org", password=EVIL)
        entered = verify(browser, mail_code_to(service, "second@example.org"))
        assert "tries are left" in alert(entered)
        assert not is_signed_in(browser)
        # Nor does the code of another sign-up's mail.
        assert "tries are left" in alert(verify(browser, mail_code_to(service, "first@example.org")))
    # Its owner is told so where there is an owner, and gets a code where there is none.
    assert "It has an account" in texts_to(service, proved)[-1]
    assert code_in(texts_to(service, squatted)[-1])
