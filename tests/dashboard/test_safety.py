"""Cross-site writes, hostile requests and hostile texts change nothing."""

import html
import re
import socket
from collections.abc import Iterator, Mapping
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import pytest
from starlette.routing import Route

from tests.support.identity.people import (
    PASSWORD,
    SESSION,
    VERIFICATION,
    Person,
    begin_sign_up,
    code_to,
    count,
    filled,
    goes_to,
    is_signed_in,
    new_browser,
    new_phone,
    pass_time,
    run_behind_proxy,
    sign_in,
    verify,
)
from tests.support.processes.service import NO_TLS, Service
from tumira.core.ids import MESSAGE, write_id
from tumira.identity.manage_accounts import credit, suspend
from tumira.postgres.pool import Database
from tumira.web import Web

ROUTES: Final = [
    (route.path.replace("{id}", "bat_0"), method)
    for route in Web(Database("postgresql://nowhere"))._pages.routes
    if isinstance(route, Route) and not route.path.startswith(("/docs", "/static", "/simulator"))
    for method in sorted(route.methods or ())
    if route.path == "/" or route.path.startswith("/dashboard")
]
READS: Final = [path for path, method in ROUTES if method == "GET"]
WRITES: Final = [path for path, method in ROUTES if method == "POST"]
# Those whose form is more than a button. Of what is unknown nobody reads a form, and a file is no such form.
FORMS: Final = [
    path
    for path in WRITES
    if not path.endswith(("/again", "/start", "/revoke", "/sign-out", "/upload"))
    and not path.startswith(("/dashboard/upload/", "/dashboard/webhooks/"))
]
OPEN: Final = frozenset(
    {
        "/",
        "/dashboard/sign-up",
        "/dashboard/verify",
        "/dashboard/sign-in",
        "/dashboard/forgotten",
        "/dashboard/new-password",
    }
)

NASTY: Final = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>{{99*99}}{% raw %}${99*99}&amp;'"
FORM: Final = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url, TUMIRA_PUBLIC_URL="https://tumira.example") as running:
        yield running


def cookies_of(answer: httpx.Response) -> dict[str, str]:
    """Return the cookies that an answer gives; a browser without TLS would not keep those that ask for it."""
    given = [one.partition(";")[0].partition("=") for one in answer.headers.get_list("set-cookie")]
    return {name: value for name, _, value in given}


class Secure:
    """A browser that reached the service through TLS, which a proxy ended."""

    def __init__(self, service: Service) -> None:
        self._client = new_browser(service)
        self.cookies: dict[str, str] = {}

    def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = self._client.request(method, path, headers={"Cookie": cookie, **(headers or {})}, **more)
        self.cookies |= cookies_of(answer)
        return answer

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.send("GET", path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.send("POST", path, **more)


def secure_sign_up(service: Service, **fields: str) -> Secure:
    browser, phone = Secure(service), new_phone()
    begun = browser.post("/dashboard/sign-up", data=filled(phone, **fields))
    assert goes_to(begun) == "/dashboard/verify", begun.text
    assert goes_to(browser.post("/dashboard/verify", data={"code": code_to(service, phone)})) == "/dashboard"
    return browser


@pytest.fixture(scope="module")
def owner(service: Service) -> Secure:
    return secure_sign_up(service)


def assert_safe(answer: httpx.Response) -> None:
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["x-request-id"].startswith("req_")
    assert "server" not in answer.headers


def test_there_are_pages_to_try() -> None:
    assert len(READS) > 10
    assert len(WRITES) > 8
    assert "/dashboard/keys/bat_0/revoke" in WRITES


@pytest.mark.parametrize("path", READS)
def test_every_page_forbids_much_whoever_asks_and_private_ones_are_not_kept(
    service: Service, owner: Secure, path: str
) -> None:
    stranger = new_browser(service).get(path)
    if path in OPEN:
        assert stranger.status_code in {200, 303}
    else:
        assert str(goes_to(stranger)).startswith("/dashboard/sign-in")
    answers = [stranger, owner.get(path)]
    for answer in answers:
        assert_safe(answer)
        assert answer.headers["cache-control"] == ("no-cache" if path == "/" else "no-store")


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://tumira.example"},
        {"Sec-Fetch-Site": "", "Origin": "https://tumira.example"},
    ],
)
def test_every_write_that_another_site_asked_for_is_refused(
    owner: Secure, path: str, headers: Mapping[str, str]
) -> None:
    refused = owner.post(path, headers=headers, data={"phone": new_phone()})
    assert refused.status_code == 403
    assert "This came from another site, so nothing was done." in refused.text
    assert "set-cookie" not in refused.headers
    assert_safe(refused)


