"""Commands in processes that are forked from a process with our code loaded.

A command spends most of its time on reading code, and so does the start of a web process or a worker. What it
does then, its arguments, its environment, what it reads and prints and how it ends are those of a process of
its own. That a command can be started at all is shown by the tests that start one.

Here passwords are hashed as at any time, but with little work: half of the time of some tests went into that.
How much is asked for otherwise is what `tests/identity/test_access_limits.py` looks at.
"""

import atexit
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from argon2 import PasswordHasher

from tumira.content.classifier import _classifier
from tumira.identity import passwords
from tumira.topups.providers import http

ROOT: Final = Path(__file__).resolve().parents[3]
WAIT_S: Final = 60
_LENGTH_BYTES: Final = 4


@cache
def _forker() -> "tuple[subprocess.Popen[bytes], str]":
    """Start the process that forks, and return where it listens; it ends when ours does."""
    folder = tempfile.mkdtemp(prefix="tumira-forks-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    place = f"{folder}/socket"
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.support.processes.forked_commands", place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process, place


class ForkedProcess:
    """A command that runs: what `subprocess.Popen` would be to it."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._reader = line.makefile("rb", buffering=0)
        self.pid = int(self._reader.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float = WAIT_S) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float) -> int | None:
        if self.returncode is None and select.select([self._line], [], [], timeout_s)[0]:
            self.returncode = int(self._reader.readline())
            self._reader.close()
            self._line.close()
        return self.returncode


def start_forked(
    arguments: Sequence[str | bytes],
    environment: Mapping[str, str],
    cwd: str,
    handles: tuple[int, int, int],
    changes: Sequence[str] = (),
) -> ForkedProcess:
    order = {
        "arguments": [os.fsdecode(one) for one in arguments],
        "environment": dict(environment),
        "cwd": cwd,
        "changes": list(changes),
    }
    body = json.dumps(order).encode("ascii")
    _, place = _forker()
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(WAIT_S)
    line.connect(place)
    socket.send_fds(line, [len(body).to_bytes(_LENGTH_BYTES)], handles)
    line.sendall(body)
    return ForkedProcess(line)


def start_part(
    name: str, environment: Mapping[str, str], output: int | None = None, changes: Sequence[str] = ()
) -> ForkedProcess:
    """Start a part of a node, which writes where we write, or to this handle.

    `changes` are functions of `tests.support.processes.changes` that it calls first.
    """
    handle = os.open(os.devnull, os.O_RDONLY)
    try:
        out, err = (1, 2) if output is None else (output, output)
        variables = {**os.environ, **environment}
        return start_forked([name, "--quiet"], variables, str(ROOT), (handle, out, err), changes)
    finally:
        os.close(handle)


def run_forked(
    arguments: Sequence[str | bytes], environment: Mapping[str, str], cwd: str, given: bytes | None
) -> "subprocess.CompletedProcess[str]":
    with (
        tempfile.TemporaryFile() as stdin,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        stdin.write(given or b"")
        stdin.seek(0)
        handles = (stdin.fileno(), stdout.fileno(), stderr.fileno())
        code = start_forked(arguments, environment, cwd, handles).wait()
        stdout.seek(0)
        stderr.seek(0)
        words = [os.fsdecode(one) for one in arguments]
        return subprocess.CompletedProcess(words, code, stdout.read().decode(), stderr.read().decode())


def _serve(place: str) -> None:
    """Fork for everybody who comes, until our parent is gone."""
    for module in _modules():
        import_module(module)
    # What each of them would read by itself.
    _classifier()
    http._shared_tls()
    patch.object(passwords, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)).start()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place)
        listener.listen(64)
        # Whoever waits for a command ends by itself, and nobody asks how.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            readable, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in readable:
                return
            line, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _wait_for_command(line)
                os._exit(0)
            line.close()


def _modules() -> Sequence[str]:
    files = (ROOT / "tumira" / "cli").rglob("*.py")
    return sorted(
        ".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if file.stem != "__init__"
    )


def _wait_for_command(line: socket.socket) -> None:
    length, handles, _, _ = socket.recv_fds(line, _LENGTH_BYTES, 3)
    with line.makefile("rb") as reader:
        order = json.loads(reader.read(int.from_bytes(length)))
    child = os.fork()
    if child == 0:
        line.close()
        _become(order, handles)
    line.sendall(f"{child}\n".encode())
    for handle in handles:
        os.close(handle)
    _, status = os.waitpid(child, 0)
    line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _become(order: Mapping[str, Any], handles: Sequence[int]) -> None:
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["tumira", *order["arguments"]]
    code: object = 1
    try:
        for name in order["changes"]:
            module, _, function = name.rpartition(":")
            getattr(import_module(module or "tests.support.processes.changes"), function)()
        import_module("tumira.cli").main()
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - printed as the interpreter would, and the end of the process
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve(sys.argv[1])
