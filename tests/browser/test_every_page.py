"""Every page works for everyone: axe, target sizes, contrast, no overflow, no shift, weight, plain words."""

from collections.abc import Iterator, Sequence
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.routing import Route

from scripts.plain_english import Kind, banned_words
from tests.support.browser import (
    COLOURS,
    DESKTOP,
    NARROW,
    PHONE,
    Opener,
    Viewport,
    check_accessibility,
    layout_shift,
    load_afresh,
    overflows,
    screenshot,
    show_as,
    slow_down,
    take_faults,
    trickling,
    wire_bytes,
)
from tests.support.full_service import FullService, run_full_service
from tests.support.identity.operators import COOKIE
from tests.support.identity.people import (
    PASSWORD,
    SESSION,
    VERIFICATION,
    begin_sign_up,
    new_browser,
    new_phone,
)
from tumira.postgres.pool import Database
from tumira.web import Web

FIRST_VISIT_MAX: Final = 25_000
NEXT_VISIT_MAX: Final = 20_000
# The page that counts and prices while a customer types.
HEAVIER: Final = {"/dashboard/compose": 30_000, "/dashboard/scheduled/{schedule}/edit": 30_000}
SHIFT_MAX: Final = 0.01

# Routes whose pages stand behind a cookie of their own, or show another page; journeys check those.
ELSEWHERE: Final = {
    "/dashboard/sign-in/code",
    "/operator/sign-in/code",
    "/operator/set-up",
    "/dashboard/compose/confirm",
    "/dashboard/compose/review",
    "/dashboard/upload/review",
    "/dashboard/upload/text",
    "/dashboard/texts/review",
    "/dashboard/top-up/{id}/receipt",
    "/dashboard/ledger/{entry}/receipt",
}
NO_PAGES: Final = ("/healthz", "/readyz", "/metrics", "/static/", "/hooks/")
PUBLIC: Final = (
    "/",
    "/contact",
    "/terms",
    "/privacy",
    "/docs",
    "/docs/reference",
    "/content-policy",
    "/nothing-here",
    "/dashboard/sign-up",
    "/dashboard/sign-in",
    "/dashboard/forgotten",
)
BEGUN: Final = ("/dashboard/verify", "/dashboard/new-password")
INVITED: Final = ("/dashboard/join/{join}",)
DASHBOARD: Final = (
    "/dashboard",
    "/dashboard/health",
    "/dashboard/compose",
    "/dashboard/upload",
    "/dashboard/upload/{upload}",
    "/dashboard/upload/{upload}/send",
    "/dashboard/upload/{sent}",
    "/dashboard/lists",
    "/dashboard/lists/{list}",
    "/dashboard/lists/{list}/settings",
    "/dashboard/lists/{list}/contacts/{contact}",
    "/dashboard/texts",
    "/dashboard/texts/new",
    "/dashboard/texts/{text}",
    "/dashboard/scheduled",
    "/dashboard/scheduled/{schedule}",
    "/dashboard/scheduled/{schedule}/edit",
    "/dashboard/batches",
    "/dashboard/batches?number=x&from=2026-02-30",
    "/dashboard/batches/{batch}",
    "/dashboard/batches/{failed}",
    "/dashboard/batches/{failed}/resend",
    "/dashboard/messages/{message}",
    "/dashboard/replies",
    "/dashboard/replies?number=x",
    "/dashboard/replies/{replier}",
    "/dashboard/opt-outs",
    "/dashboard/sender-names",
    "/dashboard/keys",
    "/dashboard/keys/{key}/revoke",
    "/dashboard/webhooks",
    "/dashboard/webhooks/{endpoint}",
    "/dashboard/webhooks/{paused}",
    "/dashboard/webhooks/{gone}",
    "/dashboard/webhooks/{endpoint}/attempts/{attempt}",
    "/dashboard/top-up?amount=12.50",
    "/dashboard/top-up?amount=1",
    "/dashboard/top-up/wallet?amount=12.50",
    "/dashboard/top-up/usdt?amount=12.50",
    "/dashboard/top-up/voucher",
    "/dashboard/top-up/{top_up}",
    "/dashboard/ledger",
    "/dashboard/ledger?kind=refunds&from=2026-02-30",
    "/dashboard/ledger?kind=top-ups&to=2020-01-01",
    "/dashboard/people",
    "/dashboard/people/{member}",
    "/dashboard/people/leave",
    "/dashboard/approvals",
    "/dashboard/approvals/{approval}",
    "/dashboard/accounts",
    "/dashboard/papers",
    "/dashboard/papers/{paper}",
    "/dashboard/papers/statements/{month}",
    "/dashboard/settings",
    "/dashboard/settings/billing",
    "/dashboard/settings/changes",
    "/dashboard/settings/passcodes",
    "/dashboard/settings/second-factor",
    "/dashboard/settings/refusals/{digest}",
)
CONSOLE: Final = (
    "/operator/sign-in",
    "/operator",
    "/operator/traffic",
    "/operator/carriers",
    "/operator/carriers/main",
    "/operator/carriers/over-http",
    "/operator/routes",
    "/operator/margin",
    "/operator/margin?by=account",
    "/operator/receipts",
    "/operator/receipts/1",
    "/operator/replies",
    "/operator/replies/words",
    "/operator/messages",
    "/operator/messages?q=0771200001",
    "/operator/messages/{message}",
    "/operator/messages/batches/{batch}",
    "/operator/money",
    "/operator/vouchers",
    "/operator/vouchers/{voucher}",
    "/operator/accounts/new",
    "/operator/accounts",
    "/operator/accounts?q=zzz",
    "/operator/accounts/{account}",
    "/operator/top-ups",
    "/operator/top-ups/{doubt}",
    "/operator/prices",
    "/operator/papers",
    "/operator/papers/{paper}",
    "/operator/accounts/{account}/papers",
    "/operator/accounts/{account}/papers/{month}",
    "/operator/content",
    "/operator/content/templates",
    "/operator/content/refusals/{account}/{digest}",
    "/operator/content/near",
    "/operator/content/near/{account}/{near_digest}",
    "/operator/sender-names",
    "/operator/sender-names/{sender_name}",
    "/operator/webhooks",
    "/operator/system",
    "/operator/changes",
)

