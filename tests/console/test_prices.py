"""Countries and prices, set now or scheduled, each counting once."""

import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.support.identity.operators import OperatorBrowser, new_operator
from tests.support.identity.people import alert, at_once, goes_to
from tests.support.processes.service import Service
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.html.page import LOCAL
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.pricing import actions

PRICES: Final = "/operator/prices"
DUE: Final = next(task for task in MAINTENANCE_TASKS if task.name == "put prices into force")
ZAMBIA: Final = {"new_country": "zm", "name": "Zambia", "calling_code": "+260", "lengths": "9"}
NUMBER: Final = "+260771200001"


@pytest.fixture(scope="module")
def admin(service: Service) -> OperatorBrowser:
    return new_operator(service, name="Petra Prices")


def trail(service: Service, what: str) -> list[tuple[str, str]]:
    rows = service.sql("SELECT actor, detail FROM operator_changes WHERE what = $1 ORDER BY id", what)
    return [(row["actor"], row["detail"]) for row in rows]


def price_of(service: Service, country: str, status: str = "active") -> Decimal | None:
    rows = service.sql("SELECT price_usd FROM prices WHERE country = $1 AND status = $2", country, status)
    return rows[0][0] if rows else None


def hidden_in(page: httpx.Response) -> Mapping[str, str]:
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page.text)
    return {name: html.unescape(value) for name, value in fields}


def later(minutes: int = 60) -> str:
    return f"{datetime.now(LOCAL) + timedelta(minutes=minutes):%Y-%m-%dT%H:%M}"


def make_due(service: Service, country: str) -> None:
    service.sql("UPDATE price_schedule SET from_at = from_at - interval '1 day' WHERE country = $1", country)


def schedule(admin: OperatorBrowser, country: str, price: str, from_at: str) -> httpx.Response:
    asked = {"later_country": country, "later_price": price, "from_at": from_at}
    return admin.browser.post(PRICES + "/schedule", data={**asked, "confirmed": "yes"})


def test_a_country_is_added_priced_and_then_sent_to(service: Service, admin: OperatorBrowser) -> None:
    caller = service.open_account()
    added = admin.browser.post(PRICES + "/destinations", data=ZAMBIA)
    assert goes_to(added) == PRICES + "?done=added"
    page = admin.browser.get(PRICES).text
    assert "+260 and 9 digits" in page
    assert "no price: not sent to" in page
    assert "UNSUPPORTED_DESTINATION" in service.send(caller, to=NUMBER).text

    asked = {"country": "ZM", "price": "0.03", "status": "active"}
    confirm = admin.browser.post(PRICES + "/set", data=asked)
    assert confirm.status_code == 200
    assert "cannot be sent to" in confirm.text
    assert "US$0.03 a segment" in confirm.text
    assert price_of(service, "ZM") is None
    assert hidden_in(confirm) == {**asked, "confirmed": "yes"}
    assert goes_to(admin.browser.post(PRICES + "/set", data=hidden_in(confirm))) == PRICES + "?done=set"
    assert service.send(caller, to=NUMBER).json()["total_cost"] == "0.0300"

    assert trail(service, "destination added") == [("operator:Petra Prices", "Zambia (ZM), +260, 9 digits")]
    assert trail(service, "price set")[-1] == ("operator:Petra Prices", "sms to ZM: none → 0.0300 USD")
    again = admin.browser.post(PRICES + "/destinations", data=ZAMBIA)
    assert (again.status_code, "in the list already" in alert(again)) == (422, True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("new_country", "Z"),
        ("new_country", "ZMB"),
        ("new_country", "Z1"),
        ("name", ""),
        ("name", "\u202e"),
        ("calling_code", "0260"),
        ("calling_code", "26000"),
        ("calling_code", "2x"),
        ("lengths", ""),
        ("lengths", "0"),
        ("lengths", "15"),
        ("lengths", "8;9"),
        ("lengths", "1,2,3,4,5,6"),
        ("lengths", "٩"),
    ],
)
def test_a_country_that_cannot_be_is_refused_beside_its_field(
    admin: OperatorBrowser, field: str, value: str
) -> None:
    refused = admin.browser.post(PRICES + "/destinations", data={**ZAMBIA, "new_country": "XY", field: value})
    assert refused.status_code == 422
    assert f'id="{field}-fault"' in refused.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("country", "QQ"),
        ("price", ""),
        ("price", "1e3"),
        ("price", "-1"),
        ("price", "0.00001"),
        ("price", "5,00"),
        ("status", "free"),
    ],
)
def test_a_price_that_cannot_be_is_refused_beside_its_field(
    service: Service, admin: OperatorBrowser, field: str, value: str
) -> None:
    before = price_of(service, "ZW")
    asked = {"country": "ZW", "price": "0.5", "status": "active", "confirmed": "yes", field: value}
    refused = admin.browser.post(PRICES + "/set", data=asked)
    assert refused.status_code == 422
    assert f'id="{field}-fault"' in refused.text
    assert price_of(service, "ZW") == before


