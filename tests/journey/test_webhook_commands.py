"""Can an operator add, watch, try out and repair webhook endpoints, and see a secret once only?"""

import asyncio
import hmac
import json
import signal
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx
import pytest
from click.testing import CliRunner, Result

from tests.support.embedded import wait_for
from tests.support.postgres import clone, execute
from tests.support.programs import Cli, Node, finish, new_home, one_line, running, start, tumira
from tests.support.receivers import Receiver, Request, answer, closed_port, run_receiver
from tests.support.service import Caller, free_port, new_caller
from tumira.actions.manage_webhooks import add_endpoint
from tumira.cli import main
from tumira.ids import ACCOUNT, ENDPOINT, EVENT, EventId, new_id, read_id, write_id
from tumira.store import events
from tumira.store.database import Database
from tumira.store.events import Event

# An address as it stands, so that nobody is asked where a name leads.
URL: Final = "http://127.0.0.1:9/tumira"
PUBLIC: Final = "https://hooks.example.com/tumira"
KEYS: Final = [
    "endpoint_id",
    "account_id",
    "url",
    "events",
    "description",
    "state",
    "sequence",
    "waiting",
    "failures",
    "failing_since",
    "warning",
    "last_delivery_at",
    "created_at",
]
COLUMNS: Final = "endpoint id url events state waiting"
ATTEMPT_KEYS: Final = [
    "at",
    "endpoint_id",
    "event_id",
    "sequence",
    "type",
    "attempt",
    "delivered",
    "status",
    "duration_ms",
    "next_at",
    "answer",
]
LOW: Final = '{"balance":"0.9600","threshold":"1.0000","currency":"USD"}'
ATTEMPT_COLUMNS: Final = "at event id type attempt status duration ms answer"
UNKNOWN_ENDPOINT: Final = write_id(ENDPOINT, new_id(1))
UNKNOWN_EVENT: Final = write_id(EVENT, new_id(1))
WARNING: Final = (
    "TUMIRA_WEBHOOKS_ALLOW_PRIVATE=1: webhooks may go to private addresses and without TLS. "
    "Do not let strangers have accounts here."
)
# Each says what to change.
BAD_URLS: Final = {
    PUBLIC + "x" * 2048: "at most 2,048 characters",
    PUBLIC + "é" * 500: "each escape counted as three",
    PUBLIC + "/a b": "write a space as %20",
    PUBLIC + "\\a": "write it as %5C",
    PUBLIC + "#a": "leave out the # and the rest",
    PUBLIC + "%zz": "write it as %25",
    "http://hooks.example.com/": "must begin with https://",
    "hooks.example.com": "must begin with https://",
    "https://user:hushhush@hooks.example.com/": "no user and password",
    "https://": "must name a host",
    "https://ß.example.com/": "begins with xn--",
    "https://127.0.0.1/": "not its address",
    "https://[::1]/": "not its address",
    "https://[::1]x/": "may only have a port",
    "https://[hooks]/": "must hold an IPv6 address",
    "https://1.2.3.4.5/": "neither a name nor an address",
    "https://localhost/": "give one that everybody can resolve",
    "https://metadata.internal/": "give one that everybody can resolve",
    "https://hooks.example.com:x/": "a whole number from 1 to 65535",
    "https://hooks.example.com:25/": "443 or one from 1024 on",
    "https://hooks.example.com:5432/": "that of PostgreSQL; choose another",
}


class Allowing(Cli):
    """The command line of somebody who allows private addresses."""

    def run(self, *arguments: str | bytes, given: bytes | None = None) -> "subprocess.CompletedProcess[str]":
        """Run one command, however it ends."""
        return tumira(*arguments, given=given, database_url=self._url, webhooks_allow_private=1)

    def _run_all(self, commands: Sequence[Sequence[str]]) -> "Sequence[subprocess.CompletedProcess[str]]":
        started = [start(*words, database_url=self._url, webhooks_allow_private=1) for words in commands]
        return [finish(one) for one in started]


@pytest.fixture(scope="module")
def url(server_url: str) -> Iterator[str]:
    """Give a database on which no worker runs; each test has accounts of its own."""
    with clone(server_url) as made:
        yield made


