"""The guard against pumping, by examples and over random histories of passcodes and clocks."""

from array import array
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.accounts.passcode_limits import (
    NUMBER_DAY_MOST,
    EffectiveLimits,
    PasscodeLimits,
    default_range_max,
)
from tumira.core.errors import RecipientCode
from tumira.core.ids import AccountId, new_id
from tumira.pricing.quote import ValidRequest
from tumira.sending.code_guard import (
    CODE_OCTETS,
    DAY_S,
    KEPT_MAX,
    STOP_S,
    WINDOW_S,
    RangeCodes,
    RangeKey,
    StopKind,
    carries_passcode,
    decide,
    range_of,
)
from tumira.sending.fairness import SMALL_MAX

SECOND: Final = 1_000_000
START: Final = 1_794_700_800 * SECOND + 250_000
ACCOUNT: Final = AccountId(new_id(0))
LIMITS: Final = EffectiveLimits(number=3, number_day=5, range=6)
CODE: Final = "Your code is 493817."


class Guard:
    """The ranges of one account, as the product keeps them."""

    def __init__(self, limits: EffectiveLimits = LIMITS) -> None:
        self.limits = limits
        self.ranges: dict[RangeKey, RangeCodes] = {}

    def send(self, number: str, now_us: int) -> StopKind | None:
        decision = decide(ACCOUNT, self.limits, [number], self.ranges, now_us)
        self.ranges |= decision.ranges
        return decision.stopped.get(number)

    def lift(self, number: str) -> None:
        self.ranges[ACCOUNT, range_of(number)] = RangeCodes(is_lifted=True)


def number(last: int, start: str = "+26377120") -> str:
    return f"{start}{last:04}"


def request(count: int, body: str = CODE) -> ValidRequest:
    return ValidRequest("sms", [number(place) for place in range(count)], body, None, dry_run=False)


def test_a_number_gets_so_many_codes_in_ten_minutes_and_so_many_in_a_day() -> None:
    guard = Guard()
    assert [guard.send(number(1), START) for _ in range(4)] == [None, None, None, StopKind.NUMBER]
    assert guard.send(number(1), START + (WINDOW_S - 1) * SECOND) is StopKind.NUMBER
    later = START + (WINDOW_S + 1) * SECOND
    assert [guard.send(number(1), later) for _ in range(3)] == [None, None, StopKind.NUMBER]
    assert guard.send(number(1), START + (DAY_S - 1) * SECOND) is StopKind.NUMBER
    assert guard.send(number(1), START + (DAY_S + 1) * SECOND) is None


def test_a_range_over_its_limit_is_stopped_for_twelve_hours_and_its_neighbours_are_not() -> None:
    guard = Guard()
    assert [guard.send(number(place), START) for place in range(6)] == [None] * 6
    assert guard.send(number(7), START) is StopKind.RANGE
    assert guard.send(number(7, "+26377121"), START) is None
    almost = START + STOP_S * SECOND - 1
    assert guard.send(number(7), almost) is StopKind.RANGE
    assert guard.send(number(7), almost + 1) is None


def test_one_number_alone_does_not_stop_its_range() -> None:
    guard = Guard()
    assert [guard.send(number(1), START) for _ in range(20)].count(StopKind.RANGE) == 0
    assert guard.send(number(2), START) is None


def test_numbers_of_one_send_count_together() -> None:
    numbers = [number(place) for place in range(8)]
    decision = decide(ACCOUNT, LIMITS, numbers, {}, START)
    assert list(decision.stopped) == numbers[6:]
    assert decision.barred == dict.fromkeys(numbers[6:], RecipientCode.RECIPIENT_LIMIT)
    assert decision.ranges[ACCOUNT, range_of(numbers[0])].stopped_until_us == START + STOP_S * SECOND


def test_what_is_lifted_passes_and_is_not_counted() -> None:
    guard = Guard()
    guard.lift(number(1))
    before = dict(guard.ranges)
    assert [guard.send(number(1), START) for _ in range(20)] == [None] * 20
    assert guard.ranges == before


