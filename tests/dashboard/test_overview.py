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
    assert "You sent nothing in the last 30 days." in words(page)
    assert [link(page, name) for name in ("Send", "Top up")] == ["/dashboard/compose", "/dashboard/top-up"]
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
    assert "Today 5 messages 2 delivered 1 failed 2 in progress" in said
    assert "Zimbabwe 50.0% 1 of 2 South Africa 100% 1 of 1" in said
    # No carrier is connected here, and the page says so instead of letting its reader wonder.
    assert (
        "2 messages in progress 2 to Zimbabwe: waiting, because no carrier is connected at the moment" in said
    )
    chart = re.search(r'<svg class="chart".*?</svg>', page, re.DOTALL)
    assert chart is not None
    assert set(re.findall(r'<rect class="(\w+)"', chart[0])) == {"slot", "delivered", "failed", "waiting"}
    assert "Delivered 2" in chart[0]
    table = page[page.index("Show as a table") :]
    assert "Messages Delivered Failed Unconfirmed In progress" in words(table)
    assert re.findall(r"<td>(\d+)</td>", table) == ["5", "2", "1", "0", "2"]


def test_nobody_sees_the_traffic_of_another(customer: Customer, service: Service) -> None:
    customer.send()
    caller = service.open_account()
    assert "You sent nothing in the last 30 days." in words(
        Customer(service, caller, open_session(service, caller)).page(OVERVIEW)
    )


def test_first_steps_are_ticked_off_and_can_be_hidden(service: Service) -> None:
    caller = service.open_account("0")
    service.sql("DELETE FROM api_keys WHERE account_id = $1", caller.id)
    customer = Customer(service, caller, open_session(service, caller))
    page = customer.page(OVERVIEW)
    assert [
        link(page, name)
        for name in (
            "Top up your balance",
            "Send a first message",
            "For developers: create an API key",
            "For developers: add a webhook endpoint",
        )
    ] == ["/dashboard/top-up", "/dashboard/compose", "/dashboard/keys", "/dashboard/webhooks"]
    assert "Verify your phone number (done)" in words(page)
    service.sql("UPDATE accounts SET balance = 5 WHERE id = $1", caller.id)
    assert "Top up your balance (done)" in words(customer.page(OVERVIEW))
    hidden = customer.post("/dashboard/hide-steps")
    assert hidden.headers["location"] == OVERVIEW
    cookie = hidden.headers["set-cookie"].partition(";")[0]
    again = customer.request("GET", OVERVIEW, {"Cookie": f"tumira_session={customer.token}; {cookie}"})
    assert "First steps" not in again.text


def test_what_needs_attention_is_said_with_the_way_to_solve_it(customer: Customer, service: Service) -> None:
    assert "notice warning" not in customer.page(OVERVIEW)
    service.sql("UPDATE accounts SET balance = 0.80, low_balance = 1 WHERE id = $1", customer.caller.id)
    service.sql(
        "INSERT INTO webhook_endpoints (id, account_id, url, secret, position, state, failures, warnings)"
        " VALUES (uuidv7(), $1, 'https://one.example/<b>', sha256('x'), 0, 'active', 25, 1),"
        " (uuidv7(), $1, 'https://two.example/', sha256('x'), 0, 'disabled', 0, 0),"
        " (uuidv7(), $1, 'https://three.example/', sha256('x'), 0, 'paused', 0, 0),"
        " (uuidv7(), $1, 'https://four.example/', sha256('x'), 0, 'active', 1, 0)",
        customer.caller.id,
    )
    service.sql(
        "INSERT INTO uploads (id, account_id, file_name, columns, message, state, rows, recipients,"
        " total_cost) VALUES (uuidv7(), $1, 'march.csv', '{to}', 'Hello', 'stopped', 1, 1, 0.04)",
        customer.caller.id,
    )
    page = customer.page(OVERVIEW)
    said = words(page)
    for expected in (
        "Your balance is low: US$0.80. Top up",
        "Sending the file march.csv stopped. See why",
        "The webhook endpoint https://one.example/<b> is failing: events wait to be delivered. See details",
        "The webhook endpoint https://two.example/ was switched off because it kept failing. See details",
        "The webhook endpoint https://three.example/ is paused: events are not sent to it. See details",
    ):
        assert expected in said, expected
    assert "four.example" not in said
    assert "<b>" not in page
    assert len(re.findall(r'href="/dashboard/(?:webhooks/end_|upload/upl_)\w+"', page)) == 4


def test_the_latest_batches_are_shown_with_their_results(customer: Customer) -> None:
    sent = [customer.send(body=f"Your code is {place}.") for place in range(6)][::-1]
    page = customer.page(OVERVIEW)
    assert re.findall(r'href="/dashboard/batches/(bat_\w+)"', page) == sent[:5]
    assert words(page).count("1 in progress") == 5
    assert 'data-ask="/dashboard"' in page
    assert link(page, "All batches") == "/dashboard/batches"
