"""The second factor in the dashboard: set-up, sign-in, recovery codes and password reset."""

import re
from base64 import b32decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from typing import Final

import httpx
import pytest

from tests.support.identity.people import (
    PASSWORD,
    SESSION,
    Person,
    alert,
    at_once,
    code_to,
    count,
    goes_to,
    is_signed_in,
    new_browser,
    pass_time,
    run_behind_proxy,
    seen,
    set_password,
    sign_in,
    sign_up,
)
from tests.support.processes.service import Service
from tumira.identity import totp

FACTOR: Final = "/dashboard/settings/second-factor"
CODE: Final = "/dashboard/sign-in/code"
HALF: Final = "tumira_half_session"
NEW: Final = "another good password"
SECRET: Final = re.compile(r'<code id="secret" tabindex="0">([A-Z2-7 ]+)</code>')
RECOVERY: Final = re.compile(r"<li>((?:[a-z2-9]{4}-){3}[a-z2-9]{4})</li>")


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a running service in which everybody comes from an address of their own."""
    with run_behind_proxy(server_url) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Device:
    """A customer with a second factor, their device and their recovery codes."""

    person: Person
    secret: bytes
    recovery_codes: Sequence[str]

    def code(self, steps_ahead: int = 0) -> str:
        return totp.authenticator(self.secret).at(datetime.now(UTC), steps_ahead)

    def wrong(self) -> str:
        shown = {self.code(steps) for steps in range(-3, 4)}
        return next(code for code in map("{:06}".format, range(10)) if code not in shown)


def begin(person: Person) -> bytes:
    begun = person.browser.post(FACTOR, data={"password": person.password})
    assert goes_to(begun) == FACTOR, begun.text
    page = person.browser.get(FACTOR)
    found = SECRET.search(page.text)
    assert found is not None
    return b32decode(found[1].replace(" ", ""))


def confirm(person: Person, code: str) -> httpx.Response:
    return person.browser.post(FACTOR + "/confirm", data={"code": code})


def enrol(service: Service) -> Device:
    person = sign_up(service)
    device = Device(person, begin(person), ())
    page = confirm(person, device.code())
    assert page.status_code == 200, page.text
    return renewed(service, Device(person, device.secret, RECOVERY.findall(page.text)))


def renewed(service: Service, device: Device) -> Device:
    """Let half a minute and more pass for the device, so that its codes are fresh."""
    service.sql(
        "UPDATE logins SET totp_last_step = 0 WHERE account_id = (SELECT id FROM accounts WHERE phone = $1)",
        device.person.phone,
    )
    return device


def enter(browser: httpx.Client, code: str, **fields: str) -> httpx.Response:
    return browser.post(CODE, data={"code": code} | fields)


def half_way(service: Service, device: Device, password: str = PASSWORD) -> httpx.Client:
    browser = new_browser(service)
    answer = sign_in(browser, device.person.phone, password)
    assert goes_to(answer) == CODE, answer.text
    return browser


def test_setting_up_shows_a_secret_that_a_device_takes_in_three_ways(service: Service) -> None:
    person = sign_up(service)
    assert "<svg" not in person.browser.get(FACTOR).text.partition("<main")[2]
    secret = begin(person)
    page = person.browser.get(FACTOR)
    links = re.findall(r'href="(otpauth://[^"]*)"', page.text)
    assert [unescape(link) for link in links] == [totp.write_uri(secret, person.phone)]
    assert '<svg class="qr"' in page.text
    assert page.headers["cache-control"] == "no-store"
    # Nothing is asked for until the device has shown that it has the secret.
    assert goes_to(sign_in(new_browser(service), person.phone)) == "/dashboard"


def test_nobody_sets_it_up_at_a_browser_that_was_left_open(service: Service) -> None:
    person = sign_up(service)
    refused = person.browser.post(FACTOR, data={"password": "a guess"})
    assert (refused.status_code, "not your password" in alert(refused)) == (422, True)
    assert SECRET.search(person.browser.get(FACTOR).text) is None
    assert confirm(person, "000000").status_code == 422


def test_a_code_of_another_secret_does_not_turn_it_on(service: Service) -> None:
    person = sign_up(service)
    device = Device(person, begin(person), ())
    for code in (device.wrong(), "", "abc", "1" * 100):
        refused = confirm(person, code)
        assert (refused.status_code, "Authentication code" in alert(refused)) == (422, True)
    assert goes_to(sign_in(new_browser(service), person.phone)) == "/dashboard"


def test_ten_recovery_codes_are_shown_once_and_kept_as_hashes(service: Service) -> None:
    device = enrol(service)
    assert len(set(device.recovery_codes)) == 10
    pages = [device.person.browser.get(path).text for path in (FACTOR, "/dashboard/settings")]
    kept = service.sql("SELECT to_jsonb(c)::text FROM recovery_codes c")
    for code in device.recovery_codes:
        assert not any(code in page for page in pages)
        assert not any(code in row[0] or code.replace("-", "") in row[0] for row in kept)
    assert "10 recovery codes left" in pages[1]
    assert not any(SECRET.search(page) for page in pages)


def test_the_password_alone_opens_nothing(service: Service) -> None:
    device = enrol(service)
    browser = half_way(service, device)
    assert SESSION not in browser.cookies
    assert not is_signed_in(browser)
    page = browser.get(CODE)
    assert (page.status_code, "Authentication code" in page.text) == (200, True)
    refused = enter(browser, device.wrong())
    assert (refused.status_code, "not the right one" in alert(refused)) == (422, True)
    assert not is_signed_in(browser)
    entered = enter(browser, device.code())
    assert goes_to(entered) == "/dashboard"
    assert is_signed_in(browser)
    assert HALF not in browser.cookies


def test_who_wanted_a_page_gets_there_after_both_steps(service: Service) -> None:
    device = enrol(service)
    browser = new_browser(service)
    answer = sign_in(browser, device.person.phone, next="/dashboard/keys")
    assert goes_to(answer) == CODE + "?next=%2Fdashboard%2Fkeys"
    assert 'name="next" value="/dashboard/keys"' in browser.get(str(goes_to(answer))).text
    assert goes_to(enter(browser, device.code(), next="/dashboard/keys")) == "/dashboard/keys"
    other = half_way(service, renewed(service, device))
    assert goes_to(enter(other, device.code(), next="//evil.example")) == "/dashboard"


def test_a_wrong_password_is_answered_alike_with_a_factor_and_without(service: Service) -> None:
    device, plain = enrol(service), sign_up(service)
    answers = [
        seen(sign_in(new_browser(service), phone, "wrong password"), phone)
        for phone in (device.person.phone, plain.phone)
    ]
    assert answers[0] == answers[1]


def test_a_code_is_good_once(service: Service) -> None:
    device = enrol(service)
    first, second = half_way(service, device), half_way(service, device)
    code = device.code()
    assert goes_to(enter(first, code)) == "/dashboard"
    assert enter(second, code).status_code == 422
    assert goes_to(enter(second, device.code(1))) == "/dashboard"


def test_the_same_code_at_once_lets_one_in(service: Service) -> None:
    device = enrol(service)
    browsers = [half_way(service, device) for _ in range(4)]
    code = device.code()
    answers = at_once([lambda one=one: enter(one, code) for one in browsers])  # type: ignore[misc]
    assert sorted(answer.status_code for answer in answers) == [303, 422, 422, 422]


def test_a_recovery_code_stands_in_for_the_device_once(service: Service) -> None:
    device = enrol(service)
    code = device.recovery_codes[0]
    assert goes_to(enter(half_way(service, device), f" {code.upper().replace('-', ' ')} ")) == "/dashboard"
    assert enter(half_way(service, device), code).status_code == 422
    assert goes_to(enter(half_way(service, device), device.recovery_codes[1])) == "/dashboard"
    assert "8 recovery codes left" in device.person.browser.get(FACTOR).text
    assert "Recovery code used" in device.person.browser.get("/dashboard/settings/changes").text


def test_codes_of_somebody_else_open_nothing(service: Service) -> None:
    device, other = enrol(service), enrol(service)
    assert enter(half_way(service, device), other.recovery_codes[0]).status_code == 422
    assert goes_to(enter(half_way(service, other), other.recovery_codes[0])) == "/dashboard"


def test_codes_are_guessed_ten_times_and_the_password_does_not_forgive_that(service: Service) -> None:
    device = enrol(service)
    statuses = []
    for _ in range(11):
        browser = new_browser(service)
        statuses.append(sign_in(browser, device.person.phone).status_code)
        statuses.append(enter(browser, device.wrong()).status_code)
    # From however many addresses, the eleventh code is not compared.
    assert statuses == [303, 422] * 10 + [303, 429]
    assert enter(half_way(service, device), device.code()).status_code == 429
    # Whoever guesses knows the password, and still keeps nobody out of a browser that is known.
    known = device.person.browser
    assert goes_to(sign_in(known, device.person.phone)) == "/dashboard/sign-in/code"
    assert goes_to(enter(known, device.code())) == "/dashboard"
    service.sql("UPDATE logins SET totp_last_step = 0")
    pass_time(service, device.person.phone, "15 minutes")
    assert goes_to(enter(half_way(service, device), device.code())) == "/dashboard"


def test_the_way_to_the_second_step_ends_after_five_minutes(service: Service) -> None:
    device = enrol(service)
    browser = half_way(service, device)
    service.sql("UPDATE half_sessions SET created_at = created_at - interval '5 minutes'")
    assert goes_to(browser.get(CODE)) == "/dashboard/sign-in"
    assert goes_to(enter(browser, device.code())) == "/dashboard/sign-in"
    assert goes_to(new_browser(service).get(CODE)) == "/dashboard/sign-in"
    assert goes_to(enter(new_browser(service, **{HALF: "A" * 43}), device.code())) == "/dashboard/sign-in"


def test_a_half_session_opens_no_page_and_is_used_up(service: Service) -> None:
    device = enrol(service)
    browser = half_way(service, device)
    token = browser.cookies[HALF]
    assert not is_signed_in(new_browser(service, **{SESSION: token}))
    assert goes_to(enter(browser, device.code())) == "/dashboard"
    thief = new_browser(service, **{HALF: token})
    assert goes_to(enter(thief, device.code(1))) == "/dashboard/sign-in"


def test_changing_the_password_ends_what_waits_for_the_second_step(service: Service) -> None:
    device = enrol(service)
    browser = half_way(service, device)
    changed = device.person.browser.post(
        "/dashboard/settings/password", data={"current_password": PASSWORD, "new_password": NEW}
    )
    assert changed.status_code == 303
    assert goes_to(enter(browser, device.code())) == "/dashboard/sign-in"


def test_a_stolen_number_neither_opens_the_account_nor_changes_its_password(service: Service) -> None:
    device = enrol(service)
    phone = device.person.phone
    pass_time(service, phone, "1 hour")
    thief = new_browser(service)
    thief.post("/dashboard/forgotten", data={"phone": phone})
    assert goes_to(set_password(thief, code_to(service, phone), "stolen password")) == CODE
    assert enter(thief, device.wrong()).status_code == 422
    assert not is_signed_in(thief)
    assert is_signed_in(device.person.browser)
    assert sign_in(new_browser(service), phone, "stolen password").status_code == 422
    half_way(service, device)


def test_a_forgotten_password_is_set_once_the_factor_is_shown(service: Service) -> None:
    device = enrol(service)
    phone = device.person.phone
    pass_time(service, phone, "1 hour")
    browser = new_browser(service)
    browser.post("/dashboard/forgotten", data={"phone": phone})
    assert goes_to(set_password(browser, code_to(service, phone), NEW)) == CODE
    assert goes_to(enter(browser, device.recovery_codes[0])) == "/dashboard"
    assert is_signed_in(browser)
    assert not is_signed_in(device.person.browser)
    assert sign_in(new_browser(service), phone).status_code == 422
    half_way(service, device, NEW)


def off(device: Device, password: str, code: str) -> httpx.Response:
    return device.person.browser.post(FACTOR + "/off", data={"password": password, "code": code})


def test_turning_it_off_needs_password_and_code(service: Service) -> None:
    device = enrol(service)
    for password, code in (("wrong", device.code()), (PASSWORD, device.wrong()), (PASSWORD, "")):
        refused = off(device, password, code)
        assert (refused.status_code, "password or the code is not right" in alert(refused)) == (422, True)
    half_way(service, device)
    assert goes_to(off(device, PASSWORD, device.code())) == "/dashboard/settings?done=off#second-factor"
    assert goes_to(sign_in(new_browser(service), device.person.phone)) == "/dashboard"
    assert (
        count(
            service,
            "SELECT count(*) FROM recovery_codes c JOIN accounts a ON a.id = c.account_id WHERE a.phone = $1",
            device.person.phone,
        )
        == 0
    )
    changes = device.person.browser.get("/dashboard/settings/changes").text
    assert "Second factor turned on" in changes
    assert "Second factor turned off" in changes


def test_a_factor_in_use_is_not_replaced(service: Service) -> None:
    device = enrol(service)
    device.person.browser.post(FACTOR, data={"password": PASSWORD})
    assert SECRET.search(device.person.browser.get(FACTOR).text) is None
    assert goes_to(enter(half_way(service, device), device.code())) == "/dashboard"


def test_codes_are_guessed_ten_times_where_it_is_turned_off(service: Service) -> None:
    device = enrol(service)
    statuses = [off(device, PASSWORD, device.wrong()).status_code for _ in range(12)]
    assert statuses == [422] * 10 + [429] * 2
