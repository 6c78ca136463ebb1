"""The rules for backoff, warnings, disabling and concurrency."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tumira.webhooks.health import (
    FAILURES_MAX,
    RETRY_AFTER_MAX,
    Health,
    failed,
    next_concurrency,
    read_retry_after,
    succeeded,
)

NOW: Final = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

chances = st.floats(0, 1, exclude_max=True)
gaps = st.timedeltas(timedelta(0), timedelta(hours=8))


def fail(health: Health, count: int, now: datetime = NOW, chance: float = 0.5) -> Health:
    for _ in range(count):
        health = failed(health, now, None, chance)
    return health


def test_the_twentieth_failure_makes_an_endpoint_rest_five_minutes_give_or_take_a_tenth() -> None:
    nearly = fail(Health(), FAILURES_MAX - 1)
    assert (nearly.is_probing, nearly.backoff_until) == (False, None)
    for chance, rest in ((0, 4.5 * MINUTE), (0.5, 5 * MINUTE), (0.999999, 5.5 * MINUTE)):
        health = fail(nearly, 1, chance=chance)
        assert health.is_probing
        assert health.backoff_until is not None
        assert abs(health.backoff_until - NOW - rest) < timedelta(milliseconds=1)
        assert health.is_backing_off(health.backoff_until - timedelta(microseconds=1))
        assert not health.is_backing_off(health.backoff_until)


def test_how_long_an_endpoint_asks_for_is_kept_and_the_longer_of_two_rests_counts() -> None:
    health = failed(Health(), NOW, 90 * SECOND, 0.5)
    assert (health.backoff_until, health.is_probing) == (NOW + 90 * SECOND, False)
    asked = failed(fail(Health(), FAILURES_MAX), NOW, HOUR, 0.5)
    for retry_after in (MINUTE, None):
        assert failed(asked, NOW, retry_after, 0.5).backoff_until == asked.backoff_until == NOW + HOUR


tries = st.lists(
    st.tuples(st.booleans(), gaps, st.none() | st.timedeltas(timedelta(0), 3 * DAY), chances), max_size=80
)


@given(tries)
def test_whatever_happens_health_says_what_happened_since_the_last_success(
    history: list[tuple[bool, timedelta, timedelta | None, float]],
) -> None:
    health, now, since = Health(), NOW, [NOW][:0]
    for arrived, gap, retry_after, chance in history:
        now += gap
        if arrived:
            health, since = succeeded(health, now), []
        else:
            before = health
            since.append(now)
            health = failed(health, now, retry_after, chance)
            assert health.warnings >= before.warnings
            assert before.backoff_until is None or before.backoff_until <= (health.backoff_until or NOW)
        assert health.failures == len(since)
        assert health.failing_since == (since[0] if since else None)
        assert health.is_probing == (len(since) >= 20)
        assert health.is_probing <= health.is_backing_off(now)
        assert health.backoff_until is None or health.backoff_until <= now + RETRY_AFTER_MAX
        lasted = now - since[0] if since else timedelta(0)
        assert health.warnings == (lasted >= HOUR) + (lasted >= DAY)
        assert health.must_be_disabled(now) == (len(since) >= 10 and lasted >= 5 * DAY)


def test_places_grow_by_one_and_are_halved() -> None:
    assert [next_concurrency(before, delivered=True) for before in (1, 4, 15, 16)] == [2, 5, 16, 16]
    assert [next_concurrency(before, delivered=False) for before in (16, 5, 4, 2, 1)] == [8, 2, 2, 1, 1]


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        (None, None),
        ("0", timedelta(0)),
        ("120", 120 * SECOND),
        (" 120 ", 120 * SECOND),
        ("86400", DAY),
        ("86401", DAY),
        ("9" * 400, DAY),
        ("0" * 12 + "7", 7 * SECOND),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("\u0665", None),
        (format_datetime(NOW + 90 * SECOND, usegmt=True), 90 * SECOND),
        (format_datetime(NOW - 90 * SECOND, usegmt=True), timedelta(0)),
        (format_datetime(NOW + 9 * DAY, usegmt=True), DAY),
        ("Sunday, 15-Nov-26 08:31:00 GMT", MINUTE),
        ("Sun, 99 Nov 2026 08:31:00 GMT", None),
        ("Sun, 15 Nov 99999 08:31:00 GMT", None),
    ],
)
def test_how_long_to_wait_is_read_in_seconds_or_as_a_date(text: str | None, wait: timedelta | None) -> None:
    assert read_retry_after(text, NOW) == wait


# As the client passes it on: one line of visible characters.
values = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=40)
pieces = st.sampled_from(["Sun,", "15", "Nov", "2026", "08:31:00", "GMT", "+0200", "-", ":", "0", "99999999"])


@given(values | st.lists(pieces, max_size=9).map(" ".join))
def test_nonsense_is_never_more_than_no_answer(text: str) -> None:
    wait = read_retry_after(text, NOW)
    assert wait is None or timedelta(0) <= wait <= RETRY_AFTER_MAX
