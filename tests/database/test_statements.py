"""Does every statement fit the schema, and find its rows the short way however large the tables are?"""

import importlib
import json
import pkgutil
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio

import tumira
from tumira.ids import first_id
from tumira.store import acceptance, audit, batches, calls, partitions
from tumira.store.accounts import SQL_HOLD_FREE
from tumira.store.sql import Statement

WEEKS: Final = 104


def every_statement() -> Iterator[tuple[str, Statement]]:
    for module_info in pkgutil.walk_packages(tumira.__path__, "tumira."):
        if module_info.name.endswith("__main__"):
            continue
        module = importlib.import_module(module_info.name)
        for name, value in vars(module).items():
            if isinstance(value, Statement):
                yield f"{module_info.name}.{name}", value
    for check in audit.CHECKS:
        yield f"audit.{check.name}", check.statement


STATEMENTS: Final = dict(every_statement())


@pytest_asyncio.fixture
async def connection(database_url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Give a connection to a migrated database."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def test_every_statement_fits_the_schema(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    assert len(STATEMENTS) > 30
    for name, statement in STATEMENTS.items():
        prepared = await connection.prepare(statement.text)
        assert len(prepared.get_parameters()) == len(statement.names), name
        # A generic plan needs no values; making it walks through every table and column that is named.
        await connection.execute(f"EXPLAIN (GENERIC_PLAN) {statement.text}")


def test_sql_is_written_in_the_store_alone() -> None:
    outside = [name for name in STATEMENTS if not name.startswith(("tumira.store.", "audit."))]
    assert outside == ["tumira.engine.chores.SQL_TRY_LOCK"]


@pytest_asyncio.fixture
async def old_and_large(
    connection: "asyncpg.Connection[asyncpg.Record]",
) -> "asyncpg.Connection[asyncpg.Record]":
    """Give the tables two years of weeks, some with rows, and never analyse them."""
    monday = partitions._monday(datetime.now(UTC))
    for weeks in range(2, WEEKS - 8):
        start = monday - timedelta(weeks=weeks)
        for table, fillfactor in partitions.TABLES.items():
            await partitions._create(connection, table, partitions._name(table, start), start, fillfactor)
    for weeks in (0, 1, 50):
        first = first_id(int((monday - timedelta(weeks=weeks)).timestamp() * 1000)).int
        await connection.executemany(
            "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost)"
            " VALUES ($1, $1, $1, 1, 'ZW', '+263771200001', 0.04)",
            [(uuid_of(first + (place << 40)),) for place in range(2000)],
        )
    return connection


def uuid_of(value: int) -> str:
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


async def plan(
    connection: "asyncpg.Connection[asyncpg.Record]", statement: Statement, values: dict[str, Any]
) -> str:
    text = statement.text
    for place, name in reversed(list(enumerate(statement.names, start=1))):
        text = re.sub(rf"\${place}\b", f"'{values[name]}'", text)
    rows = await connection.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF, COSTS OFF) {text}")
    return json.dumps(json.loads(rows[0][0]))


CHARGES: Final = {
    "charged_amounts": f"{{{','.join(['0'] * 64)}}}",
    "call_times": "{" + ",".join(['"{}"'] * 64) + "}",
    "call_counts": "{" + ",".join(['"{}"'] * 64) + "}",
    "spent_on": f"{{{','.join(['NULL'] * 64)}}}",
    "spent_today": f"{{{','.join(['0'] * 64)}}}",
}

LOOKUPS: Final = {
    "batch": (batches.SQL_FIND, {"batch_id": None, "account_id": None}),
    "message": (batches.SQL_FIND_MESSAGE, {"message_id": None, "account_id": None}),
    "messages of a batch": (
        batches.SQL_LIST_MESSAGES,
        {"low": None, "high": None, "batch_id": None, "account_id": None},
    ),
}


@pytest.mark.parametrize("name", LOOKUPS)
async def test_a_lookup_touches_one_week_by_its_index(
    old_and_large: "asyncpg.Connection[asyncpg.Record]", name: str
) -> None:
    statement, values = LOOKUPS[name]
    identifier = uuid_of(first_id(int((datetime.now(UTC) - timedelta(weeks=50)).timestamp() * 1000)).int)
    found = await plan(old_and_large, statement, dict.fromkeys(values, identifier))
    assert len(set(re.findall(r'"Relation Name": "(\w+)"', found))) == 1
    assert "Seq Scan" not in found


async def test_a_group_of_calls_is_looked_up_by_primary_keys(
    connection: "asyncpg.Connection[asyncpg.Record]",
) -> None:
    # As many rows as make a sequential scan expensive, in tables that nobody analysed.
    await connection.execute("""
        INSERT INTO accounts (id, phone, name, business)
        SELECT gen_random_uuid(), n::text, '', '' FROM generate_series(1, 20000) AS n;
        INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes)
        SELECT gen_random_uuid(), id, '', sha256(''), '{account:read}' FROM accounts;
    """)
    ids = await connection.fetchval("SELECT array_agg(id)::text FROM (SELECT id FROM accounts LIMIT 64)")
    keys = await connection.fetchval("SELECT array_agg(id)::text FROM (SELECT id FROM api_keys LIMIT 64)")
    for statement, values in (
        (SQL_HOLD_FREE, {"account_ids": ids}),
        (calls.SQL_READ, {"key_ids": keys, "idempotency_keys": "{}", "account_ids": ids}),
        (acceptance.SQL_CHARGE, CHARGES | {"charged_ids": ids}),
    ):
        found = await plan(connection, statement, values)
        scanned = re.findall(r'"Node Type": "Seq Scan"[^}]*?"Relation Name": "(\w+)"', found)
        assert set(scanned) <= {"tariff", "clocks", "flows"}, (statement.text, scanned)