@pytest.mark.parametrize("path", WRITES)
def test_every_write_without_a_session_leads_nowhere(service: Service, path: str) -> None:
    answer = new_browser(service).post(path, data={"name": "x", "scope": "messages:send"})
    assert answer.status_code in {303, 422}
    assert SESSION not in answer.headers.get("set-cookie", "").partition("=")[0] or "sign-out" in path
    assert_safe(answer)


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "https://evil.example",
        "https://tumira.example.evil.example",
        "https://tumira.example:444",
        "https://shop.tumira.example",
        "https://tumira.example@evil.example",
        "https://xtumira.example",
        "file://",
    ],
)
def test_an_old_browser_is_asked_for_its_origin(service: Service, owner: Secure, origin: str) -> None:
    with httpx.Client(base_url=service.base, trust_env=False, verify=NO_TLS) as plain:
        cookie = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
        refused = plain.post("/dashboard/sign-out", headers={"Cookie": cookie, "Origin": origin})
        assert refused.status_code == 403
    assert owner.get("/dashboard/keys").status_code == 200


@pytest.mark.parametrize("own", ["https://tumira.example", None])
def test_our_own_origin_is_let_through(service: Service, own: str | None) -> None:
    browser = secure_sign_up(service)
    with httpx.Client(base_url=service.base, trust_env=False, verify=NO_TLS) as plain:
        cookie = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        done = plain.post("/dashboard/sign-out", headers={"Cookie": cookie, "Origin": own or service.base})
        assert goes_to(done) == "/dashboard/sign-in"
    assert goes_to(browser.get("/dashboard")) == "/dashboard/sign-in"


def test_a_write_from_elsewhere_is_refused_before_the_session_is_read(
    service: Service, owner: Secure
) -> None:
    seen_before = service.sql("SELECT max(seen_at) FROM sessions")[0][0]
    with service.holding("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE"):
        refused = owner.post("/dashboard/keys", headers={"Sec-Fetch-Site": "cross-site"}, data={"name": "x"})
    assert refused.status_code == 403
    assert service.sql("SELECT max(seen_at) FROM sessions")[0][0] == seen_before


@pytest.mark.parametrize("path", READS)
def test_a_page_is_read_and_never_written(owner: Secure, path: str) -> None:
    for method in ("PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"):
        refused = owner.send(method, path)
        assert refused.status_code == 405
        assert_safe(refused)


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/dashboard/nothing",
        "/dashboard/keys/",
        "/static/nothing.css",
        "/static/..%2f..%2fconfig.py",
        "/dashboard/%2e%2e/%2e%2e/etc/passwd",
        "/dashboard//evil.example",
        "//evil.example/dashboard",
        "/dashboard/%00",
        "/dashboard/<script>alert(1)</script>",
        "/dashboard/{{99*99}}",
    ],
)
def test_what_is_not_there_is_said_on_a_page_of_ours(service: Service, owner: Secure, path: str) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
    for headers in ({}, {"Cookie": cookie}):
        answer = httpx.get(service.base + path, headers=headers, trust_env=False, verify=NO_TLS)
        assert_harmless(answer)
        assert answer.status_code == 404
        assert_safe(answer)
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", FORMS)
def test_a_body_that_is_no_form_does_nothing(service: Service, owner: Secure, path: str) -> None:
    before = count(service, "SELECT count(*) FROM api_keys") + count(service, "SELECT count(*) FROM codes")
    tried: list[tuple[int, str, bytes]] = [
        (415, "text/plain", b"name=x"),
        (415, "application/json", b'{"name": "x"}'),
        (415, "multipart/form-data; boundary=x", b"--x--"),
        (413, FORM, b"name=" + b"x" * 300_000),
        (400, FORM, b"&".join([b"name=x"] * 10_000)),
        (400, FORM, "name=Zoë".encode()),
        (400, FORM, b"\xff\xfe"),
    ]
    for status, kind, body in tried:
        refused = owner.post(path, content=body, headers={"Content-Type": kind})
        assert refused.status_code == status, (kind, body[:20])
        assert_safe(refused)
    assert before == count(service, "SELECT count(*) FROM api_keys") + count(
        service, "SELECT count(*) FROM codes"
    )


