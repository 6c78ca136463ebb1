"""The client libraries as programs: one driver for each, which runs the calls that it is given."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.processes.programs import CHECKOUT

CLIENTS: Final = CHECKOUT / "clients"
LANGUAGES: Final = ("python", "python-async", "javascript", "php")
# A machine that runs other tests is slow; this only ends the wait.
RUN_S: Final = 120

_DRIVERS: Final = Path(__file__).parent / "drivers"
# A client that waits this long for an answer tries again; long enough for a busy service.
_TIMEOUT_S: Final = 8


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed, so the client for it is not tried")
    return found


def start(
    language: str, folder: Path, url: str, key: str, calls: Sequence[Sequence[Any]]
) -> "subprocess.Popen[str]":
    """Start a client on calls: the name of a method, its arguments, and last its named arguments."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_proxy")}
    environment["PYTHONPATH"] = str(CLIENTS / "python")
    install_clients(folder)
    with (folder / "order.json").open("w+", encoding="utf-8") as order:
        json.dump({"url": url, "key": key, "timeout": _TIMEOUT_S, "calls": calls}, order)
        order.seek(0)
        return subprocess.Popen(
            _command(language, folder),
            stdin=order,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
        )


def finish(process: "subprocess.Popen[str]") -> Any:
    output, errors = process.communicate(timeout=RUN_S)
    assert (process.returncode, errors) == (0, ""), errors
    return json.loads(output)


def stop(process: "subprocess.Popen[str]") -> None:
    """End a client that a failed test has left."""
    with process:
        process.kill()


def _command(language: str, folder: Path) -> Sequence[str]:
    if language == "php":
        return [program("php"), str(_DRIVERS / "driver.php")]
    if language == "javascript":
        # Node.js looks for packages beside the program.
        return [program("node"), str(shutil.copy(_DRIVERS / "driver.mjs", folder))]
    return [sys.executable, "-W", "error", str(_DRIVERS / "driver.py"), *language.split("-")[1:]]


def install_clients(folder: Path) -> None:
    """Let programs in a folder find the clients, as if they were installed there."""
    modules = folder / "node_modules"
    modules.mkdir(exist_ok=True)
    if not (modules / "tumira-client").exists():
        (modules / "tumira-client").symlink_to(CLIENTS / "javascript")
    (folder / "vendor").mkdir(exist_ok=True)
    (folder / "vendor" / "autoload.php").write_text(f"<?php require '{CLIENTS}/php/autoload.php';")
