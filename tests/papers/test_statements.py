"""Statements add up, follow on from each other, and stay as they are."""

import asyncio
import csv
import io
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.support.papers import ISSUER, PUBLIC_URL, broken_papers, read_pdf
from tests.support.processes.service import Caller, new_caller, run_on
from tumira.accounts import ledger, ledger_proofs
from tumira.accounts.ledger import EntryKind
from tumira.core.days import local_day, local_midnight
from tumira.core.ids import AccountId
from tumira.core.settings.seller import Seller
from tumira.html.page import write_exact_usd
from tumira.papers import pdf, statements
from tumira.papers.content import month_after, month_before
from tumira.papers.issue import PaperIssuer
from tumira.papers.statements import LINES_MAX, ProvedStatement, month_of
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

# Books, and whether it names a batch, a message, a top-up or a schedule.
KINDS: Final = {
    "send": ("customer", "revenue", True, False, False, False),
    "refund": ("revenue", "customer", True, True, False, False),
    "top-up": ("topup:paynow", "customer", False, False, True, False),
    "reversal": ("customer", "topup:paynow", False, False, True, False),
    "credit": ("adjustment", "customer", False, False, False, False),
    "deduction": ("customer", "adjustment", False, False, False, False),
    "hold": ("customer", "held", False, False, False, True),
    "release": ("held", "customer", False, False, False, True),
}
MOVE: Final = """
INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, message_id, top_up_id, schedule_id,
                       note, actor, created_at)
VALUES ($1, $2, $3, $4, CASE WHEN $5 THEN gen_random_uuid() END, CASE WHEN $6 THEN gen_random_uuid() END,
        CASE WHEN $7 THEN gen_random_uuid() END, CASE WHEN $8 THEN gen_random_uuid() END, 'a note',
        'test', $9)
"""
BALANCE: Final = """
UPDATE accounts
   SET balance = (SELECT sum(CASE WHEN to_book = 'customer' THEN amount ELSE -amount END)
                    FROM transfers WHERE account_id = $1)
 WHERE id = $1
"""


def this_month() -> date:
    return month_of(datetime.now(UTC))


def months_ago(count: int) -> date:
    month = this_month()
    for _ in range(count):
        month = month_before(month)
    return month


async def move(
    database: Database, account_id: AccountId, moves: Sequence[tuple[str, Decimal, datetime]]
) -> None:
    """Write a ledger of the past, with the money for all of it at the beginning."""
    first = min((at for _, _, at in moves), default=datetime.now(UTC)) - timedelta(days=1)
    rows = [("credit", Decimal(1_000_000), first), *moves]
    async with database.transaction() as connection:
        await connection.execute("UPDATE accounts SET created_at = $2 WHERE id = $1", account_id, first)
        await connection.executemany(
            MOVE, [(account_id, *KINDS[kind][:2], amount, *KINDS[kind][2:], at) for kind, amount, at in rows]
        )
        await connection.execute(
            BALANCE,
            account_id,
        )


async def find(database: Database, account_id: AccountId, month: date) -> ProvedStatement:
    found = await statements.find_statement(database, ISSUER, account_id, month)
    assert found is not None
    assert found.adds_up
    return found


async def read_csv(database: Database, found: ProvedStatement) -> list[dict[str, str]]:
    pieces = [piece async for piece in statements.write_csv(database, found.statement)]
    return list(csv.DictReader(io.StringIO(b"".join(pieces).decode(), newline="")))


