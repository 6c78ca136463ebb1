"""The second factor in the dashboard: set-up, sign-in, recovery codes and password reset."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import unescape
from typing import Final

import httpx
import pytest

from tests.support.identity.operators import read_secret
from tests.support.identity.people import (
    PASSWORD,
    SESSION,
    Person,
    at_once,
    code_to,
    count,
    goes_to,
    guessed,
    is_signed_in,
    new_browser,
    pass_time,
    refuses,
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
    return read_secret(person.browser.get(FACTOR).text)


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


def test_setting_up_asks_for_the_password_and_for_a_code_of_the_device(service: Service) -> None:
    person = sign_up(service)
    assert '<svg class="qr"' not in person.browser.get(FACTOR).text
    # Nobody sets it up at a browser that was left open.
    assert refuses(person.browser.post(FACTOR, data={"password": "a guess"}), "Wrong password")
    assert SECRET.search(person.browser.get(FACTOR).text) is None
    assert confirm(person, "000000").status_code == 422

    device = Device(person, begin(person), ())
    page = person.browser.get(FACTOR)
    links = re.findall(r'href="(otpauth://[^"]*)"', page.text)
    assert [unescape(link) for link in links] == [totp.write_uri(device.secret, person.phone)]
    assert '<svg class="qr"' in page.text
    assert page.headers["cache-control"] == "no-store"
    for code in (device.wrong(), "", "abc", "1" * 100):
        assert refuses(confirm(person, code), "Authentication code")
    # Nothing is asked for until the device has shown that it has the secret.
    assert goes_to(sign_in(new_browser(service), person.phone)) == "/dashboard"


def test_ten_recovery_codes_are_shown_once_and_each_stands_in_for_the_device_once(service: Service) -> None:
    device, other = enrol(service), enrol(service)
    codes = device.recovery_codes
    assert len(set(codes)) == 10
    pages = [device.person.browser.get(path).text for path in (FACTOR, "/dashboard/settings")]
    kept = service.sql("SELECT to_jsonb(c)::text FROM recovery_codes c")
    for code in codes:
        assert not any(code in page for page in pages)
        assert not any(code in row[0] or code.replace("-", "") in row[0] for row in kept)
    assert "10 recovery codes left" in pages[1]
    assert not any(SECRET.search(page) for page in pages)

    assert (
        goes_to(enter(half_way(service, device), f" {codes[0].upper().replace('-', ' ')} ")) == "/dashboard"
    )
    for wrong in (codes[0], other.recovery_codes[0]):
        assert enter(half_way(service, device), wrong).status_code == 422
    assert goes_to(enter(half_way(service, device), codes[1])) == "/dashboard"
    assert "8 recovery codes left" in device.person.browser.get(FACTOR).text
    assert "Recovery code used" in device.person.browser.get("/dashboard/settings/changes").text


def test_the_password_alone_opens_nothing_and_its_token_is_used_up(service: Service) -> None:
    device = enrol(service)
    browser = half_way(service, device)
    token = browser.cookies[HALF]
    assert SESSION not in browser.cookies
    assert not is_signed_in(browser)
    assert not is_signed_in(new_browser(service, **{SESSION: token}))
    page = browser.get(CODE)
    assert (page.status_code, "Authentication code" in page.text) == (200, True)
    assert refuses(enter(browser, device.wrong()), "Wrong code")
    assert not is_signed_in(browser)
    assert goes_to(enter(browser, device.code())) == "/dashboard"
    assert is_signed_in(browser)
    assert HALF not in browser.cookies
    thief = new_browser(service, **{HALF: token})
    assert goes_to(enter(thief, device.code(1))) == "/dashboard/sign-in"


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
    phones = (enrol(service).person.phone, sign_up(service).phone)
    answers = [seen(sign_in(new_browser(service), phone, "wrong password"), phone) for phone in phones]
    assert answers[0] == answers[1]


def test_the_same_code_at_once_lets_one_in(service: Service) -> None:
    device = enrol(service)
    browsers = [half_way(service, device) for _ in range(4)]
    code = device.code()
    answers = at_once([lambda one=one: enter(one, code) for one in browsers])  # type: ignore[misc]
    assert sorted(answer.status_code for answer in answers) == [303, 422, 422, 422]
    assert goes_to(enter(half_way(service, device), device.code(1))) == "/dashboard"


def test_codes_are_guessed_ten_times_and_the_password_does_not_forgive_that(service: Service) -> None:
    device = enrol(service)
    phone = device.person.phone
    # From however many addresses, the eleventh code is not compared.
    guessed(service, phone, 9, "factor")
    assert enter(half_way(service, device), device.wrong()).status_code == 422
    assert enter(half_way(service, device), device.code()).status_code == 429
    # Whoever guesses knows the password, and still keeps nobody out of a browser that is known.
    known = device.person.browser
    assert goes_to(sign_in(known, phone)) == "/dashboard/sign-in/code"
    assert goes_to(enter(known, device.code())) == "/dashboard"
    renewed(service, device)
    pass_time(service, phone, "15 minutes")
    assert goes_to(enter(half_way(service, device), device.code())) == "/dashboard"


def test_the_way_to_the_second_step_ends_after_minutes_and_with_the_password(service: Service) -> None:
    device = enrol(service)
    browser = half_way(service, device)
    service.sql("UPDATE half_sessions SET created_at = created_at - interval '5 minutes'")
    assert goes_to(browser.get(CODE)) == "/dashboard/sign-in"
    assert goes_to(enter(browser, device.code())) == "/dashboard/sign-in"
    assert goes_to(new_browser(service).get(CODE)) == "/dashboard/sign-in"
    assert goes_to(enter(new_browser(service, **{HALF: "A" * 43}), device.code())) == "/dashboard/sign-in"

    browser = half_way(service, device)
    changed = device.person.browser.post(
        "/dashboard/settings/password", data={"current_password": PASSWORD, "new_password": NEW}
    )
    assert changed.status_code == 303
    assert goes_to(enter(browser, device.code())) == "/dashboard/sign-in"


def test_a_forgotten_password_is_set_once_the_factor_is_shown(service: Service) -> None:
    device = enrol(service)
    phone = device.person.phone
    pass_time(service, phone, "1 hour")
    browser = new_browser(service)
    browser.post("/dashboard/forgotten", data={"phone": phone})
    assert goes_to(set_password(browser, code_to(service, phone), NEW)) == CODE
    # A stolen number neither opens the account nor changes its password.
    assert enter(browser, device.wrong()).status_code == 422
    assert not is_signed_in(browser)
    assert is_signed_in(device.person.browser)
    assert sign_in(new_browser(service), phone, NEW).status_code == 422

    assert goes_to(enter(browser, device.recovery_codes[0])) == "/dashboard"
    assert is_signed_in(browser)
    assert not is_signed_in(device.person.browser)
    assert sign_in(new_browser(service), phone).status_code == 422
    half_way(service, device, NEW)


def off(device: Device, password: str, code: str) -> httpx.Response:
    return device.person.browser.post(FACTOR + "/off", data={"password": password, "code": code})


def test_turning_it_off_needs_password_and_code(service: Service) -> None:
    device = enrol(service)
    # A factor in use is not replaced.
    device.person.browser.post(FACTOR, data={"password": PASSWORD})
    assert SECRET.search(device.person.browser.get(FACTOR).text) is None
    for password, code in (("wrong", device.code()), (PASSWORD, device.wrong()), (PASSWORD, "")):
        assert refuses(off(device, password, code), "Wrong password or code")
    half_way(service, device)
    assert goes_to(off(device, PASSWORD, device.code())) == "/dashboard/settings?done=off#second-factor"
    assert goes_to(sign_in(new_browser(service), device.person.phone)) == "/dashboard"
    of_owner = "FROM recovery_codes c JOIN accounts a ON a.id = c.account_id WHERE a.phone = $1"
    assert count(service, f"SELECT count(*) {of_owner}", device.person.phone) == 0
    changes = device.person.browser.get("/dashboard/settings/changes").text
    assert "Second factor turned on" in changes
    assert "Second factor turned off" in changes


def test_codes_are_guessed_ten_times_where_it_is_turned_off(service: Service) -> None:
    device = enrol(service)
    guessed(service, device.person.phone, 8, "proof")
    statuses = [off(device, PASSWORD, device.wrong()).status_code for _ in range(3)]
    assert statuses == [422, 422, 429]
