"""Sign-in, sign-out and password reset pages, and their limits and cookies."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.support.identity.people import (
    DEVICE,
    PASSWORD,
    SESSION,
    VERIFICATION,
    Person,
    alert,
    another,
    begin_sign_up,
    code_to,
    count,
    goes_to,
    guessed,
    is_signed_in,
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
from tumira.accounts.open_account import open_account
from tumira.dashboard.pages.sign_in import PAGES
from tumira.postgres.pool import Database
from tumira.pricing.phone_numbers import write_phone
from tumira.web import Web

WRONG: Final = "Wrong phone number or password"
NEW: Final = "another good password"
# What an attacker plants in the victim's browser: as long as a real one, and known to them.
PLANTED: Final = "A" * 43


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a running service in which everybody comes from an address of their own."""
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture(scope="module")
def person(service: Service) -> Person:
    return sign_up(service)


def forget(browser: httpx.Client, phone: str) -> httpx.Response:
    return browser.post("/dashboard/forgotten", data={"phone": phone})


def with_session(service: Service, token: str) -> httpx.Client:
    return new_browser(service, **{SESSION: token})


def test_the_number_is_read_as_people_write_it_and_the_password_as_it_is(service: Service) -> None:
    owner = sign_up(service, password="  spaces around  ")
    spaced = f" {owner.phone[:3]} {owner.phone[3:5]}-{owner.phone[5:]} "
    assert goes_to(sign_in(new_browser(service), spaced, "  spaces around  ")) == "/dashboard"
    assert sign_in(new_browser(service), owner.phone, "spaces around").status_code == 422
    assert sign_in(new_browser(service), owner.phone, "  Spaces around  ").status_code == 422


def test_an_unknown_number_and_a_wrong_password_are_answered_alike(service: Service, person: Person) -> None:
    operators = new_phone()
    service.run(
        open_account, phone=operators, name="A", business="B", balance=Decimal(0), rate_limit=60, actor="test"
    )
    unproved = new_phone()
    begin_sign_up(new_browser(service), unproved)
    answers = {
        phone: seen(sign_in(new_browser(service), phone, "wrong password"), phone)
        for phone in (person.phone, new_phone(), operators, unproved)
    }
    first = answers[person.phone]
    assert first[0] == 422
    assert WRONG in first[1]
    assert first[3] == []
    assert all(answer == first for answer in answers.values())


def test_a_local_number_is_shown_in_international_form_beside_a_wrong_password(service: Service) -> None:
    for country, number in (("ZW", "+263771200001"), ("ZA", "+27771200001")):
        refused = sign_in(new_browser(service), "077 120 0001", "wrong", country=country)
        assert WRONG in alert(refused)
        assert f'value="{write_phone(number)}"' in refused.text


def test_ten_wrong_passwords_lock_out_their_address_and_nobody_else(service: Service) -> None:
    owner, stranger = sign_up(service), new_address()
    guessed(service, owner.phone, 9, address=stranger)
    assert sign_in(new_browser(service, stranger), owner.phone, "wrong").status_code == 422
    refused = sign_in(new_browser(service, stranger), owner.phone)
    assert (refused.status_code, "Try again in" in alert(refused)) == (429, True)
    # Its owner signs in from anywhere else, and who is signed in stays so.
    assert goes_to(sign_in(new_browser(service), owner.phone)) == "/dashboard"
    assert is_signed_in(owner.browser)
    # That forgives the stranger nothing.
    assert sign_in(new_browser(service, stranger), owner.phone).status_code == 429

    pass_time(service, owner.phone, "15 minutes")
    assert goes_to(sign_in(new_browser(service, stranger), owner.phone)) == "/dashboard"


