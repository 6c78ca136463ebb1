"""Embedded PostgreSQL servers for tests.

Run as a program, it owns a data directory until its standard input ends: it prints messages and the
URL, answers each line of SQL with a line of JSON, and says at the end how it stopped.
"""

import asyncio
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import asyncpg

from tumira.core.errors import OperatorError
from tumira.postgres.embedded import server as embedded
from tumira.postgres.embedded.files import server_user
from tumira.postgres.embedded.process import live_processes

CHECKOUT: Final = Path(__file__).resolve().parents[3]
PROGRAM: Final = ("-m", "tests.support.postgres.embedded")
PATIENCE_S: Final = 60.0
ROOMY_BYTES: Final = 2 * 1024**3


async def fetch(url: str, sql: str) -> list[list[Any]]:
    connection = await asyncpg.connect(url, timeout=PATIENCE_S)
    try:
        return [list(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


def wait_for(what: Callable[[], object]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.005)


def kill_processes(cluster: Path) -> None:
    for pid in live_processes(cluster):
        # The others go by themselves as soon as they miss the first.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def quick_directory() -> Path | None:
    """Return a file system in memory if there is a roomy one: a disk may take seconds to forget a cluster."""
    memory = Path("/dev/shm")  # noqa: S108 - names in it are made by mkdtemp
    return memory if memory.is_dir() and shutil.disk_usage(memory).free > ROOMY_BYTES else None


@contextmanager
def temporary_base(parent: Path | None = None) -> Iterator[Path]:
    """Make a directory that every user can pass, unlike pytest's own, and end what still runs in it."""
    made = Path(tempfile.mkdtemp(prefix="embedded-", dir=parent))
    made.chmod(0o755)
    try:
        yield made
    finally:
        for cluster in made.glob("**/postgres/PG_VERSION"):
            kill_processes(cluster.parent)
        shutil.rmtree(made)


@cache
def interpreter_for(user: str | int) -> tuple[str, Mapping[str, str]] | None:
    """Return a Python that this user can run, and the environment in which it finds our packages."""
    packages = os.pathsep.join([str(CHECKOUT), *(path for path in sys.path if path.endswith("-packages"))])
    environment = {"PYTHONPATH": packages, "PYTHONWARNINGS": "ignore"}
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for program in (sys.executable, system):
        command = [program, "-c", "import asyncpg, tumira.postgres.embedded.server"]
        try:
            run_as(user, command, environment).check_returncode()
        except (OSError, subprocess.CalledProcessError):
            continue
        return program, environment
    return None


def run_as(
    user: str | int, command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd="/",
        env=os.environ | dict(environment),
        capture_output=True,
        text=True,
        check=False,
        user=user,
        group=pwd.getpwnam(user).pw_gid if isinstance(user, str) else user,
        extra_groups=[],
    )


class Owner:
    """Another process that owns a data directory."""

    def __init__(
        self,
        data_dir: Path,
        *,
        user: str | int | None = None,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        found = (sys.executable, {}) if user is None else interpreter_for(user)
        assert found is not None, f"There is no Python that {user} can run."
        program, needed = found
        group = pwd.getpwnam(user).pw_gid if isinstance(user, str) else user
        self.cluster = data_dir / "postgres"
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [*prefix, program, *PROGRAM, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
            env=os.environ | dict(needed) | dict(environment or {}),
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )

    def read(self, kind: str) -> str:
        """Read what the process prints up to a line of this kind, and return the line's text."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found, _, text = line.rstrip("\n").partition(" ")
            if found == "say":
                self.said.append(text)
            if found == kind:
                return text
            assert found == "say", line
        raise AssertionError(f"The process ended without a line of the kind {kind!r}; it said {self.said}.")

    def ask(self, sql: str) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{sql}\n")
        self.process.stdin.flush()
        return json.loads(self.read("answer"))

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.read("stopped")
        assert self.process.wait(PATIENCE_S) == 0
        self.close()

    def kill(self) -> None:
        """End the process as a power cut would, leaving its server to itself."""
        self.process.kill()
        self.close()

    def kill_all(self) -> None:
        """End the process and every process of its server, none of which gets to write another byte."""
        kill_processes(self.cluster)
        self.kill()
        wait_for(lambda: not live_processes(self.cluster))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def spawn_as_server(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process of the server's user, which PostgreSQL may take for one of its own."""
    user = server_user()
    return subprocess.Popen(
        command,
        cwd="/",
        user=user.uid if user.switched else None,
        group=user.gid if user.switched else None,
        extra_groups=[] if user.switched else None,
    )


def _say(kind: str, text: str = "") -> None:
    print(kind, text, flush=True)


def _main(data_dir: Path) -> int:
    try:
        with embedded.start(data_dir, lambda text: _say("say", text)) as url:
            _say("url", url)
            for sql in sys.stdin:
                _say("answer", json.dumps(asyncio.run(fetch(url, sql)), default=str))
    except KeyboardInterrupt:
        _say("stopped", "by Ctrl-C")
        return 0
    except OperatorError as error:
        _say("problem", str(error))
        return 1
    _say("stopped", "at the end of its input")
    return 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1])))
