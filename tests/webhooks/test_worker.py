"""The webhook worker: events of real messages, concurrency, isolation, and several workers."""

import asyncio
import functools
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.delivery.engine import QUICK, Engine, numbers, open_engine
from tests.support.processes.service import Caller
from tests.support.sending.batchers import send_call
from tests.support.webhooks.receivers import (
    Receiver,
    Request,
    Responder,
    answer,
    hang,
    ok,
    run_receiver,
)
from tests.support.webhooks.world import Added, Hooks, ids_of, open_hooks, open_request, still
from tumira.core.ids import MESSAGE, write_id
from tumira.delivery.supervisor import CarrierTerms
from tumira.identity.manage_accounts import limit
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.simulator.smsc import run_smsc
from tumira.webhooks import retries
from tumira.webhooks import worker as webhook_worker
from tumira.webhooks.delivery import UNRECORDED_MAX
from tumira.webhooks.http_client import Timeouts, WebhookClient
from tumira.webhooks.retries import Backlog
from tumira.worker import run_worker

NOT_IN_USE: Final = "+263771209901"
REFUSED: Final = "+263771209905"
LATER_MAX: Final = 100
# A server that is silent is found out soon.
HASTY: Final = Timeouts(call_s=0.5, connect_s=0.5)


@dataclass(frozen=True, slots=True)
class Scene:
    """A gateway with a carrier, and an account that has endpoints."""

    engine: Engine
    hooks: Hooks

    @property
    def caller(self) -> Caller:
        return self.hooks.caller

    async def start_worker(self) -> None:
        self.engine.workers.append(asyncio.create_task(work(self.engine.url)))

        async def bound() -> bool:
            return bool(await self.engine.rows("SELECT FROM binds WHERE state = 'bound'"))

        await self.engine.until(bound, "the worker does not bind")


async def work(url: str) -> None:
    database = Database(url, settings=KEY_LOOKUPS)
    try:
        await run_worker(database, carriers=CarrierTerms(smpp=QUICK), webhooks_allow_private=True)
    finally:
        await database.close()


@pytest_asyncio.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with run_smsc() as smsc, open_engine(database_url) as engine, open_hooks(database_url) as hooks:
        await engine.add_carrier("main", smsc.port)
        yield Scene(engine, hooks)


def open_all(receiver: Receiver, endpoint: Added) -> Sequence[dict[str, Any]]:
    return [open_request(request, endpoint.secret) for request in receiver.requests]


async def test_the_whole_story_of_a_send_is_told_to_a_careful_receiver(scene: Scene) -> None:
    async with run_receiver() as receiver, run_receiver() as picky:
        endpoint = await scene.hooks.add(receiver.url)
        chosen = await scene.hooks.add(picky.url, "message.delivered")
        await scene.start_worker()
        to = [*numbers(20), NOT_IN_USE, REFUSED]
        sent = await scene.engine.send(scene.caller, to)
        await scene.engine.until_all("delivered", "undelivered", "failed")
        await receiver.wait(requests=46)
        await scene.hooks.until_idle(endpoint)
        await scene.hooks.until_idle(chosen)
        payloads = open_all(receiver, endpoint)
        assert Counter(payload["type"] for payload in payloads) == {
            "message.sent": 21,
            "message.delivered": 20,
            "message.undelivered": 1,
            "message.failed": 1,
            "message.refunded": 2,
            "batch.completed": 1,
        }
        assert sorted(one["sequence"] for one in payloads) == list(range(1, len(payloads) + 1))
        check_messages(payloads, sent["batch_id"], to)
        # The other endpoint is told what it chose, in the same bytes.
        wanted = {one.body for one in receiver.requests if b'"type":"message.delivered"' in one.body}
        assert {one.body for one in picky.requests} == wanted
        assert len(picky.requests) == 20
        # Connections are kept: there were never more than events under way at once.
        assert receiver.connections <= 16
        assert await scene.engine.audit() == []


