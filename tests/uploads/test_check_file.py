"""Files that are checked in their own process: one for each account, and only while a browser waits."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
import pytest_asyncio

from tests.support.chaos.node import first_true
from tests.support.processes.service import new_caller
from tests.support.uploads.files import MESSAGE, expensive_file
from tests.support.uploads.workbooks import pack, text_rows, xlsx_parts
from tumira.core.ids import AccountId, UploadId, new_id
from tumira.postgres.pool import Database
from tumira.uploads import check_file, check_rows, chunks, kept_files
from tumira.uploads import checks as file_checks
from tumira.uploads import store as uploads
from tumira.uploads.check_file import BriefTime, Busy, FileChecker, Pending, Unfinished
from tumira.uploads.check_rows import BadFile, BadMessage, Wanted
from tumira.uploads.checks import FileCheck
from tumira.uploads.kept_files import KeptFile

# So many bytes are checked by no thread.
TOO_MANY_BYTES: Final = check_file.BRIEF_BYTES_MAX + 1


def light_file(rows: int = 3, message: str = MESSAGE) -> Wanted:
    """Return a file that is quickly checked but, with its blank lines, too large for a thread."""
    lines = ["to,name", *(f"+2637712{place:05},Person {place}" for place in range(rows))]
    return Wanted("light.csv", "\n".join(lines).encode() + b"\n" * TOO_MANY_BYTES, message, None, None)


@dataclass(frozen=True, slots=True)
class World:
    """A database and those who check files on it."""

    url: str
    database: Database

    async def account(self) -> AccountId:
        return (await new_caller(self.url, "0")).id

    async def look(self, account_id: AccountId, upload_id: UploadId) -> FileCheck | None:
        async with self.database.connection() as connection:
            return await file_checks.look(connection, account_id, upload_id)

    async def is_checking(self, account_id: AccountId, upload_id: UploadId) -> bool:
        return await self.look(account_id, upload_id) is not None

    async def is_kept(self, account_id: AccountId, upload_id: UploadId) -> bool:
        async with self.database.connection() as connection:
            return await uploads.find(connection, account_id, upload_id) is not None

    async def forget_who_waits(self) -> None:
        async with self.database.connection() as connection:
            await connection.execute("UPDATE file_checks SET wanted_until = now() - interval '1 second'")


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = Database(database_url)
    yield World(database_url, database)
    assert await ended(), "a process that checks was left behind"
    await database.close()


def processes() -> list[int]:
    """Return the processes of ours that check files."""
    found = []
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(OSError):
                if check_rows.__name__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


async def ended() -> bool:
    return not processes()


async def started() -> bool:
    return bool(processes())


async def test_both_ways_of_checking_find_the_same(world: World) -> None:
    account_id = await world.account()
    wanted = light_file(1010)
    small = Wanted(wanted.file_name, wanted.data.strip() + b"\n12,Bad", MESSAGE, None, None)
    large = Wanted(small.file_name, small.data + b"\n" * TOO_MANY_BYTES, MESSAGE, None, None)
    found = []
    for one in (small, large):
        checked = await FileChecker(world.database, None).check(account_id, one)
        assert isinstance(checked, UUID)
        assert await world.look(account_id, UploadId(checked)) is None
        async with world.database.connection() as connection:
            upload = await uploads.find(connection, account_id, UploadId(checked))
            assert upload is not None
            found.append(
                (
                    (upload.rows, upload.recipients, upload.total_cost, upload.columns),
                    await chunks.list_chunks(connection, upload.id),
                    await uploads.list_faults(connection, upload.id, 10),
                    await chunks.list_good(connection, upload.id, 1000, 100),
                )
            )
    assert found[0] == found[1]


async def test_what_is_wrong_with_a_file_is_said_by_a_process_too(world: World) -> None:
    checker, account_id = FileChecker(world.database, None), await world.account()
    workbook = Wanted("f.csv", b"PK\x03\x04" + b"\n" * TOO_MANY_BYTES, MESSAGE, None, None)
    assert isinstance(await checker.check(account_id, workbook), BadFile)
    wanted = light_file(message="Dear {surname}, it is here.")
    assert isinstance(await checker.check(account_id, wanted), BadMessage)


async def test_a_sheet_is_asked_for_also_when_nobody_waited(world: World) -> None:
    account_id = await world.account()
    kept = KeptFile(new_id(1), "people.xlsx", MESSAGE, "", "", None)
    data = pack(xlsx_parts({"May": text_rows(["to"], ["1"]), "June": text_rows(["to"], ["2"])}))
    async with world.database.transaction() as connection:
        await kept_files.keep(connection, account_id, kept, data)
    pending = await FileChecker(world.database, 0.0).check(
        account_id, Wanted("people.xlsx", data, MESSAGE, None, None)
    )
    assert isinstance(pending, Pending)

    async def is_asked() -> bool:
        check = await world.look(account_id, pending.upload_id)
        return check is not None and "Several sheets" in (check.problem or "")

    await first_true(is_asked, "nobody asked for the sheet")
    async with world.database.connection() as connection:
        found = await kept_files.find(connection, account_id)
    assert found is not None
    assert found.sheets == ("May", "June")


async def test_a_check_goes_on_while_somebody_looks_and_ends_when_nobody_does(world: World) -> None:
    account_id = await world.account()
    pending = await FileChecker(world.database, 0.0).check(account_id, expensive_file(9000))
    assert isinstance(pending, Pending)

    async def is_on_its_way() -> bool:
        check = await world.look(account_id, pending.upload_id)
        return check is not None and 0 < check.done < check.rows == 9000 and not check.is_dead

    await first_true(is_on_its_way, "nobody said how far the check is")
    await world.forget_who_waits()
    await first_true(ended, "a check went on that nobody waits for")

    async def is_over() -> bool:
        check = await world.look(account_id, pending.upload_id)
        return check is not None and check.problem is not None

    await first_true(is_over, "nobody said why the check ended")
    assert not await world.is_kept(account_id, pending.upload_id)


async def test_a_check_ends_with_the_browser_that_sent_the_file(world: World) -> None:
    account_id = await world.account()

    async def hang_up() -> None:
        await first_true(started, "no process began to check")

    checked = await FileChecker(world.database, None).check(account_id, expensive_file(9000), hang_up)
    assert isinstance(checked, Unfinished)
    await first_true(ended, "a check went on that nobody waits for")


async def test_a_newer_file_takes_the_place_of_the_one_that_is_being_checked(world: World) -> None:
    account_id = await world.account()
    older = await FileChecker(world.database, 0.0).check(account_id, expensive_file(9000))
    assert isinstance(older, Pending)
    await first_true(started, "no process began to check")

    # At another web process, where the older one is not known.
    checker = FileChecker(world.database, 0.0)
    newer = await checker.check(account_id, expensive_file(9000))
    assert isinstance(newer, Pending)
    await first_true(lambda: world.is_checking(account_id, newer.upload_id), "the newer check did not begin")
    assert await world.look(account_id, older.upload_id) is None

    newest = await checker.check(account_id, light_file())
    assert isinstance(newest, Pending)
    await first_true(lambda: world.is_kept(account_id, newest.upload_id), "the newest file was not checked")
    await first_true(ended, "the older checks went on")
    assert not await world.is_kept(account_id, older.upload_id)
    assert not await world.is_kept(account_id, newer.upload_id)


async def test_no_more_files_wait_than_fit_into_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_file, "WAITING_MAX", 1)
    checker = FileChecker(world.database, 0.0)
    assert isinstance(await checker.check(await world.account(), expensive_file(9000)), Pending)
    assert await checker.check(await world.account(), light_file()) == Busy()
    await world.forget_who_waits()
    await first_true(ended, "a check went on that nobody waits for")


async def test_a_file_that_takes_too_long_is_refused(world: World) -> None:
    """The process is killed by the kernel as it would be after its last second."""
    checker = FileChecker(world.database, None)
    account_id = await world.account()
    checking = asyncio.create_task(checker.check(account_id, expensive_file(9000)))
    await first_true(started, "no process began to check")
    for pid in processes():
        os.kill(pid, signal.SIGKILL)
    outcome = await checking
    assert isinstance(outcome, Unfinished)
    assert "too long" in outcome.problem


def test_checks_in_threads_take_a_small_part_of_the_processor() -> None:
    brief = BriefTime(0.0)
    taken = sum(brief.take(now=place / 100) for place in range(100_000))
    assert 0 < taken * check_file.BRIEF_S <= 1000 * check_file.BRIEF_SHARE + check_file.BRIEF_SAVED_S
