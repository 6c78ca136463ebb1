"""Each claim is divided so that passcodes go first and bulk still gets its tenth."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tumira.delivery.lanes import (
    BOTTOM,
    BULK_SHARE,
    FLOOR_AGE_S,
    SWEEP_S,
    Floor,
    Places,
    bulk_window,
    free_places,
    owed_after,
    places,
)

windows = st.integers(1, 2000)
owing = st.integers(0, BULK_SHARE - 1)
claims = st.lists(st.integers(0, 60), min_size=1, max_size=80)


@pytest.mark.parametrize(
    ("free", "window", "bulk_outstanding", "owed", "bulk_waits", "expected"),
    [
        (10, 10, 0, 0, True, Places(9, 1, 9)),
        (10, 10, 0, 0, False, Places(10, 0, 9)),
        (1, 10, 0, 9, True, Places(0, 1, 1)),
        (1, 10, 0, 8, True, Places(1, 0, 1)),
        (1, 10, 9, 9, True, Places(1, 0, 0)),
        (75, 100, 20, 5, True, Places(67, 8, 70)),
        (1, 1, 0, 9, True, Places(0, 1, 1)),
        (0, 100, 50, 9, True, Places(0, 0, 0)),
    ],
)
def test_free_places_are_divided(
    free: int, window: int, bulk_outstanding: int, owed: int, *, bulk_waits: bool, expected: Places
) -> None:
    assert places(free, window, bulk_outstanding, owed, bulk_waits=bulk_waits) == expected


@pytest.mark.parametrize(
    ("window", "outstanding", "held", "rate", "expected"),
    [
        (100, 0, 0, None, 100),
        (100, 40, 10, None, 50),
        (100, 0, 0, 300, 75),
        (100, 80, 15, 300, 5),
        (10, 11, 0, None, 0),
        (10, 0, 1, 1, 0),
        (10, 0, 0, 0.5, 1),
    ],
)
def test_a_worker_claims_its_free_window_and_a_quarter_of_a_second_at_most(
    window: int, outstanding: int, held: int, rate: float | None, expected: int
) -> None:
    assert free_places(window, outstanding, held, rate) == expected


@given(data=st.data(), window=windows, owed=owing, bulk_waits=st.booleans())
def test_no_claim_takes_more_than_is_free_nor_bulk_the_part_kept_for_passcodes(
    data: st.DataObject, window: int, owed: int, *, bulk_waits: bool
) -> None:
    bulk_outstanding = data.draw(st.integers(0, bulk_window(window)))
    free = data.draw(st.integers(0, window - bulk_outstanding))
    divided = places(free, window, bulk_outstanding, owed, bulk_waits=bulk_waits)
    found = data.draw(st.integers(0, divided.small))
    limit = divided.left_for_bulk(found)
    assert divided.small >= 0
    assert 0 <= divided.bulk <= limit <= divided.bulk_max
    assert found + limit <= free
    assert bulk_outstanding + limit <= bulk_window(window)
    assert window == 1 or bulk_window(window) <= window - window / BULK_SHARE
    # And no place stays empty that either lane may fill.
    assert divided.small + divided.bulk == free
    # With lane 0 empty, bulk fills all that it may.
    assert divided.left_for_bulk(0) == min(free, bulk_window(window) - bulk_outstanding)


def claim_all(
    frees: Sequence[int], owed: int, *, window: int = 10_000
) -> tuple[Sequence[tuple[int, int]], int]:
    taken = []
    for free in frees:
        divided = places(min(free, window), window, 0, owed, bulk_waits=True)
        bulk = divided.left_for_bulk(divided.small)
        owed = owed_after(owed, divided.small, bulk)
        taken.append((divided.small, bulk))
    return taken, owed


@given(claims, owing)
def test_bulk_gets_exactly_one_place_in_ten_over_any_claims_while_both_wait(
    frees: Sequence[int], owed: int
) -> None:
    taken, owed_at_last = claim_all(frees, owed)
    total = sum(frees)
    bulk = sum(bulk for _, bulk in taken)
    assert bulk == (owed + total) // BULK_SHARE
    assert owed_at_last == (owed + total) % BULK_SHARE


@given(claims, owing, st.data())
def test_in_no_stretch_of_claims_does_bulk_get_less_or_passcodes_wait_for_more(
    frees: Sequence[int], owed: int, data: st.DataObject
) -> None:
    taken, _ = claim_all(frees, owed)
    first = data.draw(st.integers(0, len(taken) - 1))
    stretch = taken[first : data.draw(st.integers(first + 1, len(taken)))]
    total = sum(small + bulk for small, bulk in stretch)
    bulk = sum(bulk for _, bulk in stretch)
    assert total // BULK_SHARE <= bulk <= -(-total // BULK_SHARE)


def test_a_window_of_one_serves_both_lanes() -> None:
    taken, _ = claim_all([1] * 100, 0, window=1)
    assert (sum(small for small, _ in taken), sum(bulk for _, bulk in taken)) == (90, 10)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=50), st.integers(1, 60))
def test_bulk_never_saves_up_more_than_one_place(history: Sequence[tuple[int, int]], free: int) -> None:
    owed = 0
    for small, bulk in history:
        owed = owed_after(owed, small, bulk)
        assert 0 <= owed < BULK_SHARE
    assert places(free, 1000, 0, owed, bulk_waits=True).bulk <= -(-free // BULK_SHARE)


@given(windows, st.data())
def test_with_bulk_in_all_of_its_window_a_passcode_still_finds_a_place(
    window: int, data: st.DataObject
) -> None:
    assume(window > 1)
    rate = data.draw(st.none() | st.integers(4 * window, 10_000))
    bulk = bulk_window(window)
    free = free_places(window, bulk, 0, rate)
    divided = places(free, window, bulk, data.draw(owing), bulk_waits=True)
    assert divided.small == free >= 1


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
