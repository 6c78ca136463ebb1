"""Attacks in a real browser: cross-site forms, frames, injected text and stolen cookies."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.support.browser import Opener, bring_session, take_faults
from tests.support.identity.people import PASSWORD, sign_up
from tests.support.processes.service import Service

HARM: Final = (
    """<script>document.title='harm'</script><img src=x onerror="document.title='harm'">'"{{7*7}}${7*7}"""
)

WRITES: Final = ("/dashboard/keys", "/dashboard/sign-out", "/dashboard/compose/confirm", "/dashboard/sign-in")


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


@pytest.mark.long
def test_another_site_writes_nothing(service: Service, open_page: Opener) -> None:
    person = sign_up(service)
    forms = "".join(
        f'<form method="post" action="{service.base}{path}"><input name="name" value="evil">'
        f'<input name="scope" value="messages:send"><input name="phone" value="{person.phone}">'
        f'<input name="password" value="{PASSWORD}"><button>Win {path}</button></form>'
        for path in WRITES
    )
    with evil_site(f'<!doctype html><title>Win</title><link rel="icon" href="data:,">{forms}') as evil:
        page = open_page(service.base, also=[evil])
        bring_session(page, service.base, person.session)
        for path in WRITES:
            page.goto(evil)
            page.get_by_role("button", name=f"Win {path}", exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Not allowed")
    keys = service.sql(
        "SELECT count(*) FROM api_keys k JOIN accounts a ON a.id = k.account_id WHERE phone = $1",
        person.phone,
    )
    assert keys[0][0] == 0
    page.goto("/dashboard/keys")
    expect(page.get_by_role("heading", level=1)).to_have_text("API keys")


@pytest.mark.long
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
    bring_session(page, service.base, person.session)
    page.goto("/dashboard/keys")
    page.get_by_label("Key name").fill(HARM[:100])
    page.get_by_label("Your password").fill(PASSWORD)
    page.get_by_role("button", name="Create API key").click()
    page.goto("/dashboard/compose")
    page.get_by_label("Recipients").fill("+263771200001 <b>x</b>")
    page.get_by_label("Message").fill(f"Your order is on its way. {HARM}")
    page.get_by_label("Reference (optional)").fill(HARM[:64])
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Confirm").click()
    expect(page.locator("main")).to_contain_text(HARM[:64])
    message = page.get_by_role("link", name="+263771200001").get_attribute("href")
    for path in ("/dashboard", "/dashboard/batches", "/dashboard/keys", page.url, str(message)):
        page.goto(path)
        expect(page.locator("body")).to_contain_text("{{7*7}}")
        assert page.title().endswith("Tumira")
        assert page.locator("main script:not([type]), main img").count() == 0
        assert "49" not in page.get_by_role("navigation", name="Dashboard").inner_text()


def test_a_stolen_cookie_is_worth_nothing_after_sign_out(service: Service, open_page: Opener) -> None:
    person = sign_up(service)
    owner, thief = open_page(service.base), open_page(service.base)
    bring_session(owner, service.base, person.session)
    bring_session(thief, service.base, person.session)
    thief.goto("/dashboard/keys")
    expect(thief.get_by_role("heading", level=1)).to_have_text("API keys")
    owner.goto("/dashboard")
    owner.get_by_role("button", name="Sign out").click()
    thief.goto("/dashboard/keys")
    expect(thief.get_by_role("heading", level=1)).to_have_text("Sign in")
    # Nor does the owner's browser show anything when they go back.
    owner.go_back()
    expect(owner.get_by_role("heading", level=1)).to_have_text("Sign in")


@pytest.mark.long
def test_signing_in_leads_nowhere_else(service: Service, open_page: Opener) -> None:
    person = sign_up(service)
    page = open_page(service.base)
    for onward in ("//localhost:1/", "https://localhost:1/", "/\\localhost:1", "/dashboard/..//x"):
        page.context.clear_cookies()
        page.goto(f"/dashboard/sign-in?next={onward}")
        page.get_by_label("Phone number").fill(person.phone)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        assert page.url == f"{service.base}/dashboard"
