"""The clients on other versions of their languages, as far as npm has them."""

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.clients.test_faults import PRICE, SENDS, calls, counted, faults
from tests.support.clients import CLIENTS, RUN_S, finish, program, start
from tests.support.clients.faulty_proxy import faulty_proxy
from tests.support.npm import node_with
from tests.support.processes.service import Service

pytestmark = pytest.mark.long

SUPPORT: Final = Path(__file__).parents[1] / "support" / "clients"
MACHINES: Final = {"x86_64": "x64", "aarch64": "arm64"}


def use_node(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this version be the Node.js in the path."""
    machine = MACHINES.get(platform.machine(), "none")
    found = node_with(SUPPORT / f"node{version}").folder / "node_modules" / f"node-linux-{machine}" / "bin"
    if not found.is_dir():
        pytest.skip(f"npm has no Node.js {version} for this machine")
    monkeypatch.setenv("PATH", f"{found}:{os.environ['PATH']}")


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("version", [18, 22, 24])
def test_the_client_for_javascript_sends_once_on_other_versions(
    service: Service, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_node(version, monkeypatch)
    assert run(program("node"), "--version").startswith(f"v{version}.")
    run(program("node"), "--test", str(CLIENTS / "javascript" / "test" / "vectors.test.mjs"))
    caller = service.open_account("100")
    with faulty_proxy(service.base, faults()) as proxy:
        answers = finish(start("javascript", tmp_path, proxy.base, caller.key, calls()))
    assert [one.get("accepted") for one in answers[: len(SENDS)]] == [1] * len(SENDS)
    sent = len(SENDS) + 1_003 + 1
    assert counted(service, caller) == (len(SENDS) + 3, sent, len(SENDS) + 3, sent * PRICE)


@pytest.mark.parametrize("version", ["8.1", "8.3", "8.4", "8.5"])
def test_the_client_for_php_passes_its_tests_on_other_versions(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_node(24, monkeypatch)
    folder = node_with(SUPPORT / "php_wasm").folder
    script = shutil.copy(SUPPORT / "php_wasm" / "run.mjs", folder)
    for file in ("php/tests/vectors.php", "woocommerce/tests/text.php"):
        told = run(program("node"), str(script), version.replace(".", "-"), str(CLIENTS), file)
        assert told.startswith(f"{version}."), told
        assert told.endswith(" checks passed\n"), told
