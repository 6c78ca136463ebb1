"""Query plans of the console's pages of messages, money, receipts and failing endpoints."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from tests.postgres.test_statements import plan
from tests.support.postgres.databases import clone
from tumira.accounts import money_days
from tumira.core.ids import first_id
from tumira.delivery.store import found_messages, unmatched
from tumira.operations import totals
from tumira.postgres.connection import Connection
from tumira.postgres.statement import Statement
from tumira.sending.batches import HIGHEST_ID
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
    INSERT INTO batches (id, account_id, created_at, recipients, pending, segments, total_cost, status,
                         channel)
    SELECT id, id, now(), 2, 2, 1, 0, 'queued', 'sms' FROM messages;
    INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key, claimed_at,
                       submitted_at, answered_at)
    SELECT id, 1, 0, 1, id::text, id::text, now(), now(), now() FROM messages;
    INSERT INTO unmatched_receipts (carrier_id, carrier_ref, recipient, state, receipt, received_at,
                                    next_try_at)
    SELECT 1, id::text, substr(recipient, 2), 'DELIVRD', '', now(), now() FROM messages;
    UPDATE messages SET account_id = (SELECT id FROM accounts WHERE phone = '77');
    INSERT INTO retries (message_id, due_at, in_doubt) SELECT id, now(), true FROM messages;
    INSERT INTO transfers (account_id, from_book, to_book, amount, note, actor)
    SELECT id, 'adjustment', 'customer', 1, '', '' FROM accounts;
    UPDATE money_cursor SET transfer_id = (SELECT max(id) - 10 FROM transfers);
"""
LARGE: Final = re.compile(
    "messages|batches|parts|accounts|event_counters|webhook_endpoints|webhook_retries|webhook_attempts|"
    "unmatched_receipts|retries|transfers"
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


async def test_found_messages_are_read_by_their_keys(large: Connection) -> None:
    ids = [row["id"] for row in await large.fetch("SELECT id FROM messages ORDER BY id LIMIT 26")]
    values = {"ids": f"{{{','.join(str(one) for one in ids)}}}", "low": ids[0], "high": ids[-1]}
    await check(large, found_messages.SQL_LIST, values)
    found = await found_messages.list_found(large, ids)
    assert [one.id for one in found] == ids
    assert all(one.is_in_doubt and one.submitted_at is not None for one in found)


async def test_accepted_messages_are_counted_by_the_hour_with_an_index(large: Connection) -> None:
    now = datetime.now(UTC)
    this = now.replace(minute=0, second=0, microsecond=0)
    hours = [this - timedelta(hours=back) for back in range(23, -1, -1)]
    firsts = [first_id(int(hour.timestamp() * 1000)) for hour in [*hours, this + timedelta(hours=1)]]
    values = {
        "hours": "{" + ",".join(f'"{hour}"' for hour in hours) + "}",
        "firsts": "{" + ",".join(str(one) for one in firsts[:-1]) + "}",
        "nexts": "{" + ",".join(str(one) for one in firsts[1:]) + "}",
        "batches_max": 100,
    }
    await check(large, totals.SQL_ACCEPTED_BY_HOUR, values)
    counted = await totals.accepted_by_hour(large, hours, now, COUNT + 1)
    assert sum(one.count for one in counted) == 2 * COUNT


@pytest.mark.long
async def test_a_search_that_takes_too_long_gives_up(large: Connection) -> None:
    transaction = large.transaction()
    await transaction.start()
    await found_messages.list_to_numbers(large, ["+263771200001"], HIGHEST_ID, 5)
    with pytest.raises(asyncpg.QueryCanceledError):
        await large.execute(f"SELECT pg_sleep({found_messages.SEARCH_S} + 5)")
    await transaction.rollback()


async def test_money_is_read_without_the_transfers_that_were_added_up(large: Connection) -> None:
    values = {
        "local_time": "2 hours",
        "first_day": "2026-11-01",
        "last_day": "2099-11-30",
        "tail_max": 1000,
    }
    await check(large, money_days.SQL_READ, values)
    rows = await large.fetch("SELECT id FROM transfers WHERE id > (SELECT transfer_id FROM money_cursor)")
    assert len(rows) == 10
    await check(large, money_days.SQL_ADD_UP, {"local_time": "2 hours", "transfers_max": 5})


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
