"""A new user's path in docs/quickstart.md, tried word for word."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.clients import CLIENTS, program
from tests.support.processes.programs import CHECKOUT, new_home, running
from tumira.api.docs.pages import read_samples

PAGE: Final = (CHECKOUT / "docs" / "quickstart.md").read_text(encoding="utf-8")
# Depends on the network; this only ends the wait.
RUN_S: Final = 150


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.long
def test_a_new_user_gets_from_nothing_to_a_delivered_message() -> None:
    for name in ("curl", "npm", "php"):
        program(name)
    with new_home() as home, running(home) as node:
        # As in a clone after `make run`.
        folder = home / "tumira"
        folder.mkdir()
        for name in (".venv", "clients"):
            (folder / name).symlink_to(CHECKOUT / name)
        answers = run(folder, {f"TUMIRA_{name.upper()}": str(value) for name, value in node.settings.items()})
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


def run(folder: Path, settings: dict[str, str]) -> list[str]:
    """Run the blocks of the page one after the other in one shell, and return what each printed."""
    mark = "-- end of a block --"
    script = "".join(f"{block}\necho\necho '{mark}'\n" for block in blocks(PAGE, "bash"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TUMIRA_", "PYTHON"))}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=kept | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [part.strip() for part in done.stdout.split(mark)[:-1]]


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
