"""The checker on histories made by hand: it passes good ones and finds each kind of fault."""

import dataclasses
import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proof.history import money
from tests.proof.history.checks import CHECKS, LIMIT, WINDOW_S, check, list_repeated
from tests.proof.history.money import Step, UndecidedError, find_contradiction
from tests.proof.history.power import SECTOR, Write, _take_back, read_record
from tests.proof.history.record import Fact, History, Operation, Recorder, read_history

ACCOUNT: Final = "acc_1"
TO: Final = "+263771200001"
COST: Final = 400


class Story:
    """Makes a history, a second for each thing that happens."""

    def __init__(self, balance: int = 10 * COST) -> None:
        self._seconds = itertools.count(1)
        self.operations: list[Operation] = []
        self.facts: list[Fact] = []
        self.balance = balance
        self.note("open", account=ACCOUNT, balance=_usd(balance))

    @property
    def history(self) -> History:
        return History(self.operations, self.facts)

    def note(self, what: str, at: float | None = None, **told: Any) -> None:
        self.facts.append(Fact("peer", what, next(self._seconds) if at is None else at, told))

    def add(
        self,
        what: str,
        given: Mapping[str, Any],
        told: Mapping[str, Any],
        outcome: str = "ok",
        span: tuple[float, float] | None = None,
    ) -> None:
        began = next(self._seconds)
        began_at, ended_at = span or (began, began + 0.5)
        ended_at = math.inf if outcome == "unknown" else ended_at
        self.operations.append(Operation("client", what, began_at, ended_at, outcome, given, told))

    def send(self, key: str, batch_id: str | None = None, outcome: str = "ok", **told: Any) -> None:
        batch_id = batch_id or f"bat_{key}"
        if outcome == "ok" and not any(one.told.get("batch_id") == batch_id for one in self.operations):
            self.balance -= COST
        answer = {
            "response": batch_id,
            "batch_id": batch_id,
            "accepted": 1,
            "cost": _usd(COST),
            "after": _usd(self.balance),
        }
        given = {"account": ACCOUNT, "key": key, "to": [TO], "body": f"Your order {key} is ready."}
        self.add("send", given, (answer if outcome == "ok" else {}) | told, outcome)

    def look(self, key: str, status: str, *, outcome: str = "ok", refunded: bool | None = None) -> None:
        is_back = status in {"undelivered", "failed", "expired"} if refunded is None else refunded
        message = {"id": f"msg_{key}", "to": TO, "status": status, "cost": _usd(COST), "refunded": is_back}
        told = {"recipients": 1, "cost": _usd(COST), "messages": [message]}
        self.add("batch", {"batch_id": f"bat_{key}"}, told if outcome == "ok" else {}, outcome)

    def arrive(self, key: str) -> None:
        self.note("text", to=TO, text=f"Your order {key} is ready.")

    def tell(self, sequence: int, key: str, status: str, event_id: str = "") -> None:
        data = {"message_id": f"msg_{key}"}
        name = event_id or f"evt_{sequence}"
        kind = f"message.{status}"
        self.note("event", id=name, account=ACCOUNT, sequence=sequence, type=kind, data=data)

    def read(self, balance: int | None = None) -> None:
        told = {"balance": _usd(self.balance if balance is None else balance)}
        self.add("balance", {"account": ACCOUNT}, told)

    def problems(self, *names: str) -> Sequence[str]:
        """Return what the named checks found; all others must have found nothing."""
        found = check(self.history)
        assert {name for name in found if found[name]} == set(names), found
        return [problem for name in names for problem in found[name]]


def _usd(units: int) -> str:
    return f"{units / 10_000:.4f}"


def good_story() -> Story:
    """Tell of a delivered message, and of a refunded message."""
    story = Story()
    for key, status in (("a", "delivered"), ("b", "undelivered")):
        story.send(key)
        story.look(key, "queued")
        story.arrive(key)
        story.look(key, "sent")
        story.look(key, status)
    story.balance += COST
    for sequence, (key, status) in enumerate(
        [("a", "sent"), ("b", "sent"), ("b", "undelivered"), ("a", "delivered")], start=1
    ):
        story.tell(sequence, key, status)
    story.tell(2, "b", "sent")
    story.read()
    return story


def test_a_good_history_has_no_problems() -> None:
    assert good_story().problems() == []


# Keys.


def test_a_key_with_two_batches_is_found() -> None:
    story = good_story()
    story.send("a", "bat_other")
    assert "2 answers" in story.problems("keys", "ends")[0]


def test_a_batch_of_two_keys_is_found() -> None:
    story = good_story()
    story.send("c", "bat_a")
    assert any("is the batch of a and c" in problem for problem in check(story.history)["keys"])


def test_an_accepted_batch_that_is_gone_is_found() -> None:
    story = good_story()
    story.look("a", "", outcome="fail")
    assert story.problems("keys") == ["bat_a was accepted and is not there"]


