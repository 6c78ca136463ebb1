"""`make` on a machine with a fresh clone."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.postgres.embedded import temporary_base
from tests.support.processes.programs import CHECKOUT, descendants, wait_until_gone
from tests.support.processes.service import free_port

# How long this takes depends on the network and on what else the machine does; this only ends the wait.
READY_S: Final = 240
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OUTSIDER: Final = "nobody"


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


@pytest.fixture
def base() -> Iterator[Path]:
    with temporary_base() as path:
        yield path


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


def who() -> list[str]:
    """Return root and an ordinary user, or as an ordinary user oneself."""
    return ["root", OUTSIDER] if os.geteuid() == 0 else ["root", pwd.getpwuid(os.geteuid()).pw_name]


@pytest.mark.long
@pytest.mark.timeout(420)
@pytest.mark.parametrize("name", who())
def test_a_clone_serves_after_one_command(base: Path, name: str) -> None:
    if name == "root" and os.geteuid() != 0:
        pytest.skip("only root can show that root can do it")
    person = settle(base, name)
    log = person.home / "make.log"
    began = time.monotonic()
    make = person.start("make", "run", log=log)
    try:
        port = person.environment["TUMIRA_PORT"]
        while not is_ready(port):
            assert make.poll() is None, log.read_text()
            assert time.monotonic() - began < READY_S, log.read_text()
            time.sleep(0.1)
        told = person.run(".venv/bin/tumira", "demo")
        curl = told[told.index("curl ") :].strip()
        answer = person.run("bash", "-c", f"{curl} --silent --write-out '%{{http_code}}'")
        assert answer.endswith("202"), answer
    finally:
        processes = descendants(make.pid)
        make.send_signal(signal.SIGTERM)
        make.wait(30)
    wait_until_gone(processes)
    said = log.read_text()
    assert "Tumira" in said
    assert "Stopped.\n" in said
    assert "WARNING" not in said


def is_ready(port: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


@dataclass(frozen=True, slots=True)
class Machine:
    """A clone on a machine whose programs are what a test says they are."""

    clone: Path
    programs: Path

    def add(self, name: str, script: str) -> Path:
        path = self.programs / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def make(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["make", *arguments],
            cwd=self.clone,
            env={"PATH": f"{self.programs}:{SYSTEM_PATH}", "HOME": str(self.clone)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    clone, programs = tmp_path / "clone", tmp_path / "programs"
    programs.mkdir()
    shutil.copytree(CHECKOUT / "scripts", clone / "scripts")
    for name in ("Makefile", "pyproject.toml", "requirements.txt", "requirements-dev.txt"):
        shutil.copy(CHECKOUT / name, clone)
    made = Machine(clone, programs)
    made.add("id", "echo 1000")
    made.add("sudo", "exit 1")
    made.add("apt-get", "echo apt-get was called >&2; exit 1")
    return made


def python(version: str, *, has_venv: bool) -> str:
    """Write a program that answers what the installation asks a Python."""
    old = tuple(map(int, version.split("."))) < (3, 11)
    return (
        f'case "$2" in *print*) echo {version} ;; *"< (3, 11)"*) exit {int(old)} ;; '
        f"*ensurepip*) exit {int(not has_venv)} ;; *) echo $* >&2; exit 3 ;; esac"
    )


def only_line(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 2, done
    line, made = done.stderr.splitlines()
    assert made.startswith("make: *** ")
    return line


def test_make_alone_lists_the_targets(machine: Machine) -> None:
    done = machine.make()

    assert done.returncode == 0
    for target in ("run", "install", "test", "test-long", "bench", "lint", "docs", "pins"):
        assert f"make {target} " in done.stdout


@pytest.mark.parametrize(
    ("version", "has_venv", "name", "said"),
    [
        ("3.10", True, "python3", "python3 is Python 3.10, too old: install 3.11 or newer"),
        ("3.12", False, "python3.12", "python3.12 cannot make environments"),
        ("3.11", True, "python3.99", "There is no python3.99 here: install Python 3.11 or newer"),
    ],
)
def test_a_python_that_will_not_do_is_said_in_one_line(
    machine: Machine, version: str, *, has_venv: bool, name: str, said: str
) -> None:
    machine.add(f"python{version}" if version == "3.12" else "python3", python(version, has_venv=has_venv))

    line = only_line(machine.make("run", f"PYTHON={name}"))

    assert line.startswith(said)
    assert has_venv or "apt install python3.12-venv" in line
    assert not (machine.clone / ".venv").exists()


@pytest.mark.parametrize("by", ["root", "sudo"])
def test_what_is_missing_is_installed_where_we_may(machine: Machine, by: str) -> None:
    calls = machine.clone / "calls"
    machine.add("python3", python("3.11", has_venv=False))
    machine.add("apt-get", f'echo "$*" >>{calls}; exit 1')
    if by == "root":
        machine.add("id", "echo 0")
    else:
        machine.add("sudo", '[ "$1" = -n ] && shift && exec "$@"')

    done = machine.make("run")

    assert "Installing python3-venv with apt" in done.stdout
    assert calls.read_text().splitlines() == [
        "-qq install -y --no-install-recommends python3-venv",
        "-qq update",
    ]
    assert "cannot make environments" in done.stderr


@pytest.mark.long
def test_peers_that_are_missing_do_not_stop_the_tests(machine: Machine) -> None:
    machine.add("node", "exit 0")

    done = machine.make("peers")

    assert done.returncode == 0
    if shutil.which("npm", path=SYSTEM_PATH) is None:
        assert "install nodejs and npm" in done.stdout
