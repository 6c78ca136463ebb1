"""Nothing is lost, sent twice without a reason or paid wrongly when processes die and connections fall.

A whole node and a second worker serve callers; the carrier lives in the test, so that it outlives every kill
and what arrived can be counted. Each body is sent once and each number gets one text, so that number and text
tell which message arrived.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.chaos.breakable import CarrierThread, DatabaseLine
from tests.support.chaos.node import (
    Load,
    Reader,
    WorkerProcess,
    add_carrier,
    audit,
    check_promises,
    children_of,
    ended_at_last,
    open_account,
    remove_carrier,
    until,
    wait_until_final,
)
from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.postgres.databases import open_directory
from tests.support.processes.programs import Node, new_home, running
from tumira.delivery import supervisor
from tumira.delivery.outcomes import LeftInDoubt
from tumira.delivery.sender import UNRECORDED_MAX
from tumira.delivery.settle import settle
from tumira.simulator.handsets import directory_in
from tumira.simulator.misbehaviours import ReceiptBeforeResponse, ResponseDelay
from tumira.simulator.smsc import run_smsc

CALLERS: Final = 4
BINDS: Final = 2
WINDOW: Final = 30
# A message in doubt waits for its dead worker's lease, for a receipt, and maybe for all of that again.
SETTLED_S: Final = 90.0


@dataclass(frozen=True, slots=True)
class Scene:
    node: Node
    second: WorkerProcess
    carrier: CarrierThread
    load: Load
    reader: Reader

    def kill_worker(self) -> None:
        self._kill("worker")

    def kill_second_worker(self) -> None:
        self.second.kill()
        self.second.start()

    def kill_web(self) -> None:
        self._kill("web")

    def kill_postgres(self) -> None:
        until(lambda: self.node.part("postgres") is not None, "PostgreSQL is not there")
        server = self.node.part("postgres")
        assert server is not None
        for process in children_of(server):
            _kill(process.pid)

    def cut_lines(self) -> None:
        self.carrier.cut()

    def hush_lines(self) -> None:
        self.carrier.hush(1.5)

    def lose_lines(self) -> None:
        self.carrier.die_silently(1.0)

    def silence_carrier(self) -> None:
        self.carrier.ignore(0.5)

    def _kill(self, name: str) -> None:
        until(lambda: self.node.part(name) is not None, f"there is no {name}")
        part = self.node.part(name)
        assert part is not None
        _kill(part.pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        # It had gone with another one.
        return


@contextmanager
def scene(home: Path, seed: int, pause_s: float) -> Iterator[Scene]:
    with CarrierThread() as carrier, running(home, log_level="warning") as node:
        settings = node.settings
        url = f"smpp://chaos:secret@127.0.0.1:{carrier.port}?window={WINDOW}&tps=0&binds={BINDS}&doubt_wait=2"
        add_carrier("chaos", url, **settings)
        remove_carrier("simulator", **settings)
        second = WorkerProcess(home / "second.log", **settings)
        with ended_at_last(second):
            load = Load(node.base, open_account(**settings), seed, pause_s=pause_s)
            reader = Reader(Path(settings["data_dir"]))
            until(
                lambda: len(reader.rows("SELECT FROM binds WHERE state = 'bound'")) == BINDS,
                "the workers do not bind",
            )
            yield Scene(node, second, carrier, load, reader)


def break_now_and_then(scene: Scene, chance: random.Random, steps: Sequence[str], gap_s: float) -> None:
    began = time.monotonic()
    for step in steps:
        time.sleep(chance.uniform(0.5, 1.5) * gap_s)
        scene.load.wait_for(chance.randint(1, 20))
        print(f"{time.monotonic() - began:5.1f} s, {scene.load.messages} messages accepted: {step}")
        action: Callable[[], None] = getattr(scene, step)
        action()
    scene.load.wait_for(20)


def run_chaos(seed: int, steps: Sequence[str], gap_s: float, pause_s: float) -> None:
    print(f"seed {seed}")
    with new_home() as home, scene(home, seed, pause_s) as here:
        with here.load.running(CALLERS):
            break_now_and_then(here, random.Random(seed), steps, gap_s)
        began = time.monotonic()
        rows = here.reader.rows
        wait_until_final(rows, wait_s=SETTLED_S)
        left = check_promises(rows, here.load, here.carrier.counts())
        audit(**here.node.settings)
        print(f"{left}; all final {time.monotonic() - began:.0f} s after the last send; {here.load.refused}")
        # What is unanswered or unrecorded when a worker or its line ends may arrive twice, no more.
        assert left.copies <= sum(step not in HARMLESS for step in steps) * BINDS * (WINDOW + UNRECORDED_MAX)
        assert set(here.load.refused) <= {500, 503}
        assert here.node.stop() == 0


KILLS: Final = ("kill_worker", "kill_second_worker", "kill_web", "kill_postgres")
FAULTS: Final = ("cut_lines", "hush_lines", "lose_lines", "silence_carrier")
# These end no line between a worker and the carrier.
HARMLESS: Final = frozenset({"kill_web", "hush_lines"})


@pytest.mark.long
def test_kills_and_cuts_under_load_lose_nothing_and_repeat_only_what_was_in_doubt() -> None:
    steps = ["kill_worker", "kill_postgres"]
    run_chaos(1, steps, gap_s=0.2, pause_s=0.05)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_minutes_of_kills_and_cuts_lose_nothing_and_repeat_only_what_was_in_doubt() -> None:
    seed = int(os.environ.get("CHAOS_SEED", "2"))
    chance = random.Random(seed)
    steps = [chance.choice([*KILLS, *FAULTS]) for _ in range(50)]
    run_chaos(seed, steps, gap_s=2.5, pause_s=0.25)


# What the simulator took in the moment before its death may not be in its file yet.
UNWRITTEN_S: Final = 0.2


@pytest.mark.long
def test_when_the_simulator_itself_is_killed_everything_still_reaches_a_handset() -> None:
    with new_home() as home, running(home, log_level="warning") as node:
        settings = node.settings
        url = f"smpp://simulator:simulate@127.0.0.1:{node.simulator_port}?window={WINDOW}&tps=0&doubt_wait=2"
        add_carrier("simulator", url, **settings)
        load = Load(node.base, open_account(**settings), seed=3, pause_s=0.02)
        reader = Reader(Path(settings["data_dir"]))
        with load.running(CALLERS):
            load.wait_for(60)
            part = node.part("simulator")
            assert part is not None
            until(lambda: reader.rows("SELECT FROM in_flight LIMIT 1"), "nothing is under way")
            _kill(part.pid)
            killed_at = time.time()
            node.wait_for_words("simulator ended with code")
            load.wait_for(30)
        # The receipts that it had not sent died with it, so some messages stay sent.
        wait_until_final(reader.rows, ("queued", "sending"), SETTLED_S)
        until(lambda: _is_still(reader), "receipts still come", SETTLED_S)
        arrived = _arrived(Path(settings["data_dir"]))
        for row in reader.rows(
            "SELECT m.recipient, b.body, p.submitted_at FROM messages m JOIN batches b ON b.id = m.batch_id"
            " JOIN parts p ON p.message_id = m.id"
        ):
            if killed_at - UNWRITTEN_S < row["submitted_at"].timestamp() <= killed_at:
                arrived.setdefault((row["recipient"], row["body"]), 1)
        left = check_promises(reader.rows, load, arrived, unfinished=["sent"])
        audit(**settings)
        stuck = reader.rows("SELECT count(*) FROM messages WHERE status = 'sent'")[0][0]
        print(f"{left}; {stuck} without a receipt")
        assert left.copies <= WINDOW


def _is_still(reader: Reader) -> bool:
    count = "SELECT count(*) FROM messages WHERE status = 'sent'"
    before = reader.rows(count)
    time.sleep(1)
    return reader.rows(count) == before


def _arrived(data_dir: Path) -> "dict[tuple[str, str], int]":
    counts: Counter[tuple[str, str]] = Counter()
    for file in sorted(directory_in(data_dir).glob("texts-*.jsonl")):
        for line in file.read_text().splitlines():
            if line.startswith("{") and line.endswith("}"):
                text: Mapping[str, str] = json.loads(line)
                counts[text["to"], text["text"]] += 1
    return dict(counts)


@asynccontextmanager
async def engine_behind_line(url: str) -> AsyncIterator[tuple[Engine, Engine, DatabaseLine]]:
    with open_directory("tumira-line-") as directory:
        async with (
            DatabaseLine(directory, url).open() as line,
            open_engine(url) as engine,
            open_engine(line.url) as behind,
        ):
            yield engine, behind, line


async def send_and_hold_the_claim(engine: Engine, behind: Engine, line: DatabaseLine) -> "asyncio.Task[None]":
    caller = await engine.open_account()
    line.hold_next_claim()
    worker = behind.start_worker()
    await engine.send(caller, numbers(5))
    async with asyncio.timeout(20):
        await line.held.wait()
    assert await engine.statuses() == {"sending": 5}
    return worker


async def test_a_claim_whose_commit_was_not_heard_of_is_submitted_all_the_same(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By themselves they are looked for a few times a minute, and wait for a receipt for half a minute then.
    monkeypatch.setattr(supervisor, "LOST_CLAIM_S", 0.5)
    monkeypatch.setattr(supervisor, "DOUBT_WAIT_S", 1)
    async with run_smsc() as smsc, engine_behind_line(database_url) as (engine, behind, line):
        await engine.add_carrier("main", smsc.port)
        await send_and_hold_the_claim(engine, behind, line)
        line.cut()
        # The worker lives and says so: nobody else will ever take these from it.
        await engine.until_all("delivered")
        assert set(smsc.texts.counts.values()) == {1}
        assert await engine.audit() == []


@pytest.mark.long
async def test_a_worker_that_ends_in_the_middle_of_a_claim_leaves_nothing_in_doubt(database_url: str) -> None:
    async with run_smsc() as smsc, engine_behind_line(database_url) as (engine, behind, line):
        await engine.add_carrier("main", smsc.port)
        worker = await send_and_hold_the_claim(engine, behind, line)
        ending = asyncio.create_task(behind.stop_worker(worker))
        # It is told to end while it waits for the answer.
        await asyncio.wait({ending}, timeout=0.5)
        line.release()
        await ending
        assert await engine.rows("SELECT FROM in_flight") == []
        assert await engine.rows("SELECT FROM incidents") == []
        engine.start_worker()
        await engine.until_all("delivered")
        assert set(smsc.texts.counts.values()) == {1}
        assert await engine.audit() == []


@pytest.mark.long
async def test_a_receipt_that_matches_nothing_holds_up_no_other(database_url: str) -> None:
    misbehaviours = [ReceiptBeforeResponse(300)]
    async with run_smsc(misbehaviours=misbehaviours) as smsc, open_engine(database_url) as engine:
        await engine.add_carrier("main", smsc.port)
        engine.start_worker()
        await engine.send(await engine.open_account(), numbers(1))
        await engine.until_all("delivered")
        assert await engine.audit() == []


async def take_for_dead(engine: Engine) -> int:
    async with engine.database.transaction() as connection:
        rows = await connection.fetch("SELECT message_id, worker, carrier_id FROM in_flight")
        outcomes = [LeftInDoubt(row["message_id"], row["carrier_id"], 2, "its worker died") for row in rows]
        return await settle(connection, outcomes, worker=rows[0]["worker"]) if rows else 0


@pytest.mark.long
async def test_an_answer_ends_the_doubt_of_a_worker_that_was_taken_for_dead(database_url: str) -> None:
    async with run_smsc(misbehaviours=[ResponseDelay(500)]) as smsc, open_engine(database_url) as engine:
        await engine.add_carrier("main", smsc.port)
        engine.start_worker()
        await engine.send(await engine.open_account(), numbers(20))

        async def all_submitted() -> bool:
            return smsc.submits.received == 20

        await engine.until(all_submitted, "nothing is submitted")
        assert await take_for_dead(engine) == 20
        await engine.until_all("delivered")
        assert await engine.audit() == []
        assert await engine.rows("SELECT FROM incidents WHERE kind = 'resend'") == []
        assert set(smsc.texts.counts.values()) == {1}
