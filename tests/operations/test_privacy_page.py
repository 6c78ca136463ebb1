"""The privacy page states the times for which data is kept."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from tumira.cli.main import COMMANDS
from tumira.content import store as content_store
from tumira.core.settings import KEEP_WEEKS, KEEP_WEEKS_MIN
from tumira.delivery.match_receipts import REACH
from tumira.delivery.store import latency as latencies
from tumira.delivery.store import receipts
from tumira.identity.code_rules import LIFETIME
from tumira.identity.store import devices, expired, sessions, verifications
from tumira.operations.maintenance import ATTEMPT_WEEKS, EVENT_WEEKS
from tumira.operations.retention import WEEKS_PER_TURN_MAX
from tumira.pricing.phone_numbers import DIGITS_LEFT, NUMBERS_KEPT
from tumira.sending import code_stops, lookups
from tumira.sending.lifecycle import TEXT_KEPT
from tumira.uploads import kept_files

PAGE: Final = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text()

# By the table that holds it: how long a thing is kept, in the words of the page.
KEPT: Final[Mapping[str, str]] = {
    "`batches`, `messages`": f"{TEXT_KEPT.days} days after the batch was completed",
    "`batches`": f"{LIFETIME // timedelta(minutes=1)} minutes after it ended",
    "`messages`, `incidents`": f"{NUMBERS_KEPT.days} days, then its country and last {DIGITS_LEFT} digits",
    "`messages`, `batches`, `parts`": f"{KEEP_WEEKS} weeks, or as `TUMIRA_KEEP_WEEKS` says",
    "`events`": f"{EVENT_WEEKS} weeks",
    "`uploads`, `upload_chunks`, `upload_faults`": f"{TEXT_KEPT.days} days, or until it was sent; a "
    "scheduled file until then",
    "`resent_batches`": f"{2 * TEXT_KEPT.days} days",
    "`kept_files`": f"{kept_files.KEPT // timedelta(hours=1)} hours",
    "`idempotency_keys`": f"{lookups.IDEMPOTENCY_HOURS} hours",
    "`webhook_attempts`": f"{ATTEMPT_WEEKS} weeks",
    "`content_refusals`": f"{content_store.KEPT.days} days after the last time",
    "`code_stops`": f"{code_stops.STOPS_KEPT_DAYS} days",
    "`code_ranges`": f"{code_stops.RANGES_KEPT_DAYS} days after the last one, or as long as the range is "
    "left alone",
    "`verifications`, `codes`": f"{2 * verifications.HOURS_KEPT} hours",
    "`sessions`": f"{sessions.DAYS_MAX} days at most, {sessions.IDLE_HOURS} hours without use",
    "`devices`": f"{devices.DAYS_KEPT} days after the last sign-in",
    "`operator_sessions`": (
        f"{sessions.OPERATOR_HOURS_MAX} hours at most, {sessions.OPERATOR_IDLE_HOURS} hours without use"
    ),
    "`latencies`, `outcomes`": f"{latencies.DAYS_KEPT} days",
}


def _rows() -> Mapping[str, str]:
    section = PAGE.split("## What is kept, and for how long")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    return {row[1]: row[2] for row in rows}


@pytest.mark.parametrize("where", KEPT)
def test_what_is_kept_for_a_time_is_kept_for_that_time(where: str) -> None:
    assert _rows()[where] == KEPT[where]


def test_what_stands_in_a_statement_is_said_too() -> None:
    assert (_rows()["`unmatched_receipts`"], _rows()["`attempts`"]) == ("72 hours", "24 hours")
    assert "interval '72 hours'" in receipts.SQL_DELETE_OLD.text
    (tries,) = [one.text for one in expired.SQL_DELETE if " attempts " in one.text]
    assert "interval '1 day'" in tries


def test_every_table_that_is_named_exists_and_every_command_too() -> None:
    migrations = (Path(__file__).parents[2] / "tumira/postgres/migrations").glob("*.sql")
    tables = {name for one in migrations for name in re.findall(r"CREATE TABLE (\w+)", one.read_text())}
    named = {name for where in _rows() for name in re.findall(r"`(\w+)`", where)}
    assert named <= tables
    assert set(re.findall(r"tumira (erase|key|account|operator|audit)\b", PAGE)) - {"operator"} <= set(
        COMMANDS
    )


def test_when_a_week_goes_is_said() -> None:
    section = " ".join(PAGE.split("### When a week goes")[1].split("\n## ")[0].split())
    assert f"after `TUMIRA_KEEP_WEEKS` ({KEEP_WEEKS}; {KEEP_WEEKS_MIN} at least; `none`" in section
    assert timedelta(weeks=KEEP_WEEKS_MIN) > max(NUMBERS_KEPT, REACH)
    assert (WEEKS_PER_TURN_MAX, "at most eight weeks an hour" in section) == (8, True)


def test_how_long_a_request_can_wait_is_said() -> None:
    assert f"late receipt ({REACH.days} days)" in PAGE
    assert f"after {REACH.days} days at the latest" in PAGE
