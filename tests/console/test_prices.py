"""Countries and prices, set now or scheduled, each counting once."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import httpx
import pytest

from tests.support.console.operators import ACTOR, hidden
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


def trail(service: Service, what: str) -> list[tuple[str, str]]:
    rows = service.sql("SELECT actor, detail FROM operator_changes WHERE what = $1 ORDER BY id", what)
    return [(row["actor"], row["detail"]) for row in rows]


def price_of(service: Service, country: str, status: str = "active") -> Decimal | None:
    rows = service.sql("SELECT price_usd FROM prices WHERE country = $1 AND status = $2", country, status)
    return rows[0][0] if rows else None


def later(minutes: int = 60) -> str:
    return f"{datetime.now(LOCAL) + timedelta(minutes=minutes):%Y-%m-%dT%H:%M}"


def make_due(service: Service, country: str) -> None:
    service.sql("UPDATE price_schedule SET from_at = from_at - interval '1 day' WHERE country = $1", country)


def schedule(admin: httpx.Client, country: str, price: str, from_at: str) -> httpx.Response:
    asked = {"later_country": country, "later_price": price, "from_at": from_at}
    return admin.post(PRICES + "/schedule", data={**asked, "confirmed": "yes"})


def test_a_country_is_added_priced_and_then_sent_to(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    added = admin.post(PRICES + "/destinations", data=ZAMBIA)
    assert goes_to(added) == PRICES + "?done=added"
    page = admin.get(PRICES).text
    assert "+260 and 9 digits" in page
    assert "No price: sending is off" in page
    assert "UNSUPPORTED_DESTINATION" in service.send(caller, to=NUMBER).text

    asked = {"country": "ZM", "price": "0.03", "status": "active"}
    confirm = admin.post(PRICES + "/set", data=asked)
    assert "None: sending is off" in confirm.text
    assert "US$0.03 per segment" in confirm.text
    assert price_of(service, "ZM") is None
    assert hidden(confirm) == {**asked, "confirmed": "yes"}
    assert goes_to(admin.post(PRICES + "/set", data=hidden(confirm))) == PRICES + "?done=set"
    assert service.send(caller, to=NUMBER).json()["total_cost"] == "0.0300"

    assert trail(service, "destination added") == [(ACTOR, "Zambia (ZM), +260, 9 digits")]
    assert trail(service, "price set")[-1] == (ACTOR, "sms to ZM: none → 0.0300 USD")
    again = admin.post(PRICES + "/destinations", data=ZAMBIA)
    assert (again.status_code, "in the list already" in alert(again)) == (422, True)


def test_what_cannot_be_is_refused_beside_its_field(service: Service, admin: httpx.Client) -> None:
    before = (price_of(service, "ZW"), service.sql("SELECT * FROM price_schedule"))
    price = {"country": "ZW", "price": "0.5", "status": "active", "confirmed": "yes"}
    scheduled = {"later_country": "ZW", "later_price": "0.5", "from_at": later(), "confirmed": "yes"}
    for form, fields, faults in (
        (
            "/destinations",
            {**ZAMBIA, "new_country": "XY"},
            {
                "new_country": ["Z", "ZMB", "Z1"],
                "name": ["", "\u202e"],
                "calling_code": ["0260", "26000", "2x"],
                "lengths": ["", "0", "15", "8;9", "1,2,3,4,5,6", "٩"],
            },
        ),
        (
            "/set",
            price,
            {"country": ["QQ"], "price": ["", "1e3", "-1", "0.00001"], "status": ["free"]},
        ),
        ("/schedule", scheduled, {"later_country": ["QQ"], "later_price": ["much"]}),
        ("/schedule", scheduled, {"from_at": ["", "tomorrow", "2020-01-01T00:00", "2020-01-01T00:00Z"]}),
        ("/schedule", scheduled, {"from_at": ["9999-12-31T23:59"]}),
    ):
        for name, values in faults.items():
            for value in values:
                refused = admin.post(PRICES + form, data={**fields, name: value})
                assert refused.status_code == 422, (form, name, value)
                assert f'id="{name}-fault"' in refused.text
    assert (price_of(service, "ZW"), service.sql("SELECT * FROM price_schedule")) == before


def test_a_scheduled_price_is_confirmed_beside_the_present_one_and_counts_once(
    service: Service, admin: httpx.Client
) -> None:
    caller = service.open_account()
    present = price_of(service, "ZA")
    asked = {"later_country": "ZA", "later_price": "0.0222", "from_at": later()}
    confirm = admin.post(PRICES + "/schedule", data=asked)
    assert confirm.status_code == 200
    assert f"US${present:.3f} per segment" in confirm.text or f"US${present:.2f} per segment" in confirm.text
    assert "US$0.0222 per segment" in confirm.text
    assert not service.sql("SELECT FROM price_schedule WHERE country = 'ZA'")
    done = admin.post(PRICES + "/schedule", data=hidden(confirm))
    assert goes_to(done) == PRICES + "?done=scheduled"

    (row,) = service.sql("SELECT from_at, set_by FROM price_schedule WHERE country = 'ZA'")
    # What was written in the form is local time, two hours ahead.
    assert row["from_at"] == datetime.fromisoformat(asked["from_at"]).replace(tzinfo=UTC) - timedelta(hours=2)
    assert row["set_by"] == ACTOR
    assert service.run(run_task, DUE) == 0
    assert price_of(service, "ZA") == present

    # Announced meanwhile, as the customers see it; what has come true is announced no more.
    announced = {"country": "ZA", "price": "0.0222", "status": "coming_soon", "confirmed": "yes"}
    assert goes_to(admin.post(PRICES + "/set", data=announced)) == PRICES + "?done=announced"
    assert (price_of(service, "ZA"), "US$0.0222" in admin.get("/").text) == (present, True)
    make_due(service, "ZA")
    assert service.run(run_task, DUE) == 1
    assert service.run(run_task, DUE) == 0
    assert price_of(service, "ZA") == Decimal("0.0222")
    assert price_of(service, "ZA", "coming_soon") is None
    sent = service.send(caller, to="+27821230001", dry_run=True).json()
    assert "0.0222" in str(sent)
    ((actor, detail),) = trail(service, "scheduled price in effect")
    assert actor == ACTOR
    assert detail.startswith(f"sms to ZA: {present} → 0.0222 USD, as scheduled for ")


def test_of_two_for_the_same_moment_one_is_taken_also_at_once(service: Service, admin: httpx.Client) -> None:
    moment = later(300)
    answers = at_once([lambda: schedule(admin, "ZW", "0.07", moment)] * 4)
    assert sorted(answer.status_code for answer in answers) == [303, 422, 422, 422]
    assert len(service.sql("SELECT FROM price_schedule WHERE country = 'ZW'")) == 1
    page = admin.get(PRICES).text
    form = page[page.index(PRICES + "/withdraw") :]
    fields = dict(re.findall(r'name="(country|from_at)" value="([^"]+)"', form)[:2])
    assert goes_to(admin.post(PRICES + "/withdraw", data=fields)) == PRICES + "?done=withdrawn"
    assert not service.sql("SELECT FROM price_schedule WHERE country = 'ZW'")
    again = admin.post(PRICES + "/withdraw", data=fields)
    assert (again.status_code, "no longer scheduled" in alert(again)) == (422, True)
    for odd in ("", "never", "0001-01-01T00:00+14:00", "2030-01-01T00:00"):
        assert admin.post(PRICES + "/withdraw", data={**fields, "from_at": odd}).status_code == 422
    ((_, detail),) = trail(service, "scheduled price cancelled")
    assert detail.startswith("sms to ZW: 0.0700 USD from ")


def test_prices_that_are_due_count_in_their_order_and_not_while_they_are_withdrawn(
    service: Service, admin: httpx.Client
) -> None:
    for minutes, price in ((120, "0.0502"), (60, "0.0501")):
        assert goes_to(schedule(admin, "ZW", price, later(minutes))) == PRICES + "?done=scheduled"
    make_due(service, "ZW")
    assert service.run(run_task, DUE) == 2
    # Two that are due count in their order.
    assert price_of(service, "ZW") == Decimal("0.0502")
    assert goes_to(schedule(admin, "ZW", "0.09", later(400))) == PRICES + "?done=scheduled"
    make_due(service, "ZW")
    with service.holding("DELETE FROM price_schedule WHERE country = 'ZW' RETURNING 1"):
        # Whoever withdraws it has it; the task does not wait and does not charge it.
        assert service.run(run_task, DUE) == 0
        assert price_of(service, "ZW") == Decimal("0.0502")
    assert service.run(run_task, DUE) == 1
    assert price_of(service, "ZW") == Decimal("0.0900")


def test_there_is_a_most_of_prices_to_come(service: Service) -> None:
    now = datetime.now(UTC)
    service.sql(
        "INSERT INTO price_schedule (channel, country, price_usd, from_at, set_by)"
        " SELECT 'sms', 'ZW', 1, now() + (100 + n) * interval '1 hour', 'test' FROM generate_series(1, 200) n"
    )
    try:
        with pytest.raises(OperatorError, match="Cancel one"):
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