def check_messages(payloads: Sequence[dict[str, Any]], batch_id: str, to: Sequence[str]) -> None:
    last: dict[str, dict[str, Any]] = {}
    for payload in sorted(payloads, key=lambda one: int(one["sequence"])):
        assert "493817" not in json.dumps(payload)
        if payload["type"].startswith("message."):
            assert payload["data"]["batch_id"] == batch_id
            last[payload["data"]["to"]] = payload
    assert set(last) == set(to)
    for number, payload in last.items():
        data = payload["data"]
        if number in {NOT_IN_USE, REFUSED}:
            assert payload["type"] == "message.refunded"
            assert data["failure_reason"] == "UNKNOWN_SUBSCRIBER"
            assert data["refunded_at"] is not None
        else:
            assert (payload["type"], data["status"]) == ("message.delivered", "delivered")
            assert data["delivered_at"] is not None
    (completed,) = (one["data"] for one in payloads if one["type"] == "batch.completed")
    assert (completed["batch_id"], completed["status"]) == (batch_id, "completed")


@pytest.mark.long
async def test_an_endpoint_is_told_that_messages_were_sent_soon_after_asking_for_it(scene: Scene) -> None:
    async with run_receiver() as receiver:
        await scene.start_worker()
        early, *later = numbers(LATER_MAX)
        await scene.engine.send(scene.caller, [early])
        await scene.engine.until_all("delivered")
        assert await sent_events(scene) == []
        endpoint = await scene.hooks.add(receiver.url, "message.sent")
        # A worker hears of it within a second; the first message after that is told of.
        for late in later:
            await scene.engine.send(scene.caller, [late])
            await scene.engine.until_all("delivered")
            if await sent_events(scene):
                break
        await scene.hooks.until_idle(endpoint)
        message_id = write_id(MESSAGE, (await scene.engine.message(late))["id"])
        (payload,) = open_all(receiver, endpoint)
        assert (payload["type"], payload["data"]["message_id"]) == ("message.sent", message_id)
        assert payload["data"]["delivered_at"] is None
        assert len(await sent_events(scene)) == 1


async def sent_events(scene: Scene) -> Sequence[Any]:
    return await scene.engine.rows("SELECT id FROM events WHERE type = 'message.sent'")


async def low_balances(scene: Scene, caller: Caller) -> Sequence[Decimal]:
    rows = await scene.engine.rows(
        "SELECT data FROM events WHERE account_id = $1 AND type = 'balance.low' ORDER BY sequence", caller.id
    )
    return [Decimal(json.loads(row["data"])["balance"]) for row in rows]


@pytest.mark.long
async def test_a_balance_is_told_to_be_low_once_for_each_time_that_it_becomes_so(scene: Scene) -> None:
    async with run_receiver() as receiver:
        caller = await scene.engine.open_account("1.08")
        endpoint = await scene.hooks.add(receiver.url, "balance.low", caller=caller)
        scene.hooks.start_worker()
        await scene.engine.send(caller, numbers(2))
        # It has just what it may have.
        assert await low_balances(scene, caller) == []
        await scene.engine.send(caller, numbers(1))
        await scene.engine.send(caller, numbers(1))
        assert await low_balances(scene, caller) == [Decimal("0.96")]
        await scene.hooks.until_idle(endpoint)
        (payload,) = open_all(receiver, endpoint)
        assert payload["data"] == {"balance": "0.9600", "threshold": "1.0000", "currency": "USD"}
    # After a large send, after calls that come together, and below a threshold that the account chose.
    large = await scene.engine.open_account("4")
    await scene.engine.send(large, numbers(80))
    assert await low_balances(scene, large) == [Decimal("0.80")]
    several = await scene.engine.open_account("2")
    await asyncio.gather(*(scene.engine.batcher.ask(send_call(several, [number])) for number in numbers(40)))
    (balance,) = await low_balances(scene, several)
    assert 0 <= balance < 1
    other = await scene.engine.open_account("100")
    choice: dict[str, Any] = {"rate_limit": None, "daily_limit": None, "change_daily": False}
    await limit(scene.engine.database, other.id, low_balance=Decimal("99.95"), **choice)
    for _ in range(3):
        await scene.engine.send(other, numbers(1))
    assert await low_balances(scene, other) == [Decimal("99.92")]
    assert await scene.engine.audit() == []