@pytest.mark.parametrize(
    "value", ["\x00", "a\x00b", "\ufffe\uffff", "\U0010ffff", "\u202e", "é" * 50, "%00", "\x1b[2J", "🙂" * 30]
)
def test_odd_characters_break_no_form(service: Service, owner: Secure, value: str) -> None:
    stranger = new_browser(service)
    forms = {
        "/dashboard/sign-up": filled(value, name=value, business=value, email=value, password=value),
        "/dashboard/sign-in": {"phone": value, "password": value, "next": value},
        "/dashboard/forgotten": {"phone": value},
        "/dashboard/keys": {"name": value, "scope": value},
    }
    for path, form in forms.items():
        body = urlencode(form)
        for browser in (stranger, owner):
            answer = browser.post(path, content=body, headers={"Content-Type": FORM})
            assert answer.status_code in {303, 422}, (path, answer.status_code)
            assert_safe(answer)


def test_what_people_wrote_is_shown_as_they_wrote_it_and_never_carried_out(service: Service) -> None:
    name, business = NASTY[:100], "{{ config }}<svg onload=alert(1)>"
    refused = new_browser(service).post(
        "/dashboard/sign-up", data=filled('"><script>alert(1)</script>', name=name, email=NASTY, password="x")
    )
    assert_harmless(refused)
    browser = secure_sign_up(service, name=name, business=business)
    made = browser.post("/dashboard/keys", data={"name": NASTY[:100], "scope": "messages:send"})
    assert_harmless(made)
    for path in ("/dashboard", "/dashboard/keys", "/dashboard/compose", "/dashboard/batches"):
        page = browser.get(path)
        assert page.status_code == 200
        assert_harmless(page)
        assert business in html.unescape(page.text)
        assert name in html.unescape(page.text)
    kept = re.search(r'aria-label="Revoke ([^"]*)"', browser.get("/dashboard/keys").text)
    assert kept is not None
    assert html.unescape(kept[1]) == NASTY[:100]


def test_a_reference_and_a_text_are_shown_and_never_carried_out_and_to_their_owner_alone(
    service: Service, owner: Secure
) -> None:
    browser = secure_sign_up(service, business="Sender")
    made = browser.post("/dashboard/keys", data={"name": "key", "scope": "messages:send"})
    (key,) = set(re.findall(r"tmr_[0-9a-z]{26}_[0-9a-z]{32}", made.text))
    (account,) = service.sql("SELECT account_id FROM api_keys WHERE name = 'key' ORDER BY id DESC LIMIT 1")
    service.run(credit, account["account_id"], Decimal(5), note="test", actor="test")
    body = {
        "channel": "sms",
        "to": "+263771200001",
        "body": f"Your code is 381762. {NASTY}",
        "reference": NASTY[:64],
    }
    sent = service.call(key, "POST", "/messages", json=body)
    assert sent.status_code == 202, sent.text
    batch_path = f"/dashboard/batches/{sent.json()['batch_id']}"
    (message,) = service.sql("SELECT id FROM messages WHERE account_id = $1", account["account_id"])
    paths = (batch_path, batch_path + "/progress", f"/dashboard/messages/{write_id(MESSAGE, message['id'])}")
    shown = ""
    for path in ("/dashboard/batches", *paths):
        page = browser.get(path)
        assert page.status_code == 200, path
        assert_harmless(page)
        shown += page.text
    assert NASTY[:64] in html.unescape(shown)
    for path in (*paths, batch_path + "/messages.csv"):
        foreign = owner.get(path)
        unknown = owner.get(re.sub(r"_[0-9a-z]{26}", "_" + "0" * 26, path))
        assert (foreign.status_code, foreign.text) == (404, unknown.text)


