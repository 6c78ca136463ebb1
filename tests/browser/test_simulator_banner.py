"""Can everybody read that the simulator is the only carrier, on a phone as on a desk?"""

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.support.browser import (
    DESKTOP,
    PHONE,
    Opener,
    Viewport,
    check_accessibility,
    layout_shift,
    overflows,
    screenshot,
)
from tests.support.identity.customers import open_session
from tests.support.identity.operators import COOKIE, new_operator
from tests.support.identity.people import run_behind_proxy
from tests.support.processes.service import Service, free_port
from tumira.delivery.manage_carriers import keep_simulator

SHIFT_MAX: Final = 0.01
LOOKS: Final = [
    pytest.param(PHONE, False, id="phone, light"),
    pytest.param(DESKTOP, True, id="desktop, dark", marks=pytest.mark.long),
    pytest.param(DESKTOP, False, id="desktop, light", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a service whose one carrier is the simulator."""
    with run_behind_proxy(server_url) as running:
        running.run(keep_simulator, free_port())
        yield running


@pytest.mark.parametrize(("viewport", "dark"), LOOKS)
def test_the_banner_can_be_read_by_everybody(
    service: Service, open_page: Opener, viewport: Viewport, *, dark: bool
) -> None:
    page = open_page(service.base, viewport=viewport, dark=dark)
    cookies = {
        "tumira_session": open_session(service, service.open_account()),
        COOKIE: new_operator(service).cookie,
    }
    page.context.add_cookies(
        [{"name": name, "value": value, "url": service.base} for name, value in cookies.items()]
    )
    for path, words in (
        ("/dashboard", "This is a trial: messages to South Africa and Zimbabwe go to a simulator"),
        ("/operator/carriers", "The simulator is the only carrier for South Africa and Zimbabwe"),
        ("/operator/carriers/simulator", "The handsets of the simulator are emptied, too."),
    ):
        page.goto(path)
        expect(page.get_by_text(words)).to_be_visible()
        assert not overflows(page)
        assert layout_shift(page) <= SHIFT_MAX
        check_accessibility(page)
        screenshot(page, f"simulator banner {path.strip('/').replace('/', ' ')}")
