"""Backup and restore of a million messages."""

import asyncio
import json
import subprocess
import time
from typing import Final

import pytest

from tests.support.delivery.engine import numbers, open_engine
from tests.support.postgres.databases import execute, open_directory
from tests.support.processes.programs import start
from tumira.postgres.embedded import server as embedded
from tumira.runtime import prepare

MILLION: Final = 1_000_000
# All of them delivered, as the messages of a gateway mostly are: with segments, receipts and events.
SQL_DELIVER: Final = (
    "DELETE FROM queue",
    "UPDATE messages SET status = 'delivered', sent_at = now(), delivered_at = now()",
    "UPDATE batches SET status = 'completed', completed_at = now(), pending = 0",
    """
INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key, claimed_at,
                   submitted_at,
                   answered_at, state, error, receipt, received_at)
SELECT id, 1, 0, 1, right(id::text, 12), right(id::text, 12), now(), now(), now(), 'DELIVRD', '000',
       'id:' || right(id::text, 12) || ' sub:001 dlvrd:001 stat:DELIVRD err:000', now()
  FROM messages
""",
    """
INSERT INTO events (id, account_id, sequence, type, message_id, batch_id, at)
SELECT id, account_id, row_number() OVER (ORDER BY id), type, message_id, batch_id, now()
  FROM (SELECT id, account_id, 'message.delivered' AS type, id AS message_id, batch_id FROM messages
         UNION ALL
        SELECT id, account_id, 'batch.completed', NULL, id FROM batches) AS told
""",
    """
INSERT INTO event_counters (account_id, last)
SELECT account_id, count(*) FROM events GROUP BY account_id
    ON CONFLICT (account_id) DO UPDATE SET last = excluded.last
""",
)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_million_messages_come_back() -> None:
    with open_directory("tumira-million-") as home:
        path = home / "million.backup"
        with embedded.start(home / "first", print) as url:
            asyncio.run(_send_a_million(url))
            for statement in SQL_DELIVER:
                execute(url, statement)
            size = execute(url, "SELECT pg_database_size(current_database())")[0][0]
        began = time.monotonic()
        done = _finish_long(start("backup", str(path), "--json", data_dir=home / "first"))
        assert done.returncode == 0, done.stderr
        backed_up = time.monotonic()
        assert json.loads(done.stdout)["messages"] == MILLION
        done = _finish_long(start("restore", str(path), "--json", data_dir=home / "second"))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["audit"] == "ok"
        print(
            f"database {size / 1e6:.0f} MB, backup {path.stat().st_size / 1e6:.0f} MB in"
            f" {backed_up - began:.0f} s, restored and audited in {time.monotonic() - backed_up:.0f} s"
        )


def _finish_long(process: "subprocess.Popen[bytes]") -> "subprocess.CompletedProcess[bytes]":
    out, err = process.communicate(timeout=900)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


async def _send_a_million(url: str) -> None:
    await prepare(url, lambda _line: None)
    async with open_engine(url) as engine:
        caller = await engine.open_account()
        for first in range(0, MILLION, 1000):
            await engine.send(caller, numbers(1000, start=first % 100_000))
