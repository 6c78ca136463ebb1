"""Commands for operators, and the audit log of commands."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx
import pytest

from tests.support.cli.commands import QuickCli
from tests.support.identity.people import goes_to, new_browser, new_phone
from tests.support.processes.service import Service
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task

OPERATOR_KEYS: Final = ["operator_id", "phone", "name", "role"]
LISTED_KEYS: Final = [*OPERATOR_KEYS, "second_factor", "seen_at", "created_at", "removed_at"]
SCHEDULED_KEYS: Final = ["channel", "country", "price_usd", "from_at", "set_by"]
DUE: Final = next(task for task in MAINTENANCE_TASKS if task.name == "put prices into force")


@pytest.fixture(scope="module")
def cli(service: Service) -> QuickCli:
    return QuickCli(service.url)


def enter(service: Service, phone: str, password: str) -> httpx.Response:
    return new_browser(service).post("/operator/sign-in", data={"phone": phone, "password": password})


def create(cli: QuickCli, phone: str, *more: str) -> Mapping[str, Any]:
    made: Mapping[str, Any] = cli.json("operator", "create", "--phone", phone, "--name", "Rudo Moyo", *more)
    return made


def trail(service: Service, *whats: str) -> list[str]:
    rows = service.sql(
        "SELECT what, detail, actor FROM operator_changes WHERE what = ANY($1) ORDER BY id", list(whats)
    )
    assert all(row["actor"].startswith("cli:") for row in rows)
    return [f"{row['what']}: {row['detail']}" for row in rows]


def test_an_operator_is_created_reset_and_removed(service: Service, cli: QuickCli) -> None:
    phone = new_phone()
    made = create(cli, phone)
    assert list(made) == [*OPERATOR_KEYS, "password"]
    assert (made["phone"], made["name"], made["role"]) == (phone, "Rudo Moyo", "admin")
    assert made["operator_id"].startswith("opr_")
    assert goes_to(enter(service, phone, made["password"])) == "/operator/set-up"

    renewed = cli.json("operator", "reset", "--phone", phone)
    assert list(renewed) == [*OPERATOR_KEYS, "password"]
    assert enter(service, phone, made["password"]).status_code == 422
    assert goes_to(enter(service, phone, renewed["password"])) == "/operator/set-up"

    removed = cli.json("operator", "remove", "--phone", phone)
    assert removed == {**{key: made[key] for key in OPERATOR_KEYS}, "removed": True}
    assert enter(service, phone, renewed["password"]).status_code == 422
    (listed,) = [one for one in cli.json("operator", "list") if one["phone"] == phone]
    assert list(listed) == LISTED_KEYS
    assert listed["removed_at"] is not None
    # Whoever comes back is the same as before, and begins anew.
    back = create(cli, phone, "--role", "viewer")
    assert (back["operator_id"], back["role"]) == (made["operator_id"], "viewer")
    noted = trail(service, "operator added", "operator's password reset", "operator removed")
    assert [one for one in noted if phone in one] == [
        f"operator added: Rudo Moyo, {phone}, admin",
        f"operator's password reset: {phone}",
        f"operator removed: {phone}",
        f"operator added: Rudo Moyo, {phone}, viewer",
    ]
    # People read what to do with the password.
    told = cli.text("operator", "create", "--phone", new_phone(), "--name", "Tendai")
    assert "valid once, within 72 hours" in told
    assert "/operator" in told
    assert "Tendai" in cli.text("operator", "list")


@pytest.mark.long
def test_what_cannot_be_is_one_line(cli: QuickCli) -> None:
    phone = new_phone()
    create(cli, phone)
    added = ["operator", "create", "--name"]
    cli.check_refused(
        ("is an operator already", [*added, "Again", "--phone", phone]),
        ("is not a mobile number", [*added, "Odd", "--phone", "12"]),
        ("name cannot be used", [*added, " ", "--phone", new_phone()]),
        ("no operator with that number", ["operator", "reset", "--phone", new_phone()]),
        ("no operator with that number", ["operator", "remove", "--phone", "x"]),
    )
    schedule = ["price", "schedule", "--price", "1"]
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%M}"
    cli.check_refused(
        ("is not in the list of countries", [*schedule, "--from", tomorrow, "--country", "QQ"]),
        ("Use sms", [*schedule, "--from", tomorrow, "--country", "ZW", "--channel", "fax"]),
        ("has passed", [*schedule, "--country", "ZW", "--from", "2020-01-01T00:00"]),
        ("within the next 366 days", [*schedule, "--country", "ZW", "--from", "9999-12-31T00:00"]),
    )
    cli.check_misused(
        ("is no moment", [*schedule, "--country", "ZW", "--from", "9999-12-31T23:59-12:00"]),
        ("is no moment", [*schedule, "--country", "ZW", "--from", "soon"]),
    )


def test_destinations_and_prices_are_noted(service: Service, cli: QuickCli) -> None:
    zambia = ("--country", "ZM", "--calling-code", "260", "--name", "Zambia", "--national-length", "9")
    cli.json("destination", "add", *zambia)
    cli.json("price", "set", "--country", "ZM", "--price", "0.03")
    cli.json("price", "set", "--country", "ZM", "--price", "0.02", "--status", "coming_soon")
    cli.json("price", "set", "--country", "ZM", "--price", "0.035")
    assert cli.run("destination", "add", *zambia).returncode == 1
    assert trail(service, "destination added", "price set", "price planned") == [
        "destination added: Zambia (ZM), +260, 9 digits",
        "price set: sms to ZM: none → 0.0300 USD",
        "price planned: sms to ZM: none → 0.0200 USD",
        "price set: sms to ZM: 0.0300 → 0.0350 USD",
    ]


def test_a_price_is_scheduled_withdrawn_and_put_into_force(service: Service, cli: QuickCli) -> None:
    assert cli.json("price", "scheduled") == []
    assert cli.text("price", "scheduled") == "No price is to come.\n"
    moment = (datetime.now(UTC) + timedelta(days=2)).replace(minute=0, second=0, microsecond=0)
    # Without a zone it is local time, two hours ahead.
    local = f"{moment + timedelta(hours=2):%Y-%m-%dT%H:%M}"
    added = cli.json("price", "schedule", "--country", "ZA", "--price", "0.0333", "--from", local)
    assert list(added) == SCHEDULED_KEYS
    assert datetime.fromisoformat(added["from_at"]) == moment
    assert (added["country"], added["price_usd"]) == ("ZA", "0.0333")
    assert cli.json("price", "scheduled") == [added]

    same = f"{moment:%Y-%m-%dT%H:%MZ}"
    twice = cli.run("price", "schedule", "--country", "ZA", "--price", "0.0444", "--from", same)
    assert (twice.returncode, "cancel the other" in twice.stderr) == (1, True)
    withdrawn = cli.json("price", "withdraw", "--country", "ZA", "--from", same)
    assert withdrawn == {**added, "withdrawn": True}
    assert cli.run("price", "withdraw", "--country", "ZA", "--from", same).returncode == 1

    cli.json("price", "schedule", "--country", "ZA", "--price", "0.0555", "--from", same)
    service.sql("UPDATE price_schedule SET from_at = from_at - interval '3 days'")
    assert service.run(run_task, DUE) == 1
    (price,) = [
        one for one in cli.json("price", "list") if (one["country"], one["status"]) == ("ZA", "active")
    ]
    assert price["price_usd"] == "0.0555"
    noted = trail(service, "price scheduled", "scheduled price cancelled", "scheduled price in effect")
    assert [one.partition(":")[0] for one in noted] == [
        "price scheduled",
        "scheduled price cancelled",
        "price scheduled",
        "scheduled price in effect",
    ]