async def check_month(database: Database, account_id: AccountId, month: date) -> ProvedStatement:
    """Compare a statement with the transfers of its month, added up in another way."""
    found = await find(database, account_id, month)
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT CASE WHEN to_book = 'customer' THEN amount ELSE -amount END AS amount"
            " FROM transfers WHERE account_id = $1"
            " AND date_trunc('month', created_at AT TIME ZONE 'Africa/Harare')::date = $2",
            account_id,
            month,
        )
    statement = found.statement
    assert statement.movements == len(rows)
    assert statement.closing - statement.opening == sum((row["amount"] for row in rows), Decimal(0))
    listed = await read_csv(database, found)
    assert (listed[0]["kind"], listed[-1]["kind"]) == ("opening", "closing")
    assert Decimal(listed[-1]["balance_after_usd"]) == statement.closing
    assert len(listed) == statement.movements + 2
    return found


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    # Each example has months to add up.
    max_examples=settings().max_examples // 6,
)
@given(
    moves=some.lists(
        some.tuples(
            some.sampled_from(sorted(KINDS)),
            some.integers(1, 99_999).map(lambda units: Decimal(units) / 10_000),
            # Minutes back from now, and around the ends of months.
            some.one_of(
                some.integers(1, 60 * 24 * 150), some.sampled_from(range(5)).map(lambda months: -months)
            ),
        ),
        max_size=30,
    )
)
def test_months_of_any_ledger_add_up_and_follow_on(
    database_url: str, moves: list[tuple[str, Decimal, int]]
) -> None:
    now = datetime.now(UTC)

    def at(when: int) -> datetime:
        return now - timedelta(minutes=when) if when > 0 else local_midnight(months_ago(-when))

    async def check(database: Database) -> None:
        caller = await new_caller(database_url, "0")
        await move(database, caller.id, sorted(((k, a, at(w)) for k, a, w in moves), key=lambda one: one[2]))
        async with database.connection() as connection:
            months = list(await statements.list_months(connection, caller.id))[::-1]
        # Asked for in any order, each begins where the one before it ended.
        found = {month: await check_month(database, caller.id, month) for month in reversed(months)}
        opening = Decimal(0)
        for month in months:
            assert found[month].statement.opening == opening
            opening = found[month].statement.closing
        async with database.connection() as connection:
            row = await connection.fetchrow("SELECT balance FROM accounts WHERE id = $1", caller.id)
        assert row is not None
        assert opening == row["balance"]
        assert await broken_papers(database) == []

    run_on(database_url, check)


async def test_a_stored_month_stays_as_it_is(database: Database, caller: Caller) -> None:
    last = month_before(this_month())
    at = local_midnight(last) + timedelta(days=3)
    await move(database, caller.id, [("top-up", Decimal("5.4054"), at), ("send", Decimal("0.04"), at)])
    before = await find(database, caller.id, last)
    drawn = pdf.draw_statement(before.statement, await statements.list_lines(database, before.statement))
    assert before.statement.closed_at is not None
    async with database.connection() as connection:
        await connection.execute("UPDATE accounts SET business = 'Other' WHERE id = $1", caller.id)
    # The clock of the database was wrong: a movement says that it was made last month, and comes now.
    async with database.transaction() as connection:
        await deduct(connection, caller.id, at)
    other = PaperIssuer(Seller("Another seller"), PUBLIC_URL)
    again = await statements.find_statement(database, other, caller.id, last)
    assert again is not None
    assert again.statement == before.statement
    lines = await statements.list_lines(database, again.statement)
    assert pdf.draw_statement(again.statement, lines) == drawn
    current = await find(database, caller.id, this_month())
    assert current.statement.opening == before.statement.closing
    assert (current.statement.movements, current.statement.closed_at) == (1, None)


async def deduct(connection: Connection, account_id: AccountId, at: datetime) -> None:
    await connection.execute("UPDATE accounts SET balance = balance - 1 WHERE id = $1", account_id)
    books, names = KINDS["deduction"][:2], KINDS["deduction"][2:]
    await connection.execute(MOVE, account_id, *books, Decimal(1), *names, at)


async def test_a_month_waits_for_a_transfer_that_is_being_committed(
    database: Database, caller: Caller
) -> None:
    last = month_before(this_month())
    at = local_midnight(this_month()) - timedelta(seconds=1)
    await move(database, caller.id, [("send", Decimal("0.04"), at - timedelta(days=1))])
    async with database.transaction() as connection:
        await deduct(connection, caller.id, at)
        waiting = asyncio.create_task(find(database, caller.id, last))
        while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            assert not waiting.done()
    assert (await waiting).statement.movements == (3 if month_of(at - timedelta(days=2)) == last else 2)


