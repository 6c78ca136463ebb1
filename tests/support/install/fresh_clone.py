"""A fresh clone, as a person has it who wants to try Tumira."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.processes.ports import free_port
from tests.support.processes.programs import CHECKOUT, descendants, wait_until_gone

# How long this takes depends on the network and on what else the machine does; this only ends the wait.
READY_S: Final = 240
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    home: Path
    clone: Path
    environment: Mapping[str, str]

    def start(self, *command: str, log: Path) -> "subprocess.Popen[bytes]":
        switched = self.name != pwd.getpwuid(os.geteuid()).pw_name
        with log.open("wb") as output:
            return subprocess.Popen(
                command,
                cwd=self.clone,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=self.name if switched else None,
                group=pwd.getpwnam(self.name).pw_gid if switched else None,
                extra_groups=[] if switched else None,
            )

    def run(self, *command: str) -> str:
        log = self.home / "command.log"
        assert self.start(*command, log=log).wait(60) == 0, log.read_text()
        return log.read_text()


def settle(base: Path, name: str) -> Person:
    home, clone = base / "home", base / "tumira"
    if not (CHECKOUT / ".git").exists():
        pytest.skip("this is not a git repository, so there is nothing to clone")
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", CHECKOUT, clone], check=True, timeout=60)
    home.mkdir()
    pip = Path.home() / ".config" / "pip"
    if pip.is_dir():
        shutil.copytree(pip, home / ".config" / "pip")
    if name != pwd.getpwuid(os.geteuid()).pw_name:
        entry = pwd.getpwnam(name)
        for path in (home, clone, *home.rglob("*"), *clone.rglob("*")):
            os.lchown(path, entry.pw_uid, entry.pw_gid)
    kept = {variable: value for variable, value in os.environ.items() if variable.startswith("PIP_")}
    settings = {"HOME": str(home), "PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "TUMIRA_PORT": str(free_port())}
    # Root's own default lies in the system, where a test has no business.
    data_dir = {"TUMIRA_DATA_DIR": str(base / "data")} if name == "root" else {}
    return Person(name, home, clone, kept | settings | data_dir)


@contextmanager
def serving(person: Person, command: Sequence[str]) -> Iterator[Path]:
    """Run a command that serves, from when it is ready; yield its log, and stop it afterwards."""
    log = person.home / "serve.log"
    began = time.monotonic()
    process = person.start(*command, log=log)
    try:
        while not is_ready(person.environment["TUMIRA_PORT"]):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() - began < READY_S, log.read_text()
            time.sleep(0.1)
        yield log
    finally:
        processes = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    wait_until_gone(processes)


def is_ready(port: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
