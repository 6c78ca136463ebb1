"""The command line: what commands do, print and refuse."""

import json
import os
import signal
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import click
import pytest

from tests.support.cli.commands import QuickCli
from tests.support.identity.people import new_phone
from tests.support.postgres.databases import clone, execute
from tests.support.processes.ports import free_port
from tests.support.processes.programs import Cli, finish, start
from tests.support.processes.service import Caller, Service
from tests.support.webhooks.commands import WARNING
from tumira.cli import main

PHONE: Final = "+263771200001"
NOBODY: Final = "acc_" + "0" * 26
ODD_AMOUNTS: Final = ("1e3", "0.00001", "NaN", "5,00", "\N{ARABIC-INDIC DIGIT FIVE}", "+5", "")
ACCOUNT_KEYS: Final = (
    "account_id phone name business balance rate daily_limit call_limit low_balance weight "
    "review_consent suspended closed_at created_at"
)


@pytest.fixture(scope="module")
def beside(service: Service) -> QuickCli:
    return QuickCli(service.url)


def create(cli: Cli, *more: str, phone: str | None = None) -> Mapping[str, Any]:
    words = ["--phone", phone or new_phone(), "--name", "Tendai", "--business", "Café Shop", *more]
    opened: Mapping[str, Any] = cli.json("account", "create", *words)
    return opened


def leaves(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command)
        else:
            yield command


def test_every_command_takes_json_and_says_what_it_does() -> None:
    assert isinstance(main, click.Group)
    commands = list(leaves(main))
    assert len(commands) >= 18
    for command in commands:
        assert "--json" in [word for parameter in command.params for word in parameter.opts], command.name
        assert command.help, command.name


@pytest.mark.long
def test_lifetimes_and_the_passcode_guard_are_shown_and_set(beside: QuickCli) -> None:
    account_id = create(beside, "--rate", "6000")["account_id"]
    assert beside.json("account", "lifetimes", account_id) == {"passcode_minutes": 10, "message_hours": 24}
    set_ = beside.json("account", "lifetimes", account_id, "--passcodes", "5")
    assert set_ == {"passcode_minutes": 5, "message_hours": 24}
    beside.json("account", "guard", account_id, "--on")
    defaults = {"number_10_minutes": 20, "number_day": 50, "range_10_minutes": 600}
    assert beside.json("account", "guard", account_id) == {"guard": "on", **defaults}
    words = ("--number", "3", "--number-day", "4", "--range", "5", "--off")
    tight = {"number_10_minutes": 3, "number_day": 4, "range_10_minutes": 5}
    assert beside.json("account", "guard", account_id, *words) == {"guard": "off", **tight}
    back = ("--number", "default", "--number-day", "default", "--range", "default")
    assert beside.json("account", "guard", account_id, *back) == {"guard": "off", **defaults}


def test_an_account_is_opened_listed_and_shown(cli: QuickCli) -> None:
    assert cli.json("account", "list") == []
    assert "tumira account create" in cli.text("account", "list")

    opened = create(cli, "--balance", "12.5", "--rate", "90", phone=PHONE)

    assert " ".join(opened) == ACCOUNT_KEYS
    assert opened["account_id"].startswith("acc_")
    assert opened["created_at"].endswith("+00:00")
    assert {**opened, "account_id": None, "created_at": None} == {
        "account_id": None,
        "created_at": None,
        "phone": PHONE,
        "name": "Tendai",
        "business": "Café Shop",
        "balance": "12.5000",
        "rate": 90,
        "daily_limit": None,
        "call_limit": None,
        "low_balance": "1.0000",
        "weight": 1,
        "review_consent": False,
        "suspended": False,
        "closed_at": None,
    }
    assert cli.json("account", "list") == [opened]
    shown = cli.json("account", "show", opened["account_id"])
    (transfer,) = shown.pop("transfers")
    assert shown == opened
    assert (transfer["from"], transfer["to"], transfer["amount"]) == ("adjustment", "customer", "12.5000")
    assert (transfer["note"], transfer["batch_id"]) == ("Opening balance", None)
    assert transfer["by"].startswith("cli:")


