"""Access to the operator's console: sign-in, set-up, roles, sessions and limits."""

import html
import re
from typing import Final

import httpx
import pytest

from tests.support.console.operators import NASTY, signed_in
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
    sign_up,
)
from tests.support.processes.service import Service
from tumira.audit_log import Actor
from tumira.console.app import Console
from tumira.console.pages.sign_in import CODE, SET_UP, SIGN_OUT, WRONG, WRONG_CODE
from tumira.console.session import HOME, PLACES, SIGN_IN
from tumira.core.settings.payments import Payments
from tumira.identity import operators as operator_access
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
FORM: Final = "/operator/content/templates"
ALONE: Final = [path for path, method in ROUTES if method == "GET" and "{" not in path]


def enter(browser: httpx.Client, phone: str, password: str) -> httpx.Response:
    return browser.post(SIGN_IN, data={"phone": phone, "password": password})


def move_in(browser: httpx.Client, code: str, password: str = PASSWORD) -> httpx.Response:
    return browser.post(SET_UP, data={"password": password, "code": code})


def send_code(browser: httpx.Client, code: str) -> httpx.Response:
    return browser.post(CODE, data={"code": code})


def is_in(browser: httpx.Client) -> bool:
    """Tell whether a session opens a page and a form; all routes ask for it in one place."""
    page, form = browser.get("/operator/changes"), browser.post(FORM, data={"text": ""})
    assert (page.status_code == 200) == (form.status_code == 422)
    assert page.status_code == 200 or goes_to(page) == goes_to(form) == SIGN_IN
    return page.status_code == 200


def holding(service: Service, token: str) -> httpx.Client:
    return new_browser(service, **{COOKIE: token})


def begin(service: Service, operator: OperatorBrowser) -> httpx.Client:
    """Return a browser of an operator's that has the password right, and not yet the code."""
    browser = new_browser(service)
    entered = enter(browser, operator.phone, PASSWORD)
    assert goes_to(entered) == CODE, entered.text
    return browser


def test_strangers_and_customers_open_no_page_and_send_no_form(service: Service, admin: httpx.Client) -> None:
    assert min(len(PAGES), len(FORMS)) > 10
    assert {place.path for place in PLACES} <= set(PAGES)
    stranger = new_browser(service)
    assert {goes_to(stranger.get(path)) for path in PAGES} == {SIGN_IN}
    assert {goes_to(stranger.post(path, data={"name": "x"})) for path in FORMS} == {SIGN_IN}
    assert not is_in(holding(service, "made up"))
    assert not is_in(holding(service, "x" * 5_000))
    customer = sign_up(service)
    assert not is_in(customer.browser)
    # Nor with their token in our cookie, and the other way round.
    assert not is_in(holding(service, customer.session))
    operator = new_browser(service, tumira_session=admin.cookies[COOKIE])
    assert goes_to(operator.get("/dashboard")) == "/dashboard/sign-in"


def test_a_viewer_sees_every_page_and_can_change_nothing(
    service: Service, admin: httpx.Client, viewer: httpx.Client
) -> None:
    changes = count(service, "SELECT count(*) FROM operator_changes")
    for path in ALONE:
        assert admin.get(path).status_code == 200, path
        page = viewer.get(path)
        assert page.status_code == 200, path
        # The one form that is left signs out.
        assert len(re.findall('<form[^>]* method="post"', page.text)) <= 1, path
        assert page.headers["cache-control"] == "no-store", path
        assert "default-src 'none'" in page.headers["content-security-policy"], path
    for path in FORMS:
        refused = viewer.post(path, data={"name": "x", "phone": "x", "confirmed": "yes"})
        assert (refused.status_code, "change nothing" in refused.text) == (403, True), path
    for path in [*FORMS, *PUBLIC]:
        foreign = admin.post(path, data={"name": "x"}, headers={"Sec-Fetch-Site": "cross-site"})
        assert (foreign.status_code, "another site" in foreign.text) == (403, True), path
    assert count(service, "SELECT count(*) FROM operator_changes") == changes
    assert is_in(admin)


