"""Calls that Schemathesis generates from the OpenAPI document; `schemathesis.toml` configures its checks."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.processes.service import Caller, Service

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
DOCUMENT: Final = ROOT / "docs" / "openapi.json"

EXAMPLES: Final = 4
LONG_EXAMPLES: Final = 400
LONG_TIMEOUT_S: Final = 900


def run(
    service: Service,
    callers: Sequence[Caller],
    directory: Path,
    *options: str,
    document: Path = DOCUMENT,
) -> "subprocess.CompletedProcess[str]":
    keys = directory / "keys.json"
    named = zip(("first", "second"), callers, strict=True)
    keys.write_text(json.dumps({"auth": [_headers(name, caller) for name, caller in named]}))
    program = Path(sys.executable).with_name("st")
    return subprocess.run(
        [
            *(str(program), "--config-file", str(HERE / "schemathesis.toml")),
            *("run", str(document), "--url", f"{service.base}/api/v1", *options),
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TUMIRA_TEST_CALLERS": str(keys)},
        capture_output=True,
        text=True,
        check=False,
    )


def _headers(name: str, caller: Caller) -> Mapping[str, Any]:
    return {"name": name, "fixedHeaders": [{"name": "Authorization", "value": f"Bearer {caller.key}"}]}


def open_rich_account(service: Service) -> Caller:
    return service.open_account(balance="1000000", rate=1_000_000)


def check(service: Service, directory: Path, examples: int, *options: str) -> None:
    callers = [open_rich_account(service), open_rich_account(service)]
    done = run(service, callers, directory, "--max-examples", str(examples), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 selected / 5 total" in done.stdout
    # Otherwise it met nothing but refusals.
    sent = service.sql("SELECT count(*) FROM batches WHERE account_id = $1 AND recipients > 0", callers[0].id)
    assert sent[0][0] > examples / 4


def test_the_service_keeps_to_its_document(service: Service, tmp_path: Path) -> None:
    check(service, tmp_path, EXAMPLES, "--phases", "examples,fuzzing,stateful")


@pytest.mark.long
@pytest.mark.timeout(LONG_TIMEOUT_S)
def test_the_service_keeps_to_its_document_for_long(service: Service, tmp_path: Path) -> None:
    check(service, tmp_path, LONG_EXAMPLES)


@pytest.mark.long
def test_a_batch_that_another_account_can_see_is_noticed(service: Service, tmp_path: Path) -> None:
    caller = open_rich_account(service)
    done = run(service, [caller, caller], tmp_path, "--phases", "stateful", "--max-examples", "10")
    assert done.returncode == 1
    assert "Object-level authorization bypass" in done.stdout


@pytest.mark.long
def test_a_code_that_the_document_does_not_name_is_noticed(service: Service, tmp_path: Path) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    forgetful = tmp_path / "openapi.json"
    forgetful.write_text(text.replace('"NOT_FOUND": {', '"SOMETHING_ELSE": {'), encoding="utf-8")
    callers = [open_rich_account(service), open_rich_account(service)]
    done = run(service, callers, tmp_path, "--phases", "examples", document=forgetful)
    assert done.returncode == 1
    assert "NOT_FOUND is not among SOMETHING_ELSE" in done.stdout
