"""Access to the operator's console: sign-in, set-up, roles, sessions and limits."""

import html
import re
from collections.abc import Iterator
from functools import partial
from typing import Final

import httpx
import pytest

from tests.support.identity.operators import (
    COOKIE,
    PASSWORD,
    OperatorBrowser,
    create,
    new_operator,
    read_secret,
)
from tests.support.identity.people import (
    alert,
    another,
    at_once,
    count,
    goes_to,
    guessed,
    new_address,
    new_browser,
    run_behind_proxy,
    sign_up,
)
from tests.support.processes.service import Service
from tumira.audit_log import Actor
from tumira.console.app import Console
from tumira.console.pages.sign_in import CODE, SET_UP, SIGN_OUT, WRONG, WRONG_CODE
from tumira.console.session import HOME, NAVIGATION, SIGN_IN
from tumira.core.settings.payments import Payments
from tumira.identity import operators as operator_access
from tumira.identity.store.operators import Role
from tumira.postgres.pool import Database

PUBLIC: Final = frozenset({SIGN_IN, CODE, SET_UP, SIGN_OUT})
CONSOLE: Final = Console(Database("postgresql://nowhere"), public_url="", payments=Payments())
ROUTES: Final = [
    (route.path, method)
    for route in CONSOLE.routes()
    for method in sorted(route.methods or ())
    if route.path not in PUBLIC
]
# Those of some account, message or template are asked for one that is not there.
PAGES: Final = [re.sub(r"\{[^}]+\}", "acc_" + "0" * 26, path) for path, method in ROUTES if method == "GET"]
FORMS: Final = [re.sub(r"\{[^}]+\}", "acc_" + "0" * 26, path) for path, method in ROUTES if method == "POST"]
ALONE: Final = [path for path, method in ROUTES if method == "GET" and "{" not in path]
NASTY: Final = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>{{7*7}}"


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a running service in which everybody comes from an address of their own."""
    with run_behind_proxy(server_url) as running:
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> OperatorBrowser:
    return new_operator(service)


@pytest.fixture(scope="module")
def viewer(service: Service) -> OperatorBrowser:
    return new_operator(service, Role.VIEWER, "Vimbai Viewer")


def enter(browser: httpx.Client, phone: str, password: str) -> httpx.Response:
    return browser.post(SIGN_IN, data={"phone": phone, "password": password})


def move_in(browser: httpx.Client, code: str, password: str = PASSWORD) -> httpx.Response:
    return browser.post(SET_UP, data={"password": password, "code": code})


def is_in(browser: httpx.Client) -> bool:
    return browser.get("/operator/changes").status_code == 200


def opens_nothing(browser: httpx.Client) -> bool:
    pages = [browser.get(path) for path in PAGES]
    forms = [browser.post(path, data={"name": "x"}) for path in FORMS]
    return all(goes_to(answer) == SIGN_IN for answer in [*pages, *forms])


def is_out(browser: httpx.Client) -> bool:
    """Tell whether a page and a form lead to the sign-in, as all others do (`opens_nothing`)."""
    answers = [
        browser.get("/operator/changes"),
        browser.post("/operator/system/operators", data={"name": "x"}),
    ]
    return all(goes_to(answer) == SIGN_IN for answer in answers)


def holding(service: Service, token: str) -> httpx.Client:
    return new_browser(service, **{COOKIE: token})


def begin(service: Service, operator: OperatorBrowser) -> httpx.Client:
    """Return a browser of an operator's that has the password right, and not yet the code."""
    browser = new_browser(service)
    entered = enter(browser, operator.phone, PASSWORD)
    assert goes_to(entered) == CODE, entered.text
    return browser


def test_nobody_opens_anything_without_signing_in(service: Service, admin: OperatorBrowser) -> None:
    assert min(len(PAGES), len(FORMS)) > 10
    assert {place.path for place in NAVIGATION} <= set(PAGES)
    assert opens_nothing(new_browser(service))
    assert opens_nothing(new_browser(service, **{COOKIE: sign_up(service).session}))
    assert all(is_out(holding(service, token)) for token in ("made up", "x" * 5_000))
    browser = new_browser(service, tumira_session=admin.cookie)
    assert goes_to(browser.get("/dashboard")) == "/dashboard/sign-in"