@pytest.fixture(scope="module")
def cli(url: str) -> Cli:
    return Allowing(url)


@pytest.fixture(scope="module", autouse=True)
def unheard(url: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a test for which there is no worker, long before somebody waits for its end."""
    endpoint_id = put(url, open_account(url))
    process = start("webhook", "test", endpoint_id, database_url=url)
    yield process
    if process.stderr is not None and not process.stderr.closed:
        process.kill()
        finish(process)


def open_account(url: str) -> Caller:
    return asyncio.run(new_caller(url))


def add(cli: Cli, caller: Caller, url: str = URL, *words: str) -> Any:
    return cli.json("webhook", "add", "--account", caller.account_id, "--url", url, *words)


def put(url: str, caller: Caller, at: str = URL) -> str:
    """Add an endpoint without a command, where the command is not what is looked at."""
    return asyncio.run(_put(url, caller, at))


async def _put(url: str, caller: Caller, at: str) -> str:
    database = Database(url, connections_max=1)
    endpoint, _ = await add_endpoint(database, caller.id, at, None, "", allow_private=True)
    await database.close()
    return write_id(ENDPOINT, endpoint.id)


def listed(cli: Cli, caller: Caller) -> Any:
    return cli.json("webhook", "list", "--account", caller.account_id)


async def tell(url: str, caller: Caller, count: int) -> None:
    """Let an account's balance fall low so many times."""
    now = datetime.now(UTC)
    now_ms = int(now.timestamp() * 1000)
    database = Database(url, connections_max=1)
    async with database.transaction() as connection:
        last = (await events.count(connection, {caller.id: count}))[caller.id]
        await events.tell(
            connection,
            [
                Event(EventId(new_id(now_ms)), caller.id, sequence, "balance.low", None, None, now, LOW)
                for sequence in range(last - count + 1, last + 1)
            ],
        )
    await database.close()


def set_up(url: str, endpoint_id: str, changes: str) -> None:
    """Have an endpoint be in a way that takes days to come about."""
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
    )
    assert set(refused) == {"Error: There is no such endpoint; `tumira webhook list` shows them."}


def test_attempts_at_an_endpoint_that_never_was_are_not_merely_none(cli: Cli) -> None:
    line = cli.refused("webhook", "attempts", UNKNOWN_ENDPOINT)

    assert line == "Error: There is no such endpoint; `tumira webhook list` shows them."


def test_the_endpoints_of_an_account_that_never_was_are_not_merely_none(cli: Cli) -> None:
    line = cli.refused("webhook", "list", "--account", write_id(ACCOUNT, new_id(1)))

    assert line == "Error: There is no such account; `tumira account list` shows them."


def test_a_paused_endpoint_waits_and_goes_on_with_all_or_from_now(cli: Cli, url: str) -> None:
    caller = open_account(url)
    endpoint_id = put(url, caller)
    paused = cli.json("webhook", "pause", endpoint_id)
    assert (list(paused), paused["state"]) == (KEYS, "paused")
    asyncio.run(tell(url, caller, 3))
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


def test_an_endpoint_that_cannot_be_is_refused_and_not_there(cli: Cli, url: str) -> None:
    caller, full = open_account(url), open_account(url)
    for number in range(5):
        put(url, full, f"{URL}/{number}")
    put(url, caller)
    words = ["webhook", "add", "--account", caller.account_id, "--url"]

    refused = cli.all_refused(
        ["webhook", "add", "--account", write_id(ACCOUNT, new_id(1)), "--url", URL],
        ["webhook", "add", "--account", full.account_id, "--url", f"{URL}/6"],
        [*words, URL],
        [*words, f"{URL}/2", "--events", "message.delivered,message.read"],
        [*words, f"{URL}/2", "--events", "webhook.test"],
        [*words, f"{URL}/2", "--events", ",message.delivered"],
        [*words, f"{URL}/2", "--description", "x" * 201],
    )

    assert refused[:3] == [
        "Error: There is no such account; `tumira account list` shows them.",
        "Error: The account has 5 endpoints, the most there can be: remove one first.",
        "Error: The account has an endpoint with this URL already; change that one instead.",
    ]
    for line, name in zip(refused[3:6], ("message.read", "webhook.test", ""), strict=True):
        assert f"no event {name!r} to choose: name some of message.sent, message.delivered, " in line
        assert line.endswith("balance.low, or all.")
    assert refused[6] == "Error: The description has 201 characters; at most 200 fit."
    assert (len(listed(cli, caller)), len(listed(cli, full))) == (1, 5)


