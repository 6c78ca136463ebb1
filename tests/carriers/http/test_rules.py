"""What an answer means: the first rule that fits, or what its HTTP status means with everybody."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.carriers.http.rules import AnswerRule, Conditions, HttpStatuses, judge
from tumira.carriers.http.values import HttpAnswer, SubmitVerdict
from tumira.sending.lifecycle import FAILURE_REASONS

V = SubmitVerdict
TAKEN = AnswerRule(http=HttpStatuses(200), when=Conditions({"status": "S"}), verdict=V.TAKEN)
SOLD = AnswerRule(when=Conditions({"code": [1, "2"]}), verdict=V.STOPPED, stop="credit")
GONE = AnswerRule(http=HttpStatuses(["4xx"]), when=Conditions({"code": 1}), verdict=V.REFUSED)


def answer(status: int, **headers: str) -> HttpAnswer:
    return HttpAnswer(status, {name.replace("_", "-"): value for name, value in headers.items()}, b"")


def test_the_first_rule_that_fits_decides() -> None:
    rules = (TAKEN, SOLD, GONE)
    assert judge(rules, answer(200), {"status": "s"}, fold=False).verdict is V.TAKEN
    assert judge(rules, answer(400), {"code": 1}, fold=False).stop == "credit"
    assert judge((GONE, SOLD), answer(400), {"code": 1}, fold=False).reason == "CARRIER_REJECTED"
    assert judge((GONE, SOLD), answer(200), {"code": "2"}, fold=False).stop == "credit"


@pytest.mark.parametrize(
    ("status", "verdict", "stop", "alarm"),
    [
        (200, V.DOUBT, None, True),
        (204, V.DOUBT, None, True),
        (302, V.STOPPED, "redirect", True),
        (400, V.UNKNOWN, None, True),
        (401, V.STOPPED, "credentials", True),
        (402, V.STOPPED, "credit", True),
        (403, V.STOPPED, "account", True),
        (404, V.STOPPED, "account", True),
        (408, V.DOUBT, None, False),
        (429, V.THROTTLED, None, False),
        (500, V.DOUBT, None, False),
        (502, V.DOUBT, None, False),
    ],
)
def test_an_answer_that_no_rule_knows(
    status: int, verdict: SubmitVerdict, stop: str | None, *, alarm: bool
) -> None:
    found = judge((TAKEN, SOLD, GONE), answer(status), None, fold=False)
    assert (found.verdict, found.stop, found.alarm) == (verdict, stop, alarm)


@given(st.integers(100, 599), st.sampled_from([None, {}, [], {"status": "S"}, {"code": 1}, {"code": 9}]))
def test_every_answer_has_one_meaning(status: int, document: Any) -> None:
    found = judge((TAKEN, SOLD, GONE), answer(status), document, fold=True)
    assert (found.verdict is V.STOPPED) == (found.stop is not None)
    may_end = found.verdict in {V.REFUSED, V.TEMPORARY, V.UNKNOWN}
    assert (found.reason in FAILURE_REASONS) is may_end
    if found.verdict is V.TAKEN:
        assert status == 200


@pytest.mark.parametrize(
    ("written", "wait_s"),
    [("7", 7.0), ("0.5", 0.5), ("86400", 300.0), ("Tue, 17 Nov 2026", None), ("-1", None)],
)
def test_retry_after(written: str, wait_s: float | None) -> None:
    assert judge((TAKEN,), answer(429, retry_after=written), None, fold=False).retry_after_s == wait_s
    assert judge((TAKEN,), answer(500, retry_after=written), None, fold=False).retry_after_s is None


@pytest.mark.parametrize(
    ("conditions", "document", "holds"),
    [
        ({"a": 1}, {"a": "1"}, True),
        ({"a": True}, {"a": True}, True),
        ({"a": True}, {"a": "false"}, False),
        ({"a": ["x", "Y"]}, {"a": "y"}, True),
        ({"a": "x"}, {}, False),
        ({"a": {"exists": True}}, {"a": None}, False),
        ({"a": {"exists": False}}, {"a": None}, True),
        ({"a": {"exists": True}}, {"a": {}}, True),
        ({"a": {"above": 0}}, {"a": 0}, False),
        ({"a": {"above": 0}}, {"a": "12"}, True),
        ({"a": {"above": 0}}, {"a": "many"}, False),
        ({"a": {"contains": ["Credit", "fund"]}}, {"a": "no CREDIT left"}, True),
        ({"a": {"contains": "x"}}, {"a": ["x"]}, False),
        ({"a": {"prefix": "sm"}}, {"a": "SM1"}, True),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ({"a.0.b": 1}, {"a": [{"b": 1}]}, True),
    ],
)
def test_conditions(conditions: dict[str, Any], document: Any, *, holds: bool) -> None:
    assert Conditions(conditions).hold(document) is holds
