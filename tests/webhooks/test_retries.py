"""Retries, backoff and recovery as a receiver sees them."""

from datetime import datetime, timedelta
from typing import Final

import pytest

from tests.support.webhooks.receivers import (
    Receiver,
    answer,
    first,
    ok,
    run_receiver,
)
from tests.support.webhooks.world import Added, Hooks, ids_of, still
from tumira.webhooks import manage
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.retries import Backlog

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
away: Final = answer(503)


def due(attempt: Attempt) -> datetime:
    assert attempt.next_at is not None
    return attempt.next_at


async def rest(hooks: Hooks, endpoint: Added) -> None:
    until = (await hooks.endpoint(endpoint)).health.backoff_until
    assert until is not None
    hooks.clock.move_to(until + SECOND)


async def fail_until_on_trial(hooks: Hooks, endpoint: Added, receiver: Receiver) -> None:
    await receiver.wait(requests=20)

    async def rests() -> bool:
        return (await hooks.endpoint(endpoint)).health.failures >= 20

    await hooks.until(rests, "the endpoint is not left in peace")
    await hooks.until_free(endpoint)


async def test_after_twenty_failures_one_event_is_tried_every_five_minutes_until_one_arrives(
    hooks: Hooks,
) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.add_events(60)
        hooks.start_worker()
        await fail_until_on_trial(hooks, endpoint, receiver)
        # Those that were under way together may make it a few more.
        count = len(receiver.requests)
        assert 20 <= count < 24
        health = (await hooks.endpoint(endpoint)).health
        assert health.backoff_until is not None
        last = max(attempt.at for attempt in await hooks.attempts(endpoint))
        assert 4.5 * MINUTE <= health.backoff_until - last <= 5.5 * MINUTE + SECOND
        hooks.clock.move_to(health.backoff_until - 2 * SECOND)
        await still()
        assert len(receiver.requests) == count
        hooks.clock.move(3 * SECOND)
        await hooks.until_attempts(endpoint, count + 1)
        await hooks.until_free(endpoint)
        # Also when none is due for hours.
        await hooks.rows("UPDATE webhook_retries SET due_at = due_at + interval '10 hours'")
        await rest(hooks, endpoint)
        await hooks.until_attempts(endpoint, count + 2)
        await hooks.until_free(endpoint)
        # A test does not wait, and when it arrives, all that waited follows although it was not due.
        receiver.respond = ok
        await manage.send_test(hooks.database, endpoint.id)
        await hooks.until_idle(endpoint)
        assert len(ids_of(receiver.requests)) == 61


async def test_a_retry_whose_event_is_gone_is_forgotten(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.add_events(2)
        hooks.start_worker()
        await hooks.until_attempts(endpoint, 2)
        await hooks.rows("DELETE FROM events WHERE sequence = 1")
        receiver.respond = ok
        hooks.clock.move(10 * SECOND)
        await hooks.until_idle(endpoint)
        assert len(receiver.requests) == 3


async def test_an_endpoint_that_is_gone_is_disabled_at_once_and_gets_all_when_it_is_resumed(
    hooks: Hooks,
) -> None:
    async with run_receiver(answer(410)) as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.add_events(50)
        disabled = await hooks.until_state(endpoint, "disabled")
        assert disabled.reason is not None
        assert "410" in disabled.reason
        await hooks.until_free(endpoint)
        assert len(receiver.requests) <= 4
        receiver.respond = ok
        await manage.resume_endpoint(hooks.database, endpoint.id, from_now=False)
        await hooks.until_idle(endpoint)
        arrived = {attempt.event_id for attempt in await hooks.attempts(endpoint) if attempt.status == 200}
        assert arrived == set(await hooks.event_ids())


async def test_an_endpoint_that_says_how_long_to_wait_is_left_alone_so_long(hooks: Hooks) -> None:
    async with run_receiver(first(1, answer(429, {"retry-after": "3600"}), ok)) as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.add_events()
        attempt = (await hooks.until_attempts(endpoint, 1))[0]
        assert HOUR <= due(attempt) - attempt.at <= HOUR + 5 * SECOND
        await hooks.until_free(endpoint)
        # What is new waits too: it is the endpoint that asked.
        await hooks.add_events(3)
        hooks.clock.move_to(due(attempt) - 10 * SECOND)
        await still()
        assert len(receiver.requests) == 1
        hooks.clock.move(11 * SECOND)
        await hooks.until_idle(endpoint)
        assert len(receiver.requests) == 5


async def test_a_test_is_tried_once(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url, "message.delivered")
        hooks.start_worker()
        event_id = await manage.send_test(hooks.database, endpoint.id)
        (attempt,) = await hooks.until_attempts(endpoint, 1)
        assert (attempt.event_id, attempt.sequence, attempt.next_at) == (event_id, 0, None)
        await hooks.until_idle(endpoint)
        hooks.clock.move(DAY)
        await still()
        assert len(receiver.requests) == 1


@pytest.mark.long
async def test_what_fails_is_still_tried_by_a_worker_that_comes_later(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        worker = hooks.start_worker("worker-1")
        await hooks.add_events(3)
        attempts = await hooks.until_attempts(endpoint, 3)
        await hooks.stop_worker(worker)
        assert await hooks.waiting(endpoint) == Backlog(3, 0, 0)
        receiver.respond = ok
        hooks.clock.move_to(max(due(attempt) for attempt in attempts))
        hooks.start_worker("worker-2")
        await hooks.until_idle(endpoint)
        assert sorted(ids_of(receiver.requests).values()) == [2, 2, 2]
