"""A version with further migrations starts beside nodes of this one, and takes over from them."""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.support.chaos.breakable import CarrierThread
from tests.support.chaos.node import until
from tests.support.postgres.databases import execute
from tests.support.processes.ports import free_port
from tests.support.processes.programs import CHECKOUT, TUMIRA, environment
from tests.support.processes.service import NO_TLS, new_caller, run_on, wait_until_ready
from tests.support.sending.batchers import broken_promises
from tumira.carriers.manage import add_carrier

RUN_S: Final = 120
SENDS_BETWEEN: Final = 10
SQL_OPEN: Final = "SELECT FROM messages WHERE status IN ('queued', 'sending', 'sent')"
FURTHER: Final = {
    "9001_cups_pre.sql": "ALTER TABLE accounts ADD COLUMN cups integer NOT NULL DEFAULT 0;\n",
    "9002_index_pre.sql": (
        "-- outside a transaction\n"
        "CREATE INDEX IF NOT EXISTS messages_by_cost ON ONLY messages (cost);\n"
        "-- for each week of messages without messages_by_cost\n"
        "DROP INDEX CONCURRENTLY IF EXISTS {week}_by_cost;\n"
        "CREATE INDEX CONCURRENTLY {week}_by_cost ON {week} (cost);\n"
        "ALTER INDEX messages_by_cost ATTACH PARTITION {week}_by_cost;\n"
    ),
    "9003_cups_post.sql": "DROP TABLE upload_faults;\n",
}


@dataclass(frozen=True, slots=True)
class Release:
    """The code of one version, on one database."""

    root: Path
    url: str

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        process = self._start(*arguments)
        out, err = process.communicate(timeout=RUN_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out.decode(), err.decode())

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    @contextmanager
    def web(self, port: int) -> Iterator["subprocess.Popen[bytes]"]:
        with self._running("web", port=port) as process:
            wait_until_ready(f"http://127.0.0.1:{port}", process)
            yield process

    @contextmanager
    def worker(self) -> Iterator["subprocess.Popen[bytes]"]:
        bound = "SELECT FROM binds WHERE state = 'bound' AND split_part(worker, ':', 2) = $1"
        with self._running("worker") as process:
            until(lambda: execute(self.url, bound, str(process.pid)), "the worker is not bound")
            yield process

    @contextmanager
    def _running(self, role: str, **settings: Any) -> Iterator["subprocess.Popen[bytes]"]:
        process = self._start(role, "--quiet", log_level="error", **settings)
        try:
            yield process
        finally:
            process.terminate()
            _, said = process.communicate(timeout=RUN_S)
        assert process.returncode == 0, said.decode()

    def _start(self, *arguments: str, **settings: Any) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*TUMIRA, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=environment(database_url=self.url, **settings) | {"PYTHONPATH": str(self.root)},
        )


@pytest.fixture
def later_root(tmp_path: Path) -> Path:
    """Give the code of a later version: ours with further migrations."""
    shutil.copytree(CHECKOUT / "tumira", tmp_path / "tumira")
    for name, text in FURTHER.items():
        (tmp_path / "tumira" / "postgres" / "migrations" / name).write_text(text)
    return tmp_path


class Sender:
    """A caller of one web process that notes accepted messages, and the first failure."""

    def __init__(self, port: int, key: str, first: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._key = key
        self._first = first
        self.stop = threading.Event()
        self.accepted: list[str] = []
        self.failed: list[str] = []

    @contextmanager
    def sending(self) -> Iterator["Sender"]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self.stop.set()
            thread.join()
            assert self.failed == []

    def wait_for_more(self) -> None:
        wanted = len(self.accepted) + SENDS_BETWEEN
        until(lambda: len(self.accepted) >= wanted or self.failed, "nothing is accepted")
        assert self.failed == []

    def _run(self) -> None:
        with httpx.Client(timeout=30, trust_env=False, verify=NO_TLS) as client:
            while not self.stop.wait(0.02):
                to = f"+2637712{self._first + len(self.accepted):05}"
                answer = client.post(
                    f"{self._base}/api/v1/messages",
                    headers={"Authorization": f"Bearer {self._key}"},
                    json={"channel": "sms", "to": to, "body": "Your code is 493817."},
                )
                if answer.status_code != httpx.codes.ACCEPTED:
                    self.failed.append(answer.text)
                    return
                self.accepted.append(to)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_later_version_migrates_beside_nodes_that_serve_and_takes_over(
    database_url: str, later_root: Path
) -> None:
    now, later = Release(CHECKOUT, database_url), Release(later_root, database_url)
    key = asyncio.run(new_caller(database_url, "1000", 100_000)).key
    ports = free_port(), free_port()
    with CarrierThread() as carrier:
        address = f"smpp://tester:secret@127.0.0.1:{carrier.port}?tps=0&binds=4"
        run_on(database_url, add_carrier, "main", address, None, 100)
        with ExitStack() as later_nodes:
            with (
                now.web(ports[0]) as web,
                now.worker() as worker,
                Sender(ports[0], key, 0).sending() as first,
            ):
                first.wait_for_more()
                later_nodes.enter_context(later.web(ports[1]))
                later_nodes.enter_context(later.worker())
                second = later_nodes.enter_context(Sender(ports[1], key, 20_000).sending())
                first.wait_for_more()
                second.wait_for_more()
                # Nothing is taken from nodes that may need it.
                refused = later.run("migrate", "--finish")
                assert refused.returncode == 1
                assert all(f":{process.pid}:" in refused.stderr for process in (web, worker)), refused
            assert later.json("migrate", "--finish")["applied"] == ["9003_cups_post"]
            second.wait_for_more()
            older = now.run("web", "--quiet")
            assert older.returncode != 0
            assert "is older than the database, from which 9003_cups_post has taken" in older.stderr
            second.stop.set()
            until(lambda: not execute(database_url, SQL_OPEN), "messages are not final")
        assert run_on(database_url, broken_promises) == []
        counts = carrier.counts()
    assert sorted(number for number, _ in counts) == sorted(first.accepted + second.accepted)
    assert set(counts.values()) == {1}
    assert execute(database_url, "SELECT FROM incidents") == []
