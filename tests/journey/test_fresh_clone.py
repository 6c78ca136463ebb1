"""`make` on a machine with a fresh clone."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.install.fresh_clone import SYSTEM_PATH, serving, settle
from tests.support.postgres.embedded import temporary_base
from tests.support.processes.programs import CHECKOUT

OUTSIDER: Final = "nobody"


@pytest.fixture
def base() -> Iterator[Path]:
    with temporary_base() as path:
        yield path


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
    with serving(person, ["make", "run"]) as log:
        told = person.run(".venv/bin/tumira", "demo")
        curl = told[told.index("curl ") :].strip()
        answer = person.run("bash", "-c", f"{curl} --silent --write-out '%{{http_code}}'")
        assert answer.endswith("202"), answer
    said = log.read_text()
    assert "Tumira" in said
    assert "Stopped.\n" in said
    assert "WARNING" not in said


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
