"""Leases and wake-up rows of endpoints, and progress that comes after a change by the owner."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import asyncpg
import pytest_asyncio

from tests.support.webhooks.office import new_attempt
from tests.support.webhooks.world import Added, Hooks, open_hooks
from tumira.core.ids import EndpointId, EventId, new_id
from tumira.webhooks import endpoints, leases, manage, replay, retries
from tumira.webhooks.endpoints import Endpoint
from tumira.webhooks.health import Health
from tumira.webhooks.leases import EndpointProgress
from tumira.webhooks.results import AttemptMade, EndpointResults, record_results
from tumira.webhooks.retries import Backlog, EventRetry

ONE: Final = "worker-1"
TWO: Final = "worker-2"
LEASE_S: Final = 10.0
URL: Final = "http://127.0.0.1:9/hook"
MINUTE: Final = timedelta(minutes=1)


@pytest_asyncio.fixture
async def endpoint(hooks: Hooks) -> Added:
    return await hooks.add(URL)


async def due(hooks: Hooks, now: datetime | None = None) -> set[EndpointId]:
    async with hooks.database.connection() as connection:
        return set(await leases.list_due(connection, now or hooks.clock()))


async def behind(hooks: Hooks, now: datetime | None = None) -> set[EndpointId]:
    async with hooks.database.connection() as connection:
        return set(await leases.list_behind(connection, now or hooks.clock()))


async def take_wake_ups(hooks: Hooks, worker: str = ONE) -> set[EndpointId]:
    async with hooks.database.connection() as connection:
        return set(await leases.take_wake_ups(connection, worker, 100))


async def lease(hooks: Hooks, worker: str, *added: Added, lease_s: float = LEASE_S) -> Sequence[Endpoint]:
    async with hooks.database.connection() as connection:
        return await leases.lease(
            connection, [one.id for one in added], worker, hooks.clock(), count_max=100, lease_s=lease_s
        )


async def renew(
    hooks: Hooks, worker: str, *added: Added, lease_s: float = LEASE_S
) -> dict[EndpointId, datetime]:
    async with hooks.database.connection() as connection:
        return await leases.renew(connection, [one.id for one in added], worker, lease_s)


async def release(hooks: Hooks, worker: str, added: Added) -> None:
    async with hooks.database.connection() as connection:
        await leases.release(connection, added.id, worker)


async def advance(hooks: Hooks, worker: str, *progress: EndpointProgress) -> None:
    async with hooks.database.transaction() as connection:
        await leases.save_progress(connection, worker, progress)


def progress(
    endpoint: Endpoint, position: int, health: Health | None = None, why: str | None = None
) -> EndpointProgress:
    return EndpointProgress(endpoint.id, endpoint.changed_at, position, health or Health(), why)


async def put_retry(hooks: Hooks, added: Added, due_at: datetime, sequence: int = 1) -> None:
    event_id = EventId(new_id(int(due_at.timestamp() * 1000)))
    async with hooks.database.connection() as connection:
        await retries.upsert_retries(
            connection, [EventRetry(added.id, sequence, event_id, 1, due_at, due_at)]
        )


# Leases.


async def test_an_endpoint_is_leased_to_one_worker_until_that_lets_go_or_its_lease_ends(
    hooks: Hooks, endpoint: Added
) -> None:
    async with hooks.database.transaction() as connection:
        # Its owner is changing it.
        await endpoints.lock(connection, None, endpoint.id)
        async with asyncio.timeout(40):
            assert await lease(hooks, ONE, endpoint) == []
    assert [one.id for one in await lease(hooks, ONE, endpoint)] == [endpoint.id]
    assert await lease(hooks, TWO, endpoint) == await lease(hooks, ONE, endpoint) == []
    await release(hooks, TWO, endpoint)
    assert await lease(hooks, TWO, endpoint) == []
    await release(hooks, ONE, endpoint)
    assert [one.id for one in await lease(hooks, TWO, endpoint, lease_s=0)] == [endpoint.id]
    # Its holder alone renews it, as long as nobody else has taken it.
    assert await renew(hooks, ONE, endpoint) == {}
    changed_at = (await hooks.endpoint(endpoint)).changed_at
    assert await renew(hooks, TWO, endpoint, lease_s=0) == {endpoint.id: changed_at}
    assert await due(hooks) == {endpoint.id}
    assert [one.id for one in await lease(hooks, ONE, endpoint)] == [endpoint.id]
    assert await due(hooks) == set()


async def test_what_its_owner_stopped_is_neither_leased_nor_renewed(hooks: Hooks) -> None:
    paused, removed = await hooks.add(URL), await hooks.add(f"{URL}/2")
    await lease(hooks, ONE, paused, removed)
    await manage.pause_endpoint(hooks.database, paused.id)
    await manage.remove_endpoint(hooks.database, removed.id)
    assert await renew(hooks, ONE, paused, removed) == {}
    assert await lease(hooks, TWO, paused, removed) == []
    await hooks.add_events()
    assert await behind(hooks) == set()


async def test_many_workers_that_ask_at_once_share_endpoints_without_overlap(hooks: Hooks) -> None:
    added = [await hooks.add(f"{URL}/{number}") for number in range(5)]
    got = await asyncio.gather(*(lease(hooks, f"worker-{number}", *added) for number in range(8)))
    taken = [one.id for some in got for one in some]
    assert len(taken) == len(set(taken))
    # What one skipped because another was looking at it is had the next time.
    rest = await lease(hooks, "worker-9", *added)
    assert sorted([*taken, *(one.id for one in rest)]) == sorted(one.id for one in added)


async def test_renewing_and_recording_lock_endpoints_in_the_same_order(hooks: Hooks) -> None:
    first, second = sorted(
        [await hooks.add(f"{URL}/{number}") for number in range(2)], key=lambda one: one.id
    )
    # The first stands behind the second in the table now, so whoever takes rows as they stand takes it last.
    await lease(hooks, ONE, second)
    await lease(hooks, ONE, first)
    other = await asyncpg.connect(hooks.database.url)
    try:
        async with hooks.database.transaction() as connection:
            # Recording is half way through its endpoints, by id.
            await leases.lock_endpoints(connection, [first.id])
            await other.execute("SET enable_seqscan = off")
            ids = [first.id, second.id]
            renewing = asyncio.create_task(leases.renew(other, ids, ONE, LEASE_S))
            await hooks.until(lambda: _waits_for_a_lock(hooks), "the renewal does not wait")
            # A renewal that holds the second while it waits for the first would never end.
            assert list(await leases.lock_endpoints(connection, [second.id])) == [second.id]
        assert set(await renewing) == {first.id, second.id}
    finally:
        await other.close()


async def _waits_for_a_lock(hooks: Hooks) -> bool:
    return bool(await hooks.rows("SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))


# What is due.


async def test_news_ring_once_for_the_endpoints_of_their_account_and_for_their_holder(
    hooks: Hooks, endpoint: Added
) -> None:
    async with open_hooks(hooks.database.url) as others:
        await others.add(URL)
        assert await take_wake_ups(hooks) == set()
        await hooks.add_events(2)
        await hooks.add_events()
        assert await take_wake_ups(hooks) == {endpoint.id}
        assert await take_wake_ups(hooks) == set()
        # They are seen without the bell too.
        assert await behind(hooks) == {endpoint.id}
    await lease(hooks, ONE, endpoint)
    await hooks.add_events()
    assert await take_wake_ups(hooks, TWO) == set()
    assert await take_wake_ups(hooks, ONE) == {endpoint.id}
    await hooks.add_events()
    await renew(hooks, ONE, endpoint, lease_s=0)
    assert await take_wake_ups(hooks, TWO) == {endpoint.id}


async def test_a_bell_that_is_heard_by_somebody_who_dies_then_rings_on(hooks: Hooks, endpoint: Added) -> None:
    await hooks.add_events()
    other = await asyncpg.connect(hooks.database.url)
    try:
        await other.execute("BEGIN")
        assert await leases.take_wake_ups(other, ONE, 100) == [endpoint.id]
        assert await take_wake_ups(hooks) == set()
    finally:
        await other.close()
    assert await take_wake_ups(hooks) == {endpoint.id}


async def test_news_that_come_while_the_bell_is_being_heard_ring_again(hooks: Hooks, endpoint: Added) -> None:
    await hooks.add_events()
    async with hooks.database.transaction() as connection:
        assert await leases.take_wake_ups(connection, ONE, 100) == [endpoint.id]
        telling = asyncio.create_task(hooks.add_events())
        await hooks.until(lambda: _waits_for_a_lock(hooks), "the news do not wait")
    await telling
    assert await take_wake_ups(hooks) == {endpoint.id}


async def test_news_that_came_while_an_endpoint_was_let_go_of_ring_for_the_next(
    hooks: Hooks, endpoint: Added
) -> None:
    (mine,) = await lease(hooks, ONE, endpoint)
    await hooks.add_events(2)
    assert await take_wake_ups(hooks) == {endpoint.id}
    await advance(hooks, ONE, progress(mine, 1))
    await release(hooks, ONE, endpoint)
    assert await take_wake_ups(hooks) == {endpoint.id}


async def test_retries_replays_and_the_end_of_a_backoff_are_due_in_their_time(
    hooks: Hooks, endpoint: Added
) -> None:
    now = hooks.clock()
    await hooks.add_events()
    (mine,) = await lease(hooks, ONE, endpoint)
    await advance(hooks, ONE, progress(mine, 0, Health(20, now, now + MINUTE)))
    await release(hooks, ONE, endpoint)
    assert await due(hooks, now + MINUTE / 2) == await behind(hooks, now + MINUTE / 2) == set()
    assert await lease(hooks, TWO, endpoint) == []
    assert await due(hooks, now + MINUTE) == await behind(hooks, now + MINUTE) == {endpoint.id}
    hooks.clock.move(MINUTE)
    (mine,) = await lease(hooks, TWO, endpoint)
    await advance(hooks, TWO, progress(mine, 1))
    assert await due(hooks) == await behind(hooks) == set()
    now = hooks.clock()
    await put_retry(hooks, endpoint, now + MINUTE)
    assert await due(hooks, now + MINUTE / 2) == set()
    assert await due(hooks, now + MINUTE) == {endpoint.id}
    assert await replay.replay_after(hooks.database, endpoint.id, 0) == 1
    assert await due(hooks, now) == {endpoint.id}


# What a worker learnt, against what its owner said meanwhile.


async def test_only_the_holder_writes_how_far_an_endpoint_is(hooks: Hooks, endpoint: Added) -> None:
    await hooks.add_events(5)
    (mine,) = await lease(hooks, ONE, endpoint, lease_s=0)
    await lease(hooks, TWO, endpoint)
    await advance(hooks, ONE, progress(mine, 3, Health(7), "it is gone"))
    after = await hooks.endpoint(endpoint)
    assert (after.position, after.health.failures, after.state) == (0, 0, "active")
    # A position never goes back, and health is written as it was learnt.
    now = hooks.clock()
    health = Health(21, now - MINUTE, now + MINUTE, 1, now - 2 * MINUTE)
    await advance(hooks, TWO, progress(mine, 3))
    await advance(hooks, TWO, progress(mine, 2, health, "It answered 410 Gone."))
    after = await hooks.endpoint(endpoint)
    assert (after.position, after.health) == (3, health)
    assert (after.state, after.reason) == ("disabled", "It answered 410 Gone.")


async def test_a_pause_and_a_new_start_outlive_what_a_worker_learnt_before(
    hooks: Hooks, endpoint: Added
) -> None:
    now = hooks.clock()
    await hooks.add_events(5)
    (mine,) = await lease(hooks, ONE, endpoint)
    late = progress(mine, 2, Health(25, now, now + MINUTE), "nothing arrived")
    await manage.pause_endpoint(hooks.database, endpoint.id)
    await advance(hooks, ONE, late)
    paused = await hooks.endpoint(endpoint)
    assert (paused.state, paused.reason, paused.health.failures) == ("paused", None, 0)
    # What was delivered is not sent again.
    assert paused.position == 2
    await manage.resume_endpoint(hooks.database, endpoint.id, from_now=True)
    await advance(hooks, ONE, late)
    resumed = await hooks.endpoint(endpoint)
    assert (resumed.state, resumed.health.failures, resumed.position) == ("active", 0, 5)


async def test_what_a_wider_choice_of_events_would_take_is_not_passed_over_by_who_knew_the_narrow_one(
    hooks: Hooks,
) -> None:
    narrow = await hooks.add(URL, "message.failed")
    (mine,) = await lease(hooks, ONE, narrow)
    await manage.change_endpoint(
        hooks.database,
        narrow.id,
        url=None,
        types=None,
        change_types=True,
        description=None,
        allow_private=True,
    )
    await hooks.add_events(3)
    # The worker has not heard of the change yet, and has passed over what the endpoint did not take.
    await advance(hooks, ONE, progress(mine, 3))
    assert (await hooks.waiting(narrow)).behind == 3


# What is recorded.


async def record(hooks: Hooks, worker: str, *advances: EndpointResults, is_repeated: bool = False) -> None:
    async with hooks.database.transaction() as connection:
        await record_results(connection, worker, advances, hooks.clock(), is_repeated=is_repeated)


async def one_failed(hooks: Hooks, added: Added) -> EndpointResults:
    await hooks.add_events()
    (event_id,) = await hooks.event_ids()
    (mine,) = await lease(hooks, ONE, added)
    now = hooks.clock()
    attempt = new_attempt(added.id, event_id, at=now, status=503, next_at=now + MINUTE)
    return EndpointResults(
        progress(mine, 1), [AttemptMade(attempt, attempt.at, sent_before=False)], {}, has_recovered=False
    )


async def test_what_was_recorded_without_our_hearing_of_it_can_be_recorded_again(
    hooks: Hooks, endpoint: Added
) -> None:
    # The line broke at the commit: a worker cannot know, and writes the same once more until it hears.
    advance = await one_failed(hooks, endpoint)
    await record(hooks, ONE, advance)
    await record(hooks, ONE, advance, is_repeated=True)
    assert len(await hooks.attempts(endpoint)) == 1
    assert await hooks.waiting(endpoint) == Backlog(1, 0, 0)


async def test_what_happened_at_an_endpoint_that_was_removed_is_forgotten(
    hooks: Hooks, endpoint: Added
) -> None:
    advance = await one_failed(hooks, endpoint)
    other = await hooks.add(URL + "/other")
    await hooks.add_events()
    (mine,) = await lease(hooks, ONE, other)
    await manage.remove_endpoint(hooks.database, endpoint.id)
    await record(hooks, ONE, advance, EndpointResults(progress(mine, 2), [], {}, has_recovered=False))
    assert await hooks.rows("SELECT FROM webhook_attempts") == []
    assert await hooks.rows("SELECT FROM webhook_retries") == []
    assert (await hooks.endpoint(other)).position == 2


async def test_a_recovery_hurries_the_retries_of_its_endpoint_alone(hooks: Hooks, endpoint: Added) -> None:
    other = await hooks.add(URL + "/other")
    later = hooks.clock() + MINUTE
    for added in (endpoint, other):
        await put_retry(hooks, added, later)
    (mine,) = await lease(hooks, ONE, endpoint)
    await record(hooks, ONE, EndpointResults(progress(mine, 0), [], {}, has_recovered=True))
    assert await due(hooks) == {endpoint.id}
