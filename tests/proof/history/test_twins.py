"""Broken twins of the product, each caught by its check."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.proof.history.checks import CHECKS
from tests.proof.history.run import run

SENDS = 80
# A twin that loses messages is not waited for.
SETTLED_S = 15.0

TWINS = [
    ("keys", "forget_keys", []),
    ("keys", "answer_early", ["power"]),
    ("money", "refund_twice", []),
    ("hand-overs", "submit_twice", []),
    ("ends", "forget_the_dead", ["kill"]),
    ("statuses", "answer_from_cache", []),
    ("events", "skip_events", []),
    ("rate", "limit_each_node", []),
]


@pytest.mark.long
@pytest.mark.parametrize(("check", "twin", "faults"), TWINS)
def test_twin_is_caught(tmp_path: Path, check: str, twin: str, faults: Sequence[str]) -> None:
    verdict = run(tmp_path, faults, seed=1, count=10, sends=SENDS, twins=[twin], settled_s=SETTLED_S)
    assert verdict.problems[check], verdict


@pytest.mark.long
def test_a_disk_that_forgets_what_it_flushed_is_caught(tmp_path: Path) -> None:
    verdict = run(tmp_path, ["lost-flush"], seed=1, count=2, sends=SENDS, settled_s=SETTLED_S)
    if verdict.not_tried:
        pytest.skip(f"{verdict.not_tried}")
    assert verdict.problems["keys"], verdict


def test_every_check_has_a_twin() -> None:
    assert {check for check, _, _ in TWINS} == set(CHECKS)
