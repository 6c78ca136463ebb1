"""Retries of a node: when the next one is due, and what the operator sees."""

import time

import pytest

from tumira import runtime
from tumira.runtime import Retries


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give a clock that stands still until a test moves it."""
    moment = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: moment[0])
    return moment


def fail_at_once(retries: Retries, said: list[str], words: str = "it ended") -> None:
    retries.begin()
    retries.fail(words, said.append)


def test_each_failure_in_a_row_is_waited_for_longer_and_the_first_is_told(now: list[float]) -> None:
    retries, said = Retries(), list[str]()
    waits = []
    for _ in range(7):
        fail_at_once(retries, said)
        began = now[0]
        while not retries.is_due:
            now[0] += 0.25
        waits.append(now[0] - began)
    assert waits == [0, 0.5, 1, 2, 4, 5, 5]
    assert said == ["it ended"]


def test_who_ran_for_a_while_begins_anew(now: list[float]) -> None:
    retries, said = Retries(), list[str]()
    dues = []
    for _ in range(5):
        fail_at_once(retries, said)
        dues.append(retries.is_due)
    retries.begin()
    now[0] += runtime.STEADY_S
    retries.fail("it ended", said.append)
    dues.append(retries.is_due)
    assert dues == [True, False, False, False, False, True]
    assert said == ["it ended"] * 2


def test_other_words_are_told_at_once_and_the_same_after_a_while(now: list[float]) -> None:
    retries, said = Retries(), list[str]()
    for words in ("it ended", "the disk is full", "it ended", "the disk is full"):
        fail_at_once(retries, said, words)
    assert said == ["it ended", "the disk is full"]
    now[0] += runtime.REMINDER_S
    fail_at_once(retries, said)
    assert said == ["it ended", "the disk is full", "it ended"]


def test_words_that_are_new_each_time_do_not_fill_the_terminal(now: list[float]) -> None:
    retries, said = Retries(), list[str]()
    for number in range(1000):
        fail_at_once(retries, said, f"process {number} does not end")
    assert now == [1000.0]
    assert len(said) == runtime.WORDS_MAX
