"""A bind claims ahead of its free slots, and submits passcodes first while bulk still gets its tenth."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.delivery.lanes import (
    AHEAD_MAX,
    BOTTOM,
    BULK,
    BULK_SHARE,
    FLOOR_AGE_S,
    NO_ROOM,
    SMALL,
    SWEEP_S,
    Floor,
    LaneOrder,
    Room,
    ahead,
    bulk_window,
    room,
)

counts = st.integers(0, 2000)


@pytest.mark.parametrize(
    ("window", "pace", "rate", "expected"),
    [
        (1, 0, None, 1),
        (10, 200, None, 20),
        (50, 170, None, 50),
        (500, 0, None, 100),
        (100, 7000, None, 700),
        (100, 50_000, None, AHEAD_MAX),
        (100, 300, 300, 30),
        (10, 3, 3, 1),
    ],
)
def test_a_bind_claims_a_window_ahead_or_a_tenth_of_a_second(
    window: int, pace: float, rate: float | None, expected: int
) -> None:
    assert ahead(window, pace, rate) == expected


@pytest.mark.parametrize(
    ("free", "most_held", "small_held", "bulk_held", "expected"),
    [
        (10, 10, 0, 0, Room(20, 2, 20)),
        (0, 10, 0, 0, Room(10, 1, 10)),
        (0, 10, 0, 10, Room(10, 0, 0)),
        (0, 10, 10, 0, Room(0, 1, 1)),
        (3, 10, 5, 4, Room(8, 0, 4)),
        (1, 0, 0, 0, Room(1, 1, 1)),
        (0, 0, 0, 0, NO_ROOM),
    ],
)
def test_what_may_be_claimed_is_divided(
    free: int, most_held: int, small_held: int, bulk_held: int, expected: Room
) -> None:
    assert room(free, most_held, small_held, bulk_held) == expected


@given(counts, counts, counts, counts, st.data())
def test_bulk_that_is_held_takes_no_place_from_passcodes_and_has_at_least_a_tenth_itself(
    free: int, most_held: int, small_held: int, bulk_held: int, data: st.DataObject
) -> None:
    places = free + most_held
    found = room(free, most_held, small_held, bulk_held)
    assert found.small == max(0, places - small_held)
    small = data.draw(st.integers(0, found.small))
    limit = found.left_for_bulk(small)
    assert bulk_held + limit >= places / BULK_SHARE
    # Both lanes together hold no more than there is room for, but for the tenth of bulk.
    assert limit <= max(places - small_held - small - bulk_held, -(-places // BULK_SHARE))


@given(st.integers(1, 2000))
def test_a_wide_window_keeps_a_slot_for_passcodes_and_a_narrow_one_is_used_whole(window: int) -> None:
    assert bulk_window(window) == (window - 1 if window >= 100 else window)


def submit(order: LaneOrder, waiting: Sequence[tuple[bool, bool]]) -> Sequence[int | None]:
    return [order.next(small=small, bulk=bulk) for small, bulk in waiting]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60), st.integers(0, 200))
def test_bulk_gets_every_tenth_submit_while_both_wait(
    before: Sequence[tuple[bool, bool]], count: int
) -> None:
    order = LaneOrder()
    submit(order, before)
    lanes = submit(order, [(True, True)] * count)
    assert count // BULK_SHARE <= lanes.count(BULK) <= -(-count // BULK_SHARE)
    places = [place for place, lane in enumerate(lanes) if lane == BULK]
    assert all(later - earlier == BULK_SHARE for earlier, later in itertools.pairwise(places))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=100))
def test_a_lane_that_waits_is_submitted_and_a_passcode_waits_for_one_bulk_submit_at_most(
    waiting: Sequence[tuple[bool, bool]],
) -> None:
    lanes = submit(LaneOrder(), waiting)
    for (small, bulk), lane in zip(waiting, lanes, strict=True):
        assert lane in ({SMALL} if small else set()) | ({BULK} if bulk else set()) | (
            set() if small or bulk else {None}
        )
    passed = [lane for (small, _), lane in zip(waiting, lanes, strict=True) if small]
    assert (BULK, BULK) not in set(itertools.pairwise(passed))


def swept_floor() -> Floor:
    floor = Floor()
    assert floor.begin(0) == BOTTOM
    return floor


def test_a_floor_is_the_clock_of_five_seconds_ago_and_below_what_was_claimed_lately() -> None:
    floor = swept_floor()
    for second in range(1, 9):
        floor.published(second, second * 1000)
    assert floor.begin(5.5) == BOTTOM
    assert floor.begin(6) == 1000
    assert floor.begin(8.5) == 3000

    floor = swept_floor()
    floor.published(0, 75_000)
    floor.claimed(3, 20_000)
    floor.claimed(4, 30_000)
    floor.claimed(4.05, 30_001)
    assert floor.begin(6) == 20_000
    assert floor.begin(8.5) == 30_000
    assert floor.begin(9.02) <= 30_001
    assert floor.begin(9.5) == 75_000


def test_of_clocks_and_turns_that_follow_each_other_soon_one_is_kept() -> None:
    floor = swept_floor()
    for turn, now in enumerate((0, 0.05, 0.1, 0.15, 0.2)):
        floor.published(now, turn)
        floor.claimed(now, turn)
    assert [turn for _, turn in floor._clocks] == [0, 2, 4]
    assert [turn for _, turn in floor._lowest] == [0, 2, 4]
    # A turn takes the place of all that are not below it.
    floor.claimed(0.4, 2)
    assert list(floor._lowest) == [(0, 0), (0.4, 2)]


def test_a_floor_is_the_bottom_now_and_then_and_is_pulled_down_by_what_is_found_there() -> None:
    floor = swept_floor()
    floor.published(0, 75_000)
    assert floor.begin(SWEEP_S - 1) == 75_000
    assert floor.begin(SWEEP_S) == BOTTOM
    assert floor.begin(SWEEP_S + 1) == 75_000
    floor.claimed(SWEEP_S + 1, 7)
    assert floor.begin(SWEEP_S + 2) == 7
    assert floor.begin(SWEEP_S + 1 + FLOOR_AGE_S + 1) == 75_000


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 0.01, 0.05, 0.4, 1.0]), st.integers(0, 10**6), st.integers(0, 10**6)),
        max_size=200,
    )
)
def test_a_floor_is_never_above_a_turn_claimed_or_a_clock_published_in_the_last_seconds(
    history: Sequence[tuple[float, int, int]],
) -> None:
    floor = Floor()
    now, clock = 0.0, 0
    noted: list[tuple[float, int]] = []
    for wait, advance, lowest in history:
        now += wait
        clock += advance
        floor.published(now, clock)
        floor.claimed(now, lowest)
        noted += [(now, clock), (now, lowest)]
        begin = floor.begin(now)
        assert all(begin <= turn for at, turn in noted if at >= now - FLOOR_AGE_S)
        assert len(floor._clocks) + len(floor._lowest) < 2 * (FLOOR_AGE_S / 0.1 + 4)
