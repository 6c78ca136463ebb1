"""Histories: what clients and peers saw, one file of JSON lines for each.

A client writes `invoke` before it asks, and then `ok`, `fail` or `unknown`: it was done, it was certainly not
done, or there is no way to tell. A peer, such as a carrier, writes `note` for each thing that reached it.
Times are seconds of the machine's monotonic clock, which all processes share and no jump of a clock moves.
"""

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

SUFFIX: Final = ".jsonl"


@dataclass(frozen=True, slots=True)
class Operation:
    """A call of a client; one of which nothing is known may still happen at any time, so it never ends."""

    client: str
    what: str
    began: float
    ended: float
    outcome: str
    given: Mapping[str, Any]
    told: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a peer noted."""

    client: str
    what: str
    at: float
    told: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    operations: Sequence[Operation] = field(default_factory=list)
    facts: Sequence[Fact] = field(default_factory=list)

    def of(self, what: str, outcome: str | None = None) -> Sequence[Operation]:
        """Return the operations of a kind, in the order of their ends."""
        found = [one for one in self.operations if one.what == what and outcome in {None, one.outcome}]
        return sorted(found, key=lambda one: (one.ended, one.began))

    def noted(self, what: str) -> Sequence[Fact]:
        return sorted((one for one in self.facts if one.what == what), key=lambda one: one.at)


class Recorder:
    """Writes the history of one client or peer; each line goes straight to the kernel."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._last = 0

    def invoke(self, what: str, **given: Any) -> int:
        self._last += 1
        self._write("invoke", op=self._last, what=what, given=given)
        return self._last

    def end(self, op: int, outcome: str, **told: Any) -> None:
        assert outcome in {"ok", "fail", "unknown"}
        self._write(outcome, op=op, told=told)

    def note(self, what: str, **told: Any) -> None:
        self._write("note", what=what, told=told)

    def close(self) -> None:
        os.close(self._handle)

    def _write(self, kind: str, **values: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic(), **values}).encode() + b"\n"
        assert os.write(self._handle, line) == len(line)


def read_history(directory: Path) -> History:
    """Read the files of all clients and peers in a directory."""
    history = History([], [])
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        operations, facts = _read_client(path.stem, path.read_text().splitlines())
        history = History([*history.operations, *operations], [*history.facts, *facts])
    return history


def _read_client(client: str, lines: Sequence[str]) -> tuple[list[Operation], list[Fact]]:
    operations: list[Operation] = []
    facts: list[Fact] = []
    open_ones: dict[int, Mapping[str, Any]] = {}
    for line in lines:
        entry = json.loads(line)
        kind, at = entry["kind"], entry["at"]
        if kind == "note":
            facts.append(Fact(client, entry["what"], at, entry["told"]))
        elif kind == "invoke":
            open_ones[entry["op"]] = entry
        else:
            begun = open_ones.pop(entry["op"])
            ended = math.inf if kind == "unknown" else at
            operations.append(
                Operation(client, begun["what"], begun["at"], ended, kind, begun["given"], entry["told"])
            )
    # A client that was ended in the middle of a call knows as little as one without an answer.
    operations += [
        Operation(client, one["what"], one["at"], math.inf, "unknown", one["given"], {})
        for one in open_ones.values()
    ]
    return operations, facts