def test_people_read_aligned_words(database_url: str) -> None:
    cli = QuickCli(database_url)
    words = ["--name", "花花 Ndlovu", "--business", "Two\nlines \x1b[31m"]
    text = cli.text("account", "create", "--phone", PHONE, *words)
    opened = create(cli)

    assert text.startswith("Account opened.\n  account id      acc_")
    assert "  suspended       no\n" in text
    header, first, second = cli.text("account", "list").splitlines()
    # Two of these letters take two places each, so the rest of their line comes two letters sooner.
    place = header.index("business")
    assert first[place - 2 :].startswith("Two\\x0alines \\x1b[31m")
    assert second[place:].startswith("Café Shop")
    shown = cli.text("account", "show", opened["account_id"])
    assert "No transfers yet." in shown
    assert cli.json("account", "list")[0]["business"] == "Two\nlines \x1b[31m"


@pytest.mark.long
def test_an_account_that_cannot_be_opened_is_not_there(cli: QuickCli) -> None:
    before = cli.json("account", "list")
    words = ["account", "create", "--name", "A", "--business", "B", "--phone"]
    no_amount = "is not an amount in US dollars"
    cli.check_misused(
        ("Missing option '--phone'", words[:-1]),
        ("--rate", [*words, PHONE, "--rate", "0"]),
        *((no_amount, [*words, PHONE, "--balance", amount]) for amount in ("-5", *ODD_AMOUNTS)),
        ("--colour", [*words, PHONE, "--colour", "red"]),
    )
    cli.check_refused(
        ("+2637712xxxxx", [*words, "0771200001"]),
        ("+2637712xxxxx", [*words, "+26377120000"]),
        ("Error: ", [*words[:3], b"\xff", *words[4:], PHONE]),
    )
    assert cli.json("account", "list") == before
    opened = create(cli)
    cli.check_refused((opened["account_id"], [*words, opened["phone"]]))


def test_credit_gives_and_takes_but_never_below_zero(cli: QuickCli) -> None:
    account_id = create(cli, "--balance", "1")["account_id"]
    credit = ["account", "credit", account_id]

    assert cli.json(*credit, "2.5", "--note", "Paid")["balance"] == "3.5000"
    taken = cli.json(*credit, "-1.25", "--note", "Chargeback")
    assert (" ".join(taken), taken["balance"]) == (ACCOUNT_KEYS, "2.2500")
    cli.check_refused(
        ("lower than that", [*credit, "-2.2501", "--note", "Too much"]),
        ("zero", [*credit, "0", "--note", "Nothing"]),
        ("why", [*credit, "1", "--note", " "]),
        ("ten digits", [*credit, "9999999999", "--note", "Too much"]),
        ("no such account", ["account", "credit", NOBODY, "1", "--note", "x"]),
    )
    odd = (*ODD_AMOUNTS, "-NaN", "--5", "-0.00001")
    cli.check_misused(
        *(("is not an amount", [*credit, amount, "--note", "x"]) for amount in odd),
        ("tumira account list", ["account", "credit", "acc_1", "5", "--note", "x"]),
        ("--note", [*credit, "5"]),
    )
    transfers = cli.json("account", "show", account_id)["transfers"]
    assert [(one["from"], one["amount"], one["note"]) for one in transfers] == [
        ("customer", "1.2500", "Chargeback"),
        ("adjustment", "2.5000", "Paid"),
        ("adjustment", "1.0000", "Opening balance"),
    ]


def test_an_account_is_suspended_and_let_go_again(cli: QuickCli) -> None:
    account_id = create(cli)["account_id"]

    assert cli.json("account", "suspend", account_id)["suspended"] is True
    assert "suspended       yes" in cli.text("account", "suspend", account_id)
    assert cli.json("account", "suspend", account_id, "--lift")["suspended"] is False
    assert "no such account" in cli.refused("account", "suspend", NOBODY)
    assert "no such account" in cli.refused("account", "show", NOBODY)


def test_a_daily_limit_holds_from_the_next_call(service: Service, beside: QuickCli) -> None:
    caller = service.open_account()
    limit = ["account", "limit", caller.account_id]
    assert beside.json(*limit, "--daily", "0.03")["daily_limit"] == "0.0300"
    refused = service.send(caller)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "SPEND_LIMIT_REACHED")
    limited = beside.json(*limit, "--daily", "none", "--rate", "77", "--low-balance", "5")
    assert [limited[name] for name in ("daily_limit", "rate", "low_balance")] == [None, 77, "5.0000"]
    assert service.send(caller).status_code == 202
    beside.check_refused(
        ("--daily", limit),
        ("'1e3'", [*limit, "--daily", "1e3"]),
        ("no such account", ["account", "limit", NOBODY, "--daily", "5"]),
    )


