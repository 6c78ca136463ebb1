"""The package as others install it: built from the checkout, in an environment of its own."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from flit_core.buildapi import build_sdist, build_wheel

from tests.support.processes.programs import CHECKOUT, Node, descendants, wait_until_gone

# Depends on the network; this only ends the wait.
INSTALL_S: Final = 400
COMMAND_S: Final = 60
DELIVERED_S: Final = 30
PYTHONS: Final = ("3.11", "3.12", "3.13")
MESSAGE: Final = {"channel": "sms", "to": "+263771200001", "body": "Your order 1042 is ready."}


@dataclass(frozen=True, slots=True)
class Packages:
    wheel: Path
    sdist: Path


def build(folder: Path) -> Packages:
    """Build the package from the checkout, without the network."""
    folder.mkdir(exist_ok=True)
    with contextlib.chdir(CHECKOUT):
        return Packages(folder / build_wheel(str(folder)), folder / build_sdist(str(folder)))


def find_pythons() -> Mapping[str, str]:
    """Return the programs of the Pythons that we support, by version; in the path, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found: dict[str, str] = {}
    for version in PYTHONS:
        for program in (*pyenv.glob(f"{version}.*/bin/python3"), shutil.which(f"python{version}")):
            if program is not None and _version_of(str(program)) == version:
                found[version] = str(program)
                break
    return found


def _version_of(program: str) -> str | None:
    """Ask a program for its version; None if it cannot make environments, or is a mere pointer to nothing."""
    words = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([program, "-c", words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def run(folder: Path, *command: str, timeout_s: float = INSTALL_S, **variables: str) -> str:
    """Run a command as in a fresh shell: nothing of ours is in its paths."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=_fresh() | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def _fresh() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TUMIRA_"))}


class InstalledNode(Node):
    """A node of the installed package, in an empty directory: no checkout is near."""

    def __init__(self, home: Path, program: Path) -> None:
        super().__init__(home)
        self._program = program
        self._empty = home / "empty"
        self._empty.mkdir()
        self._variables = {f"TUMIRA_{name.upper()}": str(value) for name, value in self.settings.items()}

    def start(self, prefix: Sequence[str] = (), stdin: int = subprocess.DEVNULL) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, self._program, "serve"],
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=self._empty,
                env=_fresh() | self._variables,
            )

    def json(self, *arguments: str) -> Any:
        words = (str(self._program), *arguments, "--json")
        return json.loads(run(self._empty, *words, timeout_s=COMMAND_S, **self._variables))

    def deliver(self) -> None:
        deliver(self, self.json("demo")["key"])


def deliver(node: Node, key: str) -> str:
    """Send a message as the quickstart does, wait until the simulator's handset has it, and return its id."""
    with client_of(node, key) as client:
        sent = client.post("/api/v1/messages", json=MESSAGE)
        assert sent.status_code == httpx.codes.ACCEPTED, sent.text
        batch = f"/api/v1/batches/{sent.json()['batch_id']}"
        deadline = time.monotonic() + DELIVERED_S
        while client.get(batch).json()["data"]["status"] != "completed":
            assert time.monotonic() < deadline, node.said()
            time.sleep(0.1)
        (message,) = client.get(batch).json()["data"]["messages"]
        assert message["status"] == "delivered"
        handset = client.get("/simulator/messages.json", params={"to": MESSAGE["to"]})
        assert MESSAGE["body"] in handset.text
        for page in ("/docs", "/dashboard/sign-in", "/operator"):
            assert client.get(page, follow_redirects=True).status_code == httpx.codes.OK, page
    return str(message["message_id"])


def client_of(node: Node, key: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=node.base, headers=headers, trust_env=False, timeout=30)


def install(python: str, home: Path, package: Path) -> Path:
    """Install a package and what it asks for into a new environment; return its `tumira`."""
    run(home, python, "-m", "venv", "venv")
    run(home, "venv/bin/python", "-m", "pip", "install", "-q", str(package))
    return home / "venv" / "bin" / "tumira"


def try_package(python: str, home: Path, package: Path) -> None:
    """Install a package, serve, deliver a message, prove that the money adds up, and stop."""
    node = InstalledNode(home, install(python, home, package))
    node.start()
    try:
        node.wait_until_ready()
        node.deliver()
        assert node.json("audit")["ok"] is True
        processes = descendants(node.process.pid)
        assert node.stop() == 0, node.said()
    finally:
        node.abandon()
    wait_until_gone(processes)
    said = node.said()
    assert said.endswith("Stopped.\n")
    assert not re.search("warning|traceback", said, re.IGNORECASE), said
