"""Waiting times of passcodes and fair shares of a full carrier, in simulated time.

The carrier takes 300 segments a second. A wait is the time from acceptance to submission; a claim alone takes
up to 20 ms of it.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.support.sending.fairness_simulation import RATE, Send, Submitted, simulate
from tumira.delivery import lanes

# What a passcode may wait while the carrier has a place for it, and what it may wait when lane 0 itself is
# full: then a quarter of a second of messages is held in front of it.
AT_ONCE_S = 0.05
BEHIND_HELD_S = 0.35


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the messages of one account waited."""

    count: int
    p50: float
    p99: float
    longest: float


def waits(handed_over: Sequence[Submitted], account: str, lane: int = 0) -> Waits:
    found = sorted(one.wait for one in handed_over if one.account == account and one.lane == lane)
    return Waits(len(found), found[len(found) // 2], found[len(found) * 99 // 100], found[-1])


def shares(handed_over: Sequence[Submitted]) -> Counter[str]:
    counter: Counter[str] = Counter()
    for one in handed_over:
        counter[one.account] += one.segments
    return counter


def codes(account: str, seconds: int, each_second: float = 5, seed: int = 1) -> Iterator[Send]:
    moments = random.Random(seed)
    for _ in range(int(seconds * each_second)):
        yield Send(moments.uniform(0, seconds - 1), account)


def assert_full(handed_over: Sequence[Submitted], seconds: int) -> None:
    """Check that fairness costs no throughput: hardly a place of the carrier stays empty."""
    assert sum(shares(handed_over).values()) > 0.99 * RATE * seconds


def test_a_newsletter_of_sixty_thousand_holds_up_neither_its_own_account_nor_another() -> None:
    newsletter = [Send(second, "shop", 1000) for second in range(30)]
    handed_over = simulate([*newsletter, *codes("shop", 30, seed=2), *codes("bank", 30)], 30)
    for account in ("shop", "bank"):
        found = waits(handed_over, account)
        assert found.count == 150
        assert found.p50 < 0.02
        assert found.p99 < 0.03
        assert found.longest < AT_ONCE_S
    assert_full(handed_over, 30)


def test_many_accounts_with_a_backlog_hold_up_nobody_and_share_alike() -> None:
    sends = [Send(place / 300, f"shop {place}", 100) for place in range(300)]
    handed_over = simulate([*sends, *codes("bank", 40)], 40)
    found = waits(handed_over, "bank")
    assert found.count == 200
    assert found.longest < AT_ONCE_S
    counts = shares([one for one in handed_over if one.lane == 1])
    # The first was alone for a moment; from then on they take turns.
    fewest, *_, second, _ = sorted(counts.values())
    assert fewest > 30
    assert second - fewest <= 2
    assert_full(handed_over, 40)
    alone = waits(simulate(codes("bank", 40), 40), "bank")
    assert found.p50 < alone.p50 + 0.02
    assert found.longest < alone.longest + 0.02


def assert_as_on_a_carrier_of_its_own(
    handed_over: Sequence[Submitted], account: str, rate: float, accounts: int
) -> None:
    """Check that no message waited longer than on a slow carrier that serves this account alone.

    But for what is held in front of it and one round of all accounts, which is what taking turns costs.
    """
    own = [one for one in handed_over if one.account == account]
    free_at = 0.0
    for one in own:
        free_at = max(free_at, one.accepted_at) + 1 / rate
        assert one.at < free_at + BEHIND_HELD_S + accounts / RATE


def overload() -> Iterator[Send]:
    """Make twice as many small sends as the carrier takes, of sixty accounts."""
    for place in range(60):
        for sent in range(600):
            yield Send(sent / 10 + place / 600, f"shop {place}")


@pytest.mark.long
def test_more_small_sends_than_the_carrier_takes_are_shared_fairly() -> None:
    handed_over = simulate([*overload(), *codes("bank", 60)], 60)
    assert_full(handed_over, 60)
    counts = shares(handed_over)
    fair = RATE / 61
    assert all(counts[f"shop {place}"] == pytest.approx(60 * fair, rel=0.03) for place in range(60))
    # Five a second is a little over a sixty-first of the carrier: its queue grows, but only by that little.
    assert counts["bank"] == pytest.approx(60 * fair, rel=0.03)
    assert_as_on_a_carrier_of_its_own(handed_over, "bank", fair, 61)
    assert waits(handed_over, "bank").longest < 3
    assert waits(handed_over, "shop 0").p50 > 10


@pytest.mark.long
def test_an_account_below_its_fair_share_is_quick_among_those_above_theirs() -> None:
    bulk = [Send(0, "newsletter", 1000)] * 20
    handed_over = simulate([*overload(), *bulk, *codes("bank", 60, each_second=2)], 60)
    found = waits(handed_over, "bank")
    assert found.count == 120
    assert found.p50 < BEHIND_HELD_S + 61 / RATE
    assert found.longest < 1.5
    # Bulk has a tenth of the carrier, and the accounts of lane 0 share the rest.
    assert_as_on_a_carrier_of_its_own(handed_over, "bank", 0.9 * RATE / 61, 61)


def test_a_flood_of_one_account_hardly_holds_up_the_others_and_leaves_bulk_its_tenth() -> None:
    flood = [Send(call / 100, "flood", 10) for call in range(6000)]
    bulk = [Send(0, "newsletter", 1000)] * 20
    handed_over = simulate([*flood, *bulk, *codes("bank", 60), *codes("clinic", 60, 1, seed=3)], 60)
    for account in ("bank", "clinic"):
        assert waits(handed_over, account).longest < BEHIND_HELD_S
    assert waits(handed_over, "bank").count == 300
    assert shares(handed_over)["newsletter"] == pytest.approx(RATE * 60 / 10, rel=0.02)
    assert_full(handed_over, 60)


@pytest.mark.parametrize("window", [1, 10])
def test_a_narrow_window_still_serves_both_lanes(window: int) -> None:
    flood = [Send(call / 100, "flood", 10) for call in range(2000)]
    handed_over = simulate([*flood, *[Send(0, "newsletter", 1000)] * 20], 20, window=window)
    counts = shares(handed_over)
    # Wider shares for bulk come from its place in the window, which it keeps until the answer.
    assert counts["newsletter"] >= 0.09 * counts.total()
    assert counts["flood"] >= 0.45 * counts.total()


def test_a_newcomer_pays_for_a_burst_no_more_than_the_age_of_the_clock() -> None:
    burst = [
        Send(place / 600 + call / 10_000, f"shop {place}", 10) for place in range(60) for call in range(10)
    ]
    newcomers = [Send(0.15 + place / 10, f"newcomer {place}") for place in range(20)]
    handed_over = simulate([*burst, *newcomers], 30)
    found = [one.wait for one in handed_over if one.account.startswith("newcomer")]
    # Those of the burst who saw the clock before it was published stand before the newcomers, by as many
    # messages as were claimed meanwhile; the 6,000 messages of the burst take twenty seconds.
    assert len(found) == 20
    assert max(found) < 2.5
    assert found[-1] < BEHIND_HELD_S + 60 / RATE


@pytest.mark.parametrize(
    ("one", "other", "ratio"),
    [
        (Send(0, "one", 1000, segments=5), Send(0, "other", 10_000), 1),
        (Send(0, "one", 10_000, weight=2), Send(0, "other", 10_000), 2),
    ],
    ids=["long texts count by their segments", "twice the weight gets twice as much"],
)
def test_shares_go_by_segments_and_weight(one: Send, other: Send, ratio: int) -> None:
    counts = shares(simulate([one, other], 20))
    assert counts["one"] == pytest.approx(ratio * counts["other"], rel=0.02)


def test_an_account_that_was_idle_neither_catches_up_nor_falls_behind() -> None:
    early = Send(0, "early", 20_000)
    late = Send(10, "late", 20_000)
    handed_over = simulate([early, late], 30)
    both = shares([one for one in handed_over if one.at > 10.5])
    assert both["early"] == pytest.approx(both["late"], rel=0.02)


# Forty accounts send a hundred small messages each while the first claim of another is not published yet, so
# that they enter far below the clock. All of it is 4,040 messages: less than fourteen seconds of the carrier.
BELOW_THE_CLOCK = [
    *(Send(call / 10_000, "first", 10, segments=3) for call in range(4)),
    *(
        Send(0.02 + place / 500 + call / 10_000, f"shop {place}", 10)
        for place in range(40)
        for call in range(10)
    ),
]


class ClockAlone(lanes.Floor):
    """The twin: a floor that goes by the clock of five seconds ago and by nothing else."""

    def claimed(self, now: float, lowest: int) -> None:
        """Forget what was claimed."""


def test_no_claim_passes_over_those_who_entered_below_the_clock() -> None:
    handed_over = simulate(BELOW_THE_CLOCK, 60, new_floor=lanes.Floor)
    assert len(handed_over) == 4040
    assert handed_over == simulate(BELOW_THE_CLOCK, 60)
    assert handed_over[-1].at < 14


def test_by_the_clock_alone_a_claim_passes_over_them_for_minutes() -> None:
    handed_over = simulate(BELOW_THE_CLOCK, 60, new_floor=ClockAlone)
    assert len(handed_over) < 3900


# The twins: take away one part of the order, and a passcode waits.
BACKLOGS = [
    *(Send(0, f"shop {place}", 100) for place in range(1000)),
    *(Send(0.5 + 5 * place, "bank") for place in range(8)),
]


def one_lane(_recipients: int) -> int:
    return 0


def test_with_lanes_and_virtual_time_a_passcode_goes_at_once() -> None:
    assert waits(simulate(BACKLOGS, 40), "bank").longest < AT_ONCE_S


def test_without_lanes_a_passcode_waits_for_a_turn_of_everybody() -> None:
    found = waits(simulate(BACKLOGS, 60, lane_of=one_lane), "bank")
    assert 1 < found.p50 < 1000 / RATE + BEHIND_HELD_S


@pytest.mark.long
def test_with_turns_by_the_time_of_day_a_passcode_waits_behind_all_backlogs() -> None:
    found = waits(simulate(BACKLOGS, 150, lane_of=one_lane, wall_clock=True), "bank")
    assert found.count == 8
    assert found.p50 > 40
