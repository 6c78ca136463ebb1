"""What follows from each result of a delivery: retries, backoff, warnings, and the end of an endpoint."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tumira.core.ids import AccountId, EndpointId, EventId, new_id
from tumira.events import WEBHOOK_TEST, Event
from tumira.webhooks.endpoints import Endpoint, SigningSecret
from tumira.webhooks.health import Health
from tumira.webhooks.http_response import HttpResponse
from tumira.webhooks.reader import EventReader, PendingEvent
from tumira.webhooks.results import ResultKeeper, SendResult

NOW: Final = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
LADDER: Final = (
    *(5 * SECOND, 30 * SECOND, 5 * MINUTE, 30 * MINUTE),
    *(2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR),
)


@dataclass
class Kept:
    """The results of one endpoint."""

    keeper: ResultKeeper
    reader: EventReader

    def add(
        self, pending: PendingEvent, status: int | None, now: datetime, **response: str
    ) -> datetime | None:
        answer = None if status is None else HttpResponse(status, response.get("retry_after"), b"no\0\xff")
        self.keeper.add(pending, SendResult(now, 5, answer, None if answer else "Connection refused."), now)
        (made,) = self.keeper.take().made
        return made.attempt.next_at


@pytest.fixture
def kept() -> Kept:
    return keep(Health())


def keep(health: Health) -> Kept:
    endpoint = Endpoint(
        id=EndpointId(new_id(0)),
        account_id=AccountId(new_id(0)),
        url="https://hooks.example.com/",
        secret=SigningSecret(b"secret"),
        position=0,
        health=health,
        created_at=NOW,
        changed_at=NOW,
    )
    reader = EventReader(endpoint)
    return Kept(ResultKeeper(endpoint, reader), reader)


def pending(attempts: int = 0, first_at: datetime | None = None, type_: str = "balance.low") -> PendingEvent:
    event = Event(EventId(new_id(0)), AccountId(new_id(0)), 1, type_, None, None, NOW, "{}")
    return PendingEvent(event, b"{}", None, attempts, first_at)


def test_each_failure_waits_longer_and_without_any_delivery_the_last_wait_repeats(kept: Kept) -> None:
    now = NOW
    for attempts, wait in enumerate((*LADDER, DAY, DAY)):
        next_at = kept.add(pending(attempts, NOW), 503, now)
        assert next_at is not None
        assert 0.9 * wait <= next_at - now <= 1.1 * wait
        now = next_at
    assert kept.keeper.health.warnings == 2


def test_an_event_that_the_endpoint_refuses_alone_is_given_up_after_eleven_attempts(kept: Kept) -> None:
    assert kept.add(pending(), 200, NOW + HOUR) is None
    assert kept.add(pending(9, NOW), 422, NOW + DAY) is not None
    assert kept.add(pending(10, NOW), 422, NOW + DAY) is None
    # Nothing was delivered since its first attempt, so the endpoint may be at fault.
    assert kept.add(pending(10, NOW + 2 * HOUR), 422, NOW + DAY) is not None


def test_a_test_event_is_sent_once(kept: Kept) -> None:
    assert kept.add(pending(type_=WEBHOOK_TEST), 503, NOW) is None


@pytest.mark.parametrize(
    ("attempts", "retry_after", "least", "most"),
    [(0, "3600", HOUR, HOUR), (0, "99999999", DAY, DAY), (1, "1", 27 * SECOND, 33 * SECOND)],
)
def test_a_wait_that_the_endpoint_asks_for_is_at_most_a_day_and_never_shortens_the_usual_wait(
    kept: Kept, attempts: int, retry_after: str, least: timedelta, most: timedelta
) -> None:
    next_at = kept.add(pending(attempts), 429, NOW, retry_after=retry_after)
    assert next_at is not None
    assert least <= next_at - NOW <= most
    until = kept.keeper.health.backoff_until
    assert until is not None
    # Another event that was in flight does not shorten it.
    kept.add(pending(), 200, NOW)
    assert kept.keeper.health.backoff_until == until


@pytest.mark.parametrize(
    ("failures", "since", "status", "reason"),
    [
        (0, None, 410, "It answered 410 Gone."),
        (9, 5 * DAY, 503, "Nothing arrived for 5 days; the last try: 503"),
        (9, 5 * DAY, None, "Nothing arrived for 5 days; the last try: Connection refused."),
        (8, 50 * DAY, 503, None),
        (99, 5 * DAY - SECOND, 503, None),
    ],
)
def test_an_endpoint_is_disabled_when_it_is_gone_or_after_five_days_and_ten_failures(
    failures: int, since: timedelta | None, status: int | None, reason: str | None
) -> None:
    kept = keep(Health(failures, None if since is None else NOW - since))
    kept.add(pending(), status, NOW)
    assert kept.keeper.take().progress.disabled_for == reason


def test_an_endpoint_that_works_again_has_recovered_once_and_gets_more_at_once_with_each_delivery() -> None:
    kept = keep(Health(20, NOW - HOUR, NOW))
    assert kept.keeper.concurrency == 1
    keeper = kept.keeper
    for _ in range(2):
        keeper.add(pending(), SendResult(NOW, 5, HttpResponse(204, None, b""), None), NOW)
    assert keeper.concurrency == 3
    results = keeper.take()
    assert (results.has_recovered, keeper.take().has_recovered) == (True, False)
    assert (len(results.made), keeper.unrecorded) == (2, 2)
    keeper.on_recorded(results)
    assert keeper.unrecorded == 0


def test_of_a_response_text_is_kept_that_the_database_can_store(kept: Kept) -> None:
    response = HttpResponse(500, None, b"\x00\xff" + b"x" * 2000)
    kept.keeper.add(pending(), SendResult(NOW, 5, response, None), NOW)
    (made,) = kept.keeper.take().made
    assert made.attempt.answer == "\ufffd\ufffd" + "x" * 1022