def test_a_key_works_until_it_is_revoked(service: Service, beside: QuickCli) -> None:
    account_id = service.open_account().account_id
    words = ["key", "create", "--account", account_id, "--name", "Shop"]

    made = beside.json(*words)
    assert list(made) == ["key_id", "key", "account_id", "name", "scopes"]
    assert made["key"].startswith("tmr_")
    narrow = beside.json(*words, "--scopes", "account:read, messages:read")
    assert narrow["scopes"] == ["account:read", "messages:read"]
    assert service.call(made["key"], "GET", "/balance").status_code == 200
    assert service.call(narrow["key"], "POST", "/messages", json={}).status_code == 403

    revoked = beside.json("key", "revoke", made["key_id"])
    assert revoked["revoked_at"] is not None
    refused = service.call(made["key"], "GET", "/balance")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "API_KEY_REVOKED")
    listed = beside.json("key", "list", "--account", account_id)
    assert revoked in listed
    assert [one["name"] for one in listed] == ["test", "Shop", "Shop"]
    assert made["key"] not in beside.text("key", "list")


def test_a_key_that_cannot_be_made_or_revoked_is_said_in_words(cli: QuickCli) -> None:
    account_id = create(cli)["account_id"]
    assert "No keys yet" in cli.text("key", "list", "--account", account_id)
    text = cli.text("key", "create", "--account", account_id, "--name", "A")
    assert text.startswith("Key created. Copy it now: it is not shown again.\n  key id      key_")
    key = ["key", "create", "--name", "A", "--account"]
    cli.check_refused(
        ("no such account", [*key, NOBODY]),
        ("'all'", [*key, account_id, "--scopes", "all"]),
        ("no such key", ["key", "revoke", "key_" + "0" * 26]),
    )
    cli.check_misused(("tumira key list", ["key", "revoke", account_id]))


def test_a_new_country_works_from_the_next_call(service: Service, beside: QuickCli) -> None:
    caller = service.open_account()
    assert rejection(service, caller) == "UNSUPPORTED_DESTINATION"

    words = ["--country", "ZM", "--calling-code", "260", "--name", "Zambia", "--national-length", "9"]
    added = beside.json("destination", "add", *words)
    assert added == {"country": "ZM", "calling_code": "260", "name": "Zambia", "national_lengths": [9]}
    assert added in beside.json("destination", "list")
    assert rejection(service, caller) == "UNSUPPORTED_DESTINATION"

    price = beside.json("price", "set", "--channel", "sms", "--country", "ZM", "--price", "0.03")
    assert price == {"channel": "sms", "country": "ZM", "price_usd": "0.0300", "status": "active"}
    assert price in beside.json("price", "list")
    before = service.balance(caller)
    assert rejection(service, caller) is None
    assert before - service.balance(caller) == Decimal("0.03")

    beside.json("price", "set", "--country", "ZM", "--price", "0.05")
    prices = [one for one in beside.json("price", "list") if one["country"] == "ZM"]
    assert [one["price_usd"] for one in prices] == ["0.0500"]


def rejection(service: Service, caller: Caller) -> str | None:
    answer = service.send(caller, to="+260971200001")
    assert answer.status_code == 202
    codes = [one["code"] for one in answer.json()["rejected"]]
    return codes[0] if codes else None


def test_a_destination_or_price_that_makes_no_sense_is_refused(cli: QuickCli) -> None:
    def add(country: str, code: str, length: str) -> list[str]:
        words = ["--country", country, "--calling-code", code, "--name", "X", "--national-length", length]
        return ["destination", "add", *words]

    def price(channel: str, country: str) -> list[str]:
        return ["price", "set", "--channel", channel, "--country", country, "--price", "0.03"]

    cli.check_refused(
        ("ZW is in the list already", add("ZW", "263", "9")),
        ("for example ZM", add("zm", "260", "9")),
        ("for example 260", add("ZM", "0260", "9")),
        ("--national-length", add("ZM", "260", "nine")),
        ("Add it first", price("sms", "ZM")),
        ("Use sms", price("telegram", "ZW")),
    )
    cli.check_misused(
        *(("'--price'", ["price", "set", "--country", "ZW", "--price", one]) for one in ("-1", "1e3")),
        ("'--status'", ["price", "set", "--country", "ZW", "--price", "1", "--status", "maybe"]),
    )
    assert cli.text("price", "list").split()[:5] == ["channel", "country", "price", "usd", "status"]
    assert cli.text("destination", "list").splitlines()[1:] == [
        "ZW       263           Zimbabwe      9",
        "ZA       27            South Africa  9",
    ]


