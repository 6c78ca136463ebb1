"""Can everybody use every page of the dashboard, on any screen, in both themes, on a slow line?"""

import html
import re
from collections.abc import Sequence
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import (
    DESKTOP,
    PHONE,
    WIDE,
    Opener,
    Viewport,
    check_accessibility,
    layout_shift,
    overflows,
    screenshot,
    slow_down,
    trickling,
    wire_bytes,
)
from tests.support.identity.people import (
    PASSWORD,
    SESSION,
    VERIFICATION,
    Person,
    begin_sign_up,
    new_browser,
    new_phone,
)
from tests.support.identity.people import sign_up as sign_up_over_http
from tests.support.processes.service import Service

FIRST_VISIT_MAX: Final = 60_000
NEXT_VISIT_MAX: Final = 15_000
SHIFT_MAX: Final = 0.01

PUBLIC: Final = ("/", "/dashboard/sign-up", "/dashboard/sign-in", "/dashboard/forgotten", "/nothing-here")
BEGUN: Final = ("/dashboard/verify", "/dashboard/new-password")
PRIVATE: Final = (
    "/dashboard",
    "/dashboard/compose",
    "/dashboard/batches",
    "/dashboard/batches?status=completed",
    "/dashboard/keys",
    "/dashboard/upload",
    "/dashboard/webhooks",
    "/dashboard/top-up",
    "/dashboard/ledger",
    "/dashboard/settings",
    "BATCH",
    "MESSAGE",
)
LOOKS: Final = [
    pytest.param(PHONE, False, id="phone, light"),
    pytest.param(DESKTOP, True, id="desktop, dark"),
    pytest.param(PHONE, True, id="phone, dark", marks=pytest.mark.long),
    pytest.param(DESKTOP, False, id="desktop, light", marks=pytest.mark.long),
    pytest.param(WIDE, False, id="wide, light", marks=pytest.mark.long),
]
LONG: Final = "Kubatana-Tose-Trading-Enterprises-" * 3


@pytest.fixture(scope="module")
def person(service: Service) -> Person:
    """Give somebody with a long name, who has sent things of all kinds and has keys."""
    one = sign_up_over_http(service, business=LONG[:100])
    service.sql("UPDATE accounts SET balance = 1234567.8900 WHERE phone = $1", one.phone)
    for name in ("web shop", "x" * 90):
        one.browser.post("/dashboard/keys", data={"name": name, "scope": ["messages:send", "account:read"]})
    for number in range(3):
        confirmed = one.browser.post(
            "/dashboard/compose",
            data={
                "recipients": "\n".join(f"+26377120{place:04}" for place in range(20)) + " +27821230001",
                "message": f"Order {number} “is” on its way. " * 4 + "https://example.com/" + "long" * 20,
                "reference": "W" * 64 if number else "",
            },
        )
        assert "Confirm" in confirmed.text, confirmed.text
        sent = one.browser.post("/dashboard/compose/confirm", data=hidden_fields(confirmed.text))
        assert sent.status_code == 303, sent.text
    return one


def hidden_fields(page: str) -> dict[str, str]:
    """Return what the confirming form of a page carries."""
    form = re.search(r'<form[^>]*action="/dashboard/compose/confirm".*?</form>', page, re.DOTALL)
    assert form is not None
    fields = {}
    for tag in re.findall(r"<input[^>]*>", form[0]):
        name = re.search(r'name="([^"]*)"', tag)
        value = re.search(r'value="([^"]*)"', tag, re.DOTALL)
        if name is not None:
            fields[name[1]] = html.unescape(value[1]) if value is not None else ""
    for name, value in re.findall(
        r'<textarea[^>]*name="([^"]*)"[^>]*>\n?(.*?)</textarea>', form[0], re.DOTALL
    ):
        fields[name] = html.unescape(value)
    return fields


@pytest.fixture(scope="module")
def paths(person: Person) -> dict[str, str]:
    """Give the addresses of what that person has."""
    page = person.browser.get("/dashboard/batches").text
    batch = re.search(r"/dashboard/batches/bat_\w+", page)
    assert batch is not None
    message = re.search(r"/dashboard/messages/msg_\w+", person.browser.get(batch[0]).text)
    assert message is not None
    return {"BATCH": batch[0], "MESSAGE": message[0]}


