"""Seeds of the simulation: `python -m tests.proof.simulation --minutes 2 --jobs 2`.

The exit code says whether all promises held. `--seed 7` replays one seed and prints what happened; `--twins`
shows that the checks find every mistake of `twins.py`.
"""

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Final

import structlog

from tests.proof.simulation.run import Outcome, run_seed
from tests.proof.simulation.template import Template, run_template
from tests.proof.simulation.twins import SEEN, TWINS, UNSEEN, broken

# In how many seeds each twin has to be found out.
TWIN_SEEDS_MAX: Final = 60
_template: list[Template] = []


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--minutes", type=float, help="how long, instead of how many")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay this seed, and print what happened")
    parser.add_argument("--twin", choices=sorted(TWINS | UNSEEN), help="with this mistake")
    parser.add_argument("--twins", action="store_true", help="try every twin until it is found out")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args(words)
    with run_template() as template:
        if options.seed is not None:
            return _replay(template, options.seed, options.twin)
        if options.twins:
            return _try_twins(template, options.jobs, options.json)
        wanted = options.seeds if options.seeds or options.minutes else 20
        return _run_many(template, options, wanted)


def _replay(template: Template, seed: int, twin: str | None) -> int:
    with broken(twin):
        outcome = run_seed(template, seed, is_kept=True)
    print("\n".join(outcome.lines))
    print(f"seed {seed}: {outcome.messages} messages, {_write_counts(outcome.faults)}")
    print(f"digest {outcome.digest}")
    _print_problems(outcome)
    print("BROKEN" if outcome.problems else "HOLDS")
    return int(bool(outcome.problems))


def _run_many(template: Template, options: argparse.Namespace, wanted: int | None) -> int:
    began = time.monotonic()
    ends_at = began + 60 * options.minutes if options.minutes else None
    seeds = count(options.first) if wanted is None else range(options.first, options.first + wanted)
    outcomes = []
    for outcome in _run_all(template, iter(seeds), options.twin, options.jobs, ends_at):
        outcomes.append(outcome)
        if outcome.problems:
            print(f"seed {outcome.seed}:", flush=True)
            _print_problems(outcome)
    seconds = time.monotonic() - began
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
    result = {
        "seeds": len(outcomes),
        "first": options.first,
        "seconds": round(seconds, 1),
        "events": sum(outcome.events for outcome in outcomes),
        "messages": sum(outcome.messages for outcome in outcomes),
        "faults": dict(sorted(faults.items())),
        "failed": [outcome.seed for outcome in outcomes if outcome.problems],
    }
    _write(options.json, result)
    print(
        f"{result['seeds']} seeds and {result['messages']} messages in {seconds:.0f} s, "
        f"{3600 * len(outcomes) / seconds:.0f} seeds an hour; faults: {_write_counts(faults)}"
    )
    print(f"BROKEN: replay with --seed {result['failed'][0]}" if result["failed"] else "HOLDS")
    return int(bool(result["failed"]))


def _run_all(
    template: Template, seeds: Iterator[int], twin: str | None, jobs: int, ends_at: float | None
) -> Iterator[Outcome]:
    """Run seeds in some processes, until none is left or the time is over."""
    if jobs == 1:
        with broken(twin):
            for seed in seeds:
                yield run_seed(template, seed)
                if ends_at is not None and time.monotonic() > ends_at:
                    return
        return
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(template,)) as pool:
        waiting = [pool.submit(_run_one, seed, twin) for seed in islice(seeds, 2 * jobs)]
        while waiting:
            yield waiting.pop(0).result()
            if ends_at is None or time.monotonic() < ends_at:
                waiting.extend(pool.submit(_run_one, seed, twin) for seed in islice(seeds, 1))


def _begin(template: Template) -> None:
    _silence()
    _template.append(template)


def _silence() -> None:
    """Drop what the engine logs: it complains about the faults that it meets."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _run_one(seed: int, twin: str | None) -> Outcome:
    with broken(twin):
        return run_seed(_template[0], seed)


def _try_twins(template: Template, jobs: int, path: Path | None) -> int:
    found: dict[str, int | None] = {}
    for twin in TWINS:
        seen = _run_all(template, iter([SEEN[twin]] if twin in SEEN else []), twin, 1, None)
        others = _run_all(template, iter(range(1, TWIN_SEEDS_MAX + 1)), twin, jobs, None)
        caught = next((outcome for outcome in chain(seen, others) if outcome.problems), None)
        found[twin] = None if caught is None else caught.seed
        if caught is None:
            print(f"{twin}: not found out in {TWIN_SEEDS_MAX} seeds")
        else:
            print(f"{twin}: seed {caught.seed}, by {', '.join(caught.problems)}")
    _write(path, {"twins": found})
    return int(None in found.values())


def _write(path: Path | None, result: Mapping[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n")


def _print_problems(outcome: Outcome) -> None:
    for name, problems in outcome.problems.items():
        for problem in problems[:5]:
            print(f"    {name}: {problem}", flush=True)


def _write_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counts.items()))


if __name__ == "__main__":
    # Sets of texts have an order that depends on this number, and with it what a seed does.
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.proof.simulation", *sys.argv[1:]])  # noqa: S606 - ourselves
    _silence()
    sys.exit(main(sys.argv[1:]))