def test_a_batch_that_is_not_there_before_it_is_accepted_is_no_problem() -> None:
    story = Story()
    story.look("a", "", outcome="fail")
    assert story.problems() == []


def test_a_key_that_stays_without_an_answer_is_found() -> None:
    story = good_story()
    story.send("c", outcome="unknown")
    assert "never answered" in story.problems("keys")[0]


def test_a_key_that_is_answered_at_last_is_no_problem() -> None:
    story = Story()
    story.send("c", outcome="unknown")
    story.send("c")
    story.send("c")
    story.look("c", "sent")
    story.arrive("c")
    assert story.problems() == []


# Money.


def test_a_balance_that_no_order_explains_is_found() -> None:
    story = good_story()
    story.read(story.balance + COST)
    assert "told" in story.problems("money")[0]


def test_a_charge_that_is_made_twice_is_found() -> None:
    story = good_story()
    story.balance -= COST
    story.send("c")
    story.look("c", "delivered")
    story.arrive("c")
    story.tell(5, "c", "delivered")
    assert len(story.problems("money")) == 1


def test_a_message_that_is_not_refunded_is_found() -> None:
    story = good_story()
    story.balance -= COST
    story.look("b", "undelivered", refunded=False)
    assert "refunded: False" in story.problems("money")[0]


def test_a_top_up_of_which_nothing_is_known_explains_two_balances() -> None:
    story = good_story()
    story.add("credit", {"account": ACCOUNT, "amount": "1.0000"}, {}, "unknown")
    story.read()
    assert story.problems() == []
    story.read(story.balance + 10_000)
    assert story.problems() == []
    story.read()
    assert len(story.problems("money")) == 1


def test_a_read_in_the_last_moment_before_a_crash_proves_nothing() -> None:
    story = good_story()
    story.read(story.balance - COST)
    assert len(story.problems("money")) == 1
    last = story.operations[-1]
    story.note("crash", at=last.ended + 0.2, since=last.ended + 0.1)
    assert story.problems() == []


def random_steps(chance: random.Random, count: int = 12) -> tuple[int, list[Step]]:
    """Return steps in an order that did happen, with begins and ends around the moments of their effect."""
    start = balance = 1000
    steps = []
    for moment in range(1, count + 1):
        began, ended = moment - chance.random() * 4, moment + chance.random() * 4
        amount = chance.choice([-4, -4, -8, 4, 0])
        balance += amount
        tells = amount <= 0 and chance.random() < 0.8
        steps.append(Step(f"step {moment}", began, ended, amount, balance if tells else None))
    chance.shuffle(steps)
    return start, steps


def can_be_ordered(balance: int, steps: Sequence[Step]) -> bool:
    """Try all orders, one after the other: slow, and plain to see."""
    if not steps:
        return True
    first_end = min(step.ended for step in steps)
    for place, step in enumerate(steps):
        after = balance + step.amount
        is_possible = step.began <= first_end and step.after in {None, after}
        if is_possible and can_be_ordered(after, [*steps[:place], *steps[place + 1 :]]):
            return True
    return False


@given(st.integers(min_value=0, max_value=10**9))
def test_what_did_happen_is_explained(seed: int) -> None:
    assert find_contradiction(*random_steps(random.Random(seed))) is None


@given(st.integers(min_value=0, max_value=10**9))
def test_the_search_finds_an_order_exactly_if_there_is_one(seed: int) -> None:
    chance = random.Random(seed)
    start, steps = random_steps(chance, 7)
    changed = chance.choice([step for step in steps if step.after is not None] or steps)
    after = (changed.after or start) + chance.choice([-8, -4, 4, 8])
    steps[steps.index(changed)] = dataclasses.replace(changed, after=after)
    assert (find_contradiction(start, steps) is None) == can_be_ordered(start, steps)


def test_too_many_orders_are_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(money, "STATES_MAX", 100)
    steps = [Step(f"{place}", 0, 100, 2**place) for place in range(12)]
    with pytest.raises(UndecidedError):
        find_contradiction(0, [*steps, Step("read", 1, 2, 0, 1)])


# Hand-overs.


def test_a_second_hand_over_without_a_resend_is_found() -> None:
    story = good_story()
    story.arrive("a")
    assert list_repeated(story.history) == ["msg_a"]
    assert "handed over 2 times" in story.problems("hand-overs")[0]
    story.add("timeline", {"message_id": "msg_a"}, {"resends": 1})
    assert story.problems() == []


def test_a_text_that_nobody_sent_is_found() -> None:
    story = good_story()
    story.arrive("z")
    assert "nobody sent" in story.problems("hand-overs")[0]


def test_a_delivered_message_that_no_carrier_had_is_found() -> None:
    story = good_story()
    story.facts = [fact for fact in story.facts if fact.told.get("text") != "Your order a is ready."]
    assert "no carrier had it" in story.problems("hand-overs")[0]


