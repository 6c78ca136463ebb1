"""Commands that add, watch, try out and remove carriers; none of them prints a password."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.cli.commands import QuickCli
from tests.support.postgres.databases import complete, execute
from tests.support.processes.ports import free_port
from tests.support.processes.programs import finish, one_line, read_terminal, start
from tumira.carriers.manage import keep_simulator
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.pdu import BindRequest, Command
from tumira.delivery.smpp.server import ServerPeer
from tumira.postgres.pool import Database

PASSWORD: Final = "hushhush"
HEALTH: Final = ["health", "bound", "binds", "outstanding", "pace", "problem"]
URL: Final = f"smpp://user:{PASSWORD}@smpp.example.com?window=10&tps=50&binds=2"
SHOWN: Final = "smpp://user:***@smpp.example.com:2775?window=10&tps=50&binds=2"
KEYS: Final = ["name", "url", "countries", "priority", *HEALTH]


@pytest.fixture
def cli(database_url: str) -> QuickCli:
    return QuickCli(database_url)


def test_a_carrier_is_added_while_it_is_away_and_listed(cli: QuickCli, database_url: str) -> None:
    assert cli.json("carrier", "list") == []
    assert "tumira carrier add" in cli.text("carrier", "list")

    added = cli.json("carrier", "add", "main", URL, "--countries", "ZW, za", "--priority", "7")

    assert added.pop("added") is True
    assert list(added) == KEYS
    assert list(added.values()) == ["main", SHOWN, ["ZW", "ZA"], 7, "no worker", 0, 2, 0, None, None]
    assert cli.json("carrier", "list") == [added]
    # What the workers say of it.
    execute(
        database_url,
        "INSERT INTO binds (carrier_id, number, worker, leased_until, state, problem, outstanding, pace)"
        " SELECT id, number, 'w', now() + interval '1 minute', state, problem, outstanding, pace"
        " FROM carriers, (VALUES (1, 'bound', NULL, 3, 20), (2, 'down', 'no listener', 0, 5))"
        " AS told (number, state, problem, outstanding, pace)",
    )
    (shown,) = cli.json("carrier", "list")
    assert [shown[name] for name in HEALTH] == ["well", 1, 2, 3, 25, "no listener"]
    execute(database_url, "UPDATE binds SET pace = NULL WHERE number = 1")
    assert cli.json("carrier", "list")[0]["pace"] is None


@pytest.mark.long
def test_people_read_that_it_was_added_changed_and_removed(cli: QuickCli) -> None:
    assert cli.text("carrier", "add", "main", URL).startswith("Carrier added.\n  name         main\n")
    changed = cli.text("carrier", "add", "main", URL.replace("tps=50", "tps=0"), "--countries", "ZA")
    assert changed.startswith("Carrier changed; the workers follow in a moment.\n")
    cli.text("carrier", "add", "other", URL, "--priority", "5")
    header, first, second = cli.text("carrier", "list").splitlines()
    assert header.split() == KEYS
    assert first.split() == ["other", SHOWN, "all", "5", "no", "worker", "0", "2", "0", "-", "-"]
    assert second.split()[:4] == ["main", SHOWN.replace("tps=50", "tps=0"), "ZA", "100"]

    assert cli.text("carrier", "remove", "main").startswith("Carrier removed.")
    assert cli.json("carrier", "remove", "other") == {"name": "other", "removed": True}
    assert cli.json("carrier", "list") == []
    cli.check_refused(
        ("already been removed", ["carrier", "remove", "main"]),
        ("There is no carrier named never. `tumira carrier list`", ["carrier", "remove", "never"]),
        ("There is no carrier named main. `tumira carrier list`", ["carrier", "test", "main"]),
    )
    assert cli.json("carrier", "add", "main", URL)["added"] is True


def test_what_cannot_be_a_carrier_is_refused_and_not_there(cli: QuickCli) -> None:
    add = ["carrier", "add", "main", URL]
    cli.check_refused(
        ("lowercase letters", ["carrier", "add", "Main", URL]),
        ("no parameter colour", ["carrier", "add", "main", URL + "&colour=red"]),
        ("not a country that you can send to", [*add, "--countries", "ZW,XX"]),
        ("not a country that you can send to", [*add, "--countries", ""]),
    )
    cli.check_misused(
        ("Missing argument 'URL'", ["carrier", "add", "main"]),
        ("--priority", [*add, "--priority", "-1"]),
        ("--priority", [*add, "--priority", "first"]),
    )
    assert cli.json("carrier", "list") == []


class Smsc(ServerPeer):
    """A carrier that lets one user in."""

    system_id = "testsmsc"

    def bound(self, bind: BindRequest, command: Command) -> int:
        del command
        if bind.system_id != "user":
            return CommandStatus.RINVSYSID
        return CommandStatus.ROK if bind.password == PASSWORD else CommandStatus.RINVPASWD


class HangsUp(asyncio.Protocol):
    """A listener that speaks something else."""

    def data_received(self, data: bytes) -> None:
        del data
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport


@asynccontextmanager
async def listening(protocol: Callable[[], asyncio.Protocol]) -> AsyncIterator[int]:
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


async def run(cli: QuickCli, *words: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(cli.run, *words)


async def test_a_carrier_that_lets_us_in_is_tried_out(cli: QuickCli) -> None:
    seen: list[Command] = []

    class Watched(Smsc):
        def bound(self, bind: BindRequest, command: Command) -> int:
            seen.append(command)
            return super().bound(bind, command)

    async with listening(Watched) as port:
        url = f"smpp://user:{PASSWORD}@127.0.0.1:{port}"
        await run(cli, "carrier", "add", "main", url)
        await run(cli, "carrier", "add", "pair", url + "?bind=pair")
        done = await run(cli, "carrier", "test", "main", "--json")
        said = await run(cli, "carrier", "test", "pair")
    assert (done.returncode, done.stderr) == (0, "")
    tried = json.loads(done.stdout)
    times_ms = [tried.pop("bind_ms"), tried.pop("enquire_link_ms")]
    assert all(0 < time_ms < 10_000 for time_ms in times_ms)
    place = {"host": "127.0.0.1", "port": port, "tls": False}
    assert tried == {"name": "main", **place, "system_id": "testsmsc"}
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("The carrier answers.\n")
    assert seen == [Command.BIND_TRANSCEIVER, Command.BIND_TRANSMITTER]
    assert PASSWORD not in done.stdout + said.stdout


@pytest.mark.long
async def test_a_carrier_that_does_not_let_us_in_is_told_in_one_line(cli: QuickCli) -> None:
    nobody = free_port()
    async with listening(Smsc) as port, listening(HangsUp) as other:
        carriers = {
            "wrong-password": (f"smpp://user:x{PASSWORD[1:]}@127.0.0.1:{port}", "The password is wrong."),
            "wrong-user": (f"smpp://nobody:{PASSWORD}@127.0.0.1:{port}", "The user is unknown."),
            "away": (
                f"smpp://user:{PASSWORD}@127.0.0.1:{nobody}",
                f"127.0.0.1:{nobody} refused the connection.",
            ),
            "no-tls": (f"smpps://user:{PASSWORD}@127.0.0.1:{port}", "use smpp://"),
            "other": (f"smpp://user:{PASSWORD}@127.0.0.1:{other}", "use smpps://"),
        }
        for name, (url, _) in carriers.items():
            await run(cli, "carrier", "add", name, url)
        lines = {name: one_line(await run(cli, "carrier", "test", name, "--json")) for name in carriers}
    assert [line for name, line in lines.items() if carriers[name][1] not in line] == []
    assert PASSWORD[1:] not in "".join(lines.values())


def test_the_password_is_in_no_output_whatever_is_typed(cli: QuickCli) -> None:
    at = "smpp.example.com"
    typed = [
        ["add", "main", URL],
        ["add", "main", URL, "--json"],
        ["list"],
        ["list", "--json"],
        ["remove", "main"],
        ["add", URL, "main"],
        ["add", URL],
        ["add", "main", "main", URL],
        ["add", "main", URL, URL, "--json"],
        ["add", "main", URL, "--priority", URL],
        ["add", "main", URL, "--countries", URL],
        ["add", "main", URL + "&window=1"],
        ["add", "main", URL.replace("smpp:", "http:")],
        ["add", "main", f"smpp://user:{PASSWORD}9@{at}"],
        ["add", "main", f"smpp://user:?{PASSWORD}@{at}"],
        ["add", "main", f"smpp://user:%{PASSWORD}@{at}"],
        ["add", "main", f"smpp://user:#/{PASSWORD}@{at}"],
        ["remove", URL],
        ["test", URL],
        ["list", URL],
        [URL],
    ]
    done = [cli.run("carrier", *words) for words in typed]
    assert [one.returncode for one in done[:5]] == [0, 0, 0, 0, 0]
    assert 0 not in [one.returncode for one in done[5:]]
    leaks = [one for one in done if PASSWORD in (one.stdout + one.stderr).lower()]
    assert leaks == []
    assert not [one for one in done if "Traceback" in one.stderr]


def stored_passwords(url: str) -> dict[str, str]:
    return {row["name"]: row["password"] for row in execute(url, "SELECT name, password FROM carriers")}


def test_a_password_is_read_from_a_file_or_from_standard_input(
    cli: QuickCli, database_url: str, tmp_path: Path
) -> None:
    url = "smpp://user@smpp.example.com"
    file = tmp_path / "password"
    file.write_text("a%2Fb:@\r\nand more\n")

    done = [
        cli.run("carrier", "add", "one", url, "--password-file", str(file), "--json"),
        cli.run("carrier", "add", "two", url, "--password-file", "-", given=PASSWORD.encode() + b"\n"),
        # As it stands in the URL, which goes on.
        cli.run("carrier", "add", "three", URL),
        cli.run("carrier", "add", "four", url, "--password-file", "-", given=b""),
    ]

    assert [(one.returncode, one.stderr) for one in done] == [(0, "")] * 4
    assert json.loads(done[0].stdout)["url"].startswith("smpp://user:***@smpp.example.com")
    stored = {"one": "a%2Fb:@", "two": PASSWORD, "three": PASSWORD, "four": ""}
    assert stored_passwords(database_url) == stored
    assert not [one for one in done if PASSWORD in one.stdout or "%2Fb" in one.stdout]


@pytest.mark.long
def test_a_password_that_is_missing_twice_there_or_not_to_be_read_is_said(
    cli: QuickCli, database_url: str, tmp_path: Path
) -> None:
    url = "smpp://user@smpp.example.com"
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    refused = [
        cli.refused("carrier", "add", "main", url),
        cli.refused("carrier", "add", "main", url, "--password-file", PASSWORD),
        cli.refused("carrier", "add", "main", url, "--password-file", str(file)),
        one_line(cli.run("carrier", "add", "main", URL, "--password-file", "-", given=b"secret")),
        one_line(cli.run("carrier", "add", "main", url, "--password-file", "-", given=b"secretsecret")),
        one_line(cli.run("carrier", "add", "main", url, "--password-file", "-", given=b"***")),
    ]
    words = (
        "--password-file - for standard input",
        "cannot be read (No such file",
        "cannot be read (it is not text)",
        "given twice",
        "0 to 8 characters",
        "real password",
    )
    assert [word for word, line in zip(words, refused, strict=True) if word not in line] == []
    assert not [line for line in refused if PASSWORD in line or "secret" in line]
    assert stored_passwords(database_url) == {}


@pytest.mark.long
def test_a_terminal_is_asked_for_the_password_and_does_not_show_it(database_url: str) -> None:
    ours, theirs = os.openpty()
    # Without the terminal that the tests may run at, which would be asked instead.
    process = start(
        *("carrier", "add", "main", "smpp://user@smpp.example.com"),
        prefix=("setsid",),
        stdin=theirs,
        database_url=database_url,
    )
    os.close(theirs)
    assert process.stderr is not None
    # What is typed before the question is thrown away.
    asked = b""
    while not asked.endswith(b": "):
        chunk = os.read(process.stderr.fileno(), 100)
        assert chunk, asked
        asked += chunk
    os.write(ours, PASSWORD.encode() + b"\n")
    done = finish(process)
    shown = read_terminal(ours)
    os.close(ours)

    assert (done.returncode, asked, done.stderr.strip()) == (0, b"Password: ", "")
    assert stored_passwords(database_url) == {"main": PASSWORD}
    assert PASSWORD not in done.stdout + shown


def test_the_first_carrier_beside_the_simulator_is_said_and_the_last_one_too(
    cli: QuickCli, database_url: str
) -> None:
    complete(make_simulator(database_url))
    first = cli.run("carrier", "add", "main", URL, "--countries", "ZW", "--json")
    second = cli.run("carrier", "add", "other", URL, "--countries", "ZW", "--json")
    gone = [cli.run("carrier", "remove", name, "--json") for name in ("other", "main")]

    assert [one.returncode for one in (first, second, *gone)] == [0] * 4
    assert "The simulator gets no more messages to ZW, not even" in first.stderr
    assert "`tumira carrier remove simulator`" in first.stderr
    assert [second.stderr, gone[0].stderr] == ["", ""]
    assert "The simulator is now the only carrier for ZW: " in gone[1].stderr
    assert list(json.loads(first.stdout)) == [*KEYS, "added"]


async def make_simulator(url: str) -> None:
    database = Database(url, connections_max=1)
    try:
        await keep_simulator(database, free_port())
    finally:
        await database.close()


def test_nothing_of_it_is_said_when_the_database_is_away() -> None:
    away = QuickCli(f"postgresql://tumira@127.0.0.1:{free_port()}/tumira")
    assert PASSWORD not in away.refused("carrier", "add", "main", URL)
