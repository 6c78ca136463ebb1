"""Uploaded files: stored, confirmed, sent once and deleted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from tests.support.chaos.node import first_true
from tests.support.content.near_line import find_near_text
from tests.support.processes.service import Caller, new_caller
from tests.support.uploads.files import check_file
from tumira.audit_log import OPERATOR
from tumira.content.classifier import classify
from tumira.content.review import add_template, remove_template
from tumira.content.templates import TemplateVerdict
from tumira.core.errors import AccountSuspended, InsufficientBalance, SpendLimitReached
from tumira.core.ids import BatchId, TemplateId, UploadId, new_id
from tumira.delivery.lanes import Room
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimRequest as WantedMessages
from tumira.identity import manage_accounts
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.operations.maintenance import MAINTENANCE_TASKS, run_task
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.sending.batches import HIGHEST_ID
from tumira.uploads import check_rows, chunks, kept_files, send
from tumira.uploads import store as uploads
from tumira.uploads.check_rows import Wanted
from tumira.uploads.kept_files import KeptFile
from tumira.uploads.price import price_rest
from tumira.uploads.resend import prepare_resend
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
            offer = await price_rest(connection, found)
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

    async def kept(self) -> set[UploadId]:
        return {row["id"] for row in await self.rows("SELECT id FROM uploads")}

    async def sent_to(self) -> Sequence[str]:
        return [row["recipient"] for row in await self.rows("SELECT recipient FROM messages ORDER BY id")]

    async def check_books(self) -> None:
        async with runs.snapshot(self.database) as connection:
            found = [await runs.run_check(connection, check) for check in CHECKS]
        assert [one for one in found if one.rows] == []


@pytest_asyncio.fixture
async def world(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """Give a world in which a chunk is full with ten rows."""
    monkeypatch.setattr(chunks, "CHUNK_MAX", 10)
    monkeypatch.setattr(check_rows, "CHUNK_MAX", 10)
    # The first check reads the weights; one that takes longer is made by a process, which has full chunks.
    monkeypatch.setattr("tumira.uploads.check_file.BRIEF_S", 2.0)
    database = Database(database_url, settings=KEY_LOOKUPS)
    yield World(database, await new_caller(database_url, "1000"))
    await database.close()


async def test_a_checked_file_is_kept_with_its_good_rows_in_chunks_and_its_bad_ones_in_order(
    world: World,
) -> None:
    good = [f"+2637712{place:05},A{place}" for place in range(21)]
    text = "\n".join(["to,name", "12,Bad", *good, "+2637712x,Bad too"])

    upload_id = await world.check(text=text)

    upload = await world.find(upload_id)
    assert (upload.state, upload.rows, upload.recipients) == ("checked", 23, 21)
    assert upload.total_cost == 21 * PRICE
    assert (upload.columns, upload.file_name, upload.reference) == (["to", "name"], "people.csv", "spring")
    async with world.database.connection() as connection:
        found = await chunks.list_chunks(connection, upload_id)
        faults = await uploads.list_faults(connection, upload_id, 10)
        shown = await chunks.list_good(connection, upload_id, 15, 100)
        last = await chunks.list_good(connection, upload_id, 20, 100)
    lines = [(one.count, one.first_line, one.last_line) for one in found]
    assert lines == [(10, 3, 12), (10, 13, 22), (1, 23, 23)]
    assert [(one.line, one.cells[1]) for one in faults] == [(2, "Bad"), (24, "Bad too")]
    assert [one.line for one in shown] == list(range(18, 23))
    assert [(one.recipient, one.body) for one in last] == [
        ("+263771200020", "Dear A20, your parcel is here.")
    ]
    # Its owner has not confirmed it, and nobody else sees it.
    assert await world.send_all() == 0
    assert await world.sent_to() == []
    stranger = await new_caller(world.database.url)
    async with world.database.connection() as connection:
        assert await uploads.find(connection, stranger.id, upload_id) is None
    assert await send.confirm(world.database, stranger.id, upload_id, 21 * PRICE) is None


async def test_a_confirmed_file_becomes_batches_each_paid_for_by_itself(world: World) -> None:
    upload_id = await world.check(25)
    assert await world.confirm(upload_id) == Begun()

    assert await world.send_all() == 3

    upload = await world.find(upload_id)
    assert upload.state == "sent"
    assert upload.finished_at is not None
    assert sorted(await world.sent_to()) == [f"+2637712{place:05}" for place in range(25)]
    found = await world.rows("SELECT recipients, total_cost, reference, body FROM batches ORDER BY id")
    assert [(one["recipients"], one["total_cost"]) for one in found] == [
        (10, 10 * PRICE),
        (10, 10 * PRICE),
        (5, 5 * PRICE),
    ]
    assert {(one["reference"], one["body"]) for one in found} == {("spring", MESSAGE)}
    assert await world.balance() == 999
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
        claimed = await queue.claim(connection, [wanted], Room(3, 0, 3), worker="w", bind="b/1", carrier_id=1)
    assert claimed is not None
    assert sorted(one.body for one in claimed) == sorted(one["body"] for one in found)
    await world.check_books()


async def test_one_text_for_all_stands_once(world: World) -> None:
    await world.confirm(await world.check(12, "Your parcel is here. {{Desk 4}}"))
    await world.send_all()
    assert {row["body"] for row in await world.rows("SELECT body FROM messages")} == {None}
    found = await world.rows("SELECT body FROM batches")
    assert [row["body"] for row in found] == ["Your parcel is here. {Desk 4}"] * 2


async def test_texts_of_messages_are_erased_with_those_of_their_batches(world: World) -> None:
    await world.confirm(await world.check(5))
    await world.confirm(await world.check(5, first=50))
    await world.send_all()
    old, _ = [row["id"] for row in await world.rows("SELECT id FROM batches ORDER BY id")]
    await world.rows("UPDATE batches SET completed_at = now() - interval '8 days' WHERE id = $1", old)

    assert [await run_task(world.database, TASK["erase texts"]) for _ in range(2)] == [1, 0]

    left = await world.rows("SELECT batch_id, count(body) AS texts FROM messages GROUP BY 1 ORDER BY 1")
    assert [row["texts"] for row in left] == [0, 5]
    assert (await world.rows("SELECT body FROM batches WHERE id = $1", old))[0]["body"] is None


@pytest.mark.parametrize(("rows", "lane"), [(10, 0), (11, 1)])
async def test_a_file_waits_in_the_lane_of_its_size(world: World, rows: int, lane: int) -> None:
    await world.confirm(await world.check(rows))
    await world.send_all()
    found = await world.rows("SELECT lane, turn FROM queue ORDER BY turn")
    assert {row["lane"] for row in found} == {lane}
    assert len({row["turn"] for row in found}) == rows


async def test_confirming_and_sending_many_times_at_once_sends_each_chunk_once(world: World) -> None:
    ids = [await world.check(21, first=start) for start in (0, 30)]
    for upload_id in ids:
        assert set(await asyncio.gather(*(world.confirm(upload_id) for _ in range(5)))) == {Begun()}

    async def work() -> None:
        for _ in range(8):
            await send_next_chunk(world.database, BEFORE_ALL)

    await asyncio.gather(*(work() for _ in range(4)))
    # A turn is over at once while another holds the file; what they left to each other.
    await world.send_all()

    assert [(await world.find(upload_id)).state for upload_id in ids] == ["sent", "sent"]
    assert await world.confirm(ids[0], Decimal(7)) == Begun()
    assert await world.send_all() == 0
    sent = await world.sent_to()
    assert len(sent) == len(set(sent)) == 42
    await world.check_books()


async def test_without_the_hold_on_a_file_the_second_to_send_a_chunk_finds_it_taken(world: World) -> None:
    upload_id = await world.check()
    async with world.database.transaction() as connection:
        await chunks.mark_sent(connection, upload_id, 0, BatchId(new_id(0)))
    with pytest.raises(AssertionError, match="sent once"):
        async with world.database.transaction() as connection:
            await chunks.mark_sent(connection, upload_id, 0, BatchId(new_id(0)))


async def test_whoever_takes_over_goes_on_behind_the_last_chunk_that_was_committed(world: World) -> None:
    upload_id = await world.check(25)
    await world.confirm(upload_id)
    assert await send_next_chunk(world.database, BEFORE_ALL) == upload_id

    # Held, so that who sends comes to a stop when all but the last write is done; there it dies.
    async with world.database.transaction() as connection:
        await connection.execute("SELECT FROM upload_chunks WHERE upload_id = $1 FOR UPDATE", upload_id)
        sending = asyncio.create_task(send_next_chunk(world.database, BEFORE_ALL))
        await first_true(lambda: end_blocked(world), "nobody came to the chunk")
        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
            await sending
    assert len(await world.sent_to()) == 10

    assert await world.send_all() == 2
    sent = await world.sent_to()
    assert len(sent) == len(set(sent)) == 25
    await world.check_books()


async def end_blocked(world: World) -> bool:
    return bool(await world.rows(f"SELECT pg_terminate_backend(pid) FROM ({BLOCKED_PIDS}) AS blocked"))


async def test_files_take_turns_and_one_is_not_promised_what_another_was(world: World) -> None:
    await world.rows("UPDATE accounts SET balance = 1.20 WHERE id = $1", world.caller.id)
    first, second, third = [await world.check(15, first=start) for start in (0, 30, 60)]
    assert [await world.confirm(one) for one in (first, second)] == [Begun(), Begun()]
    assert isinstance(await world.confirm(third), InsufficientBalance)
    assert await send_next_chunk(world.database, BEFORE_ALL) == first
    assert await send_next_chunk(world.database, first) == second
    assert await send_next_chunk(world.database, second) is None


REFUSALS: Final = {
    "balance = 0.59": InsufficientBalance,
    "daily_limit = 0.59": SpendLimitReached,
    "call_limit = 0.59": SpendLimitReached,
    "suspended_at = now()": AccountSuspended,
}


async def test_a_file_that_the_account_may_not_send_is_refused_before_its_first_message(world: World) -> None:
    upload_id = await world.check(15)
    for change, kind in REFUSALS.items():
        await world.rows(f"UPDATE accounts SET {change} WHERE id = $1", world.caller.id)
        refused = await world.confirm(upload_id)
        assert isinstance(refused, kind), change
        if kind is InsufficientBalance:
            assert refused.details[0]["shortfall"] == "0.0100"
        await world.rows(
            "UPDATE accounts SET balance = 1000, daily_limit = NULL, call_limit = NULL, suspended_at = NULL"
            " WHERE id = $1",
            world.caller.id,
        )
    assert (await world.find(upload_id)).state == "checked"
    assert await world.send_all() == 0


async def test_a_file_counts_as_one_call_and_the_files_of_a_day_together(world: World) -> None:
    await world.rows(
        "UPDATE accounts SET call_limit = 0.60, daily_limit = 1.20 WHERE id = $1", world.caller.id
    )
    assert await world.confirm(await world.check(15)) == Begun()
    assert await world.confirm(await world.check(15, first=30)) == Begun()
    assert isinstance(await world.confirm(await world.check(1, first=60)), SpendLimitReached)


async def test_another_price_than_was_agreed_to_sends_nothing(world: World) -> None:
    upload_id = await world.check()
    await world.rows("UPDATE prices SET price_usd = 0.05 WHERE country = 'ZW' AND status = 'active'")
    assert await world.confirm(upload_id, 3 * PRICE) == Changed()
    assert await world.send_all() == 0

    assert await world.confirm(upload_id) == Begun()
    await world.send_all()
    assert (await world.find(upload_id)).total_cost == Decimal("0.15")
    assert await world.balance() == Decimal("999.85")
    unreachable = await world.check(first=10)
    await world.rows("DELETE FROM prices WHERE country = 'ZW' AND status = 'active'")
    assert await world.confirm(unreachable, Decimal(0)) == Changed()


STOPS: Final = {
    "UPDATE accounts SET suspended_at = now()": (
        "Your account was suspended.",
        "UPDATE accounts SET suspended_at = NULL",
    ),
    "UPDATE accounts SET balance = 0.01": (
        "The next 10 messages cost US$0.40, but your balance is US$0.01. Top up",
        "UPDATE accounts SET balance = 999.60",
    ),
    "UPDATE accounts SET daily_limit = 0.60": (
        "would exceed your daily limit",
        "UPDATE accounts SET daily_limit = NULL",
    ),
    "UPDATE prices SET price_usd = 0.05 WHERE country = 'ZW' AND status = 'active'": (
        "The prices have changed",
        "UPDATE prices SET price_usd = 0.04 WHERE country = 'ZW' AND status = 'active'",
    ),
}


async def test_a_file_that_cannot_go_on_says_why_and_is_resumed(world: World) -> None:
    upload_id = await world.check(50)
    await world.confirm(upload_id)
    for turn, (stop, (said, resume)) in enumerate(STOPS.items(), start=1):
        await send_next_chunk(world.database, BEFORE_ALL)
        await world.rows(stop)

        await world.send_all()

        upload = await world.find(upload_id)
        assert upload.state == "stopped"
        assert upload.problem is not None
        assert said in upload.problem
        assert "ress Resume" in upload.problem
        assert len(await world.sent_to()) == 10 * turn
        await world.rows(resume)
        if "prices" not in stop:
            assert await world.confirm(upload_id) == Begun()
    # What is left is sent at the price that its owner agrees to.
    await world.rows("UPDATE prices SET price_usd = 0.05 WHERE country = 'ZW' AND status = 'active'")
    assert await world.confirm(upload_id, 10 * PRICE) == Changed()
    assert await world.confirm(upload_id, Decimal("0.50")) == Begun()
    await world.send_all()
    upload = await world.find(upload_id)
    assert (upload.state, upload.problem, upload.total_cost) == ("sent", None, Decimal("2.10"))
    sent = await world.sent_to()
    assert len(sent) == len(set(sent)) == 50


async def test_only_the_newest_of_the_files_that_were_never_sent_are_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "CHECKED_KEPT", 3)
    monkeypatch.setattr(uploads, "CHECKED_ROWS_KEPT", 20)
    confirmed = await world.check()
    await world.confirm(confirmed)
    ids = [await world.check() for _ in range(4)]
    assert await world.kept() == {confirmed, *ids[1:]}
    # With these three rows there is room for two files that have twenty together.
    larger = await world.check(14)
    assert await world.kept() == {confirmed, *ids[2:], larger}
    last = await world.check(4)
    assert await world.kept() == {confirmed, larger, last}


async def test_files_are_erased_after_a_week_unless_they_are_being_sent(world: World) -> None:
    text = "\n".join(["to,name", "12,Nobody", *(f"+2637712{place:05},Person {place}" for place in range(13))])
    sent, stopped, _unsent = [await world.check(text=text) for _ in range(3)]
    sending, fresh = await world.check(first=40), await world.check(first=50)
    for upload_id in (stopped, sent):
        await world.confirm(upload_id)
        await world.send_all()
    await world.rows("UPDATE uploads SET state = 'stopped', problem = 'No money.' WHERE id = $1", stopped)
    await world.rows("UPDATE upload_chunks SET batch_id = NULL WHERE upload_id = $1 AND number = 1", stopped)
    await world.confirm(sending)
    await world.rows("UPDATE uploads SET created_at = now() - interval '8 days' WHERE id <> $1", fresh)
    task = TASK["forget old uploads"]

    assert await run_task(world.database, task) == 3

    assert await world.kept() == {sent, stopped, sending, fresh}
    for upload_id, recipients in ((sent, 13), (stopped, 10)):
        upload = await world.find(upload_id)
        assert (upload.state, upload.recipients, upload.total_cost) == (
            "sent",
            recipients,
            recipients * PRICE,
        )
        assert (upload.message, upload.columns, upload.problem) == ("", [], None)
        assert upload.erased_at is not None
    left = await world.rows(
        "SELECT c::text AS row FROM upload_chunks c WHERE upload_id = ANY($1::uuid[])"
        " UNION ALL SELECT f::text FROM upload_faults f",
        [sent, stopped],
    )
    assert len(left) == 3
    assert not any("77120" in row["row"] or "Person" in row["row"] for row in left)
    # Their batches are still one file, which stays as long as one of them.
    async with world.database.connection() as connection:
        batch_id = (await chunks.list_chunks(connection, sent))[0].batch_id
        assert batch_id is not None
        assert (await chunks.list_files(connection, world.caller.id, [batch_id]))[batch_id].recipients == 13
    assert await prepare_resend(world.database, world.caller.id, sent) is None
    assert await run_task(world.database, task) == 0
    async with world.database.transaction() as connection:
        second = (await chunks.list_chunks(connection, sent))[1].batch_id
        assert second is not None
        # The one that was stopped has only older batches.
        assert await uploads.delete_empty(connection, second, 10) == 1
        assert await uploads.delete_empty(connection, HIGHEST_ID, 10) == 1
    assert await world.kept() == {sending, fresh}
    assert {row["upload_id"] for row in await world.rows("SELECT upload_id FROM upload_chunks")} == {
        sending,
        fresh,
    }


async def test_a_kept_file_is_forgotten_after_a_day(world: World) -> None:
    file = KeptFile(new_id(1), "people.csv", "Dear {name}", "ZW", "spring", None)
    async with world.database.transaction() as connection:
        await kept_files.keep(connection, world.caller.id, file, b"to\n+263771200001")
        assert await kept_files.find(connection, world.caller.id) == file
        assert await kept_files.reuse(connection, world.caller.id, replace(file, id=new_id(2))) is None
        await kept_files.set_sheets(connection, world.caller.id, ["May", "June"])
        typed = replace(file, file_name="", message="Hello", sheet="June")
        found = await kept_files.reuse(connection, world.caller.id, typed)
        now = replace(typed, file_name="people.csv", sheets=("May", "June"))
        assert await kept_files.find(connection, world.caller.id) == now
        assert found == (now, b"to\n+263771200001")
        await kept_files.keep(connection, world.caller.id, file, b"to\n+263771200001")
        assert await kept_files.find(connection, world.caller.id) == file
    assert await run_task(world.database, TASK["forget old uploads"]) == 0
    await world.rows("UPDATE kept_files SET kept_at = now() - interval '25 hours'")
    async with world.database.transaction() as connection:
        assert await kept_files.find(connection, world.caller.id) is None
        assert await kept_files.reuse(connection, world.caller.id, file) is None
    assert await run_task(world.database, TASK["forget old uploads"]) == 1


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
    upload_id = await world.check(13)
    assert await world.confirm(upload_id) == Begun()
    for place in (7, 11):
        await world.template(f"Dear Person {place}, your parcel is here.", TemplateVerdict.BLOCK)

    assert await world.send_all() == 2

    upload = await world.find(upload_id)
    assert (upload.state, upload.recipients, upload.refused) == ("sent", 11, 2)
    assert await world.refused(upload_id) == [(9, "+263771200007"), (13, "+263771200011")]
    assert {"+263771200007", "+263771200011"}.isdisjoint(await world.sent_to())
    assert upload.total_cost == 11 * PRICE
    assert await world.balance() == 1000 - 11 * PRICE
    await world.check_books()


async def test_a_file_of_which_nothing_is_allowed_any_more_costs_nothing(world: World) -> None:
    blocked, other = await world.check(3, "Your parcel is here at the desk."), await world.check(first=10)
    assert await world.confirm(blocked) == await world.confirm(other) == Begun()
    await world.template("Your parcel is here at the desk.", TemplateVerdict.BLOCK)

    await world.send_all()

    upload = await world.find(blocked)
    assert (upload.state, upload.recipients, upload.refused, upload.total_cost) == ("sent", 0, 3, Decimal(0))
    assert (await world.find(other)).state == "sent"
    assert await world.sent_to() == [f"+26377120001{place}" for place in range(3)]
    assert await world.balance() == 1000 - 3 * PRICE


async def test_rows_behind_those_that_were_left_out_are_found(world: World) -> None:
    upload_id = await world.check(12)
    for place in range(3):
        await world.template(f"Dear Person {place}, your parcel is here.", TemplateVerdict.BLOCK)
    assert await world.confirm(upload_id) == NoLongerAllowed(3)
    async with world.database.connection() as connection:
        assert await chunks.find_next_good(connection, upload_id, 5) == 5
        assert await chunks.find_next_good(connection, upload_id, 8) == 10
        assert await chunks.find_next_good(connection, upload_id, 12) is None


async def test_rows_near_the_line_mark_their_batch_and_are_counted_and_sampled(world: World) -> None:
    near, clear = find_near_text(), "Your code is 493817."
    await manage_accounts.review(world.database, world.caller.id, consent=True)
    texts = [near, clear, near]
    file = "\n".join(["to,text", *(f'+2637712000{n:02},"{text}"' for n, text in enumerate(texts))])
    await world.confirm(await world.check(text=file, message="{text}"))
    await world.confirm(await world.check(2, first=50))
    assert await world.send_all() == 2
    marks = await world.rows("SELECT near_line, recipients FROM batches ORDER BY id")
    assert [tuple(row) for row in marks] == [(True, 3), (None, 2)]
    assert [row[0] for row in await world.rows("SELECT messages FROM near_line_days")] == [2]
    (sample,) = await world.rows("SELECT text, messages, score FROM near_line_texts")
    assert tuple(sample) == (near, 2, classify(near).score)

    await manage_accounts.review(world.database, world.caller.id, consent=False)
    await world.confirm(await world.check(1, first=90, message=near))
    await world.send_all()
    assert [row[0] for row in await world.rows("SELECT messages FROM near_line_days")] == [3]
    assert await world.rows("SELECT FROM near_line_texts") == []
