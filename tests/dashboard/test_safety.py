"""Cross-site writes, hostile requests and hostile texts change nothing."""

import html
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import urlencode

import httpx
import pytest
from starlette.routing import Route

from tests.support.identity.people import (
    PASSWORD,
    SESSION,
    code_to,
    count,
    filled,
    goes_to,
    new_browser,
    new_phone,
    run_behind_proxy,
)
from tests.support.processes.service import NO_TLS, Service
from tumira.identity.manage_accounts import suspend
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
# An invitation that nobody sent.
JOIN: Final = "/dashboard/join/{token}"
# Those whose form is more than a button. Of what is unknown nobody reads a form, and a file is no such form.
# Forms with a file.
FILES: Final = ("/dashboard/upload", "/dashboard/opt-outs/import", "/dashboard/sender-names")
FORMS: Final = [
    path
    for path in WRITES
    if not path.endswith(("/again", "/start", "/revoke", "/sign-out", "/hide-steps", *FILES))
    and not path.startswith(
        ("/dashboard/upload/", "/dashboard/webhooks/", "/dashboard/lists/", "/dashboard/texts/")
    )
]
OPEN: Final = frozenset(
    {
        "/",
        "/dashboard/sign-up",
        "/dashboard/verify",
        "/dashboard/sign-in",
        "/dashboard/forgotten",
        "/dashboard/new-password",
        JOIN,
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


def test_every_page_forbids_much_whoever_asks_and_private_ones_are_not_kept(
    service: Service, owner: Secure
) -> None:
    for path in READS:
        stranger = new_browser(service).get(path)
        if path in OPEN:
            assert stranger.status_code in ({404} if path == JOIN else {200, 303}), path
        else:
            assert str(goes_to(stranger)).startswith("/dashboard/sign-in"), path
        for answer in (stranger, owner.get(path)):
            assert_safe(answer)
            assert answer.headers["cache-control"] == ("no-cache" if path == "/" else "no-store"), path
        for method in ("PUT", "DELETE", "TRACE"):
            refused = owner.send(method, path)
            assert refused.status_code == 405, (method, path)
            assert_safe(refused)


def test_every_write_of_another_site_or_without_a_session_leads_nowhere(
    service: Service, owner: Secure
) -> None:
    for path in WRITES:
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "", "Origin": "null"}):
            refused = owner.post(path, headers=headers, data={"phone": new_phone()})
            assert refused.status_code == 403, path
            assert "This came from another site, so nothing was changed." in refused.text
            assert "set-cookie" not in refused.headers
            assert_safe(refused)
        answer = new_browser(service).post(path, data={"name": "x", "scope": "messages:send"})
        assert answer.status_code in ({404} if path == JOIN else {303, 422}), path
        assert SESSION not in answer.headers.get("set-cookie", "").partition("=")[0] or "sign-out" in path
        assert_safe(answer)


def test_a_write_from_elsewhere_is_refused_before_the_session_is_read(
    service: Service, owner: Secure
) -> None:
    seen_before = service.sql("SELECT max(seen_at) FROM sessions")[0][0]
    with service.holding("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE"):
        refused = owner.post("/dashboard/keys", headers={"Sec-Fetch-Site": "cross-site"}, data={"name": "x"})
    assert refused.status_code == 403
    assert service.sql("SELECT max(seen_at) FROM sessions")[0][0] == seen_before


def test_what_is_not_there_is_said_on_a_page_of_ours(service: Service, owner: Secure) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
    for path in (
        "/nothing",
        "/dashboard/keys/",
        "/static/..%2f..%2fconfig.py",
        "/dashboard/%2e%2e/%2e%2e/etc/passwd",
        "//evil.example/dashboard",
        "/dashboard/%00",
        "/dashboard/<script>alert(1)</script>",
        "/dashboard/{{99*99}}",
    ):
        for headers in ({}, {"Cookie": cookie}):
            answer = httpx.get(service.base + path, headers=headers, trust_env=False, verify=NO_TLS)
            assert_harmless(answer)
            assert answer.status_code == 404, path
            assert_safe(answer)
            assert answer.headers["cache-control"] == "no-store"


