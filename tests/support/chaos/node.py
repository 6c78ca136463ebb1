"""Web and worker processes under load."""

import asyncio
import itertools
import json
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import asyncpg
import httpx

from tests.support.processes.programs import Process, descendants, start, tumira
from tests.support.processes.service import NO_TLS
from tumira.core.ids import BATCH, read_id
from tumira.postgres.embedded import server as embedded

PATIENCE_S: Final = 60.0
STOP_S: Final = 30.0
BALANCE: Final = Decimal(10_000)
PHONE: Final = "+263771200008"
# The simulator's numbers of people who do not get their text, and get their money back.
NOT_IN_USE: Final = "9901"
# A carrier has these, or had them.
HANDED_OVER: Final = ("sent", "delivered", "undelivered", "unconfirmed")


def until(what: Callable[[], object], why: str | Callable[[], str], wait_s: float = PATIENCE_S) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + wait_s
    while not what():
        assert time.monotonic() < deadline, why() if callable(why) else why
        time.sleep(0.05)


class NodeProcess:
    """A `tumira web` or `tumira worker` of its own, with options; `prefix` is a command that runs another."""

    def __init__(self, command: str, log: Path, prefix: Sequence[str] = (), **settings: Any) -> None:
        self._words = [*command.split(), "--quiet"]
        self._settings = {"log_level": "warning"} | settings
        self._prefix = prefix
        self._log = log
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        self.process = start(*self._words, stdout=subprocess.DEVNULL, prefix=self._prefix, **self._settings)
        # Read all the time, or it would wait for us at a full pipe.
        threading.Thread(target=self._keep, args=(self.process,), daemon=True).start()

    def _keep(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stderr is not None
        with self._log.open("ab") as log, process.stderr as lines:
            for line in lines:
                log.write(line)
                log.flush()

    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.terminate()
            self.process.wait(STOP_S)
        self.kill()

    def stop(self, wait_s: float = STOP_S) -> float:
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(wait_s) == 0, self.said()
        return time.monotonic() - began


class WorkerProcess(NodeProcess):
    def __init__(self, log: Path, *, webhooks: str = "on", **settings: Any) -> None:
        super().__init__(f"worker --webhooks {webhooks}", log, **settings)


def children_of(process: Process) -> Sequence[Process]:
    return [process, *descendants(process.pid)]


@dataclass(frozen=True, slots=True)
class Sent:
    """A send that was answered 202."""

    batch_id: UUID
    to: Sequence[str]
    body: str
    at: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class Load:
    """Callers that send with Idempotency-Keys, repeat what was not answered 202, and note what was.

    With several nodes they do what a balancer would: who does not get an answer, or 503, asks the next one.
    """

    base: str
    key: str
    seed: int
    large_max: int = 200
    pause_s: float = 0.0
    more_bases: Sequence[str] = ()
    accepted: list[Sent] = field(default_factory=list)
    begun: dict[str, Sequence[str]] = field(default_factory=dict)
    refused: Counter[int] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _callers: "Sequence[Future[None]]" = ()

    @property
    def messages(self) -> int:
        return sum(len(sent.to) for sent in self.accepted)

    @contextmanager
    def running(self, callers: int) -> Iterator[None]:
        with ThreadPoolExecutor(callers) as pool:
            self._callers = [pool.submit(self._run, name) for name in range(callers)]
            try:
                yield
            finally:
                self._stop.set()
            for one in self._callers:
                one.result(PATIENCE_S)

    def wait_for(self, more: int) -> None:
        wanted = len(self.accepted) + more
        until(
            lambda: len(self.accepted) >= wanted or any(one.done() for one in self._callers),
            f"no more sends are accepted; refused: {self.refused}",
        )
        for one in self._callers:
            if one.done():
                one.result()

    def _run(self, name: int) -> None:
        chance = random.Random(self.seed * 1000 + name)
        with httpx.Client(timeout=15, trust_env=False, verify=NO_TLS) as client:
            for turn in itertools.count():
                if self._stop.is_set():
                    return
                token = f"{self.seed}-{name}-{turn}"
                large = chance.random() < 0.15
                count = chance.randint(51, self.large_max) if large else chance.randint(1, 3)
                self._send(client, name, token, [self._number() for _ in range(count)])
                self._stop.wait(self.pause_s)

    def _number(self) -> str:
        """Return a number that gets one text only, so that nothing can be taken for anything else."""
        place = next(self._numbers)
        assert place < 108_000, "there are no more numbers"
        number = f"+2637712{place:05}" if place < 100_000 else f"+2782123{place - 100_000:04}"
        # Of the numbers that mean something to the simulator one is used, for the refunds.
        return (
            number
            if number[-4:-2] != "99"
            else number[:-4] + NOT_IN_USE
            if number[-2:] == "01"
            else self._number()
        )

    def _send(self, client: httpx.Client, name: int, token: str, to: Sequence[str]) -> None:
        body = f"Your code is 493817, ref {token}."
        self.begun[body] = to
        bases = [self.base, *self.more_bases]
        deadline = time.monotonic() + PATIENCE_S
        for turn in itertools.count(name):
            if time.monotonic() > deadline:
                break
            try:
                answer = client.post(
                    f"{bases[turn % len(bases)]}/api/v1/messages",
                    headers={"Authorization": f"Bearer {self.key}", "Idempotency-Key": f"chaos-{token}"},
                    json={"channel": "sms", "to": to, "body": body},
                )
            except httpx.TransportError:
                time.sleep(0.1)
                continue
            if answer.status_code == httpx.codes.ACCEPTED:
                told = answer.json()
                assert told["accepted"] == len(to), told
                batch_id = read_id(BATCH, told["batch_id"])
                assert batch_id is not None
                self.accepted.append(Sent(batch_id, to, body))
                return
            self.refused[answer.status_code] += 1
            assert answer.is_server_error, answer.text
            assert answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or "Retry-After" in answer.headers
            time.sleep(0.1)
        raise AssertionError(f"{token} was not accepted in {PATIENCE_S:g} s; refused: {self.refused}")


def open_account(phone: str = PHONE, rate: int = 100_000, **settings: Any) -> str:
    account = _json(
        *("account", "create", "--phone", phone, "--name", "Chaos", "--business", "Chaos"),
        *("--balance", str(BALANCE), "--rate", str(rate)),
        **settings,
    )
    key = _json("key", "create", "--account", account["account_id"], "--name", "chaos", **settings)["key"]
    assert isinstance(key, str)
    return key


def _json(*arguments: str, **settings: Any) -> Any:
    done = tumira(*arguments, "--json", **settings)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def add_carrier(name: str, url: str, **settings: Any) -> None:
    _json("carrier", "add", name, url, **settings)


def remove_carrier(name: str, **settings: Any) -> None:
    _json("carrier", "remove", name, **settings)


class Reader:
    """Looks into the database of a node, whose server may have been killed since the last look."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def _url(self) -> str | None:
        return embedded.attach(self._data_dir)

    def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement; a server that is away is waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                url = self._url()
                if url is None:
                    # A node that starts its server again lets go of the directory for a moment.
                    raise ConnectionError
                return asyncio.run(_fetch(url, statement, *arguments))
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                assert time.monotonic() < deadline, "the database does not come back"
                time.sleep(0.1)


class UrlReader(Reader):
    """Looks into a database that is reached by an address, which may name several servers."""

    def __init__(self, url: str) -> None:
        self._address = url

    def _url(self) -> str | None:
        return self._address


async def _fetch(url: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url, timeout=5)
    try:
        return await connection.fetch(statement, *arguments)
    finally:
        await connection.close()


Rows = Callable[..., list[asyncpg.Record]]


def wait_until_final(
    rows: Rows, statuses: Sequence[str] = ("queued", "sending", "sent"), wait_s: float = PATIENCE_S
) -> None:
    """Wait until no message stands in one of these statuses."""
    deadline = time.monotonic() + wait_s
    while open_ones := rows(
        "SELECT status, count(*), min(id::text) AS first FROM messages WHERE status = ANY($1)"
        " GROUP BY status",
        statuses,
    ):
        assert time.monotonic() < deadline, describe(rows, open_ones[0]["first"], open_ones)
        time.sleep(0.25)


def describe(rows: Rows, message_id: str, open_ones: Sequence[asyncpg.Record]) -> str:
    where = {
        table: [dict(row) for row in rows(f"SELECT * FROM {table} WHERE message_id = $1::uuid", message_id)]
        for table in ("queue", "in_flight", "retries", "parts", "incidents")
    }
    workers = [dict(row) for row in rows("SELECT *, clock_timestamp() AS now FROM workers")]
    binds = [dict(row) for row in rows("SELECT * FROM binds")]
    return f"not final: {[dict(row) for row in open_ones]}; one of them: {where}; {workers}; {binds}"


@dataclass(frozen=True, slots=True)
class Account:
    """What is left after a chaos, to be printed."""

    messages: int
    doubted: int
    resent: int
    copies: int


class Callers(Protocol):
    """Who sent from one account."""

    @property
    def accepted(self) -> Sequence[Sent]:
        """What was answered 202."""

    @property
    def begun(self) -> Mapping[str, Sequence[str]]:
        """All that they tried to send: the numbers of each text."""


def check_promises(
    rows: Rows,
    load: Callers,
    arrived: Mapping[tuple[str, str], int],
    unfinished: Sequence[str] = (),
    phone: str = PHONE,
) -> Account:
    """Check that what was accepted is there and came to its end, and that each text arrived once."""
    found = {
        (row["recipient"], row["body"]): row
        for row in rows(
            "SELECT m.id, m.batch_id, m.recipient, m.status, m.cost, m.refunded_at, m.failure_reason, b.body,"
            " (SELECT count(*) FROM incidents i WHERE i.message_id = m.id AND i.kind = 'doubt') AS doubts,"
            " (SELECT count(*) FROM incidents i WHERE i.message_id = m.id AND i.kind = 'resend') AS resends"
            " FROM messages m JOIN batches b ON b.id = m.batch_id JOIN accounts a ON a.id = b.account_id"
            " WHERE a.phone = $1",
            phone,
        )
    }
    _check_accepted(load, found)
    _check_ends(found, arrived, unfinished)
    _check_copies(found, arrived)
    _check_money(rows, found, phone)
    (counted,) = rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    assert counted["deadlocks"] == 0, "two transactions waited for each other"
    return Account(
        len(found),
        sum(row["doubts"] > 0 for row in found.values()),
        sum(row["resends"] for row in found.values()),
        sum(count - 1 for count in arrived.values()),
    )


def _check_accepted(load: Callers, found: Mapping[tuple[str, str], asyncpg.Record]) -> None:
    for sent in load.accepted:
        for number in sent.to:
            row = found.get((number, sent.body))
            assert row is not None, f"accepted and not there: {number} {sent.body}"
            assert row["batch_id"] == sent.batch_id, f"accepted twice: {sent.body}"
    # Nothing else is there, and nothing twice: each number got one text.
    begun = {(number, body) for body, to in load.begun.items() for number in to}
    assert found.keys() <= begun


def _check_ends(
    found: Mapping[tuple[str, str], asyncpg.Record],
    arrived: Mapping[tuple[str, str], int],
    unfinished: Sequence[str],
) -> None:
    wrong = []
    for (number, body), row in found.items():
        expected = "undelivered" if number.endswith(NOT_IN_USE) else "delivered"
        ended_well = row["status"] == expected or row["status"] in unfinished
        handed_over = row["status"] in HANDED_OVER and expected == "delivered"
        if not ended_well or (handed_over and not arrived.get((number, body))):
            wrong.append((dict(row), arrived.get((number, body), 0)))
    assert not wrong, f"{len(wrong)} messages ended in a wrong way, such as {wrong[:5]}"


def _check_copies(
    found: Mapping[tuple[str, str], asyncpg.Record], arrived: Mapping[tuple[str, str], int]
) -> None:
    # A call may have been committed without its answer, so what arrived need not have been answered 202.
    assert arrived.keys() <= found.keys()
    wrong = [
        (dict(found[one]), count)
        for one, count in arrived.items()
        if count > 1 and count - 1 > found[one]["resends"]
    ]
    assert not wrong, f"{len(wrong)} texts arrived more often than they were in doubt, such as {wrong[:5]}"


def _check_money(rows: Rows, found: Mapping[tuple[str, str], asyncpg.Record], phone: str) -> None:
    for row in found.values():
        assert (row["refunded_at"] is not None) == (row["status"] == "undelivered"), dict(row)
    spent = sum((row["cost"] for row in found.values() if row["refunded_at"] is None), Decimal(0))
    (account,) = rows("SELECT balance FROM accounts WHERE phone = $1", phone)
    assert account["balance"] == BALANCE - spent


def audit(**settings: Any) -> None:
    done = tumira("audit", "--json", **settings)
    assert done.returncode == 0, done.stdout


async def first_true(condition: Callable[[], Awaitable[bool]], why: str, wait_s: float = PATIENCE_S) -> None:
    """Wait until something is so, without holding up the event loop."""
    deadline = time.monotonic() + wait_s
    while not await condition():
        assert time.monotonic() < deadline, why
        await asyncio.sleep(0.02)


@contextmanager
def ended_at_last(worker: WorkerProcess) -> Iterator[WorkerProcess]:
    try:
        yield worker
    finally:
        worker.end()