# One page of each make, for the usual suite; the others are made of the same parts.
USUAL: Final = {
    "/",
    "/docs",
    "/dashboard/sign-up",
    "/dashboard/join/{join}",
    "/dashboard",
    "/dashboard/compose",
    "/dashboard/upload/{upload}",
    "/dashboard/scheduled/{schedule}",
    "/dashboard/batches/{failed}",
    "/dashboard/messages/{message}",
    "/dashboard/top-up?amount=12.50",
    "/dashboard/people/{member}",
    "/dashboard/settings",
    "/operator",
    "/operator/carriers/main",
    "/operator/accounts/{account}",
}

PATHS: Final = (*PUBLIC, *BEGUN, *INVITED, *DASHBOARD, *CONSOLE)


@pytest.fixture(scope="module")
def full(server_url: str) -> Iterator[FullService]:
    with run_full_service(server_url) as full:
        yield full


class Screens:
    """A page for each kind of visitor that goes from route to route; a new one would take as long again."""

    def __init__(self, browser: Browser, full: FullService) -> None:
        self._opener = Opener(browser)
        self._full = full
        self._pages: dict[object, Page] = {}

    def show(self, path: str, viewport: Viewport, *, dark: bool = False) -> Page:
        """Give the page of those who may see a route; it has cached nothing."""
        kind = (
            PUBLIC if path in (*PUBLIC, *BEGUN, *CONSOLE[:1]) else DASHBOARD if path in DASHBOARD else CONSOLE
        )
        page = self._pages.get((kind, viewport.touch))
        if page is None:
            page = self._opener(self._full.service.base, viewport=viewport, dark=dark)
            self._pages[kind, viewport.touch] = page
            load_afresh(page)
        come_in(page, self._full, path)
        show_as(page, viewport, dark=dark)
        return page

    def take_faults(self) -> Sequence[str]:
        return [fault for page in self._pages.values() for fault in take_faults(page)]

    def close(self) -> None:
        self._opener.close()


@pytest.fixture(scope="module")
def all_screens(browser: Browser, full: FullService) -> Iterator[Screens]:
    screens = Screens(browser, full)
    yield screens
    screens.close()


@pytest.fixture
def screens(all_screens: Screens) -> Iterator[Screens]:
    """Give the pages; something that goes wrong on one of them fails the test at its end."""
    yield all_screens
    faults = all_screens.take_faults()
    if faults:
        pytest.fail("The browser noticed:\n" + "\n".join(faults), pytrace=False)


