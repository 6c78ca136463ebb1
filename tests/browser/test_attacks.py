"""Attacks in a real browser: cross-site forms, frames, injected text, stolen and planted cookies."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Opener, take_faults
from tests.support.identity.people import PASSWORD, SESSION, sign_up
from tests.support.processes.service import Service

HARM: Final = (
    """<script>document.title='harm'</script><img src=x onerror="document.title='harm'">'"{{7*7}}${7*7}"""
)


@contextmanager
def evil_site(page: str) -> Iterator[str]:
    """Serve a page from another site: another name is another site, though it is the same machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def come_in(page: Page, service: Service, token: str) -> None:
    page.context.add_cookies([{"name": SESSION, "value": token, "url": service.base, "sameSite": "Lax"}])


@pytest.mark.parametrize(
    "path", ["/dashboard/keys", "/dashboard/sign-out", "/dashboard/compose/confirm", "/dashboard/sign-in"]
)
def test_another_site_writes_nothing(service: Service, open_page: Opener, path: str) -> None:
    person = sign_up(service)
    form = (
        f'<form method="post" action="{service.base}{path}"><input name="name" value="evil">'
        f'<input name="scope" value="messages:send"><input name="phone" value="{person.phone}">'
        f'<input name="password" value="{PASSWORD}"><button>Win</button></form>'
    )
    with evil_site(f'<!doctype html><title>Win</title><link rel="icon" href="data:,">{form}') as evil:
        page = open_page(service.base, also=[evil])
        come_in(page, service, person.session)
        page.goto(evil)
        page.get_by_role("button", name="Win").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Not allowed")
    keys = service.sql(
        "SELECT count(*) FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE phone = $1",
        person.phone,
    )
    assert keys[0][0] == 0
    page.goto("/dashboard/keys")
    expect(page.get_by_role("heading", level=1)).to_have_text("API keys")


def test_our_pages_are_shown_in_no_frame(service: Service, open_page: Opener) -> None:
    frame = f'<iframe src="{service.base}/dashboard/sign-in"></iframe>'
    with evil_site(f'<!doctype html><title>Frame</title><link rel="icon" href="data:,">{frame}') as evil:
        page = open_page(service.base, also=[evil])
        page.goto(evil)
        assert page.frames[1].locator("form").count() == 0
        assert any("frame-ancestors" in fault for fault in take_faults(page))


def test_names_and_references_are_only_ever_text(service: Service, open_page: Opener) -> None:
    person = sign_up(service, name=HARM[:100], business=HARM[:100])
    service.sql("UPDATE accounts SET balance = 5 WHERE phone = $1", person.phone)
    page = open_page(service.base)
    come_in(page, service, person.session)
    page.goto("/dashboard/keys")
    page.get_by_label("Key name").fill(HARM[:100])
    page.get_by_role("button", name="Create key").click()
    page.goto("/dashboard/compose")
    page.get_by_label("Recipients").fill("+263771200001 <b>x</b>")
    page.get_by_label("Message").fill(f"Your order is on its way. {HARM}")
    page.get_by_label("Reference (optional)").fill(HARM[:64])
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("main")).to_contain_text(HARM[:64])
    for path in ("/dashboard", "/dashboard/batches", "/dashboard/keys", page.url):
        page.goto(path)
        expect(page.locator("body")).to_contain_text("{{7*7}}")
        assert page.title().endswith("Tumira")
        assert page.locator("main script:not([type]), main img").count() == 0
        assert "49" not in page.get_by_role("navigation", name="Dashboard").inner_text()


def test_a_stolen_cookie_is_worth_nothing_after_sign_out(service: Service, open_page: Opener) -> None:
    person = sign_up(service)
    owner, thief = open_page(service.base), open_page(service.base)
    come_in(owner, service, person.session)
    come_in(thief, service, person.session)
    thief.goto("/dashboard/keys")
    expect(thief.get_by_role("heading", level=1)).to_have_text("API keys")
    owner.goto("/dashboard")
    owner.get_by_role("button", name="Sign out").click()
    thief.goto("/dashboard/keys")
    expect(thief.get_by_role("heading", level=1)).to_have_text("Sign in")
    # Nor does the owner's browser show anything when they go back.
    owner.go_back()
    expect(owner.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_a_planted_cookie_is_not_adopted(service: Service, open_page: Opener) -> None:
    attacker, victim = sign_up(service), sign_up(service)
    page = open_page(service.base)
    come_in(page, service, attacker.session)
    page.goto("/dashboard")
    page.get_by_role("button", name="Sign out").click()
    come_in(page, service, "planted-by-an-attacker")
    page.goto("/dashboard/sign-in")
    page.get_by_label("Phone number").fill(victim.phone)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    cookies = {one["name"]: one for one in page.context.cookies()}
    assert cookies[SESSION]["value"] not in {"planted-by-an-attacker", attacker.session, victim.session}
    assert (cookies[SESSION]["httpOnly"], cookies[SESSION]["sameSite"]) == (True, "Lax")


@pytest.mark.parametrize(
    "onward", ["//localhost:1/", "https://localhost:1/", "/\\localhost:1", "/dashboard/..//x"]
)
def test_signing_in_leads_nowhere_else(service: Service, open_page: Opener, onward: str) -> None:
    person = sign_up(service)
    page = open_page(service.base)
    page.goto(f"/dashboard/sign-in?next={onward}")
    page.get_by_label("Phone number").fill(person.phone)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    assert page.url == f"{service.base}/dashboard"


def test_guessing_is_slowed_down(service: Service, open_page: Opener) -> None:
    person = sign_up(service)
    page = open_page(service.base)
    page.goto("/dashboard/sign-in")
    for guess in range(11):
        page.get_by_label("Phone number").fill(person.phone)
        page.get_by_label("Password").fill(f"wrong guess {guess}")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("Too many attempts")
    page.get_by_label("Phone number").fill(person.phone)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("Too many attempts")