def test_a_number_that_is_guessed_from_everywhere_opens_at_a_known_browser_and_by_code(
    service: Service,
) -> None:
    owner = sign_up(service)
    owner.browser.post("/dashboard/sign-out")
    guessed(service, owner.phone, 29)
    assert sign_in(new_browser(service), owner.phone, "wrong").status_code == 422
    # From now on no stranger is let in, wherever they are and whatever they know.
    refused = sign_in(new_browser(service), owner.phone)
    assert (refused.status_code, "choose a new password" in alert(refused)) == (429, True)
    # A browser in which somebody else has signed in is a stranger too.
    other = sign_up(service)
    assert sign_in(other.browser, owner.phone).status_code == 429

    # A known browser has ten tries of its own.
    statuses = [sign_in(owner.browser, owner.phone, "wrong").status_code for _ in range(9)]
    assert statuses == [422] * 9
    assert goes_to(sign_in(owner.browser, owner.phone)) == "/dashboard"
    statuses = [sign_in(owner.browser, owner.phone, "wrong").status_code for _ in range(11)]
    assert statuses == [422] * 10 + [429]
    pass_time(service, owner.phone, "31 seconds")
    guessed(service, owner.phone, 30)
    elsewhere = new_browser(service)
    assert goes_to(forget(elsewhere, owner.phone)) == "/dashboard/new-password"
    assert goes_to(set_password(elsewhere, code_to(service, owner.phone), NEW)) == "/dashboard"


def test_a_browser_is_known_by_a_token_that_changes_and_that_a_new_password_ends(service: Service) -> None:
    owner = sign_up(service)
    first = owner.browser.cookies[DEVICE]
    kept = service.sql("SELECT to_jsonb(d)::text FROM devices d WHERE phone = $1", owner.phone)
    assert first not in kept[0][0]
    sign_in(owner.browser, owner.phone)
    second = owner.browser.cookies[DEVICE]
    assert second != first
    guessed(service, owner.phone, 30)
    assert sign_in(new_browser(service, **{DEVICE: first}), owner.phone).status_code == 429
    assert sign_in(new_browser(service, **{DEVICE: PLANTED}), owner.phone).status_code == 429
    thief = new_browser(service, **{DEVICE: second})
    assert goes_to(sign_in(thief, owner.phone)) == "/dashboard"

    # So is a browser in which another account signs in after that.
    sign_in(thief, sign_up(service).phone)
    assert goes_to(sign_in(thief, owner.phone)) == "/dashboard"

    pass_time(service, owner.phone, "1 hour")
    browser = new_browser(service)
    forget(browser, owner.phone)
    set_password(browser, code_to(service, owner.phone), NEW)
    guessed(service, owner.phone, 30)
    assert sign_in(thief, owner.phone, NEW).status_code == 429
    assert goes_to(sign_in(browser, owner.phone, NEW)) == "/dashboard"


def test_a_number_without_an_account_is_locked_in_the_same_way(service: Service) -> None:
    phone, address = new_phone(), new_address()
    guessed(service, phone, 9, address=address)
    statuses = [sign_in(new_browser(service, address), phone).status_code for _ in range(2)]
    assert statuses == [422, 429]
    guessed(service, phone, 20)
    assert sign_in(new_browser(service), phone).status_code == 429


def test_an_own_account_wipes_no_tries_at_others_away(service: Service) -> None:
    address, owner, victim = new_address(), sign_up(service), sign_up(service)
    guessed(service, victim.phone, 9, address=address)
    guessed(service, owner.phone, 9, address=address)
    assert goes_to(sign_in(new_browser(service, address), owner.phone)) == "/dashboard"
    # What the owner mistyped is forgiven, and nothing else.
    assert count(service, "SELECT count(*) FROM attempts WHERE address = $1", address) == 9
    # Nor does a sign-up that somebody began for the victim's number, whose password they know.
    begin_sign_up(new_browser(service, address), new_phone())
    pass_time(service, victim.phone, "10 minutes")
    begin_sign_up(new_browser(service, address), victim.phone, password="chosen by eve")
    entered = sign_in(new_browser(service, address), victim.phone, "chosen by eve")
    assert goes_to(entered) == "/dashboard/verify"
    assert sign_in(new_browser(service, address), victim.phone, "wrong").status_code == 429


