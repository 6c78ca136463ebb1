"""A slice of faults, with a verdict: `python -m tests.proof.history --minutes 2 --faults kill,stop,cut`.

The exit code says whether all promises held. `--check DIRECTORY` decides about histories that were kept, and
`--twins` tries whether the checks catch broken twins of the product.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.proof.history.checks import check
from tests.proof.history.cluster import open_ground
from tests.proof.history.faults import FAULTS, PAIR_FAULTS
from tests.proof.history.record import read_history
from tests.proof.history.run import Verdict, run
from tests.proof.history.twins import CAUGHT_BY, QUICK_TWINS, SOUND, TWINS, run_twin


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.history", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long, start and end included")
    parser.add_argument("--faults", help="kinds, with commas between them; all if none are named")
    parser.add_argument("--standby", action="store_true", help="add a synchronous standby, and its faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the verdict to this file too")
    parser.add_argument("--check", type=Path, help="run nothing, and check the histories in this directory")
    parser.add_argument("--twins", action="store_true", help="try broken twins of the product instead")
    options = parser.parse_args(words)
    if options.check is not None:
        problems = check(read_history(options.check))
        _print(problems)
        return int(any(problems.values()))
    if options.twins:
        return try_twins(options.json)
    known = FAULTS | PAIR_FAULTS if options.standby else FAULTS
    kinds = options.faults.split(",") if options.faults else list(known)
    unknown = set(kinds) - set(known)
    if unknown:
        parser.error(f"there are no faults {', '.join(sorted(unknown))}; use some of {', '.join(known)}")
    histories = Path(tempfile.mkdtemp(prefix="tumira-histories-"))
    verdict = run(histories, kinds, seed=options.seed, seconds=60 * options.minutes, standby=options.standby)
    if options.json is not None:
        verdict.write(options.json)
    _tell(verdict, histories)
    return int(not verdict.holds)


def try_twins(path: Path | None) -> int:
    """Try the twins that need few faults, and the product without a mistake; the long tests try all."""
    caught: dict[str, bool] = {}
    with open_ground() as ground:
        for twin in (SOUND, *QUICK_TWINS):
            with tempfile.TemporaryDirectory(prefix="tumira-histories-") as histories:
                verdict = run_twin(ground, Path(histories), twin)
            if twin is SOUND:
                is_sound = verdict.holds
                _print(verdict.problems)
            else:
                caught[twin.name] = bool(verdict.problems[twin.check])
                print(f"{twin.name}: {'caught' if caught[twin.name] else 'NOT caught'} by {twin.check}")
    later = [twin.name for twin in TWINS if twin not in QUICK_TWINS]
    print(f"tried by the long tests only: {', '.join(later)}")
    if path is not None:
        told = {"sound": is_sound, "twins": caught, "checks": CAUGHT_BY, "long_tests_only": later}
        path.write_text(json.dumps(told, indent=2) + "\n")
    return int(not (is_sound and all(caught.values())))


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