def test_a_body_that_is_no_form_does_nothing(service: Service, owner: Secure) -> None:
    written = "SELECT (SELECT count(*) FROM api_keys) + (SELECT count(*) FROM codes)"
    before = count(service, written)
    for path in FORMS:
        for status, kind, body in (
            (415, "application/json", b'{"name": "x"}'),
            (413, FORM, b"name=" + b"x" * 300_000),
            (400, FORM, "name=Zo\u00eb".encode()),
        ):
            refused = owner.post(path, content=body, headers={"Content-Type": kind})
            assert refused.status_code == status, (path, kind, body[:20])
            assert_safe(refused)
    for path in FILES:
        for kind, body in (("application/json", b'{"name": "x"}'), (FORM, b"name=x")):
            refused = owner.post(path, content=body, headers={"Content-Type": kind})
            assert refused.status_code == httpx.codes.UNSUPPORTED_MEDIA_TYPE, (path, kind)
            assert_safe(refused)
    assert count(service, written) == before


@pytest.mark.parametrize("value", ["a\x00b", "\ufffe\uffff\U0010ffff", "\u202e", "\x1b[2J%00"])
def test_odd_characters_break_no_form(service: Service, owner: Secure, value: str) -> None:
    stranger = new_browser(service)
    forms = {
        "/dashboard/sign-up": filled(value, name=value, business=value, email=value, password=value),
        "/dashboard/sign-in": {"phone": value, "password": value, "next": value},
        "/dashboard/forgotten": {"phone": value},
        "/dashboard/keys": {"name": value, "scope": value},
    }
    for path, form in forms.items():
        for browser in (stranger, owner):
            answer = browser.post(path, content=urlencode(form), headers={"Content-Type": FORM})
            assert answer.status_code in {303, 422}, (path, answer.status_code)
            assert_safe(answer)


def test_what_people_wrote_is_shown_as_they_wrote_it_and_never_carried_out(service: Service) -> None:
    name, business = NASTY[:100], "{{ config }}<svg onload=alert(1)>"
    refused = new_browser(service).post(
        "/dashboard/sign-up", data=filled('"><script>alert(1)</script>', name=name, email=NASTY, password="x")
    )
    assert_harmless(refused)
    browser = secure_sign_up(service, name=name, business=business)
    made = browser.post(
        "/dashboard/keys", data={"name": NASTY[:100], "scope": "messages:send", "password": PASSWORD}
    )
    assert_harmless(made)
    for path in ("/dashboard", "/dashboard/keys", "/dashboard/compose", "/dashboard/batches"):
        page = browser.get(path)
        assert page.status_code == 200
        assert_harmless(page)
        assert business in html.unescape(page.text)
        assert name in html.unescape(page.text)
    kept = re.search(r'Revoke<span class="hidden"> (.*?)</span>', browser.get("/dashboard/keys").text)
    assert kept is not None
    assert html.unescape(kept[1]) == NASTY[:100]


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


def test_no_header_comes_back_or_breaks_a_sign_in(service: Service) -> None:
    for headers in (
        {"User-Agent": NASTY, "Accept-Language": NASTY, "Referer": "javascript:alert(1)"},
        {"User-Agent": "x" * 10_000, "X-Request-Id": "<script>", "X-Forwarded-Host": "evil.example"},
        {"User-Agent": "", "X-Forwarded-For": "<script>alert(1)</script>"},
        {"X-Forwarded-For": "198.18.0.1, " * 100 + "x"},
    ):
        browser, phone = Secure(service), new_phone()
        browser.post("/dashboard/sign-up", data=filled(phone))
        done = browser.post("/dashboard/verify", headers=headers, data={"code": code_to(service, phone)})
        assert goes_to(done) == "/dashboard", headers
        page = browser.get("/dashboard", headers=headers)
        assert page.status_code == 200
        assert "evil.example" not in page.text
        assert_harmless(page)
        assert_safe(page)
    assert count(service, "SELECT max(length(browser)) FROM sessions") <= 200


def test_a_suspended_account_is_looked_at_and_says_so(service: Service) -> None:
    browser, phone = Secure(service), new_phone()
    browser.post("/dashboard/sign-up", data=filled(phone))
    browser.post("/dashboard/verify", data={"code": code_to(service, phone)})
    (account,) = service.sql("SELECT id FROM accounts WHERE phone = $1", phone)
    service.run(suspend, account["id"], suspended=True)
    for path in ("/dashboard", "/dashboard/keys", "/dashboard/compose", "/dashboard/batches"):
        page = browser.get(path)
        assert page.status_code == 200
        assert "Your account is suspended" in page.text
