"""Puts faults into the money and engine code, one at a time, and tells which of them the tests catch.

`make mutants ARGS='--sample 300 --seed 1 --json FILE'` draws faults at random; with the file of an earlier
run it goes on where that run ended, and tries again what was not caught. `--again` takes faults from the file
of a run, each with the test that caught it, which is quick; `--named` takes those of `named.toml`.
"""

import argparse
import hashlib
import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.proof.mutants.forked import Forks, Job, open_forks
from tests.proof.mutants.mutant import ROOT, TARGETS, Mutant, Source
from tests.proof.mutants.named import read_named
from tests.proof.mutants.nearest import LONGER, keep, kept_at, list_test_files, read_kept, tests_by_programs
from tests.proof.mutants.python_faults import list_mutants

HERE: Final = Path(__file__).parent
# The faults of the last long run, and those that no test has to catch.
RESULTS: Final = HERE / "results.json"
ACCEPTED: Final = HERE / "accepted.toml"
GOAL: Final = 0.9

_START_S: Final = 30.0
_SLOWER: Final = 4.0
_PROGRAMS_S: Final = 240.0


@dataclass(slots=True)
class Report:
    """The results of the faults that were tried, by key."""

    results: dict[str, dict[str, Any]]

    @property
    def counts(self) -> Counter[str]:
        return Counter(one["result"] for one in self.results.values())

    @property
    def score(self) -> float:
        tried = self.counts["caught"] + self.counts["survived"]
        return self.counts["caught"] / tried if tried else 1.0

    def add(self, mutant: Mutant, result: str, by: str | None) -> None:
        self.results[mutant.key] = {
            "path": mutant.path,
            "where": mutant.where,
            "kind": mutant.kind,
            "before": mutant.before,
            "after": mutant.after,
            "result": result,
            "by": by,
        }


def key_of(entry: Mapping[str, Any]) -> str:
    return " | ".join(entry[name] for name in ("path", "where", "before", "after"))


def read_accepted() -> Mapping[str, str]:
    """Return the reasons of the faults that no test has to catch, by key."""
    entries = tomllib.loads(ACCEPTED.read_text()).get("accepted", [])
    return {key_of(one): one["reason"] for one in entries}


@cache
def all_mutants() -> Sequence[Mutant]:
    return [mutant for path in TARGETS for mutant in list_mutants(Source(path))]


def learn(forks: Forks, test_files: Sequence[str]) -> None:
    """Run test files that are not known yet, to see which lines their tests run."""
    unknown = [one for one in test_files if not kept_at(one).exists()]
    for done, job in enumerate(forks.run(Job([one], traced=True) for one in unknown), start=1):
        failed = [test["id"] for test in job.result["tests"] if not test["passed"]]
        print(f"read {done}/{len(unknown)} {job.tests[0]}", *failed, flush=True)
        if "said" in job.result:
            # It ended early, by its time or by an error; it is read again by the next run.
            print(job.result["said"])
            continue
        keep(job.tests[0], job.result["tests"])


def judge(job: Job) -> str:
    if job.result["is_invalid"]:
        return "invalid"
    return "survived" if job.result["code"] == 0 else "caught"


def try_all(forks: Forks, jobs: Iterator[Job], report: Report, given: argparse.Namespace) -> None:
    stop_at = time.monotonic() + given.seconds

    def until_late() -> Iterator[Job]:
        for job in jobs:
            if time.monotonic() > stop_at:
                return
            yield job

    for job in forks.run(until_late()):
        assert job.mutant is not None
        result = judge(job)
        report.add(job.mutant, result, job.result["failed"])
        if result == "survived":
            _show(job.mutant)
        _show_progress(report)
        if given.json is not None:
            write(given.json, given, report)


def _show(mutant: Mutant) -> None:
    print(f"\n{mutant.path}:{mutant.lines[0]} {mutant.where}: {mutant.kind}")
    print(f"  - {mutant.before}\n  + {mutant.after}", flush=True)


def _show_progress(report: Report) -> None:
    counts = report.counts
    print(f"\r{counts['caught']} caught, {counts['survived']} survived", end="", flush=True)


def draw(given: argparse.Namespace) -> Sequence[Mutant]:
    """Return a sample over all files: one fault of each, then of each its share.

    A larger sample of the same seed holds the smaller one. A change of the code changes only what is drawn of
    the lines that it touches.
    """
    by_path: dict[str, list[Mutant]] = {}
    for one in all_mutants():
        if re.search(given.only, one.key):
            by_path.setdefault(one.path, []).append(one)
    ordered: list[tuple[float, str, Mutant]] = []
    for own in by_path.values():
        drawn = sorted(((_lot(given.seed, one), one) for one in own), key=lambda pair: pair[0])
        ordered.extend((place / len(own), lot, one) for place, (lot, one) in enumerate(drawn))
    ordered.sort(key=lambda one: one[:2])
    return [one for _, _, one in ordered][: given.sample or None]