async def test_the_pdf_has_every_movement_as_the_ledger_does(database: Database, caller: Caller) -> None:
    last = month_before(this_month())
    at = local_midnight(last) + timedelta(days=2)
    kinds = list(KINDS)
    moves = [
        (kinds[number % len(kinds)], Decimal(number + 1) / 100, at + timedelta(hours=number))
        for number in range(90)
    ]
    await move(database, caller.id, moves)
    found = await find(database, caller.id, last)
    lines = await statements.list_lines(database, found.statement)
    assert lines is not None
    said = " ".join(read_pdf(pdf.draw_statement(found.statement, lines)).split())
    balance = found.statement.opening
    async with database.connection() as connection:
        rows = await connection.fetch(
            "SELECT id, CASE WHEN to_book = 'customer' THEN amount ELSE -amount END AS amount FROM transfers"
            " WHERE account_id = $1 AND id >= $2 AND id < $3 ORDER BY id",
            caller.id,
            found.statement.first_id,
            found.statement.next_id,
        )
    assert len(rows) >= 90
    place = 0
    for row in rows:
        balance += row["amount"]
        shown = f"{write_exact_usd(row['amount'])} {write_exact_usd(balance)}".replace("\N{MINUS SIGN}", "-")
        place = said.index(shown, place) + 1
    assert f"Closing balance {write_exact_usd(found.statement.closing)}" in said
    assert "Page 2" in said


async def test_a_busy_month_is_by_day_and_its_csv_has_everything(database: Database, caller: Caller) -> None:
    last = month_before(this_month())
    at = local_midnight(last) + timedelta(days=5)
    count = LINES_MAX + 1
    await move(
        database,
        caller.id,
        [("send", Decimal("0.01"), at + timedelta(minutes=number)) for number in range(count)],
    )
    found = await check_month(database, caller.id, last)
    assert await statements.list_lines(database, found.statement) is None
    drawn = pdf.draw_statement(found.statement, None)
    assert len(drawn) < 20_000
    said = " ".join(read_pdf(drawn).split())
    assert "by day. The CSV file lists each of them." in said
    assert f"{local_day(at):%-d %b %Y} {count}" in said


@pytest.mark.long
async def test_a_month_of_many_batches_is_read_piece_by_piece(database: Database, caller: Caller) -> None:
    last = month_before(this_month())
    at = local_midnight(last) + timedelta(days=1)
    await move(database, caller.id, [("credit", Decimal(1), at)])
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO transfers (account_id, from_book, to_book, amount, batch_id, created_at)"
            " SELECT $1, 'customer', 'revenue', 0.0001 * (n % 9 + 1), gen_random_uuid(),"
            "        $2::timestamptz + n * interval '20 seconds'"
            "   FROM generate_series(1, 100000) AS n",
            caller.id,
            at,
        )
        await connection.execute(
            BALANCE,
            caller.id,
        )
        async with connection.transaction():
            for _ in range(20):
                await ledger_proofs.add_up(connection)
                await connection.execute("UPDATE ledger_proofs SET due_at = now()")
    found = await find(database, caller.id, last)
    assert found.statement.movements > 100_000
    sizes, rows, last_line = [], 0, b""
    async for piece in statements.write_csv(database, found.statement):
        sizes.append(len(piece))
        rows += piece.count(b"\r\n")
        last_line = piece.splitlines()[-1]
    assert rows == found.statement.movements + 3
    assert max(sizes) < 100_000
    assert f"closing,,,{found.statement.closing},".encode() in last_line
    assert len(pdf.draw_statement(found.statement, None)) < 30_000


async def test_a_month_that_does_not_add_up_is_not_stored(database_url: str, caller: Caller) -> None:
    database = Database(database_url)
    last = month_before(this_month())
    at = local_midnight(last) + timedelta(days=1)
    await move(database, caller.id, [("send", Decimal("0.01"), at)] * 2)
    async with database.connection() as connection:
        # A checkpoint that contradicts the transfers.
        await connection.execute(
            "INSERT INTO ledger_marks"
            " SELECT account_id, min(id), 7 FROM transfers WHERE account_id = $1 GROUP BY 1",
            caller.id,
        )
    found = await statements.find_statement(database, ISSUER, caller.id, last)
    assert found is not None
    assert not found.adds_up
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM statements") == 0
        await connection.execute("DELETE FROM ledger_marks")
    assert (await find(database, caller.id, last)).statement.closed_at is not None
    await database.close()


async def test_there_is_no_statement_before_the_account_or_after_today(
    database: Database, caller: Caller
) -> None:
    for month in (month_before(this_month()), month_after(this_month())):
        assert await statements.find_statement(database, ISSUER, caller.id, month) is None
    async with database.transaction() as connection:
        await ledger.adjust(connection, caller.id, Decimal(100), note="Opening balance", actor="test")
    current = await find(database, caller.id, this_month())
    assert statements.totals_by_kind(current.statement) == [(EntryKind.ADJUSTMENTS, Decimal(100), 1)]