def test_a_viewer_sees_every_page_and_can_change_nothing(service: Service, viewer: OperatorBrowser) -> None:
    changes = count(service, "SELECT count(*) FROM operator_changes")
    for path in ALONE:
        page = viewer.browser.get(path)
        assert page.status_code == 200, path
        # The one form that is left signs out.
        assert len(re.findall('<form[^>]* method="post"', page.text)) <= 1, path
    for path in FORMS:
        refused = viewer.browser.post(path, data={"name": "x", "phone": "x", "confirmed": "yes"})
        assert refused.status_code == 403, path
        assert "change nothing" in refused.text
    assert count(service, "SELECT count(*) FROM operator_changes") == changes


def test_an_admin_sees_every_page_and_the_browser_keeps_none(admin: OperatorBrowser) -> None:
    for path in ALONE:
        page = admin.browser.get(path)
        assert (page.status_code, page.headers["cache-control"]) == (200, "no-store"), path
        assert "default-src 'none'" in page.headers["content-security-policy"], path


def test_a_write_from_another_site_is_refused(service: Service, admin: OperatorBrowser) -> None:
    changes = count(service, "SELECT count(*) FROM operator_changes")
    foreign = holding(service, admin.cookie)
    del foreign.headers["Sec-Fetch-Site"]
    for path in [*FORMS, *PUBLIC]:
        refused = foreign.post(path, data={"name": "x"}, headers={"Sec-Fetch-Site": "same-site"})
        assert (refused.status_code, "another site" in refused.text) == (403, True), path
    assert count(service, "SELECT count(*) FROM operator_changes") == changes
    assert is_in(admin.browser)


def test_passwords_cannot_be_tried_without_end_also_not_at_once(service: Service) -> None:
    operator, stranger = new_operator(service), new_address()
    guess = partial(enter, phone=operator.phone, password="wrong")
    answers = at_once([lambda: guess(new_browser(service, stranger))] * 12)
    assert sorted(answer.status_code for answer in answers) == [422] * 10 + [429] * 2
    right = enter(new_browser(service, stranger), operator.phone, PASSWORD)
    assert (right.status_code, "Too many attempts" in alert(right)) == (429, True)
    # Whoever is in stays in, and strangers lock no operator out, however many they are.
    assert is_in(operator.browser)
    guessed(service, f"operator:{operator.phone}", 200)
    browser = begin(service, operator)
    assert goes_to(browser.post(CODE, data={"code": operator.code(1)})) == HOME
    assert is_in(browser)


def test_codes_cannot_be_tried_without_end_but_at_a_browser_that_is_known(service: Service) -> None:
    operator = new_operator(service)
    # So many by who knows the password.
    guessed(service, f"operator:{operator.phone}", 9, "factor")
    stranger = begin(service, operator)
    wrong = another(operator.code(1))
    statuses = [stranger.post(CODE, data={"code": code}).status_code for code in (wrong, operator.code(1))]
    assert statuses == [422, 429]
    assert is_out(stranger)
    assert goes_to(enter(operator.browser, operator.phone, PASSWORD)) == CODE
    assert goes_to(operator.browser.post(CODE, data={"code": operator.code(1)})) == HOME
    # Until somebody gives them a new first password, after which nobody is known any more.
    service.run(operator_access.reset, phone=operator.phone, actor=Actor("cli:test"))
    assert count(service, "SELECT count(*) FROM devices WHERE phone LIKE '%' || $1", operator.phone) == 0


def test_an_unknown_number_looks_like_a_wrong_password(service: Service) -> None:
    phone, _ = create(service)
    answers = [enter(new_browser(service), one, "wrong password") for one in (phone, "+27821239999", NASTY)]
    assert {(answer.status_code, alert(answer)) for answer in answers} == {(422, WRONG)}
    assert NASTY not in answers[-1].text


