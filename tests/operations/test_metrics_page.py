"""Gauges that are read from the database."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import asyncpg
import pytest_asyncio

from tests.support.processes.service import new_caller
from tumira.operations import metrics_page
from tumira.postgres.pool import PLANNED_ONCE, Database
from tumira.postgres.statement import Statement

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


async def plan(
    connection: "asyncpg.Connection[asyncpg.Record]", statement: Statement, **values: Any
) -> list[dict[str, Any]]:
    text = statement.text
    for place, name in reversed(list(enumerate(statement.names, start=1))):
        text = re.sub(rf"\${place}\b", str(values[name]), text)
    rows = await connection.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF, COSTS OFF) {text}")
    return list(_nodes(json.loads(rows[0][0])[0]["Plan"]))


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(one for inner in node.get("Plans", ()) for one in _nodes(inner))]


async def test_a_reading_is_bounded(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    async with connection.transaction():
        readings = await metrics_page.read(connection)
    assert [(one.country, one.lane, one.count) for one in readings.stands] == [("ZW", 1, 20_000)]
    assert readings.mails[0] == 20_000
    assert readings.mails[1] > 0
    assert readings.top_ups == dict.fromkeys(["started", "pending", "doubt", "reversed", "paid_late"], 0)
    assert (readings.weeks_left, readings.audit[1], readings.ledgers_broken) == (8, 0, 0)
    assert readings.covered == {"ZA": False, "ZW": False}
    assert readings.usdt_look_age_s is None
    assert readings.size > 1_000_000


async def test_no_large_table_is_read_whole(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.execute("ANALYZE top_ups, mails")
    for statement in (
        metrics_page.SQL_TOP_UPS,
        metrics_page.SQL_MAILS,
        metrics_page.SQL_UPLOADS,
        metrics_page.SQL_OLDEST_EVENT,
    ):
        for node in await plan(connection, statement, count_max=100):
            if node["Node Type"] == "Seq Scan":
                table = re.sub(r"_20..w..$", "", node["Relation Name"])
                assert table not in LARGE, (statement.text, node)
