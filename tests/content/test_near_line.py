"""Texts that pass near the line: marked, counted and sampled, with consent and within bounds."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import asyncpg
import pytest
import pytest_asyncio
from msgspec import Struct

from tests.support.content.near_line import near_call
from tests.support.processes.service import Caller, new_caller
from tests.support.sending.batchers import Batchers, broken_promises, open_batchers, send_call
from tumira.audit_log import Actor
from tumira.content import near_line, near_line_store
from tumira.content import review as content_review
from tumira.content.near_line import NearLineCounts, rank_of
from tumira.content.near_line_store import SAMPLES_PER_DAY, MarkedSend, NearLineReview
from tumira.content.store import digest_of
from tumira.content.templates import TemplateVerdict
from tumira.core.days import local_day
from tumira.core.ids import AccountId, new_id
from tumira.identity import manage_accounts
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import Database
from tumira.sending.types import Answered

FORGET: Final = next(task for task in MAINTENANCE_TASKS if task.name == "forget texts near the line")
TEXT: Final = "Dear member, our shop opens on Sunday at 8."
OTHER: Final = "Your car is ready. Ask us about tyres."
WORDS: Final = [f"{a}{b}{c}" for a in "bdfgklmnpr" for b in "aeiou" for c in "bdfgklmnpr"]
TESTER: Final = Actor("test")


class Kept(Struct, frozen=True):
    """What is stored about an account."""

    marked: Sequence[bool]
    messages: int
    texts: Sequence[str]


@pytest_asyncio.fixture
async def batchers(database_url: str) -> AsyncIterator[Batchers]:
    async with open_batchers(database_url, 2) as opened:
        yield opened


@pytest_asyncio.fixture
async def caller(database_url: str) -> Caller:
    """Give an account that consents to review."""
    return await consenting(database_url)


async def consenting(url: str) -> Caller:
    caller = await new_caller(url)
    database = Database(url, connections_max=1)
    await manage_accounts.review(database, caller.id, consent=True)
    await database.close()
    return caller


async def execute(batchers: Batchers, statement: str, *arguments: Any) -> list[asyncpg.Record]:
    async with batchers.database.connection() as connection:
        return await connection.fetch(statement, *arguments)


async def kept(batchers: Batchers, caller: Caller) -> Kept:
    """Let every batcher write what it has collected, and return what is stored."""
    for batcher in batchers.batchers:
        await batcher._near_line.close()
    marked = await execute(
        batchers,
        "SELECT coalesce(near_line, false) FROM batches WHERE account_id = $1 ORDER BY id",
        caller.id,
    )
    messages = await execute(
        batchers,
        "SELECT coalesce(sum(messages), 0)::bigint FROM near_line_days WHERE account_id = $1",
        caller.id,
    )
    texts = await execute(
        batchers, "SELECT text FROM near_line_texts WHERE account_id = $1 ORDER BY text", caller.id
    )
    return Kept([row[0] for row in marked], messages[0][0], [row[0] for row in texts])


async def test_a_text_near_the_line_is_sent_marked_counted_and_sampled(
    batchers: Batchers, caller: Caller
) -> None:
    many = [f"+2637712{number:05}" for number in range(60)]
    ordinary, near, large = await batchers.ask_all(
        [send_call(caller), near_call(caller, TEXT), near_call(caller, OTHER, many)]
    )
    assert isinstance(ordinary, Answered)
    assert isinstance(near, Answered)
    assert isinstance(large, Answered)
    stored = await kept(batchers, caller)
    assert sorted(stored.marked) == [False, True, True]
    assert stored.messages == 61
    assert stored.texts == [TEXT, OTHER]
    async with batchers.database.connection() as connection:
        (first, second) = sorted(
            await near_line_store.list_open(connection, 10), key=lambda one: one.messages
        )
    assert (first.text, first.messages, second.text, second.messages) == (TEXT, 1, OTHER, 60)
    assert first.first_at == first.last_at
    assert await broken_promises(batchers.database) == []


async def test_a_send_near_the_line_asks_the_database_nothing_more(
    batchers: Batchers, caller: Caller
) -> None:
    batcher = batchers.batchers[0]
    await batcher.ask(send_call(caller))
    connection = batcher._connection._connection
    assert connection is not None
    asked: list[str] = []
    connection.add_query_logger(lambda query: asked.append(query.query))
    counts = []
    for call in (send_call(caller), near_call(caller, TEXT), near_call(caller, OTHER)):
        asked.clear()
        assert isinstance(await batcher.ask(call), Answered)
        # The transaction of the next group may begin a moment sooner or later.
        counts.append([text for text in asked if "FROM" in text])
    assert counts[0] == counts[1] == counts[2] != []


async def test_the_same_text_is_one_sample_and_a_repeated_answer_counts_once(
    batchers: Batchers, caller: Caller
) -> None:
    for number in range(3):
        await batchers.ask_all([near_call(caller, TEXT.replace("8", str(number)))])
    for is_repeated in (False, True):
        (sent,) = await batchers.ask_all([near_call(caller, OTHER, idempotency_key="order-1042")])
        assert isinstance(sent, Answered)
        assert sent.replayed is is_repeated
    stored = await kept(batchers, caller)
    assert stored.messages == 4
    # The first wording stays.
    assert stored.texts == [TEXT.replace("8", "0"), OTHER]


async def test_without_consent_messages_are_counted_and_no_text_is_stored(
    batchers: Batchers, database_url: str
) -> None:
    quiet = await new_caller(database_url)
    await batchers.ask_all([near_call(quiet, TEXT), near_call(quiet, OTHER)])
    assert await kept(batchers, quiet) == Kept([True, True], 2, [])


async def test_a_dry_run_and_an_allowed_text_are_not_marked(batchers: Batchers, caller: Caller) -> None:
    await batchers.ask_all([near_call(caller, TEXT, dry_run=True)])
    await content_review.add_template(
        batchers.database,
        "Dear member, our shop opens on {day} at {hour}.",
        caller.id,
        TemplateVerdict.ALLOW,
        note="",
        actor=TESTER,
    )
    await batchers.ask_all([near_call(caller, TEXT)])
    assert await kept(batchers, caller) == Kept([False], 0, [])


async def test_a_text_is_not_stored_once_the_account_has_withdrawn_its_consent(
    batchers: Batchers, caller: Caller
) -> None:
    await batchers.ask_all([near_call(caller, TEXT)])
    await manage_accounts.review(batchers.database, caller.id, consent=False)
    assert await kept(batchers, caller) == Kept([True], 1, [])


async def test_withdrawn_consent_erases_also_what_is_being_stored(batchers: Batchers, caller: Caller) -> None:
    counts = counted(caller.id, [TEXT])
    async with batchers.database.transaction() as connection:
        samples = {key: list(texts.values()) for key, texts in counts.samples.items()}
        await near_line_store.record(connection, counts.messages, samples)
        withdrawing = asyncio.create_task(manage_accounts.review(batchers.database, caller.id, consent=False))
        await until_waiting(batchers)
        assert not withdrawing.done()
    await withdrawing
    assert (await kept(batchers, caller)).texts == []


async def until_waiting(batchers: Batchers) -> None:
    waiting = (
        "SELECT FROM pg_locks JOIN pg_database d ON d.oid = database"
        " WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()"
    )
    async with asyncio.timeout(30):
        while not await execute(batchers, waiting):  # noqa: ASYNC110 - the database is asked
            await asyncio.sleep(0.01)


def counted(account_id: AccountId, texts: Sequence[str], at: datetime | None = None) -> NearLineCounts:
    counts = NearLineCounts()
    for text in texts:
        counts.add(MarkedSend(account_id, 1, 0.3, text), at or datetime.now(UTC))
    return counts


async def test_a_flood_of_texts_stays_within_its_bound_on_any_number_of_nodes(
    batchers: Batchers, caller: Caller
) -> None:
    at = datetime.now(UTC)
    texts = [f"Our {word} is open on Sunday." for word in WORDS]
    ranks = {rank_of(caller.id, local_day(at), digest_of(text)): text for text in texts}
    lowest = sorted(ranks[rank] for rank in sorted(ranks)[:SAMPLES_PER_DAY])
    # Each node sees some of them, and writes now and then, at the same time as the other.
    parts = [counted(caller.id, texts[start::5], at) for start in range(5)]
    assert all(len(samples) == SAMPLES_PER_DAY for part in parts for samples in part.samples.values())
    await asyncio.gather(*(near_line.write(batchers.database, part) for part in parts))
    assert await kept(batchers, caller) == Kept([], len(texts), lowest)
    # Whichever comes first.
    await near_line.write(batchers.database, counted(caller.id, texts[::-1], at))
    assert (await kept(batchers, caller)).texts == lowest


def test_the_sample_of_a_day_says_nothing_about_that_of_another() -> None:
    account = AccountId(new_id(0))
    digests = [digest_of(word) for word in WORDS]
    one, other = (
        set(sorted(digests, key=lambda one: rank_of(account, day, one))[:SAMPLES_PER_DAY])
        for day in (date(2026, 11, 17), date(2026, 11, 18))
    )
    assert one != other


def test_memory_is_bounded_by_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_line, "ACCOUNTS_MAX", 3)
    counts = NearLineCounts()
    for _ in range(5):
        counts.add(MarkedSend(AccountId(new_id(0)), 1, 0.3, TEXT), datetime.now(UTC))
    assert (len(counts.messages), len(counts.samples)) == (3, 3)


async def test_what_an_operator_decided_about_stays_in_a_flood(batchers: Batchers, caller: Caller) -> None:
    await near_line.write(batchers.database, counted(caller.id, [TEXT]))
    async with batchers.database.transaction() as connection:
        for expected in (True, False):
            done = await near_line_store.mark_reviewed(
                connection, caller.id, digest_of(TEXT), NearLineReview.FINE
            )
            assert done is expected
        assert list(await near_line_store.list_open(connection, 10)) == []
    await near_line.write(batchers.database, counted(caller.id, [f"The {word} is ready." for word in WORDS]))
    stored = await kept(batchers, caller)
    assert TEXT in stored.texts
    assert len(stored.texts) <= SAMPLES_PER_DAY + 1


async def test_a_failed_write_fails_no_send(
    batchers: Batchers, caller: Caller, capsys: pytest.CaptureFixture[str]
) -> None:
    await execute(batchers, "ALTER TABLE near_line_days RENAME TO gone")
    (sent,) = await batchers.ask_all([near_call(caller, TEXT)])
    assert isinstance(sent, Answered)
    await batchers.batchers[0]._near_line.close()
    assert "could not write texts near the line" in capsys.readouterr().err
    await execute(batchers, "ALTER TABLE gone RENAME TO near_line_days")
    assert await kept(batchers, caller) == Kept([True], 0, [])
    await batchers.ask_all([near_call(caller, TEXT)])
    assert await kept(batchers, caller) == Kept([True, True], 1, [TEXT])


async def test_both_are_forgotten_after_30_days(batchers: Batchers, caller: Caller) -> None:
    await near_line.write(batchers.database, counted(caller.id, [TEXT, OTHER]))
    assert await run_task(batchers.database, FORGET) == 0
    await execute(
        batchers,
        "UPDATE near_line_texts SET last_at = last_at - interval '31 days' WHERE text = $1",
        OTHER,
    )
    await execute(batchers, "UPDATE near_line_days SET day = day - 32")
    assert await run_task(batchers.database, FORGET) == 2
    assert await kept(batchers, caller) == Kept([], 0, [TEXT])


async def test_accounts_that_are_often_near_the_line_are_listed_by_share(
    batchers: Batchers, database_url: str
) -> None:
    often, seldom, few = [await new_caller(database_url) for _ in range(3)]
    now = datetime.now(UTC)
    counts = NearLineCounts()
    for caller, messages in ((often, 40), (seldom, 40), (few, 5)):
        counts.add(MarkedSend(caller.id, messages, 0.3, None), now)
    await near_line.write(batchers.database, counts)
    for caller, ended in ((often, 100), (seldom, 1_000)):
        await execute(
            batchers,
            "INSERT INTO traffic (account_id, day, country, delivered, undelivered, expired, failed)"
            " VALUES ($1, $2, 'ZW', $3, 0, 0, 0)",
            caller.id,
            local_day(now),
            ended,
        )
    async with batchers.database.connection() as connection:
        (listed,) = await near_line_store.list_often(connection, local_day(now), 10)
        assert (listed.account_id, listed.messages, listed.share) == (often.id, 40, 0.4)
        found = await near_line_store.find_share(connection, few.id, local_day(now))
        assert found is not None
        # More than have ended so far are never shown.
        assert (found.messages, found.share) == (5, 1.0)
        assert await near_line_store.find_share(connection, AccountId(new_id(0)), local_day(now)) is None
