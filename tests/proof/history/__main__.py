"""A slice of faults, with a verdict: `python -m tests.proof.history --minutes 2 --faults kill,stop,cut`.

The exit code says whether all promises held. `--check DIRECTORY` decides about histories that were kept.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.proof.history.checks import check
from tests.proof.history.faults import FAULTS
from tests.proof.history.record import read_history
from tests.proof.history.run import Verdict, run


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.history", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long, start and end included")
    parser.add_argument("--faults", default=",".join(FAULTS), help="kinds, with commas between them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the verdict to this file too")
    parser.add_argument("--check", type=Path, help="run nothing, and check the histories in this directory")
    options = parser.parse_args(words)
    if options.check is not None:
        problems = check(read_history(options.check))
        _print(problems)
        return int(any(problems.values()))
    kinds = options.faults.split(",")
    unknown = set(kinds) - set(FAULTS)
    if unknown:
        parser.error(f"there are no faults {', '.join(sorted(unknown))}; use some of {', '.join(FAULTS)}")
    histories = Path(tempfile.mkdtemp(prefix="tumira-histories-"))
    verdict = run(histories, kinds, seed=options.seed, seconds=60 * options.minutes)
    if options.json is not None:
        verdict.write(options.json)
    _tell(verdict, histories)
    return int(not verdict.holds)


def _tell(verdict: Verdict, histories: Path) -> None:
    for kind, why in verdict.not_tried.items():
        print(f"not tried: {kind} ({why})")
    faults = ", ".join(f"{count} {kind}" for kind, count in verdict.faults.items())
    calls = sum(verdict.operations.values())
    print(f"{calls} calls and {verdict.messages} messages in {verdict.seconds:g} s; faults: {faults}")
    print(f"{verdict.resent} messages were sent again after a doubt")
    _print(verdict.problems)
    if verdict.holds:
        shutil.rmtree(histories)
        print("HOLDS")
    else:
        print(f"BROKEN; the histories are in {histories}")


def _print(problems: Mapping[str, Sequence[str]]) -> None:
    for name, found in problems.items():
        print(f"{name}: {'ok' if not found else f'{len(found)} problems'}")
        for problem in found[:5]:
            print(f"    {problem}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
