"""Fail-over from a primary to its synchronous standby."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Final

import asyncpg
import httpx
import pytest

from tests.chaos.kills.test_schedule_kills import PRICE, TO, add_some
from tests.support.chaos.node import until
from tests.support.delivery.engine import numbers
from tests.support.postgres.databases import complete, open_directory
from tests.support.postgres.embedded import quick_directory
from tests.support.postgres.standby import Pair, run_pair
from tests.support.processes.service import NO_TLS, Caller, Service, new_caller
from tests.support.processes.watched import watch_simulator, watch_web, watch_worker
from tests.support.schedules.sends import ACTOR, check_and_schedule, get, schedule
from tests.support.sending.batchers import (
    Batchers,
    broken_promises,
    is_503,
    open_batchers,
    read_call,
    send_call,
    until_accepted,
    warm_up,
)
from tumira.carriers.manage import add_carrier
from tumira.core.ids import AccountId, ScheduleId, TopUpId, new_id
from tumira.core.settings.payments import Payments, Paynow
from tumira.operations.metrics_page import Scrape
from tumira.postgres import nodes
from tumira.postgres.connect import UnsureCommitError
from tumira.postgres.pinned_connection import PinnedConnection
from tumira.postgres.pool import Database
from tumira.runtime import known_problems
from tumira.schedules import manage
from tumira.schedules.manage import Scheduled
from tumira.sending.types import Admitted
from tumira.topups.providers.paynow_messages import Wallet
from tumira.topups.start import start_paynow

PATIENCE_S: Final = 40.0
SENDERS: Final = 3

SQL_WRITE: Final = "SELECT pg_logical_emit_message(true, 'test', '')"
SQL_WAITING: Final = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND usename = 'tumira'"
SQL_CANCEL: Final = f"SELECT pg_cancel_backend(pid) FROM ({SQL_WAITING}) AS waiting"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with open_directory("tumira-pair-", quick_directory()) as directory, run_pair(directory) as running:
        yield running


@contextmanager
def standby_away(pair: Pair) -> Iterator[None]:
    pair.standby.freeze()
    try:
        yield
    finally:
        pair.standby.thaw()
        pair.wait_for_sync()


async def until_a_commit_waits(pair: Pair) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not pair.primary.execute(SQL_WAITING):
        assert time.monotonic() < deadline, "no commit waits for the standby"
        await asyncio.sleep(0.02)


async def spent(batchers: Batchers, caller: Caller) -> Decimal:
    async with batchers.database.connection() as connection:
        balance = await connection.fetchval("SELECT balance FROM accounts WHERE id = $1", caller.id)
    assert isinstance(balance, Decimal)
    return 100 - balance


@asynccontextmanager
async def batcher_on(pair: Pair) -> AsyncIterator[tuple[Batchers, Caller]]:
    caller = await new_caller(pair.url)
    async with open_batchers(pair.url, 1) as batchers:
        await warm_up(batchers.batchers[0], await new_caller(pair.url))
        assert isinstance(await batchers.batchers[0].ask(read_call(caller)), Admitted)
        yield batchers, caller


@pytest.mark.long
async def test_a_commit_that_an_operator_stopped_waiting_for_is_no_202_and_bills_once(pair: Pair) -> None:
    async with batcher_on(pair) as (batchers, caller):
        call = send_call(caller, idempotency_key="wait-cancelled")
        with standby_away(pair):
            asked = asyncio.create_task(batchers.batchers[0].ask(call))
            await until_a_commit_waits(pair)
            pair.primary.execute(SQL_CANCEL)
            assert is_503(await asked)
            # Everybody sees the send now, but the standby does not have it: repeating it must wait as well.
            assert await spent(batchers, caller) > 0
            assert is_503(await batchers.batchers[0].ask(call))
        answer = await until_accepted(batchers.batchers[0], call)
        assert answer.replayed
        async with batchers.database.connection() as connection:
            batches = await connection.fetchval(
                "SELECT count(*) FROM batches WHERE account_id = $1", caller.id
            )
        assert batches == 1
        assert await broken_promises(batchers.database) == []


@pytest.mark.long
async def test_no_transaction_of_the_pool_passes_for_safe_when_its_wait_was_cancelled(pair: Pair) -> None:
    database = Database(pair.url)

    async def write() -> None:
        async with database.transaction() as connection:
            await connection.execute(SQL_WRITE)

    try:
        await write()
        with standby_away(pair):
            writing = asyncio.create_task(write())
            await until_a_commit_waits(pair)
            pair.primary.execute(SQL_CANCEL)
            with pytest.raises(UnsureCommitError):
                await writing
        await write()
    finally:
        await database.close()


async def test_twin_a_plain_connection_takes_a_cancelled_wait_for_a_success(pair: Pair) -> None:
    connection = await asyncpg.connect(pair.primary.url)
    try:
        with standby_away(pair):
            writing = asyncio.create_task(connection.execute(SQL_WRITE))
            await until_a_commit_waits(pair)
            pair.primary.execute(SQL_CANCEL)
            assert await writing == "SELECT 1"
    finally:
        await connection.close()


async def test_what_was_seen_is_relied_on_only_when_the_standby_has_it(pair: Pair) -> None:
    database = Database(pair.url)
    line = PinnedConnection(database, timeout_s=0.5)
    try:
        await line.begin()
        await line.end_sure()
        with standby_away(pair):
            await line.begin()
            with pytest.raises(TimeoutError) as raised:
                await line.end_sure()
            await line.roll_back(raised.value)
        await line.begin()
        await line.end_sure()
    finally:
        line.terminate()
        await database.close()


async def test_without_its_standby_nothing_is_accepted_and_reading_goes_on(pair: Pair) -> None:
    async with batcher_on(pair) as (batchers, caller):
        call = send_call(caller, idempotency_key="standby-away")
        pair.standby.kill()
        async with batchers.database.connection() as connection:
            assert await nodes.lacks_standby(connection)
            assert "No synchronous standby follows" in " ".join(await known_problems(batchers.database))
        assert (
            b"tumira_standby_missing 1.0"
            in await Scrape(batchers.database, batchers.batchers[0], None).page()
        )
        assert is_503(await batchers.batchers[0].ask(call))
        assert isinstance(await batchers.batchers[0].ask(read_call(caller)), Admitted)
        # Who gave up waiting was told to the server: nobody is left there who holds the account.
        await until_nobody_waits(pair)
        pair.standby.start()
        pair.wait_for_sync()
        await until_accepted(batchers.batchers[0], call)
        async with batchers.database.connection() as connection:
            assert not await nodes.lacks_standby(connection)
            assert (
                b"tumira_standby_missing 0.0"
                in await Scrape(batchers.database, batchers.batchers[0], None).page()
            )
            assert (
                await connection.fetchval("SELECT count(*) FROM batches WHERE account_id = $1", caller.id)
                == 1
            )


async def until_nobody_waits(pair: Pair) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while pair.primary.execute(SQL_WAITING):
        assert time.monotonic() < deadline, "a commit still waits"
        await asyncio.sleep(0.02)


@pytest.mark.long
async def test_a_shutdown_while_a_commit_waits_is_no_202(pair: Pair) -> None:
    async with batcher_on(pair) as (batchers, caller):
        call = send_call(caller, idempotency_key="shutdown")
        with standby_away(pair):
            asked = asyncio.create_task(batchers.batchers[0].ask(call))
            await until_a_commit_waits(pair)
            stopping = asyncio.create_task(asyncio.to_thread(pair.primary.stop))
            assert is_503(await asked)
            await stopping
            pair.primary.start()
        await until_accepted(batchers.batchers[0], call)
        assert await broken_promises(batchers.database) == []


@pytest.mark.long
async def test_a_server_that_takes_no_writes_any_more_is_left(pair: Pair) -> None:
    async with batcher_on(pair) as (batchers, caller):
        await until_accepted(batchers.batchers[0], send_call(caller))
        pair.primary.configure(default_transaction_read_only="on")
        # A transaction that was begun before may still write, and the next one not.
        decisions = [await batchers.batchers[0].ask(send_call(caller)) for _ in range(3)]
        assert is_503(decisions[-1])
        pair.promote()
        await until_accepted(batchers.batchers[0], send_call(caller))
        async with batchers.database.connection() as connection:
            assert await connection.fetchval("SHOW port") == str(pair.primary.port)
    pair.rebuild()


@pytest.mark.long
async def test_a_primary_that_was_replaced_without_being_stopped_is_left(pair: Pair) -> None:
    async with batcher_on(pair) as (batchers, caller):
        await until_accepted(batchers.batchers[0], send_call(caller))
        # The old one goes on to take connections and writes, whose commits wait for a standby that left it.
        pair.promote()
        await until_accepted(batchers.batchers[0], send_call(caller))
        async with batchers.database.connection() as connection:
            assert await connection.fetchval("SHOW port") == str(pair.primary.port)
        assert not pair.standby.execute("SELECT pg_is_in_recovery()")[0][0]
        assert await broken_promises(batchers.database) == []
    pair.rebuild()


async def test_a_top_up_that_is_repeated_waits_for_the_standby_like_the_first(pair: Pair) -> None:
    caller = await new_caller(pair.url, "0")
    database, top_up_id = Database(pair.url), TopUpId(new_id(time.time_ns() // 1_000_000))
    payments = Payments(paynow=Paynow("http://127.0.0.1:1", "1201", "key", None))

    async def start() -> TopUpId:
        return await start_paynow(
            database, payments, caller.id, Wallet.ECOCASH, Decimal(5), "+263771200001", top_up_id=top_up_id
        )

    try:
        with standby_away(pair):
            first = asyncio.create_task(start())
            await until_a_commit_waits(pair)
            pair.primary.execute(SQL_CANCEL)
            with pytest.raises(UnsureCommitError):
                await first
            again = asyncio.create_task(start())
            await until_a_commit_waits(pair)
            assert not again.done()
        assert await again == top_up_id
    finally:
        await database.close()


@pytest.mark.long
async def test_a_frozen_primary_is_left_and_accepts_nothing_when_it_comes_back(pair: Pair) -> None:
    async with batcher_on(pair) as (batchers, caller):
        await until_accepted(batchers.batchers[0], send_call(caller))
        pair.freeze_primary()
        began = time.monotonic()
        first = asyncio.create_task(batchers.batchers[0].ask(send_call(caller)))
        await asyncio.sleep(0)
        pair.promote()
        call = send_call(caller, idempotency_key="frozen")
        await until_accepted(batchers.batchers[0], call)
        print(f"frozen primary: accepted {time.monotonic() - began:.1f} s after it fell silent")
        assert is_503(await first)
        assert await broken_promises(batchers.database) == []
    stale = pair.standby
    stale.thaw()
    # It still takes itself for the primary, and has a standby to wait for that follows it no more.
    async with open_batchers(stale.url, 1) as batchers:
        assert is_503(await batchers.batchers[0].ask(send_call(caller)))
    pair.rebuild()


@dataclass(slots=True)
class Load:
    """Callers that repeat each send until it is accepted, and note what they were answered."""

    service: Service
    caller: Caller
    stop: threading.Event = field(default_factory=threading.Event)
    answered: dict[str, tuple[float, str]] = field(default_factory=dict)
    refused: list[httpx.Response] = field(default_factory=list)

    def run(self, name: int) -> None:
        turn = 0
        while not self.stop.is_set():
            turn += 1
            key = f"sender-{name}-{turn}"
            while not self.stop.is_set():
                answer = self.service.send(self.caller, headers={"Idempotency-Key": key})
                if answer.status_code == httpx.codes.ACCEPTED:
                    self.answered[key] = (time.monotonic(), answer.json()["batch_id"])
                    break
                self.refused.append(answer)
                time.sleep(0.02)

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.answered) + count
        deadline = time.monotonic() + PATIENCE_S
        while len(self.answered) < wanted:
            assert time.monotonic() < deadline, [one.text for one in self.refused[-3:]]
            time.sleep(0.01)

    def wait_for_refusal(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.refused:
            assert time.monotonic() < deadline, "no call was refused"
            time.sleep(0.01)


@contextmanager
def under_load(service: Service) -> Iterator[Load]:
    load = Load(service, service.open_account(balance="1000", rate=100_000))
    senders = [threading.Thread(target=load.run, args=(name,)) for name in range(SENDERS)]
    for sender in senders:
        sender.start()
    try:
        yield load
    finally:
        load.stop.set()
        for sender in senders:
            sender.join()


def test_a_killed_primary_loses_nothing_and_everybody_goes_on(pair: Pair, tmp_path: Path) -> None:
    with (
        open_directory("tumira-texts-") as texts,
        watch_simulator(texts, tmp_path / "simulator.log") as port,
        watch_web(pair.url, tmp_path / "web.log") as (_, service),
        watch_worker(pair.url, tmp_path / "worker.log"),
    ):
        service.run(add_carrier, "simulator", f"smpp://tumira:tumira@127.0.0.1:{port}", None, 1)
        with under_load(service) as load:
            load.wait_for_more(30)
            pair.kill_primary()
            check_page(service)
            load.wait_for_refusal()
            pair.promote()
            promoted = time.monotonic()
            load.wait_for_more(30)
        first = min(at for at, _ in load.answered.values() if at > promoted)
        print(f"killed primary: accepted {first - promoted:.2f} s after the promotion")
        check_refusals(load)
        check_nothing_lost(load, pair)
        check_all_is_handed_over(service)
    pair.rebuild()


@pytest.mark.long
def test_scheduled_sends_begin_once_over_a_promotion(pair: Pair, tmp_path: Path) -> None:
    """The primary dies while sends begin: each begins once, and what is held stays held."""
    to = numbers(30 * TO)
    with watch_web(pair.url, tmp_path / "web.log") as (_, service):
        caller = service.open_account(balance="100")
        waiting = service.run(schedule, caller.id, numbers(5))
        file = service.run(schedule_file_soon, caller.id, numbers(5, start=len(to)))
        complete(add_some(pair.url, caller.id, to))
        with watch_worker(pair.url, tmp_path / "one.log"), watch_worker(pair.url, tmp_path / "two.log"):
            until(partial(are_left, service, 24), "nothing begins", PATIENCE_S)
            pair.kill_primary()
            pair.promote()
            until(partial(are_left, service, 1), "not all begin", 90)
            until(lambda: not service.run(holds_money, caller.id, file), "the file is not sent", PATIENCE_S)
        assert service.run(get, caller.id, waiting).held == 5 * PRICE
        assert complete(_audit(pair.url)) == []
        assert service.run(manage.cancel, caller.id, waiting, ACTOR)
        found = service.sql("SELECT recipient FROM messages WHERE account_id = $1", caller.id)
        assert Counter(row["recipient"] for row in found) == Counter([*to, *numbers(5, start=len(to))])
        # There is no carrier, so the workers refund what they cannot send: only debits are counted.
        (paid, held) = service.sql(
            "SELECT sum(amount) FILTER (WHERE to_book = 'revenue'),"
            "       sum(CASE WHEN to_book = 'held' THEN amount WHEN from_book = 'held' THEN -amount END)"
            "  FROM transfers WHERE account_id = $1",
            caller.id,
        )[0]
        assert (paid, held) == ((len(to) + 5) * PRICE, 0)
        assert complete(_audit(pair.url)) == []
    pair.rebuild()


async def schedule_file_soon(database: Database, account_id: AccountId, to: Sequence[str]) -> ScheduleId:
    """Schedule a file that begins in the middle of what `add_some` schedules."""
    _upload_id, made = await check_and_schedule(database, account_id, [f"{number},Tariro" for number in to])
    assert isinstance(made, Scheduled)
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE schedules SET start_at = clock_timestamp() + interval '5 seconds' WHERE id = $1", made.id
        )
    return made.id


async def holds_money(database: Database, account_id: AccountId, schedule_id: ScheduleId) -> bool:
    return (await get(database, account_id, schedule_id)).held > 0


def are_left(service: Service, most: int) -> bool:
    return int(service.sql("SELECT count(*) FROM schedules WHERE state = 'waiting'")[0][0]) <= most


def check_page(service: Service) -> None:
    """See that a page which needs the database says so in our own layout."""
    cookies = {"tumira_session": "x"}
    page = httpx.get(f"{service.base}/dashboard", cookies=cookies, timeout=30, trust_env=False, verify=NO_TLS)
    assert page.status_code == httpx.codes.SERVICE_UNAVAILABLE
    assert page.headers["Retry-After"]
    assert "<html" in page.text


def check_refusals(load: Load) -> None:
    for answer in load.refused:
        assert answer.status_code == httpx.codes.SERVICE_UNAVAILABLE, answer.text
        assert answer.json()["error"]["code"] == "SERVICE_UNAVAILABLE"
        assert answer.headers["Retry-After"]


def check_nothing_lost(load: Load, pair: Pair) -> None:
    for _, batch_id in load.answered.values():
        assert load.service.call(load.caller, "GET", f"/batches/{batch_id}").status_code == httpx.codes.OK
    # Every key bills once. At most one send of each sender was under way when it was told to stop.
    batches = load.service.sql("SELECT count(*) FROM batches WHERE account_id = $1", load.caller.id)[0][0]
    assert len(load.answered) <= batches <= len(load.answered) + SENDERS
    assert complete(_audit(pair.url)) == []


async def _audit(url: str) -> list[str]:
    database = Database(url, connections_max=1)
    try:
        return list(await broken_promises(database))
    finally:
        await database.close()


def check_all_is_handed_over(service: Service) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while service.sql("SELECT FROM queue LIMIT 1"):
        assert time.monotonic() < deadline, "the worker does not go on"
        time.sleep(0.05)