def test_a_clock_that_is_set_back_holds_nobody_longer_than_a_day() -> None:
    guard = Guard()
    for _ in range(3):
        guard.send(number(1), START + 30 * DAY_S * SECOND)
    assert guard.send(number(1), START) is StopKind.NUMBER
    # Another number of the range shows that its codes were dated back.
    assert guard.send(number(2), START) is None
    assert guard.send(number(1), START + (WINDOW_S + 2) * SECOND) is None


def test_a_range_keeps_few_codes() -> None:
    guard = Guard(EffectiveLimits(number=100, number_day=250, range=300))
    for place in range(2_000):
        assert guard.send(number(place), START + place * 10 * SECOND) is None
    assert len(guard.ranges[ACCOUNT, range_of(number(0))].codes) == KEPT_MAX * CODE_OCTETS
    assert NUMBER_DAY_MOST < KEPT_MAX


def test_a_busy_range_keeps_all_codes_of_ten_minutes() -> None:
    guard = Guard(EffectiveLimits(number=100, number_day=250, range=400))
    assert [guard.send(number(place), START) for place in range(401)] == [None] * 400 + [StopKind.RANGE]


@pytest.mark.parametrize(
    ("count", "body", "expected"),
    [
        (1, CODE, True),
        (SMALL_MAX, CODE, True),
        (SMALL_MAX + 1, CODE, False),
        (1, "Your order is ready.", False),
    ],
)
def test_a_text_to_many_is_no_passcode(count: int, body: str, expected: bool) -> None:  # noqa: FBT001
    assert carries_passcode(request(count, body)) is expected


def test_defaults_apply_where_nothing_is_set_and_grow_with_the_rate() -> None:
    assert PasscodeLimits().effective(60) == EffectiveLimits(20, 50, 50)
    assert PasscodeLimits(number=3, number_day=4, range=5).effective(60) == EffectiveLimits(3, 4, 5)
    assert default_range_max(6_000) == 600


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 90 * SECOND) | st.integers(0, 3 * 3600 * SECOND)),
        max_size=60,
    )
)
def test_no_window_ever_holds_more_than_the_limits(steps: Sequence[tuple[int, int]]) -> None:
    guard = Guard()
    sent: list[tuple[int, int]] = []
    now_us = START
    for last, wait_us in steps:
        now_us += wait_us
        kind = guard.send(number(last), now_us)
        own = [at for at, other in sent if other == last]
        lately = [at for at in own if at > now_us - WINDOW_S * SECOND]
        today = [at for at in own if at > now_us - DAY_S * SECOND]
        of_range = [at for at, _ in sent if at > now_us - WINDOW_S * SECOND]
        if kind is None:
            assert len(lately) < LIMITS.number
            assert len(today) < LIMITS.number_day
            assert len(of_range) < LIMITS.range
            sent.append((now_us, last))
        elif kind is StopKind.NUMBER:
            # A code counts for up to a second too long.
            slack = now_us - SECOND
            assert (
                sum(at > slack - WINDOW_S * SECOND for at in own) >= LIMITS.number
                or sum(at > slack - DAY_S * SECOND for at in own) >= LIMITS.number_day
            )


def seconds_of(guard: Guard) -> list[int]:
    codes = guard.ranges[ACCOUNT, range_of(number(1))].codes
    count = len(codes) // CODE_OCTETS
    return [second - START // SECOND for second in array("I", codes[: 4 * count])]


def test_a_code_counts_from_the_end_of_its_second_for_a_day() -> None:
    guard = Guard(EffectiveLimits(number=9, number_day=9, range=9))
    for wait_s, seconds in ((0, [1]), (0, [1, 1]), (1, [1, 1, 2]), (5, [1, 1, 2, 6])):
        assert guard.send(number(1), START + wait_s * SECOND) is None
        assert seconds_of(guard) == seconds
    # The first two are a day old and go, the third counts for another second.
    assert guard.send(number(1), START + (DAY_S + 1) * SECOND) is None
    assert seconds_of(guard) == [2, 6, DAY_S + 2]


@pytest.mark.parametrize("back_s", [1, 2, 600])
def test_codes_of_a_clock_that_was_ahead_are_dated_back_to_the_end_of_this_second(back_s: int) -> None:
    guard = Guard(EffectiveLimits(number=9, number_day=9, range=9))
    assert guard.send(number(1), START) is None
    assert guard.send(number(1), START - back_s * SECOND) is None
    assert seconds_of(guard) == [1 - back_s] * 2
