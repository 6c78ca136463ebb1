"""When a scheduled send may begin."""

from datetime import UTC, date, datetime, time, timedelta

import pytest

from tumira.core.errors import FieldError
from tumira.schedules.times import (
    HARARE,
    JOHANNESBURG,
    check_start,
    is_too_late,
    moment_of,
    name_zone,
    write_start,
    zone_of,
)

NOW = datetime(2026, 11, 18, 6, 0, tzinfo=UTC)


def test_a_local_time_is_the_moment_it_names() -> None:
    at = moment_of(date(2026, 11, 20), time(8, 30))
    assert at == datetime(2026, 11, 20, 6, 30, tzinfo=UTC)
    assert write_start(at) == "20 Nov 2026, 08:30"
    # The first hours of a local day are still the day before in UTC.
    assert moment_of(date(2027, 1, 1), time(1, 0)) == datetime(2026, 12, 31, 23, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "field"),
    [
        (timedelta(minutes=4, seconds=59), "clock"),
        (-timedelta(days=1), "clock"),
        (timedelta(minutes=5), None),
        (timedelta(days=90), None),
        (timedelta(days=90, seconds=1), "day"),
    ],
)
def test_a_send_begins_in_five_minutes_at_the_soonest_and_in_ninety_days_at_the_latest(
    start: timedelta, field: str | None
) -> None:
    if field is None:
        check_start(NOW + start, NOW)
        return
    with pytest.raises(FieldError) as refused:
        check_start(NOW + start, NOW)
    assert refused.value.field == field
    # What it suggests is allowed when it is typed at once.
    assert ("18 Nov 2026, 08:06" if field == "clock" else "16 Feb 2027") in str(refused.value)


def test_the_zone_is_that_of_the_country_until_one_is_chosen() -> None:
    assert zone_of(None, "ZW") == zone_of(None, None) == HARARE
    assert zone_of(None, "ZA") == JOHANNESBURG
    assert zone_of(HARARE, "ZA") == HARARE
    assert name_zone(JOHANNESBURG) == "Johannesburg time (UTC+02:00)"


def test_a_send_that_an_outage_delays_is_late_for_six_hours() -> None:
    assert not is_too_late(NOW, NOW + timedelta(hours=6))
    assert is_too_late(NOW, NOW + timedelta(hours=6, seconds=1))
