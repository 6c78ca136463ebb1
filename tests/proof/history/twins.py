"""Broken twins of the product, each with the check that has to catch it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.proof.history.cluster import Ground
from tests.proof.history.run import Verdict, run_on_ground

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
    return run_on_ground(
        ground,
        histories,
        twin.faults,
        seed=1,
        count=twin.count,
        sends=SENDS,
        twins=[twin.name] if twin.name else [],
        settled_s=SETTLED_S,
    )
