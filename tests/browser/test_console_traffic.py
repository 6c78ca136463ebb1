"""Can operators watch the traffic and customers the networks, on a phone, on a desk, and without scripts?"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import (
    DESKTOP,
    PHONE,
    Opener,
    Viewport,
    check_accessibility,
    layout_shift,
    overflows,
    screenshot,
    wire_bytes,
)
from tests.support.identity.operators import COOKIE, OperatorBrowser, new_operator
from tests.support.identity.people import SESSION, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tumira.core.histogram import bucket_of
from tumira.delivery.store import latency as latencies
from tumira.identity.store.operators import Role

TRAFFIC: Final = "/operator"
HEALTH: Final = "/dashboard/health"
SHIFT_MAX: Final = 0.01
FIRST_VISIT_MAX: Final = 60_000
LOOKS: Final = [
    pytest.param(PHONE, False, id="phone, light"),
    pytest.param(DESKTOP, True, id="desktop, dark", marks=pytest.mark.long),
    pytest.param(PHONE, True, id="phone, dark", marks=pytest.mark.long),
    pytest.param(DESKTOP, False, id="desktop, light", marks=pytest.mark.long),
]

NETWORKS: Final = (("Econet", "ZW"), ("NetOne", "ZW"), ("Vodacom", "ZA"), ("Cell C", "ZA"), ("ZA", "ZA"))


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a busy service that the tests of this file share."""
    with run_behind_proxy(server_url) as running:
        _fill(running)
        yield running


@pytest.fixture(scope="module")
def operator(service: Service) -> OperatorBrowser:
    """Give an operator who may only look."""
    return new_operator(service, role=Role.VIEWER)


def _fill(service: Service) -> None:
    caller = service.open_account()
    service.send(caller, to=[f"+2637712{place:05}" for place in range(40)])
    service.send(caller, to="+27821230001")
    now = datetime.now(UTC)
    for place, (network, country) in enumerate(NETWORKS):
        for back, ms in ((0, 30_000 if network == "NetOne" else 180), (48, 240)):
            slot = latencies.slot_of(now - timedelta(hours=back))
            for step, lane, factor in (("handover", 0, 1), ("handover", 1, 400), ("receipt", 0, 30)):
                service.sql(
                    "INSERT INTO latencies VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
                    slot,
                    step,
                    network,
                    country,
                    lane,
                    bucket_of(ms * factor),
                    12_345 >> 3 * place,
                )
            for outcome, count in (("delivered", 9_000 >> 3 * place), ("undelivered", 310 >> 2 * place)):
                service.sql(
                    "INSERT INTO outcomes VALUES ($1, 1, $2, $3, $4, $5)",
                    slot,
                    network,
                    country,
                    outcome,
                    count,
                )
    service.sql(
        "INSERT INTO traffic (account_id, day, country, delivered, failed, unconfirmed)"
        " SELECT gen_random_uuid(), (now() + interval '2 hours')::date - back, country, 900 + 9 * back, 40, 5"
        "  FROM generate_series(0, 40) AS back, unnest(ARRAY['ZW', 'ZA']) AS country"
    )


def come_in(page: Page, service: Service, operator: OperatorBrowser) -> None:
    page.context.add_cookies([{"name": COOKIE, "value": operator.cookie, "url": service.base}])


def check(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert not overflows(page)
    assert layout_shift(page) <= SHIFT_MAX
    check_accessibility(page)
    screenshot(page, name)


@pytest.mark.parametrize(("viewport", "dark"), LOOKS)
def test_everybody_can_read_the_traffic_and_the_health(
    service: Service, operator: OperatorBrowser, open_page: Opener, viewport: Viewport, *, dark: bool
) -> None:
    page = open_page(service.base, viewport=viewport, dark=dark)
    come_in(page, service, operator)
    page.goto(TRAFFIC)
    expect(page.get_by_role("heading", level=1)).to_have_text("Traffic")
    expect(page.get_by_role("img", name="messages in the last 30 days")).to_be_visible()
    page.get_by_text("The same as a table").click()
    expect(page.get_by_role("row")).not_to_have_count(0)
    check(page, "console-traffic")

    person = sign_up(service)
    page.context.add_cookies([{"name": SESSION, "value": person.session, "url": service.base}])
    page.goto("/dashboard")
    page.get_by_role("link", name="Network health", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Network health")
    expect(page.get_by_text("Slower than usual")).to_have_count(1)
    check(page, "network-health")


def test_an_open_page_shows_what_is_new_by_itself(
    service: Service, operator: OperatorBrowser, open_page: Opener
) -> None:
    page = open_page(service.base, viewport=DESKTOP)
    come_in(page, service, operator)
    page.clock.install()
    page.goto(TRAFFIC)
    expect(page.get_by_text("Updates by itself.")).to_be_visible()
    doubt = page.locator('[data-live="in-doubt"]')
    expect(doubt).to_have_text("0")
    service.sql("INSERT INTO retries VALUES (gen_random_uuid(), now(), true, 1)")
    page.clock.run_for(5_100)
    expect(doubt).to_have_text("1")
    service.sql("DELETE FROM retries")
    with page.expect_response("**/operator/traffic/now"):
        page.clock.run_for(5_100)
    expect(doubt).to_have_text("0")
    # After ten minutes nobody may be there any more.
    page.clock.fast_forward(600_000)
    expect(page.get_by_text("This page no longer updates by itself.")).to_be_visible()


def test_without_scripts_a_link_refreshes_the_page(
    service: Service, operator: OperatorBrowser, open_page: Opener
) -> None:
    page = open_page(service.base, viewport=PHONE, javascript=False)
    come_in(page, service, operator)
    page.goto(TRAFFIC)
    expect(page.get_by_text("Updates by itself.")).to_have_count(0)
    service.sql("INSERT INTO retries VALUES (gen_random_uuid(), now(), true, 1)")
    page.get_by_role("link", name="Refresh").click()
    expect(page.locator('[data-live="in-doubt"]')).to_have_text("1")
    service.sql("DELETE FROM retries")


def test_the_traffic_costs_little_on_the_wire(
    service: Service, operator: OperatorBrowser, open_page: Opener
) -> None:
    page = open_page(service.base, viewport=PHONE)
    come_in(page, service, operator)
    page.goto(TRAFFIC)
    assert wire_bytes(page) < FIRST_VISIT_MAX
