"""A cluster under each kind of fault, decided by its history; `PROOF_RESULTS` names a folder for the figures.

A failed run leaves its histories: `python -m tests.proof.history --check DIRECTORY`.
"""

import os
from pathlib import Path
from typing import Final

import pytest

from tests.proof.history.__main__ import main
from tests.proof.history.cluster import _compile, _mount
from tests.proof.history.faults import FAULTS
from tests.proof.history.record import SUFFIX, Recorder
from tests.proof.history.run import Verdict, run
from tests.proof.history.twins import SENDS, SETTLED_S

# A thousand in all, in slices that fit.
KILLS: Final = 200
SLICES: Final = 5
COUNTS: Final = {
    "stop": 20,
    "cut": 36,
    "clock": 20,
    "slow-disk": 15,
    "full-disk": 10,
    "power": 40,
    "lie": 30,
}
# How many different victims, lines, jumps and lies each kind has, of which none may be left out.
TARGETS: Final = {"stop": 7, "cut": 36, "clock": 10, "lie": 8}
WITH_STANDBY: Final = ["fail-over", "lost-flush", "power", "stop", "cut", "kill"]
TURNS: Final = 5


def check_verdict(verdict: Verdict, name: str, kind: str, count: int) -> None:
    folder = os.environ.get("PROOF_RESULTS")
    if folder:
        verdict.write(Path(folder) / f"history-{name}.json")
    if kind in verdict.not_tried:
        pytest.skip(verdict.not_tried[kind])
    assert verdict.holds, verdict.problems
    assert verdict.faults == {kind: count}
    if not verdict.not_tried:
        assert len(verdict.details[kind]) >= TARGETS.get(kind, 1), verdict.details


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(1, SLICES + 1))
def test_a_thousand_kills_break_no_promise(tmp_path: Path, seed: int) -> None:
    check_verdict(run(tmp_path, ["kill"], seed=seed, count=KILLS), f"kill-{seed}", "kill", KILLS)


def test_all_other_kinds_are_tried_below() -> None:
    assert {"kill", *COUNTS} == set(FAULTS)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "count"), COUNTS.items())
def test_no_fault_breaks_a_promise(tmp_path: Path, kind: str, count: int) -> None:
    check_verdict(run(tmp_path, [kind], seed=1, count=count), kind, kind, count)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_with_a_standby_no_lost_server_and_no_lying_disk_breaks_a_promise(tmp_path: Path) -> None:
    verdict = run(tmp_path, WITH_STANDBY, seed=1, count=TURNS * len(WITH_STANDBY), standby=True)
    folder = os.environ.get("PROOF_RESULTS")
    if folder:
        verdict.write(Path(folder) / "history-standby.json")
    assert verdict.holds, verdict.problems
    assert verdict.faults.keys() == set(WITH_STANDBY) - verdict.not_tried.keys()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_command_tries_all_kinds_in_its_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--minutes", "3", "--seed", "7"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "HOLDS"


@pytest.mark.long
def test_a_disk_that_forgets_what_it_flushed_is_caught(tmp_path: Path) -> None:
    verdict = run(tmp_path, ["lost-flush"], seed=1, count=2, sends=SENDS, settled_s=SETTLED_S)
    if verdict.not_tried:
        pytest.skip(f"{verdict.not_tried}")
    assert verdict.problems["keys"], verdict


def test_without_a_compiler_the_cause_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no gcc" in (_compile(tmp_path)[1] or "")
    assert "there is no mount" in (_mount(tmp_path) or "")


def test_kept_histories_are_judged_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(tmp_path / f"sender{SUFFIX}")
    recorder.invoke("send", account="acc_1", key="one", to=["+263771200001"], body="Hello")
    recorder.close()
    assert main(["--check", str(tmp_path)]) == 1
    assert "one was never answered" in capsys.readouterr().out