def come_in(page: Page, service: Service, name: str, token: str) -> None:
    page.context.add_cookies([{"name": name, "value": token, "url": service.base}])


def begin(page: Page, service: Service, path: str) -> None:
    """Let a browser stand before the code."""
    browser = new_browser(service)
    if path == "/dashboard/verify":
        begin_sign_up(browser, new_phone(), email="tariro@example.com")
    else:
        browser.post("/dashboard/forgotten", data={"phone": new_phone()})
    come_in(page, service, VERIFICATION, browser.cookies[VERIFICATION])


def look(page: Page, path: str, name: str) -> None:
    page.goto(path)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert not overflows(page)
    assert layout_shift(page) <= SHIFT_MAX, path
    check_accessibility(page)
    screenshot(page, name)


def named(path: str) -> str:
    return "page" + path.replace("/", "-").replace("?", "-")


@pytest.mark.parametrize(("viewport", "dark"), LOOKS)
def test_every_page_can_be_used_by_everybody(
    service: Service,
    person: Person,
    paths: dict[str, str],
    open_page: Opener,
    viewport: Viewport,
    *,
    dark: bool,
) -> None:
    page = open_page(service.base, viewport=viewport, dark=dark)
    for path in PUBLIC:
        look(page, path, named(path))
    for path in BEGUN:
        begin(page, service, path)
        look(page, path, named(path))
    come_in(page, service, SESSION, person.session)
    for path in PRIVATE:
        look(page, paths.get(path, path), named(path))


@pytest.mark.parametrize(
    "visited",
    [
        pytest.param(("/", "/dashboard", "/dashboard/compose", "BATCH"), id="some"),
        pytest.param((*PUBLIC, *PRIVATE), id="all", marks=pytest.mark.long),
    ],
)
def test_a_page_costs_little_the_first_time_and_less_after(
    service: Service, person: Person, paths: dict[str, str], open_page: Opener, visited: Sequence[str]
) -> None:
    for path in visited:
        page = open_page(service.base, viewport=PHONE)
        if path in PRIVATE:
            come_in(page, service, SESSION, person.session)
        page.goto(paths.get(path, path))
        first = wire_bytes(page)
        page.goto(paths.get(path, path))
        after = wire_bytes(page)
        assert (first < FIRST_VISIT_MAX, after < NEXT_VISIT_MAX) == (True, True), (path, first, after)
        print(f"{path}: {first} bytes, then {after}")
        page.context.close()


def test_nothing_jumps_on_a_slow_line(
    service: Service, person: Person, paths: dict[str, str], open_page: Opener
) -> None:
    page = open_page(service.base, viewport=PHONE)
    come_in(page, service, SESSION, person.session)
    slow_down(page)
    for path in ("/dashboard/compose", paths["BATCH"], "/dashboard"):
        page.goto(path)
        assert layout_shift(page) <= SHIFT_MAX, path


def test_nothing_moves_while_a_page_comes_in(
    service: Service, person: Person, paths: dict[str, str], open_page: Opener
) -> None:
    with trickling(service.base) as base:
        page = open_page(base)
        come_in(page, service, SESSION, person.session)
        for path in ("/", "/dashboard/keys", paths["BATCH"]):
            # The second time the stylesheets are in the browser: it could show the first piece of the page.
            page.goto(path)
            page.goto(path)
            assert layout_shift(page) <= SHIFT_MAX, path
        page.context.close()


def test_the_way_around_is_open_to_the_keyboard(service: Service, person: Person, open_page: Opener) -> None:
    page = open_page(service.base, viewport=PHONE)
    page.goto("/dashboard/sign-in")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Phone number")).to_be_focused()
    page.keyboard.type(person.phone)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Menu")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Overview")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Compose", exact=True)).to_be_hidden()
    expect(page.get_by_role("button", name="Menu")).to_be_focused()
