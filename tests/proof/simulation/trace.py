"""What happened in a run, in order: the same seed gives the same lines."""

from hashlib import sha256
from typing import Final

KEPT_MAX: Final = 200_000


class Trace:
    def __init__(self, *, is_kept: bool = False) -> None:
        self._hash = sha256()
        self._is_kept = is_kept
        self.count = 0
        self.lines: list[str] = []

    def note(self, now_s: float, what: str) -> None:
        line = f"{now_s:12.6f} {what}"
        self._hash.update(line.encode() + b"\n")
        self.count += 1
        if self._is_kept and len(self.lines) < KEPT_MAX:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()[:16]
