"""The machine: disk, memory, limits of processes, shared memory, and the user."""

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tumira.operations.doctor.diagnosis import GIGABYTE, Diagnosis, ok, problem, warning, write_size
from tumira.postgres.embedded.files import user_name

# The alert `TumiraDiskFills` has the same line.
DISK_FREE_MIN: Final = 0.1
DISK_BYTES_MIN: Final = GIGABYTE
FILES_FREE_MIN: Final = 0.01
# By docs/operations.md: web, worker and webhooks with the processes that check files, and PostgreSQL's share.
MEMORY_MIN: Final = GIGABYTE
MEMORY_MIN_WITH_POSTGRES: Final = 2 * GIGABYTE
MEMORY_FREE_MIN: Final = 150_000_000
# What a web process takes, and opens itself: `http_protocol.CONNECTIONS_MAX` and `OWN_FILES`.
OPEN_FILES_MIN: Final = 8_448
OPEN_FILES_FEW: Final = 1_024
# PostgreSQL has a process for each of its 200 connections.
PROCESSES_MIN: Final = 512
# PostgreSQL asks for one small segment; the rest of its memory is mapped.
SHARED_SEGMENT_MIN: Final = 4_096

_MEMORY: Final = re.compile(r"^(MemTotal|MemAvailable): +([0-9]+) kB$", re.MULTILINE)
_LIMIT: Final = re.compile(r"^Max (open files|processes) +([0-9a-z]+) +([0-9a-z]+)", re.MULTILINE)
_CGROUP: Final = Path("/sys/fs/cgroup")


def check_disk(path: Path, what: str) -> Diagnosis:
    """Look at the file system of a directory, or of the nearest directory that exists above it."""
    nearest = nearest_directory(path)
    found = os.statvfs(nearest)
    if found.f_files and found.f_favail / found.f_files < FILES_FREE_MIN:
        return problem(
            "disk",
            f"The disk of {what} ({path}) can hold only {found.f_favail} more files.",
            "Delete files that are not needed, or move the directory to another disk.",
        )
    return judge_disk(path, what, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def nearest_directory(path: Path) -> Path:
    """Return the directory itself, or the first above it that exists and that we may see."""
    return next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110 - a path we may not see counts as missing


def judge_disk(path: Path, what: str, free: int, total: int) -> Diagnosis:
    words = f"{write_size(free)} of {write_size(total)} are free for {what} ({path})."
    advice = "Free space or enlarge the disk. A million messages take about 1.2 GB; see TUMIRA_KEEP_WEEKS."
    if free < DISK_BYTES_MIN:
        return problem("disk", words, advice)
    if free < DISK_FREE_MIN * total:
        return warning("disk", words, advice)
    return ok("disk", words)


def check_memory(*, with_postgres: bool, cgroup: Path = _CGROUP) -> Diagnosis:
    """Look at the memory of the machine, or of the container that we are in."""
    found = {name: int(kilobytes) * 1024 for name, kilobytes in _MEMORY.findall(_read("/proc/meminfo"))}
    total, available = found["MemTotal"], found["MemAvailable"]
    limit = _read(cgroup / "memory.max").strip()
    if limit.isdecimal():
        # Files that were not read lately make room when memory is needed.
        files = dict(line.split() for line in _read(cgroup / "memory.stat").splitlines()).get(
            "inactive_file", 0
        )
        left = int(limit) - int(_read(cgroup / "memory.current") or 0) + int(files)
        total, available = min(total, int(limit)), min(available, max(0, left))
    return judge_memory(total, available, with_postgres=with_postgres)


def judge_memory(total: int, available: int, *, with_postgres: bool) -> Diagnosis:
    words = f"{write_size(available)} of {write_size(total)} are available."
    if available < MEMORY_FREE_MIN:
        return problem(
            "memory", words, "Stop other programs or add memory: the kernel ends processes when none is left."
        )
    wanted = MEMORY_MIN_WITH_POSTGRES if with_postgres else MEMORY_MIN
    # A machine that is sold with 2 GB shows a little less.
    if total < 0.9 * wanted:
        return warning("memory", words, f"Give the machine {write_size(wanted)} before customers come.")
    return ok("memory", words)


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What a process may open and start at most, and its user."""

    # None for the process of the command itself.
    pid: int | None
    uid: int
    open_files: float
    processes: float

    @property
    def whose(self) -> str:
        return "this shell" if self.pid is None else f"process {self.pid}"


def read_limits(pid: int | None) -> ProcessLimits:
    """Read the limits of a running Tumira, or of ourselves where there is none or it may not be read."""
    try:
        path = Path(f"/proc/{'self' if pid is None else pid}")
        uid, text = path.stat().st_uid, (path / "limits").read_text()
    except OSError:
        if pid is None:
            raise
        return read_limits(None)
    # A process may raise its own limit of files to the hard one, and ours does.
    hard = {name: _number(hard) for name, _, hard in _LIMIT.findall(text)}
    soft = {name: _number(soft) for name, soft, _ in _LIMIT.findall(text)}
    most = _read(_CGROUP / "pids.max").strip()
    processes = min(soft["processes"], _number(most)) if most.isdecimal() else soft["processes"]
    return ProcessLimits(pid, uid, hard["open files"], processes)


def judge_limits(limits: ProcessLimits) -> list[Diagnosis]:
    found = [_judge_open_files(limits)]
    # The kernel does not count the processes of root.
    if limits.processes < PROCESSES_MIN and limits.uid != 0:
        found.append(
            warning(
                "processes",
                f"The limit of processes is {limits.processes:.0f} ({limits.whose}).",
                f"Raise it to {PROCESSES_MIN}: LimitNPROC= of the unit, TasksMax=, or `ulimit -u`.",
            )
        )
    else:
        found.append(ok("processes", f"The limit of processes is {_write(limits.processes)}."))
    return found


def _judge_open_files(limits: ProcessLimits) -> Diagnosis:
    words = f"The limit of open files is {_write(limits.open_files)} ({limits.whose})."
    advice = "Raise it to 65536: LimitNOFILE= of the unit, or `ulimit -Hn`."
    if limits.open_files < OPEN_FILES_FEW:
        return problem("open files", words, advice)
    if limits.open_files < OPEN_FILES_MIN:
        return warning("open files", f"{words} The web process takes fewer connections with it.", advice)
    return ok("open files", words)


def judge_user(limits: ProcessLimits) -> Diagnosis:
    who = user_name(limits.uid)
    if limits.uid == 0:
        return warning(
            "user",
            f"Tumira runs as root ({limits.whose})."
            if limits.pid is not None
            else "This shell is root's, and no Tumira runs whose user could be seen.",
            "Run Tumira as a user of its own, as the units in deploy/systemd do.",
        )
    return ok("user", f"Tumira runs as {who}." if limits.pid is not None else f"This shell is {who}'s.")


def check_shared_memory() -> Diagnosis:
    """Check the one segment that the embedded PostgreSQL asks the kernel for."""
    largest, segments = (int(_read(f"/proc/sys/kernel/{name}") or 0) for name in ("shmmax", "shmmni"))
    if largest < SHARED_SEGMENT_MIN or segments < 1:
        return problem(
            "shared memory",
            f"The kernel allows {segments} segments of {largest} bytes, and PostgreSQL needs one.",
            "Remove kernel.shmmax and kernel.shmmni from the settings of sysctl.",
        )
    return ok("shared memory", "The kernel allows what PostgreSQL needs.")


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _number(text: str) -> float:
    return int(text) if text.isdecimal() else math.inf


def _write(limit: float) -> str:
    return "unlimited" if limit == math.inf else f"{limit:.0f}"
