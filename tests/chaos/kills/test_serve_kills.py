"""Random kills of every process of `tumira serve`: it never gives up, comes back, and stops when asked."""

import json
import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.postgres.embedded import wait_for
from tests.support.processes.programs import (
    WORKERS,
    Node,
    Process,
    descendants,
    new_home,
    part_of,
    running,
    tumira,
)
from tests.support.processes.service import NO_TLS

PARTS: Final = ("web", *WORKERS, "simulator", "postgres")
# Everything that `serve` starts, in the order in which it first appears on a new machine.
APPEARING: Final = ("initdb", "postgres", "psql", "simulator", *WORKERS[1:], "web", "worker")
KILLS_EVERY_S: Final = 4.0
BACK_WITHIN_S: Final = 15.0
PROBE_EVERY_S: Final = 0.1
PROBE_TIMEOUT_S: Final = 2.0
LONG_KILLS: Final = 50
LONG_STARTS: Final = 25


def name_of(process: Process) -> str:
    """Return what a process of a node is: a part, `backend`, or the name of its program."""
    words = process.words
    program = Path(words[0]).name if words and words[0] else ""
    if program.startswith("postgres:"):
        return "backend"
    if program == "postgres":
        # What initdb starts takes no connections.
        return "initdb" if {"--boot", "--single", "--check", "-V"} & set(words) else "postgres"
    return part_of(words) or program


def processes_of(node: Node) -> dict[str, list[Process]]:
    found: dict[str, list[Process]] = {}
    for process in descendants(node.process.pid):
        if process.lives:
            found.setdefault(name_of(process), []).append(process)
    return found


def kill(process: Process) -> None:
    # It may end between the two.
    with suppress(ProcessLookupError):
        if process.lives:
            os.kill(process.pid, signal.SIGKILL)


def kill_one(node: Node, chance: random.Random) -> str:
    found = processes_of(node)
    if not found:
        return "nothing"
    name = chance.choice(sorted(found))
    kill(chance.choice(found[name]))
    return name


def still_serves(node: Node) -> bool:
    assert node.process.poll() is None, node.said()
    return node.status("/readyz") == httpx.codes.OK


def wait_until_ready(node: Node) -> None:
    wait_for(lambda: still_serves(node))


def check_audit(node: Node) -> None:
    audit = tumira("audit", "--json", **node.settings)
    assert audit.returncode == 0, audit.stdout + audit.stderr


@contextmanager
def started(home: Path) -> Iterator[Node]:
    node = Node(home)
    node.start()
    try:
        yield node
    finally:
        node.abandon()


def check_stop(node: Node, parts: Sequence[Process]) -> None:
    """Check that a node stops when it is asked, and leaves nothing behind."""
    assert node.stop() == 0, node.said()
    assert node.said().endswith("Stopped.\n")
    wait_for(lambda: not [part.words for part in parts if part.lives])


@dataclass(slots=True)
class Caller:
    node: Node
    key: str
    answered_s: float = 0.0
    asked_s: float = 0.0
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Ask until told to stop."""
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx.Client(timeout=PROBE_TIMEOUT_S, trust_env=False, verify=NO_TLS, headers=headers) as client:
            while not self.is_over.is_set():
                began = time.monotonic()
                try:
                    status = client.get(f"{self.node.base}/api/v1/balance").status_code
                except httpx.TransportError:
                    status = 0
                self.is_over.wait(PROBE_EVERY_S)
                took_s = time.monotonic() - began
                self.asked_s += took_s
                if status == httpx.codes.OK:
                    self.answered_s += took_s


@contextmanager
def calling(node: Node) -> Iterator[Caller]:
    person = ("--phone", "+263771200019", "--name", "Caller", "--business", "Caller")
    made = tumira("account", "create", *person, "--rate", "100000", "--json", **node.settings)
    account = json.loads(made.stdout)["account_id"]
    made = tumira("key", "create", "--account", account, "--name", "caller", "--json", **node.settings)
    caller = Caller(node, json.loads(made.stdout)["key"])
    thread = threading.Thread(target=caller.run)
    thread.start()
    try:
        yield caller
    finally:
        caller.is_over.set()
        thread.join()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_while_it_starts_for_the_first_time_it_comes_up_all_the_same() -> None:
    with new_home() as home, started(home) as node:
        for name in APPEARING:
            wait_for(partial(kill_if_there, node, name))
        wait_until_ready(node)
        node.wait_until_ready()
        kill(processes_of(node)["postgres"][0])
        # Web is there, and its database is being started again.
        assert node.stop() == 0, node.said()
        assert node.said().endswith("Stopped.\n")


def kill_if_there(node: Node, name: str) -> bool:
    """Kill the process of this name, and tell whether there was one or the node has got past it."""
    assert node.process.poll() is None, node.said()
    found = processes_of(node)
    for process in found.get(name, ()):
        kill(process)
    later = APPEARING[APPEARING.index(name) + 1 :]
    # Short ones may be over before we look.
    return name in found or (name in {"initdb", "psql"} and any(one in found for one in later))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_every_four_seconds_it_never_gives_up_and_answers_half_of_the_time() -> None:
    chance = random.Random(17)
    killed: list[str] = []
    with new_home() as home:
        began = time.monotonic()
        with running(home) as node:
            # What this machine takes for a whole start now; a slower one gets the same share of rest.
            start_s = time.monotonic() - began
            every_s = max(KILLS_EVERY_S, 0.6 * start_s)
            with calling(node) as caller:
                for _ in range(LONG_KILLS):
                    time.sleep(every_s * chance.uniform(0.5, 1.5))
                    killed.append(kill_one(node, chance))
                    if chance.random() < 1 / 8:
                        # While everything is being started again.
                        time.sleep(chance.uniform(0, 1))
                        killed.append(kill_one(node, chance))
                    assert node.process.poll() is None, node.said()
            last = time.monotonic()
            wait_until_ready(node)
            back_s = time.monotonic() - last
            share = caller.answered_s / caller.asked_s
            print(f"{len(killed)} kills every {every_s:.1f} s, start {start_s:.1f} s, {share:.0%} answered")
            print(f"back {back_s:.1f} s after the last one")
            assert set(killed) >= {*PARTS, "backend"}
            assert share >= 0.5, node.said()[-5000:]
            assert back_s <= max(BACK_WITHIN_S, 2 * start_s), node.said()[-5000:]
            check_audit(node)
            check_stop(node, descendants(node.process.pid))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_at_any_moment_of_its_start_it_comes_up_and_stops_at_any_other() -> None:
    chance = random.Random(18)
    with new_home() as home:
        began = time.monotonic()
        with running(home):
            start_s = time.monotonic() - began
        for _ in range(LONG_STARTS):
            with started(home) as node:
                for _ in range(chance.randint(1, 4)):
                    time.sleep(chance.uniform(0, start_s / 2))
                    kill_one(node, chance)
                if chance.random() < 1 / 2:
                    wait_until_ready(node)
                else:
                    # Its handlers are there when PostgreSQL is.
                    wait_for(lambda: "postgres" in processes_of(node))
                parts = descendants(node.process.pid)
                check_stop(node, parts)
        with running(home) as node:
            check_audit(node)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_serve_itself_killed_again_and_again_can_be_started_at_once() -> None:
    chance = random.Random(19)
    with new_home() as home:
        node = Node(home)
        for turn in range(10):
            node.start()
            if turn % 2:
                wait_until_ready(node)
            else:
                time.sleep(chance.uniform(0, 4))
            node.process.kill()
            node.process.wait()
        node.start()
        try:
            wait_until_ready(node)
            check_audit(node)
        finally:
            node.abandon()
