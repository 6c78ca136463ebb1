"""Local days."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.core.days import local_day, local_ordinal


@pytest.mark.parametrize(
    ("at", "day"),
    [
        (datetime(2026, 11, 15, 21, 59, 59, 999_999, UTC), date(2026, 11, 15)),
        (datetime(2026, 11, 15, 22, 0, 0, 0, UTC), date(2026, 11, 16)),
        (datetime(2026, 11, 16, 0, 0, 0, 0, timezone(timedelta(hours=2))), date(2026, 11, 16)),
        (datetime(2028, 2, 28, 22, 0, 0, 0, UTC), date(2028, 2, 29)),
    ],
)
def test_a_day_ends_two_hours_before_that_of_utc(at: datetime, day: date) -> None:
    assert local_day(at) == day


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_an_id_made_at_a_moment_is_of_the_same_day(at: datetime) -> None:
    at_ms = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert date.fromordinal(local_ordinal(at_ms)) == local_day(at)
