"""Routes, exchange rates and the margin in the console."""

from typing import Final

import httpx

from tests.support.console.operators import NASTY, last_change
from tests.support.identity.customers import words
from tests.support.identity.people import alert, goes_to
from tests.support.processes.service import Service
from tumira.carriers.manage import add_carrier

ROUTES: Final = "/operator/routes"
MARGIN: Final = "/operator/margin"
URL: Final = "smpp://user:hush@smpp.example.com"
FORM: Final = {"network": "ZW-econet", "carrier": "main", "priority": "5", "cost": "0.011", "currency": "USD"}


def test_a_route_is_added_changed_and_removed(service: Service, admin: httpx.Client) -> None:
    service.run(add_carrier, "main", URL, None, 100)
    assert "No routes yet" in admin.get(ROUTES).text
    assert goes_to(admin.post(ROUTES, data=FORM)) == ROUTES + "?done=added"
    page = words(admin.get(ROUTES).text)
    assert "Zimbabwe, Econet main not in use now 5 0.011 USD" in page
    change = last_change(service)
    assert change["what"] == "route added"
    assert change["detail"] == "ZW, Econet by main: priority 5, 0.011 USD a segment"
    assert goes_to(admin.post(ROUTES, data={**FORM, "cost": ""})) == ROUTES + "?done=changed"
    assert "unknown" in words(admin.get(ROUTES).text)
    assert goes_to(admin.post(ROUTES, data={**FORM, "network": "ZA-"})) == ROUTES + "?done=added"
    key = {"country": "ZW", "network": "ZW-econet", "carrier": "main"}
    assert goes_to(admin.post(ROUTES + "/remove", data=key)) == ROUTES + "?done=removed"
    assert "no such route" in alert(admin.post(ROUTES + "/remove", data=key))
    assert goes_to(admin.post(ROUTES + "/remove", data={**key, "country": "ZA", "network": "ZA-"}))


def test_what_cannot_be_is_refused_beside_its_field(service: Service, admin: httpx.Client) -> None:
    service.run(add_carrier, "other", URL, None, 100)
    for changed, said in (
        ({"network": NASTY}, "Choose a country"),
        ({"network": "ZW-mtn"}, "Choose a network of ZW"),
        ({"carrier": NASTY}, "Choose a carrier"),
        ({"priority": "-1"}, "whole number"),
        ({"cost": "1e3"}, "Enter a number"),
        ({"cost": "5000"}, "Enter a cost"),
        ({"currency": "EUR"}, "no exchange rate for EUR"),
    ):
        refused = admin.post(ROUTES, data={**FORM, "carrier": "other", **changed})
        assert refused.status_code == 422
        assert said in alert(refused), changed
        assert NASTY not in refused.text
    for currency, usd, said in (
        ("rand", "0.05", "three letters"),
        ("ZAR", "0", "US dollars"),
        ("ZAR", "x", "number"),
    ):
        refused = admin.post(ROUTES + "/rates", data={"rate_currency": currency, "usd": usd})
        assert said in alert(refused)
    assert service.sql("SELECT FROM routes") == []


def test_a_rate_is_set_and_costs_are_compared_with_prices(service: Service, admin: httpx.Client) -> None:
    service.run(add_carrier, "rand", URL, None, 100)
    saved = admin.post(ROUTES + "/rates", data={"rate_currency": "zar", "usd": "0.055"})
    assert goes_to(saved) == ROUTES + "?done=rate"
    assert last_change(service)["detail"] == "1 ZAR = 0.055 USD"
    assert "1 ZAR 0.055 US dollars" in words(admin.get(ROUTES).text)
    assert "costs more than its price" not in admin.get("/operator").text
    form = {"network": "ZA-mtn", "carrier": "rand", "priority": "1", "cost": "0.4", "currency": "ZAR"}
    assert goes_to(admin.post(ROUTES, data=form))
    # 0.022 dollars, and the price is 0.02.
    page = words(admin.get(ROUTES).text)
    assert "South Africa, MTN (rand)" in page
    assert "0.40 ZAR above the price" in page
    start = words(admin.get("/operator").text)
    assert "1 route costs more than its price ZA-mtn (rand)" in start
    assert "tumira_losing_routes 1.0" in httpx.get(service.base + "/metrics", trust_env=False).text
    assert goes_to(admin.post(ROUTES + "/remove", data={"network": "ZA-mtn", "carrier": "rand"}))