def test_a_message_that_still_waits_is_found() -> None:
    story = good_story()
    story.send("c")
    story.look("c", "sending")
    assert story.problems("ends") == ["msg_c is still sending"]


# Statuses.


@pytest.mark.parametrize(
    ("old", "new"), [("sent", "queued"), ("delivered", "sent"), ("undelivered", "delivered")]
)
def test_a_status_that_goes_back_is_found(old: str, new: str) -> None:
    story = Story()
    story.send("c")
    story.look("c", old)
    story.look("c", new)
    assert len(check(story.history)["statuses"]) == 1


def test_looks_at_the_same_time_may_be_told_in_any_order() -> None:
    story = Story()
    story.send("c")
    story.look("c", "delivered")
    early = story.operations[-1]
    story.look("c", "sent")
    late = story.operations.pop()
    story.operations.append(
        Operation("other", "batch", early.began - 1, early.ended + 1, "ok", late.given, late.told)
    )
    assert check(story.history)["statuses"] == []


def test_events_that_go_back_are_found() -> None:
    story = good_story()
    story.tell(5, "a", "sent")
    assert "say delivered and then sent" in story.problems("statuses")[0]


# Events.


def test_a_hole_in_the_events_is_found() -> None:
    story = good_story()
    story.tell(6, "z", "sent")
    assert "lacks 1 of 6 events: [5]" in story.problems("events")[0]


def test_an_end_without_an_event_is_found() -> None:
    story = good_story()
    story.facts = [fact for fact in story.facts if fact.told.get("sequence") != 4]
    assert story.problems("events") == ["no event says that msg_a is delivered"]


def test_a_number_of_two_events_is_found() -> None:
    story = good_story()
    story.tell(4, "a", "delivered", "evt_other")
    assert "2 events 4" in story.problems("events")[0]


# The rate limit.


def calls(story: Story, count: int, apart_s: float) -> None:
    for place in range(count):
        story.add("call", {}, {}, span=(place * apart_s, place * apart_s + 0.01))


def test_a_call_too_many_is_found() -> None:
    story = Story()
    calls(story, LIMIT + 1, 0.9 * WINDOW_S / LIMIT)
    assert "61 calls within 60 s" in story.problems("rate")[0]
    story.note("clock", at=10.0)
    assert story.problems() == []


def test_as_many_calls_as_allowed_are_no_problem() -> None:
    story = Story()
    calls(story, 3 * LIMIT, WINDOW_S / LIMIT)
    assert story.problems() == []


def test_all_checks_are_tried_above() -> None:
    assert set(CHECKS) == {"keys", "money", "hand-overs", "ends", "statuses", "events", "rate"}


# Files.


def test_a_history_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "sender.jsonl")
    for outcome in ("ok", "fail", "unknown"):
        recorder.end(recorder.invoke("send", key=outcome), outcome, code="x")
    recorder.invoke("send", key="cut off")
    recorder.note("text", to=TO)
    recorder.close()
    history = read_history(tmp_path)
    found = {one.given["key"]: one for one in history.of("send")}
    assert [found[key].outcome for key in ("ok", "fail", "unknown", "cut off")] == [
        "ok",
        "fail",
        "unknown",
        "unknown",
    ]
    assert found["unknown"].ended == found["cut off"].ended == math.inf
    assert found["ok"].began <= found["ok"].ended <= found["fail"].began
    assert history.noted("text")[0].told == {"to": TO}


# Power cuts.


class Choices(random.Random):
    """Chance that keeps all or nothing of each write."""

    def __init__(self, kept: Iterator[bool]) -> None:
        super().__init__(1)
        self._kept = kept

    def choice(self, seq: Any) -> Any:
        return seq[int(next(self._kept))]


@pytest.mark.parametrize(
    ("kept", "left"),
    [((False, False), b"ab" * 512), ((True, False), b"x" * 1024), ((False, True), b"ab" * 256 + b"y" * 1024)],
)
def test_a_power_cut_leaves_the_writes_that_the_disk_kept(
    tmp_path: Path, kept: Sequence[bool], left: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 512 + b"y" * 1024)
    old = b"ab" * 512
    writes = [Write(0, old, b"x" * 1024, 1024), Write(SECTOR, b"x" * 512, b"y" * 1024, 1024)]
    with path.open("r+b") as file:
        assert _take_back(file, writes, Choices(iter(kept))) == kept.count(False)
    assert path.read_bytes() == left


def test_a_record_that_is_cut_off_ends_before_its_last_write() -> None:
    head = b"".join(number.to_bytes(8, "little") for number in (512, 3, 2, 514))
    whole = head + b"ab" + b"xyz"
    assert list(read_record(whole + whole[:-1])) == [Write(512, b"ab", b"xyz", 514)]
