"""The `tumira webhook` commands: parsing, output and errors."""

import asyncio
import json
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.support.cli.commands import QuickCli
from tests.support.postgres.databases import execute
from tests.support.processes.programs import one_line
from tests.support.processes.service import Caller, new_caller
from tests.support.webhooks.commands import KEYS, UNKNOWN_EVENT, URL, add, add_events, listed
from tumira.cli import webhooks
from tumira.core.errors import OPERATOR_EXIT_CODE
from tumira.core.ids import ACCOUNT, ENDPOINT, new_id, read_id, write_id
from tumira.postgres.pool import Database
from tumira.webhooks.manage import add_endpoint

COLUMNS: Final = "endpoint id url events state waiting"
UNKNOWN_ACCOUNT: Final = write_id(ACCOUNT, new_id(1))
UNKNOWN_ENDPOINT: Final = write_id(ENDPOINT, new_id(1))


@pytest.fixture(scope="module")
def cli(url: str) -> QuickCli:
    return QuickCli(url, webhooks_allow_private=1)


def open_account(url: str) -> Caller:
    return asyncio.run(new_caller(url))


def put(url: str, caller: Caller, at: str = URL) -> str:
    return asyncio.run(_put(url, caller, at))


async def _put(url: str, caller: Caller, at: str) -> str:
    database = Database(url, connections_max=1)
    endpoint, _ = await add_endpoint(database, caller.id, at, None, "", allow_private=True)
    await database.close()
    return write_id(ENDPOINT, endpoint.id)


def set_up(url: str, endpoint_id: str, changes: str) -> None:
    identifier = read_id(ENDPOINT, endpoint_id)
    execute(url, f"UPDATE webhook_endpoints SET {changes} WHERE id = $1", identifier)