@pytest.mark.long
def test_the_audit_ends_with_a_code_that_tells(database_url: str) -> None:
    cli = QuickCli(database_url)
    create(cli, "--balance", "5")
    clean = cli.json("audit")
    assert clean["ok"] is True
    assert all(check["ok"] and check["promise"] and check["rows"] == [] for check in clean["checks"])
    assert all(line.startswith("ok      ") for line in cli.text("audit").splitlines())

    execute(database_url, "UPDATE accounts SET balance = 6")

    broken, told = cli.run("audit", "--json"), cli.run("audit")
    assert (broken.returncode, told.returncode) == (1, 1)
    assert "1 of" in broken.stderr
    assert json.loads(broken.stdout)["ok"] is False
    assert "BROKEN  Every balance is the sum of the account's transfers.\n" in told.stdout
    assert '"balance": "6.0000", "transfers": "5.0000"' in told.stdout
    # Every run is written down.
    noted = execute(database_url, "SELECT * FROM audits ORDER BY id")
    assert all(row["asked_by"].startswith("cli:") for row in noted)
    assert all(row["started_at"] <= row["finished_at"] for row in noted)
    assert [list(json.loads(row["broken"])) for row in noted] == [[], [], ["balance"], ["balance"]]


def test_segments_are_counted_of_a_text_and_line_by_line_without_a_database() -> None:
    cli = QuickCli("postgresql://nobody@127.0.0.1:1/nothing")
    assert cli.text("segments", "--json", "Mhoro 🙂") == (
        '{"segments": 1, "encoding": "UCS-2", "characters": 8}\n'
    )
    assert cli.text("segments", "Hi {x}") == "  segments    1\n  encoding    GSM-7\n  characters  8\n"
    lines = ['{"text": "' + "a" * 1531 + '"}', "", '{"text": "\\u20ac", "id": 7}', '{"text": "é漢"}']
    done = cli.run("segments", given="\n".join(lines).encode())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        '{"segments": 11, "encoding": "GSM-7", "characters": 1531}',
        '{"segments": 1, "encoding": "GSM-7", "characters": 2}',
        '{"segments": 1, "encoding": "UCS-2", "characters": 2}',
    ]
    for line in (b"Hi", b'{"body": "Hi"}', b'["text"]', b'{"text": 5}', b'{"text": "\xff"}'):
        done = cli.run("segments", given=b'{"text": "Hi"}\n\n' + line + b'\n{"text": "Hi"}\n')
        assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)
        assert done.stderr.startswith("Error: Line 3 is not a JSON object with a string `text`")


@pytest.mark.long
def test_migrating_says_what_it_did(server_url: str) -> None:
    with clone(server_url, "template1") as url:
        cli = QuickCli(url)
        applied = cli.json("migrate")["applied"]
        assert applied[0] == "0001_schema_pre"
        assert cli.json("migrate") == {"applied": []}
        assert cli.text("migrate") == "Nothing to do.\n"


def test_a_process_alone_starts_and_stops_at_a_signal(database_url: str) -> None:
    web = start("web", "--json", database_url=database_url, port=free_port())
    worker = start("worker", database_url=database_url, webhooks_allow_private=1)
    assert web.stdout is not None
    assert worker.stdout is not None
    assert b'"status": "started"' in web.stdout.readline()
    assert b"The worker runs." in worker.stdout.readline()
    web.send_signal(signal.SIGINT)
    worker.send_signal(signal.SIGTERM)
    done = [finish(web), finish(worker)]
    # That private addresses are allowed is said at the start. At night a worker also logs that it asks for an
    # audit.
    said = [[line for line in one.stderr.splitlines() if '"level": "info"' not in line] for one in done]
    assert ([one.returncode for one in done], said) == ([0, 0], [[], [WARNING]])


@pytest.mark.long
def test_a_reader_that_has_seen_enough_is_not_told_of_a_broken_pipe(database_url: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = start("price", "list", stdout=writing, database_url=database_url)
    os.close(writing)

    done = finish(process)

    assert (done.returncode, done.stderr) == (1, "")
