"""Processor time of processes, by their role."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.support.postgres.databases import execute

_PROGRAM: Final = "tumira"


def process_cpu_s(pid: int, *, ended: bool = False) -> float:
    """Return the seconds that a process has used, or with `ended` also its children that are gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    ticks = int(fields[11]) + int(fields[12]) + (int(fields[13]) + int(fields[14]) if ended else 0)
    return ticks / os.sysconf("SC_CLK_TCK")


def node_cpu_s(pid: int) -> Mapping[str, float]:
    """Return the seconds that `tumira serve` and its processes have used, by command, such as `web`.

    Processes of the same command are added up, and so is what they start themselves. A worker for webhooks
    only is `webhooks`.
    """
    used: defaultdict[str, float] = defaultdict(float)
    for role, each in _tree(pid, ""):
        used[role] += process_cpu_s(each)
    return used


def database_cpu_s(postmaster: int) -> float:
    """Return the seconds that a PostgreSQL and its processes have used."""
    return sum(process_cpu_s(pid) for pid in _children(postmaster)) + process_cpu_s(postmaster, ended=True)


def postmaster_of(server_url: str) -> int:
    directory = execute(server_url, "SHOW data_directory")[0][0]
    return int(Path(directory, "postmaster.pid").read_text().split()[0])


def _tree(pid: int, parent_role: str) -> Iterator[tuple[str, int]]:
    role = _role(pid) or parent_role
    yield role, pid
    for child in _children(pid):
        yield from _tree(child, role)


def _role(pid: int) -> str:
    """Return the command of a process of ours, and nothing for other programs."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return ""
    if _PROGRAM not in words[:-1]:
        return ""
    command = words[words.index(_PROGRAM) + 1]
    return "webhooks" if command == "worker" and "only" in words else command


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []
