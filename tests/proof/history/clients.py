"""Clients of the cluster that record all calls and answers.

Senders repeat what was not answered with the same Idempotency-Key, at any node, and sometimes the key of
another sender. Readers look at batches and at the balance, a limited customer calls as fast as it
may, and the operator tops up.
"""

import itertools
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, Final

import asyncpg
import httpx

from tests.proof.history.checks import FINAL, WAITING
from tests.proof.history.cluster import BALANCE, WEBS, Cluster
from tests.proof.history.record import SUFFIX, Recorder
from tests.support.processes.service import NO_TLS, run_on
from tumira.core.database_errors import UNAVAILABLE
from tumira.core.ids import MESSAGE, MessageId, read_id
from tumira.delivery.store import timeline
from tumira.delivery.store.timeline import Timeline
from tumira.identity.manage_accounts import credit
from tumira.postgres.pool import Database

SENDERS: Final = 3
LIMITED: Final = 2
LAST: Final = 4
CALL_S: Final = 8.0
PAUSE_S: Final = 0.2
TOP_UP: Final = "1.0000"
TOP_UP_EVERY_S: Final = 1.0
# The simulator's numbers of people who do not get their text, and get their money back.
NOT_IN_USE: Final = "9901"
# How many of the last keys and batches are repeated and looked at.
RECENT: Final = 40


@dataclass(frozen=True, slots=True)
class NewSend:
    key: str
    to: Sequence[str]
    body: str


class RecordedCaller:
    """One customer's connection, whose calls are recorded; it makes one at a time."""

    def __init__(self, cluster: Cluster, name: str, key: str, seed: int) -> None:
        self.recorder = Recorder(cluster.histories / f"{name}{SUFFIX}")
        self.chance = random.Random(f"{seed} {name}")
        self._bases = [cluster.bases[name] for name in WEBS]
        self._key = key
        self._client = httpx.Client(timeout=CALL_S, trust_env=False, verify=NO_TLS)

    def call(
        self,
        what: str,
        path: str,
        read: Callable[[httpx.Response], Mapping[str, Any]],
        given: Mapping[str, Any],
        send: NewSend | None = None,
    ) -> Mapping[str, Any] | None:
        """Ask any node, and return what it told; None if it refused or nothing is known."""
        headers = {"Authorization": f"Bearer {self._key}"}
        body = None
        if send is not None:
            headers["Idempotency-Key"] = send.key
            body = {"channel": "sms", "to": list(send.to), "body": send.body}
        url = f"{self.chance.choice(self._bases)}/api/v1{path}"
        operation = self.recorder.invoke(what, **given)
        try:
            answer = self._client.request("GET" if send is None else "POST", url, headers=headers, json=body)
        except httpx.TransportError as error:
            self.recorder.end(operation, "unknown", error=type(error).__name__)
            return None
        if answer.is_success:
            told = read(answer)
            self.recorder.end(operation, "ok", **told)
            return told
        code = answer.json()["error"]["code"]
        # What is in progress, or was committed and not answered in time, may have been done.
        is_known = answer.is_client_error and code != "IDEMPOTENCY_IN_PROGRESS"
        self.recorder.end(operation, "fail" if is_known else "unknown", status=answer.status_code, code=code)
        return None

    def close(self) -> None:
        self._client.close()
        self.recorder.close()

    def look(self, batch_id: str) -> Mapping[str, Any] | None:
        return self.call("batch", f"/batches/{batch_id}", _read_batch, {"batch_id": batch_id})


@dataclass(slots=True)
class Clients:
    """All of them, and what they share."""

    cluster: Cluster
    seed: int
    sent: int = 0
    # The last keys that were begun, keys without an answer, all batches, and those that may still change.
    recent: "deque[NewSend]" = field(default_factory=lambda: deque(maxlen=RECENT))
    unanswered: "dict[str, NewSend]" = field(default_factory=dict)
    batches: list[str] = field(default_factory=list)
    unfinished: "dict[str, None]" = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _numbers: "Iterator[int]" = field(default_factory=itertools.count)
    _running: "Sequence[Future[None]]" = ()

    @contextmanager
    def running(self) -> Iterator[None]:
        operator = Recorder(self.cluster.histories / f"operator{SUFFIX}")
        operator.note("open", account=self.cluster.customer.account_id, balance=BALANCE)
        workers: list[Callable[[], None]] = [
            *(partial(self._send_all, f"sender{place}") for place in range(SENDERS)),
            self._read_all,
            self._watch,
            *(partial(self._hurry, f"limited{place}") for place in range(LIMITED)),
            partial(self._top_up, operator),
        ]
        with ThreadPoolExecutor(len(workers)) as pool:
            self._running = [pool.submit(work) for work in workers]
            try:
                yield
            finally:
                self._stop.set()
        self.look_after()

    def look_after(self) -> None:
        """Raise what a client stumbled over."""
        for one in self._running:
            if one.done():
                one.result()

    def _send_all(self, name: str) -> None:
        with self._open(name) as caller:
            for turn in itertools.count():
                if self._stop.is_set():
                    return
                if self.recent and caller.chance.random() < 0.3:
                    self._send(caller, caller.chance.choice(self.recent))
                else:
                    new = self._new_send(f"{name}-{turn}", caller.chance)
                    self.unanswered[new.key] = new
                    self.recent.append(new)
                    while not self._send(caller, new) and not self._stop.wait(PAUSE_S):
                        pass
                self._stop.wait(caller.chance.uniform(0, 2 * PAUSE_S))

    @contextmanager
    def _open(self, name: str, key: str = "") -> Iterator[RecordedCaller]:
        caller = RecordedCaller(self.cluster, name, key or self.cluster.customer.key, self.seed)
        try:
            yield caller
        finally:
            caller.close()

    def _new_send(self, key: str, chance: random.Random) -> NewSend:
        count = chance.randint(51, 55) if chance.random() < 0.03 else chance.randint(1, 3)
        numbers = [self._number() for _ in range(count)]
        if chance.random() < 0.2:
            numbers[0] = numbers[0][:-4] + NOT_IN_USE
        return NewSend(key, list(dict.fromkeys(numbers)), f"Your order {key} is ready.")

    def _number(self) -> str:
        place = next(self._numbers) % 100_000
        number = f"+2637712{place:05}"
        # Others of these mean something to the simulator.
        return self._number() if number[-4:-2] == "99" else number

    def _send(self, caller: RecordedCaller, send: NewSend) -> bool:
        given = {
            "account": self.cluster.customer.account_id,
            "key": send.key,
            "to": send.to,
            "body": send.body,
        }
        told = caller.call("send", "/messages", _read_sent, given, send)
        if told is None:
            return False
        if self.unanswered.pop(send.key, None) is not None:
            self.sent += 1
            self.batches.append(told["batch_id"])
            self.unfinished[told["batch_id"]] = None
        return True

    def _read_all(self) -> None:
        with self._open("reader") as reader:
            while not self._stop.is_set():
                self._read_balance(reader)
                for batch_id in self._some(reader.chance):
                    told = reader.look(batch_id)
                    if told is not None and _is_over(told):
                        self.unfinished.pop(batch_id, None)
                self._stop.wait(PAUSE_S)

    def _some(self, chance: random.Random) -> Sequence[str]:
        """Return some batches that may change, and one of all."""
        unfinished, all_of_them = list(self.unfinished), list(self.batches)
        return [
            *chance.sample(unfinished, min(2, len(unfinished))),
            *chance.sample(all_of_them, min(1, len(all_of_them))),
        ]

    def _watch(self) -> None:
        """Look at the newest batches, which change most."""
        with self._open("watcher") as watcher:
            while not self._stop.wait(PAUSE_S / 4):
                for batch_id in self.batches[-2:]:
                    watcher.look(batch_id)

    def _read_balance(self, caller: RecordedCaller) -> None:
        account = self.cluster.customer.account_id
        caller.call("balance", "/balance", httpx.Response.json, {"account": account})

    def _hurry(self, name: str) -> None:
        with self._open(name, self.cluster.limited.key) as caller:
            while not self._stop.is_set():
                if caller.call("call", "/balance", lambda _: {}, {}) is None:
                    self._stop.wait(PAUSE_S)

    def _top_up(self, recorder: Recorder) -> None:
        customer = self.cluster.customer
        while not self._stop.wait(TOP_UP_EVERY_S):
            operation = recorder.invoke("credit", account=customer.account_id, amount=TOP_UP)
            try:
                run_on(
                    self.cluster.ground.url,
                    credit,
                    customer.id,
                    Decimal(TOP_UP),
                    note="proof",
                    actor="proof",
                    is_payment=False,
                )
            except (*UNAVAILABLE, asyncpg.PostgresError) as error:
                recorder.end(operation, "unknown", error=type(error).__name__)
            else:
                recorder.end(operation, "ok")

    def settle(self, wait_s: float) -> None:
        """Once all faults are healed: repeat what was not answered, and look at all until it is at its end.

        Messages may stay `sent` whose receipts died with the carrier, or were lies.
        """
        with ExitStack() as stack:
            callers = [stack.enter_context(self._open(f"last{place}")) for place in range(LAST)]
            pool = stack.enter_context(ThreadPoolExecutor(LAST))
            deadline = time.monotonic() + wait_s
            while self.unanswered and time.monotonic() < deadline:
                self.cluster.revive()
                for send in list(self.unanswered.values()):
                    self._send(callers[0], send)
            sent_before = -1
            while time.monotonic() < deadline:
                self.cluster.revive()
                waiting, sent = self._look_at_all(pool, callers, list(self.unfinished))
                if not waiting and sent in {0, sent_before}:
                    break
                sent_before = sent
                time.sleep(0.5 if waiting else 2.0)
            self._look_at_all(pool, callers, self.batches)
            self._read_balance(callers[0])

    def _look_at_all(
        self, pool: ThreadPoolExecutor, callers: Sequence[RecordedCaller], batches: Sequence[str]
    ) -> tuple[int, int]:
        """Look at batches, each caller at some; return how many messages wait, and how many for receipts."""
        shares = [batches[place :: len(callers)] for place in range(len(callers))]
        counts = list(pool.map(self._look_at_share, callers, shares))
        return sum(waiting for waiting, _ in counts), sum(sent for _, sent in counts)

    def _look_at_share(self, caller: RecordedCaller, batches: Sequence[str]) -> tuple[int, int]:
        waiting = sent = 0
        for batch_id in batches:
            told = caller.look(batch_id)
            statuses = ["queued"] if told is None else [one["status"] for one in told["messages"]]
            waiting += sum(one in WAITING for one in statuses)
            sent += statuses.count("sent")
            if told is not None and _is_over(told):
                self.unfinished.pop(batch_id, None)
        return waiting, sent


