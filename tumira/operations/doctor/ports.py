"""Ports: free, or in use by Tumira."""

import errno
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tumira.operations.doctor.diagnosis import Diagnosis, ok, problem, warning

_LISTENS: Final = "0A"
_PROGRAM: Final = "tumira"


@dataclass(frozen=True, slots=True)
class PortHolder:
    """The process that listens on a port."""

    pid: int
    words: tuple[str, ...]

    @property
    def is_tumira(self) -> bool:
        return any(Path(word).name == _PROGRAM for word in self.words[:6])

    @property
    def name(self) -> str:
        return Path(self.words[0]).name if self.words else "a program"


def check_port(host: str, port: int, setting: str) -> Diagnosis:
    """Bind to the port for a moment; where that fails, find the process that has it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except (OSError, UnicodeError) as error:
        return _explain(error, host, port, setting)
    return ok("ports", f"Port {port} on {host} is free.")


def _explain(error: Exception, host: str, port: int, setting: str) -> Diagnosis:
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return judge_holder(find_holder(port), port, setting)
    if number == errno.EACCES:
        return problem(
            "ports",
            f"This user may not listen on port {port}.",
            f"Set {setting} to 1024 or more, and let a proxy listen on port {port}.",
        )
    reason = getattr(error, "strerror", None) or str(error)
    return problem(
        "ports",
        f"Port {port} on {host} cannot be used ({reason.partition(' (while ')[0]}).",
        "Set TUMIRA_HOST to an address of this machine: 127.0.0.1 behind a proxy on it, else 0.0.0.0.",
    )


def judge_holder(holder: PortHolder | None, port: int, setting: str) -> Diagnosis:
    if holder is None:
        return warning(
            "ports",
            f"Port {port} is in use by a program that this user may not see.",
            f"Run this as root to see which. If it is not Tumira, stop it or change {setting}.",
        )
    if holder.is_tumira:
        return ok("ports", f"Tumira listens on port {port} (process {holder.pid}).")
    return problem(
        "ports",
        f"Port {port} is in use by {holder.name} (process {holder.pid}).",
        f"Stop it, or set {setting} to another port.",
    )


def find_holder(port: int) -> PortHolder | None:
    """Return the process that listens on a port, or None where there is none that we may see."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port)}
    if not wanted:
        return None
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and not wanted.isdisjoint(_open_files(entry)):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            return PortHolder(int(entry.name), tuple(word for word in words if word))
    return None


def _listening(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            columns = line.split()
            if columns[3] == _LISTENS and int(columns[1].rpartition(":")[2], 16) == port:
                yield columns[9]


def _open_files(process: Path) -> Iterator[str]:
    try:
        for entry in (process / "fd").iterdir():
            with suppress(OSError):
                yield str(entry.readlink())
    except OSError:
        return
