"""The tests nearest to a fault: those that run the line, found by running each test file once under a trace.

What a test file ran is kept beside the environment, under the hash of the file, and used again.
"""

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from tests.proof.mutants.mutant import ROOT, TARGETS, Mutant, Source
from tests.proof.mutants.python_faults import functions_with
from tests.support.markers import kind_of

KEPT: Final = ROOT / ".venv" / "mutants"
# What programs run that tests start is not traced.
_LEFT_OUT: Final = ("process", "browser")
# So these are asked, in order, about faults that no nearer test has caught; a name that ends with a slash
# is for all files of that folder.
_BY_PROGRAMS: Final = {
    "accounts/": "api/test_rate api/test_lookups",
    "accounts/ledger": "dashboard/test_ledger",
    "accounts/money_days": "console/test_money",
    "accounts/open_account": "console/test_accounts",
    "accounts/store": "console/test_accounts dashboard/test_settings",
    "approvals/": "approvals/test_approvals",
    "delivery/place_receipts": "console/test_receipts",
    "delivery/store/references": "journey/test_http_carriers",
    "events": "dashboard/test_webhooks",
    "pricing/": "api/test_send api/test_refusals",
    "schedules/": "dashboard/test_scheduled approvals/test_approvals",
    "sending/": "api/test_send api/test_idempotency api/test_rate api/test_refusals api/test_scopes",
    "sending/code_guard": "api/test_recipient_limit dashboard/access/test_passcodes",
    "topups/settle": "console/test_top_ups",
    "topups/start": "dashboard/top_ups/test_paynow dashboard/top_ups/test_voucher_and_usdt",
    "topups/store": "console/test_top_ups dashboard/top_ups/test_top_up",
    "topups/usdt/deposits": "dashboard/top_ups/test_voucher_and_usdt",
    "topups/vouchers": "console/test_vouchers",
}
# The subjects of the targets, and what they meet in; tests of pages and journeys are further away.
_FOLDERS: Final = (
    "accounts",
    "approvals",
    "carriers",
    "delivery",
    "pricing",
    "schedules",
    "sending",
    "topups",
)
_FILES: Final = """
test_events chaos/test_races chaos/test_batcher chaos/test_claims_in_doubt chaos/test_lifetimes
chaos/test_opt_outs chaos/kills/test_schedule_kills chaos/test_top_up_races identity/test_members
journey/test_direct_claims journey/test_engine_carriers journey/test_engine_doubt journey/test_engine_lanes
journey/test_engine_outcomes journey/test_engine_routes journey/test_engine_silence
journey/test_engine_submissions journey/test_engine_trouble journey/test_foreign_receipts
journey/test_http_carriers journey/test_replies journey/test_sender_names journey/test_wrong_clock
operations/test_audit operations/test_erasure operations/test_maintenance operations/test_retention
sender_names/test_manage uploads/test_check_file uploads/test_store webhooks/test_replay
webhooks/test_worker
"""
# So many tests, and so many seconds of tests, are tried before a fault counts as not caught. With the tests
# that start programs, so many times as long.
TESTS_MAX: Final = 200
TESTS_S: Final = 60.0
LONGER: Final = 3
QUICK_S: Final = 0.1


def list_test_files() -> Sequence[str]:
    found = [
        str(path.relative_to(ROOT))
        for folder in _FOLDERS
        for path in sorted((ROOT / "tests" / folder).rglob("test_*.py"))
    ]
    return [*found, *(f"tests/{name}.py" for name in _FILES.split())]


def tests_by_programs(mutant: Mutant) -> Sequence[str]:
    """Return the test files that start programs which run the file of a fault."""
    name = mutant.path.removeprefix("tumira/").removesuffix(".py")
    folder = f"{name.split('/')[0]}/"
    return [f"tests/{one}.py" for place in (name, folder) for one in _BY_PROGRAMS.get(place, "").split()]


def hash_of(path: str) -> str:
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16]


def kept_at(test_file: str) -> Path:
    return KEPT / f"{test_file.replace('/', '.')}.{hash_of(test_file)}.json"


