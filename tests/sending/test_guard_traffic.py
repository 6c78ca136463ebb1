"""The defaults of the passcode guard: honest traffic never meets them, and a script is soon stopped."""

import pytest

from tests.support.sending.guard_traffic import ATTACKS, HONEST, TIGHT, Traffic, run
from tumira.accounts.passcode_limits import NUMBER_DAY_MAX, RANGE_MAX


# The busiest takes longer than all others together.
@pytest.mark.parametrize(
    "traffic",
    [
        pytest.param(traffic, id=traffic.name, marks=pytest.mark.long if traffic.rate > 1_000 else ())
        for traffic in HONEST
    ],
)
def test_honest_traffic_is_never_stopped(traffic: Traffic) -> None:
    assert run(traffic)["stopped"] == 0


@pytest.mark.parametrize(
    ("traffic", "sent_max"),
    list(zip(ATTACKS, (RANGE_MAX, 11 * RANGE_MAX, NUMBER_DAY_MAX), strict=True)),
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_script_is_soon_stopped(traffic: Traffic, sent_max: int) -> None:
    assert 0 < run(traffic)["sent"] <= sent_max


@pytest.mark.long
def test_tighter_limits_would_stop_honest_traffic() -> None:
    """The simulation can fail: limits that others use are met by honest shapes."""
    assert sum(run(traffic, TIGHT)["stopped"] > 0 for traffic in HONEST) >= 3
