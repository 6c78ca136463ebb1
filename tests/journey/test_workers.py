"""Workers that share the binds of a carrier."""

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from tests.support.chaos.breakable import CarrierThread
from tests.support.chaos.node import WorkerProcess, describe, ended_at_last, until
from tests.support.delivery.engine import numbers
from tests.support.postgres.databases import execute
from tests.support.processes.service import new_caller, run_on
from tests.support.sending.batchers import broken_promises, open_batchers, send_call
from tumira.carriers.manage import add_carrier
from tumira.delivery.sender import UNRECORDED_MAX
from tumira.sending.types import Answered
from tumira.simulator.connection import SmscConnection
from tumira.simulator.misbehaviours import Misbehaviour, ResponseDelay

BINDS: Final = 4
WINDOW: Final = 20
# The lease, the second in which it is looked after, and one for the new bind; the rest is for a busy machine.
MOVED_S: Final = 40.0
TRIES_MAX: Final = 300


class Tally(Misbehaviour):
    """Behaves, and counts the submits of each connection."""

    def __init__(self) -> None:
        super().__init__()
        self.submits: Counter[SmscConnection] = Counter()

    def judge(self, line: SmscConnection) -> int:
        self.submits[line] += 1
        return 0


@dataclass(frozen=True, slots=True)
class Place:
    """A database, and a carrier that keeps count."""

    url: str
    carrier: CarrierThread
    tally: Tally
    logs: Path

    def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        return execute(self.url, statement, *arguments)

    @contextmanager
    def worker(self, name: str) -> Iterator[WorkerProcess]:
        worker = WorkerProcess(self.logs / f"{name}.log", database_url=self.url)
        with ended_at_last(worker):
            yield worker

    def binds(self) -> "Counter[int]":
        held = self.rows(
            "SELECT split_part(worker, ':', 2)::integer AS pid, count(*) FROM binds"
            " WHERE state = 'bound' AND leased_until > clock_timestamp() GROUP BY pid"
        )
        return Counter({row["pid"]: row["count"] for row in held})

    def wait_for_binds(self, wanted: dict[int, int], wait_s: float = MOVED_S) -> None:
        until(lambda: self.binds() == wanted, f"the binds are not held as {wanted}", wait_s)

    def send(self, batches: Iterable[Sequence[str]]) -> None:
        asyncio.run(_send(self.url, batches))

    def wait_until_delivered(self, wait_s: float = 120.0) -> None:
        """Wait until every message is delivered."""
        until(lambda: not self._undelivered(), self._why, wait_s)

    def _undelivered(self) -> Sequence[asyncpg.Record]:
        return self.rows(
            "SELECT status, count(*), min(id::text) AS first FROM messages"
            " WHERE status <> 'delivered' GROUP BY status"
        )

    def _why(self) -> str:
        left = self._undelivered()
        return describe(self.rows, left[0]["first"], left) if left else ""

    def doubts(self) -> int:
        count = self.rows("SELECT count(*) FROM incidents WHERE kind = 'doubt'")[0][0]
        assert isinstance(count, int)
        return count

    def check(self) -> None:
        assert run_on(self.url, broken_promises) == []


async def _send(url: str, batches: Iterable[Sequence[str]]) -> None:
    caller = await new_caller(url, "10000", 100_000)
    async with open_batchers(url, 1) as batchers:
        for to in batches:
            assert isinstance(await batchers.batchers[0].ask(send_call(caller, to)), Answered)


@pytest.fixture
def place(database_url: str, tmp_path: Path) -> Iterator[Place]:
    """Give a carrier of four binds, each of which answers so slowly that its window counts."""
    tally = Tally()
    with CarrierThread([tally, ResponseDelay(20)]) as carrier:
        options = f"window={WINDOW}&tps=0&binds={BINDS}&doubt_wait=5"
        address = f"smpp://tester:secret@127.0.0.1:{carrier.port}?{options}"
        run_on(database_url, add_carrier, "main", address, None, 100)
        yield Place(database_url, carrier, tally, tmp_path)


