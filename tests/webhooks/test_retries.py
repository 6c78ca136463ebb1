"""Does every event arrive in the end, however long its endpoint is away, and is that left in peace?"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import pytest
import pytest_asyncio

from tests.support.webhooks.receivers import (
    Line,
    Receiver,
    Request,
    Responder,
    answer,
    first,
    ok,
    run_receiver,
)
from tests.support.webhooks.world import Added, Hooks, ids_of, open_hooks, still
from tumira.webhooks import manage
from tumira.webhooks.attempts import Attempt
from tumira.webhooks.retries import Backlog

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
LADDER: Final = (
    *(5 * SECOND, 30 * SECOND, 5 * MINUTE, 30 * MINUTE),
    *(2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR),
)
away: Final = answer(503)


@pytest_asyncio.fixture
async def hooks(database_url: str) -> AsyncIterator[Hooks]:
    """Give an account on a database of its own."""
    async with open_hooks(database_url) as hooks:
        yield hooks


def due(attempt: Attempt) -> datetime:
    """Return when an event is tried again."""
    assert attempt.next_at is not None
    return attempt.next_at


async def rest(hooks: Hooks, endpoint: Added) -> None:
    """Let time pass until an endpoint may be tried again, and a second more."""
    until = (await hooks.endpoint(endpoint)).health.backoff_until
    assert until is not None
    hooks.clock.move_to(until + SECOND)


def only(refused: Sequence[str], failing: Responder) -> Responder:
    """Fail with some events, and take the others."""

    async def respond(request: Request, line: Line) -> None:
        await (failing if request.headers["webhook-id"] in refused else ok)(request, line)

    return respond


async def fail_until_on_trial(hooks: Hooks, endpoint: Added, receiver: Receiver) -> None:
    """Let twenty tries fail."""
    await receiver.wait(requests=20)

    async def rests() -> bool:
        return (await hooks.endpoint(endpoint)).health.failures >= 20

    await hooks.until(rests, "the endpoint is not left in peace")
    await hooks.until_free(endpoint)


async def test_a_failing_event_is_tried_ever_more_seldom_until_it_arrives_with_warnings_on_the_way(
    hooks: Hooks,
) -> None:
    # While nothing else arrives the eleventh failure is not the last.
    waits = (*LADDER, DAY, DAY)
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.tell()
        for number, wait in enumerate(waits, 1):
            attempt = (await hooks.until_attempts(endpoint, number))[-1]
            assert (attempt.number, attempt.status) == (number, 503)
            assert 0.9 * wait <= due(attempt) - attempt.at <= 1.1 * wait + 5 * SECOND
            await check_warnings(hooks, endpoint, attempt)
            # A moment before it is due nothing happens.
            hooks.clock.move_to(due(attempt) - 2 * SECOND)
            if number in {1, 5}:
                await still()
                assert len(receiver.requests) == number
            if number == len(waits):
                receiver.respond = ok
            hooks.clock.move(2 * SECOND)
        last = (await hooks.until_attempts(endpoint, 13))[-1]
        assert (last.number, last.status, last.next_at) == (13, 200, None)
        await hooks.until_idle(endpoint)
        assert (await hooks.endpoint(endpoint)).health.failures == 0
    (event_id,) = await hooks.webhook_ids()
    assert ids_of(receiver.requests) == {event_id: 13}
    assert len({request.body for request in receiver.requests}) == 1
    assert len({request.headers["webhook-timestamp"] for request in receiver.requests}) == 13
    assert len({request.headers["webhook-signature"] for request in receiver.requests}) == 13


async def check_warnings(hooks: Hooks, endpoint: Added, attempt: Attempt) -> None:
    """See that its owner is warned after an hour and after a day of failures."""
    found = await hooks.endpoint(endpoint)
    assert found.health.failing_since is not None
    lasted = attempt.at - found.health.failing_since
    assert found.health.warnings == (lasted >= HOUR) + (lasted >= DAY)
    assert (manage.warning(found) is None) == (found.health.warnings == 0)


@pytest.mark.long
async def test_an_event_that_alone_is_refused_is_given_up_after_eleven_tries(hooks: Hooks) -> None:
    async with run_receiver() as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.tell(2)
        refused, taken = await hooks.webhook_ids()
        receiver.respond = only([refused], answer(422))
        hooks.start_worker()
        refused_id, _ = await hooks.event_ids()

        async def tried(count: int) -> Attempt:
            async def there() -> bool:
                return len(await hooks.attempts(endpoint, refused_id)) >= count

            await hooks.until(there, f"not tried {count} times")
            return (await hooks.attempts(endpoint, refused_id))[-1]

        for number in range(1, 11):
            hooks.clock.move_to(due(await tried(number)))
        # Something arrives between its first and its last try; the second event may have been before.
        await hooks.tell()
        assert (await tried(11)).number == 11
        await hooks.until_idle(endpoint)
        assert (await hooks.endpoint(endpoint)).state == "active"
        assert ids_of(receiver.requests)[refused] == 11
        assert ids_of(receiver.requests)[taken] == 1


async def test_after_twenty_failures_one_event_is_tried_every_five_minutes(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.tell(100)
        hooks.start_worker()
        await fail_until_on_trial(hooks, endpoint, receiver)
        # Those that were under way together may make it a few more.
        count = len(receiver.requests)
        assert 20 <= count < 24
        for _ in range(3):
            health = (await hooks.endpoint(endpoint)).health
            assert health.backoff_until is not None
            last = max(attempt.at for attempt in await hooks.attempts(endpoint))
            assert 4.5 * MINUTE <= health.backoff_until - last <= 5.5 * MINUTE + SECOND
            hooks.clock.move_to(health.backoff_until - 2 * SECOND)
            await still()
            assert len(receiver.requests) == count
            hooks.clock.move(3 * SECOND)
            count += 1
            await hooks.until_attempts(endpoint, count)
            await hooks.until_free(endpoint)
            assert len(receiver.requests) == count


async def test_on_trial_one_is_tried_every_five_minutes_also_when_none_is_due_for_hours(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.tell(20)
        hooks.start_worker()
        await fail_until_on_trial(hooks, endpoint, receiver)
        await hooks.rows("UPDATE webhook_retries SET due_at = due_at + interval '10 hours'")
        await rest(hooks, endpoint)
        await hooks.until_attempts(endpoint, 21)
        await hooks.until_free(endpoint)
        receiver.respond = ok
        await rest(hooks, endpoint)
        # It works again, and all that waited follows although it was not due.
        await hooks.until_idle(endpoint)
        assert len(ids_of(receiver.requests)) == 20


async def test_a_retry_whose_event_is_gone_is_forgotten(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.tell(2)
        hooks.start_worker()
        await hooks.until_attempts(endpoint, 2)
        await hooks.rows("DELETE FROM events WHERE sequence = 1")
        receiver.respond = ok
        hooks.clock.move(10 * SECOND)
        await hooks.until_idle(endpoint)
        assert len(receiver.requests) == 3


async def test_after_the_first_success_all_that_waits_is_sent_at_once(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.tell(300)
        hooks.start_worker()
        await fail_until_on_trial(hooks, endpoint, receiver)
        assert (await hooks.waiting(endpoint)).retries >= 20
        receiver.respond = ok
        await rest(hooks, endpoint)
        # The clock stands still but for the seconds that pass: nothing of this had become due by itself.
        await hooks.until_idle(endpoint)
        assert set(ids_of(receiver.requests)) == set(await hooks.webhook_ids())
        well = (await hooks.endpoint(endpoint)).health
        assert (well.failures, well.backoff_until, well.failing_since) == (0, None, None)
    arrived = [attempt for attempt in await hooks.attempts(endpoint) if attempt.status == 200]
    assert len({attempt.event_id for attempt in arrived}) == len(arrived) == 300


async def test_a_weekend_away_loses_nothing_and_disables_nothing(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        notifier = hooks.start_worker()
        await hooks.tell(150)
        await fail_until_on_trial(hooks, endpoint, receiver)
        for hours in (1, 5, 18, 24, 12):
            hooks.clock.move(hours * HOUR)
            await hooks.tell(150)
            tries = len(receiver.requests)
            await receiver.wait(requests=tries + 1)
            await hooks.until_free(endpoint)
            # Whoever delivers may be another by now.
            await hooks.stop_worker(notifier)
            notifier = hooks.start_worker(f"worker-{hours}")
        health = (await hooks.endpoint(endpoint)).health
        assert health.warnings == 2
        receiver.respond = ok
        await rest(hooks, endpoint)
        await hooks.until_idle(endpoint)
    assert (await hooks.endpoint(endpoint)).state == "active"
    arrived = [attempt.event_id for attempt in await hooks.attempts(endpoint) if attempt.status == 200]
    assert sorted(arrived) == sorted(await hooks.event_ids())


async def test_five_days_of_nothing_but_failures_disable_an_endpoint(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.tell(9)
        await hooks.until_attempts(endpoint, 9)
        hooks.clock.move(5 * DAY - MINUTE)
        await receiver.wait(requests=10)
        await still()
        assert (await hooks.endpoint(endpoint)).state == "active"
        hooks.clock.move(DAY)
        disabled = await hooks.until_state(endpoint, "disabled")
        assert disabled.reason is not None
        assert "5 days" in disabled.reason
        assert (manage.warning(disabled) or "").startswith("Disabled: ")
        await hooks.until_free(endpoint)
        tries = len(receiver.requests)
        # Nothing more is sent, and what happens waits.
        await hooks.tell(5)
        hooks.clock.move(3 * DAY)
        await still()
        assert len(receiver.requests) == tries
        receiver.respond = ok
        await manage.resume_endpoint(hooks.database, endpoint.id, from_now=False)
        await hooks.until_idle(endpoint)
    arrived = {attempt.event_id for attempt in await hooks.attempts(endpoint) if attempt.status == 200}
    assert arrived == set(await hooks.event_ids())


@pytest.mark.long
async def test_few_failures_disable_nothing_however_long_ago_the_first_was(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.tell()
        for number in range(1, 9):
            await hooks.until_attempts(endpoint, number)
            hooks.clock.move(2 * DAY)
        ninth = (await hooks.until_attempts(endpoint, 9))[-1]
        assert (ninth.status, (await hooks.endpoint(endpoint)).state) == (503, "active")
        hooks.clock.move(2 * DAY)
        await hooks.until_state(endpoint, "disabled")


async def test_an_endpoint_that_is_gone_is_disabled_at_once_and_gets_all_when_it_is_resumed(
    hooks: Hooks,
) -> None:
    async with run_receiver(answer(410)) as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.tell(50)
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
        await hooks.tell()
        attempt = (await hooks.until_attempts(endpoint, 1))[0]
        assert HOUR <= due(attempt) - attempt.at <= HOUR + 5 * SECOND
        await hooks.until_free(endpoint)
        # What is new waits too: it is the endpoint that asked.
        await hooks.tell(3)
        hooks.clock.move_to(due(attempt) - 10 * SECOND)
        await still()
        assert len(receiver.requests) == 1
        hooks.clock.move(11 * SECOND)
        await hooks.until_idle(endpoint)
        assert len(receiver.requests) == 5


async def test_nobody_waits_longer_than_a_day_and_never_shorter_than_usual(hooks: Hooks) -> None:
    replies = iter((answer(503, {"retry-after": "99999999"}), answer(429, {"retry-after": "1"})))

    async def respond(request: Request, line: Line) -> None:
        await next(replies, ok)(request, line)

    async with run_receiver(respond) as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.tell()
        attempt = (await hooks.until_attempts(endpoint, 1))[0]
        assert DAY <= due(attempt) - attempt.at <= DAY + 5 * SECOND
        hooks.clock.move_to(due(attempt))
        attempt = (await hooks.until_attempts(endpoint, 2))[1]
        assert 27 * SECOND <= due(attempt) - attempt.at <= 38 * SECOND
        hooks.clock.move_to(due(attempt))
        await hooks.until_idle(endpoint)


async def test_a_success_under_way_does_not_shorten_the_wait_that_another_answer_asked_for(
    hooks: Hooks,
) -> None:
    released = asyncio.Event()
    came = 0

    async def respond(request: Request, line: Line) -> None:
        nonlocal came
        came += 1
        if came == 2:
            await answer(429, {"retry-after": "600"})(request, line)
            return
        if came == 1:
            await released.wait()
        await ok(request, line)

    async with run_receiver(respond) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.tell(2)
        hooks.start_worker()
        await hooks.until_attempts(endpoint, 1)
        released.set()
        await hooks.until_attempts(endpoint, 2)
        await hooks.tell(3)
        await still()
        assert len(receiver.requests) == 2


async def test_a_test_is_tried_once_and_without_waiting_for_the_end_of_a_rest(hooks: Hooks) -> None:
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
        await hooks.tell(40, "message.delivered.none")
        await hooks.until_idle(endpoint)
        assert len(receiver.requests) == 1


async def test_a_test_that_arrives_brings_everything_that_waits_with_it(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.tell(60)
        hooks.start_worker()
        await fail_until_on_trial(hooks, endpoint, receiver)
        receiver.respond = ok
        await manage.send_test(hooks.database, endpoint.id)
        await hooks.until_idle(endpoint)
        assert len(set(ids_of(receiver.requests))) == 61


async def test_what_fails_is_still_tried_by_a_worker_that_comes_later(hooks: Hooks) -> None:
    async with run_receiver(away) as receiver:
        endpoint = await hooks.add(receiver.url)
        notifier = hooks.start_worker("worker-1")
        await hooks.tell(3)
        attempts = await hooks.until_attempts(endpoint, 3)
        await hooks.stop_worker(notifier)
        assert await hooks.waiting(endpoint) == Backlog(3, 0, 0)
        receiver.respond = ok
        hooks.clock.move_to(max(due(attempt) for attempt in attempts))
        hooks.start_worker("worker-2")
        await hooks.until_idle(endpoint)
        assert sorted(ids_of(receiver.requests).values()) == [2, 2, 2]
