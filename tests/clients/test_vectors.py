"""The test vectors of all clients: run by each client's own tests, and held against the service."""

import json
import re
import subprocess
import tomllib
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.pricing.test_phone_numbers import TARIFF
from tests.support.clients import CLIENTS, RUN_S, program
from tumira.api.docs.openapi import document
from tumira.pricing.phone_numbers import read_phone
from tumira.webhooks.signature import read_secret, sign

VECTORS: Final[Mapping[str, Any]] = json.loads((CLIENTS / "vectors.json").read_text(encoding="utf-8"))


def test_the_client_for_javascript_passes_its_tests() -> None:
    run(program("node"), "--test", str(CLIENTS / "javascript" / "test"))


def test_the_client_for_php_passes_its_tests() -> None:
    run(program("php"), str(CLIENTS / "php" / "tests" / "vectors.php"))


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_S)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_service_reads_numbers_as_the_clients_do() -> None:
    for case in VECTORS["numbers"]:
        expected = case["e164"]
        known = expected is not None and re.match(r"\+(263|27)", expected)
        assert read_phone(TARIFF, case["text"], case["country"]) == (expected if known else None), case


def test_the_service_signs_what_the_clients_accept() -> None:
    for case in VECTORS["signatures"][:2]:
        headers, secrets = case["headers"], [read_secret(one) for one in case["secrets"]]
        signed = sign(secrets, headers["webhook-id"], case["now"], case["body"].encode())
        assert signed == headers["webhook-signature"]


def test_versions_follow_the_api() -> None:
    version = json.loads(document())["info"]["version"]
    python = CLIENTS / "python"
    assert tomllib.loads((python / "pyproject.toml").read_text())["project"]["version"] == version
    for package in ("javascript/package.json", "php/composer.json"):
        assert json.loads((CLIENTS / package).read_text())["version"] == version
    for source in ("python/tumira_client/client.py", "javascript/client.js", "php/src/Client.php"):
        (declared,) = re.findall(
            r"\bVERSION\b[^=]*= ['\"]([0-9.]+)['\"]", (CLIENTS / source).read_text("utf-8")
        )
        assert declared == version, source


@pytest.mark.parametrize("name", ["python", "javascript", "php"])
def test_no_package_names_a_registry(name: str) -> None:
    for file in (CLIENTS / name).rglob("*"):
        if file.is_file() and file.suffix in {".toml", ".json", ".md", ".py", ".js", ".ts", ".php"}:
            text = file.read_text(encoding="utf-8")
            assert not re.search(r"pypi\.org|npmjs|packagist|github\.com", text), file


def test_every_detail_of_an_error_has_its_type() -> None:
    described = json.loads(document())["components"]["schemas"]["ErrorDetail"]["properties"]
    python = (CLIENTS / "python" / "tumira_client" / "errors.py").read_text("utf-8")
    script = (CLIENTS / "javascript" / "index.d.ts").read_text("utf-8")
    for name in described:
        assert re.search(rf"^    {name}: ", python, re.MULTILINE), name
        assert re.search(rf"^  {name}\??: ", script, re.MULTILINE), name