def test_the_first_password_leads_to_the_set_up_alone_and_is_good_once(service: Service) -> None:
    phone, password = create(service, name="Trail Walker")
    browser = new_browser(service)
    planted = "planted-by-another-site"
    browser.cookies.set(COOKIE, planted, domain="127.0.0.1", path="/")
    entered = enter(browser, phone, password)
    assert goes_to(entered) == SET_UP
    cookie = entered.headers["set-cookie"].lower()
    assert cookie.startswith(COOKIE)
    assert {"httponly", "samesite=lax"} < set(cookie.split("; "))
    assert not is_in(browser)

    operator = OperatorBrowser(browser, phone, "", read_secret(browser.get(SET_UP).text))
    for weak in ("short", phone):
        assert move_in(browser, operator.code(), weak).status_code == 422
    assert WRONG_CODE in alert(move_in(browser, another(operator.code(1))))
    assert not is_in(browser)
    half = browser.cookies[COOKIE]
    moved_in = move_in(browser, operator.code())
    tokens = [planted, half, operator.cookie]
    assert len(set(tokens)) == 3
    assert [is_in(holding(service, token)) for token in tokens] == [False, False, True]
    rows = service.sql("SELECT address, what FROM operator_changes WHERE actor LIKE '%Trail Walker'")
    assert [tuple(row) for row in rows] == [
        (browser.headers["X-Forwarded-For"], "operator chose a password and a second factor")
    ]
    again = enter(new_browser(service), phone, password)
    assert (again.status_code, alert(again)) == (422, WRONG)
    # The session that it had begun has ended too, and cannot choose another password.
    late = holding(service, half)
    assert goes_to(late.get(SET_UP)) == SIGN_IN
    assert goes_to(move_in(late, operator.code(1), "another good password")) == SIGN_IN

    codes = re.findall(r"<li>([^<]+)</li>", moved_in.text)
    assert len(set(codes)) == len(codes) >= 8
    first, second = begin(service, operator), begin(service, operator)
    assert goes_to(send_code(first, codes[0])) == HOME
    assert is_in(first)
    assert send_code(second, codes[0]).status_code == 422
    assert not is_in(second)
    assert count(service, "SELECT count(*) FROM operator_changes WHERE what = 'recovery code used'") == 1


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
    assert goes_to(enter(new_browser(service), phone, renewed)) == SET_UP


def test_passwords_cannot_be_tried_without_end_also_not_at_once(service: Service) -> None:
    operator, stranger = new_operator(service), new_address()
    answers = at_once(
        [
            lambda at=at: enter(new_browser(service, stranger), operator.phone, f"wrong {at}")  # type: ignore[misc]
            for at in range(13)
        ]
    )
    assert sorted(answer.status_code for answer in answers) == [422] * 10 + [429] * 3
    right = enter(new_browser(service, stranger), operator.phone, PASSWORD)
    assert (right.status_code, "Too many attempts" in alert(right)) == (429, True)
    # Whoever is in stays in, and many strangers together lock no operator out.
    assert is_in(operator.browser)
    guessed(service, f"operator:{operator.phone}", 200)
    browser = begin(service, operator)
    assert goes_to(send_code(browser, operator.code(1))) == HOME
    assert is_in(browser)


def test_codes_cannot_be_tried_without_end_but_a_known_browser_is_let_in(service: Service) -> None:
    operator = new_operator(service)
    stranger = begin(service, operator)
    wrong = another(operator.code(1))
    assert [send_code(stranger, wrong).status_code for _ in range(11)] == [422] * 10 + [429]
    assert send_code(stranger, operator.code(1)).status_code == 429
    assert not is_in(stranger)
    assert goes_to(enter(operator.browser, operator.phone, PASSWORD)) == CODE
    assert goes_to(send_code(operator.browser, operator.code(1))) == HOME
    # Until somebody gives them a new first password, after which nobody is known any more.
    service.run(operator_access.reset, phone=operator.phone, actor=Actor("cli:test"))
    assert count(service, "SELECT count(*) FROM devices WHERE phone LIKE '%' || $1", operator.phone) == 0


def test_an_unknown_number_looks_like_a_wrong_password(service: Service) -> None:
    phone, _ = create(service)
    answers = [enter(new_browser(service), one, "wrong password") for one in (phone, "+27821239999", NASTY)]
    assert {answer.status_code for answer in answers} == {422}
    assert {alert(answer) for answer in answers} == {html.unescape(WRONG)}
    assert NASTY not in answers[-1].text