def test_a_price_is_announced_and_the_front_page_shows_it(service: Service, admin: OperatorBrowser) -> None:
    asked = {"country": "ZW", "price": "0.0123", "status": "coming_soon", "confirmed": "yes"}
    before = price_of(service, "ZW")
    assert goes_to(admin.browser.post(PRICES + "/set", data=asked)) == PRICES + "?done=announced"
    assert price_of(service, "ZW") == before
    assert "US$0.0123" in admin.browser.get("/").text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("later_country", "QQ"),
        ("later_price", "much"),
        ("from_at", ""),
        ("from_at", "tomorrow"),
        ("from_at", "2020-01-01T00:00"),
        ("from_at", "2020-01-01T00:00Z"),
        ("from_at", "9999-12-31T23:59"),
    ],
)
def test_a_scheduled_price_that_cannot_be_is_refused_beside_its_field(
    service: Service, admin: OperatorBrowser, field: str, value: str
) -> None:
    waiting = len(service.sql("SELECT FROM price_schedule"))
    asked = {"later_country": "ZW", "later_price": "0.5", "from_at": later(), "confirmed": "yes"}
    refused = admin.browser.post(PRICES + "/schedule", data={**asked, field: value})
    assert refused.status_code == 422
    assert f'id="{field}-fault"' in refused.text
    assert len(service.sql("SELECT FROM price_schedule")) == waiting


def test_a_scheduled_price_is_confirmed_beside_the_present_one_and_counts_once(
    service: Service, admin: OperatorBrowser
) -> None:
    caller = service.open_account()
    present = price_of(service, "ZA")
    asked = {"later_country": "ZA", "later_price": "0.0222", "from_at": later()}
    confirm = admin.browser.post(PRICES + "/schedule", data=asked)
    assert confirm.status_code == 200
    assert f"US${present:.3f} a segment" in confirm.text or f"US${present:.2f} a segment" in confirm.text
    assert "US$0.0222 a segment" in confirm.text
    assert not service.sql("SELECT FROM price_schedule WHERE country = 'ZA'")
    done = admin.browser.post(PRICES + "/schedule", data=hidden_in(confirm))
    assert goes_to(done) == PRICES + "?done=scheduled"

    (row,) = service.sql("SELECT from_at, set_by FROM price_schedule WHERE country = 'ZA'")
    # What was written in the form is local time, two hours ahead.
    assert row["from_at"] == datetime.fromisoformat(asked["from_at"]).replace(tzinfo=UTC) - timedelta(hours=2)
    assert row["set_by"] == "operator:Petra Prices"
    assert service.run(run_task, DUE) == 0
    assert price_of(service, "ZA") == present

    # Announced meanwhile, as the customers see it; what has come true is announced no more.
    announced = {"country": "ZA", "price": "0.0222", "status": "coming_soon", "confirmed": "yes"}
    admin.browser.post(PRICES + "/set", data=announced)
    make_due(service, "ZA")
    assert service.run(run_task, DUE) == 1
    assert service.run(run_task, DUE) == 0
    assert price_of(service, "ZA") == Decimal("0.0222")
    assert price_of(service, "ZA", "coming_soon") is None
    sent = service.send(caller, to="+27821230001", dry_run=True).json()
    assert "0.0222" in str(sent)
    ((actor, detail),) = trail(service, "scheduled price in force")
    assert actor == "operator:Petra Prices"
    assert detail.startswith(f"sms to ZA: {present} → 0.0222 USD, as scheduled for ")