@pytest.fixture
def invoke(url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command in this process, where there are too many of them to start one for each."""
    monkeypatch.chdir("/")
    environment = {"TUMIRA_DATABASE_URL": url, "TUMIRA_WEBHOOKS_ALLOW_PRIVATE": None}
    return lambda *words: CliRunner().invoke(main, words, env=environment)


def test_each_rule_for_urls_is_told_in_one_line(cli: Cli, url: str, invoke: Callable[..., Result]) -> None:
    caller = open_account(url)
    words = ["webhook", "add", "--account", caller.account_id, "--url"]

    done = {bad: invoke(*words, bad) for bad in BAD_URLS}

    assert {(one.exit_code, one.stdout, one.stderr.count("\n")) for one in done.values()} == {(1, "", 1)}
    assert [(bad, one.stderr) for bad, one in done.items() if BAD_URLS[bad] not in one.stderr] == []
    assert not [one for one in done.values() if "hushhush" in one.stderr]
    assert listed(cli, caller) == []


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
    )

    which = "Error: Say what to send once more: --event ID, --after SEQUENCE, or --from TIME."
    assert refused == [which] * 4 + ["Error: --until goes with --from."]


def test_a_time_that_ends_before_it_begins_is_told(cli: Cli, url: str) -> None:
    endpoint_id = put(url, open_account(url))

    line = cli.refused("webhook", "replay", endpoint_id, "--from", "2026-11-16", "--until", "2026-11-15")

    assert "--until" in line


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
    commands = (["serve"], ["worker"], ["webhook", "list"])
    done = [
        start(*words, database_url=url, port=free_port(), webhooks_allow_private="true") for words in commands
    ]

    said = "Error: TUMIRA_WEBHOOKS_ALLOW_PRIVATE is 'true'; it must be 1 for yes or 0 for no."
    assert [one_line(finish(one)) for one in done] == [said] * len(commands)


def test_a_worker_says_at_its_start_that_private_addresses_are_allowed(server_url: str) -> None:
    with clone(server_url) as url:
        for words, allowed, said in (
            (["worker"], "1", WARNING + "\n"),
            (["worker", "--json"], "0", ""),
            (["worker"], "", ""),
        ):
            worker = start(*words, database_url=url, webhooks_allow_private=allowed)
            assert worker.stdout is not None
            assert worker.stdout.readline()
            worker.send_signal(signal.SIGTERM)
            done = finish(worker)
            assert (done.returncode, done.stderr) == (0, said)


# From here on a whole node runs, which allows private addresses.


@pytest.fixture(scope="module")
def node(server_url: str) -> Iterator[Node]:
    """Give a node on a database of its own, with the simulator as its carrier."""
    settings = {"webhooks_allow_private": 1}
    with clone(server_url) as url, new_home() as home, running(home, database_url=url, **settings) as made:
        yield made


@pytest.fixture(scope="module")
def operator(node: Node) -> Allowing:
    return Allowing(node.settings["database_url"])


async def run(cli: Cli, *words: str) -> str:
    """Run a command that succeeds while the receivers of this process answer."""
    return await asyncio.to_thread(cli.text, *words)


async def run_json(cli: Cli, *words: str) -> Any:
    return await asyncio.to_thread(cli.json, *words)


async def try_in_vain(cli: Cli, endpoint_id: str, *words: str) -> str:
    """Have a test sent that does not arrive, which the exit code tells, and return what was printed."""
    done = await asyncio.to_thread(cli.run, "webhook", "test", endpoint_id, *words)
    assert (done.returncode, done.stderr) == (1, ""), done
    return done.stdout


async def send(node: Node, caller: Caller, count: int = 1) -> None:
    to = [f"+2637712{place:05}" for place in range(count)]
    async with httpx.AsyncClient(trust_env=False) as client:
        answered = await client.post(
            f"{node.base}/api/v1/messages",
            headers={"Authorization": f"Bearer {caller.key}"},
            json={"channel": "sms", "to": to, "body": "Your code is 493817."},
        )
    assert answered.status_code == 202, answered.text


async def new_endpoint(operator: Cli, node: Node, receiver: Receiver, *words: str) -> tuple[Caller, Any]:
    """Open an account with an endpoint at the receiver."""
    caller = await new_caller(node.settings["database_url"])
    added = await asyncio.to_thread(add, operator, caller, receiver.url, *words)
    return caller, added


async def until_it_is(url: str, endpoint_id: str, so: str) -> None:
    """Wait until it is written down that an endpoint is in some way."""
    sql = f"SELECT FROM webhook_endpoints WHERE id = $1 AND {so}"
    identifier = read_id(ENDPOINT, endpoint_id)
    await asyncio.to_thread(wait_for, lambda: bool(execute(url, sql, identifier)))


def signature(secret: str, request: Request) -> str:
    """Sign a request as the specification says, with what its receiver was given."""
    headers = request.headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
    key = b64decode(secret.removeprefix("whsec_"))
    return "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()


def bodies(requests: Sequence[Request]) -> Sequence[Any]:
    return [json.loads(request.body) for request in requests]


async def test_serve_says_once_that_private_addresses_are_allowed(node: Node) -> None:
    assert node.said().count(WARNING) == 1
    assert node.said().index(WARNING) < node.said().index("is ready")


async def test_what_happens_arrives_signed_and_the_operator_sees_it(operator: Allowing, node: Node) -> None:
    async with run_receiver() as receiver:
        words = ("--events", "message.delivered,batch.completed")
        caller, added = await new_endpoint(operator, node, receiver, *words)
        await send(node, caller, 2)
        await receiver.wait(requests=3)
        await until_it_is(node.settings["database_url"], added["endpoint_id"], "position = 3")
        (shown,) = await asyncio.to_thread(listed, operator, caller)
        attempts = await run_json(operator, "webhook", "attempts", added["endpoint_id"])
        text = await run(operator, "webhook", "attempts", added["endpoint_id"], "--limit", "2")
        one = await run_json(
            operator, "webhook", "attempts", added["endpoint_id"], "--event", attempts[0]["event_id"]
        )

    types = {body["sequence"]: body["type"] for body in bodies(receiver.requests)}
    assert types == {1: "message.delivered", 2: "message.delivered", 3: "batch.completed"}
    for request in receiver.requests:
        assert request.headers["webhook-signature"] == signature(added["secret"], request)
    assert (shown["waiting"], shown["failures"], shown["warning"]) == (0, 0, None)
    assert shown["last_delivery_at"] is not None
    assert [list(attempt) for attempt in attempts] == [ATTEMPT_KEYS] * 3
    assert {attempt["sequence"]: attempt["type"] for attempt in attempts} == types
    assert [attempt["at"] for attempt in attempts] == sorted((a["at"] for a in attempts), reverse=True)
    assert {attempt["event_id"] for attempt in attempts} == {
        request.headers["webhook-id"] for request in receiver.requests
    }
    for attempt in attempts:
        assert (attempt["attempt"], attempt["delivered"], attempt["status"]) == (1, True, 200)
        assert (attempt["next_at"], attempt["answer"]) == (None, "thanks")
    header, *lines = text.splitlines()
    assert " ".join(header.split()) == ATTEMPT_COLUMNS
    assert [line.split()[2] for line in lines] == [attempt["event_id"] for attempt in attempts[:2]]
    assert one == attempts[:1]


async def test_a_test_shows_what_the_endpoint_answered(operator: Allowing, node: Node) -> None:
    async with run_receiver() as receiver:
        # A test comes whatever the endpoint takes.
        _, added = await new_endpoint(operator, node, receiver, "--events", "message.failed")
        endpoint_id = added["endpoint_id"]
        delivered = await run_json(operator, "webhook", "test", endpoint_id)
        receiver.respond = answer(503, body=b"closed\nfor \x1b[31mtoday\0")
        said = await try_in_vain(operator, endpoint_id)
        refused = json.loads(await try_in_vain(operator, endpoint_id, "--json"))
        attempts = await run_json(operator, "webhook", "attempts", endpoint_id)
        (shown,) = await run_json(operator, "webhook", "list", "--account", added["account_id"])
        event_id = attempts[0]["event_id"]
        line = await asyncio.to_thread(
            operator.refused, "webhook", "replay", endpoint_id, "--event", event_id
        )

    assert list(delivered) == ATTEMPT_KEYS
    assert (delivered["delivered"], delivered["status"], delivered["answer"]) == (True, 200, "thanks")
    assert (delivered["type"], delivered["sequence"]) == ("webhook.test", 0)
    assert said.startswith("Not delivered.\n")
    assert "  status       503\n" in said
    assert "  answer       closed\\x0afor \\x1b[31mtoday" in said
    # A test is tried once.
    assert (refused["delivered"], refused["attempt"], refused["next_at"]) == (False, 1, None)
    assert len(receiver.requests) == len(attempts) == 3
    for request, attempt in zip(receiver.requests, reversed(attempts), strict=True):
        assert request.headers["webhook-id"] == attempt["event_id"]
        assert request.headers["webhook-signature"] == signature(added["secret"], request)
    assert bodies(receiver.requests[:1])[0]["type"] == "webhook.test"
    assert (shown["sequence"], shown["waiting"]) == (0, 0)
    assert line == "Error: A test is not sent twice; `tumira webhook test` sends another."


async def test_a_test_says_why_nothing_was_answered(operator: Allowing, node: Node) -> None:
    caller = await new_caller(node.settings["database_url"])
    with closed_port() as port:
        added = await asyncio.to_thread(add, operator, caller, f"http://127.0.0.1:{port}/")
        tried = json.loads(await try_in_vain(operator, added["endpoint_id"], "--json"))

    assert (tried["delivered"], tried["status"]) == (False, None)
    assert tried["answer"] == "Connection refused."


async def test_what_fails_waits_is_shown_and_comes_when_the_endpoint_is_moved(
    operator: Allowing, node: Node
) -> None:
    async with run_receiver(answer(503, body=b"no")) as broken, run_receiver() as receiver:
        caller, added = await new_endpoint(operator, node, broken, "--events", "batch.completed")
        await send(node, caller)
        await broken.wait(requests=1)
        await until_it_is(node.settings["database_url"], added["endpoint_id"], "failures > 0")
        (failing,) = await asyncio.to_thread(listed, operator, caller)
        attempts = await run_json(operator, "webhook", "attempts", added["endpoint_id"])
        moved = await run_json(operator, "webhook", "change", added["endpoint_id"], "--url", receiver.url)
        await receiver.wait(requests=1)

    assert (failing["waiting"], failing["last_delivery_at"]) == (1, None)
    assert failing["failing_since"] is not None
    first = attempts[-1]
    assert (first["delivered"], first["status"], first["answer"]) == (False, 503, "no")
    assert first["next_at"] > first["at"]
    assert (moved["failures"], moved["failing_since"]) == (0, None)
    assert receiver.requests[0].headers["webhook-id"] == broken.requests[0].headers["webhook-id"]
    assert receiver.requests[0].body == broken.requests[0].body


async def test_nothing_comes_while_paused_and_all_or_nothing_after_it(operator: Allowing, node: Node) -> None:
    async with run_receiver() as receiver, run_receiver() as other:
        caller, added = await new_endpoint(operator, node, receiver, "--events", "batch.completed")
        marker = await asyncio.to_thread(add, operator, caller, other.url, "--events", "batch.completed")
        await run(operator, "webhook", "pause", added["endpoint_id"])
        await send(node, caller)
        # What arrives elsewhere would have arrived here too.
        await other.wait(requests=1)
        assert receiver.requests == []
        await run(operator, "webhook", "resume", added["endpoint_id"])
        await receiver.wait(requests=1)

        await run(operator, "webhook", "pause", added["endpoint_id"])
        # A worker that has the endpoint hears of it a moment later.
        await until_it_is(node.settings["database_url"], added["endpoint_id"], "worker IS NULL")
        await send(node, caller)
        await other.wait(requests=2)
        await run(operator, "webhook", "resume", added["endpoint_id"], "--from-now")
        await send(node, caller)
        await receiver.wait(requests=2)
        await other.wait(requests=3)

    assert marker["endpoint_id"] != added["endpoint_id"]
    theirs = [body["sequence"] for body in bodies(other.requests)]
    assert [body["sequence"] for body in bodies(receiver.requests)] == [theirs[0], theirs[2]]


async def test_each_kind_of_replay_sends_the_same_again(operator: Allowing, node: Node) -> None:
    async with run_receiver() as receiver:
        caller, added = await new_endpoint(
            operator, node, receiver, "--events", "message.delivered,batch.completed"
        )
        await send(node, caller)
        await receiver.wait(requests=2)
        await until_it_is(node.settings["database_url"], added["endpoint_id"], "position = 2")
        delivered, completed = sorted(receiver.requests, key=lambda one: bodies([one])[0]["sequence"])
        replay = ("webhook", "replay", added["endpoint_id"])

        counts = [
            await run_json(operator, *replay, "--event", completed.headers["webhook-id"]),
            await run_json(operator, *replay, "--after", "1"),
            await run_json(operator, *replay, "--from", "2026-01-01"),
            await run_json(operator, *replay, "--from", "2026-01-01", "--until", "2026-01-02T08:30"),
        ]
        await receiver.wait(requests=6)
        unknown = await asyncio.to_thread(operator.refused, *replay, "--event", UNKNOWN_EVENT)

    assert [one["events"] for one in counts] == [1, 1, 2, 0]
    again = receiver.requests[2:]
    assert sorted(one.headers["webhook-id"] for one in again) == sorted(
        [completed.headers["webhook-id"]] * 3 + [delivered.headers["webhook-id"]]
    )
    for one in again:
        first = delivered if one.headers["webhook-id"] == delivered.headers["webhook-id"] else completed
        assert one.body == first.body
        assert one.headers["webhook-signature"] == signature(added["secret"], one)
    assert unknown == "Error: There is no such event; `tumira webhook attempts` shows those that were sent."


async def test_after_a_rotation_both_secrets_sign_the_new_one_first(operator: Allowing, node: Node) -> None:
    async with run_receiver() as receiver:
        _, added = await new_endpoint(operator, node, receiver)
        rotated = await run_json(operator, "webhook", "rotate", added["endpoint_id"])
        again = await run_json(operator, "webhook", "rotate", added["endpoint_id"])
        await run(operator, "webhook", "test", added["endpoint_id"])

    (request,) = receiver.requests
    assert request.headers["webhook-signature"].split(" ") == [
        signature(again["secret"], request),
        signature(rotated["secret"], request),
    ]


@pytest.fixture
def forbidding_url(database_url: str) -> Iterator[str]:
    """Give a database with a worker that allows no private addresses."""
    worker = start("worker", "--json", database_url=database_url, webhooks_allow_private=0)
    assert worker.stdout is not None
    assert worker.stdout.readline()
    yield database_url
    worker.send_signal(signal.SIGTERM)
    done = finish(worker)
    assert (done.returncode, done.stderr) == (0, "")


async def test_when_private_addresses_are_forbidden_again_nothing_is_called_and_each_try_says_why(
    forbidding_url: str,
) -> None:
    url = forbidding_url
    allowing, plain = Allowing(url), Cli(url)
    async with run_receiver() as receiver:
        caller = await new_caller(url)
        added = await asyncio.to_thread(add, allowing, caller, receiver.url)
        tried = json.loads(await try_in_vain(plain, added["endpoint_id"], "--json"))
        await tell(url, caller, 2)
        await until_it_is(url, added["endpoint_id"], "failures >= 3")
        attempts = await run_json(plain, "webhook", "attempts", added["endpoint_id"])
        (shown,) = await asyncio.to_thread(listed, plain, caller)

    assert receiver.connections == 0
    why = "The URL must begin with https://, as in https://hooks.example.com/tumira."
    assert (tried["delivered"], tried["status"], tried["answer"]) == (False, None, why)
    assert {(one["status"], one["answer"]) for one in attempts} == {(None, why)}
    assert (shown["state"], shown["waiting"]) == ("active", 2)


def test_without_a_worker_a_test_says_so(unheard: "subprocess.Popen[bytes]") -> None:
    assert one_line(finish(unheard)) == ("Error: No worker sent the test within 20 seconds: is one running?")
