"""Ledger lists: the balance after each transfer, and the proof that transfers add up."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import asyncpg
import pytest
import pytest_asyncio

from tests.support.delivery.settling import World
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import broken_promises, open_batchers, send_call, until_accepted
from tumira.accounts import ledger, ledger_proofs
from tumira.accounts.ledger import EntryKind
from tumira.accounts.store import SYSTEM
from tumira.core.ids import BATCH, AccountId, read_id
from tumira.identity import manage_accounts
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import Database
from tumira.sending.types import Call

ADD_UP: Final = next(task for task in MAINTENANCE_TASKS if task.name == "add up ledgers")
COUNT: Final = 3_500
TURNS_MAX: Final = 20

# A movement a minute, the last one now: one in a hundred is a top-up, two are by hand, and a fifth refunds.
FILL: Final = f"""
WITH made AS (
    INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id, top_up_id, note,
                           actor, created_at)
    SELECT $1,
           CASE WHEN n % 100 = 0 THEN 'topup:paynow' WHEN n % 100 = 1 THEN 'adjustment'
                WHEN n % 5 = 2 THEN 'revenue' ELSE 'customer' END,
           CASE WHEN n % 100 = 50 THEN 'adjustment'
                WHEN n % 100 < 2 OR n % 5 = 2 THEN 'customer' ELSE 'revenue' END,
           CASE WHEN n % 100 < 2 THEN 10 ELSE 0.0001 * (n % 7 + 1) END,
           CASE WHEN n % 50 > 0 AND n % 100 <> 1 THEN gen_random_uuid() END,
           CASE WHEN n % 50 > 0 AND n % 5 = 2 THEN gen_random_uuid() END,
           CASE WHEN n % 100 = 0 THEN gen_random_uuid() END,
           'a note', 'test', now() - ({COUNT} - n) * interval '1 minute'
      FROM generate_series(1, {COUNT}) AS n
    RETURNING CASE WHEN to_book = 'customer' THEN amount ELSE -amount END AS amount
)
UPDATE accounts SET balance = balance + (SELECT sum(amount) FROM made) WHERE id = $1
"""

RUNNING: Final = """
SELECT id, created_at, from_book, to_book, batch_id, message_id,
       sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END) OVER (ORDER BY id) AS balance
  FROM transfers WHERE account_id = $1 ORDER BY id