def test_the_first_password_opens_nothing_but_the_set_up_and_is_good_once(service: Service) -> None:
    phone, password = create(service)
    browser = new_browser(service)
    browser.cookies.set(COOKIE, "planted-by-somebody-else", domain="127.0.0.1", path="/")
    entered = enter(browser, phone, password)
    assert goes_to(entered) == SET_UP
    given = entered.headers["set-cookie"].lower()
    assert given.startswith(COOKIE)
    assert {"httponly", "samesite=lax"} <= set(given.split("; "))
    assert opens_nothing(browser)
    half = browser.cookies[COOKIE]
    operator = OperatorBrowser(browser, phone, "", read_secret(browser.get(SET_UP).text))
    for weak in ("short", phone):
        assert move_in(browser, operator.code(), weak).status_code == 422
    assert WRONG_CODE in alert(move_in(browser, another(operator.code(1))))
    assert is_out(browser)
    assert "Recovery codes" in move_in(browser, operator.code()).text
    again = enter(new_browser(service), phone, password)
    assert (again.status_code, alert(again)) == (422, WRONG)
    # The session that it had begun has ended too, and cannot choose another password.
    late = holding(service, half)
    assert goes_to(late.get(SET_UP)) == SIGN_IN
    assert goes_to(move_in(late, operator.code(1), "another good password")) == SIGN_IN
    tokens = ["planted-by-somebody-else", half, operator.cookie]
    assert [is_in(holding(service, token)) for token in tokens] == [False, False, True]


def test_the_first_password_must_be_used_in_time(service: Service) -> None:
    phone, password = create(service)
    browser = new_browser(service)
    enter(browser, phone, password)
    secret = read_secret(browser.get(SET_UP).text)
    service.sql("UPDATE operators SET one_time_until = now() - interval '1 second' WHERE phone = $1", phone)
    code = OperatorBrowser(browser, phone, "", secret).code()
    assert goes_to(move_in(browser, code)) == SIGN_IN
    assert not is_in(browser)
    assert alert(enter(new_browser(service), phone, password)) == WRONG
    renewed = service.run(operator_access.reset, phone=phone, actor=Actor("cli:test"))
    assert goes_to(enter(browser, phone, renewed)) == SET_UP
    # Whoever had the first password has not seen the secret of the second.
    assert read_secret(browser.get(SET_UP).text) != secret


def test_the_second_factor_cannot_be_skipped(service: Service) -> None:
    operator = new_operator(service)
    browser = begin(service, operator)
    assert browser.get(CODE).status_code == 200
    assert opens_nothing(browser)
    # Nor replaced: what is for the first sign-in is closed.
    assert goes_to(browser.get(SET_UP)) == SIGN_IN
    assert goes_to(move_in(browser, operator.code(1))) == SIGN_IN
    code = operator.code(1)
    assert goes_to(browser.post(CODE, data={"code": code})) == HOME
    assert is_in(browser)
    assert is_in(operator.browser)
    other = begin(service, operator)
    used = other.post(CODE, data={"code": code})
    assert (used.status_code, WRONG_CODE in alert(used)) == (422, True)
    # Nor is it forgotten where it is missing.
    service.sql("UPDATE operators SET totp_secret = NULL WHERE phone = $1", operator.phone)
    assert begin(service, operator).post(CODE, data={"code": operator.code(1)}).status_code == 422
    assert is_out(other)


def test_between_password_and_code_there_are_minutes_and_a_session_has_hours(service: Service) -> None:
    operator = new_operator(service)
    browser = begin(service, operator)
    age = (
        "UPDATE operator_sessions SET {0} = {0} - interval '{1}'"
        " WHERE operator_id = (SELECT id FROM operators WHERE phone = $1)"
    )
    service.sql(age.format("created_at", "11 minutes") + " AND stage = 'code'", operator.phone)
    assert goes_to(browser.post(CODE, data={"code": operator.code(1)})) == SIGN_IN
    for column, interval in (("seen_at", "9 hours"), ("created_at", "25 hours")):
        other = begin(service, operator)
        service.sql("UPDATE operators SET totp_last_step = 0 WHERE phone = $1", operator.phone)
        assert goes_to(other.post(CODE, data={"code": operator.code()})) == HOME
        assert is_in(other)
        service.sql(age.format(column, interval), operator.phone)
        assert not is_in(other)


