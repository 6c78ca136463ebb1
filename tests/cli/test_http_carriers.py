"""Commands for carriers over HTTP; none of them prints a secret."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.carriers.bulksms import BulkSmsServer
from tests.support.carriers.server import run_carrier
from tests.support.cli.commands import QuickCli
from tests.support.postgres.databases import execute

NUMBER: Final = "+263771200001"
SECRET: Final = "hush-hush-hush"
GIVEN: Final = f"# the token\npassword={SECRET}\n".encode()
URL: Final = "https://api.bulksms.com/v1"
ADD: Final = ("carrier", "add", "bulk", URL, "--profile", "bulksms", "--set", "user=shop")


@pytest.fixture
def cli(database_url: str) -> QuickCli:
    return QuickCli(database_url)


@pytest.fixture
def provider() -> Iterator[BulkSmsServer]:
    with run_carrier(BulkSmsServer()) as made:
        yield made


def test_profiles_are_listed_with_their_settings_and_secrets(cli: QuickCli) -> None:
    profiles = {one["profile"]: one for one in cli.json("carrier", "profiles")}
    assert {"bulksms", "infobip", "twilio", "vonage"} <= profiles.keys()
    assert profiles["bulksms"]["url"] == URL
    assert profiles["bulksms"]["secrets"] == ["password"]
    assert "user" in profiles["bulksms"]["settings"]


def test_a_carrier_is_added_shown_changed_and_removed(cli: QuickCli, database_url: str) -> None:
    done = cli.run(*ADD, "--set", "window=5", "--json", given=GIVEN)
    assert (done.returncode, SECRET in done.stdout + done.stderr) == (0, False)
    shown = cli.json("carrier", "show", "bulk")
    assert (shown["url"], shown["profile"], shown["window"], shown["health"]) == (
        URL,
        "bulksms",
        5,
        "no worker",
    )
    assert (shown["settings"], shown["secrets"]) == (["user=shop"], ["password"])
    path, token = shown["callback_url"].rsplit("/", 1)
    assert path.endswith("/hooks/carriers")
    assert len(token) >= 22
    assert SECRET not in cli.text("carrier", "list") + cli.text("carrier", "show", "bulk")

    # Without secrets on standard input those that are stored stay, and so does the address of callbacks.
    changed = cli.json(*ADD, "--set", "in_doubt=look")
    assert (changed["added"], changed["in_doubt"], changed["callback_url"]) == (
        False,
        "look",
        f"{path}/{token}",
    )
    assert stored(database_url) == f'{{"password": "{SECRET}"}}'
    assert (
        execute(database_url, "SELECT count(*) FROM operator_changes WHERE detail LIKE '%hush%'")[0][0] == 0
    )

    assert cli.json("carrier", "remove", "bulk") == {"name": "bulk", "removed": True}
    assert stored(database_url) == "{}"


def stored(database_url: str) -> str:
    return str(execute(database_url, "SELECT secrets::text FROM http_carriers")[0][0])


def test_secrets_and_profiles_come_from_files(cli: QuickCli, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_bytes(GIVEN)
    assert cli.json(*ADD, "--secrets-file", str(secrets))["secrets"] == ["password"]
    profile = tmp_path / "mine.toml"
    profile.write_text(PROFILE, encoding="utf-8")
    added = cli.json("carrier", "add", "mine", "https://sms.example/api", "--profile", str(profile))
    assert (added["profile"], added["in_doubt"]) == ("mine", "hold")


PROFILE: Final = """
name = "mine"
title = "Our own"

[settings]

[send]
path = "/send"
body = { to = "{to}", text = "{text}", ref = "{reference}" }

[send.answer]
id = "id"

[[send.rules]]
http = 200
verdict = "taken"
"""


def test_what_cannot_be_a_carrier_is_refused_without_its_secrets(cli: QuickCli, tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("name = [", encoding="utf-8")
    secrets = tmp_path / "secrets"
    secrets.write_text(SECRET, encoding="utf-8")
    good = tmp_path / "good"
    good.write_bytes(GIVEN)
    cli.check_refused(
        ("no profile 'never'", ["carrier", "add", "x", URL, "--profile", "never"]),
        ("TOML", ["carrier", "add", "x", URL, "--profile", str(broken)]),
        ("cannot be read", ["carrier", "add", "x", URL, "--profile", str(tmp_path / "none.toml")]),
        ("password", list(ADD)),
        ("KEY=VALUE", [*ADD, "--secrets-file", str(secrets)]),
        ("KEY=VALUE", [*ADD, "--set", SECRET]),
        ("give --profile", ["carrier", "add", "x", "smpp://a:b@c", "--set", "a=b"]),
        ("is for SMPP", [*ADD, "--password-file", str(secrets)]),
        ("in_doubt must be", [*ADD, "--set", "in_doubt=guess", "--secrets-file", str(good)]),
    )
    assert cli.json("carrier", "list") == []


@pytest.mark.long
def test_a_carrier_is_tried_with_and_without_a_message(cli: QuickCli, provider: BulkSmsServer) -> None:
    lines = [f"{name}={value}" for name, value in provider.secrets.items()]
    options = [word for name, value in provider.settings.items() for word in ("--set", f"{name}={value}")]
    add = ["carrier", "add", "bulk", provider.url, "--profile", "bulksms", *options]
    done = cli.run(*add, given="\n".join(lines).encode())
    assert done.returncode == 0, done.stderr

    checked = cli.json("carrier", "test", "bulk")
    assert checked["balance"] is not None
    assert provider.sent == []

    provider.tells = False
    tried = cli.json("carrier", "test", "bulk", "--to", NUMBER, "--text", "Hello", "--wait", "0")
    assert (tried["verdict"], tried["receipt"], tried["carrier_ref"]) == ("taken", None, provider.sent[0].id)
    assert (provider.sent[0].recipient.lstrip("+"), provider.sent[0].text) == (NUMBER.lstrip("+"), "Hello")
    # It is followed to its receipt, which the provider is asked for.
    provider.tells = True
    followed = cli.json("carrier", "test", "bulk", "--to", NUMBER, "--wait", "20")
    assert (followed["verdict"], followed["receipt"]) == ("taken", "DELIVRD")
    cli.check_refused(("mobile number", ["carrier", "test", "bulk", "--to", "12"]))
    # Whoever has another password is told so, and not which.
    wrong = cli.run(*add, given=b"password=not-the-password")
    assert wrong.returncode == 0
    cli.check_refused(("Check the URL", ["carrier", "test", "bulk"]))