@pytest.mark.parametrize(
    ("respond", "status", "problem"),
    [
        (answer(204), 204, None),
        (answer(302, {"location": "http://127.0.0.1:9/"}), 302, None),
        (answer(500, body=b"\x00\xff broken"), 500, None),
        (hang, None, "0.5 seconds"),
    ],
)
async def test_what_is_answered_is_noted_and_anything_but_success_is_tried_again(
    hooks: Hooks,
    monkeypatch: pytest.MonkeyPatch,
    respond: Responder,
    status: int | None,
    problem: str | None,
) -> None:
    monkeypatch.setattr(webhook_worker, "WebhookClient", functools.partial(WebhookClient, timeouts=HASTY))
    async with run_receiver(respond) as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker()
        await hooks.add_events()
        (attempt,) = await hooks.until_attempts(endpoint, 1)
        arrived = status is not None and 200 <= status < 300
        assert (attempt.next_at is None) == arrived
        if problem is not None:
            assert attempt.status is None
            assert problem in (attempt.problem or "")
        if status is not None:
            assert attempt.status == status
        if attempt.next_at is not None:
            hooks.clock.move_to(attempt.next_at - timedelta(seconds=2))
            await still()
            assert len(receiver.requests) == 1
            receiver.respond = ok
            hooks.clock.move(timedelta(seconds=2))
        await hooks.until_idle(endpoint)
        for name in ("webhook-timestamp", "webhook-signature"):
            assert len({request.headers[name] for request in receiver.requests}) == len(receiver.requests)
        assert len(set(ids_of(receiver.requests))) == 1
        assert len({request.body for request in receiver.requests}) == 1