def ask_for_timelines(cluster: Cluster, message_ids: Sequence[str]) -> None:
    """Record what the product says of messages that a carrier had more than once."""
    recorder = Recorder(cluster.histories / f"support{SUFFIX}")
    for message_id in message_ids:
        operation = recorder.invoke("timeline", message_id=message_id)
        found = run_on(cluster.server.local_url, _read_timeline, message_id)
        events = [] if found is None else [entry.event for entry in found.entries]
        recorder.end(operation, "ok", resends=events.count("resend"), events=events)


async def _read_timeline(database: Database, message_id: str) -> Timeline | None:
    found = read_id(MESSAGE, message_id)
    assert found is not None
    async with database.connection() as connection:
        return await timeline.read(connection, MessageId(found))


def _is_over(told: Mapping[str, Any]) -> bool:
    return all(one["status"] in FINAL for one in told["messages"])


def _read_sent(answer: httpx.Response) -> Mapping[str, Any]:
    told = answer.json()
    return {
        "response": answer.text,
        "batch_id": told["batch_id"],
        "accepted": told["accepted"],
        "cost": told["total_cost"],
        "after": told["balance_after"],
    }


def _read_batch(answer: httpx.Response) -> Mapping[str, Any]:
    told = answer.json()["data"]
    messages = [
        {
            "id": one["message_id"],
            "to": one["to"],
            "status": one["status"],
            "cost": one["cost"],
            "refunded": "refunded_at" in one,
        }
        for one in told["messages"]
    ]
    return {"recipients": told["recipients"], "cost": told["total_cost"], "messages": messages}
