"""Broken twins of the product, each with the check that has to catch it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.proof.history.cluster import Ground
from tests.proof.history.run import Verdict, run_on_ground

# Whether a mistake shows depends on the moment. A power cut shows an early answer only where the sends of
# that moment are lost: ten cuts show it in about every second run.
TRIES: Final = 10
# A twin that loses messages is not waited for.
SETTLED_S: Final = 10.0
SENDS: Final = 20


@dataclass(frozen=True, slots=True)
class Twin:
    """A mistake of `changes.py`, the check that has to notice, and the faults under which it shows."""

    name: str
    check: str
    faults: Sequence[str] = ()
    count: int = 0


# Without a mistake: a check that complains here proves nothing about the others.
SOUND: Final = Twin("", "")
TWINS: Final = (
    Twin("forget_keys", "keys"),
    Twin("refund_twice", "money"),
    Twin("submit_twice", "hand-overs"),
    Twin("answer_from_cache", "statuses"),
    Twin("skip_events", "events"),
    Twin("limit_each_node", "rate"),
    Twin("forget_the_dead", "ends", ["kill"], 30),
    Twin("answer_early", "keys", ["power"], 10),
)
# Those that show without faults.
QUICK_TWINS: Final = tuple(twin for twin in TWINS if not twin.faults)
CAUGHT_BY: Final = {twin.name: twin.check for twin in TWINS}


def run_twin(ground: Ground, histories: Path, twin: Twin) -> Verdict:
    """Run a twin until its check notices, or has had its tries; the sound product is run once."""
    for seed in range(1, TRIES + 1):
        verdict = _run_once(ground, histories / f"{seed}", twin, seed)
        if not twin.check or verdict.not_tried or verdict.problems[twin.check]:
            break
    return verdict


def _run_once(ground: Ground, histories: Path, twin: Twin, seed: int) -> Verdict:
    histories.mkdir()
    return run_on_ground(
        ground,
        histories,
        twin.faults,
        seed=seed,
        count=twin.count,
        sends=SENDS,
        twins=[twin.name] if twin.name else [],
        settled_s=SETTLED_S,
    )
