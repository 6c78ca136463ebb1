"""Gauges that are read from the database."""

import math
import re
from collections.abc import AsyncIterator
from typing import Final

import asyncpg
import pytest_asyncio
from prometheus_client import generate_latest

from tests.postgres.test_statements import generic_plan, scans
from tests.support.processes.service import new_caller
from tests.support.processes.watched import read_samples
from tumira.core import metrics
from tumira.operations import metrics_page
from tumira.postgres.pool import PLANNED_ONCE, Database

# What grows with the traffic or with the customers' payments.
LARGE: Final = frozenset({"queue", "events", "top_ups", "mails", "uploads", "unmatched_receipts"})

MUCH: Final = """
    INSERT INTO top_ups (id, account_id, method, provider, state, currency, asked, due_at)
    SELECT gen_random_uuid(), $1, 'paynow', 'ecocash', 'failed', 'USD', 5, NULL
      FROM generate_series(1, 20000);
"""


@pytest_asyncio.fixture
async def connection(database_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Give a connection with many rows, planned as the web process plans."""
    caller = await new_caller(database_url)
    database = Database(database_url, connections_max=1, settings=PLANNED_ONCE)
    connection = await database.connect()
    await connection.execute(
        "INSERT INTO queue (country, lane, turn, message_id)"
        " SELECT 'ZW', 1, n, gen_random_uuid() FROM generate_series(1, 40000) AS n"
    )
    await connection.execute(MUCH.replace("$1", f"'{caller.id}'"))
    await connection.execute(
        "INSERT INTO mails (id, recipient, subject, body, expires_at)"
        " SELECT gen_random_uuid(), '', '', '', now() FROM generate_series(1, 30000)"
    )
    yield connection
    await connection.close()
    await database.close()


async def test_a_reading_is_bounded(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    async with connection.transaction():
        await metrics_page.measure(connection)
    found = read_samples(generate_latest(metrics.DATABASE).decode())
    assert found['tumira_queue_messages{country="ZW",lane="1"}'] == found["tumira_mails_waiting"] == 20_000
    assert found['tumira_queue_messages{country="ZW",lane="0"}'] == 0
    assert found["tumira_mails_oldest_seconds"] > 0
    for state in ("started", "pending", "doubt", "reversed", "paid_late"):
        assert found[f'tumira_top_ups{{state="{state}"}}'] == 0
    assert found["tumira_partition_weeks_left"] == 8
    assert found["tumira_audit_broken_checks"] == found["tumira_ledgers_broken"] == 0
    assert {found[f'tumira_country_covered{{country="{country}"}}'] for country in ("ZA", "ZW")} == {0}
    assert math.isnan(found["tumira_usdt_look_age_seconds"])
    assert found["tumira_database_size_bytes"] > 1_000_000


async def test_no_large_table_is_read_whole(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.execute("ANALYZE top_ups, mails")
    for statement in (
        metrics_page.SQL_TOP_UPS,
        metrics_page.SQL_MAILS,
        metrics_page.SQL_UPLOADS,
        metrics_page.SQL_OLDEST_EVENT,
    ):
        for relation, kind in scans(await generic_plan(connection, statement, {"count_max": 100})):
            assert kind != "Seq Scan" or re.sub(r"_20..w..$", "", relation) not in LARGE, statement.text
