"""Broken twins of the product, each caught by its check."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.history.checks import CHECKS
from tests.proof.history.cluster import Ground, open_ground
from tests.proof.history.twins import SOUND, TWINS, Twin, run_twin


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    with open_ground() as ground:
        yield ground


@pytest.mark.long
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.name)
def test_twin_is_caught(ground: Ground, tmp_path: Path, twin: Twin) -> None:
    verdict = run_twin(ground, tmp_path, twin)
    if verdict.not_tried:
        pytest.skip(f"{verdict.not_tried}")
    assert verdict.problems[twin.check], verdict


@pytest.mark.long
def test_a_sound_product_is_not_caught_within_the_same_time(ground: Ground, tmp_path: Path) -> None:
    assert run_twin(ground, tmp_path, SOUND).holds


def test_every_check_has_a_twin() -> None:
    assert {twin.check for twin in TWINS} == set(CHECKS)
