"""A node under load whose processes are killed, or whose disk is full, loses nothing that it accepted."""

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.postgres.databases import open_directory
from tests.support.processes.programs import Node, new_home, running, tumira
from tests.support.processes.service import NO_TLS

SENDERS: Final = 4
DISK_MB: Final = 320


@dataclass(slots=True)
class Load:
    """Callers that send with Idempotency-Keys, repeat what was not answered 202, and note what was."""

    node: Node
    key: str
    stop: threading.Event = field(default_factory=threading.Event)
    answered: dict[str, str] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)

    def run(self, name: int) -> None:
        """Be one caller until told to stop."""
        with httpx.Client(timeout=10, trust_env=False, verify=NO_TLS) as client:
            turn = 0
            while not self.stop.is_set():
                turn += 1
                self._send_until_accepted(client, f"sender-{name}-{turn}")

    def _send_until_accepted(self, client: httpx.Client, idempotency_key: str) -> None:
        while not self.stop.is_set():
            try:
                answer = client.post(
                    f"{self.node.base}/api/v1/messages",
                    headers={"Authorization": f"Bearer {self.key}", "Idempotency-Key": idempotency_key},
                    json={"channel": "sms", "to": "+27821230002", "body": "Your code is 493817."},
                )
            except httpx.TransportError:
                time.sleep(0.05)
                continue
            if answer.status_code == httpx.codes.ACCEPTED:
                self.answered[idempotency_key] = answer.json()["batch_id"]
                return
            self.refused.add(answer.status_code)
            time.sleep(0.05)


@contextmanager
def under_load(node: Node) -> Iterator[Load]:
    account = json.loads(
        tumira(
            *("account", "create", "--phone", "+263771200009", "--name", "Load", "--business", "Load"),
            *("--balance", "1000", "--rate", "100000", "--json"),
            **node.settings,
        ).stdout
    )
    made = tumira(
        "key", "create", "--account", account["account_id"], "--name", "load", "--json", **node.settings
    )
    load = Load(node, json.loads(made.stdout)["key"])
    senders = [threading.Thread(target=load.run, args=(name,)) for name in range(SENDERS)]
    for sender in senders:
        sender.start()
    try:
        yield load
    finally:
        load.stop.set()
        for sender in senders:
            sender.join()


def wait_for_answers(load: Load, more: int) -> None:
    deadline = time.monotonic() + 60
    wanted = len(load.answered) + more
    while len(load.answered) < wanted:
        assert time.monotonic() < deadline, load.node.said()
        time.sleep(0.05)


def check_nothing_lost(node: Node, load: Load) -> None:
    audit = tumira("audit", "--json", **node.settings)
    assert audit.returncode == 0, audit.stdout
    shown = json.loads(tumira("account", "list", "--json", **node.settings).stdout)
    balance = next(one["balance"] for one in shown if one["phone"] == "+263771200009")
    # Every key bills once. At most one send of each sender was under way when it was told to stop.
    billed = round((1000 - float(balance)) / 0.02)
    assert len(load.answered) <= billed <= len(load.answered) + SENDERS
    with httpx.Client(
        trust_env=False, verify=NO_TLS, headers={"Authorization": f"Bearer {load.key}"}
    ) as client:
        for batch_id in load.answered.values():
            assert client.get(f"{node.base}/api/v1/batches/{batch_id}").status_code == httpx.codes.OK


def kill_now_and_then(node: Node, load: Load, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(kills):
        wait_for_answers(load, chance.randint(5, 60))
        part = node.part(chance.choice(["web", "worker", "postgres"]))
        if part is not None:
            os.kill(part.pid, signal.SIGKILL)
    wait_for_answers(load, 20)


def test_kills_under_load_lose_nothing_and_bill_once() -> None:
    with new_home() as home, running(home) as node:
        with under_load(node) as load:
            for name in ("postgres", "web"):
                wait_for_answers(load, 10)
                victim = node.part(name)
                assert victim is not None
                os.kill(victim.pid, signal.SIGKILL)
            wait_for_answers(load, 10)
        check_nothing_lost(node, load)
        assert load.refused <= {500, 503}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_kills_under_load_lose_nothing_and_bill_once() -> None:
    with new_home() as home, running(home) as node:
        with under_load(node) as load:
            kill_now_and_then(node, load, kills=60, seed=2)
        check_nothing_lost(node, load)


@contextmanager
def small_disk() -> Iterator[Path]:
    with open_directory("tumira-disk-") as path:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=0755", "tmpfs", str(path)],
            check=False,
            capture_output=True,
        )
        if mounted.returncode != 0:
            pytest.skip("A disk of its own cannot be mounted here; run as root to try a full one.")
        try:
            yield path
        finally:
            subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.mark.long
def test_a_full_disk_refuses_and_loses_nothing() -> None:
    with small_disk() as home, running(home) as node:
        with under_load(node) as load:
            wait_for_answers(load, 50)
            ballast = home / "ballast"
            # Without a buffer: closing the file would try to write what is left in it once more.
            with ballast.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(1 << 20))
                except OSError:
                    pass
            wait_until_refused(load)
            ballast.unlink()
            wait_for_answers(load, 50)
        check_nothing_lost(node, load)
        assert load.refused <= {503}
        assert node.stop() == 0


def wait_until_refused(load: Load) -> None:
    """Wait until the room that was left inside PostgreSQL's files is used up too."""
    deadline = time.monotonic() + 60
    before = -1
    while not load.refused and time.monotonic() < deadline:
        if len(load.answered) == before:
            return
        before = len(load.answered)
        time.sleep(1.5)
    assert load.refused, "the disk did not fill up"
