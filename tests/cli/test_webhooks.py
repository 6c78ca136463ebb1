"""The `tumira webhook` commands: parsing, output and errors."""

import asyncio
import json
import signal
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from tests.support.postgres.databases import clone, execute
from tests.support.processes.programs import Cli, finish, one_line, start
from tests.support.processes.service import Caller, free_port, new_caller
from tests.support.webhooks.commands import (
    KEYS,
    UNKNOWN_EVENT,
    URL,
    WARNING,
    Allowing,
    add,
    add_events,
    listed,
)
from tumira.cli import main
from tumira.core.errors import OPERATOR_EXIT_CODE
from tumira.core.ids import ACCOUNT, ENDPOINT, new_id, read_id, write_id
from tumira.postgres.pool import Database
from tumira.webhooks.manage import add_endpoint

COLUMNS: Final = "endpoint id url events state waiting"
UNKNOWN_ENDPOINT: Final = write_id(ENDPOINT, new_id(1))


@pytest.fixture(scope="module")
def url(server_url: str) -> Iterator[str]:
    with clone(server_url) as made:
        yield made


@pytest.fixture(scope="module")
def cli(url: str) -> Cli:
    return Allowing(url)


@pytest.fixture(scope="module", autouse=True)
def unheard(url: str) -> "Iterator[subprocess.Popen[bytes]]":
    endpoint_id = put(url, open_account(url))
    process = start("webhook", "test", endpoint_id, database_url=url)
    yield process
    if process.stderr is not None and not process.stderr.closed:
        process.kill()
        finish(process)


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


def test_an_endpoint_is_added_and_its_secret_is_shown_once(cli: Cli, url: str) -> None:
    caller = open_account(url)
    assert listed(cli, caller) == []
    assert "`tumira webhook add`" in cli.text("webhook", "list", "--account", caller.account_id)

    words = ["--events", "message.failed, message.delivered", "--description", "Café shop"]
    added = add(cli, caller, URL, *words)

    assert list(added) == ["endpoint_id", "secret", *KEYS[1:]]
    assert added["endpoint_id"].startswith("end_")
    assert added["created_at"].endswith("+00:00")
    assert len(b64decode(added.pop("secret").removeprefix("whsec_"), validate=True)) == 32
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
    (shown,) = listed(cli, caller)
    # The list has the time of the database.
    assert shown | {"created_at": added["created_at"]} == added
    assert added["endpoint_id"] in [one["endpoint_id"] for one in cli.json("webhook", "list")]


def test_people_read_what_was_added_changed_and_removed_and_the_secret_once(cli: Cli, url: str) -> None:
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


def test_an_endpoint_is_changed_in_what_is_named_alone(cli: Cli, url: str) -> None:
    caller = open_account(url)
    endpoint_id = add(cli, caller, URL, "--events", "message.failed", "--description", "Shop")["endpoint_id"]

    moved = cli.json("webhook", "change", endpoint_id, "--url", URL + "/new")
    assert list(moved) == KEYS
    assert (moved["url"], moved["events"], moved["description"]) == (URL + "/new", ["message.failed"], "Shop")
    all_events = cli.json("webhook", "change", endpoint_id, "--events", "all", "--description", "")
    assert (all_events["url"], all_events["events"], all_events["description"]) == (URL + "/new", ["all"], "")
    assert listed(cli, caller) == [all_events]

    refused = cli.all_refused(
        ["webhook", "change", endpoint_id],
        ["webhook", "change", endpoint_id, "--url", "ftp://127.0.0.1/"],
        ["webhook", "change", endpoint_id, "--events", "message.read"],
        ["webhook", "change", endpoint_id, "--description", "x" * 201],
    )
    assert refused[0] == "Error: Say what to change: --url, --events or --description."
    assert "must begin with https:// or http://" in refused[1]
    assert "no event 'message.read' to choose: name some of message.sent, " in refused[2]
    assert "at most 200 fit" in refused[3]
    assert listed(cli, caller) == [all_events]


def test_a_removed_endpoint_is_gone(cli: Cli, url: str) -> None:
    caller = open_account(url)
    endpoint_id = put(url, caller)

    removed = cli.json("webhook", "remove", endpoint_id)

    assert removed == {"endpoint_id": endpoint_id, "url": URL, "removed": True}
    assert listed(cli, caller) == []
    refused = cli.all_refused(
        ["webhook", "remove", endpoint_id],
        ["webhook", "change", endpoint_id, "--description", "Shop"],
        ["webhook", "pause", UNKNOWN_ENDPOINT],
        ["webhook", "resume", UNKNOWN_ENDPOINT],
        ["webhook", "rotate", UNKNOWN_ENDPOINT],
        ["webhook", "test", UNKNOWN_ENDPOINT],
        ["webhook", "replay", UNKNOWN_ENDPOINT, "--after", "0"],
        ["webhook", "attempts", UNKNOWN_ENDPOINT],
    )
    assert set(refused) == {"Error: There is no such endpoint; `tumira webhook list` shows them."}


