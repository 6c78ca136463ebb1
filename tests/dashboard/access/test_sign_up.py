"""Sign-up pages: the holder of the phone gets an account; an e-mail address proves nothing about a number."""

import re
from collections.abc import Iterator
from typing import Final, cast

import httpx
import pytest

from tests.support.identity.operators import new_operator
from tests.support.identity.people import (
    BUSINESS,
    DEVICE,
    NAME,
    PASSWORD,
    SESSION,
    VERIFICATION,
    alert,
    another,
    begin_sign_up,
    code_in,
    code_to,
    count,
    goes_to,
    is_signed_in,
    mail_code_to,
    new_address,
    new_browser,
    new_phone,
    pass_time,
    refuses,
    run_behind_proxy,
    seen,
    set_password,
    sign_in,
    sign_up,
    texts_to,
    verify,
)
from tests.support.processes.service import Service
from tumira.core.ids import ACCOUNT, write_id
from tumira.core.settings.payments import Payments
from tumira.core.settings.support import NO_SUPPORT
from tumira.dashboard.app import Dashboard
from tumira.identity.code_rules import CodeLimits
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import write_phone
from tumira.sending.batcher import Batcher

MAIL: Final = {"TUMIRA_SMTP_URL": "smtp://127.0.0.1:2525", "TUMIRA_MAIL_FROM": "no-reply@tumira.example"}
AGAIN: Final = "/dashboard/verify/again"
GONE: Final = "This code can no longer be used. Use “Send a new code” below."
EVE: Final = "eve@example.org"
EVIL: Final = "chosen by eve"
NEW: Final = "another good password"
VERIFY: Final = "/dashboard/verify"
START: Final = "/dashboard/verify/start"
UNCONFIRMED: Final = "Verify your phone number to top up"
KEY: Final = {"name": "shop", "scope": "messages:send", "password": PASSWORD}
DASHBOARD: Final = Dashboard(
    Database("postgresql://nowhere"),
    cast("Batcher", None),
    public_url="",
    code_limits=CodeLimits(),
    webhooks_allow_private=False,
    payments=Payments(),
    support=NO_SUPPORT,
    keep_weeks=None,
    mail_is_set_up=False,
)
# What somebody does who is not signed in, or leaves.
PUBLIC: Final = re.compile(r"/dashboard/(sign-|verify|forgotten|new-password|join/)")
FORMS: Final = [
    re.sub(r"\{[^}]+\}", "0" * 26, route.path)
    for route in DASHBOARD.routes()
    if "POST" in (route.methods or ()) and not PUBLIC.match(route.path)
]


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a running service in which everybody comes from an address of their own."""
    with run_behind_proxy(server_url, **MAIL) as running:
        yield running


def accounts_of(service: Service, phone: str) -> int:
    return count(service, "SELECT count(*) FROM accounts WHERE phone = $1", phone)


def sent_to(service: Service, phone: str) -> int:
    return count(service, "SELECT count(*) FROM codes WHERE phone = $1", phone)


def begun(service: Service, **fields: str) -> tuple[httpx.Client, str]:
    """Return a browser in which a sign-up was begun, and its number."""
    browser, phone = new_browser(service), new_phone()
    answer = begin_sign_up(browser, phone, **fields)
    assert goes_to(answer) == "/dashboard/verify", answer.text
    return browser, phone


def test_who_enters_the_code_has_an_account_and_is_signed_in(service: Service) -> None:
    browser, phone = begun(service, email="tariro@example.org")
    page = browser.get("/dashboard/verify")
    assert write_phone(phone) in page.text
    assert "tariro@example.org" in page.text
    # Until then there is no page, no key and nothing to send with.
    assert accounts_of(service, phone) == 0
    assert not is_signed_in(browser)
    made = browser.post("/dashboard/keys", data=KEY)
    assert goes_to(made) == "/dashboard/sign-in?next=%2Fdashboard%2Fkeys"
    # Nor does the token of the sign-up open what the token of a session does.
    token = browser.cookies[VERIFICATION]
    assert not is_signed_in(new_browser(service, **{SESSION: token}))

    code = code_to(service, phone)
    assert goes_to(verify(browser, code)) == "/dashboard"

    assert is_signed_in(browser)
    assert VERIFICATION not in browser.cookies
    (account,) = service.sql("SELECT name, business, balance FROM accounts WHERE phone = $1", phone)
    assert tuple(account) == (NAME, BUSINESS, 0)
    (login,) = service.sql(
        "SELECT l.email, l.password_hash FROM logins l JOIN accounts a ON a.id = l.account_id"
        " WHERE a.phone = $1",
        phone,
    )
    assert login["email"] == "tariro@example.org"
    assert login["password_hash"].startswith("$argon2id$")
    assert goes_to(sign_in(new_browser(service), phone)) == "/dashboard"
    # It was used once.
    thief = new_browser(service, **{VERIFICATION: token})
    assert goes_to(verify(thief, code)) == "/dashboard/sign-up"
    assert goes_to(thief.post(AGAIN)) == "/dashboard/sign-in"
    assert not is_signed_in(thief)


def test_a_local_number_is_completed_for_the_chosen_country(service: Service) -> None:
    phone = new_phone()
    national = f"{phone[3:5]}-{phone[5:8]}\xa0{phone[8:]}"
    browser = new_browser(service)
    answer = begin_sign_up(browser, f"(0){national}", country="ZA")
    assert goes_to(answer) == VERIFY, alert(answer)
    assert write_phone(phone) in browser.get(VERIFY).text
    assert goes_to(verify(browser, code_to(service, phone))) == "/dashboard"
    assert goes_to(sign_in(new_browser(service), f"0{national}", country="ZA")) == "/dashboard"
    # The country code counts more than the country that was chosen.
    assert goes_to(sign_in(new_browser(service), f"0027{national}", country="ZW")) == "/dashboard"
    pass_time(service, phone, "1 hour")
    forgot = new_browser(service)
    data = {"phone": national, "country": "ZA"}
    assert goes_to(forgot.post("/dashboard/forgotten", data=data)) == "/dashboard/new-password"
    assert write_phone(phone) in forgot.get("/dashboard/new-password").text
    assert goes_to(set_password(forgot, code_to(service, phone), NEW)) == "/dashboard"


@pytest.mark.parametrize(
    ("typed", "country", "said"),
    [
        ("", "ZW", "Enter your mobile number."),
        ("Moyo", "ZW", "This is not a phone number."),
        ("077 120 000", "ZW", "Numbers in Zimbabwe have 9 digits after +263. This one has 8."),
        ("082 123 0001", "ZW", "not a mobile number in Zimbabwe. Did you mean +27 82 123 0001?"),
        ("0242 000 000", "ZW", "This is not a mobile number in Zimbabwe."),
        ("+44 7700 900123", "ZA", "Enter a mobile number in Zimbabwe or South Africa."),
        ("077 120 0001", "XX", "Add the country code, for example +263 77 120 0001."),
    ],
)
def test_a_number_that_cannot_be_one_says_what_to_do(
    service: Service, typed: str, country: str, said: str
) -> None:
    browser = new_browser(service)
    form = {"phone": typed, "country": country, "password": PASSWORD}
    for path in ("sign-up", "sign-in", "forgotten"):
        refused = browser.post(f"/dashboard/{path}", data=form)
        assert refuses(refused, said), alert(refused)
        # What was typed and chosen stays.
        assert f'value="{typed}"' in refused.text
        assert (f'<option value="{country}" selected>' in refused.text) is (country != "XX")


def test_the_country_is_guessed_from_the_language_of_the_browser(service: Service) -> None:
    for languages, country in (
        ("en-ZA,en;q=0.9", "ZA"),
        ("en-GB,en", "ZW"),
        ("", "ZW"),
        ("sn-ZW,en-ZA", "ZW"),
    ):
        page = new_browser(service).get("/dashboard/sign-up", headers={"Accept-Language": languages})
        assert f'<option value="{country}" selected>' in page.text, languages
        assert page.text.count("<option") == 2


def test_neither_code_nor_password_nor_token_stands_in_the_database_as_it_is(service: Service) -> None:
    browser, phone = begun(service)
    code, token = code_to(service, phone), browser.cookies[VERIFICATION]
    for table in ("codes", "verifications"):
        (row,) = service.sql(f"SELECT to_jsonb(t)::text FROM {table} t WHERE phone = $1", phone)
        # Digits that happen to stand in an id or a time are no code; one that is kept would be a value.
        assert not any(text in row[0] for text in (f'"{code}"', f": {code}", PASSWORD, token))
    verify(browser, code)
    (session,) = service.sql(
        "SELECT to_jsonb(s)::text FROM sessions s JOIN accounts a ON a.id = account_id WHERE phone = $1",
        phone,
    )
    assert browser.cookies[SESSION] not in session[0]


def test_a_wrong_code_says_how_many_tries_are_left_and_the_sixth_is_not_compared(service: Service) -> None:
    browser, phone = begun(service)
    code = code_to(service, phone)
    said = [alert(verify(browser, another(code))) for _ in range(5)]
    assert ["4 tries left" in said[0], "1 try left" in said[3], GONE in said[4]] == [True] * 3
    assert refuses(verify(browser, code), GONE)
    assert accounts_of(service, phone) == 0


def test_what_is_no_code_costs_no_try(service: Service) -> None:
    browser, phone = begun(service)
    for text in ("", "12345", "١٢٣٤٥٦", "0" * 100_000):
        assert refuses(verify(browser, text), "six digits")
    assert service.sql("SELECT tries FROM codes WHERE phone = $1", phone)[0]["tries"] == 0
    code = code_to(service, phone)
    assert goes_to(verify(browser, f" {code[:3]} {code[3:]} ")) == "/dashboard"


def test_the_newest_code_counts_for_ten_minutes(service: Service) -> None:
    browser, phone = begun(service)
    pass_time(service, phone, "31 seconds")
    assert goes_to(browser.post(AGAIN)) == "/dashboard/verify?again=1"
    assert "Earlier codes no longer work" in browser.get("/dashboard/verify?again=1").text
    first, second = (code_in(text) for text in texts_to(service, phone))
    if first != second:
        assert "4 tries left" in alert(verify(browser, first))
    pass_time(service, phone, "10 minutes")
    assert refuses(verify(browser, second), GONE)
    pass_time(service, phone, "-30 seconds")
    assert goes_to(verify(browser, second)) == "/dashboard"


def test_a_code_proves_its_own_sign_up_alone(service: Service) -> None:
    phone = new_phone()
    hers, his = new_browser(service), new_browser(service)
    begin_sign_up(hers, phone, name="Anna")
    pass_time(service, phone, "31 seconds")
    begin_sign_up(his, phone, name="Ben")
    first, second = (code_in(text) for text in texts_to(service, phone))
    if first != second:
        assert "4 tries left" in alert(verify(hers, second))
        assert "4 tries left" in alert(verify(his, first))
    other = new_browser(service)
    begin_sign_up(other, new_phone())
    assert "4 tries left" in alert(verify(other, first))

    assert goes_to(verify(hers, first)) == "/dashboard"
    # His own code was right as well; but by then the number is taken.
    assert goes_to(verify(his, second)) == "/dashboard/sign-in"
    assert not is_signed_in(his)
    assert service.sql("SELECT name FROM accounts WHERE phone = $1", phone)[0]["name"] == "Anna"


def test_who_corrects_their_details_keeps_the_code(service: Service) -> None:
    browser, phone = new_browser(service), new_phone()
    begin_sign_up(browser, phone, name="Tarrio")
    code = code_to(service, phone)
    corrected = begin_sign_up(browser, phone, name="Tariro", password="another good one")
    assert goes_to(corrected) == "/dashboard/verify"
    assert len(texts_to(service, phone)) == 1
    assert goes_to(verify(browser, code)) == "/dashboard"
    assert service.sql("SELECT name FROM accounts WHERE phone = $1", phone)[0]["name"] == "Tariro"
    assert goes_to(sign_in(new_browser(service), phone, "another good one")) == "/dashboard"
    assert sign_in(new_browser(service), phone, PASSWORD).status_code == 422


def test_another_browser_waits_for_the_next_code(service: Service) -> None:
    browser, phone = begun(service)
    somebody_else = begin_sign_up(new_browser(service), phone, password="another good password")
    for refused in (browser.post(AGAIN), somebody_else):
        assert refused.status_code == 429
        assert "Too many codes were requested. Try again in" in alert(refused)
    pass_time(service, phone, "28 seconds")
    assert browser.post(AGAIN).status_code == 429
    pass_time(service, phone, "2 seconds")
    assert goes_to(browser.post(AGAIN)) == "/dashboard/verify?again=1"
    assert (sent_to(service, phone), len(texts_to(service, phone))) == (2, 2)


def test_two_clicks_are_one_sign_up(service: Service) -> None:
    phone = new_phone()
    first, second = new_browser(service), new_browser(service)
    # The browser that clicks twice has no cookie yet with the second click, and reads that answer alone.
    begin_sign_up(first, phone)
    assert goes_to(begin_sign_up(second, phone)) == "/dashboard/verify"
    assert len(texts_to(service, phone)) == 1
    assert goes_to(verify(second, code_to(service, phone))) == "/dashboard"


def test_nobody_learns_from_a_sign_up_whether_a_number_has_an_account(service: Service) -> None:
    """Every answer on the way is the same, byte for byte, up to where the code of the text is needed."""
    learnt = []
    for taken in (False, True):
        phone = new_phone()
        if taken:
            sign_up(service, phone)
            pass_time(service, phone, "2 days")
        browser = new_browser(service)
        answers = [begin_sign_up(browser, phone, email="eve@example.org", password="evil but long")]
        answers += [browser.get("/dashboard/verify")]
        # Only the text says so, in place of the code.
        text = texts_to(service, phone)[-1]
        assert ("already has an account" in text) is taken
        assert bool(re.search(r"[0-9]{6}", text)) is not taken
        answers += [begin_sign_up(browser, phone, name="Eve", password="evil but long")]
        # Whoever began it signs in with the password that they chose for it.
        stranger = new_browser(service)
        answers += [sign_in(stranger, phone, "evil but long"), stranger.get("/dashboard/verify")]
        pass_time(service, phone, "31 seconds")
        answers += [stranger.post(AGAIN), stranger.get("/dashboard/verify?again=1")]
        wrong = code_in(texts_to(service, phone)[-1]) if not taken else "493817"
        answers += [verify(stranger, another(wrong)) for _ in range(6)]
        pass_time(service, phone, "61 seconds")
        answers += [
            stranger.post(AGAIN),
            verify(stranger, "12345"),
            begin_sign_up(new_browser(service), phone),
        ]
        learnt.append([seen(answer, phone) for answer in answers])
    for free, had in zip(*learnt, strict=True):
        assert free == had


def test_details_that_cannot_be_right_are_all_named_and_nothing_is_sent(service: Service) -> None:
    phone = new_phone()
    browser = new_browser(service)
    refused = browser.post(
        "/dashboard/sign-up",
        data={"name": "", "business": "...", "phone": "077120001", "email": "a@b", "password": "password"},
    )
    assert refused.status_code == 422
    for label in ("Full name", "Business name", "Phone number", "Email (optional)", "Password"):
        assert f"{label} :" in alert(refused)
    # What was written stands in the form again, but for the password.
    assert 'value="077120001"' in refused.text
    assert 'value="password"' not in refused.text
    for fields in (
        {"name": "x" * 101},
        {"password": PASSWORD * 20},
        {"password": phone},
        {"email": "a@b\n.c"},
    ):
        assert begin_sign_up(browser, phone, **fields).status_code == 422
    for number in ("+260971200001", "system", phone + "1", "+26377120000" + "1" * 10_000):
        assert begin_sign_up(browser, number).status_code == 422
    for path in ("sign-up", "sign-in", "forgotten"):
        assert browser.post(f"/dashboard/{path}", data={"unknown": "1"}).status_code == 422
    assert VERIFICATION not in browser.cookies
    assert sent_to(service, phone) == 0


def test_a_planted_token_is_nobodys_and_the_code_page_needs_a_sign_up(service: Service) -> None:
    browser = new_browser(service, **{VERIFICATION: "planted"})
    for page in (browser.get("/dashboard/verify"), verify(browser, "493817")):
        assert goes_to(page) == "/dashboard/sign-up"
    assert goes_to(browser.post(AGAIN)) == "/dashboard/sign-in"
    given = begin_sign_up(browser, new_phone()).headers["set-cookie"]
    assert given.startswith(f"{VERIFICATION}=")
    assert "planted" not in given
    person = sign_up(service)
    for path in ("sign-up", "sign-in", "verify"):
        assert goes_to(person.browser.get(f"/dashboard/{path}")) == "/dashboard"


def test_a_sign_up_is_forgotten_after_a_day(service: Service) -> None:
    browser, phone = begun(service)
    service.sql(
        "UPDATE verifications SET created_at = created_at - interval '24 hours' WHERE phone = $1", phone
    )
    assert goes_to(verify(browser, code_to(service, phone))) == "/dashboard/sign-up"
    assert sign_in(new_browser(service), phone).status_code == 422


@pytest.mark.long
def test_the_settings_limit_the_codes_of_an_address_and_of_all(server_url: str) -> None:
    limits = {"TUMIRA_CODES_PER_ADDRESS": "2", "TUMIRA_CODES_PER_HOUR": "3"}
    with run_behind_proxy(server_url, **limits) as service:
        # Without a mail server no page speaks of a mail.
        browser = new_browser(service)
        assert "We also send a code there" not in browser.get("/dashboard/sign-up").text
        begin_sign_up(browser, new_phone(), email=EVE)
        assert EVE not in browser.get(VERIFY).text
        service.sql("UPDATE codes SET sent_at = sent_at - interval '1 hour'")
        address = new_address()
        here = [begin_sign_up(new_browser(service, address), new_phone()).status_code for _ in range(3)]
        elsewhere = [begin_sign_up(new_browser(service), new_phone()).status_code for _ in range(2)]
        assert (here, elsewhere) == ([303, 303, 429], [303, 429])
        service.sql("UPDATE codes SET sent_at = sent_at - interval '1 hour'")
        assert goes_to(begin_sign_up(new_browser(service, address), new_phone())) == "/dashboard/verify"


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


@pytest.mark.long
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
    assert f"a different code to <strong>{EVE}</strong>" in browser.get(VERIFY).text
    assert goes_to(verify(browser, by_mail)) == "/dashboard"
    page = browser.get(VERIFY).text
    assert write_phone(phone) in page
    # The other code has done what it is for.
    assert EVE not in page
    assert "tries left" in alert(verify(browser, by_mail))
    assert goes_to(verify(browser, by_text)) == "/dashboard"
    assert account_of(service, phone) == ("Eve", "Evil", EVE, True, None)
    assert UNCONFIRMED not in browser.get("/dashboard").text
    assert browser.post("/dashboard/keys", data={**KEY, "password": EVIL}).status_code == 200
    assert VERIFICATION not in browser.cookies


def test_the_phone_is_confirmed_later_and_elsewhere(service: Service) -> None:
    phone, operator = new_phone(), new_operator(service).browser
    squat(service, phone)
    (account,) = service.sql("SELECT id FROM accounts WHERE phone = $1", phone)
    page = f"/operator/accounts/{write_id(ACCOUNT, account['id'])}"
    assert "signed up by email only" in operator.get(page).text
    browser = new_browser(service)
    assert goes_to(sign_in(browser, phone, EVIL)) == "/dashboard"
    assert "Send me a code by SMS" in browser.get(VERIFY).text
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
        assert "tries left" in alert(entered)
        assert not is_signed_in(browser)
        # Nor does the code of another sign-up's mail.
        assert "tries left" in alert(verify(browser, mail_code_to(service, "first@example.org")))
    # Its owner is told so where there is an owner, and gets a code where there is none.
    assert "already has an account" in texts_to(service, proved)[-1]
    assert code_in(texts_to(service, squatted)[-1])