def test_a_recovery_code_signs_in_once(service: Service) -> None:
    phone, password = create(service)
    browser = new_browser(service)
    enter(browser, phone, password)
    operator = OperatorBrowser(browser, phone, "", read_secret(browser.get(SET_UP).text))
    codes = re.findall(r"<li>([^<]+)</li>", move_in(browser, operator.code()).text)
    assert len(set(codes)) == len(codes) >= 8
    assert goes_to(begin(service, operator).post(CODE, data={"code": codes[0]})) == HOME
    assert begin(service, operator).post(CODE, data={"code": codes[0]}).status_code == 422
    assert count(service, "SELECT count(*) FROM operator_changes WHERE what = 'recovery code used'") == 1


def test_signing_out_ends_the_session_and_not_only_the_cookie(service: Service) -> None:
    operator = new_operator(service)
    token = operator.cookie
    assert goes_to(operator.browser.post(SIGN_OUT)) == SIGN_IN
    assert COOKIE not in operator.browser.cookies
    assert not is_in(holding(service, token))


@pytest.mark.parametrize("how", [operator_access.remove, operator_access.reset])
def test_who_is_removed_or_reset_is_out_at_once(service: Service, how: object) -> None:
    operator = new_operator(service)
    half = begin(service, operator)
    assert callable(how)
    service.run(how, phone=operator.phone, actor=Actor("cli:test"))
    assert is_out(operator.browser)
    assert goes_to(half.post(CODE, data={"code": operator.code(1)})) == SIGN_IN
    assert alert(enter(new_browser(service), operator.phone, PASSWORD)) == WRONG


def test_names_and_notes_are_shown_and_never_carried_out(service: Service) -> None:
    operator = new_operator(service, name=NASTY)
    caller = service.open_account()
    service.sql(
        "INSERT INTO content_refusals (account_id, digest, first_at, last_at, count, category, score,"
        " reasons, text, review_asked_at, review_note) VALUES ($1, sha256('x'), now(), now(), 1, $2, 0.9,"
        " jsonb_build_array(jsonb_build_object('words', $2::text, 'category', $2::text)), $2, now(), $2)",
        caller.id,
        NASTY,
    )
    service.sql("UPDATE accounts SET business = $2, name = $2 WHERE id = $1", caller.id, NASTY)
    browser = operator.browser
    country = {"new_country": "XX", "name": NASTY, "calling_code": "999", "lengths": "9"}
    assert (
        goes_to(browser.post("/operator/prices/destinations", data=country)) == "/operator/prices?done=added"
    )
    note = {"text": f"Your parcel is here {NASTY}".replace("{{7*7}}", ""), "verdict": "allow", "note": NASTY}
    assert goes_to(browser.post("/operator/content/templates", data=note)) is not None
    odd = browser.post("/operator/prices/set", data={"country": NASTY, "price": NASTY, "status": NASTY})
    assert (odd.status_code, "<script>alert" in odd.text) == (422, False)
    (refused, *_) = re.findall(
        r'href="(/operator/content/refusals/[^"]+)"', browser.get("/operator/content").text
    )
    changes = "/operator/changes?actor=%3Cscript%3Ealert"
    for path in (refused, *ALONE, changes):
        page = browser.get(path)
        assert page.status_code == 200, path
        assert "<script>alert" not in page.text, path
        assert "<img src=x" not in page.text, path
        assert "49" not in re.findall(r"onerror=alert\(1\)&gt;(..)", page.text), path
    for path in ("/operator/prices", "/operator/content", "/operator/content/templates", "/operator/changes"):
        assert NASTY.replace("{{7*7}}", "") in html.unescape(browser.get(path).text), path


def test_the_trail_tells_who_came_in_from_where(service: Service) -> None:
    operator = new_operator(service, name="Trail Walker")
    rows = service.sql("SELECT actor, address, what FROM operator_changes WHERE actor LIKE '%Trail Walker'")
    assert [row["what"] for row in rows] == ["operator chose a password and a second factor"]
    assert rows[0]["address"] == operator.browser.headers["X-Forwarded-For"]