def test_the_endpoints_of_an_account_that_never_was_are_not_merely_none(cli: Cli) -> None:
    line = cli.refused("webhook", "list", "--account", write_id(ACCOUNT, new_id(1)))

    assert line == "Error: There is no such account; `tumira account list` shows them."


def test_a_paused_endpoint_waits_and_goes_on_with_all_or_from_now(cli: Cli, url: str) -> None:
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
    refused = cli.all_refused(
        ["webhook", "test", endpoint_id], ["webhook", "replay", endpoint_id, "--after", "0"]
    )
    assert set(refused) == {"Error: The endpoint is paused: `tumira webhook resume` first."}


def test_a_rotated_secret_is_a_new_one_and_the_old_one_lasts_a_day(cli: Cli, url: str) -> None:
    caller = open_account(url)
    added = add(cli, caller)

    rotated = cli.json("webhook", "rotate", added["endpoint_id"])

    assert list(rotated) == ["endpoint_id", "secret", "old_secret_until"]
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != added["secret"]
    left = datetime.fromisoformat(rotated["old_secret_until"]) - datetime.now(UTC)
    assert timedelta(hours=23) < left < timedelta(hours=24)


def test_a_list_warns_of_what_fails_and_of_what_was_disabled(cli: Cli, url: str) -> None:
    caller = open_account(url)
    failing, disabled, well = (put(url, caller, f"{URL}/{name}") for name in "abc")
    set_up(url, failing, "failures = 30, failing_since = '2026-11-15 08:30Z', warnings = 1")
    set_up(url, disabled, "state = 'disabled', reason = 'It answered 410 Gone.'")

    text = cli.text("webhook", "list", "--account", caller.account_id)
    table, *warnings = text.rstrip("\n").split("\n\n")

    assert len(table.splitlines()) == 4
    assert len(warnings) == 2
    assert warnings[0].startswith(
        f"{failing}: Nothing has arrived since 2026-11-15 08:30 UTC; it is disabled"
    )
    assert warnings[1].startswith(f"{disabled}: Disabled: It answered 410 Gone. Put that right, then resume")
    shown = {one["endpoint_id"]: one for one in listed(cli, caller)}
    assert [shown[one]["state"] for one in (failing, disabled, well)] == ["active", "disabled", "active"]
    assert shown[failing]["failing_since"] == "2026-11-15T08:30:00.000+00:00"
    assert [f"{one}: {shown[one]['warning']}" for one in (failing, disabled)] == warnings
    assert shown[well]["warning"] is None
    assert cli.json("webhook", "resume", disabled)["warning"] is None


