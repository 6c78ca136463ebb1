"""Restore of a database to a moment."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.delivery.engine import numbers, open_engine
from tests.support.postgres.databases import execute
from tests.support.postgres.embedded import wait_for
from tests.support.processes.forked_commands import run_forked
from tests.support.processes.programs import environment, finish, new_home, one_line, start
from tests.support.processes.service import Caller
from tests.support.sending.batchers import send_call, until_accepted
from tumira.postgres.embedded import server as embedded
from tumira.runtime import prepare

EARLY: Final = numbers(3)
BEFORE: Final = numbers(3, start=10)
AFTER: Final = numbers(3, start=20)

SQL_KEPT: Final = """
SELECT FROM pg_stat_replication
 WHERE application_name = 'pg_receivewal'
   AND flush_lsn >= $1::text::pg_lsn
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with new_home() as path:
        yield path


async def _open(url: str) -> Caller:
    await prepare(url, lambda _line: None)
    async with open_engine(url) as engine:
        await engine.add_carrier("one", 2775)
        return await engine.open_account()


async def _send(url: str, caller: Caller, to: list[str]) -> None:
    async with open_engine(url) as engine:
        await until_accepted(engine.batcher, send_call(caller, to, idempotency_key=to[0]))


def command(home: Path, data: str, *words: str | Path) -> Any:
    done = run(home, data, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(home: Path, data: str, *words: str | Path) -> "subprocess.CompletedProcess[str]":
    return run_forked([str(word) for word in words], environment(data_dir=home / data), "/", None)


def _back_up(home: Path, url: str) -> datetime:
    """Keep the log, copy the base, send on, and return a moment after which some were sent."""
    caller = asyncio.run(_open(url))
    with _keeping_the_log(home, url):
        return _back_up_base(home, url, caller)


@contextmanager
def _keeping_the_log(home: Path, url: str) -> Iterator[None]:
    keeping = start("backup", "--wal", str(home / "wal"), data_dir=home / "first")
    try:
        wait_for(lambda: execute(url, SQL_KEPT, "0/0"))
        yield
        keeping.send_signal(signal.SIGINT)
        assert finish(keeping).returncode == 0
    finally:
        keeping.kill()
        # Shown when the test fails.
        print(*keeping.communicate())


def _back_up_base(home: Path, url: str, caller: Caller) -> datetime:
    asyncio.run(_send(url, caller, list(EARLY)))
    base = command(home, "first", "backup", "--base", home / "base")
    assert base["bytes"] > 10_000_000
    asyncio.run(_send(url, caller, list(BEFORE)))
    moment: datetime = execute(url, "SELECT clock_timestamp()")[0][0]
    asyncio.run(_send(url, caller, list(AFTER)))
    # The sends are on disk. What is only written is not sent on, and nothing else may come that flushes it.
    flushed = execute(url, "SELECT pg_current_wal_flush_lsn()::text")[0][0]
    wait_for(lambda: execute(url, SQL_KEPT, flushed))
    # Nothing is brought back into a directory that is in use.
    refused = run(home, "first", "restore", "--base", home / "base")
    assert "stop it first" in one_line(refused)
    return moment


@pytest.mark.long
def test_a_database_comes_back_as_it_was_at_a_moment(home: Path) -> None:
    with embedded.start(home / "first", print) as url:
        moment = _back_up(home, url)
    source = ("--base", home / "base", "--wal", home / "wal")
    restored = command(home, "second", "restore", *source, "--until", moment.isoformat())
    assert restored["audit"] == "ok"
    assert restored["messages_held"] == len(EARLY) + len(BEFORE)
    with embedded.start(home / "second", print) as url:
        found = {row["recipient"]: row["status"] for row in execute(url, "SELECT * FROM messages")}
        assert found == dict.fromkeys([*EARLY, *BEFORE], "unconfirmed")
        assert execute(url, "SELECT current_setting('restore_command')")[0][0] == ""
    assert command(home, "second", "audit")["ok"]
    assert not (home / "second" / "restoring").exists()
    # What is there is not replaced; a moment that the log does not reach is refused, and leaves nothing.
    again = run(home, "second", "restore", *source)
    assert "move it away" in one_line(again)
    late = run(home, "third", "restore", *source, "--until", "2199-01-01T00:00:00Z")
    assert late.returncode == 1
    assert "The log ends before 2199-01-01" in late.stderr, late.stderr
    assert not (home / "third" / "postgres").exists()
    damaged = next((home / "base" / "base").rglob("1259"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    broken = run(home, "third", "restore", *source)
    assert "is no base backup, or is damaged" in one_line(broken)
