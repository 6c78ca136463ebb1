"""Query plans of the statements on large tables."""

import asyncio
import importlib
import json
import pkgutil
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

import tumira
from tests.support.postgres.databases import clone
from tumira import events
from tumira.accounts import ledger, ledger_proofs
from tumira.core.days import LOCAL_TIME
from tumira.core.ids import AccountId, BatchId, first_id, message_bounds
from tumira.delivery.store import margins, queue, receipts, references, settlement
from tumira.delivery.store import waiting as places
from tumira.delivery.store.margins import MarginRow
from tumira.delivery.store.queue import batch_high, batch_low
from tumira.delivery.store.settlement import NewPart
from tumira.events import NewEvent
from tumira.operations.audit.checks import CHECKS
from tumira.papers import statement_store
from tumira.postgres import partitions
from tumira.postgres.connection import Connection
from tumira.postgres.pool import IN_KEY_ORDER, KEY_LOOKUPS, PLANNED_ONCE
from tumira.postgres.statement import Statement
from tumira.replies import opt_outs
from tumira.sending import batch_messages, batches, daily_totals, insert, lookups, recipients
from tumira.sending import search as search_batches
from tumira.topups import lists as top_up_lists
from tumira.topups import store as top_ups

WEEKS: Final = 30
OLD_WEEK: Final = 15


def every_statement() -> Iterator[tuple[str, Statement]]:
    for module_info in pkgutil.walk_packages(tumira.__path__, "tumira."):
        if module_info.name.endswith("__main__"):
            continue
        module = importlib.import_module(module_info.name)
        for name, value in vars(module).items():
            if isinstance(value, Statement):
                yield f"{module_info.name}.{name}", value
    for check in CHECKS:
        yield f"audit.{check.name}", check.statement


STATEMENTS: Final = dict(every_statement())


@pytest_asyncio.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def test_every_statement_fits_the_schema(connection: Connection) -> None:
    assert len(STATEMENTS) > 30
    for name, statement in STATEMENTS.items():
        prepared = await connection.prepare(statement.text)
        assert len(prepared.get_parameters()) == len(statement.names), name
        # A generic plan needs no values; making it walks through every table and column that is named.
        await connection.execute(f"EXPLAIN (GENERIC_PLAN) {statement.text}")


@pytest.fixture(scope="module")
def weeks(server_url: str) -> Iterator[str]:
    """Give a database with half a year of weeks, some with rows, never analysed; to be cloned."""
    with clone(server_url) as url:
        asyncio.run(_add_weeks(url))
        yield name_of(url)


async def _add_weeks(url: str) -> None:
    connection = await asyncpg.connect(url)
    monday = partitions._monday(datetime.now(UTC))
    for weeks in range(2, WEEKS - partitions.WEEKS_AHEAD):
        start = monday - timedelta(weeks=weeks)
        for table, fillfactor in partitions.TABLES.items():
            await partitions._create(connection, table, partitions._name(table, start), start, fillfactor)
    for weeks in (0, 1, OLD_WEEK):
        first = first_id(int((monday - timedelta(weeks=weeks)).timestamp() * 1000)).int
        await connection.executemany(
            "INSERT INTO messages (id, batch_id, account_id, segments, country, recipient, cost)"
            " VALUES ($1, $1, $1, 1, 'ZW', '+263771200001', 0.04)",
            [(uuid_of(first + (place << 40)),) for place in range(2000)],
        )
    await connection.close()


@asynccontextmanager
async def connected(
    server_url: str, template: str, settings: Mapping[str, str]
) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    with clone(server_url, template) as url:
        connection = await asyncpg.connect(url, server_settings=dict(settings))
        yield connection
        await connection.close()


@pytest_asyncio.fixture
async def old_and_large(server_url: str, weeks: str) -> AsyncIterator[Connection]:
    async with connected(server_url, weeks, {}) as connection:
        yield connection


def name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def uuid_of(value: int) -> str:
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


async def plan(connection: Connection, statement: Statement, values: dict[str, Any]) -> str:
    text = statement.text
    for place, name in reversed(list(enumerate(statement.names, start=1))):
        text = re.sub(rf"\${place}\b", f"'{values[name]}'", text)
    rows = await connection.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF, COSTS OFF) {text}")
    return json.dumps(json.loads(rows[0][0]))


CHARGES: Final = {
    "charged_amounts": f"{{{','.join(['0'] * 64)}}}",
    "call_times": "{" + ",".join(['"{}"'] * 64) + "}",
    "call_counts": "{" + ",".join(['"{}"'] * 64) + "}",
    "last_counts": f"{{{','.join(['NULL'] * 64)}}}",
    "charge_days": "{}",
    "days": "{2026-11-16}",
    "spent_today": f"{{{','.join(['0'] * 64)}}}",
    "unbilled_today": f"{{{','.join(['0'] * 64)}}}",
}


@pytest.mark.long
async def test_a_lookup_touches_one_week_by_its_index(old_and_large: Connection) -> None:
    at = datetime.now(UTC) - timedelta(weeks=OLD_WEEK)
    identifier = uuid_of(first_id(int(at.timestamp() * 1000)).int)
    statement = batches.SQL_FIND_MESSAGE
    found = await plan(old_and_large, statement, dict.fromkeys(statement.names, identifier))
    assert len(set(re.findall(r'"Relation Name": "(\w+)"', found))) == 1
    assert "Seq Scan" not in found
    assert not re.search(r'"Index Name": "\w*recipient', found)


