"""Query plans of the console's pages of receipts and failing endpoints."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest_asyncio

from tests.postgres.test_statements import plan
from tests.support.postgres.databases import clone
from tumira.core.ids import first_id
from tumira.delivery.store import unmatched
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.webhooks import endpoints
from tumira.webhooks.endpoints import FIRST, ProblemKind

COUNT: Final = 5_000

# Never analysed; one endpoint in a thousand fails, one is far behind, and one is disabled.
FILL: Final = """
    INSERT INTO accounts (id, phone, name, business)
    SELECT gen_random_uuid(), n::text, '', 'Shop ' || n FROM generate_series(1, 20000) AS n;
    INSERT INTO event_counters SELECT id, 5000 FROM accounts;
    INSERT INTO webhook_endpoints (id, account_id, url, secret, position, failing_since, state, worker)
    SELECT id, id, 'https://example.com', sha256(''), 4990 - CASE n % 1000 WHEN 1 THEN 4000 ELSE 0 END,
           CASE n % 1000 WHEN 0 THEN now() - interval '1 hour' END,
           CASE n % 1000 WHEN 2 THEN 'disabled' ELSE 'active' END, CASE n % 1000 WHEN 1 THEN 'one' END
      FROM (SELECT id, row_number() OVER () AS n FROM accounts WHERE phone <> 'system') AS numbered;
    INSERT INTO webhook_retries (endpoint_id, sequence, event_id, tries, first_at, due_at)
    SELECT id, 1, id, 1, now(), now() FROM webhook_endpoints;
    INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key, claimed_at,
                       submitted_at, answered_at)
    SELECT id, 1, 0, 1, id::text, id::text, now(), now(), now() FROM messages;
    INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, receipt, received_at,
                                    next_try_at)
    SELECT 1, id::text, substr(recipient, 2), 'DELIVRD', '', now(), now() FROM messages;
"""
LARGE: Final = re.compile(
    "messages|parts|accounts|event_counters|webhook_endpoints|webhook_retries|webhook_attempts|"
    "unmatched_receipts"
)


@pytest_asyncio.fixture(scope="module")
async def large(server_url: str) -> AsyncIterator[Connection]:
    """Give a connection to a database with many rows in all that these pages read."""
    with clone(server_url) as url:
        connection = await asyncpg.connect(url)
        first = first_id(int((datetime.now(UTC) - timedelta(minutes=10)).timestamp() * 1000)).int
        ids = [UUID(int=first + (place << 64)) for place in range(COUNT)]
        await connection.copy_records_to_table(
            "messages",
            columns=("id", "batch_id", "account_id", "segments", "country", "recipient", "cost"),
            records=[
                (one, one, one, 1, "ZW", f"+2637712{place // 4:05}", Decimal("0.04"))
                for place, one in enumerate(ids)
            ],
        )
        await connection.execute(FILL)
        yield connection
        await connection.close()


async def check(connection: Connection, statement: Statement, values: dict[str, Any]) -> None:
    found = await plan(connection, statement, values)
    scanned = re.findall(r'"Node Type": "Seq Scan"[^}]*?"Relation Name": "(\w+)"', found)
    assert [name for name in scanned if LARGE.match(name)] == [], found


def bounds() -> dict[str, Any]:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    day_ms = 86_400_000
    return {"low": first_id(now_ms - 11 * day_ms), "high": first_id(now_ms + day_ms)}


async def test_receipts_are_listed_by_their_key(large: Connection) -> None:
    await check(large, unmatched.SQL_LIST, {"before": 2_500, "count_max": 26})
    await check(large, unmatched.SQL_FIND, {"receipt_id": 2_500})


async def test_what_receipts_may_be_about_is_found_by_indexes(
    large: Connection,
) -> None:
    ids = [row["id"] for row in await large.fetch("SELECT id FROM messages LIMIT 25")]
    places = f"{{{','.join(str(place) for place in range(25))}}}"
    by_id = {
        "places": places,
        "carrier_ids": f"{{{','.join(['1'] * 25)}}}",
        "keys": f"{{{','.join(str(one) for one in ids)}}}",
        "count_max": 3,
    }
    await check(large, unmatched.SQL_BY_ID, bounds() | by_id)
    of_messages = {"places": places, "ids": f"{{{','.join(str(one) for one in ids)}}}"}
    await check(large, unmatched.SQL_OF_MESSAGES, bounds() | of_messages)


async def test_endpoints_in_trouble_are_found_without_looking_at_the_others(
    large: Connection,
) -> None:
    values = {
        "behind_min": 1000,
        "retries_max": 100,
        "leased_max": 1000,
        "after_kind": int(FIRST.kind),
        "after_since": FIRST.since,
        "after_id": FIRST.endpoint_id,
        "attempts_since": bounds()["low"],
        "count_max": 100,
    }
    await check(large, endpoints.SQL_LIST_UNHEALTHY, values)
    found = await endpoints.list_unhealthy(large, 100, bounds()["low"])
    assert [one.kind for one in found] == sorted([*ProblemKind] * 20)
    assert {one.behind for one in found if one.kind is ProblemKind.BEHIND} == {4010}
