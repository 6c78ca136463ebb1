"""Tumira's commands and a whole node, run as at a terminal."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.support.postgres.embedded import quick_directory, temporary_base
from tests.support.processes.forked_commands import run_forked
from tests.support.processes.ports import free_port

CHECKOUT: Final = Path(__file__).resolve().parents[3]
TUMIRA: Final = (sys.executable, "-W", "error", "-m", "tumira")
START_S: Final = 60
STOP_S: Final = 60
# The workers of a node; on one core the first sends the webhooks too.
WORKERS: Final = ("worker", "webhooks") if len(os.sched_getaffinity(0)) > 1 else ("worker",)


def environment(**settings: Any) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUMIRA_")}
    chosen = {f"TUMIRA_{name.upper()}": str(value) for name, value in settings.items()}
    return kept | chosen | {"PYTHONPATH": str(CHECKOUT)}


def start(
    *arguments: str | bytes,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.PIPE,
    cwd: Path | str = "/",
    prefix: Sequence[str] = (),
    **settings: Any,
) -> "subprocess.Popen[bytes]":
    """Start one command whose output is read later; `prefix` is a command that runs another."""
    return subprocess.Popen(
        [*prefix, *TUMIRA, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(**settings),
    )


def finish(
    process: "subprocess.Popen[bytes]", given: bytes | None = None
) -> "subprocess.CompletedProcess[str]":
    out, err = process.communicate(given, timeout=START_S)
    said = (out or b"").decode()
    return subprocess.CompletedProcess(process.args, process.returncode, said, err.decode())


def tumira(
    *arguments: str | bytes, given: bytes | None = None, cwd: Path | str = "/", **settings: Any
) -> "subprocess.CompletedProcess[str]":
    stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
    return finish(start(*arguments, stdin=stdin, cwd=cwd, **settings), given)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that must not be mistaken for a later one of the same number."""

    pid: int
    born: str

    @property
    def lives(self) -> bool:
        """Tell whether it still runs; what only waits to be reaped does not."""
        stat = _stat(self.pid)
        return stat is not None and stat[19] == self.born and stat[0] != "Z"

    @property
    def words(self) -> Sequence[str]:
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/cmdline").read_text(errors="replace").split("\0")
        return ()


def _stat(pid: int) -> Sequence[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def descendants(pid: int) -> Sequence[Process]:
    """Return the processes that a process started, and those that these started."""
    stats = {
        int(entry.name): stat
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and (stat := _stat(int(entry.name))) is not None
    }
    found: list[Process] = []
    parents = {pid}
    while parents:
        children = {child for child, stat in stats.items() if int(stat[1]) in parents}
        found.extend(Process(child, stats[child][19]) for child in children)
        parents = children
    return found


class Node:
    """A `tumira serve` with its own directory and ports, in the background."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.home = home
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        self.simulator_port = free_port()
        self.settings: dict[str, Any] = {
            "data_dir": home / "data",
            "port": self.port,
            "simulator_port": self.simulator_port,
        } | settings
        self.log = home / f"serve-{self.port}.log"
        self.process: subprocess.Popen[bytes]

    def start(self, prefix: Sequence[str] = (), stdin: int = subprocess.DEVNULL) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, *TUMIRA, "serve"],
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=self.home,
                env=environment(**self.settings),
            )

    def wait_until_ready(self) -> None:
        """Wait for the last line of the welcome, which comes after `/readyz` has said yes."""
        self.wait_for_words("Press Ctrl-C to stop.")

    def wait_for_words(self, words: str, count: int = 1) -> None:
        deadline = time.monotonic() + START_S
        while self.said().count(words) < count:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def said(self) -> str:
        return self.log.read_text()

    def status(self, path: str) -> int:
        """Ask for a page; 0 when nobody answers."""
        try:
            return httpx.get(self.base + path, timeout=30, trust_env=False).status_code
        except httpx.TransportError:
            return 0

    def part(self, name: str) -> Process | None:
        return next((one for one in descendants(self.process.pid) if one.lives and _is(one, name)), None)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(STOP_S)

    def abandon(self) -> None:
        if self.process.poll() is None:
            self.stop()


def _is(process: Process, name: str) -> bool:
    words = process.words
    if name == "postgres":
        return bool(words) and Path(words[0]).name == "postgres" and "-D" in words
    return "tumira" in words and name == part_of(words)


def part_of(words: Sequence[str]) -> str | None:
    """Return which process of a node runs this command, as `serve` names it."""
    if "worker" in words:
        return "webhooks" if "only" in words else "worker"
    return next((name for name in ("web", "simulator") if name in words), None)


@contextmanager
def new_home() -> Iterator[Path]:
    with temporary_base(quick_directory()) as home:
        yield home


@contextmanager
def running(home: Path, **settings: Any) -> Iterator[Node]:
    node = Node(home, **settings)
    node.start()
    try:
        node.wait_until_ready()
        yield node
    finally:
        node.abandon()


def wait_until_gone(processes: Sequence[Process]) -> None:
    """Wait until none of these processes lives."""
    deadline = time.monotonic() + STOP_S
    while alive := [process for process in processes if process.lives]:
        assert time.monotonic() < deadline, [process.words for process in alive]
        time.sleep(0.02)


def read_terminal(handle: int) -> str:
    """Read what stands on a terminal, until its other side is closed."""
    read = b""
    try:
        while chunk := os.read(handle, 4096):
            read += chunk
    except OSError as error:
        # This is how Linux says that nobody has the other side open any more.
        if error.errno != errno.EIO:
            raise
    return read.decode()


class Cli:
    """The command line on one database."""

    def __init__(self, database_url: str, **settings: Any) -> None:
        self._environment = environment(database_url=database_url, **settings)

    def run(self, *arguments: str | bytes, given: bytes | None = None) -> "subprocess.CompletedProcess[str]":
        return run_forked(arguments, self._environment, "/", given)

    def text(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def json(self, *arguments: str) -> Any:
        (line,) = self.text(*arguments, "--json").splitlines()
        return json.loads(line)

    def refused(self, *arguments: str | bytes) -> str:
        """Run a command that cannot be carried out, and return its one line."""
        return one_line(self.run(*arguments))

    def all_refused(self, *commands: Sequence[str]) -> Sequence[str]:
        return [one_line(done) for done in self._run_all(commands)]

    def misused(self, *commands: Sequence[str]) -> Sequence[str]:
        """Run commands that are typed wrongly, and return their last lines."""
        done = self._run_all(commands)
        assert all((one.returncode, one.stdout) == (2, "") for one in done), done
        assert all(one.stderr.startswith("Usage: ") for one in done), done
        return [one.stderr.splitlines()[-1] for one in done]

    def _run_all(self, commands: Sequence[Sequence[str]]) -> "Sequence[subprocess.CompletedProcess[str]]":
        return [self.run(*words) for words in commands]


def one_line(done: "subprocess.CompletedProcess[str]", exit_code: int = 1) -> str:
    assert done.returncode == exit_code, (done.returncode, done.stderr)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line
