"""The page of the proof names tests, checks and commits that exist, and each promise once."""

import subprocess
import sys

import pytest

from tests.proof.history.checks import CHECKS as HISTORY_CHECKS
from tests.proof.page import ROOT, read_found, read_promises
from tests.proof.simulation.checks import CHECKS as SIMULATION_CHECKS

CHECKS = {
    "model": {"delivery", "accept"},
    "simulation": set(SIMULATION_CHECKS),
    "history": set(HISTORY_CHECKS),
}


def test_each_promise_is_shown_by_what_exists() -> None:
    promises = read_promises()
    assert [one.id for one in promises] == [f"P{number}" for number in range(1, 15)]
    for promise in promises:
        assert promise.shown_by
        for shown_by in promise.shown_by:
            proof, _, check = shown_by.partition(": ")
            assert check in CHECKS[proof] if check else (ROOT / shown_by).is_file(), shown_by


def test_faults_are_listed_newest_first() -> None:
    dates = [one.date for one in read_found()]
    assert dates == sorted(dates, reverse=True)


@pytest.mark.long
def test_the_models_alone_hold() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.proof", "--only", "model"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert "EVERY PROOF HOLDS" in ran.stdout
    assert "1 passed, 0 failed" in ran.stdout


def test_an_unknown_part_is_named() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.proof", "--only", "nothing"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "The parts are model" in ran.stderr
