"""Processes of the embedded PostgreSQL: start, stop, and what a crash left behind."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.postgres.embedded.files import (
    Heed,
    Place,
    ServerUser,
    Tell,
    disk_full,
    go_on,
    is_disk_full,
    last_line,
)

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return what a child does before it becomes a program: have the kernel signal it when we are gone.

    The kernel forgets that when a process changes its user, so it has to be done after that.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def prepare() -> None:
        # A shell that starts us in the background lets us ignore SIGINT, and a child inherits that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # If the parent died before the wish was made, nobody will send the signal.
        if prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0 or os.getppid() != parent:
            os._exit(1)

    return prepare


LOG_BYTES_MAX: Final = 10 * 1024 * 1024
TICK_S: Final = 0.01
# A start is quiet for this long; then the operator is told what it waits for, and again at intervals.
QUIET_S: Final = 1.0
REMINDER_S: Final = 30.0
# How long a program has to clear up when it is not waited for any longer.
BREAK_OFF_S: Final = 5.0
FAST_STOP_S: Final = 30.0
HARD_STOP_S: Final = 30.0
COMMAND_TIMEOUT_S: Final = 600

# Nothing of the caller's environment may reach PostgreSQL: PGPORT, PGOPTIONS or a locale that this machine
# does not have would each change how it starts.
_ENVIRONMENT: Final = {"LC_ALL": "C", "TZ": "UTC", "PATH": os.defpath}
_SOCKET_DIR_LINE: Final = 5
_STATUS_LINE: Final = 8


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The content of `postmaster.pid`."""

    pid: int
    socket_dir: Path | None
    is_ready: bool


def require_linux() -> None:
    """Refuse other systems: only Linux has the /proc and the parent-death signal that this rests on."""
    if sys.platform != "linux":
        raise OperatorError(
            "Tumira brings its own PostgreSQL on Linux only: set TUMIRA_DATABASE_URL to another PostgreSQL."
        )


def read_postmaster(cluster: Path) -> Postmaster | None:
    """Read `postmaster.pid`; None if it is missing or not written yet."""
    try:
        lines = (cluster / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].strip().isdecimal():
        return None
    lines += [""] * (_STATUS_LINE - len(lines))
    socket_dir = lines[_SOCKET_DIR_LINE - 1].strip()
    return Postmaster(
        pid=int(lines[0]),
        socket_dir=Path(socket_dir) if socket_dir.startswith("/") else None,
        is_ready=lines[_STATUS_LINE - 1].strip() == "ready",
    )


def lives(pid: int | None) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state != "Z"


def live_processes(cluster: Path) -> Sequence[int]:
    """Return the PostgreSQL processes that work in this cluster.

    Every one of them has the cluster as its working directory. A zombie has none, and a process that was
    given the number of a dead server has another.
    """
    try:
        home = cluster.stat()
    except FileNotFoundError:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        # Processes come and go while we look.
        with suppress(OSError):
            if entry.name.isdecimal() and _works_in(home, entry):
                found.append(int(entry.name))
    return found


def _works_in(home: os.stat_result, entry: Path) -> bool:
    if entry.stat().st_uid != home.st_uid or (entry / "comm").read_bytes() != b"postgres\n":
        return False
    try:
        return os.path.samestat((entry / "cwd").stat(), home)
    except PermissionError:
        # Root in a container may not look into another user's process, but its title is open to all.
        name = re.escape(_name_of(home).encode())
        return re.search(b"[ =]" + name + b"[:\\0]", (entry / "cmdline").read_bytes() + b"\0") is not None


def cluster_name(cluster: Path) -> str:
    """Return the name that every process of this cluster bears in its title."""
    return _name_of(cluster.stat())


def _name_of(home: os.stat_result) -> str:
    return f"tumira-{home.st_dev:x}-{home.st_ino:x}"


def end_leftovers(cluster: Path, tell: Tell, heed: Heed) -> None:
    """End the processes that a dead owner left in this cluster.

    The caller holds the lock, so none of them has a living owner. All must be gone before the next server
    starts: two on the same files would destroy them.
    """
    alive = live_processes(cluster)
    if not alive:
        return
    left = read_postmaster(cluster)
    if left is not None and left.pid in alive:
        first = left.pid
        # Normally its parent's death has told it already; saying it twice does no harm.
        _signal(first, signal.SIGINT)
    else:
        first = alive[0]
        # Without their postmaster they cannot stop in good order, and one that computes would not notice.
        for pid in alive:
            _signal(pid, signal.SIGQUIT)
    if _gone_within(QUIET_S, cluster, heed):
        return
    tell(f"An earlier PostgreSQL (process {first}) is still stopping; waiting for it …")
    if _gone_within(FAST_STOP_S, cluster, heed):
        return
    for pid in live_processes(cluster):
        _signal(pid, signal.SIGQUIT)
    if not _gone_within(HARD_STOP_S, cluster, heed):
        raise TemporaryOperatorError(
            f"An earlier PostgreSQL (process {first}) on {cluster} does not end: end it with kill -9 {first}."
        )


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _gone_within(seconds: float, cluster: Path, heed: Heed) -> bool:
    deadline = time.monotonic() + seconds
    while live_processes(cluster):
        if time.monotonic() > deadline:
            return False
        heed()
        time.sleep(5 * TICK_S)
    return True