class Sends:
    """Messages that are accepted, a few at a time, while something else happens."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._stop = threading.Event()
        self.accepted = 0

    @contextmanager
    def sending(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        asyncio.run(_send(self._place.url, self._batches()))

    def _batches(self) -> Iterator[Sequence[str]]:
        while not self._stop.wait(0.05):
            yield numbers(5, self.accepted)
            self.accepted += 5

    def wait_for_more(self) -> None:
        wanted = self._place.carrier.received + 50
        until(lambda: self._place.carrier.received >= wanted, "nothing is submitted")


@pytest.mark.long
def test_nothing_is_in_doubt_when_workers_are_restarted_one_after_the_other(place: Place) -> None:
    sends = Sends(place)
    with place.worker("one") as one, place.worker("two") as two:
        first, second = one.process.pid, two.process.pid
        with sends.sending():
            until(lambda: place.binds().keys() == {first, second}, "not shared")
            sends.wait_for_more()
            one.stop()
            # At once: no worker waits for the end of a lease.
            for table in ("binds", "in_flight"):
                left = f"SELECT FROM {table} WHERE split_part(worker, ':', 2) = $1"
                assert place.rows(left, str(first)) == []
            place.wait_for_binds({second: BINDS})
            sends.wait_for_more()
            one.start()
            until(lambda: place.binds()[one.process.pid], "the worker that came back has no bind")
            sends.wait_for_more()
        place.wait_until_delivered()
    counts = place.carrier.counts()
    assert len(counts) == sends.accepted
    assert set(counts.values()) == {1}
    assert place.rows("SELECT FROM incidents") == []
    place.check()


# The store tests show that a dead worker's binds and messages move; here is the whole of it.
@pytest.mark.long
def test_the_binds_of_a_killed_worker_move_and_its_messages_arrive(place: Place) -> None:
    with place.worker("one") as one, place.worker("two") as two:
        place.wait_for_binds({one.process.pid: 2, two.process.pid: 2})
        place.send([numbers(1000)])
        until(lambda: place.carrier.received > 100, "nothing is submitted")
        one.kill()
        place.wait_for_binds({two.process.pid: BINDS})
        place.tally.submits.clear()
        # More than three binds claim ahead.
        place.send([numbers(1000, 1000)])
        place.wait_until_delivered()
        # All four are used, and not only held.
        assert len(place.tally.submits) == BINDS
        counts = place.carrier.counts()
        assert len(counts) == 2000
        assert set(counts.values()) <= {1, 2}
        copies = counts.total() - len(counts)
        print(f"killed worker: {place.doubts()} in doubt, {copies} arrived twice")
        # What was under way or not recorded on its two binds, at most.
        assert copies <= 2 * (WINDOW + UNRECORDED_MAX)
        place.check()


def freeze_in_a_transaction(place: Place, worker: WorkerProcess) -> None:
    """Stop a process while it has messages in flight, and holds some in an unfinished transaction."""
    pid = worker.process.pid
    for _ in range(TRIES_MAX):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.03)
        in_flight = place.rows("SELECT FROM in_flight WHERE split_part(worker, ':', 2) = $1", str(pid))
        # Longer than the other worker, which goes on, ever takes from one statement to the next. Whoever has
        # locked rows has a number for its transaction.
        held = place.rows(
            "SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND state = 'idle in transaction' AND backend_xid IS NOT NULL"
            " AND state_change < clock_timestamp() - interval '20 ms'"
        )
        if in_flight and held:
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.02)
    raise AssertionError("it was never in the middle of a transaction")


@pytest.mark.long
def test_a_worker_that_freezes_holds_up_nobody_and_what_it_sent_is_not_sent_again_when_it_wakes(
    place: Place,
) -> None:
    with place.worker("one") as one, place.worker("two") as two:
        place.wait_for_binds({one.process.pid: 2, two.process.pid: 2})
        place.send([numbers(1000, 1000 * thousand) for thousand in range(9)])
        until(lambda: place.carrier.received > 100, "nothing is handed over")
        freeze_in_a_transaction(place, one)
        try:
            # The answers to its submits wait in its socket while the other takes it for dead and goes on.
            until(lambda: place.doubts() > 0, "it was not taken for dead", 2 * MOVED_S)
        finally:
            os.kill(one.process.pid, signal.SIGCONT)
        place.wait_until_delivered()
        counts = place.carrier.counts()
        assert len(counts) == 9000
        copies = counts.total() - len(counts)
        print(f"frozen worker: {place.doubts()} in doubt, {copies} arrived twice")
        place.wait_for_binds({one.process.pid: 2, two.process.pid: 2})
        place.check()
        # It had the carrier's answers before the wait was over, so nothing had to be sent again.
        assert copies == 0