def test_a_network_that_no_working_carrier_serves_is_listed_on_the_start_page(
    service: Service, admin: httpx.Client
) -> None:
    for name in ("up", "down"):
        service.run(add_carrier, name, URL, ["ZW"], 100)
    service.sql(
        "INSERT INTO binds (carrier_id, number, worker, leased_until, state)"
        " SELECT id, 1, 'node', now() + interval '10 minutes', 'bound' FROM carriers WHERE name = 'up'"
    )
    for network, carrier in (("netone", "down"), ("econet", "up")):
        assert goes_to(admin.post(ROUTES, data={**FORM, "network": f"ZW-{network}", "carrier": carrier}))
    start = words(admin.get("/operator").text)
    assert "NetOne (ZW)" in start
    assert "Econet (ZW)" not in start
    # Another carrier stands in for the whole country.
    assert goes_to(admin.post(ROUTES, data={**FORM, "network": "ZW-", "carrier": "up"}))
    assert "NetOne (ZW)" not in words(admin.get("/operator").text)
    service.sql("DELETE FROM routes")


def test_a_viewer_reads_and_changes_nothing(service: Service, viewer: httpx.Client) -> None:
    page = viewer.get(ROUTES)
    assert page.status_code == 200
    assert '<form method="post" action="/operator/routes' not in page.text
    for path in (ROUTES, ROUTES + "/remove", ROUTES + "/rates"):
        assert viewer.post(path, data=FORM).status_code == 403
    assert service.sql("SELECT FROM routes") == []


def test_the_margin_of_a_month_is_shown_by_carrier_network_and_account(
    service: Service, viewer: httpx.Client
) -> None:
    service.run(add_carrier, "margin", URL, None, 100)
    caller = service.open_account()
    assert "Nothing was submitted" in viewer.get(MARGIN + "?month=2026-09").text
    service.sql(
        "INSERT INTO margin_days SELECT date '2026-10-31', id, 'ZW', 'econet', $1, 10, 1, 0.099, 0.4, 0.04"
        "   FROM carriers WHERE name = 'margin'",
        caller.id,
    )
    service.sql(
        "INSERT INTO margin_days VALUES ('2026-10-01', 0, 'ZA', 'other', $1, 1, 0, 0.5, 0, 0)", caller.id
    )
    found = words(viewer.get(MARGIN + "?month=2026-10").text)
    assert "no known cost (1)" in found
    assert "Total 11 US$0.36 US$0.5990 1 segment without a cost \N{MINUS SIGN}US$0.2390 loss" in found
    assert "margin 10 US$0.36 US$0.0990 1 segment without a cost US$0.2610 72.5 %" in found
    assert "No carrier known 1 US$0.00 US$0.50" in found
    found = words(viewer.get(MARGIN + "?month=2026-10&by=network").text)
    assert "Zimbabwe, Econet 10" in found
    assert "South Africa, other networks 1" in found
    found = viewer.get(MARGIN + "?month=2026-10&by=account").text
    assert f"/operator/accounts/{caller.account_id}" in found
    for query in ("?month=nonsense&by=x", "?month=2026-13", "?by=" + NASTY, ""):
        page = viewer.get(MARGIN + query)
        assert page.status_code == 200
        assert NASTY not in page.text


def test_the_network_of_a_message_is_shown(service: Service, admin: httpx.Client) -> None:
    caller = service.open_account()
    sent = service.send(caller, to="+263771298765")
    assert sent.status_code == 202
    found = admin.get("/operator/messages?q=%2B263771298765")
    assert "Econet" in words(found.text)
    (row,) = service.sql("SELECT id, network FROM messages WHERE recipient = '+263771298765'")
    assert row["network"] == "econet"
