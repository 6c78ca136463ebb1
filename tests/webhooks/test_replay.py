"""Replays, pauses, rotation and removal as a receiver sees them."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import pytest

from tests.support.webhooks.receivers import Line, Receiver, Request, answer, ok, run_receiver
from tests.support.webhooks.world import Added, Hooks, ids_of, signatures_of, still
from tumira.webhooks import manage, reader, replay
from tumira.webhooks import worker as webhook_worker
from tumira.webhooks.retries import Backlog

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)


async def deliver(hooks: Hooks, endpoint: Added, receiver: Receiver, count: int) -> Sequence[str]:
    await hooks.add_events(count)
    await receiver.wait(requests=len(receiver.requests) + count)
    await hooks.until_idle(endpoint)
    return await hooks.webhook_ids()


async def test_one_event_all_after_a_number_and_those_of_some_time_are_replayed(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    # More events than are read at once.
    monkeypatch.setattr(reader, "PAGE", 5)
    async with run_receiver() as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        times = []
        for _ in range(4):
            times.append(hooks.clock())
            told = await deliver(hooks, endpoint, receiver, 3)
            hooks.clock.move(HOUR)

        async def counts(replayed: int) -> Sequence[int]:
            """Return how often each event came once this many have come again."""
            await receiver.wait(requests=12 + replayed)
            await hooks.until_idle(endpoint)
            found = ids_of(receiver.requests)
            return [found[event_id] - 1 for event_id in told]

        assert await replay.replay_event(hooks.database, endpoint.id, (await hooks.event_ids())[2]) == 1
        assert await counts(1) == [0, 0, 1] + [0] * 9
        first, again = (one for one in receiver.requests if one.headers["webhook-id"] == told[2])
        assert again.body == first.body
        moved_s = int(again.headers["webhook-timestamp"]) - int(first.headers["webhook-timestamp"])
        assert moved_s >= 4 * 3600
        assert await replay.replay_after(hooks.database, endpoint.id, 4) == 8
        assert await counts(9) == [0, 0, 1, 0] + [1] * 8
        assert await replay.replay_after(hooks.database, endpoint.id, 12) == 0
        until = times[3] - timedelta(minutes=1)
        assert await replay.replay_between(hooks.database, endpoint.id, times[1], until) == 6
        assert await counts(15) == [0, 0, 1, 1] + [2] * 5 + [1] * 3
        assert await replay.replay_between(hooks.database, endpoint.id, times[0] - DAY, times[0] - HOUR) == 0


async def test_a_replay_passes_over_what_the_endpoint_does_not_take(hooks: Hooks) -> None:
    async with run_receiver() as receiver:
        endpoint = await hooks.add(receiver.url, "balance.low")
        hooks.start_worker()
        await hooks.add_events(2)
        await hooks.add_events(250, "topup.credited")
        await hooks.add_events(2)
        await receiver.wait(requests=4)
        await hooks.until_idle(endpoint)
        assert await replay.replay_after(hooks.database, endpoint.id, 0) == 254
        await receiver.wait(requests=8)
        await hooks.until_idle(endpoint)
        await still()
        assert sorted(ids_of(receiver.requests).values()) == [2, 2, 2, 2]


async def test_a_replayed_event_that_fails_is_tried_again(hooks: Hooks) -> None:
    async with run_receiver() as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await deliver(hooks, endpoint, receiver, 3)
        receiver.respond = answer(500)
        await replay.replay_after(hooks.database, endpoint.id, 0)
        attempts = await hooks.until_attempts(endpoint, 6)
        assert await hooks.waiting(endpoint) == Backlog(3, 0, 0)
        receiver.respond = ok
        hooks.clock.move_to(max(attempt.next_at or attempt.at for attempt in attempts))
        await hooks.until_idle(endpoint)
        assert sorted(ids_of(receiver.requests).values()) == [3, 3, 3]


async def test_a_replay_is_sent_once_even_if_news_come_while_that_is_written_down(hooks: Hooks) -> None:
    written_down_slowly = asyncio.Event()

    async def respond(request: Request, line: Line) -> None:
        await written_down_slowly.wait()
        await ok(request, line)

    async with run_receiver() as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        told = await deliver(hooks, endpoint, receiver, 3)
        receiver.respond = respond
        await replay.replay_after(hooks.database, endpoint.id, 0)
        async with hooks.database.transaction() as connection:
            # That the replay is done cannot be written as long as this is held.
            await connection.fetch("SELECT FROM webhook_replays FOR UPDATE")
            await receiver.wait(requests=6)
            written_down_slowly.set()
            for _ in range(3):
                await asyncio.sleep(0.15)
                await hooks.add_events()
        await hooks.until_idle(endpoint)
        counts = ids_of(receiver.requests)
        assert [counts[event_id] for event_id in told] == [2, 2, 2]


async def test_after_a_rotation_both_secrets_sign_for_a_day(hooks: Hooks) -> None:
    async with run_receiver() as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await deliver(hooks, endpoint, receiver, 1)
        assert receiver.requests[0].headers["webhook-signature"] == signatures_of(
            receiver.requests[0], endpoint.secret
        )
        _, secret = await manage.rotate_secret(hooks.database, endpoint.id)
        # Its worker hears of it within a second or so.
        await hooks.until_free(endpoint)
        await deliver(hooks, endpoint, receiver, 1)
        both = receiver.requests[-1]
        assert both.headers["webhook-signature"] == signatures_of(both, secret, endpoint.secret)
        hooks.clock.move(DAY + timedelta(seconds=5))
        await deliver(hooks, endpoint, receiver, 1)
        last = receiver.requests[-1]
        assert last.headers["webhook-signature"] == signatures_of(last, secret)


async def test_an_endpoint_that_is_removed_gets_no_more_and_leaves_nothing_behind(hooks: Hooks) -> None:
    released = asyncio.Event()

    async def respond(request: Request, line: Line) -> None:
        await released.wait()
        await ok(request, line)

    async with run_receiver(respond) as receiver, run_receiver() as other:
        endpoint = await hooks.add(receiver.url)
        kept = await hooks.add(other.url)
        hooks.start_worker()
        await hooks.add_events(100)
        await receiver.wait(requests=4)
        await manage.remove_endpoint(hooks.database, endpoint.id)
        # Its worker hears of it within a second or so; the calls that are under way end in their own time.
        await asyncio.sleep(webhook_worker.RENEW_S + 0.2)
        released.set()
        await hooks.until_idle(kept)
        await hooks.add_events(5)
        await hooks.until_idle(kept)
        await still()
        assert len(receiver.requests) == 4
        assert len(other.requests) == 105
        for table in ("webhook_attempts", "webhook_retries", "webhook_replays"):
            assert await hooks.rows(f"SELECT FROM {table} WHERE endpoint_id = $1", endpoint.id) == []