class Tracer:
    """A pytest plugin that notes which lines of the targets each test runs, and how long it takes."""

    def __init__(self) -> None:
        self._paths = {str(ROOT / path): path for path in TARGETS}
        self._now: dict[CodeType, set[int]] = {}
        self._tracers: dict[CodeType, Callable[..., Any]] = {}
        self.tests: list[dict[str, Any]] = []

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if code.co_filename not in self._paths:
            return None
        lines = self._now.get(code)
        if lines is None:
            lines = self._now[code] = set()
            self._tracers[code] = _line_tracer(lines)
        return self._tracers[code]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [
            one for one in items if not (isinstance(one, pytest.Function) and kind_of(one) in _LEFT_OUT)
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterable[None]:
        self._now = {}
        self.tests.append({"id": item.nodeid, "seconds": 0.0, "passed": True})
        sys.settrace(self._trace)
        threading.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            ran: dict[str, dict[str, list[int]]] = {}
            for code, lines in self._now.items():
                name = code.co_qualname.split(".<locals>")[0]
                own = ran.setdefault(self._paths[code.co_filename], {})
                own[name] = sorted({*own.get(name, ()), *lines})
            self.tests[-1]["ran"] = ran

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[-1]["seconds"] += report.duration
        self.tests[-1]["passed"] &= report.passed


def _line_tracer(lines: set[int]) -> Callable[..., Any]:
    def trace(frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        lines.add(frame.f_lineno)
        return trace

    return trace


@dataclass(slots=True)
class Nearest:
    """Which tests run which lines."""

    seconds: dict[str, float] = field(default_factory=dict)
    _lines: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    _functions: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    # The same, where the lines have moved since.
    _once: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def add(self, learnt: Mapping[str, Any]) -> None:
        """Add what a test file ran; lines only of files that are the same still."""
        same = {path for path, was in learnt["sources"].items() if was == hash_of(path)}
        for test in learnt["tests"]:
            if not test["passed"]:
                continue
            self.seconds[test["id"]] = test["seconds"]
            for path, functions in test["ran"].items():
                for name, lines in functions.items():
                    self._functions.setdefault((path, name), []).append(test["id"])
                    if path not in same:
                        self._once.setdefault((path, name), []).append(test["id"])
                        continue
                    for line in lines:
                        self._lines.setdefault((path, line), []).append(test["id"])

    def tests_for(self, mutant: Mutant, longer: int = 1) -> Sequence[str]:
        """Return the tests that run a fault, of each test function one before another, the nearest first."""
        first, last = mutant.lines
        found = {one for line in range(first, last + 1) for one in self._lines.get((mutant.path, line), ())}
        found.update(self._once.get((mutant.path, mutant.where), ()))
        if not found:
            found = set(self._functions.get((mutant.path, mutant.where), ()))
        if not found:
            found = {one for place in self._using(mutant) for one in self._functions.get(place, ())}
            # Tests that only read a constant run no line of it.
            found.update(one for one in self.seconds if _is_of_module(one, mutant.path))
        return self._choose(found, mutant.path, longer)

    def _choose(self, found: Iterable[str], path: str, longer: int) -> Sequence[str]:
        by_function: dict[str, list[str]] = {}
        for test in sorted(found, key=lambda one: (self.seconds[one], one)):
            by_function.setdefault(test.split("[")[0], []).append(test)
        rounds = [(place, test) for own in by_function.values() for place, test in enumerate(own)]
        # Many tests pass through a busy line; those of its module and of its subject say most about it.
        rounds.sort(key=lambda one: (self._order(one[0], one[1], path), self.seconds[one[1]]))
        chosen: list[str] = []
        left_s = TESTS_S * longer
        for _, test in rounds[: TESTS_MAX * longer]:
            left_s -= self.seconds[test]
            if chosen and left_s < 0:
                break
            chosen.append(test)
        return chosen

    def _order(self, place: int, test: str, path: str) -> int:
        """Return 0 for tests of the same module, 1 for quick ones of its subject, and more for others."""
        if _is_of_module(test, path):
            return 0
        is_near = test.startswith(f"tests/{_subject(path)}/")
        if is_near and self.seconds[test] < QUICK_S:
            return 1
        return 2 + 2 * place + (not is_near)

    def _using(self, mutant: Mutant) -> Iterable[tuple[str, str]]:
        """Return the functions that use a constant, directly or through other constants."""
        name = mutant.where.split(".")[0]
        for path in TARGETS:
            if path != mutant.path and name.startswith(("SQL_", "_")):
                continue
            uses = _uses(path)
            wanted = {name}
            while more := {one for one, names in uses.items() if names & wanted} - wanted:
                wanted |= more
            for place in self._functions:
                if place[0] == path and place[1].split(".")[0] in wanted:
                    yield place


def _subject(path: str) -> str:
    return path.split("/")[1] if path.count("/") > 1 else ""


def _is_of_module(test: str, path: str) -> bool:
    """Tell whether a test is in the file of a module, in the folder of its subject."""
    test_file = test.split("::", maxsplit=1)[0]
    return test_file.startswith(f"tests/{_subject(path)}") and test_file.endswith(
        f"/test_{Path(path).stem}.py"
    )


@cache
def _uses(path: str) -> Mapping[str, frozenset[str]]:
    return dict(functions_with(Source(path).tree))


def read_kept(test_files: Iterable[str]) -> Nearest:
    nearest = Nearest()
    for test_file in test_files:
        path = kept_at(test_file)
        if path.exists():
            nearest.add(json.loads(path.read_text()))
    return nearest


def keep(test_file: str, tests: Sequence[Mapping[str, Any]]) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    sources = {path: hash_of(path) for path in TARGETS}
    kept_at(test_file).write_text(json.dumps({"sources": sources, "tests": tests}))