@pytest.fixture
def invoke(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir("/")
    environment = {"TUMIRA_DATABASE_URL": url, "TUMIRA_WEBHOOKS_ALLOW_PRIVATE": None}
    return lambda *words: CliRunner().invoke(main, words, env=environment)


def test_letters_that_are_none_are_told_in_words_for_people(cli: Cli, url: str) -> None:
    words = ["webhook", "add", "--account", open_account(url).account_id, "--url"]

    assert "no spaces, line ends or control characters" in cli.refused(*words, b"http://127.0.0.1/\xff")
    assert "DataError" not in cli.refused(*words, URL, "--description", b"\xff")


def test_what_is_typed_wrongly_is_told_with_an_example(invoke: Callable[..., Result]) -> None:
    replay = ["webhook", "replay", UNKNOWN_ENDPOINT]
    typed = (
        ["webhook", "add", "--url", URL],
        ["webhook", "add", "--account", UNKNOWN_ENDPOINT, "--url", URL],
        ["webhook", "add", "--account", write_id(ACCOUNT, new_id(1))],
        ["webhook", "pause", "end_1"],
        ["webhook", "attempts", UNKNOWN_ENDPOINT, "--event", UNKNOWN_ENDPOINT],
        ["webhook", "attempts", UNKNOWN_ENDPOINT, "--limit", "0"],
        ["webhook", "attempts", UNKNOWN_ENDPOINT, "--limit", "1001"],
        [*replay, "--event", "7"],
        [*replay, "--after", "-1"],
        [*replay, "--after", "first"],
        [*replay, "--from", "yesterday"],
        [*replay, "--from", "2026-11-15", "--until", "2026-11-31"],
    )

    done = [invoke(*words) for words in typed]

    assert {(one.exit_code, one.stdout, one.stderr[:7]) for one in done} == {(2, "", "Usage: ")}
    wrong = [one.stderr.splitlines()[-1] for one in done]
    says = [
        "Missing option '--account'",
        "is not an account's id; `tumira account list` shows them.",
        "Missing option '--url'",
        "'end_1' is not an endpoint's id; `tumira webhook list` shows them.",
        "is not an event's id; it stands in `webhook-id`.",
        "'--limit'",
        "'--limit'",
        "'7' is not an event's id; it stands in `webhook-id`.",
        "'--after': -1 is not in the range",
        "'--after': 'first' is not a valid integer",
        "'yesterday' is not a time such as 2026-11-15T08:30 or 2026-11-15.",
        "'2026-11-31' is not a time such as 2026-11-15T08:30 or 2026-11-15.",
    ]
    assert [(say, line) for say, line in zip(says, wrong, strict=True) if say not in line] == []


def test_a_replay_is_of_one_kind(cli: Cli) -> None:
    replay = ["webhook", "replay", UNKNOWN_ENDPOINT]
    refused = cli.all_refused(
        replay,
        [*replay, "--until", "2026-11-15"],
        [*replay, "--event", UNKNOWN_EVENT, "--after", "0"],
        [*replay, "--after", "0", "--from", "2026-11-15"],
        [*replay, "--event", UNKNOWN_EVENT, "--until", "2026-11-15"],
        [*replay, "--from", "2026-11-16", "--until", "2026-11-15"],
    )

    which = "Error: Say what to send once more: --event ID, --after SEQUENCE, or --from TIME."
    assert refused == [
        *[which] * 4,
        "Error: --until goes with --from.",
        "Error: --until is before --from: there is no time in between.",
    ]


def test_a_time_before_all_times_is_told_in_words_for_people(cli: Cli, url: str) -> None:
    endpoint_id = put(url, open_account(url))

    done = cli.run("webhook", "replay", endpoint_id, "--from", "0001-01-01T00:00+14:00")

    assert "DataError" not in done.stderr
    assert "Traceback" not in done.stderr


def test_private_addresses_and_plain_http_are_for_those_who_allow_them(cli: Cli, url: str) -> None:
    caller = open_account(url)
    words = ["webhook", "add", "--account", caller.account_id, "--json", "--url"]
    private = ["http://127.0.0.1/", "https://10.0.0.1/", "https://[::1]:5432/"]

    def run(one: str, **settings: Any) -> "subprocess.Popen[bytes]":
        return start(*words, one, database_url=url, **settings)

    refused = [one_line(finish(one)) for one in [run(one, webhooks_allow_private=0) for one in private]]
    assert "must begin with https://, as in" in refused[0]
    assert "not its address" in refused[1]
    assert "not its address" in refused[2]
    # A name without a value is as good as absent.
    assert one_line(finish(run(private[1], webhooks_allow_private=""))) == refused[1]

    added = [finish(one) for one in [run(one, webhooks_allow_private=1) for one in private]]
    assert [(one.returncode, one.stderr) for one in added] == [(0, "")] * 3
    assert sorted(one["url"] for one in listed(cli, caller)) == sorted(private)


def test_a_name_that_leads_nowhere_yet_is_said_and_added(cli: Cli, url: str) -> None:
    caller = open_account(url)
    # RFC 6761, section 6.4: nobody ever has this name.
    words = ["webhook", "add", "--account", caller.account_id, "--json", "--url", "https://hooks.invalid/"]
    done = cli.run(*words)

    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("Not reachable yet: hooks.invalid ")
    assert listed(cli, caller)[0]["url"] == json.loads(done.stdout)["url"] == "https://hooks.invalid/"


def test_a_setting_that_is_neither_yes_nor_no_is_told_before_anything_starts(url: str) -> None:
    codes = {"serve": OPERATOR_EXIT_CODE, "worker": OPERATOR_EXIT_CODE, "webhook list": 1}
    done = [
        start(*words.split(), database_url=url, port=free_port(), webhooks_allow_private="true")
        for words in codes
    ]

    said = "Error: TUMIRA_WEBHOOKS_ALLOW_PRIVATE is 'true'; it must be 1 for yes or 0 for no."
    for one, code in zip(done, codes.values(), strict=True):
        assert one_line(finish(one), code) == said


def test_a_worker_says_at_its_start_that_private_addresses_are_allowed(server_url: str) -> None:
    with clone(server_url) as url:
        for words, allowed, said in (
            (["worker"], "1", WARNING + "\n"),
            (["worker", "--json"], "0", ""),
        ):
            worker = start(*words, database_url=url, webhooks_allow_private=allowed)
            assert worker.stdout is not None
            assert worker.stdout.readline()
            worker.send_signal(signal.SIGTERM)
            done = finish(worker)
            assert (done.returncode, done.stderr) == (0, said)


def test_without_a_worker_a_test_says_so(unheard: "subprocess.Popen[bytes]") -> None:
    assert one_line(finish(unheard)) == ("Error: No worker sent the test within 20 seconds: is one running?")
