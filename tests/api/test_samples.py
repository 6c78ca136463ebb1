"""The samples of the guide do what it says: each is run against a service."""

import base64
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.clients import CLIENTS, install_clients
from tests.support.processes.service import Caller, Service
from tumira.api.docs.pages import read_samples
from tumira.webhooks.signature import sign, write_secret

RUN_S: Final = 60
NUMBER: Final = "+263771200001"
KEY: Final = bytes(range(32))
# The program of each language, and what its files are called.
PROGRAMS: Final[Mapping[str, tuple[str, str]]] = {
    "curl": ("sh", "sh"),
    "python": (sys.executable, "py"),
    "php": ("php", "php"),
    "javascript": ("node", "mjs"),
}
# What calls the functions of a sample, with commands and answers as lines of JSON.
PASSCODE: Final = {
    "python": """
import json, sys
for line in sys.stdin:
    name, *arguments = json.loads(line)
    print(json.dumps({"send": send_code, "check": check_code}[name](*arguments)), flush=True)
""",
    "php": """
while (($line = fgets(STDIN)) !== false) {
    [$name, $phone, $typed] = json_decode($line) + [2 => ''];
    echo json_encode($name === 'send' ? send_code($phone) : check_code($phone, $typed)), "\\n";
}
""",
    "javascript": """
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) {
  const [name, phone, typed] = JSON.parse(line);
  const answer = await (name === "send" ? sendCode(phone) : checkCode(phone, typed));
  console.log(JSON.stringify(answer ?? null));
}
""",
}
VERIFY: Final = {
    "python": """
import json, sys
for line in sys.stdin:
    headers, body = json.loads(line)
    print(json.dumps(is_genuine(headers, body.encode())))
""",
    "php": """
while (($line = fgets(STDIN)) !== false) {
    [$headers, $body] = json_decode($line, true);
    echo json_encode(is_genuine($headers, $body)), "\\n";
}
""",
    "javascript": """
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) {
  const [headers, body] = JSON.parse(line);
  console.log(JSON.stringify(isGenuine(headers, Buffer.from(body))));
}
""",
}


def start(
    folder: Path, name: str, language: str, base: str, driver: str = "", **environment: str
) -> "subprocess.Popen[str]":
    """Run a sample as it is shown on a service's page, with something after it that uses it."""
    program, suffix = PROGRAMS[language]
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed, so the sample is not tried")
    source = read_samples()[name][language].replace("http://127.0.0.1:8080", base)
    file = folder / f"{name}.{suffix}"
    file.write_text(f"{source}\n{driver}", encoding="utf-8")
    install_clients(folder)
    return subprocess.Popen(
        [found, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(CLIENTS / "python"),
            "CODE_SECRET": "a long random text",
            **environment,
        },
    )


def run(folder: Path, name: str, language: str, service: Service, **environment: str) -> str:
    with start(folder, name, language, service.base, **environment) as process:
        output, errors = process.communicate(timeout=RUN_S)
    assert process.returncode == 0, errors
    return output


@pytest.fixture(scope="module")
def caller(service: Service) -> Caller:
    return service.open_account("5")


def test_the_price_of_a_message_is_asked_for(service: Service, caller: Caller, tmp_path: Path) -> None:
    answer = json.loads(run(tmp_path, "price", "curl", service, TUMIRA_API_KEY=caller.key))
    assert (answer["dry_run"], answer["total_cost"]) == (True, "0.0400")


@pytest.mark.parametrize(
    ("name", "language"),
    [(name, language) for name in ("send", "client") for language in read_samples()[name]],
)
def test_a_message_is_sent_once_however_often_the_sample_is_run(
    service: Service, tmp_path: Path, name: str, language: str
) -> None:
    caller = service.open_account("5")
    outputs = {run(tmp_path, name, language, service, TUMIRA_API_KEY=caller.key) for _ in range(2)}
    (output,) = outputs
    (batch_id,) = set(re.findall(r"bat_\w{26}", output))
    assert str(service.balance(caller)) == "4.9600"
    if language == "curl":
        followed = run(tmp_path, "follow", "curl", service, TUMIRA_API_KEY=caller.key, BATCH_ID=batch_id)
        assert json.loads(followed)["data"]["batch_id"] == batch_id


@pytest.mark.parametrize("language", ["python", "php", "javascript"])
def test_why_a_message_is_refused_is_printed(service: Service, tmp_path: Path, language: str) -> None:
    caller = service.open_account("0.01")
    assert "balance" in run(tmp_path, "send", language, service, TUMIRA_API_KEY=caller.key)


@pytest.mark.parametrize("language", PASSCODE)
@pytest.mark.parametrize("name", ["passcode", "client_passcode"])
def test_a_passcode_is_sent_and_checked(
    service: Service, caller: Caller, tmp_path: Path, name: str, language: str
) -> None:
    with start(
        tmp_path, name, language, service.base, PASSCODE[language], TUMIRA_API_KEY=caller.key
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(*command: str) -> object:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(command) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline() or "0")

        number = f"+26377120000{list(PASSCODE).index(language)}"
        try:
            assert ask("check", number, "000000") is False
            assert ask("send", number) is None
            code = code_to(service, number)
            assert ask("check", number, f"{(int(code) + 1) % 1_000_000:06}") is False
            assert ask("check", number, code) is True
            # Once.
            assert ask("check", number, code) is False
            assert ask("send", number) is None
            newest = code_to(service, number)
            for _ in range(5):
                assert ask("check", number, f"{(int(newest) + 1) % 1_000_000:06}") is False
            assert ask("check", number, newest) is False
        finally:
            process.stdin.close()
            process.kill()
            output = process.stdout.read() + (process.stderr.read() if process.stderr else "")
        assert code not in output


def code_to(service: Service, number: str) -> str:
    rows = service.sql(
        "SELECT b.body FROM batches b JOIN messages m ON m.batch_id = b.id"
        " WHERE m.recipient = $1 ORDER BY b.id DESC LIMIT 1",
        number,
    )
    (code,) = re.findall(r"\b[0-9]{6}\b", rows[0]["body"])
    return str(code)


@pytest.mark.parametrize("language", VERIFY)
def test_a_genuine_event_is_told_from_others(tmp_path: Path, language: str) -> None:
    body = '{"type":"message.delivered","note":"ş"}'
    now = int(time.time())
    good = headers(KEY, now, body)
    rotated = good | {"webhook-signature": f"v1,{'A' * 43}= {good['webhook-signature']}"}
    cases = [
        (good, body, True),
        (rotated, body, True),
        (good, body.replace("delivered", "failed"), False),
        (good | {"webhook-id": "evt_other"}, body, False),
        (good | {"webhook-signature": "v1,short"}, body, False),
        (headers(b"another" * 4, now, body), body, False),
        (headers(KEY, now - 400, body), body, False),
        (headers(KEY, now + 400, body), body, False),
    ]
    secret = write_secret(KEY)
    assert secret == "whsec_" + base64.b64encode(KEY).decode()
    with start(tmp_path, "verify", language, "", VERIFY[language], WEBHOOK_SECRET=secret) as process:
        asked = "".join(json.dumps([head, text]) + "\n" for head, text, _ in cases)
        output, errors = process.communicate(asked, timeout=RUN_S)
    assert [json.loads(line) for line in output.splitlines()] == [genuine for *_, genuine in cases], errors


def headers(key: bytes, at_s: int, body: str) -> dict[str, str]:
    return {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(at_s),
        "webhook-signature": sign([key], "evt_1", at_s, body.encode()),
    }