class Tags(HTMLParser):
    """What a browser takes for tags, and what for words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data


def assert_harmless(page: httpx.Response) -> None:
    """See that no tag, attribute or template came from what people wrote."""
    read = Tags(page.text)
    for tag, attributes in read.tags:
        assert tag not in {"img", "iframe", "object", "embed", "style"}
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        if tag == "script" and attributes.get("type") != "application/json":
            assert str(attributes.get("src")).startswith("/static/")
        assert not str(attributes.get("href")).startswith(("javascript", "data", "http", "//"))
    # What a template would have made of 99*99; no time of day looks like it.
    assert not re.search(r"\b9801\b", read.words)


@pytest.mark.parametrize(
    "headers",
    [
        {"User-Agent": NASTY},
        {"User-Agent": "x" * 10_000},
        {"User-Agent": ""},
        {"X-Request-Id": "<script>"},
        {"X-Forwarded-For": "<script>alert(1)</script>"},
        {"X-Forwarded-For": "198.18.0.1, " * 100 + "x"},
        {"X-Forwarded-Host": "evil.example"},
        {"Referer": "javascript:alert(1)"},
        {"Accept-Language": NASTY},
    ],
)
def test_no_header_comes_back_or_breaks_a_sign_in(service: Service, headers: Mapping[str, str]) -> None:
    phone = new_phone()
    browser = Secure(service)
    browser.post("/dashboard/sign-up", data=filled(phone))
    done = browser.post("/dashboard/verify", headers=headers, data={"code": code_to(service, phone)})
    assert goes_to(done) == "/dashboard"
    page = browser.get("/dashboard", headers=headers)
    assert page.status_code == 200
    assert "evil.example" not in page.text
    assert_harmless(page)
    assert_safe(page)
    assert count(service, "SELECT max(length(browser)) FROM sessions") <= 200


@pytest.mark.parametrize(
    "header", [b"User-Agent: a\x00b", b"User-Agent: \xff\xfe\x80", b"Cookie: \xff=\x80;;==;"]
)
def test_bytes_in_headers_that_are_no_text_break_nothing(service: Service, header: bytes) -> None:
    phone = new_phone()
    body = urlencode({"phone": phone, "password": PASSWORD}).encode()
    host, port = service.base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=40) as line:
        line.sendall(
            b"POST /dashboard/sign-in HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: "
            + FORM.encode()
            + b"\r\nContent-Length: %d\r\n" % len(body)
            + header
            + b"\r\n\r\n"
            + body
        )
        answer = b""
        while chunk := line.recv(65_536):
            answer += chunk
    assert answer.split(b" ", 2)[1] in {b"422", b"400"}


def test_a_visitor_who_hangs_up_does_not_disturb_the_next(service: Service) -> None:
    host, port = service.base.removeprefix("http://").split(":")
    for _ in range(5):
        with socket.create_connection((host, int(port)), timeout=40) as line:
            line.sendall(
                b"POST /dashboard/sign-in HTTP/1.1\r\nHost: x\r\n"
                b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nphone="
            )
    assert new_browser(service).get("/dashboard/sign-in").status_code == 200


def test_nobody_sees_anything_of_anybody_else(service: Service) -> None:
    hers = secure_sign_up(service, name="Anna Only", business="Annas Secret Shop")
    hers.post("/dashboard/keys", data={"name": "annas key", "scope": "messages:send"})
    his = secure_sign_up(service, name="Ben Other", business="Bens Garage")
    for path in READS:
        page = his.get(path).text
        assert not re.search("Anna|annas", page), path


def test_a_suspended_account_is_looked_at_and_says_so(service: Service) -> None:
    browser, phone = Secure(service), new_phone()
    browser.post("/dashboard/sign-up", data=filled(phone))
    browser.post("/dashboard/verify", data={"code": code_to(service, phone)})
    (account,) = service.sql("SELECT id FROM accounts WHERE phone = $1", phone)
    service.run(suspend, account["id"], suspended=True)
    for path in ("/dashboard", "/dashboard/keys", "/dashboard/compose", "/dashboard/batches"):
        page = browser.get(path)
        assert page.status_code == 200
        assert "This account is suspended" in page.text
    again = Secure(service)
    done = again.post("/dashboard/sign-in", data={"phone": phone, "password": PASSWORD})
    assert goes_to(done) == "/dashboard"


def test_without_tls_the_same_holds(server_url: str) -> None:
    with run_behind_proxy(server_url) as service:
        browser, phone = new_browser(service), new_phone()
        begin_sign_up(browser, phone)
        verify(browser, code_to(service, phone))
        person = Person(browser, phone, PASSWORD)
        assert (
            browser.post("/dashboard/sign-out", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        )
        for origin in ("null", "http://127.0.0.1:1", "http://localhost", "http://evil.example"):
            with httpx.Client(base_url=service.base, trust_env=False, verify=NO_TLS) as old:
                cookie = f"{SESSION}={person.session}"
                refused = old.post("/dashboard/sign-out", headers={"Cookie": cookie, "Origin": origin})
            assert refused.status_code == 403
        assert is_signed_in(browser)
        assert VERIFICATION not in browser.cookies
        pass_time(service, phone, "1 hour")
        foreign = new_browser(service)
        foreign.headers["Sec-Fetch-Site"] = "cross-site"
        # Nobody is signed in to an account of somebody else's choosing.
        assert sign_in(foreign, phone).status_code == 403
        assert SESSION not in foreign.cookies
        assert begin_sign_up(foreign, new_phone()).status_code == 403
        assert count(service, "SELECT count(*) FROM codes") == 1
