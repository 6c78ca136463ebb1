"""Uploaded files: stored, confirmed, sent once and deleted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from tests.support.chaos.node import first_true
from tests.support.processes.service import Caller, new_caller
from tests.support.uploads.files import check_file
from tumira.audit_log import OPERATOR
from tumira.content.review import add_template, remove_template
from tumira.content.templates import TemplateVerdict
from tumira.core.errors import AccountSuspended, InsufficientBalance, SpendLimitReached
from tumira.core.ids import BatchId, TemplateId, UploadId, new_id
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimRequest as WantedMessages
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.uploads import send
from tumira.uploads import store as uploads
from tumira.uploads.check_file import CHECKED_KEPT, Wanted
from tumira.uploads.send import Begun, Changed, NoLongerAllowed, send_next_chunk
from tumira.uploads.store import Upload

MESSAGE: Final = "Dear {name}, your parcel is here."
PRICE: Final = Decimal("0.04")
BEFORE_ALL: Final = UploadId(UUID(int=0))
BLOCKED_PIDS: Final = (
    "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
ADVERT: Final = "BIG SALE this weekend only! Get 50% off all shoes and bags. Shop now and save big!"
TASK: Final = {task.name: task for task in MAINTENANCE_TASKS}


@dataclass(frozen=True, slots=True)
class World:
    """A database with an account, and those who send files."""

    database: Database
    caller: Caller

    async def check(
        self, rows: int = 3, message: str = MESSAGE, text: str | None = None, first: int = 0
    ) -> UploadId:
        lines = [f"+2637712{first + place:05},Person {first + place}" for place in range(rows)]
        data = (text or "\n".join(["to,name", *lines])).encode()
        wanted = Wanted("people.csv", data, message, None, "spring")
        checked = await check_file(self.database, self.caller.id, wanted)
        assert isinstance(checked, UUID), checked
        return UploadId(checked)

    async def find(self, upload_id: UploadId) -> Upload:
        async with self.database.connection() as connection:
            found = await uploads.find(connection, self.caller.id, upload_id)
        assert found is not None
        return found

    async def confirm(self, upload_id: UploadId, agreed: Decimal | None = None) -> object:
        async with self.database.connection() as connection:
            found = await uploads.find(connection, self.caller.id, upload_id)
            assert found is not None
            offer = await send.price_rest(connection, found)
        return await send.confirm(
            self.database, self.caller.id, upload_id, offer.total_cost if agreed is None else agreed
        )

    async def send_all(self) -> int:
        chunks = 0
        while await send_next_chunk(self.database, BEFORE_ALL) is not None:
            chunks += 1
            assert chunks <= 20
        return chunks

    async def template(self, text: str, verdict: TemplateVerdict) -> TemplateId:
        made = await add_template(self.database, text, None, verdict, note="for tests", actor=OPERATOR)
        return made.id

    async def refused(self, upload_id: UploadId) -> Sequence[tuple[int, str]]:
        """Return the rows that were refused after the check, with their numbers."""
        async with self.database.connection() as connection:
            faults = await uploads.list_faults(connection, upload_id, 100)
        return [(one.line, one.cells[0]) for one in faults if one.code == "NO_LONGER_ALLOWED"]

    async def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async with self.database.connection() as connection:
            return await connection.fetch(statement, *arguments)

    async def balance(self) -> Decimal:
        (row,) = await self.rows("SELECT balance FROM accounts WHERE id = $1", self.caller.id)
        return Decimal(row["balance"])

    async def sent_to(self) -> Sequence[str]:
        return [row["recipient"] for row in await self.rows("SELECT recipient FROM messages ORDER BY id")]

    async def check_books(self) -> None:
        async with runs.snapshot(self.database) as connection:
            found = [await runs.run_check(connection, check) for check in CHECKS]
        assert [one for one in found if one.rows] == []


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = Database(database_url, settings=KEY_LOOKUPS)
    yield World(database, await new_caller(database_url, "1000"))
    await database.close()


async def test_a_checked_file_is_kept_with_its_good_rows_in_chunks_and_its_bad_ones_in_order(
    world: World,
) -> None:
    good = [f"+2637712{place:05},A{place}" for place in range(2001)]
    text = "\n".join(["to,name", "12,Bad", *good, "+2637712x,Bad too"])

    upload_id = await world.check(text=text)

    upload = await world.find(upload_id)
    assert (upload.state, upload.rows, upload.recipients) == ("checked", 2003, 2001)
    assert upload.total_cost == 2001 * PRICE
    assert (list(upload.columns), upload.file_name, upload.reference) == (
        ["to", "name"],
        "people.csv",
        "spring",
    )
    async with world.database.connection() as connection:
        chunks = await uploads.list_chunks(connection, upload_id)
        faults = await uploads.list_faults(connection, upload_id, 10)
        shown = await uploads.list_good(connection, upload_id, 1990, 100)
        last = await uploads.list_good(connection, upload_id, 2000, 100)
    assert [(one.count, one.first_line, one.last_line) for one in chunks] == [
        (1000, 3, 1002),
        (1000, 1003, 2002),
        (1, 2003, 2003),
    ]
    assert [(one.line, one.cells[1]) for one in faults] == [(2, "Bad"), (2004, "Bad too")]
    assert [one.line for one in shown] == list(range(1993, 2003))
    assert [(one.recipient, one.body) for one in last] == [
        ("+263771202000", "Dear A2000, your parcel is here.")
    ]
    assert await world.sent_to() == []


async def test_nothing_is_sent_before_it_was_confirmed(world: World) -> None:
    await world.check()
    assert await world.send_all() == 0
    assert await world.sent_to() == []


async def test_a_confirmed_file_becomes_batches_of_a_thousand_each_paid_for_by_itself(world: World) -> None:
    upload_id = await world.check(2500)
    assert await world.confirm(upload_id) == Begun()

    assert await world.send_all() == 3

    upload = await world.find(upload_id)
    assert upload.state == "sent"
    assert upload.finished_at is not None
    assert sorted(await world.sent_to()) == [f"+2637712{place:05}" for place in range(2500)]
    found = await world.rows("SELECT recipients, total_cost, reference, body FROM batches ORDER BY id")
    assert [(one["recipients"], one["total_cost"]) for one in found] == [
        (1000, 40),
        (1000, 40),
        (500, 20),
    ]
    assert {(one["reference"], one["body"]) for one in found} == {("spring", MESSAGE)}
    assert await world.balance() == 900
    await world.check_books()


async def test_each_message_has_its_own_text_and_length_and_a_batch_the_largest(world: World) -> None:
    names = ["Al", "B" * 150, "C" * 300]
    text = "\n".join(["to,name", *(f"+26377120000{place},{name}" for place, name in enumerate(names))])
    assert await world.confirm(await world.check(text=text)) == Begun()
    await world.send_all()

    found = await world.rows("SELECT body, segments, cost FROM messages ORDER BY id")
    assert [(one["segments"], one["cost"]) for one in found] == [(1, PRICE), (2, 2 * PRICE), (3, 3 * PRICE)]
    assert [one["body"] for one in found] == [f"Dear {name}, your parcel is here." for name in names]
    assert (await world.rows("SELECT segments FROM batches"))[0]["segments"] == 3
    async with world.database.transaction() as connection:
        wanted = WantedMessages("ZW", 3, 0, 3, 0, 0)
        claimed = await queue.claim(connection, [wanted], 3, worker="w", bind="b/1", carrier_id=1)
    assert claimed is not None
    assert sorted(one.body for one in claimed) == sorted(one["body"] for one in found)
    await world.check_books()


async def test_one_text_for_all_stands_once(world: World) -> None:
    upload_id = await world.check(12, "Your parcel is here. {{Desk 4}}")
    await world.confirm(upload_id)
    await world.send_all()
    assert {row["body"] for row in await world.rows("SELECT body FROM messages")} == {None}
    assert [row["body"] for row in await world.rows("SELECT body FROM batches")] == [
        "Your parcel is here. {Desk 4}"
    ]


async def test_texts_of_messages_are_erased_with_those_of_their_batches(world: World) -> None:
    await world.confirm(await world.check(5))
    await world.confirm(await world.check(5, first=50))
    await world.send_all()
    old, _ = [row["id"] for row in await world.rows("SELECT id FROM batches ORDER BY id")]
    await world.rows("UPDATE batches SET completed_at = now() - interval '8 days' WHERE id = $1", old)

    assert await run_task(world.database, TASK["erase texts"]) == 1
    assert await run_task(world.database, TASK["erase texts"]) == 0

    left = await world.rows("SELECT batch_id, count(body) AS texts FROM messages GROUP BY 1 ORDER BY 1")
    assert [row["texts"] for row in left] == [0, 5]
    assert (await world.rows("SELECT body FROM batches WHERE id = $1", old))[0]["body"] is None


@pytest.mark.parametrize(("rows", "lane"), [(10, 0), (11, 1), (1001, 1)])
async def test_a_file_waits_in_the_lane_of_its_size(world: World, rows: int, lane: int) -> None:
    await world.confirm(await world.check(rows))
    await world.send_all()
    found = await world.rows("SELECT lane, turn FROM queue ORDER BY turn")
    assert {row["lane"] for row in found} == {lane}
    assert len({row["turn"] for row in found}) == rows


async def test_confirming_many_times_at_once_is_one_send(world: World) -> None:
    upload_id = await world.check(30)
    assert set(await asyncio.gather(*(world.confirm(upload_id) for _ in range(5)))) == {Begun()}
    await world.send_all()
    assert await world.confirm(upload_id, Decimal(7)) == Begun()
    await world.send_all()
    assert len(await world.sent_to()) == 30


async def test_several_who_send_at_once_send_each_chunk_once(world: World) -> None:
    ids = [await world.check(2100, first=start) for start in (0, 3000)]
    for upload_id in ids:
        await world.confirm(upload_id)

    async def work() -> None:
        for _ in range(20):
            await send_next_chunk(world.database, BEFORE_ALL)

    await asyncio.gather(*(work() for _ in range(4)))

    assert [(await world.find(upload_id)).state for upload_id in ids] == ["sent", "sent"]
    sent = await world.sent_to()
    assert len(sent) == len(set(sent)) == 4200
    await world.check_books()


async def test_without_the_hold_on_a_file_the_second_to_send_a_chunk_finds_it_taken(world: World) -> None:
    upload_id = await world.check()
    async with world.database.transaction() as connection:
        await uploads.mark_chunk_sent(connection, upload_id, 0, BatchId(new_id(0)))
    with pytest.raises(AssertionError, match="sent once"):
        async with world.database.transaction() as connection:
            await uploads.mark_chunk_sent(connection, upload_id, 0, BatchId(new_id(0)))


async def test_whoever_takes_over_goes_on_behind_the_last_chunk_that_was_committed(world: World) -> None:
    upload_id = await world.check(2500)
    await world.confirm(upload_id)
    assert await send_next_chunk(world.database, BEFORE_ALL) == upload_id

    # Held, so that who sends comes to a stop when all but the last write is done; there it dies.
    async with world.database.transaction() as connection:
        await connection.execute("SELECT FROM upload_chunks WHERE upload_id = $1 FOR UPDATE", upload_id)
        sending = asyncio.create_task(send_next_chunk(world.database, BEFORE_ALL))
        await first_true(lambda: end_blocked(world), "nobody came to the chunk")
        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
            await sending
    assert len(await world.sent_to()) == 1000

    assert await world.send_all() == 2
    sent = await world.sent_to()
    assert len(sent) == len(set(sent)) == 2500
    await world.check_books()


async def end_blocked(world: World) -> bool:
    return bool(await world.rows(f"SELECT pg_terminate_backend(pid) FROM ({BLOCKED_PIDS}) AS blocked"))


async def test_files_take_turns(world: World) -> None:
    first, second = [await world.check(1500, first=start) for start in (0, 3000)]
    await world.confirm(first)
    await world.confirm(second)
    assert await send_next_chunk(world.database, BEFORE_ALL) == first
    assert await send_next_chunk(world.database, first) == second
    assert await send_next_chunk(world.database, second) is None


async def test_a_file_that_the_balance_does_not_cover_is_refused_before_its_first_message(
    world: World,
) -> None:
    await world.rows("UPDATE accounts SET balance = 59.99 WHERE id = $1", world.caller.id)
    upload_id = await world.check(1500)
    refused = await world.confirm(upload_id)
    assert isinstance(refused, InsufficientBalance)
    assert refused.details[0]["shortfall"] == "0.0100"
    assert (await world.find(upload_id)).state == "checked"
    assert await world.send_all() == 0


async def test_what_one_file_was_promised_is_not_promised_to_another(world: World) -> None:
    await world.rows("UPDATE accounts SET balance = 100 WHERE id = $1", world.caller.id)
    first, second = [await world.check(1500, first=start) for start in (0, 3000)]
    assert await world.confirm(first) == Begun()
    assert isinstance(await world.confirm(second), InsufficientBalance)


async def test_a_file_that_passes_the_limit_of_the_day_is_refused_whole(world: World) -> None:
    await world.rows("UPDATE accounts SET daily_limit = 50 WHERE id = $1", world.caller.id)
    assert isinstance(await world.confirm(await world.check(1251)), SpendLimitReached)
    assert await world.confirm(await world.check(1250)) == Begun()


async def test_a_file_counts_as_one_call_whatever_others_were_promised(world: World) -> None:
    await world.rows("UPDATE accounts SET call_limit = 50 WHERE id = $1", world.caller.id)
    assert isinstance(await world.confirm(await world.check(1251)), SpendLimitReached)
    assert await world.confirm(await world.check(1250)) == Begun()
    assert await world.confirm(await world.check(1250, first=3000)) == Begun()
    await world.rows("UPDATE accounts SET daily_limit = 120 WHERE id = $1", world.caller.id)
    assert isinstance(await world.confirm(await world.check(600, first=5000)), SpendLimitReached)


async def test_a_suspended_account_sends_no_file(world: World) -> None:
    await world.rows("UPDATE accounts SET suspended_at = now() WHERE id = $1", world.caller.id)
    assert isinstance(await world.confirm(await world.check()), AccountSuspended)


async def test_another_price_than_was_agreed_to_sends_nothing(world: World) -> None:
    upload_id = await world.check()
    await world.rows("UPDATE prices SET price_usd = 0.05 WHERE country = 'ZW' AND status = 'active'")
    assert await world.confirm(upload_id, 3 * PRICE) == Changed()
    assert await world.send_all() == 0

    assert await world.confirm(upload_id) == Begun()
    await world.send_all()
    assert (await world.find(upload_id)).total_cost == Decimal("0.15")
    assert await world.balance() == Decimal("999.85")


async def test_numbers_that_cannot_be_sent_to_any_more_stop_the_file(world: World) -> None:
    upload_id = await world.check()
    await world.rows("DELETE FROM prices WHERE country = 'ZW' AND status = 'active'")
    assert await world.confirm(upload_id, Decimal(0)) == Changed()


STOPS: Final = {
    "UPDATE accounts SET suspended_at = now() WHERE id = $1": (
        "The account was suspended.",
        "UPDATE accounts SET suspended_at = NULL WHERE id = $1",
    ),
    "UPDATE accounts SET balance = 1 WHERE id = $1": (
        "The next 1,000 messages cost US$40.00 and the balance is US$1.00. Top up",
        "UPDATE accounts SET balance = 960 WHERE id = $1",
    ),
    "UPDATE accounts SET daily_limit = 60 WHERE id = $1": (
        "more than the limit for a day",
        "UPDATE accounts SET daily_limit = NULL WHERE id = $1",
    ),
}


@pytest.mark.parametrize("stop", STOPS)
async def test_a_file_that_cannot_go_on_says_why_and_is_resumed(world: World, stop: str) -> None:
    said, resume = STOPS[stop]
    upload_id = await world.check(2500)
    await world.confirm(upload_id)
    await send_next_chunk(world.database, BEFORE_ALL)
    await world.rows(stop, world.caller.id)

    await world.send_all()

    upload = await world.find(upload_id)
    assert upload.state == "stopped"
    assert upload.problem is not None
    assert said in upload.problem
    assert upload.problem.endswith(".")
    assert "press Resume" in upload.problem
    assert len(await world.sent_to()) == 1000

    await world.rows(resume, world.caller.id)
    assert await world.confirm(upload_id) == Begun()
    await world.send_all()
    upload = await world.find(upload_id)
    assert (upload.state, upload.problem) == ("sent", None)
    sent = await world.sent_to()
    assert len(sent) == len(set(sent)) == 2500
    await world.check_books()


async def test_a_price_that_changes_half_way_stops_the_file_until_it_is_agreed_to(world: World) -> None:
    upload_id = await world.check(1500)
    await world.confirm(upload_id)
    await send_next_chunk(world.database, BEFORE_ALL)
    await world.rows("UPDATE prices SET price_usd = 0.05 WHERE country = 'ZW' AND status = 'active'")
    await world.send_all()
    assert "prices have changed" in str((await world.find(upload_id)).problem)
    assert await world.confirm(upload_id, Decimal(20)) == Changed()
    assert await world.confirm(upload_id, Decimal(25)) == Begun()
    await world.send_all()
    assert (await world.find(upload_id)).total_cost == 65
    assert await world.balance() == 935


async def test_only_the_newest_of_the_files_that_were_never_sent_are_kept(world: World) -> None:
    confirmed = await world.check()
    await world.confirm(confirmed)
    ids = [await world.check() for _ in range(CHECKED_KEPT + 2)]
    left = {row["id"] for row in await world.rows("SELECT id FROM uploads")}
    assert left == {confirmed, *ids[2:]}


async def test_files_that_were_never_sent_have_a_bound_in_rows_too(world: World) -> None:
    ids = [await world.check() for _ in range(4)]
    # Beside the three rows of the newest there is room for two files of the largest size.
    await world.rows("UPDATE uploads SET rows = 10000, recipients = 0 WHERE id = ANY($1::uuid[])", ids[1:])
    newest = await world.check()
    await world.rows("UPDATE uploads SET rows = 10000 WHERE id = $1", newest)
    last = await world.check()
    left = {row["id"] for row in await world.rows("SELECT id FROM uploads")}
    assert left == {ids[3], newest, last}


async def test_files_are_forgotten_after_a_week_unless_they_are_being_sent(world: World) -> None:
    sent, sending, fresh = [await world.check(first=start) for start in (0, 10, 20)]
    await world.confirm(sent)
    await world.send_all()
    await world.confirm(sending)
    await world.rows(
        "UPDATE uploads SET created_at = now() - interval '8 days' WHERE id = ANY($1::uuid[])",
        [sent, sending],
    )
    task = TASK["forget old uploads"]
    assert await run_task(world.database, task) == 1
    assert {row["id"] for row in await world.rows("SELECT id FROM uploads")} == {sending, fresh}
    assert {row["upload_id"] for row in await world.rows("SELECT upload_id FROM upload_chunks")} == {
        sending,
        fresh,
    }
    assert len(await world.sent_to()) == 3


async def test_nobody_finds_or_confirms_the_file_of_another(world: World, database_url: str) -> None:
    upload_id = await world.check()
    stranger = await new_caller(database_url)
    async with world.database.connection() as connection:
        assert await uploads.find(connection, stranger.id, upload_id) is None
    assert await send.confirm(world.database, stranger.id, upload_id, 3 * PRICE) is None


async def test_a_text_whose_template_was_removed_is_not_agreed_to_nor_sent(world: World) -> None:
    template_id = await world.template(ADVERT, TemplateVerdict.ALLOW)
    text = f'to,text\n+263771200001,"{ADVERT}"\n+263771200002,Your parcel is here.'
    upload_id = await world.check(message="{text}", text=text)
    assert (await world.find(upload_id)).recipients == 2
    await remove_template(world.database, template_id, OPERATOR)

    assert await world.confirm(upload_id, 2 * PRICE) == NoLongerAllowed(1)

    assert await world.send_all() == 0
    assert await world.refused(upload_id) == [(2, "+263771200001")]
    assert await world.confirm(upload_id) == Begun()
    await world.send_all()
    upload = await world.find(upload_id)
    assert (upload.state, upload.recipients, upload.refused, upload.total_cost) == ("sent", 1, 1, PRICE)
    assert await world.sent_to() == ["+263771200002"]
    assert await world.balance() == 1000 - PRICE
    await world.check_books()


async def test_a_text_that_is_blocked_after_it_was_agreed_to_is_left_out_of_its_chunk(world: World) -> None:
    upload_id = await world.check(1003)
    assert await world.confirm(upload_id) == Begun()
    await world.template("Dear Person 7, your parcel is here.", TemplateVerdict.BLOCK)
    await world.template("Dear Person 1001, your parcel is here.", TemplateVerdict.BLOCK)

    assert await world.send_all() == 2

    upload = await world.find(upload_id)
    assert (upload.state, upload.recipients, upload.refused) == ("sent", 1001, 2)
    assert await world.refused(upload_id) == [(9, "+263771200007"), (1003, "+263771201001")]
    assert {"+263771200007", "+263771201001"}.isdisjoint(await world.sent_to())
    assert upload.total_cost == 1001 * PRICE
    assert await world.balance() == 1000 - 1001 * PRICE
    await world.check_books()


async def test_a_file_of_which_nothing_is_allowed_any_more_costs_nothing(world: World) -> None:
    upload_id = await world.check(3, "Your parcel is here at the desk.")
    assert await world.confirm(upload_id) == Begun()
    await world.template("Your parcel is here at the desk.", TemplateVerdict.BLOCK)

    await world.send_all()

    upload = await world.find(upload_id)
    assert (upload.state, upload.recipients, upload.refused, upload.total_cost) == ("sent", 0, 3, Decimal(0))
    assert await world.sent_to() == []
    assert await world.balance() == 1000


async def test_a_template_that_concerns_other_texts_stops_nothing(world: World) -> None:
    upload_id = await world.check(3)
    await world.template("Another text that nobody here sends.", TemplateVerdict.BLOCK)
    assert await world.confirm(upload_id) == Begun()
    await world.template("Yet another text that nobody here sends.", TemplateVerdict.BLOCK)
    await world.send_all()
    assert (await world.find(upload_id)).state == "sent"
    assert len(await world.sent_to()) == 3


async def test_rows_behind_those_that_were_left_out_are_found(world: World) -> None:
    upload_id = await world.check(1100)
    for place in range(3):
        await world.template(f"Dear Person {place}, your parcel is here.", TemplateVerdict.BLOCK)
    assert await world.confirm(upload_id) == NoLongerAllowed(3)
    async with world.database.connection() as connection:
        assert await uploads.find_next_good(connection, upload_id, 900) == 900
        assert await uploads.find_next_good(connection, upload_id, 998) == 1000
        assert await uploads.find_next_good(connection, upload_id, 1100) is None


async def test_a_file_costs_the_same_by_what_was_noted_as_by_its_texts(world: World) -> None:
    names = ["Al", "B" * 150, "C" * 300, "Dé", "Ж" * 80]
    numbers = [f"+26377120000{place}" for place in range(4)] + ["+27821230001"]
    text = "\n".join(["to,name", *(f"{to},{name}" for to, name in zip(numbers, names, strict=True))])
    upload = await world.find(await world.check(text=text))
    async with world.database.connection() as connection:
        noted = await send.price_rest(connection, upload)
        await connection.execute(
            "UPDATE upload_chunks SET leg_countries = NULL, leg_segments = NULL, leg_counts = NULL"
        )
        counted = await send.price_rest(connection, upload)
    assert noted == counted
    assert noted.total_cost == upload.total_cost
    assert [part.count for part in noted.parts] == [4, 1]