"""


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = Database(database_url)
    yield database
    await database.close()


@pytest_asyncio.fixture
async def caller(database_url: str) -> Caller:
    return await new_caller(database_url)


@pytest_asyncio.fixture
async def filled(database: Database, caller: Caller) -> AccountId:
    """Give an account with thousands of movements, beside another that has as many."""
    other = await new_caller(database.url)
    async with database.connection() as connection:
        await connection.execute("SELECT setval('transfers_id_seq', 1000000)")
        await connection.execute("ALTER TABLE transfers DISABLE TRIGGER USER")
        # What was credited at the opening is older than what follows.
        await connection.execute("UPDATE transfers SET created_at = now() - interval '100 days'")
        await connection.execute("ALTER TABLE transfers ENABLE TRIGGER USER")
        await connection.execute(FILL.replace("$1", f"'{other.id}'"))
        await connection.execute(FILL.replace("$1", f"'{caller.id}'"))
    return caller.id


async def add_up(
    database: Database, transfers_max: int = ledger_proofs.TRANSFERS_PER_TURN
) -> list[AccountId]:
    """Add everything up to the end, as if that were due, and return whose books are broken."""
    broken: list[AccountId] = []
    async with database.connection() as connection:
        await connection.execute("UPDATE ledger_proofs SET due_at = now()")
        for _ in range(TURNS_MAX):
            async with connection.transaction():
                broken.extend((await ledger_proofs.add_up(connection, transfers_max)).broken)
            if not await connection.fetchval("SELECT count(*) FROM ledger_proofs WHERE due_at <= now()"):
                return broken
    raise AssertionError("it did not come to an end")


async def marks(database: Database, account_id: AccountId) -> list[tuple[int, Decimal]]:
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT transfer_id, balance FROM ledger_marks WHERE account_id = $1 ORDER BY 1", account_id
        )
    return [(row[0], row[1]) for row in rows]


async def running(database: Database, account_id: AccountId) -> list[asyncpg.Record]:
    async with database.connection() as connection:
        return await connection.fetch(RUNNING, account_id)


async def balances(
    database: Database, account_id: AccountId, ids: Sequence[int]
) -> dict[int, Decimal] | None:
    async with database.connection() as connection:
        found = await ledger_proofs.balances_after(connection, account_id, ids)
    return None if found is None else dict(found)


async def standing(database: Database, account_id: AccountId) -> ledger_proofs.LedgerState:
    async with database.connection() as connection:
        return await ledger_proofs.get_state(connection, account_id)


async def test_movements_are_in_the_order_in_which_the_balance_changed(
    database_url: str, database: Database, caller: Caller
) -> None:
    # Small sends, large ones on connections of their own, and the operator, all at once at four batchers.
    many = [f"+2637712{number:05}" for number in range(60)]
    told: dict[object, Decimal] = {}

    async def send(call: Call, batcher: int) -> None:
        # The account may be locked for seconds while the machine is busy.
        answer = await until_accepted(batchers.batchers[batcher], call)
        assert answer.response is not None
        said = json.loads(answer.response)
        told[read_id(BATCH, said["batch_id"])] = Decimal(said["balance_after"])

    async def credit(number: int) -> None:
        async with database.transaction() as connection:
            told[str(number)] = await ledger.adjust(
                connection, caller.id, Decimal(1), note=str(number), actor="test"
            )

    async with open_batchers(database_url, 4) as batchers:
        await asyncio.gather(
            *(send(send_call(caller, idempotency_key=f"small {n}"), n % 4) for n in range(30)),
            *(send(send_call(caller, many, idempotency_key=f"large {n}"), n % 4) for n in range(4)),
            *(credit(number) for number in range(10)),
        )
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT id, batch_id, note FROM transfers ORDER BY id")
    after = await balances(database, caller.id, [row["id"] for row in rows])
    assert after is not None
    assert rows[0]["note"] == "Opening balance"
    assert len(told) == len(rows) - 1 == 44
    for row in rows[1:]:
        assert after[row["id"]] == told[row["batch_id"] or row["note"]]


async def test_refunds_stand_among_the_movements_in_the_order_of_the_balance(world: World) -> None:
    database = world.engine.database
    await world.send(4)
    claimed = await world.claim(4)
    seen = []
    for one in claimed:
        await world.settle(world.taken(one), world.reported(one, "UNDELIV"))
        await manage_accounts.credit(database, world.caller.id, Decimal(1), note="between", actor="test")
        rows = await world.rows("SELECT balance FROM accounts WHERE id = $1", world.caller.id)
        seen.append(rows[0]["balance"])
    async with database.connection() as connection:
        found = await ledger.list_entries(connection, world.caller.id, EntryKind.ALL, 50)
        credits_alone = await ledger.list_entries(connection, world.caller.id, EntryKind.ADJUSTMENTS, 50)
        after = await ledger_proofs.balances_after(
            connection, world.caller.id, [entry.id for entry in credits_alone.entries]
        )
    assert after is not None
    assert [entry.kind for entry in found.entries] == [
        *([EntryKind.ADJUSTMENTS, EntryKind.REFUNDS] * 4),
        EntryKind.SENDS,
        EntryKind.ADJUSTMENTS,
    ]
    assert [after[entry.id] for entry in reversed(credits_alone.entries)][1:] == seen


async def test_the_balance_after_any_movement_is_that_of_all_before_it(
    database: Database, filled: AccountId
) -> None:
    chance = random.Random(7)
    # Without marks, with one at every thousandth movement, and with those of movements that came later.
    for marked in (0, 3, 7):
        if marked == 7:
            async with database.connection() as connection:
                await connection.execute(FILL.replace("$1", f"'{filled}'"))
        if marked:
            assert await add_up(database) == []
        rows = await running(database, filled)
        expected = {row["id"]: row["balance"] for row in rows}
        ids = list(expected)
        assert await marks(database, filled) == list(expected.items())[999 : marked * 1000 : 1000]
        samples = [ids[-50:], ids[:50], ids[980:1030], [ids[999]], [ids[1000]], chance.sample(ids, 50)]
        for sample in samples:
            assert await balances(database, filled, sample) == {one: expected[one] for one in sample}


async def test_pages_of_each_kind_leave_nothing_out(database: Database, filled: AccountId) -> None:
    await add_up(database)
    rows = await running(database, filled)
    kinds = {
        EntryKind.REFUNDS: [row["id"] for row in rows if row["message_id"]],
        EntryKind.SENDS: [row["id"] for row in rows if row["batch_id"] and not row["message_id"]],
        EntryKind.TOP_UPS: [row["id"] for row in rows if row["from_book"] == "topup:paynow"],
        EntryKind.ADJUSTMENTS: [
            row["id"] for row in rows if "adjustment" in {row["from_book"], row["to_book"]}
        ],
    }
    assert all(kinds.values())
    assert sum(map(len, kinds.values())) == len(rows)
    async with database.connection() as connection:
        for kind, ids in {**kinds, EntryKind.ALL: [row["id"] for row in rows]}.items():
            found: list[int] = []
            before = ledger.LAST
            # Looking at few movements at a time, it stops often and goes on where it stopped.
            for _ in range(COUNT):
                page = await ledger.list_entries(connection, filled, kind, 50, before=before, look_max=70)
                assert len(page.entries) <= 50
                found.extend(entry.id for entry in page.entries)
                if page.older is None:
                    assert page.stopped_at is None
                    break
                before = page.older
            assert found == ids[::-1], kind


async def test_a_page_with_all_that_there_is_leads_nowhere(database: Database, filled: AccountId) -> None:
    async with database.connection() as connection:
        page = await ledger.list_entries(connection, filled, EntryKind.TOP_UPS, COUNT, look_max=10 * COUNT)
    assert page.entries
    assert (page.older, page.stopped_at) == (None, None)


async def test_days_are_found_by_halving(database: Database, filled: AccountId) -> None:
    rows = await running(database, filled)
    chance = random.Random(7)
    times = [row["created_at"] for row in rows]
    moments = [
        times[0] - timedelta(days=1),
        times[-1] + timedelta(microseconds=1),
        datetime.now(UTC) + timedelta(days=1),
        *chance.sample(times, 20),
        *(one + timedelta(seconds=30) for one in chance.sample(times[:-1], 20)),
    ]
    async with database.connection() as connection:
        for at in moments:
            first = await ledger.first_since(connection, filled, at)
            expected = [row["id"] for row in rows if row["created_at"] >= at]
            assert [row["id"] for row in rows if row["id"] >= first] == expected
        assert await ledger.first_since(connection, SYSTEM, datetime.now(UTC)) == 0


async def test_all_is_added_up_from_the_first_on_in_bounded_turns(
    database: Database, filled: AccountId
) -> None:
    async with database.transaction() as connection:
        added = await ledger_proofs.add_up(connection, 1_000)
    # Two accounts have more than that; the gateway's own has nothing, which adds up.
    assert (added.marks, added.proved, added.broken) == (2, 1, [])
    assert (await standing(database, filled)).proved_at is None
    assert await add_up(database, 1_000) == []
    stands = await standing(database, filled)
    assert stands.proved_at is not None
    assert stands.proved_entries == COUNT + 1
    assert stands.counted == (COUNT + 1) % ledger_proofs.MARK_EVERY
    assert stands.adds_up
    assert stands.balance == stands.total
    # It is not due again so soon.
    assert await run_task(database, ADD_UP) == 0


# What breaks an account's books; the last tells whether the audit, which knows no marks, sees it too.
BREAKS: Final = {
    "the balance": ("UPDATE accounts SET balance = balance + 0.0001 WHERE id = $1", True),
    "a movement above the marks": (
        (
            "UPDATE transfers SET amount = amount + 1"
            " WHERE id = (SELECT max(id) FROM transfers WHERE account_id = $1)"
        ),
        True,
    ),
    "a movement below a mark": (
        (
            "UPDATE transfers SET amount = amount + 1"
            " WHERE id = (SELECT id FROM transfers WHERE account_id = $1 ORDER BY id OFFSET 1500 LIMIT 1)"
        ),
        True,
    ),
    "the movement at a mark, gone": (
        "DELETE FROM transfers WHERE id = (SELECT min(transfer_id) FROM ledger_marks WHERE account_id = $1)",
        True,
    ),
    "the last mark": (
        (
            "UPDATE ledger_marks SET balance = balance + 1"
            " WHERE transfer_id = (SELECT max(transfer_id) FROM ledger_marks WHERE account_id = $1)"
        ),
        False,
    ),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_broken_books_are_seen_as_the_audit_sees_them(
    database: Database, filled: AccountId, name: str
) -> None:
    statement, seen_by_audit = BREAKS[name]
    await add_up(database)
    assert "balance" not in await broken_promises(database)
    assert (await standing(database, filled)).adds_up
    async with database.connection() as connection:
        await connection.execute("ALTER TABLE transfers DISABLE TRIGGER USER")
        await connection.execute(statement.replace("$1", f"'{filled}'"))
        assert ("balance" in await broken_promises(database)) == seen_by_audit
        assert await add_up(database) == [filled]
        stands = await standing(database, filled)
        assert not stands.adds_up
        assert stands.broken_at is not None
        assert stands.proved_at is not None
        assert stands.proved_at < stands.broken_at
        others = await connection.fetchval("SELECT count(*) FROM ledger_proofs WHERE broken_at IS NULL")
        assert others == 2
        if name == "the balance":
            # Books that were put right add up again.
            await connection.execute("UPDATE accounts SET balance = balance - 0.0001 WHERE id = $1", filled)
            assert not (await standing(database, filled)).adds_up
            assert await add_up(database) == []
            stands = await standing(database, filled)
            assert (stands.adds_up, stands.broken_at) == (True, None)


async def test_a_wrong_mark_is_seen_by_whoever_reads_the_balances_around_it(
    database: Database, filled: AccountId
) -> None:
    await add_up(database)
    ids = [row["id"] for row in await running(database, filled)]
    async with database.connection() as connection:
        await connection.execute(
            "UPDATE ledger_marks SET balance = balance + 1 WHERE transfer_id = $1", ids[1999]
        )
    for place in (1500, 1999, 2000, 2500):
        assert await balances(database, filled, ids[place : place + 1]) is None, place
    for place in (500, 3200):
        assert await balances(database, filled, ids[place : place + 1]) is not None, place


async def test_an_account_without_movements_adds_up_to_nothing(database_url: str, database: Database) -> None:
    poor = await new_caller(database_url, balance="0")
    assert await add_up(database) == []
    stands = await standing(database, poor.id)
    assert (stands.balance, stands.total, stands.counted) == (Decimal(0), Decimal(0), 0)
    assert stands.since is None
    assert stands.adds_up
    assert await balances(database, poor.id, []) == {}


async def test_an_entry_is_found_by_its_account_alone(database: Database, filled: AccountId) -> None:
    rows = await running(database, filled)
    chosen = [next(row for row in rows if row["message_id"]), rows[0], rows[-1]]
    other = (await new_caller(database.url)).id
    async with database.connection() as connection:
        for row in chosen:
            found = await ledger.find_entry(connection, filled, row["id"])
            assert found is not None
            assert (found.id, found.batch_id, found.message_id) == (
                row["id"],
                row["batch_id"],
                row["message_id"],
            )
            assert await ledger.find_entry(connection, other, row["id"]) is None
        assert await ledger.find_entry(connection, filled, -1) is None
