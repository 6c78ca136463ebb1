"""Gauges that are read from the database."""

import math
import re
from collections.abc import AsyncIterator
from typing import Final

import asyncpg
import pytest_asyncio
from prometheus_client import generate_latest

from tests.postgres.test_statements import generic_plan, scans
from tests.support.postgres.databases import clone
from tests.support.processes.service import new_caller
from tests.support.processes.watched import read_samples
from tumira.core import metrics
from tumira.operations import metrics_page
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.postgres.pool import PLANNED_ONCE

# What grows with the traffic or with the customers' payments.
LARGE: Final = frozenset({"queue", "events", "top_ups", "mails", "uploads", "unmatched_receipts"})

MUCH: Final = """
    INSERT INTO queue (country, lane, turn, message_id)
    SELECT 'ZW', 1, n, gen_random_uuid() FROM generate_series(1, 21000) AS n;
    INSERT INTO top_ups (id, account_id, method, provider, state, currency, asked, due_at)
    SELECT gen_random_uuid(), '{account_id}', 'paynow', 'ecocash', 'failed', 'USD', 5, NULL
      FROM generate_series(1, 20000);
    INSERT INTO mails (id, recipient, subject, body, expires_at)
    SELECT gen_random_uuid(), '', '', '', now() FROM generate_series(1, 21000);
"""


@pytest_asyncio.fixture(scope="module")
async def connection(server_url: str) -> AsyncIterator[Connection]:
    """Give a connection with many rows, planned as the web process plans."""
    with clone(server_url) as url:
        caller = await new_caller(url)
        connection = await asyncpg.connect(url, server_settings=PLANNED_ONCE)
        await connection.execute(MUCH.format(account_id=caller.id))
        yield connection
        await connection.close()


async def test_a_reading_is_bounded(connection: Connection) -> None:
    async with connection.transaction():
        await metrics_page.measure(connection)
    found = read_samples(generate_latest(metrics.DATABASE).decode())
    assert found['tumira_queue_messages{country="ZW",lane="1"}'] == found["tumira_mails_waiting"] == 20_000
    assert found['tumira_queue_messages{country="ZW",lane="0"}'] == 0
    assert found["tumira_mails_oldest_seconds"] > 0
    for state in ("started", "pending", "doubt", "reversed", "paid_late"):
        assert found[f'tumira_top_ups{{state="{state}"}}'] == 0
    assert found["tumira_partition_weeks_left"] == partitions.WEEKS_AHEAD
    assert found["tumira_audit_broken_checks"] == found["tumira_ledgers_broken"] == 0
    assert {found[f'tumira_country_covered{{country="{country}"}}'] for country in ("ZA", "ZW")} == {0}
    assert math.isnan(found["tumira_usdt_look_age_seconds"])
    assert found["tumira_database_size_bytes"] > 1_000_000


async def test_no_large_table_is_read_whole(connection: Connection) -> None:
    await connection.execute("ANALYZE top_ups, mails")
    for statement in (
        metrics_page.SQL_TOP_UPS,
        metrics_page.SQL_MAILS,
        metrics_page.SQL_UPLOADS,
        metrics_page.SQL_OLDEST_EVENT,
    ):
        for relation, kind in scans(await generic_plan(connection, statement, {"count_max": 100})):
            assert kind != "Seq Scan" or re.sub(r"_20..w..$", "", relation) not in LARGE, statement.text