def test_a_planted_session_is_never_adopted(service: Service) -> None:
    eve, phone = sign_up(service), new_phone()

    def sign_up_victim(victim: httpx.Client) -> httpx.Response:
        begin_sign_up(victim, phone)
        return verify(victim, code_to(service, phone))

    def forget_password(victim: httpx.Client) -> httpx.Response:
        pass_time(service, phone, "1 hour")
        forget(victim, phone)
        return set_password(victim, code_to(service, phone), NEW)

    def enter(victim: httpx.Client) -> httpx.Response:
        return sign_in(victim, phone, NEW)

    for begin in (sign_up_victim, forget_password, enter):
        sign_in(eve.browser, eve.phone)
        planted = eve.session
        done = begin(with_session(service, planted))
        assert goes_to(done) == "/dashboard"
        assert planted not in str(done.headers.get_list("set-cookie"))
        # The session that was planted has ended: who planted it sees nobody's pages with it.
        assert not is_signed_in(with_session(service, planted))
    assert PLANTED not in str(enter(with_session(service, PLANTED)).headers.get_list("set-cookie"))
    assert not is_signed_in(with_session(service, PLANTED))


def test_a_stolen_cookie_opens_nothing_after_sign_out(service: Service) -> None:
    owner = sign_up(service)
    stolen = owner.session
    elsewhere = new_browser(service)
    sign_in(elsewhere, owner.phone)
    assert is_signed_in(with_session(service, stolen))
    left = owner.browser.post("/dashboard/sign-out")
    assert goes_to(left) == "/dashboard/sign-in"
    assert SESSION not in owner.browser.cookies
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert not is_signed_in(with_session(service, stolen))
    # The same owner's session at another browser goes on.
    assert is_signed_in(elsewhere)


def test_what_is_no_token_is_nobodys(service: Service) -> None:
    assert new_browser(service).get("/dashboard/sign-out").status_code == 405
    for browser in (new_browser(service), with_session(service, PLANTED)):
        assert goes_to(browser.post("/dashboard/sign-out")) == "/dashboard/sign-in"
    for token in ("", PLANTED, "\u00e9" * 40, "'; DROP TABLE sessions; --", "x" * 101, "x" * 5000):
        cookie = f"{SESSION}={token}".encode("latin-1")
        answer = new_browser(service).get("/dashboard", headers={b"Cookie": cookie})
        assert goes_to(answer) == "/dashboard/sign-in"


def test_a_new_password_ends_all_sessions_and_begins_one(service: Service) -> None:
    owner = sign_up(service)
    other = new_browser(service)
    sign_in(other, owner.phone)
    pass_time(service, owner.phone, "1 hour")

    browser = new_browser(service)
    assert goes_to(forget(browser, owner.phone)) == "/dashboard/new-password"
    assert "choose a new password" in texts_to(service, owner.phone)[-1]
    assert goes_to(set_password(browser, code_to(service, owner.phone), NEW)) == "/dashboard"

    assert is_signed_in(browser)
    assert VERIFICATION not in browser.cookies
    assert not is_signed_in(owner.browser)
    assert not is_signed_in(other)
    assert sign_in(new_browser(service), owner.phone, PASSWORD).status_code == 422
    assert goes_to(sign_in(new_browser(service), owner.phone, NEW)) == "/dashboard"


def test_an_account_of_the_operators_gets_its_first_password_by_code(service: Service) -> None:
    phone = new_phone()
    service.run(
        open_account, phone=phone, name="A", business="B", balance=Decimal(0), rate_limit=60, actor="test"
    )
    for password in ("", PASSWORD, "None"):
        assert sign_in(new_browser(service), phone, password).status_code == 422
    browser = new_browser(service)
    forget(browser, phone)
    assert goes_to(set_password(browser, code_to(service, phone), NEW)) == "/dashboard"
    assert goes_to(sign_in(new_browser(service), phone, NEW)) == "/dashboard"


