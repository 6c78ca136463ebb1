"""The recipes of docs/recipes.md: made from the OpenAPI document, and each run as it is shown."""

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from jinja2 import UndefinedError

from scripts.recipes import Recipes, recipes_page
from tests.support.clients import CLIENTS, RUN_S, install_clients, program
from tests.support.processes.service import Caller, Service
from tumira.api.docs.openapi import document

SECRET: Final = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
# The program of each language, and how its files end.
PROGRAMS: Final[Mapping[str, tuple[str, str]]] = {
    "bash": ("bash", "sh"),
    "python": (sys.executable, "py"),
    "js": ("node", "mjs"),
    "php": ("php", "php"),
}
SECTIONS: Final = {
    title: re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for title, _, text in (part.partition("\n") for part in recipes_page().split("\n## ")[1:])
}
JOBS: Final = [title for title in SECTIONS if SECTIONS[title]]


def run(folder: Path, title: str, language: str, **environment: str) -> str:
    """Run the blocks of a recipe in one language, and return what they print."""
    command, suffix = PROGRAMS[language]
    install_clients(folder)
    source = "\n".join(text for found, text in SECTIONS[title] if found == language)
    file = folder / f"recipe.{suffix}"
    file.write_text(source, encoding="utf-8")
    done = subprocess.run(
        [program(command), str(file)],
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": str(CLIENTS / "python"), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def settings(service: Service, caller: Caller) -> dict[str, str]:
    return {"TUMIRA_URL": service.base, "TUMIRA_API_KEY": caller.key}


def test_every_job_is_shown_in_every_language() -> None:
    assert len(JOBS) > 7
    for title in JOBS:
        assert {language for language, _ in SECTIONS[title]} == set(PROGRAMS), title


@pytest.mark.parametrize(
    "language", ["bash", *(pytest.param(one, marks=pytest.mark.long) for one in ("python", "js", "php"))]
)
def test_one_message_is_sent_once(service: Service, tmp_path: Path, language: str) -> None:
    caller = service.open_account("1")
    for _ in range(2):
        assert re.search(
            r"bat_\w{26}", run(tmp_path, "Send one message", language, **settings(service, caller))
        )
    assert str(service.balance(caller)) == "0.9600"


@pytest.mark.parametrize(
    ("kind", "name"), [("schemas", "SendResponse"), ("schemas", "MessageView"), ("schemas", "SendRequest")]
)
def test_a_field_that_was_renamed_stops_the_page(kind: str, name: str) -> None:
    api = json.loads(document())
    fields = api["components"][kind][name]["properties"]
    renamed = {"SendResponse": "batch_id", "MessageView": "status", "SendRequest": "body"}[name]
    fields["another"] = fields.pop(renamed)
    with pytest.raises((UndefinedError, KeyError)):
        Recipes(api).write()


Check = Callable[[str, Path, str], None]


def price(printed: str, _: Path, language: str) -> None:
    if language == "bash":
        assert json.loads(printed)["total_cost"] == "0.0600"
    else:
        assert printed == "1 0.0600\n"


def several(printed: str, _: Path, language: str) -> None:
    if language == "bash":
        printed = "".join(f"{one['to']} {one['code']}\n" for one in json.loads(printed)["rejected"])
    assert printed == "+15550100 UNSUPPORTED_DESTINATION\n"


def any_number(printed: str, _: Path, language: str) -> None:
    if language == "bash":
        assert [json.loads(line)["accepted"] for line in printed.splitlines()] == [1_000, 1]
    else:
        assert printed == "1001 40.0400\n"


def looked_up(printed: str, _: Path, language: str) -> None:
    if language == "bash":
        assert '"status":"queued"' in printed
    else:
        (status, *messages) = printed.splitlines()
        assert status == "queued 0.0000"
        assert [line.split()[:2] for line in messages] == [["+263771200001", "queued"]]


def balance(printed: str, _: Path, language: str) -> None:
    assert "99.9600" in printed
    assert re.search(r"ZW 0\.04|\"ZW\"", printed), (language, printed)


def exported(printed: str, folder: Path, language: str) -> None:
    assert printed == ""
    rows = (folder / "outcomes.csv").read_text().replace('"', "").splitlines()
    assert rows == ["+263771200001,queued,0.0400"] * 2, language


def verified(printed: str, folder: Path, language: str) -> None:
    if language == "bash":
        assert (folder / "event.json").exists()
    else:
        assert printed == "message.delivered delivered\n"


CHECKS: Final[Mapping[str, Check]] = {
    "Ask for the price first": price,
    "Send to several, and see who was rejected": several,
    "Send to any number": any_number,
    "Look up the outcome": looked_up,
    "Read the balance and the prices": balance,
    "Export the outcomes": exported,
    "Verify events": verified,
}


def test_every_job_is_tried() -> None:
    assert {*CHECKS, "Send one message", "Handle refusals"} == set(JOBS)


@pytest.mark.long
@pytest.mark.parametrize("title", CHECKS)
def test_a_recipe_does_its_job(service: Service, tmp_path: Path, title: str) -> None:
    if "jq" in "".join(text for _, text in SECTIONS[title]) and shutil.which("jq") is None:
        pytest.skip("jq is not installed, so the recipe is not tried")
    (tmp_path / "numbers.txt").write_text("".join(f"+26377120{place:04}\n" for place in range(1_001)))
    for language in PROGRAMS:
        caller = service.open_account("100")
        given = settings(service, caller)
        sent = service.send(caller).json()["batch_id"]
        message = service.call(caller, "GET", f"/batches/{sent}").json()["data"]["messages"][0]["message_id"]
        (tmp_path / "batches.txt").write_text(f"{sent}\n{sent}\n")
        with receiver(tmp_path) as endpoint:
            printed = run(
                tmp_path,
                title,
                language,
                **given,
                BATCH_ID=sent,
                MESSAGE_ID=message,
                ENDPOINT=endpoint,
                WEBHOOK_SECRET=SECRET,
            )
        CHECKS[title](printed, tmp_path, language)


@pytest.mark.long
@pytest.mark.parametrize("language", PROGRAMS)
def test_refusals_are_told_apart(service: Service, tmp_path: Path, language: str) -> None:
    caller = service.open_account("0.01")
    title = "Handle refusals"
    printed = run(tmp_path, title, language, **settings(service, caller))
    wanted = '"shortfall":"0.0500"' if language == "bash" else "Top up 0.0500"
    assert wanted in printed
    printed = run(tmp_path, title, language, TUMIRA_URL=service.base, TUMIRA_API_KEY="tmr_wrong")
    assert "INVALID_API_KEY" in printed
    assert re.search(r"req_\w+", printed)


@contextmanager
def receiver(folder: Path) -> Iterator[str]:
    """Run an endpoint that stores the event that it gets, with its headers."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            (folder / "event.json").write_bytes(body)
            (folder / "headers.json").write_text(json.dumps(dict(self.headers.items())))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