def test_the_second_factor_cannot_be_skipped_and_sessions_end_in_time(service: Service) -> None:
    operator = new_operator(service)
    browser, other = begin(service, operator), begin(service, operator)
    assert not is_in(browser)
    # Nor replaced: what is for the first sign-in is closed.
    assert goes_to(browser.get(SET_UP)) == SIGN_IN
    assert goes_to(move_in(browser, operator.code(1))) == SIGN_IN
    code = operator.code(1)
    assert goes_to(send_code(browser, code)) == HOME
    assert is_in(browser)
    assert is_in(operator.browser)
    used = send_code(other, code)
    assert (used.status_code, WRONG_CODE in alert(used)) == (422, True)
    assert not is_in(other)

    def pass_time(column: str, interval: str) -> None:
        service.sql(
            f"UPDATE operator_sessions SET {column} = {column} - interval '{interval}'"
            " WHERE operator_id = (SELECT id FROM operators WHERE phone = $1)",
            operator.phone,
        )

    pass_time("seen_at", "9 hours")
    assert not is_in(browser)
    service.sql("UPDATE operators SET totp_last_step = 0 WHERE phone = $1", operator.phone)
    other = begin(service, operator)
    assert goes_to(send_code(other, operator.code())) == HOME
    assert is_in(other)
    late = begin(service, operator)
    pass_time("created_at", "25 hours")
    assert not is_in(other)
    # Between password and code there are minutes.
    assert goes_to(send_code(late, operator.code(1))) == SIGN_IN


def test_signing_out_ends_the_session_and_not_only_the_cookie(service: Service) -> None:
    browser = signed_in(service)
    token = browser.cookies[COOKIE]
    assert goes_to(browser.post(SIGN_OUT)) == SIGN_IN
    assert COOKIE not in browser.cookies
    assert not is_in(holding(service, token))


@pytest.mark.parametrize("how", [operator_access.remove, operator_access.reset])
def test_who_is_removed_or_reset_is_out_at_once(service: Service, how: object) -> None:
    operator = new_operator(service)
    half = begin(service, operator)
    assert callable(how)
    service.run(how, phone=operator.phone, actor=Actor("cli:test"))
    assert not is_in(operator.browser)
    assert goes_to(send_code(half, operator.code(1))) == SIGN_IN
    assert alert(enter(new_browser(service), operator.phone, PASSWORD)) == WRONG


def test_names_and_notes_are_shown_and_never_carried_out(service: Service) -> None:
    browser = signed_in(service, name=NASTY)
    caller = service.open_account()
    service.sql(
        "INSERT INTO content_refusals (account_id, digest, first_at, last_at, count, category, score,"
        " reasons, text, review_asked_at, review_note) VALUES ($1, sha256('x'), now(), now(), 1, $2, 0.9,"
        " jsonb_build_array(jsonb_build_object('words', $2::text, 'category', $2::text)), $2, now(), $2)",
        caller.id,
        NASTY,
    )
    service.sql("UPDATE accounts SET business = $2, name = $2 WHERE id = $1", caller.id, NASTY)
    country = {"new_country": "XX", "name": NASTY, "calling_code": "999", "lengths": "9"}
    added = browser.post("/operator/prices/destinations", data=country)
    assert goes_to(added) == "/operator/prices?done=added"
    content = browser.get("/operator/content").text
    (refusal, *_) = re.findall(r'href="(/operator/content/refusals/[^"]+)"', content)
    note = {"text": f"Your parcel is here {NASTY}".replace("{{7*7}}", ""), "verdict": "allow", "note": NASTY}
    assert goes_to(browser.post("/operator/content/templates", data=note)) is not None
    odd = browser.post("/operator/prices/set", data={"country": NASTY, "price": NASTY, "status": NASTY})
    assert (odd.status_code, "<script>alert" in odd.text) == (422, False)
    pages = {path: browser.get(path) for path in (*ALONE, refusal)}
    for path, page in {**pages, "filter": browser.get("/operator/changes", params={"actor": NASTY})}.items():
        assert page.status_code == 200, path
        assert "<script>alert" not in page.text, path
        assert "<img src=x" not in page.text, path
        assert "49" not in re.findall(r"onerror=alert\(1\)&gt;(..)", page.text), path
    for path in ("/operator/prices", "/operator/content", "/operator/content/templates", "/operator/changes"):
        assert NASTY.replace("{{7*7}}", "") in html.unescape(pages[path].text), path