def test_nobody_learns_from_a_forgotten_password_whether_a_number_has_an_account(service: Service) -> None:
    learnt = []
    for taken in (False, True):
        phone = new_phone()
        if taken:
            sign_up(service, phone)
            pass_time(service, phone, "2 days")
        texts = len(texts_to(service, phone))
        browser = new_browser(service)
        answers = [forget(browser, phone), browser.get("/dashboard/new-password")]
        assert len(texts_to(service, phone)) == texts + taken
        wrong = another(code_to(service, phone)) if taken else "493817"
        answers += [set_password(browser, wrong, NEW) for _ in range(6)]
        answers += [forget(new_browser(service), phone)]
        pass_time(service, phone, "31 seconds")
        answers += [browser.post("/dashboard/new-password/again")]
        answers += [browser.get("/dashboard/new-password?again=1"), set_password(browser, "12345", "short")]
        learnt.append([seen(answer, phone) for answer in answers])
    for free, had in zip(*learnt, strict=True):
        assert free == had


def test_a_code_for_one_purpose_is_of_no_use_for_the_other(service: Service) -> None:
    owner = sign_up(service)
    pass_time(service, owner.phone, "1 hour")
    browser = new_browser(service)
    forget(browser, owner.phone)
    code = code_to(service, owner.phone)
    assert goes_to(browser.get("/dashboard/verify")) == "/dashboard/sign-up"
    assert goes_to(verify(browser, code)) == "/dashboard/sign-up"
    assert goes_to(browser.post("/dashboard/verify/again")) == "/dashboard/sign-in"

    phone = new_phone()
    begin_sign_up(browser, phone)
    assert goes_to(browser.get("/dashboard/new-password")) == "/dashboard/forgotten"
    assert goes_to(set_password(browser, code_to(service, phone), NEW)) == "/dashboard/forgotten"
    assert goes_to(browser.post("/dashboard/new-password/again")) == "/dashboard/sign-in"


def test_a_code_for_a_new_password_is_used_once_and_for_ten_minutes(service: Service) -> None:
    owner = sign_up(service)
    pass_time(service, owner.phone, "1 hour")
    browser = new_browser(service)
    forget(browser, owner.phone)
    code, token = code_to(service, owner.phone), browser.cookies[VERIFICATION]
    pass_time(service, owner.phone, "10 minutes")
    assert "can no longer be used" in alert(set_password(browser, code, NEW))
    browser.post("/dashboard/new-password/again")
    latest = code_to(service, owner.phone)
    # A weak password costs no try.
    for password in ("short", "password", owner.phone, "x" * 300):
        refused = set_password(browser, latest, password)
        assert refuses(refused, "New password")
    tries = "SELECT tries FROM codes WHERE phone = $1 ORDER BY sent_at DESC LIMIT 1"
    assert count(service, tries, owner.phone) == 0
    assert goes_to(set_password(browser, latest, NEW)) == "/dashboard"
    thief = new_browser(service, **{VERIFICATION: token})
    assert goes_to(set_password(thief, latest, "stolen password")) == "/dashboard/forgotten"
    assert goes_to(sign_in(new_browser(service), owner.phone, NEW)) == "/dashboard"