def _as_server(user: ServerUser) -> dict[str, Any]:
    """Return how a program of PostgreSQL is started: as the server's user, in a session of its own.

    Ctrl-C goes to the terminal's foreground group, and the server must outlive the work that it interrupts.
    """
    # The caller's directory may be closed to the server's user.
    common: dict[str, Any] = {"cwd": "/", "env": _ENVIRONMENT, "start_new_session": True, "umask": 0o077}
    return common | ({"user": user.uid, "group": user.gid, "extra_groups": []} if user.switched else {})


def run(
    user: ServerUser, command: Sequence[str | Path], script: str = "", heed: Heed = go_on
) -> subprocess.CompletedProcess[str]:
    """Run one of PostgreSQL's programs to its end, as the server's user."""
    with subprocess.Popen(  # noqa: S603 - the wheel's programs, no shell
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **_as_server(user),
        preexec_fn=end_with_parent(signal.SIGKILL),  # noqa: PLW1509 - it neither imports nor takes a lock
    ) as program:
        try:
            out, err = _communicate(program, script, heed)
        except BaseException:
            _break_off(program)
            raise
    return subprocess.CompletedProcess(command, program.returncode, out, err)


def _communicate(program: subprocess.Popen[str], script: str, heed: Heed) -> tuple[str, str]:
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    given: str | None = script
    while True:
        try:
            return program.communicate(given, timeout=5 * TICK_S)
        except subprocess.TimeoutExpired:
            # What was given once is still being written.
            given = None
        heed()
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(program.args, COMMAND_TIMEOUT_S)


def _break_off(program: subprocess.Popen[str]) -> None:
    """End a program whose result is not needed any more; initdb removes what it made."""
    program.terminate()
    try:
        program.wait(BREAK_OFF_S)
    except subprocess.TimeoutExpired:
        program.kill()


def failed(place: Place, what: str, said: str, code: int) -> OperatorError:
    if code < 0:
        return TemporaryOperatorError(f"{what}: it was ended by signal {-code}.")
    # On a full disk the log may have had no room for the complaint.
    if is_disk_full(said) or shutil.disk_usage(place.root).free == 0:
        return disk_full(place)
    marks = ("FATAL:", "PANIC:", "error:")
    complaints = [line for line in said.splitlines() if any(mark in line for mark in marks)]
    line = complaints[-1] if complaints else last_line(said) or "it said nothing"
    for mark in marks:
        line = line.partition(mark)[2].strip() or line
    return TemporaryOperatorError(f"{what}: {line}. {place.log} may say more.")


def rotate_log(place: Place) -> int:
    """Move a log that has grown large aside, and return where its next line will stand."""
    if not place.log.exists():
        return 0
    size = place.log.stat().st_size
    if size <= LOG_BYTES_MAX:
        return size
    place.log.replace(place.log.with_suffix(".log.1"))
    return 0


def launch(place: Place, user: ServerUser, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    """Start the server as a child that Ctrl-C does not reach and that does not outlive us."""
    log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - the wheel's server, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **_as_server(user),
            # SIGINT is PostgreSQL's fast shutdown: open transactions are rolled back and a checkpoint is
            # written, so the next start needs no recovery. After SIGQUIT it always would.
            preexec_fn=end_with_parent(signal.SIGINT),  # noqa: PLW1509 - it neither imports nor takes a lock
        )
    finally:
        os.close(log)


def wait_until_ready(
    server: subprocess.Popen[bytes], place: Place, log_start: int, tell: Tell, heed: Heed
) -> None:
    """Wait until the server takes connections, however long it recovers, and say so if it does."""
    began = time.monotonic()
    speak_at = began + QUIET_S
    while True:
        if server.poll() is not None:
            said = _log_since(place, log_start)
            raise failed(place, "PostgreSQL did not start", said, server.returncode)
        found = read_postmaster(place.cluster)
        if found is not None and found.pid == server.pid and found.is_ready:
            return
        now = time.monotonic()
        if now >= speak_at:
            doing = "recovering" if "recovery in progress" in _log_since(place, log_start) else "starting"
            tell(f"PostgreSQL is {doing}, this can take a while … ({now - began:.0f} s so far)")
            speak_at = now + REMINDER_S
        heed()
        time.sleep(TICK_S)


def _log_since(place: Place, start: int) -> str:
    with place.log.open("rb") as log:
        log.seek(start)
        return log.read(LOG_BYTES_MAX).decode(errors="replace")


def stop(server: subprocess.Popen[bytes], tell: Tell) -> None:
    """Stop the server: fast, and immediately if that takes too long."""
    # One that never started was reported then.
    if server.returncode is not None:
        return
    for number, patience_s in ((signal.SIGINT, FAST_STOP_S), (signal.SIGQUIT, HARD_STOP_S)):
        server.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(patience_s)
            break
        tell(f"PostgreSQL has not stopped for {patience_s:.0f} s; cut off, it recovers at the next start.")
    else:
        # Its children notice its death by themselves, and the next start waits for them.
        server.kill()
        server.wait()
    if server.returncode != 0:
        tell(
            f"PostgreSQL ended with code {server.returncode}, not by our stop; it recovers at the next start."
        )
