"""A new user's path in docs/quickstart.md, tried word for word."""

import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.clients import CLIENTS, install_clients, program
from tests.support.install.fresh_clone import serving, settle
from tests.support.postgres.embedded import temporary_base
from tests.support.processes.programs import CHECKOUT
from tests.support.processes.service import Service
from tumira.api.docs.pages import read_samples

PAGE: Final = (CHECKOUT / "docs" / "quickstart.md").read_text(encoding="utf-8")
# Depends on the network; this only ends the wait.
RUN_S: Final = 150


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def base() -> Iterator[Path]:
    with temporary_base() as path:
        yield path


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_new_user_gets_from_nothing_to_a_delivered_message(base: Path) -> None:
    for name in ("curl", "npm", "php"):
        program(name)
    person = settle(base, pwd.getpwuid(os.geteuid()).pw_name)
    (command,) = blocks(PAGE, "console")
    with serving(person, command.removeprefix("$ ").split()):
        answers = run(person.clone, person.environment)
    (account, price, send, batch, handset, *clients, refused) = answers
    assert account == ""
    assert price == blocks(PAGE, "json")[0].strip()
    assert json.loads(send)["total_cost"] == "0.0400"
    (message,) = json.loads(batch)["data"]["messages"]
    assert (message["to"], message["status"]) == ("+263771200001", "delivered")
    assert "Your order 1042 is ready." in handset
    paid = [f"{language} paid 0.0600" for language in ("JavaScript", "PHP", "Python")]
    assert [answer.splitlines()[-1] for answer in clients] == paid
    assert json.loads(refused)["error"]["code"] == "CONTENT_REJECTED"


def run(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Run the blocks of the page one after the other in one shell, and return what each printed."""
    mark = "-- end of a block --"
    script = "".join(f"{block}\necho\necho '{mark}'\n" for block in blocks(PAGE, "bash"))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [part.strip() for part in done.stdout.split(mark)[:-1]]


# What a program has above the lines that the README shows.
HEADS: Final = {
    "python": "from tumira_client import Tumira",
    "js": 'import { Tumira } from "tumira-client";',
    "php": "<?php require 'vendor/autoload.php';",
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("language", "command", "file"),
    [
        ("python", sys.executable, "send.py"),
        ("js", "node", "send.mjs"),
        ("php", "php", "send.php"),
    ],
)
def test_the_lines_of_the_readme_send(
    service: Service, tmp_path: Path, language: str, command: str, file: str
) -> None:
    (line,) = blocks((CHECKOUT / "README.md").read_text(encoding="utf-8"), language)
    install_clients(tmp_path)
    (tmp_path / file).write_text(f"{HEADS[language]}\n{line}", encoding="utf-8")
    caller = service.open_account("1")
    subprocess.run(
        [program(command), file],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(CLIENTS / "python"),
            "TUMIRA_URL": service.base,
            "TUMIRA_API_KEY": caller.key,
        },
        check=True,
        timeout=RUN_S,
    )
    assert str(service.balance(caller)) == "0.9400"


@pytest.mark.parametrize("language", ["python", "javascript", "php"])
def test_the_five_lines_are_the_same_everywhere(language: str) -> None:
    shown = blocks((CHECKOUT / "docs" / "clients.md").read_text(encoding="utf-8"), "[a-z]+")
    assert read_samples()["client"][language] + "\n" in shown


def test_the_readmes_name_methods_that_exist() -> None:
    for language, source in (
        ("python", "tumira_client/client.py"),
        ("javascript", "client.js"),
        ("php", "src/Client.php"),
    ):
        readme = (CLIENTS / language / "README.md").read_text(encoding="utf-8")
        code = (CLIENTS / language / source).read_text(encoding="utf-8")
        named = re.findall(r"`(\w+)\((?=[^`]*\)`)", re.sub(r"(?<!^)`, `", "` `", readme))
        assert {"send", "price", "balance"} <= set(named)
        for name in named:
            assert re.search(rf"\b{name}\(", code), name
