"""Pages and readiness say where messages reach a simulator and no phone."""

from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from tests.support.identity.customers import Customer, open_session, words
from tests.support.identity.operators import OperatorBrowser, new_operator
from tests.support.identity.people import goes_to, run_behind_proxy
from tests.support.processes.ports import free_port
from tests.support.processes.service import NO_TLS, Service
from tumira.carriers.manage import keep_simulator, remove_carrier

CARRIERS: Final = "/operator/carriers"
PASSWORD: Final = "hushhush"


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as running:
        running.run(keep_simulator, free_port())
        yield running


@pytest.fixture(scope="module")
def admin(service: Service) -> OperatorBrowser:
    return new_operator(service)


@pytest.fixture(scope="module")
def customer(service: Service) -> Customer:
    caller = service.open_account()
    return Customer(service, caller, open_session(service, caller))


def ready(service: Service) -> tuple[int, Any]:
    answer = httpx.get(f"{service.base}/readyz", trust_env=False, verify=NO_TLS, timeout=30)
    return answer.status_code, answer.json()


def console(admin: OperatorBrowser, path: str) -> str:
    page = admin.browser.get(path)
    assert page.status_code == 200, page.text
    assert PASSWORD not in page.text
    return words(page.text)


@pytest.mark.long
def test_everybody_is_told_until_a_real_carrier_serves_every_country(
    service: Service, admin: OperatorBrowser, customer: Customer
) -> None:
    trial = "Test mode: messages to South Africa and Zimbabwe go to a simulator, not to real phones."
    only = "The simulator is the only carrier for South Africa and Zimbabwe"
    assert ready(service) == (
        200,
        {
            "status": "ready",
            "problem": "The simulator is the only carrier for ZA, ZW: messages there reach no real phone, "
            "and are billed.",
        },
    )
    for path in ("/dashboard", "/dashboard/compose", "/dashboard/keys"):
        assert trial in words(customer.page(path))
    for path in ("/operator", CARRIERS, "/operator/system", CARRIERS + "/simulator"):
        assert only in console(admin, path)

    fields = {"url": "smpp://user@smpp.example.com", "password": PASSWORD, "priority": "1"}
    # A form that comes back has no password.
    refused = admin.browser.post(CARRIERS, data=fields | {"name": "first", "priority": "first"})
    assert (refused.status_code, PASSWORD in refused.text) == (422, False)
    assert 'name="password" type="password" value=""' in refused.text
    added = admin.browser.post(CARRIERS, data=fields | {"name": "first", "countries": "ZW"})
    assert goes_to(added) == CARRIERS + "?done=first"
    listed = console(admin, CARRIERS + "?done=first")
    assert (
        "Messages that it can take no longer go to the simulator, even while the carrier is down." in listed
    )
    assert "The simulator is the only carrier for South Africa: " in listed
    assert "only carrier for ZA: " in ready(service)[1]["problem"]
    assert "Only the simulator would be left for Zimbabwe." in console(admin, CARRIERS + "/first")
    assert "Only the simulator would be left" not in console(admin, CARRIERS + "/simulator")

    # The second for Zimbabwe takes South Africa from the simulator, and then there is nothing left to take.
    for name, done in (("second", "first"), ("third", "added")):
        answer = admin.browser.post(CARRIERS, data=fields | {"name": name})
        assert goes_to(answer) == f"{CARRIERS}?done={done}"
    assert ready(service) == (200, {"status": "ready"})
    assert "Test mode" not in words(customer.page("/dashboard"))
    assert "only carrier" not in console(admin, "/operator")

    for name in ("first", "second", "third"):
        service.run(remove_carrier, name)
    assert trial in words(customer.page("/dashboard"))
