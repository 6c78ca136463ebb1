"""Can operators watch carriers, receipts and endpoints and put them right, on a phone as on a desk?"""

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
from tests.support.identity.people import run_behind_proxy
from tests.support.processes.service import Service
from tumira.delivery.manage_carriers import add_carrier
from tumira.delivery.store import latency as latencies
from tumira.identity.store.operators import Role

CARRIERS: Final = "/operator/carriers"
RECEIPTS: Final = "/operator/receipts"
WEBHOOKS: Final = "/operator/webhooks"
SHIFT_MAX: Final = 0.01
FIRST_VISIT_MAX: Final = 60_000
LOOKS: Final = [
    pytest.param(PHONE, False, id="phone, light"),
    pytest.param(DESKTOP, True, id="desktop, dark", marks=pytest.mark.long),
    pytest.param(PHONE, True, id="phone, dark", marks=pytest.mark.long),
    pytest.param(DESKTOP, False, id="desktop, light", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    """Give a service with some trouble in it, which the tests of this file share."""
    with run_behind_proxy(server_url) as running:
        _add_carriers(running)
        _add_receipts(running)
        _add_endpoints(running)
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> OperatorBrowser:
    """Give an operator who may change things."""
    return new_operator(service)


def _add_carriers(service: Service) -> None:
    url = "smpp://tumira:secret@smpp.example.com?binds=2&window=64&tps=200"
    for place, name in enumerate(("main", "a-name-as-long-as-a-name-can-be-1")):
        service.run(add_carrier, name[:32], url, ["ZW", "ZA"] if place else None, place)
    service.sql(
        "INSERT INTO binds (carrier_id, number, worker, leased_until, state, problem, outstanding, pace)"
        " SELECT id, number, 'gateway-node-1.example.com:12345:abcdef', now() + interval '1 hour',"
        "        CASE number WHEN 1 THEN 'bound' ELSE 'down' END,"
        "        CASE number WHEN 2 THEN 'smpp.example.com:2775 did not answer in 10 s; check host and port'"
        "        END, 17 * number, 100"
        "   FROM carriers, generate_series(1, 2) AS number WHERE name = 'main'"
    )
    service.sql(
        "INSERT INTO binds (carrier_id, number, worker, leased_until, state, problem, outstanding, silent)"
        " SELECT id, 1, 'gateway-node-1.example.com:12345:abcdef', now() + interval '1 hour', 'failing',"
        "        'silent: 64 submits in a row were not answered in time', 1, true"
        "   FROM carriers WHERE name <> 'main'"
    )
    slot = latencies.slot_of(datetime.now(UTC) - timedelta(minutes=1))
    for outcome, count in (
        ("sent", 12_345),
        ("delivered", 11_111),
        ("undelivered", 432),
        ("ABSENT_SUBSCRIBER", 400),
        ("RTHROTTLED (0x58)", 77),
        ("no answer", 1),
    ):
        service.sql(
            "INSERT INTO outcomes SELECT $1, id, 'Econet', 'ZW', $2, $3 FROM carriers WHERE name = 'main'",
            slot,
            outcome,
            count,
        )


def _add_receipts(service: Service) -> None:
    caller = service.open_account()
    service.send(caller, to=[f"+2637712{place:05}" for place in range(8)])
    service.sql("DELETE FROM queue")
    service.sql(
        "INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key, claimed_at,"
        " submitted_at, answered_at)"
        " SELECT id, 1, 0, 1, right(recipient, 6), right(recipient, 6), now(), now(), now() FROM messages"
    )
    service.sql("UPDATE messages SET status = 'sent', sent_at = now()")
    service.sql(
        "INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, error, receipt,"
        " received_at, next_try_at)"
        " SELECT 1, 'a-prefix-that-goes-on-and-on-' || right(recipient, 6), substr(recipient, 2), 'DELIVRD',"
        "        '000', '', now() + interval '1 second', now() FROM messages ORDER BY recipient"
    )
    service.sql(
        "INSERT INTO unmatched_receipts (carrier_id, recipient, state, receipt, received_at, next_try_at)"
        " VALUES (1, '27821230001', 'ACCEPTD', '', now() - interval '2 days', now())"
    )


def _add_endpoints(service: Service) -> None:
    service.sql(
        "INSERT INTO webhook_endpoints (id, account_id, url, secret, state, reason, position, failures,"
        "                               failing_since, succeeded_at)"
        " SELECT gen_random_uuid(), $1, 'https://hooks-of-a-customer-' || place || '.example.com/s3cr3t',"
        "        sha256(''), CASE place WHEN 3 THEN 'disabled' ELSE 'active' END,"
        "        CASE place WHEN 3 THEN 'Nothing arrived for 5 days; the last try: 503' END, 0, 9 * place,"
        "        now() - interval '1 day' * place, CASE place WHEN 1 THEN now() END"
        "   FROM generate_series(1, 3) AS place",
        service.open_account().id,
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
def test_every_page_can_be_read_by_everybody(
    service: Service, admin: OperatorBrowser, open_page: Opener, viewport: Viewport, *, dark: bool
) -> None:
    page = open_page(service.base, viewport=viewport, dark=dark)
    come_in(page, service, admin)
    page.goto(CARRIERS)
    expect(page.get_by_role("heading", level=1)).to_have_text("Carriers")
    page.get_by_text("What became of its messages").first.click()
    check(page, "console-carriers")
    page.get_by_role("link", name="Change or test main").click()
    check(page, "console-carrier")
    page.get_by_label("Window").fill("0")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("Window")
    check(page, "console-carrier-fault")
    page.goto(RECEIPTS)
    expect(page.get_by_role("row")).not_to_have_count(0)
    check(page, "console-receipts")
    page.get_by_role("link", name="a-prefix-that").first.click()
    check(page, "console-receipt")
    page.goto(WEBHOOKS)
    expect(page.get_by_role("heading", level=2)).not_to_have_count(0)
    check(page, "console-webhooks")


@pytest.mark.parametrize("javascript", [True, False], ids=["with scripts", "without scripts"])
def test_an_admin_puts_things_right_on_a_phone(
    service: Service, admin: OperatorBrowser, open_page: Opener, *, javascript: bool
) -> None:
    page = open_page(service.base, viewport=PHONE, javascript=javascript)
    come_in(page, service, admin)
    page.goto(RECEIPTS)
    page.get_by_role("link", name="a-prefix-that").first.click()
    page.get_by_role("radio").first.check()
    page.get_by_role("region", name="What it may be about").get_by_label("Note").fill("The carrier said so")
    page.get_by_role("button", name="Match by hand").click()
    expect(page.get_by_role("status")).to_contain_text("The receipt is matched")
    page.get_by_role("link", name="a-prefix-that").first.click()
    page.get_by_role("region", name="Dismiss it").get_by_label("Note").fill("A test of theirs")
    page.get_by_role("button", name="Dismiss the receipt").click()
    expect(page.get_by_role("status")).to_contain_text("The receipt is dismissed")
    page.goto(CARRIERS)
    name = f"added-{'with' if javascript else 'without'}"
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_label("URL").fill("smpp://user:hushhush@127.0.0.1:9")
    page.get_by_role("button", name="Add the carrier").click()
    expect(page.get_by_role("status")).to_contain_text("The carrier is added")
    page.get_by_role("link", name=f"Change or test {name}").click()
    page.get_by_label("Priority").fill("55")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status")).to_contain_text("The carrier is changed")
    page.get_by_role("button", name="Test the connection").click()
    expect(page.get_by_role("alert")).to_contain_text("Nobody listens on 127.0.0.1:9")
    page.get_by_label("Name of the carrier").fill(name)
    page.get_by_role("button", name="Remove the carrier").click()
    expect(page.get_by_role("status")).to_contain_text("The carrier is removed")
    page.goto(WEBHOOKS)
    page.get_by_role("button", name="Try at once").first.click()
    expect(page.get_by_role("status")).to_contain_text("The endpoint is active")


def test_a_viewer_sees_the_same_without_the_forms(service: Service, open_page: Opener) -> None:
    page = open_page(service.base, viewport=DESKTOP)
    come_in(page, service, new_operator(service, Role.VIEWER))
    for path in (CARRIERS, f"{CARRIERS}/main", RECEIPTS, WEBHOOKS):
        page.goto(path)
        expect(page.get_by_role("main").get_by_role("button")).to_have_count(0)
        check_accessibility(page)
    page.goto(RECEIPTS)
    page.get_by_role("link", name="a-prefix-that").first.click()
    expect(page.get_by_role("main").get_by_role("radio")).to_have_count(0)
    check_accessibility(page)


def test_the_carriers_cost_little_on_the_wire(
    service: Service, admin: OperatorBrowser, open_page: Opener
) -> None:
    page = open_page(service.base, viewport=PHONE)
    come_in(page, service, admin)
    page.goto(CARRIERS)
    assert wire_bytes(page) < FIRST_VISIT_MAX