def test_a_private_page_asks_to_sign_in_and_leads_on_from_there(service: Service, person: Person) -> None:
    browser = new_browser(service)
    assert goes_to(browser.get("/dashboard")) == "/dashboard/sign-in"
    onward = "/dashboard/batches?status=queued&page=2"
    asked = str(goes_to(browser.get(onward)))
    assert asked == "/dashboard/sign-in?next=%2Fdashboard%2Fbatches%3Fstatus%3Dqueued%26page%3D2"
    assert f'value="{onward.replace("&", "&amp;")}"' in browser.get(asked).text
    assert goes_to(sign_in(browser, person.phone, next=onward)) == onward
    assert goes_to(browser.get(asked)) == onward
    odd = new_browser(service).get("/dashboard/keys?revoked=1&x=%0d%0aSet-Cookie:%20a=b")
    assert str(goes_to(odd)).startswith("/dashboard/sign-in?next=%2Fdashboard%2Fkeys%3Frevoked%3D1")
    assert "set-cookie" not in odd.headers


@pytest.mark.parametrize(
    "onward",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/dashboard/..//evil.example",
        "/dashboard//evil.example",
        "/dashboard@evil.example",
        "/dashboard.evil.example",
        "/dashboard/%2e%2e//evil.example",
        "/dashboard\\@evil.example",
        "/dashboard\r\nSet-Cookie: tumira_session=planted",
        "/dashboard\n",
        "/dashboard?next=//evil.example",
        "/dashboard#//evil.example",
        "/dashboard\uff0fkeys",
        " /dashboard/keys",
        "/api/v1/balance",
        "",
        "x" * 100_000,
    ],
)
def test_a_page_that_is_not_ours_is_replaced_by_the_overview(onward: str) -> None:
    assert PAGES.own_page(onward) == "/dashboard"


def test_nobody_is_sent_to_a_page_that_is_not_ours(service: Service, person: Person) -> None:
    browser, onward = new_browser(service), "//evil.example"
    assert 'name="next" value="/dashboard"' in browser.get("/dashboard/sign-in", params={"next": onward}).text
    answer = sign_in(browser, person.phone, next=onward)
    assert goes_to(answer) == "/dashboard"
    given = [one.partition("=")[0] for one in answer.headers.get_list("set-cookie")]
    assert given == [SESSION, DEVICE]
    assert goes_to(browser.get("/dashboard/sign-in", params={"next": onward})) == "/dashboard"


def test_cookies_hide_from_scripts_and_other_sites(service: Service) -> None:
    browser, phone = new_browser(service), new_phone()
    begun = begin_sign_up(browser, phone).headers.get_list("set-cookie")
    done = verify(browser, code_to(service, phone)).headers.get_list("set-cookie")
    for one in (*begun, *done):
        assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(one.split("; "))
        assert "Domain" not in one
        # Without TLS a cookie that asks for it would be lost.
        assert "Secure" not in one


@pytest.mark.long
async def test_behind_tls_cookies_are_for_tls_and_this_host_alone(service: Service) -> None:
    """Asked in the same process, which is sooner started than another service."""
    phone = sign_up(service).phone
    database = Database(service.url, connections_max=2)
    transport = httpx.ASGITransport(Web(database, public_url="https://tumira.example"))
    async with httpx.AsyncClient(transport=transport, base_url="https://tumira.example") as browser:
        form = {"phone": phone, "password": PASSWORD}
        cookies = (await browser.post("/dashboard/sign-in", data=form)).headers.get_list("set-cookie")
        begun = await browser.post("/dashboard/forgotten", data={"phone": new_phone()})
        cookies += begun.headers.get_list("set-cookie")
        names = {f"__Host-{name}" for name in (SESSION, VERIFICATION, DEVICE)}
        assert {one.partition("=")[0] for one in cookies} == names
        for one in cookies:
            assert {"Secure", "HttpOnly", "SameSite=lax", "Path=/"} <= set(one.split("; "))
            assert "Domain" not in one
        # A cookie that another host of the domain could plant is not even looked at.
        session = browser.cookies[f"__Host-{SESSION}"]
        browser.cookies.clear()
        for name, status in ((f"__Host-{SESSION}", 200), (SESSION, 303)):
            page = await browser.get("/dashboard", headers={"Cookie": f"{name}={session}"})
            assert page.status_code == status
    await database.close()
