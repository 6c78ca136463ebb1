"""Batches and files as one list, and files whose failed rows are sent again."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio

from tests.support.processes.service import new_caller
from tests.uploads.test_store import ADVERT, BEFORE_ALL, PRICE, World
from tumira.audit_log import OPERATOR
from tumira.content.review import remove_template
from tumira.content.templates import TemplateVerdict
from tumira.core.ids import UploadId
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.sending.search import HIGHEST, BatchFilter, Search
from tumira.uploads import check_rows, chunks, entries
from tumira.uploads.entries import Outcome, SentEntry, list_entries
from tumira.uploads.resend import prepare_resend, resend_id
from tumira.uploads.send import NoLongerAllowed, send_next_chunk


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


async def pages_of(world: World, count_max: int, wanted: Search, **options: bool) -> Sequence[SentEntry]:
    found: list[SentEntry] = []
    before = HIGHEST
    for _ in range(50):
        async with world.database.connection() as connection:
            page = await list_entries(
                connection, world.caller.id, replace(wanted, before=before), count_max, **options
            )
        assert len(page.entries) <= count_max
        found.extend(page.entries)
        if page.older is None:
            return found
        before = page.older
    raise AssertionError("a list ends")


async def end(world: World, *failed: str) -> None:
    await world.rows(
        "UPDATE messages SET status = CASE WHEN recipient = ANY($1) THEN 'failed' ELSE 'delivered' END",
        list(failed),
    )
    await world.rows("UPDATE batches SET status = 'completed', pending = 0, completed_at = now()")


async def send_interleaved(world: World) -> tuple[UploadId, UploadId]:
    """Send two files of three batches each, a batch of one after a batch of the other."""
    first, second = await world.check(25), await world.check(25, first=100)
    for upload_id in (first, second):
        await world.confirm(upload_id)
    for after in (BEFORE_ALL, first, BEFORE_ALL, first, BEFORE_ALL, first):
        await send_next_chunk(world.database, after)
    return first, second


@pytest.mark.parametrize("count_max", [1, 2, 3, 10])
async def test_each_file_and_each_other_batch_is_one_entry_on_one_page(world: World, count_max: int) -> None:
    forgotten = await world.check(15, first=200)
    await world.confirm(forgotten)
    await world.send_all()
    # What is left of a file that is no longer kept is its batches.
    await world.rows("DELETE FROM uploads WHERE id = $1", forgotten)
    first, second = await send_interleaved(world)
    await end(world, "+263771200003", "+263771200101", "+263771200102")

    found = await pages_of(world, count_max, Search())

    assert [(one.file and one.file.id, one.recipients, len(one.batches)) for one in found] == [
        (second, 25, 3),
        (first, 25, 3),
        (None, 5, 1),
        (None, 10, 1),
    ]
    assert [one.outcome for one in found] == [
        Outcome(23, 2, 0, 0),
        Outcome(24, 1, 0, 0),
        Outcome(5, 0, 0, 0),
        Outcome(10, 0, 0, 0),
    ]
    assert [str(one.total_cost) for one in found[:2]] == ["1.0000", "1.0000"]
    assert not any(one.is_open for one in found)


async def test_a_filter_finds_a_file_by_any_of_its_batches(world: World) -> None:
    first, second = await send_interleaved(world)
    await world.rows(
        "UPDATE batches SET status = 'completed', pending = 0, completed_at = now()"
        " WHERE id = (SELECT max(id::text)::uuid FROM batches)"
    )
    found = await pages_of(world, 10, Search(standing=BatchFilter.QUEUED), is_filtered=True)
    assert [one.file and one.file.id for one in found] == [first, second]
    assert [one.outcome for one in found] == [Outcome(0, 0, 0, 25), Outcome(0, 0, 0, 25)]
    assert all(one.is_open for one in found)


async def test_of_too_many_messages_only_the_newest_are_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "COUNTED_MAX", 30)
    await send_interleaved(world)
    await end(world)
    newest, oldest = await pages_of(world, 10, Search())
    assert newest.outcome == Outcome(25, 0, 0, 0)
    assert (oldest.outcome, oldest.ended, oldest.recipients) == (None, 25, 25)


async def test_a_file_that_is_being_sent_counts_what_is_still_to_come(world: World) -> None:
    await world.confirm(await world.check(25))
    await send_next_chunk(world.database, BEFORE_ALL)
    (one,) = await pages_of(world, 10, Search())
    assert one.outcome == Outcome(0, 0, 0, 25)
    assert one.is_open


async def test_failed_rows_become_one_file_that_pays_once_and_is_checked_again(world: World) -> None:
    allowed = await world.template(ADVERT, TemplateVerdict.ALLOW)
    text = "\n".join(["to,text", *(f'+2637712{place:05},"{ADVERT}"' for place in range(12))])
    upload_id = await world.check(message="{text}", text=text)
    await world.confirm(upload_id)
    await world.send_all()
    assert await prepare_resend(world.database, world.caller.id, upload_id) is None
    await end(world, "+263771200001", "+263771200011")
    again = await prepare_resend(world.database, world.caller.id, upload_id)
    assert again == resend_id(upload_id)
    assert await prepare_resend(world.database, world.caller.id, upload_id) == again
    upload = await world.find(again)
    assert (upload.state, upload.recipients, str(upload.total_cost)) == ("checked", 2, "0.0800")
    # Marketing is never sent, however it was allowed before.
    await remove_template(world.database, allowed, actor=OPERATOR)
    assert await world.confirm(again) == NoLongerAllowed(2)
    await world.send_all()
    assert len(await world.sent_to()) == 12
    assert await world.balance() == 1000 - 12 * PRICE


async def test_a_resent_file_adds_up_and_can_itself_be_sent_again(world: World) -> None:
    upload_id = await world.check(25)
    await world.confirm(upload_id)
    await world.send_all()
    failed = [f"+2637712{place:05}" for place in (2, 13, 24)]
    await end(world, *failed)
    again = await prepare_resend(world.database, world.caller.id, upload_id)
    assert again is not None
    await world.confirm(again)
    await world.send_all()
    assert (await world.sent_to())[25:] == failed
    await end(world, failed[0])
    third = await prepare_resend(world.database, world.caller.id, again)
    assert third is not None
    assert (await world.find(third)).recipients == 1
    assert await prepare_resend(world.database, world.caller.id, upload_id) == again
    assert await world.balance() == 1000 - 28 * PRICE