def test_an_endpoint_is_added_and_its_secret_is_shown_once(cli: QuickCli, url: str) -> None:
    caller = open_account(url)
    assert listed(cli, caller) == []
    assert "`tumira webhook add`" in cli.text("webhook", "list", "--account", caller.account_id)

    words = ["--events", "message.failed, message.delivered", "--description", "Café shop"]
    added = add(cli, caller, URL, *words)

    assert list(added) == ["endpoint_id", "secret", *KEYS[1:]]
    assert added["endpoint_id"].startswith("end_")
    assert added["created_at"].endswith("+00:00")
    secret = added.pop("secret")
    assert len(b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert {name: added[name] for name in KEYS[1:-1]} == {
        "account_id": caller.account_id,
        "url": URL,
        # In the order in which they are listed everywhere.
        "events": ["message.delivered", "message.failed"],
        "description": "Café shop",
        "state": "active",
        "sequence": 0,
        "waiting": 0,
        "failures": 0,
        "failing_since": None,
        "warning": None,
        "last_delivery_at": None,
    }
    rotated = cli.json("webhook", "rotate", added["endpoint_id"])
    assert list(rotated) == ["endpoint_id", "secret", "old_secret_until"]
    assert rotated["secret"] not in {None, secret}
    left = datetime.fromisoformat(rotated["old_secret_until"]) - datetime.now(UTC)
    assert timedelta(hours=23) < left < timedelta(hours=24)
    (shown,) = listed(cli, caller)
    # The list has the time of the database.
    assert shown | {"created_at": added["created_at"]} == added
    assert added["endpoint_id"] in [one["endpoint_id"] for one in cli.json("webhook", "list")]


def test_people_read_what_was_added_changed_and_removed_and_the_secret_once(cli: QuickCli, url: str) -> None:
    caller = open_account(url)
    text = cli.text("webhook", "add", "--account", caller.account_id, "--url", URL)
    assert text.startswith("Endpoint added. Copy the secret now: it is not shown again.\n  endpoint id  ")
    (shown,) = listed(cli, caller)
    (secret,) = [line.split()[1] for line in text.splitlines() if line.startswith("  secret ")]
    endpoint_id = shown["endpoint_id"]
    assert "  events            all\n" in text

    said = [
        cli.text("webhook", "list", "--account", caller.account_id),
        cli.text("webhook", "change", endpoint_id, "--events", "batch.completed"),
        cli.text("webhook", "pause", endpoint_id),
        cli.text("webhook", "resume", endpoint_id),
        cli.text("webhook", "attempts", endpoint_id),
        cli.text("webhook", "replay", endpoint_id, "--after", "0"),
        cli.text("webhook", "rotate", endpoint_id),
        cli.text("webhook", "remove", endpoint_id),
    ]

    header, line = said[0].splitlines()
    assert " ".join(header.split()) == COLUMNS
    assert line.split() == [endpoint_id, URL, "all", "active", "0"]
    assert said[1].startswith("Endpoint changed.\n")
    assert "  events            batch.completed\n" in said[1]
    assert said[2].startswith("Paused; `tumira webhook resume` sends what waits.\n")
    assert "  state             paused\n" in said[2]
    assert said[3].startswith("Resumed.\n")
    assert said[4] == "Nothing was sent there yet: `tumira webhook test` tries it out.\n"
    assert said[5].startswith("There is nothing to send.\n")
    assert said[6].startswith("Secret rotated. Copy the new one now: it is not shown again.\n")
    assert "  secret            whsec_" in said[6]
    assert said[7].startswith("Endpoint removed.\n")
    assert secret not in "".join(said)


def test_an_endpoint_is_changed_in_what_is_named_alone(cli: QuickCli, url: str) -> None:
    caller = open_account(url)
    endpoint_id = add(cli, caller, URL, "--events", "message.failed", "--description", "Shop")["endpoint_id"]

    moved = cli.json("webhook", "change", endpoint_id, "--url", URL + "/new")
    assert list(moved) == KEYS
    assert (moved["url"], moved["events"], moved["description"]) == (URL + "/new", ["message.failed"], "Shop")
    all_events = cli.json("webhook", "change", endpoint_id, "--events", "all", "--description", "")
    assert (all_events["url"], all_events["events"], all_events["description"]) == (URL + "/new", ["all"], "")
    assert listed(cli, caller) == [all_events]

    change = ["webhook", "change", endpoint_id]
    cli.check_refused(
        ("Say what to change: --url, --events or --description.", change),
        ("must begin with https:// or http://", [*change, "--url", "ftp://127.0.0.1/"]),
        ("no event 'message.read' to choose: name some of", [*change, "--events", "message.read"]),
        ("at most 200 characters", [*change, "--description", "x" * 201]),
    )
    assert listed(cli, caller) == [all_events]


def test_a_removed_endpoint_is_gone(cli: QuickCli, url: str) -> None:
    caller = open_account(url)
    endpoint_id = put(url, caller)

    removed = cli.json("webhook", "remove", endpoint_id)

    assert removed == {"endpoint_id": endpoint_id, "url": URL, "removed": True}
    assert listed(cli, caller) == []
    gone = "There is no such endpoint; `tumira webhook list` shows them."
    cli.check_refused(
        (gone, ["webhook", "remove", endpoint_id]),
        (gone, ["webhook", "change", endpoint_id, "--description", "Shop"]),
        *((gone, ["webhook", name, UNKNOWN_ENDPOINT]) for name in ("pause", "resume", "rotate", "test")),
        (gone, ["webhook", "replay", UNKNOWN_ENDPOINT, "--after", "0"]),
        (gone, ["webhook", "attempts", UNKNOWN_ENDPOINT]),
        # The endpoints of an account that never was are not merely none.
        (
            "There is no such account; `tumira account list`",
            ["webhook", "list", "--account", UNKNOWN_ACCOUNT],
        ),
    )


def test_a_paused_endpoint_waits_and_goes_on_with_all_or_from_now(cli: QuickCli, url: str) -> None:
    caller = open_account(url)
    endpoint_id = put(url, caller)
    paused = cli.json("webhook", "pause", endpoint_id)
    assert (list(paused), paused["state"]) == (KEYS, "paused")
    asyncio.run(add_events(url, caller, 3))
    assert listed(cli, caller)[0]["waiting"] == 3

    resumed = cli.json("webhook", "resume", endpoint_id)
    assert list(resumed) == KEYS
    assert (resumed["state"], resumed["sequence"], resumed["waiting"]) == ("active", 0, 3)
    cli.json("webhook", "pause", endpoint_id)
    left_out = cli.json("webhook", "resume", endpoint_id, "--from-now")
    assert (left_out["state"], left_out["sequence"], left_out["waiting"]) == ("active", 3, 0)
    assert listed(cli, caller) == [left_out]

    assert cli.json("webhook", "replay", endpoint_id, "--after", "1") == {
        "endpoint_id": endpoint_id,
        "events": 2,
    }
    assert listed(cli, caller)[0]["waiting"] == 2
    cli.json("webhook", "pause", endpoint_id)
    paused = "The endpoint is paused: `tumira webhook resume` first."
    cli.check_refused(
        (paused, ["webhook", "test", endpoint_id]),
        (paused, ["webhook", "replay", endpoint_id, "--after", "0"]),
    )
    # A time before all times is told in words for people.
    done = cli.run("webhook", "replay", endpoint_id, "--from", "0001-01-01T00:00+14:00")
    assert "DataError" not in done.stderr


def test_a_list_warns_of_what_fails_and_of_what_was_disabled(cli: QuickCli, url: str) -> None:
    caller = open_account(url)
    failing, disabled, well = (put(url, caller, f"{URL}/{name}") for name in "abc")
    set_up(url, failing, "failures = 30, failing_since = '2026-11-15 08:30Z', warnings = 1")
    set_up(url, disabled, "state = 'disabled', reason = 'It answered 410 Gone.'")

    table, *warnings = cli.text("webhook", "list", "--account", caller.account_id).rstrip("\n").split("\n\n")

    assert len(table.splitlines()) == 4
    assert warnings[0].startswith(f"{failing}: Failing since 15 Nov, 10:30.")
    shown = {one["endpoint_id"]: one for one in listed(cli, caller)}
    assert [f"{one}: {shown[one]['warning']}" for one in (failing, disabled)] == warnings
    assert (shown[disabled]["state"], shown[well]["warning"]) == ("disabled", None)
    assert shown[failing]["failing_since"] == "2026-11-15T08:30:00.000+00:00"


def test_what_is_typed_wrongly_is_told_with_an_example(cli: QuickCli, url: str) -> None:
    words = ["webhook", "add", "--account", open_account(url).account_id, "--url"]
    assert "no spaces, line ends or control characters" in cli.refused(*words, b"http://127.0.0.1/\xff")
    assert "DataError" not in cli.refused(*words, URL, "--description", b"\xff")
    replay = ["webhook", "replay", UNKNOWN_ENDPOINT]
    attempts = ["webhook", "attempts", UNKNOWN_ENDPOINT]
    is_no_time = "is not a time such as 2026-11-15T08:30 or 2026-11-15."
    cli.check_misused(
        ("Missing option '--account'", ["webhook", "add", "--url", URL]),
        (
            "is not an account's id; `tumira account list` shows them.",
            ["webhook", "add", "--account", UNKNOWN_ENDPOINT, "--url", URL],
        ),
        ("Missing option '--url'", ["webhook", "add", "--account", UNKNOWN_ACCOUNT]),
        ("'end_1' is not an endpoint's id; `tumira webhook list` shows them.", ["webhook", "pause", "end_1"]),
        ("is not an event's id; it stands in `webhook-id`.", [*attempts, "--event", UNKNOWN_ENDPOINT]),
        ("'--limit'", [*attempts, "--limit", "0"]),
        ("'--limit'", [*attempts, "--limit", "1001"]),
        ("'--after': -1 is not in the range", [*replay, "--after", "-1"]),
        (f"'yesterday' {is_no_time}", [*replay, "--from", "yesterday"]),
        (f"'2026-11-31' {is_no_time}", [*replay, "--from", "2026-11-15", "--until", "2026-11-31"]),
    )


def test_a_replay_is_of_one_kind(cli: QuickCli) -> None:
    replay = ["webhook", "replay", UNKNOWN_ENDPOINT]
    which = "Say what to send once more: --event ID, --after SEQUENCE, or --from TIME."
    cli.check_refused(
        (which, replay),
        (which, [*replay, "--until", "2026-11-15"]),
        (which, [*replay, "--event", UNKNOWN_EVENT, "--after", "0"]),
        (which, [*replay, "--after", "0", "--from", "2026-11-15"]),
        ("--until goes with --from.", [*replay, "--event", UNKNOWN_EVENT, "--until", "2026-11-15"]),
        ("--until is before --from", [*replay, "--from", "2026-11-16", "--until", "2026-11-15"]),
    )


def test_private_addresses_and_plain_http_are_for_those_who_allow_them(cli: QuickCli, url: str) -> None:
    caller = open_account(url)
    words = ["webhook", "add", "--account", caller.account_id, "--json", "--url"]
    private = ["http://127.0.0.1/", "https://10.0.0.1/", "https://[::1]:5432/"]
    told = ("must begin with https://, as in", "not its address", "not its address")
    expected = [(say, [*words, one]) for say, one in zip(told, private, strict=True)]
    QuickCli(url, webhooks_allow_private=0).check_refused(*expected)
    # A name without a value is as good as absent.
    QuickCli(url, webhooks_allow_private="").check_refused(expected[1])
    for one in private:
        assert cli.run(*words, one).returncode == 0
    assert sorted(one["url"] for one in listed(cli, caller)) == sorted(private)


def test_a_name_that_leads_nowhere_yet_is_said_and_added(cli: QuickCli, url: str) -> None:
    caller = open_account(url)
    # RFC 6761, section 6.4: nobody ever has this name.
    words = ["webhook", "add", "--account", caller.account_id, "--json", "--url", "https://hooks.invalid/"]
    done = cli.run(*words)

    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("Not reachable yet: hooks.invalid ")
    assert listed(cli, caller)[0]["url"] == json.loads(done.stdout)["url"] == "https://hooks.invalid/"


def test_a_setting_that_is_neither_yes_nor_no_is_told_before_anything_starts(url: str) -> None:
    cli = QuickCli(url, webhooks_allow_private="true")
    codes = {"serve": OPERATOR_EXIT_CODE, "worker": OPERATOR_EXIT_CODE, "webhook list": 1}
    said = "Error: TUMIRA_WEBHOOKS_ALLOW_PRIVATE is 'true'; it must be 1 for yes or 0 for no."
    assert [one_line(cli.run(*words.split()), code) for words, code in codes.items()] == [said] * 3


def test_without_a_worker_a_test_says_so(cli: QuickCli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "TEST_WAIT_S", 1)
    told = "No worker sent the test within 1 seconds: is one running?"
    cli.check_refused((told, ["webhook", "test", put(url, open_account(url))]))
