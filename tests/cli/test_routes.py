"""Commands that add, list and remove routes, set exchange rates, and show the margin."""

import json

import pytest

from tests.support.cli.commands import QuickCli
from tests.support.postgres.databases import execute

URL = "smpp://user:hush@smpp.example.com"
COSTS = ("--priority", "5", "--cost", "0.011", "--currency", "USD")
KEYS = ["country", "network", "carrier", "priority", "cost", "currency", "cost_usd", "losing", "sender"]
ECONET = ("--country", "ZW", "--network", "econet", "--carrier", "main")


@pytest.fixture
def cli(database_url: str) -> QuickCli:
    cli = QuickCli(database_url)
    cli.json("carrier", "add", "main", URL)
    return cli


def test_a_route_is_added_changed_listed_and_removed(cli: QuickCli) -> None:
    assert cli.json("route", "list") == []
    assert "each carrier serves its countries" in cli.text("route", "list")
    added = cli.json("route", "add", *ECONET, *COSTS, "--sender", "ZimInfo")
    assert added.pop("added") is True
    assert list(added) == KEYS
    assert list(added.values()) == [
        "ZW",
        "econet",
        "main",
        5,
        "0.011000",
        "USD",
        "0.011000",
        False,
        "ZimInfo",
    ]
    assert cli.json("route", "list") == [added]
    cli.json("rate", "set", "zar", "0.055")
    assert cli.json("rate", "list") == [{"currency": "USD", "usd": "1"}, {"currency": "ZAR", "usd": "0.055"}]
    changed = cli.json(
        "route", "add", "--country", "zw", "--carrier", "main", "--cost", "0.2", "--currency", "zar"
    )
    assert (changed["network"], changed["priority"], changed["cost_usd"]) == (None, 100, "0.011000")
    # A route to a network stands before that to its country.
    assert [one["network"] for one in cli.json("route", "list")] == ["econet", None]
    header, first, second = cli.text("route", "list").splitlines()
    assert header.split() == " ".join(KEYS).replace("_", " ").split()
    assert first.split()[:3] == ["ZW", "econet", "main"]
    assert second.split()[:3] == ["ZW", "all", "main"]
    assert cli.json("route", "add", *ECONET)["added"] is False
    removed = cli.json("route", "remove", *ECONET)
    assert removed == {"country": "ZW", "network": "econet", "carrier": "main", "removed": True}
    cli.check_refused(
        ("There is no such route", ["route", "remove", *ECONET]),
        ("no carrier named never", ["route", "remove", "--country", "ZW", "--carrier", "never"]),
        ("Choose a carrier", ["route", "add", "--country", "ZW", "--carrier", "never"]),
        (
            "Choose a network of ZW",
            ["route", "add", "--country", "ZW", "--network", "mtn", "--carrier", "main"],
        ),
        ("no exchange rate for EUR", ["route", "add", *ECONET, "--cost", "1", "--currency", "EUR"]),
        ("other than USD", ["rate", "set", "USD", "2"]),
    )


def test_a_route_above_the_price_is_pointed_out(cli: QuickCli) -> None:
    assert cli.json("route", "add", *ECONET, "--cost", "0.05")["losing"] is True
    assert cli.json("route", "list")[0]["losing"] is True
    assert "loses money" in cli.run("route", "add", *ECONET, "--cost", "0.05").stderr
    cli.json("price", "set", "--country", "ZW", "--price", "0.06")
    assert cli.json("route", "list")[0]["losing"] is False


@pytest.mark.long
def test_the_margin_of_a_month_is_shown(cli: QuickCli, database_url: str) -> None:
    empty = cli.json("margin", "--month", "2026-10")
    nothing = {"segments": 0, "unpriced": 0, "revenue": "0.0000", "cost": "0.000000", "margin": "0.000000"}
    assert empty == {"month": "2026-10", "by": "carrier", "total": nothing, "rows": []}
    execute(
        database_url,
        "INSERT INTO margin_days"
        " SELECT date '2026-10-31', id, 'ZW', 'econet', $1::uuid, 10, 1, 0.099, 0.4, 0.04 FROM carriers"
        " UNION ALL SELECT date '2026-11-01', 0, 'ZA', 'mtn', $1::uuid, 0, 0, 0, 0.02, 0 FROM carriers",
        "00000000-0000-7000-8000-000000000000",
    )
    found = cli.json("margin", "--month", "2026-10", "--by", "network")
    row = {"segments": 10, "unpriced": 1, "revenue": "0.3600", "cost": "0.099000", "margin": "0.261000"}
    assert found["rows"] == [{"network": "ZW Econet", **row}]
    assert found["total"] == row
    assert cli.json("margin", "--month", "2026-10")["rows"][0]["carrier"] == "main"
    assert cli.json("margin", "--month", "2026-11")["rows"][0]["carrier"] == "none"
    assert cli.json("margin", "--month", "2026-10", "--by", "account")["rows"][0]["account"] == "Tumira"
    header, first, last = cli.text("margin", "--month", "2026-10").splitlines()
    assert header.split() == ["carrier", *row]
    assert (first.split()[0], last.split()[0]) == ("main", "total")
    assert json.dumps(found)
