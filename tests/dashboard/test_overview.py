"""The overview."""

import re
from typing import Final

import pytest

from tests.support.identity.customers import Customer, link, open_session, words
from tests.support.processes.service import Service
from tumira.core.ids import BATCH, read_id

OVERVIEW: Final = "/dashboard"


@pytest.fixture
def customer(service: Service) -> Customer:
    caller = service.open_account()
    return Customer(service, caller, open_session(service, caller))


def test_a_new_account_sees_its_balance_what_it_buys_and_what_to_do_next(customer: Customer) -> None:
    page = customer.page(OVERVIEW)
    assert "US$100.00 2,500 messages to Zimbabwe 5,000 messages to South Africa" in words(page)
    assert "Nothing was sent in this time." in words(page)
    assert link(page, "Write your first message") == "/dashboard/compose"
    assert '<svg class="chart"' not in page


def test_what_was_sent_is_drawn_counted_and_explained(customer: Customer) -> None:
    ended = customer.send("+263771200001", "+263771200002", "+27821230001")
    customer.send("+263771200003", "+263771200004")
    batch_id = read_id(BATCH, ended)
    customer.service.sql(
        "UPDATE batches SET pending = 0, status = 'completed', completed_at = now() WHERE id = $1", batch_id
    )
    customer.service.sql(
        "INSERT INTO traffic (account_id, day, country, delivered, undelivered)"
        " SELECT $1, (now() AT TIME ZONE 'Africa/Harare')::date, country, delivered, lost"
        "   FROM (VALUES ('ZW', 1, 1), ('ZA', 1, 0)) AS ended (country, delivered, lost)",
        customer.caller.id,
    )
    page = customer.page(OVERVIEW)
    said = words(page)
    assert "Today 5 messages 2 delivered 2 on their way 1 not delivered, refunded" in said
    assert "Zimbabwe 50.0% 1 of 2 South Africa 100% 1 of 1" in said
    # No carrier is connected here, and the page says so instead of letting its reader wonder.
    assert (
        "2 messages on their way 2 to Zimbabwe: waiting for a carrier: none is connected for Zimbabwe" in said
    )
    chart = re.search(r'<svg class="chart".*?</svg>', page, re.DOTALL)
    assert chart is not None
    assert set(re.findall(r'<rect class="(\w+)"', chart[0])) == {"slot", "delivered", "failed", "waiting"}
    assert "Delivered 2" in chart[0]
    table = page[page.index("Show as a table") :]
    assert "Messages Delivered Failed Unconfirmed On the way" in words(table)
    assert re.findall(r"<td>(\d+)</td>", table) == ["5", "2", "1", "0", "2"]


def test_nobody_sees_the_traffic_of_another(customer: Customer, service: Service) -> None:
    customer.send()
    caller = service.open_account()
    assert "Nothing was sent in this time." in words(
        Customer(service, caller, open_session(service, caller)).page(OVERVIEW)
    )