def test_two_that_are_due_count_in_their_order(service: Service, admin: OperatorBrowser) -> None:
    for minutes, price in ((120, "0.0502"), (60, "0.0501")):
        assert goes_to(schedule(admin, "ZW", price, later(minutes))) == PRICES + "?done=scheduled"
    make_due(service, "ZW")
    assert service.run(run_task, DUE) == 2
    assert price_of(service, "ZW") == Decimal("0.0502")


def test_of_two_for_the_same_moment_one_is_taken_also_at_once(
    service: Service, admin: OperatorBrowser
) -> None:
    moment = later(300)
    answers = at_once([lambda: schedule(admin, "ZW", "0.07", moment)] * 4)
    assert sorted(answer.status_code for answer in answers) == [303, 422, 422, 422]
    assert len(service.sql("SELECT FROM price_schedule WHERE country = 'ZW'")) == 1
    page = admin.browser.get(PRICES).text
    form = page[page.index(PRICES + "/withdraw") :]
    fields = dict(re.findall(r'name="(country|from_at)" value="([^"]+)"', form)[:2])
    assert goes_to(admin.browser.post(PRICES + "/withdraw", data=fields)) == PRICES + "?done=withdrawn"
    assert not service.sql("SELECT FROM price_schedule WHERE country = 'ZW'")
    again = admin.browser.post(PRICES + "/withdraw", data=fields)
    assert (again.status_code, "no such price" in alert(again)) == (422, True)
    for odd in ("", "never", "0001-01-01T00:00+14:00", "2030-01-01T00:00"):
        assert admin.browser.post(PRICES + "/withdraw", data={**fields, "from_at": odd}).status_code == 422
    ((_, detail),) = trail(service, "scheduled price withdrawn")
    assert detail.startswith("sms to ZW: 0.0700 USD from ")


def test_a_price_that_was_withdrawn_as_it_came_due_counts_or_does_not_and_never_both(
    service: Service, admin: OperatorBrowser
) -> None:
    before = price_of(service, "ZW")
    assert goes_to(schedule(admin, "ZW", "0.09", later(400))) == PRICES + "?done=scheduled"
    make_due(service, "ZW")
    with service.holding("DELETE FROM price_schedule WHERE country = 'ZW' RETURNING 1"):
        # Whoever withdraws it has it; the task does not wait and does not charge it.
        assert service.run(run_task, DUE) == 0
        assert price_of(service, "ZW") == before
    assert service.run(run_task, DUE) == 1
    assert price_of(service, "ZW") == Decimal("0.0900")


def test_there_is_a_most_of_prices_to_come(service: Service) -> None:
    now = datetime.now(UTC)
    service.sql(
        "INSERT INTO price_schedule (channel, country, price_usd, from_at, set_by)"
        " SELECT 'sms', 'ZW', 1, now() + (100 + n) * interval '1 hour', 'test' FROM generate_series(1, 200) n"
    )
    try:
        with pytest.raises(OperatorError, match="withdraw one"):
            service.run(
                actions.schedule_price,
                channel="sms",
                country="ZA",
                price_usd=Decimal(1),
                from_at=now + timedelta(days=1),
                actor=Actor("test"),
            )
    finally:
        service.sql("DELETE FROM price_schedule")