@pytest.mark.long
async def test_a_group_of_calls_is_looked_up_by_primary_keys(connection: Connection) -> None:
    # As many rows as make a sequential scan expensive, in tables that nobody analysed.
    await connection.execute("""
        INSERT INTO accounts (id, phone, name, business)
        SELECT gen_random_uuid(), n::text, '', '' FROM generate_series(1, 20000) AS n;
        INSERT INTO api_keys (id, account_id, name, secret_sha256, scopes)
        SELECT gen_random_uuid(), id, '', sha256(''), '{account:read}' FROM accounts;
        INSERT INTO code_ranges (account_id, prefix, last_on)
        SELECT id, '+26377120', current_date FROM accounts;
    """)
    ids = await connection.fetchval("SELECT array_agg(id)::text FROM (SELECT id FROM accounts LIMIT 64)")
    keys = await connection.fetchval("SELECT array_agg(id)::text FROM (SELECT id FROM api_keys LIMIT 64)")
    asked = {
        "caller_ids": ids,
        "key_ids": keys,
        "idempotency_keys": "{}",
        "account_ids": ids,
        "ported": "{}",
        "range_account_ids": ids,
        "range_prefixes": "{" + ",".join(["+26377120"] * 64) + "}",
    }
    for statement, values in (
        (lookups.SQL_READ, asked),
        (lookups.SQL_LOCK_AND_READ, asked),
        (insert.SQL_CHARGE, CHARGES | {"charged_ids": ids}),
    ):
        found = await plan(connection, statement, values)
        scanned = re.findall(r'"Node Type": "Seq Scan"[^}]*?"Relation Name": "(\w+)"', found)
        assert set(scanned) <= {"tariff", "content_policy", "clocks", "flows"}, (statement.text, scanned)


# What grows with the traffic. The others hold what is under way, and are small.
LARGE: Final = ("batches", "messages", "parts", "incidents", "events", "queue")
GROUP: Final = 200

# As many rows in each of these tables as there are messages; lane 1 has nearly all of the queue.
FILL: Final = """
    UPDATE messages SET recipient = '+2637712' || lpad((hashtext(id::text) & 15)::text, 5, '0');
    INSERT INTO batches (id, account_id, created_at, recipients, pending, segments, total_cost, status,
                         channel)
    SELECT id, account_id, now(), 1, 1, 1, 0.04, 'queued', 'sms' FROM messages;
    INSERT INTO parts (message_id, number, attempt, carrier_id, carrier_ref, carrier_key, claimed_at,
                       submitted_at, answered_at)
    SELECT id, 1, 0, 1, id::text, id::text, now(), now(), now() FROM messages;
    INSERT INTO incidents (message_id, kind, carrier_id, recipient)
    SELECT id, 'doubt', 1, substr(recipient, 2) FROM messages;
    INSERT INTO queue (country, lane, turn, message_id)
    SELECT 'ZW', CASE WHEN number % 10 = 0 THEN 0 ELSE 1 END, number, id
      FROM (SELECT id, row_number() OVER (ORDER BY id) AS number FROM messages) AS waiting;
"""

Values = dict[str, Any]


def bounds_of(ids: Sequence[UUID]) -> Values:
    return {
        "ids": ids,
        "low": min(ids),
        "high": max(ids),
        "batch_low": batch_low(min(ids)),
        "batch_high": batch_high(max(ids)),
    }


def written(ids: Sequence[UUID]) -> Values:
    """Return what is written about messages that were delivered, each the last of its batch."""
    count = len(ids)
    times = [1] * count
    return bounds_of(ids) | {
        "times": [datetime.now(UTC)],
        "change_kinds": [],
        "olds": ["queued"],
        "statuses": ["delivered"],
        "sent_ats": times,
        "delivered_ats": times,
        "refunded_ats": [None] * count,
        "reasons": [None] * count,
        "landed_ids": ids,
        **{f"part_{name}": [None] * count for name in NewPart.__struct_fields__},
        "costs": [],
        "currencies": [],
        "costs_usd": [],
        "part_message_id": ids,
        "part_kinds": [],
        "numbers": [2],
        "attempts": [0],
        "carrier_ids": [1],
        "senders": ["Tumira"],
        "part_carrier_ref": ["1"] * count,
        "part_carrier_key": ["1"] * count,
        "part_claimed_at": times,
        "part_submitted_at": times,
        "part_answered_at": times,
        "report_message_id": ids,
        "report_number": [1] * count,
        "report_attempt": [0] * count,
        "report_state": ["DELIVRD"] * count,
        "report_error": ["000"] * count,
        "report_receipt": ["stat:DELIVRD"] * count,
        "report_received_at": times,
        "batch_id": ids,
        "batch_settled": [1] * count,
        "batch_refunded": [0] * count,
        **margins.parameters([MarginRow(date(2026, 11, 16), 1, "ZW", "econet", AccountId(OWNER), count)]),
    }


def claimed(_ids: Sequence[UUID]) -> Values:
    return {
        "queue": ["ZW", "ZA"],
        "queues": ["ZW", "ZA"],
        "small": [100, 100],
        "bulk": [100, 100],
        "bulk_max": [180, 180],
        "small_floor": [0, 0],
        "bulk_floor": [0, 0],
        "avoided": [1, None],
        "total": GROUP,
        "small_total": GROUP,
        "bulk_least": GROUP // 10,
        "bulk_total": GROUP,
        "worker": "one",
        "bind": "one/1",
        "carrier_id": 1,
    }


def matched(ids: Sequence[UUID]) -> Values:
    keys = [str(identifier) for identifier in ids]
    return bounds_of(ids) | {"places": list(range(len(ids))), "keys": keys, "carrier_id": 1}


def doubted(ids: Sequence[UUID]) -> Values:
    return bounds_of(ids) | {"carrier_id": 1, "recipients": ["263771200001", "27771200001"], "count_max": 50}


# What the engine runs for every group of messages, and from which tables each reads weeks.
ENGINE: Final[dict[str, tuple[Statement, Callable[[Sequence[UUID]], Values], set[str]]]] = {
    "avoided": (queue.SQL_AVOIDED, claimed, set()),
    "hold": (settlement.SQL_LOCK, bounds_of, {"messages"}),
    "hold batches": (settlement.SQL_LOCK_BATCHES, bounds_of, {"batches"}),
    "record": (settlement.SQL_RECORD, written, {"messages"}),
    "record and add": (settlement.SQL_RECORD_AND_ADD, written, {"messages"}),
    "settle": (settlement.SQL_SETTLE, written, {"messages", "parts", "batches"}),
    "record and settle": (settlement.SQL_RECORD_AND_SETTLE, written, {"messages", "parts", "batches"}),
    "match": (receipts.SQL_FIND_SEGMENTS, matched, {"messages", "parts"}),
    "doubts": (receipts.SQL_DOUBTS, doubted, {"incidents", "messages"}),
    "known parts": (receipts.SQL_KNOWN_PARTS, bounds_of, {"parts"}),
    "states": (settlement.SQL_STATES, bounds_of, {"parts"}),
    "numbers": (settlement.SQL_NUMBERS, bounds_of, {"parts"}),
    "parts before": (queue.SQL_PARTS_BEFORE, bounds_of, {"parts"}),
    "incidents before": (queue.SQL_INCIDENTS_BEFORE, bounds_of, {"incidents"}),
}