def come_in(page: Page, full: FullService, path: str) -> None:
    base, cookies = full.service.base, {}
    if path in DASHBOARD:
        cookies[SESSION] = full.person.session
    elif path in CONSOLE[1:]:
        cookies[COOKIE] = full.admin.cookie
    elif path in BEGUN:
        browser = new_browser(full.service)
        if path == "/dashboard/verify":
            begin_sign_up(browser, new_phone(), email="tariro@example.com")
        else:
            browser.post("/dashboard/forgotten", data={"phone": new_phone()})
        cookies[VERIFICATION] = browser.cookies[VERIFICATION]
    page.context.add_cookies([{"name": name, "value": value, "url": base} for name, value in cookies.items()])


def test_every_route_is_in_the_list() -> None:
    web = Web(Database("postgresql://nobody@127.0.0.1:1/nothing"))
    routes = [route for route in web._pages.router.routes if isinstance(route, Route)]
    listed = [path.partition("?")[0] for path in PATHS]
    missing = {
        route.path
        for route in routes
        if "GET" in (route.methods or ())
        and not route.path.startswith(NO_PAGES)
        and not route.path.endswith((".csv", ".xlsx", ".pdf", "/progress", "/now", "/deposits", "/paper"))
        and not any(route.path_regex.match(path) for path in listed)
    }
    assert missing == ELSEWHERE


@pytest.mark.parametrize(
    "path", [path if path in USUAL else pytest.param(path, marks=pytest.mark.long) for path in PATHS]
)
def test_a_page_works_for_everyone(full: FullService, screens: Screens, path: str) -> None:
    page = screens.show(path, PHONE)
    address, name = path.format(**full.paths), "page" + path.replace("/", "-").replace("?", "-")
    answer = page.goto(address)
    assert answer is not None
    assert answer.status in ({404} if path == "/nothing-here" else {200, 422})
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    first = wire_bytes(page)
    assert not overflows(page)
    assert layout_shift(page) <= SHIFT_MAX
    check_accessibility(page)
    screenshot(page, name)

    # The reference repeats the messages of the API, which are a contract.
    kind = Kind.OTHER if path == "/docs/reference" else Kind.PAGE
    assert not banned_words(page.title() + "\n" + page.inner_text("body"), kind)

    show_as(page, NARROW, dark=False)
    assert not overflows(page)
    assert first <= HEAVIER.get(path, FIRST_VISIT_MAX)


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
def test_a_page_works_on_a_desk_and_again(full: FullService, open_page: Opener, path: str) -> None:
    page = open_page(full.service.base, viewport=DESKTOP)
    come_in(page, full, path)
    address, name = path.format(**full.paths), "page" + path.replace("/", "-").replace("?", "-")
    page.goto(address)
    assert not overflows(page)
    screenshot(page, name)
    page.goto(address)
    assert layout_shift(page) <= SHIFT_MAX
    assert wire_bytes(page) <= NEXT_VISIT_MAX


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
def test_a_page_works_in_the_dark(full: FullService, screens: Screens, path: str) -> None:
    page = screens.show(path, DESKTOP, dark=True)
    page.goto(path.format(**full.paths))
    check_accessibility(page, COLOURS)
    name = "page" + path.replace("/", "-").replace("?", "-")
    screenshot(page, name)
    show_as(page, PHONE, dark=True)
    assert not overflows(page)
    screenshot(page, name)


@pytest.mark.long
def test_nothing_moves_on_a_slow_line(full: FullService, open_page: Opener) -> None:
    page = open_page(full.service.base, viewport=PHONE)
    come_in(page, full, "/dashboard")
    slow_down(page)
    for path in ("/dashboard/compose", "/dashboard/batches/{batch}", "/dashboard"):
        page.goto(path.format(**full.paths))
        assert layout_shift(page) <= SHIFT_MAX, path


@pytest.mark.long
def test_nothing_moves_while_a_page_arrives(full: FullService, open_page: Opener) -> None:
    with trickling(full.service.base) as base:
        page = open_page(base)
        page.context.add_cookies([{"name": SESSION, "value": full.person.session, "url": base}])
        for path in ("/", "/dashboard/keys", "/dashboard/batches/{batch}"):
            # The second time the stylesheets are cached: the browser could show the first piece of the page.
            page.goto(path.format(**full.paths))
            page.goto(path.format(**full.paths))
            assert layout_shift(page) <= SHIFT_MAX, path
        page.context.close()


@pytest.mark.long
def test_the_keyboard_reaches_everything(full: FullService, open_page: Opener) -> None:
    page = open_page(full.service.base, viewport=PHONE)
    page.goto("/dashboard/sign-in")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Country")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Phone number")).to_be_focused()
    page.keyboard.type(full.person.phone)
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Balance")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Menu")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Overview")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Compose", exact=True)).to_be_hidden()
    expect(page.get_by_role("button", name="Menu")).to_be_focused()
