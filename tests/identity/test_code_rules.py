"""Codes: their shape, and the waits between them."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tumira.identity import code_rules
from tumira.identity.code_rules import (
    CodeLimits,
    in_words,
    new_code,
    read_code,
    wait_for_count,
    wait_for_phone,
)

NOW = datetime(2026, 11, 16, 10, tzinfo=UTC)
NO_WAIT = timedelta(0)


def test_codes_have_six_digits_and_every_digit_stands_everywhere() -> None:
    made = [new_code() for _ in range(1000)]
    assert all(code.isascii() and code.isdecimal() and len(code) == 6 for code in made)
    assert all(len(Counter(code[place] for code in made)) == 10 for place in range(6))
    assert len(set(made)) > 950


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("493817", "493817"),
        (" 493-817 ", "493817"),
        ("\t493\u00a0817\r\n", "493817"),
        ("", None),
        ("49381", None),
        ("4938171", None),
        ("49381a", None),
        ("٤٩٣٨١٧", None),
        ("493817\x00", None),
        ("4" * 100_000, None),
    ],
)
def test_a_code_is_read_as_people_type_it_and_nothing_else(text: str, code: str | None) -> None:
    assert read_code(text) == code


def wait_here(sent: Sequence[datetime], now: datetime) -> timedelta:
    """Return the wait when all codes of a number were asked for from here."""
    return wait_for_phone(sent, sent, now)


def asked_at_once(hours: float) -> list[datetime]:
    """Return the times of codes that are asked for without a pause over these hours."""
    sent: list[datetime] = []
    now = NOW
    while now < NOW + timedelta(hours=hours):
        wait = wait_here([at for at in sent if at > now - code_rules.DAY], now)
        if wait:
            now += wait
        else:
            sent.append(now)
    return sent


def test_waits_grow_with_every_code() -> None:
    sent = asked_at_once(24)
    waits = [later - earlier for earlier, later in pairwise(sent)]
    assert waits[:5] == [timedelta(seconds=s) for s in (30, 60, 120, 300, 600)]
    # Six in an hour: the seventh waits until the first is an hour old.
    assert sent[6] - sent[0] == timedelta(hours=1)


def test_a_number_gets_at_most_six_codes_in_any_hour_and_ten_in_any_day() -> None:
    sent = asked_at_once(24 * 3)
    assert len(sent) > 24
    for at in sent:
        assert sum(at <= other < at + code_rules.HOUR for other in sent) <= 6
        assert sum(at <= other < at + code_rules.DAY for other in sent) <= 10


@settings(max_examples=50)
@given(st.lists(st.integers(1, 86_399), max_size=10, unique=True))
def test_who_waits_as_long_as_we_say_gets_a_code(seconds_ago: list[int]) -> None:
    sent = sorted(NOW - timedelta(seconds=ago) for ago in seconds_ago)
    wait = wait_here(sent, NOW)
    assert wait >= NO_WAIT
    then = NOW + wait
    assert wait_here([at for at in sent if at > then - code_rules.DAY], then) == NO_WAIT


def test_an_address_waits_half_a_minute_for_what_others_asked_for_and_no_longer() -> None:
    others = [NOW - timedelta(minutes=9 - place) for place in range(9)] + [NOW - timedelta(seconds=10)]
    assert wait_for_phone([], others, NOW) == timedelta(seconds=20)
    assert wait_for_phone([], others, NOW + timedelta(seconds=20)) == NO_WAIT


def test_a_number_gets_twenty_codes_in_a_day_from_everywhere() -> None:
    others = [NOW - timedelta(hours=20) + timedelta(minutes=place) for place in range(20)]
    assert wait_for_phone([], others, NOW) == timedelta(hours=4)
    assert wait_for_phone([], others[1:], NOW) == NO_WAIT


def test_the_last_code_below_a_limit_is_sent_and_the_next_waits_for_the_oldest() -> None:
    oldest = NOW - timedelta(minutes=50)
    assert wait_for_count(39, oldest, CodeLimits().per_address, NOW) == NO_WAIT
    assert wait_for_count(40, oldest, CodeLimits().per_address, NOW) == timedelta(minutes=10)
    assert wait_for_count(0, None, 500, NOW) == NO_WAIT
    # What is over a limit always waits, even when the clock has passed the moment.
    assert wait_for_count(40, NOW - timedelta(hours=2), 40, NOW) == timedelta(seconds=1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "1 second"),
        (89, "89 seconds"),
        (90, "2 minutes"),
        (601, "11 minutes"),
        (5400, "2 hours"),
    ],
)
def test_waits_are_said_in_words(seconds: int, words: str) -> None:
    assert in_words(timedelta(seconds=seconds)) == words