class Crowd:
    """Answers after a pause, and counts the calls that wait at once."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.pause_s = 0.0

    async def __call__(self, request: Request, line: Any) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.pause_s)
        self.now -= 1
        await ok(request, line)


@pytest.mark.long
async def test_an_endpoint_gets_four_events_at_once_at_first_and_sixteen_at_most(hooks: Hooks) -> None:
    async with run_receiver(hang) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.add_events(200)
        hooks.start_worker()
        await receiver.wait(requests=4)
        await still()
        assert len(receiver.requests) == 4
        crowd = Crowd()
        crowd.pause_s = 0.02
        receiver.respond = crowd
        await receiver.close_lines()

        async def four_tried() -> bool:
            return len(await hooks.attempts(endpoint)) >= 4

        async def all_arrived() -> bool:
            return len(ids_of(receiver.requests[4:])) == 200

        # Others may have been sent by then: the receiver answers them.
        await hooks.until(four_tried, "there are no four tries")
        hooks.clock.move_to(max(one.next_at or one.at for one in await hooks.attempts(endpoint)))
        await hooks.until(all_arrived, "not all arrived")
        assert 12 <= crowd.most <= 16


@pytest.mark.long
async def test_an_endpoint_that_hangs_is_left_with_one_event_and_holds_up_nobody(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_worker, "WebhookClient", functools.partial(WebhookClient, timeouts=HASTY))
    async with run_receiver(hang) as slow, run_receiver() as quick, open_hooks(hooks.database.url) as others:
        endpoint = await hooks.add(slow.url)
        beside = await hooks.add(quick.url)
        theirs = await others.add(quick.url_as("127.0.0.1", "/theirs"))
        # What happens to one account never reaches an endpoint of another.
        wanted = {"/hook": hooks, "/theirs": others}
        hooks.start_worker()
        await hooks.add_events(300)
        await others.add_events(100)
        await hooks.until_idle(beside)
        await hooks.until_idle(theirs)
        assert len(quick.requests) == 400
        for path, owner in wanted.items():
            got = ids_of(one for one in quick.requests if one.path == path)
            assert set(got) == set(await owner.webhook_ids())
        assert len(slow.requests) < 20
        await slow.wait(requests=8)
        # Of the first four each had its failure; since then they come one by one.
        later = [request.at for request in slow.requests[6:]]
        assert all(two - one > 0.4 for one, two in itertools.pairwise(later))
        assert (await hooks.waiting(endpoint)).behind > 250


@pytest.mark.long
async def test_while_results_cannot_be_written_a_worker_waits_and_lives(hooks: Hooks) -> None:
    async with run_receiver() as receiver, run_receiver() as quick, open_hooks(hooks.database.url) as others:
        endpoint = await hooks.add(receiver.url)
        beside = await others.add(quick.url)
        await others.add_events()
        hooks.start_worker()
        await hooks.until_idle(beside)
        await hooks.add_events(UNRECORDED_MAX + 40)
        # Not a connection of ours, which the server would end for idling.
        lock = await asyncpg.connect(hooks.database.url)
        async with lock.transaction():
            await lock.execute("LOCK TABLE webhook_attempts IN SHARE MODE")
            await receiver.wait(requests=UNRECORDED_MAX)
            # Both have more to read, found by the same poll. That of the first has to wait.
            async with hooks.database.transaction() as connection:
                for added in (endpoint, beside):
                    await retries.insert_replay(connection, added.id, 0, 1, None)
            await quick.wait(requests=2)
        await lock.close()
        await hooks.until_idle(endpoint)
        await hooks.until_idle(beside)
        assert sorted(ids_of(receiver.requests).values())[-2:] == [1, 2]


async def test_when_private_addresses_are_forbidden_nothing_is_called_and_each_attempt_says_why(
    hooks: Hooks,
) -> None:
    async with run_receiver() as receiver:
        endpoint = await hooks.add(receiver.url)
        hooks.start_worker(allow_private=False)
        await hooks.add_events(2)
        attempts = await hooks.until_attempts(endpoint, 2)
    why = "The URL must begin with https://, as in https://hooks.example.com/tumira."
    assert {(one.status, one.problem) for one in attempts} == {(None, why)}
    assert receiver.connections == 0
    assert await hooks.waiting(endpoint) == Backlog(2, 0, 0)


@pytest.mark.long
async def test_two_workers_share_endpoints_and_send_nothing_twice(hooks: Hooks) -> None:
    async with run_receiver() as receiver:
        added = [await hooks.add(receiver.url_as("127.0.0.1", f"/{number}")) for number in range(5)]
        hooks.start_worker("worker-1")
        hooks.start_worker("worker-2")
        for _ in range(5):
            await hooks.add_events(10)
            await asyncio.sleep(0.05)
        for endpoint in added:
            await hooks.until_idle(endpoint)
        counts = Counter((request.path, request.headers["webhook-id"]) for request in receiver.requests)
        assert len(counts) == 250
        assert set(counts.values()) == {1}


@pytest.mark.long
async def test_a_worker_that_ends_in_good_order_leaves_nothing_to_be_sent_twice(hooks: Hooks) -> None:
    crowd = Crowd()
    crowd.pause_s = 0.01
    async with run_receiver(crowd) as receiver:
        endpoint = await hooks.add(receiver.url)
        await hooks.add_events(200)
        for number in range(3):
            worker = hooks.start_worker(f"worker-{number}")
            await receiver.wait(requests=40 * (number + 1))
            await hooks.stop_worker(worker)
        hooks.start_worker("worker-last")
        await hooks.until_idle(endpoint)
        assert set(ids_of(receiver.requests).values()) == {1}
        assert len(receiver.requests) == 200