def _lot(seed: int, mutant: Mutant) -> str:
    return hashlib.sha256(f"{seed} {mutant.key}".encode()).hexdigest()


def run_sample(given: argparse.Namespace, report: Report) -> None:
    """Try a sample with the tests nearest to each fault."""
    test_files = list_test_files()
    accepted = read_accepted()
    # Those of the file once more, or others with them.
    sample = [one for one in all_mutants() if one.key in report.results] if given.retry else draw(given)
    drawn = {one.key for one in sample}
    report.results = {key: one for key, one in report.results.items() if key in drawn}
    todo = [
        one
        for one in sample
        if one.key not in accepted
        and report.results.get(one.key, {}).get("result") not in {"caught", "invalid"}
    ]
    for one in sample:
        if one.key in accepted:
            report.add(one, "accepted", None)
    with open_forks(test_files, given.slots) as forks:
        learn(forks, test_files)
        nearest = read_kept(test_files)

        def jobs() -> Iterator[Job]:
            for mutant in todo:
                near = nearest.tests_for(mutant, LONGER if given.programs else 1)
                far = tests_by_programs(mutant) if given.programs else ()
                if near or far:
                    limit_s = _START_S + _SLOWER * sum(nearest.seconds[one] for one in near)
                    yield Job([*near, *far], mutant, limit_s=limit_s + _PROGRAMS_S * len(far))
                else:
                    report.add(mutant, "survived", None)
                    _show(mutant)

        try_all(forks, jobs(), report, given)


def run_named(given: argparse.Namespace, report: Report) -> None:
    """Try the faults that were put in by hand, each with the test that catches it."""
    named = [(one.mutant, one.by) for one in read_named() if re.search(given.only, one.name)]
    report.results = {}
    with open_forks(sorted({by.split("::")[0] for _, by in named}), given.slots) as forks:
        jobs = (Job([by], mutant, limit_s=2 * _START_S) for mutant, by in named)
        try_all(forks, jobs, report, given)


def run_again(given: argparse.Namespace, report: Report) -> None:
    """Try faults that were caught before, each with the test that caught it."""
    before = json.loads(given.again.read_text())["mutants"]
    caught_by = {
        key_of(one): one["by"]
        for one in before
        if one["result"] == "caught" and str(one["by"]).startswith("tests/")
    }
    known = [one for one in all_mutants() if one.key in caught_by]
    known.sort(key=lambda one: _lot(given.seed, one))
    chosen = known[: given.sample or None]
    report.results = {}
    test_files = sorted({caught_by[one.key].split("::")[0] for one in chosen})
    with open_forks(test_files, given.slots) as forks:
        jobs = (Job([caught_by[one.key]], one, limit_s=2 * _START_S) for one in chosen)
        try_all(forks, jobs, report, given)


def write(path: Path, given: argparse.Namespace, report: Report) -> None:
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    counts = report.counts
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": revision.stdout.strip(),
        "seed": given.seed,
        "sample": given.sample,
        "faults": len(all_mutants()),
        "score": round(report.score, 4),
        "tried": counts["caught"] + counts["survived"],
        **{name: counts[name] for name in ("caught", "survived", "accepted", "invalid")},
        "counts": counts,
        "mutants": [report.results[key] for key in sorted(report.results)],
    }
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(document, indent=1) + "\n")
    part.rename(path)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=100, help="how many faults; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a pattern of the file, the function or the line")
    parser.add_argument("--json", type=Path, help="the file of the results, to go on from")
    parser.add_argument("--again", type=Path, nargs="?", const=RESULTS, help="faults that were caught before")
    parser.add_argument("--named", action="store_true", help="faults that were put in by hand")
    parser.add_argument("--retry", action="store_true", help="only faults of the file that were not caught")
    parser.add_argument("--programs", action="store_true", help="ask also tests that start programs")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no fault after so many seconds")
    parser.add_argument("--slots", type=int, default=2, help="how many at a time")
    return parser.parse_args()


def main() -> int:
    given = read_arguments()
    # Forks and PostgreSQL are ended, and the results written.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    report = Report({})
    if given.json is not None and given.json.exists():
        for one in json.loads(given.json.read_text())["mutants"]:
            report.results[key_of(one)] = one
    try:
        if given.again is not None:
            run_again(given, report)
        elif given.named:
            run_named(given, report)
        else:
            run_sample(given, report)
    finally:
        if given.json is not None:
            write(given.json, given, report)
    counts = report.counts
    print(
        f"\n{counts['caught']} of {counts['caught'] + counts['survived']} faults were caught: "
        f"{report.score:.1%} (accepted: {counts['accepted']}, not valid: {counts['invalid']})"
    )
    # What was caught once is caught always.
    goal = GOAL if given.again is None and not given.named else 1.0
    return 0 if report.score >= goal else 1


if __name__ == "__main__":
    sys.exit(main())
