"""Killed workers and cut database connections lose no event."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.chaos.node import PATIENCE_S, WorkerProcess, ended_at_last
from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.postgres.databases import open_directory
from tests.support.webhooks.receivers import Line, Receiver, Request, answer, ok, run_receiver
from tests.support.webhooks.world import Added, Hooks, RecordLine, comes_soon, ids_of, open_hooks, still
from tumira.simulator.smsc import run_smsc
from tumira.webhooks import endpoints, manage

# What a courier may have under way, and what it may have done without writing that down.
UNDER_WAY_MAX: Final = 16
UNRECORDED_MAX: Final = 500
# How the workers of a node share the work: as `serve` starts them, and as two that do everything.
APART: Final = ("off", "only")
TOGETHER: Final = ("on", "on")
# Less than the lease after which another worker would look.
SOON_S: Final = 9.0


@pytest_asyncio.fixture
async def hooks(database_url: str) -> AsyncIterator[Hooks]:
    async with open_hooks(database_url) as hooks:
        yield hooks


async def slowly(request: Request, line: Line) -> None:
    await asyncio.sleep(0.1)
    await ok(request, line)


@dataclass(frozen=True, slots=True)
class Scene:
    """Real workers, a carrier, and an account with endpoints."""

    engine: Engine
    hooks: Hooks
    receiver: Receiver
    added: list[Added]
    workers: list[WorkerProcess]

    async def kill_worker(self, chance: random.Random) -> None:
        worker = chance.choice(self.workers)
        await asyncio.to_thread(worker.kill)
        worker.start()

    async def cut_database(self, chance: random.Random) -> None:
        await self.hooks.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < $1",
            chance.uniform(0.5, 1),
        )


@asynccontextmanager
async def open_scene(url: str, workers: Sequence[str]) -> AsyncIterator[Scene]:
    with open_directory("tumira-kills-") as directory, ExitStack() as stack:
        async with run_smsc() as smsc, open_engine(url) as engine, open_hooks(url) as hooks:
            await engine.add_carrier("main", smsc.port)
            async with run_receiver(slowly) as receiver:
                added = [await hooks.add(receiver.url_as("127.0.0.1", f"/{number}")) for number in range(3)]
                running = [
                    stack.enter_context(
                        ended_at_last(_start(directory / f"worker-{number}.log", url, webhooks))
                    )
                    for number, webhooks in enumerate(workers)
                ]
                yield Scene(engine, hooks, receiver, added, running)


def _start(log: Path, url: str, webhooks: str) -> WorkerProcess:
    settings: dict[str, Any] = {"database_url": url, "webhooks_allow_private": 1}
    return WorkerProcess(log, webhooks=webhooks, **settings)


async def patiently(what: Callable[[], Awaitable[object]]) -> None:
    for _ in range(20):
        try:
            await what()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            await asyncio.sleep(0.05)
        else:
            return
    raise AssertionError("the database does not come back")


async def run_kills(url: str, seed: int, steps: list[str], events: int, workers: Sequence[str]) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with open_scene(url, workers) as scene:
        hooks, receiver = scene.hooks, scene.receiver
        await scene.engine.send(hooks.caller, numbers(40))
        await hooks.add_events(events)
        kills = 0
        for step in steps:
            wanted = len(receiver.requests) + chance.randint(20, 100)
            if not await comes_within(receiver, wanted):
                pytest.fail(f"nothing comes before {step}: {await describe(scene)}")
            await patiently(partial(getattr(scene, step), chance))
            kills += step == "kill_worker"
            await patiently(lambda: hooks.add_events(events // 10))
        await patiently(lambda: scene.engine.until_all("delivered", wait_s=60))
        began = time.monotonic()
        for added in scene.added:
            await hooks.until(partial(is_idle, hooks, added), "events still wait", PATIENCE_S)
        counts = Counter((one.path, one.headers["webhook-id"]) for one in receiver.requests)
        told = await hooks.webhook_ids()
        missing = {(f"/{number}", one) for number in range(3) for one in told} - counts.keys()
        copies = sum(count - 1 for count in counts.values())
        print(f"{len(told)} events, {copies} copies, all there after {time.monotonic() - began:.1f} s")
        assert missing == set()
        # Only a kill leaves something that was done and not written down.
        assert copies <= kills * len(scene.added) * (UNDER_WAY_MAX + UNRECORDED_MAX)
        bodies = {(one.headers["webhook-id"], one.body) for one in receiver.requests}
        assert len(bodies) == len(told)
        assert await scene.engine.audit() == []
        said = [line for worker in scene.workers for line in worker.said().splitlines()]
        assert [line for line in said if '"level": "error"' in line] == []


async def comes_within(receiver: Receiver, count: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while len(receiver.requests) < count and time.monotonic() < deadline:  # noqa: ASYNC110 - with an end
        await asyncio.sleep(0.02)
    return len(receiver.requests) >= count


async def describe(scene: Scene) -> str:
    rows = await scene.hooks.rows(
        "SELECT position, worker, leased_until - clock_timestamp() AS lease, failures, rest_until,"
        " (SELECT max(last) FROM event_counters) AS last FROM webhook_endpoints"
    )
    said = [worker.said()[-1500:] for worker in scene.workers]
    return f"{[dict(row) for row in rows]}; {said}"


async def is_idle(hooks: Hooks, added: Added) -> bool:
    waiting = await hooks.waiting(added)
    return waiting.behind == waiting.retries == waiting.replays == 0


@pytest.mark.long
async def test_kills_and_cut_connections_lose_no_event(database_url: str) -> None:
    await run_kills(database_url, 1, ["kill_worker", "cut_database"], 300, APART)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workers", [APART, TOGETHER], ids=["apart", "together"])
async def test_minutes_of_kills_and_cut_connections_lose_no_event(
    database_url: str, workers: Sequence[str]
) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "2"))
    chance = random.Random(seed)
    steps = [chance.choice(["kill_worker", "cut_database"]) for _ in range(30)]
    await run_kills(database_url, seed, steps, 1000, workers)


# What happens in one unlucky moment.


@asynccontextmanager
async def messages_told(hooks: Hooks, receiver: Receiver) -> AsyncIterator[Added]:
    async with run_smsc() as smsc, open_engine(hooks.database.url) as engine:
        await engine.add_carrier("main", smsc.port)
        worker = engine.start_worker()
        endpoint = await hooks.add(receiver.url)
        await manage.pause_endpoint(hooks.database, endpoint.id)
        await engine.send(hooks.caller, numbers(3))
        await engine.until_all("delivered")
        await engine.stop_worker(worker)
        await manage.resume_endpoint(hooks.database, endpoint.id, from_now=False)
        yield endpoint


@asynccontextmanager
async def reading_cut_short(hooks: Hooks) -> AsyncIterator[None]:
    async with hooks.database.transaction() as connection:
        await connection.execute("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
        yield
        waiting = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        await hooks.until(lambda: _any(hooks, f"SELECT {waiting}"), "nobody reads messages")
        await hooks.rows(f"SELECT pg_terminate_backend(pid) {waiting}")


async def _any(hooks: Hooks, statement: str) -> bool:
    return bool(await hooks.rows(statement))


async def arrive_soon(hooks: Hooks, receiver: Receiver, wanted: Sequence[str]) -> bool:
    deadline = time.monotonic() + SOON_S
    while set(wanted) - set(ids_of(receiver.requests)) and time.monotonic() < deadline:
        await hooks.add_events()
        await asyncio.sleep(0.25)
    return set(wanted) <= set(ids_of(receiver.requests))


async def test_events_and_retries_whose_reading_was_cut_short_are_read_again_soon(hooks: Hooks) -> None:
    async with run_receiver(answer(503)) as receiver, messages_told(hooks, receiver) as endpoint:
        told = await hooks.webhook_ids()
        assert len(told) >= 4
        async with reading_cut_short(hooks):
            hooks.start_worker()
        assert await arrive_soon(hooks, receiver, told)
        await hooks.until(lambda: _all_tried(hooks, endpoint), "not all attempts were recorded")
        receiver.respond = ok
        receiver.requests.clear()
        async with reading_cut_short(hooks):
            hooks.clock.move(timedelta(seconds=10))
        assert await arrive_soon(hooks, receiver, told)


async def _all_tried(hooks: Hooks, endpoint: Added) -> bool:
    return len(await hooks.attempts(endpoint)) >= len(await hooks.webhook_ids())


@pytest.mark.long
async def test_a_delivery_whose_record_was_committed_unheard_does_not_stop_all_that_follow(
    hooks: Hooks,
) -> None:
    with open_directory("tumira-line-") as directory:
        async with (
            RecordLine(directory, hooks.database.url).open() as line,
            run_receiver() as receiver,
        ):
            endpoint = await hooks.add(receiver.url)
            line.hold_next_claim()
            hooks.start_worker(url=line.url)
            await hooks.add_events()
            async with asyncio.timeout(20):
                await line.held.wait()
            line.cut()
            line.release()
            for _ in range(3):
                await hooks.add_events(5)
            await hooks.until(lambda: is_idle(hooks, endpoint), "nothing is recorded any more", 10)
            assert len(await hooks.attempts(endpoint)) == 16


async def test_news_that_come_while_the_endpoint_is_being_changed_are_sent_soon_after(hooks: Hooks) -> None:
    async with run_receiver() as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        async with hooks.database.transaction() as connection:
            await endpoints.lock(connection, None, endpoint.id)
            await hooks.add_events()
            await still()
        assert await comes_soon(receiver, 1, SOON_S)


@pytest.mark.long
async def test_endpoints_that_are_disabled_with_retries_hold_up_nobody(hooks: Hooks) -> None:
    async with run_receiver(answer(503)) as receiver:
        endpoint = await hooks.add(receiver.url)
        worker = hooks.start_worker("worker-1")
        await hooks.add_events()
        await hooks.until_attempts(endpoint, 1)
        await hooks.stop_worker(worker)
        # Each endpoint that was ever disabled keeps what is to be tried when it is resumed. These are older,
        # so they stand in front whether endpoints are found in the order of their ids or in none.
        await hooks.rows(
            "WITH dead AS (INSERT INTO webhook_endpoints (id, account_id, url, secret, position, state)"
            " SELECT overlay(gen_random_uuid()::text placing '00000000' from 1)::uuid, account_id, url,"
            " secret, position, 'disabled'"
            " FROM webhook_endpoints, generate_series(1, 5000) RETURNING id)"
            " INSERT INTO webhook_retries SELECT id, 1, gen_random_uuid(), 1, now(), now() FROM dead"
        )
        receiver.respond = ok
        hooks.clock.move(timedelta(seconds=10))
        hooks.start_worker("worker-2")
        assert await comes_soon(receiver, 2, SOON_S)