async def generic_plan(connection: Connection, statement: Statement, values: Values) -> Any:
    """Run a statement as a worker does, planned without its values, and return how it was carried out."""
    arguments = ", ".join(literal(values[name]) for name in statement.names)
    called = f"explained ({arguments})" if arguments else "explained"
    await connection.execute(f"PREPARE explained AS {statement.text}")
    undone = connection.transaction()
    await undone.start()
    rows = await connection.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF, COSTS OFF) EXECUTE {called}")
    await undone.rollback()
    await connection.execute("DEALLOCATE explained")
    return json.loads(rows[0][0])


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        elements = ("NULL" if one is None else f'"{one}"' for one in value)
        return f"'{{{','.join(elements)}}}'"
    return f"'{value}'"


def nodes(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for one in node:
            yield from nodes(one)
    elif isinstance(node, dict):
        if "Node Type" in node:
            yield node
        for one in node.values():
            yield from nodes(one)


def scans(plan: Any) -> Iterator[tuple[str, str]]:
    """Return which relations a plan looked into, and how; those that it passed over do not count."""
    for node in nodes(plan):
        if "Relation Name" in node and "Scan" in node["Node Type"] and node["Actual Loops"]:
            yield node["Relation Name"], node["Node Type"]


@pytest.fixture(scope="module")
def busy_weeks(server_url: str, weeks: str) -> Iterator[str]:
    with clone(server_url, weeks) as url:
        asyncio.run(_fill(url))
        yield name_of(url)


async def _fill(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(FILL)
    await connection.close()


@pytest_asyncio.fixture
async def busy(server_url: str, busy_weeks: str) -> AsyncIterator[Connection]:
    """Give a worker's connection to a database with half a year of weeks that was never analysed."""
    async with connected(server_url, busy_weeks, KEY_LOOKUPS) as connection:
        yield connection


@pytest.mark.long
async def test_what_a_worker_runs_looks_into_the_weeks_of_its_messages_by_their_indexes(
    busy: Connection,
) -> None:
    monday = partitions._monday(datetime.now(UTC))
    low = first_id(int((monday - timedelta(weeks=1)).timestamp() * 1000))
    rows = await busy.fetch("SELECT id FROM messages WHERE id >= $1 ORDER BY id", low)
    ids = [row["id"] for row in rows]
    groups = {
        "this week": ([monday], ids[-GROUP:]),
        "two weeks": ([monday - timedelta(weeks=1), monday], [*ids[: GROUP // 2], *ids[-GROUP // 2 :]]),
    }
    for name, (statement, values_of, tables) in ENGINE.items():
        for span, (mondays, group) in groups.items():
            found = list(scans(await generic_plan(busy, statement, values_of(group))))
            weeks = {partitions._name(table, start) for table in tables for start in mondays}
            large = {relation: kind for relation, kind in found if relation.startswith(LARGE)}
            assert large.keys() - {"queue"} <= weeks, (name, span)
            assert "Seq Scan" not in large.values(), (name, span)
            # It did look: a statement that finds nothing would pass over every week.
            assert {relation.partition("_")[0] for relation in large} >= tables, (name, span)


async def test_a_claim_reads_no_more_than_it_takes(busy: Connection) -> None:
    taken = await generic_plan(busy, queue.SQL_CLAIM, claimed([]))
    looked = [node for node in nodes(taken) if node.get("Relation Name") == "queue"]
    assert {node["Node Type"] for node in looked} <= {"Index Scan", "Tid Scan", "LockRows", "ModifyTable"}
    assert max(node["Actual Rows"] * node["Actual Loops"] for node in looked) <= 2 * GROUP


async def test_a_claim_looks_into_the_weeks_of_what_it_takes_by_their_indexes(busy: Connection) -> None:
    await busy.execute("UPDATE queue SET avoid = 2 WHERE lane = 0")
    oldest = partitions._monday(datetime.now(UTC)) - timedelta(weeks=OLD_WEEK)
    weeks = {partitions._name(table, oldest) for table in ("messages", "batches")}
    for statement in (queue.SQL_CLAIM, queue.SQL_CLAIM_AVOIDING):
        found = dict(scans(await generic_plan(busy, statement, claimed([]))))
        large = {relation: kind for relation, kind in found.items() if relation.startswith(LARGE)}
        assert large.keys() == weeks | {"queue"}
        assert "Seq Scan" not in large.values()


NAMES: Final = """
    INSERT INTO accounts (id, phone, name, business)
    SELECT gen_random_uuid(), n::text, '', '' FROM generate_series(1, 2000) AS n;
    INSERT INTO sender_names (id, account_id, name, key, note)
    SELECT id, id, 'Shop', 'shop', '' FROM accounts WHERE phone <> 'system';
    INSERT INTO sender_grants (name_id, account_id, name, country, state, in_use)
    SELECT id, account_id, name, 'ZW', 'granted', true FROM sender_names;
"""


@pytest.mark.long
async def test_a_claim_finds_sender_names_by_account_however_many_there_are(busy: Connection) -> None:
    await busy.execute(NAMES)
    for when in ("never analysed", "analysed"):
        if when == "analysed":
            await busy.execute("ANALYZE sender_grants")
        plan = await generic_plan(busy, queue.SQL_CLAIM, claimed([]))
        looks = [node for node in nodes(plan) if node.get("Relation Name") == "sender_grants"]
        assert len(looks) == 2, when
        for look in looks:
            assert re.search("account_id =|name_id =", look["Index Cond"]), (look["Index Cond"], when)


async def test_a_message_in_flight_is_looked_up_by_its_week_and_key(busy: Connection) -> None:
    await busy.execute(
        "INSERT INTO in_flight (message_id, worker, bind, carrier_id)"
        " SELECT id, '', '', 1 FROM messages ORDER BY id DESC LIMIT 200"
    )
    rows = await busy.fetch("SELECT message_id AS id FROM in_flight")
    values = doubted([row["id"] for row in rows]) | {"numbers": ["+263771200001"]}
    found = dict(scans(await generic_plan(busy, receipts.SQL_BEING_SUBMITTED, values)))
    weeks = {relation: kind for relation, kind in found.items() if relation.startswith("messages")}
    assert len(weeks) == 1
    assert "Seq Scan" not in weeks.values()


# One carrier floods us with receipts that match nothing; another has a few.
FLOOD: Final = """
    INSERT INTO carriers (name, host, port, tls, system_id, password, bind_mode, binds, window_size, tps,
                          source, in_doubt, doubt_wait_s, refund, priority)
    SELECT name, 'localhost', 2775, false, '', '', 'transceiver', 1, 1, 0, '', 'resend', 30, '{}', 1
      FROM unnest(ARRAY['one', 'two']) AS name;
    INSERT INTO unmatched_receipts (carrier_id, recipient, state, receipt, received_at, next_try_at)
    SELECT 1, '26377' || lpad(n::text, 7, '0'), 'DELIVRD', '', now() - n * interval '1 ms', now()
      FROM generate_series(1, 20000) AS n;
    INSERT INTO unmatched_receipts (carrier_id, recipient, state, receipt, received_at, next_try_at)
    SELECT 2, '077' || lpad(n::text, 7, '0'), 'DELIVRD', '', now(), now() + n * interval '1 ms'
      FROM generate_series(1, 20) AS n;
"""


async def test_kept_receipts_are_found_by_carrier_and_number_however_many_there_are(
    connection: Connection,
) -> None:
    await connection.execute(FLOOD)
    await set_all(connection, KEY_LOOKUPS)
    for when in ("never analysed", "analysed"):
        if when == "analysed":
            await connection.execute("VACUUM ANALYZE unmatched_receipts, carriers")
        values: Values = {"carrier_id": 2, "ends": ["70000007", "70000008", "79999999"], "count_max": 50}
        found = await generic_plan(connection, receipts.SQL_TO_NUMBERS, values)
        assert round(rows_read(found, "unmatched_receipts")) == 2, when
        taken = await generic_plan(connection, receipts.SQL_CLAIM_DUE, {"count_max": 200})
        # Found by what is due, and then updated by their keys.
        assert round(rows_read(taken, "unmatched_receipts")) == 2 * (200 + 20), when
        assert "Seq Scan" not in {kind for name, kind in scans(taken) if name != "carriers"}, when


@pytest.mark.long
async def test_opt_outs_are_found_by_their_key_however_many_there_are(connection: Connection) -> None:
    await connection.execute("""
        INSERT INTO accounts (id, phone, name, business) VALUES (gen_random_uuid(), '1', '', '');
        INSERT INTO opt_outs (account_id, number, source)
        SELECT id, '+2637712' || lpad(n::text, 5, '0'), 'page'
          FROM accounts, generate_series(1, 50000) AS n
         WHERE phone = '1';
    """)
    account_id = await connection.fetchval("SELECT id FROM accounts WHERE phone = '1'")
    await set_all(connection, PLANNED_ONCE)
    numbers = [f"+2637712{place:05}" for place in range(49_500, 50_500)]
    for when in ("never analysed", "analysed"):
        if when == "analysed":
            await connection.execute("VACUUM ANALYZE opt_outs")
        values: Values = {"account_ids": [account_id] * 1000, "numbers": numbers}
        found = await generic_plan(connection, opt_outs.SQL_FIND, values)
        # The average of the look-ups is rounded.
        assert 490 < rows_read(found, "opt_outs") < 510, when
        assert "Seq Scan" not in {kind for _, kind in scans(found)}, when


@pytest.mark.long
async def test_a_claim_walks_through_messages_and_batches_in_the_order_of_their_keys(
    busy: Connection,
) -> None:
    await set_all(busy, IN_KEY_ORDER)
    for when in ("never analysed", "analysed"):
        if when == "analysed":
            await busy.execute("ANALYZE messages, batches")
        started = await generic_plan(busy, queue.SQL_CLAIM, claimed([]))
        updates = [node for node in nodes(started) if node.get("Operation") == "Update"]
        assert len(updates) == 2
        for update in updates:
            kinds = {kind for _, kind in scans(update["Plans"])}
            assert kinds <= {"Index Scan", "CTE Scan"}, (kinds, when)
            directions = {node["Scan Direction"] for node in nodes(update) if "Scan Direction" in node}
            assert directions == {"Forward"}, when


async def test_messages_leave_the_queue_by_their_places_however_many_wait(busy: Connection) -> None:
    rows = await busy.fetch("SELECT * FROM queue ORDER BY turn DESC LIMIT $1", GROUP)
    columns = {"ids": "message_id", "queues": "country", "lanes": "lane", "turns": "turn"}
    values: Values = {name: [row[column] for row in rows] for name, column in columns.items()}
    left = await generic_plan(busy, places.SQL_LEAVE_PLACES, values)
    looked = [node for node in nodes(left) if node.get("Relation Name") == "queue"]
    assert {node["Node Type"] for node in looked} <= {"Index Scan", "Tid Scan", "LockRows", "ModifyTable"}
    assert max(node["Actual Rows"] * node["Actual Loops"] for node in looked) == GROUP


# Much that waits, is kept or is remembered, and none of it due.
NOT_DUE: Final = """
    INSERT INTO accounts (id, phone, name, business)
    SELECT gen_random_uuid(), n::text, '', '' FROM generate_series(1, 2000) AS n;
    INSERT INTO retries (message_id, due_at)
    SELECT id, now() + interval '1 hour' FROM accounts;
    INSERT INTO idempotency_keys (account_id, key, fingerprint, response, batch_id)
    SELECT id, 'key of one', sha256(''), '', id FROM accounts;
    INSERT INTO ledger_proofs (account_id, due_at) SELECT id, now() + interval '1 hour' FROM accounts;
    INSERT INTO unmatched_receipts (carrier_id, recipient, state, receipt, received_at, next_try_at)
    SELECT 1, '', 'DELIVRD', '', now(), now() + interval '1 hour' FROM accounts;
    INSERT INTO submission_references (carrier_id, reference, message_id, attempt, claimed_at, poll_at)
    SELECT 1, id::text, id, 0, now(), now() + interval '1 hour' FROM accounts;
    UPDATE batches SET completed_at = now(), pending = 0, status = 'completed', body = 'Hello';
"""


@pytest.mark.long
async def test_what_is_not_due_is_not_looked_at(busy: Connection) -> None:
    await busy.execute(NOT_DUE)
    values: Values = {
        "count_max": 1000,
        "days": 7,
        "accounts_max": 100,
        "fresh": first_id(0),
        "carrier_id": 1,
        "lease_s": 60,
    }
    for statement in (
        batches.SQL_LIST_OLD_TEXTS,
        lookups.SQL_DELETE_OLD,
        places.SQL_LIST_DUE,
        receipts.SQL_CLAIM_DUE,
        references.SQL_CLAIM_DUE,
        ledger_proofs.SQL_HOLD_PROOFS,
    ):
        assert rows_read(await generic_plan(busy, statement, values), "") == 0, statement.text

    # What is due is all that is looked at, by the time and then by its place.
    await busy.execute(
        "UPDATE idempotency_keys SET created_at = now() - interval '80 h' WHERE account_id < $1",
        UUID("10000000-0000-0000-0000-000000000000"),
    )
    old = await busy.fetchval(
        "SELECT count(*) FROM idempotency_keys WHERE created_at < now() - interval '73 h'"
    )
    found = await generic_plan(busy, lookups.SQL_DELETE_OLD, values)
    assert 0 < rows_read(found, "idempotency_keys") <= 3 * old


OWNER: Final = UUID("019a8b7c-0000-7000-8000-000000000001")
OPEN_PER_WEEK: Final = 5

# One account has all messages, each a batch of its own; the last few of every week have not ended. And three
# years of days on which it sent to both countries, beside others that did.
TRAFFIC: Final = f"""
    UPDATE messages SET account_id = '{OWNER}';
    INSERT INTO batches (id, account_id, created_at, completed_at, recipients, pending, segments, total_cost,
                         status, channel)
    SELECT id, account_id, now(), CASE WHEN place > {OPEN_PER_WEEK} THEN now() END, 1,
           CASE WHEN place > {OPEN_PER_WEEK} THEN 0 ELSE 1 END, 1, 0.04, 'processing', 'sms'
      FROM (SELECT *, row_number() OVER (PARTITION BY tableoid ORDER BY id DESC) AS place FROM messages) m;
    INSERT INTO retries (message_id, due_at) SELECT gen_random_uuid(), now() FROM generate_series(1, 20000);
    INSERT INTO traffic (account_id, day, country)
    SELECT account_id, date '2026-11-16' - back, country
      FROM unnest(ARRAY['{OWNER}'::uuid, gen_random_uuid(), gen_random_uuid(), gen_random_uuid()]) account_id,
           generate_series(0, 1100) back, unnest(ARRAY['ZA', 'ZW']) country;
"""


async def set_all(connection: Connection, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        await connection.execute(f"SET {name} = {value}")


def rows_read(plan: Any, tables: str) -> int:
    """Return how many rows were read from these tables, those included that a filter then left out."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan)
        if "Scan" in node["Node Type"] and node.get("Relation Name", "").startswith(tables)
    )


async def test_traffic_is_counted_without_a_look_at_the_table(connection: Connection) -> None:
    await connection.execute(TRAFFIC)
    await connection.execute(
        "INSERT INTO accounts (id, phone, name, business) VALUES ($1, '', '', '')", OWNER
    )
    await set_all(connection, KEY_LOOKUPS)
    day = date(2026, 11, 16).toordinal()
    ended = {(AccountId(OWNER), day - back, "ZW"): {"delivered": 1} for back in range(GROUP)}
    values: Values = {
        **events.parameters([NewEvent(AccountId(OWNER), "message.delivered")], datetime.now(UTC)),
        **daily_totals.parameters(ended),
    }
    found = await generic_plan(connection, settlement.SQL_TELL, values)
    (inserted,) = [node for node in nodes(found) if node.get("Conflicting Tuples") == GROUP]
    assert inserted["Conflict Arbiter Indexes"] == ["traffic_pkey"]
    assert not any(relation == "traffic" for relation, _ in scans(found))


@pytest.mark.long
async def test_the_overview_reads_what_it_shows_however_much_there_is(old_and_large: Connection) -> None:
    await old_and_large.execute(TRAFFIC)
    await set_all(old_and_large, PLANNED_ONCE)
    last_day = date(2026, 11, 16)
    month = {"account_id": OWNER, "first_day": last_day - timedelta(days=29), "last_day": last_day}
    assert rows_read(await generic_plan(old_and_large, daily_totals.SQL_DAYS, month), "traffic") == 60

    by_day = {"account_id": OWNER, "local_time": LOCAL_TIME, "batches_max": daily_totals.OPEN_BATCHES_MAX}
    read = rows_read(await generic_plan(old_and_large, daily_totals.SQL_WAITING_BY_DAY, by_day), "batches")
    assert read == 3 * OPEN_PER_WEEK
    read = rows_read(
        await generic_plan(
            old_and_large, daily_totals.SQL_WAITING_BY_DAY, by_day | {"batches_max": OPEN_PER_WEEK - 1}
        ),
        "batches",
    )
    assert read == OPEN_PER_WEEK - 1

    oldest = {"account_id": OWNER, "batches_max": 1000}
    read = rows_read(await generic_plan(old_and_large, daily_totals.SQL_OPEN_BATCHES, oldest), "batches")
    assert read == 3 * OPEN_PER_WEEK

    rows = await old_and_large.fetch("SELECT id FROM batches WHERE completed_at IS NULL ORDER BY id")
    bounds = [message_bounds(BatchId(row["id"])) for row in rows]
    values: Values = {
        "batch_ids": [row["id"] for row in rows],
        "lows": [low for low, _ in bounds],
        "highs": [high for _, high in bounds],
        "low": bounds[0][0],
        "high": bounds[-1][1],
        "account_id": OWNER,
        "count_max": 1000,
    }
    found = await generic_plan(old_and_large, daily_totals.SQL_WAITING, values)
    assert rows_read(found, "messages") == len(rows) == 3 * OPEN_PER_WEEK
    assert rows_read(found, "retries") == 0
    assert "Seq Scan" not in dict(scans(found)).values()
    assert {node["Index Name"].rpartition("_")[2] for node in nodes(found) if "Index Name" in node} == {
        "pkey"
    }


# Of the batches few got money back, and half have a label that many have, the others one of their own; one
# message in eight is to the same number. Most of all that is other accounts'.
ARCHIVE: Final = """
    UPDATE batches
       SET refunded = CASE WHEN hashtext(id::text) & 63 = 0 THEN 0.04 ELSE 0 END,
           reference = CASE WHEN hashtext(id::text) & 16 = 0 THEN 'otp' ELSE id::text END;
    UPDATE messages
       SET recipient = '+2637712' || lpad((hashtext(id::text) & 7)::text, 5, '0');
    UPDATE batches SET account_id = md5((hashtext(id::text) >> 8 & 255)::text)::uuid
     WHERE hashtext(id::text) >> 20 & 3 > 0;
    UPDATE messages m SET account_id = b.account_id FROM batches b WHERE b.id = m.id;
"""
PAGE: Final = 51
RARE: Final = "+263771299999"
FILLED_WEEKS: Final = 3
SEARCHED: Final[Values] = {
    "account_id": OWNER,
    "statuses": ["queued", "processing", "completed"],
    "refunded_min": 0,
    "since": search_batches.LOWEST,
    "before": search_batches.HIGHEST,
    "look_max": 1000,
    "count_max": PAGE,
    "reference": "otp",
}

# Each way to search, and the index down which it walks.
WAYS: Final = {
    search_batches.RECENT: "batches_of_account",
    search_batches.OPEN: "batches_open_of_account",
    search_batches.REFUNDED: "batches_refunded",
    search_batches.OF_REFERENCE: "batches_by_reference",
}


async def walks(connection: Connection) -> Mapping[Statement, str]:
    """Return the statement that walks each way through all weeks, and its index."""
    weeks = await partitions.names(connection, "batches")
    assert len(weeks) >= WEEKS
    return {way.through(weeks[::-1]): index for way, index in WAYS.items()}


@pytest_asyncio.fixture
async def archived(server_url: str, weeks: str) -> AsyncIterator[Connection]:
    """Give a connection to a database in which one account has batches of half a year."""
    async with connected(server_url, weeks, PLANNED_ONCE) as connection:
        await connection.execute(TRAFFIC)
        await connection.execute(ARCHIVE)
        yield connection


async def analyse_weeks(connection: Connection) -> None:
    rows = await connection.fetch(
        "SELECT relid::regclass::text AS week FROM pg_partition_tree('batches') WHERE isleaf"
        " UNION ALL SELECT relid::regclass::text FROM pg_partition_tree('messages') WHERE isleaf"
    )
    for row in rows:
        if await connection.fetchval(f"SELECT EXISTS (SELECT FROM {row['week']})"):
            await connection.execute(f"VACUUM ANALYZE {row['week']}")


@pytest.mark.long
async def test_what_an_archive_is_asked_for_is_read_and_nothing_else(archived: Connection) -> None:
    # The last message is the only one to its number.
    last = await archived.fetchrow(
        "UPDATE messages SET recipient = $1 WHERE id = (SELECT id FROM messages ORDER BY id DESC LIMIT 1)"
        " RETURNING tableoid::regclass::text AS week, id",
        RARE,
    )
    assert last is not None
    for when in ("never analysed", "analysed"):
        if when == "analysed":
            await analyse_weeks(archived)
        await check_searches(archived, when)
        await check_batches(archived, when)
        for settings in (KEY_LOOKUPS, PLANNED_ONCE):
            await set_all(archived, settings)
            await check_number(archived, last["week"], last["id"], when)
            await archived.execute("RESET ALL")
        await set_all(archived, PLANNED_ONCE)


async def check_searches(archived: Connection, when: str) -> None:
    """Check that each search walks down its index no further than its page, its limit or its dates."""
    rows = await archived.fetch(
        "SELECT inhrelid::regclass::text AS week, inhparent::regclass::text AS whole FROM pg_inherits"
    )
    whole = {row["week"]: row["whole"] for row in rows}
    in_vain = SEARCHED | {"statuses": ["queued"], "look_max": 60}
    monday = partitions._monday(datetime.now(UTC)) - timedelta(weeks=1)
    bounds = [first_id(int(at.timestamp() * 1000)) for at in (monday - timedelta(days=7), monday)]
    empty_days = SEARCHED | {"since": bounds[0], "before": bounds[1], "statuses": ["queued"]}
    for statement, index in (await walks(archived)).items():
        found = await generic_plan(archived, statement, SEARCHED)
        kinds = {node["Node Type"] for node in nodes(found)}
        assert not kinds & {"Seq Scan", "Bitmap Heap Scan", "Sort", "Incremental Sort"}, (index, when)
        table = index.partition("_")[0]
        walked = {
            whole[node["Index Name"]]
            for node in nodes(found)
            if node.get("Relation Name", "").startswith(table) and node["Actual Loops"]
        }
        assert walked == {index}, when
        # A week that is not needed has been asked for its first row.
        assert 0 < rows_read(found, table) <= PAGE + FILLED_WEEKS, (index, when)
        if index not in {"batches_open_of_account", "batches_refunded"}:
            found = await generic_plan(archived, statement, in_vain)
            assert 60 <= rows_read(found, table) <= 60 + FILLED_WEEKS, (index, when)
        assert rows_read(await generic_plan(archived, statement, empty_days), "") == 0, (index, when)


async def check_number(archived: Connection, week: str, last_id: UUID, when: str) -> None:
    """Check that a number is found through the summaries of its week."""
    statement = recipients.look_at(week)
    values: Values = {
        "number": RARE,
        "low": search_batches.LOWEST,
        "high": search_batches.HIGHEST,
        "account_id": None,
        "count_max": 101,
    }
    async with recipients._by_summaries(archived):
        found = await generic_plan(archived, statement, values)
        early = await generic_plan(archived, statement, values | {"high": last_id})
    assert [kind for _, kind in scans(found)] == ["Bitmap Heap Scan"], when
    (index,) = (node["Index Name"] for node in nodes(found) if node["Node Type"] == "Bitmap Index Scan")
    parent = await archived.fetchval(
        "SELECT inhparent::regclass::text FROM pg_inherits WHERE inhrelid = $1::text::regclass", index
    )
    assert parent == "messages_by_number"
    assert (rows_read(found, "messages"), rows_read(early, "messages")) == (1, 0), when
    (looked,) = (node for node in nodes(found) if node["Node Type"] == "Bitmap Heap Scan")
    pages = await archived.fetchval("SELECT pg_relation_size($1::text::regclass) / 8192", week)
    # Its own pages, and those at the end that have not been summarised yet.
    assert looked["Lossy Heap Blocks"] <= (64 if when == "analysed" else pages), when


async def check_batches(archived: Connection, when: str) -> None:
    """Check that batches are read by their keys, and a batch with its messages from one week."""
    rows = await archived.fetch("SELECT id FROM batches WHERE account_id = $1 ORDER BY id LIMIT 51", OWNER)
    ids = [BatchId(row["id"]) for row in rows]
    values = SEARCHED | {"ids": ids, "low": ids[0], "high": ids[-1], "reference": None}
    found = await generic_plan(archived, search_batches.SQL_BATCHES_OF, values)
    assert rows_read(found, "batches") == len(ids), when
    assert "Seq Scan" not in dict(scans(found)).values(), when
    low, high = message_bounds(ids[0])
    values = {
        "batch_id": ids[0],
        "account_id": OWNER,
        "low": low,
        "high": high,
        "statuses": ["queued", "delivered"],
        "count_max": 101,
    }
    for statement, table in (
        (batches.SQL_FIND, "batches"),
        (batches.SQL_COUNT, "messages"),
        (batches.SQL_LIST_MESSAGES, "messages"),
    ):
        found = await generic_plan(archived, statement, values)
        # Whether it came from a file is looked up by an index of its own.
        weeks = [place for place in scans(found) if place != ("upload_chunks", "Index Scan")]
        assert len(weeks) == 1, when
        assert rows_read(found, table) == 1, (statement.text, when)
    listed = values | batch_messages._bounds(ids)
    for statement in (batch_messages.SQL_COUNT_EACH, batch_messages.SQL_LIST_OF_BATCHES):
        found = await generic_plan(archived, statement, listed)
        assert rows_read(found, "messages") == len(ids), (statement.text, when)
        assert "Seq Scan" not in dict(scans(found)).values(), when


# Of twenty accounts one has half of all movements, of which one in 500 is by hand, and a mark at every
# thousandth, but for the last.
MOVEMENTS: Final = 20_000
MOVED: Final = f"""
    INSERT INTO accounts (id, phone, name, business)
    SELECT CASE WHEN n = 0 THEN '{OWNER}'::uuid ELSE gen_random_uuid() END, n::text, '', ''
      FROM generate_series(0, 19) AS n;
    INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, note, actor, created_at)
    SELECT account.id, CASE WHEN n % 1000 = 0 THEN 'adjustment' ELSE 'customer' END,
           CASE WHEN n % 1000 = 0 THEN 'customer' ELSE 'revenue' END, 0.04,
           CASE WHEN n % 1000 > 0 THEN gen_random_uuid() END, '', '',
           now() - ({2 * MOVEMENTS} - n) * interval '1 second'
      FROM generate_series(1, {2 * MOVEMENTS}) AS n
      JOIN accounts AS account
        ON account.phone = CASE WHEN n % 2 = 0 THEN '0' ELSE (n / 2 % 19 + 1)::text END;
    INSERT INTO ledger_marks (account_id, transfer_id, balance)
    SELECT '{OWNER}', id, 0
      FROM (SELECT id, row_number() OVER (ORDER BY id) AS place
              FROM transfers
             WHERE account_id = '{OWNER}') AS own
     WHERE place % {ledger_proofs.MARK_EVERY} = 0 AND place < {MOVEMENTS};
    INSERT INTO ledger_proofs (account_id, due_at) SELECT id, now() - interval '1 s' FROM accounts;
"""


@pytest.mark.long
async def test_the_ledger_reads_no_more_than_it_shows_or_adds_up(connection: Connection) -> None:
    await connection.execute(MOVED)
    for when in ("never analysed", "analysed"):
        if when == "analysed":
            await connection.execute("VACUUM ANALYZE transfers, ledger_marks, ledger_proofs, accounts")
        await set_all(connection, PLANNED_ONCE)
        await check_page_of_ledger(connection, when)
        await check_statement_of_month(connection, when)
        await check_balances(connection, when)
        await set_all(connection, KEY_LOOKUPS)
        await check_adding_up(connection, when)
        await connection.execute("RESET ALL")


async def check_page_of_ledger(moved: Connection, when: str) -> None:
    walked: Values = {
        "account_id": OWNER,
        "kinds": ["sends", "adjustments"],
        "since": 0,
        "before": ledger.LAST,
        "look_max": 1000,
        "count_max": PAGE,
    }
    by_hand = walked | {"kinds": ["adjustments"]}
    in_vain = walked | {"kinds": ["top-ups"]}
    for statement, values, index, count in (
        (ledger.SQL_WALK, walked, "transfers_of_account", PAGE),
        (ledger.SQL_WALK, in_vain, "transfers_of_account", 1000),
        (ledger.SQL_WALK_WITHOUT_BATCH, by_hand, "transfers_without_batch", MOVEMENTS // 500),
    ):
        found = await generic_plan(moved, statement, values)
        (scan,) = [node for node in nodes(found) if "Relation Name" in node]
        assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", index), when
        assert count <= rows_read(found, "transfers") <= count + 1, (index, when)
    halved = {"account_id": OWNER, "at": datetime.now(UTC) - timedelta(hours=3), "last": ledger.LAST}
    found = await generic_plan(moved, ledger.SQL_FIRST_SINCE, halved)
    assert {node["Index Name"] for node in nodes(found) if "Relation Name" in node} == {
        "transfers_of_account"
    }, when
    assert rows_read(found, "transfers") <= 64, when


async def check_statement_of_month(moved: Connection, when: str) -> None:
    rows = await moved.fetch("SELECT id FROM transfers WHERE account_id = $1 ORDER BY id", OWNER)
    values: Values = {"account_id": OWNER, "first_id": rows[1000]["id"], "next_id": rows[4000]["id"]}
    for statement, more, count in (
        (statement_store.SQL_MOVEMENTS, {"count_max": 250}, 250),
        (statement_store.SQL_DAYS, {"count_max": ledger.LAST, "local_time": LOCAL_TIME}, 3000),
    ):
        found = await generic_plan(moved, statement, values | more)
        (scan,) = [node for node in nodes(found) if "Relation Name" in node]
        assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", "transfers_of_account"), when
        assert rows_read(found, "transfers") == count, when
    found = await generic_plan(
        moved, statement_store.SQL_LAST_BEFORE, {"account_id": OWNER, "next_id": rows[4000]["id"]}
    )
    assert rows_read(found, "transfers") == 1, when


async def check_balances(moved: Connection, when: str) -> None:
    rows = await moved.fetch("SELECT id FROM transfers WHERE account_id = $1 ORDER BY id", OWNER)
    ids = [row["id"] for row in rows]
    page = ids[-50:]
    last = {"last": ledger.LAST}
    rows = await moved.fetch("SELECT transfer_id FROM ledger_marks ORDER BY 1 DESC LIMIT 2")
    for wanted, read_max in ((page, 1000), (ids[5000:5050], 1000), (ids[10::400], 50 * 1000)):
        values = {"account_id": OWNER, "ids": wanted, "previous_ids": [0, *wanted[:-1]], **last}
        found = await generic_plan(moved, ledger_proofs.SQL_STEPS, values)
        assert rows_read(found, "transfers") <= read_max, when
        # Of the marks there are too few here for an index to be of use.
        assert dict(scans(found))["transfers"] == "Index Scan", when
    values = {"account_id": OWNER, "mark_ids": [row["transfer_id"] for row in rows], **last}
    found = await generic_plan(moved, ledger_proofs.SQL_WRONG_MARKS, values)
    assert rows_read(found, "transfers") == 1000, when
    found = await generic_plan(moved, ledger_proofs.SQL_STANDING, {"account_id": OWNER, **last})
    # The movement at the mark tells its time.
    assert rows_read(found, "transfers") == 1000 + 1, when


async def check_adding_up(moved: Connection, when: str) -> None:
    values: Values = {"account_id": OWNER, "transfers_max": 500, "last": ledger.LAST}
    assert rows_read(await generic_plan(moved, ledger_proofs.SQL_MARK, values), "transfers") == 500, when
    values |= {"transfer_id": 10_000, "total": 0}
    found = await generic_plan(moved, ledger_proofs.SQL_READ_ON, values)
    assert rows_read(found, "transfers") == 500, when
    held = await generic_plan(moved, ledger_proofs.SQL_HOLD_PROOFS, {"accounts_max": 5})
    assert rows_read(held, "ledger_proofs") == 5, when


TOP_UPS: Final = 20_000
TOP_UPS_OPEN: Final = 20

# Years of top-ups that were credited, and a few to be looked at; one in a hundred is the owner's.
MANY_TOP_UPS: Final = f"""
    INSERT INTO accounts (id, phone, name, business)
    VALUES ('{OWNER}', '+263771299998', '', ''), (gen_random_uuid(), '+263771299999', '', '');
    INSERT INTO top_ups (id, account_id, method, provider, state, currency, asked, paid, amount,
                         provider_reference, due_at)
    SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid,
           (SELECT id FROM accounts WHERE phone = CASE WHEN n % 100 = 0 THEN '+263771299998'
                                                       ELSE '+263771299999' END),
           'paynow', 'ecocash', CASE WHEN n <= {TOP_UPS_OPEN} THEN 'doubt' ELSE 'credited' END, 'USD', 5, 5,
           5, n::text, CASE WHEN n <= {TOP_UPS_OPEN} THEN now() END
      FROM generate_series(1, {TOP_UPS}) AS n;
    INSERT INTO transfers (account_id, from_book, to_book, amount, top_up_id)
    SELECT account_id, 'topup:paynow', 'customer', amount, id FROM top_ups WHERE state = 'credited';
"""

FIRST_TOP_UP: Final = UUID("00000000-0000-7000-8000-000000000001")
# What is run, and how many rows of the large tables it may read for that.
TOP_UP_PLANS: Final[dict[str, tuple[Statement, Values, int]]] = {
    "find": (top_ups.SQL_FIND, {"top_up_id": FIRST_TOP_UP, "account_id": OWNER}, 1),
    "find any": (top_ups.SQL_FIND_ANY, {"top_up_id": FIRST_TOP_UP}, 1),
    "lock": (top_ups.SQL_LOCK, {"top_up_id": FIRST_TOP_UP}, 1),
    "of an account": (
        top_ups.SQL_LIST_OF_ACCOUNT,
        {"account_id": OWNER, "before": top_ups.LAST, "count_max": 50},
        50,
    ),
    "mark due": (top_ups.SQL_MARK_DUE, {"top_up_id": FIRST_TOP_UP}, 2),
    "moved": (top_up_lists.SQL_MOVED, {"top_up_ids": [FIRST_TOP_UP] * 200}, 200),
    "claim": (
        top_ups.SQL_CLAIM_DUE,
        {"keys": ["paynow", "ott"], "slots": [8, 8], "lease": timedelta(seconds=90)},
        40,
    ),
}


@pytest.mark.long
async def test_one_top_up_among_many_is_found_the_short_way(connection: Connection) -> None:
    await connection.execute(MANY_TOP_UPS)
    for held in (PLANNED_ONCE, KEY_LOOKUPS):
        await set_all(connection, held)
        for name, (statement, values, rows_max) in TOP_UP_PLANS.items():
            found = await generic_plan(connection, statement, values)
            assert "Seq Scan" not in dict(scans(found)).values(), (name, held)
            read = rows_read(found, "top_ups") + rows_read(found, "transfers")
            assert read <= rows_max, (name, held, read)
