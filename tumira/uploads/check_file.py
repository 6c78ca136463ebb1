"""The check of an uploaded file, without delaying the process that answers calls.

A file that takes a moment is checked in a thread, as long as such files together take a small part of the
processor. Every other one is checked by a process of its own (`uploads/check_rows`): two at a time, one for
each account, and only while its customer waits for it. A workbook is converted to CSV before, by another
process.
"""

import asyncio
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from msgspec import structs

from tumira.content import template_store
from tumira.core.ids import AccountId, UploadId, new_id
from tumira.core.translation import _, mark
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.pricing.store import get_tariff
from tumira.replies import opt_outs
from tumira.uploads import check_rows, chunks, kept_files
from tumira.uploads import checks as file_checks
from tumira.uploads import store as uploads
from tumira.uploads.check_rows import (
    HEADER,
    BadFile,
    BadMessage,
    BadRows,
    End,
    Finding,
    Frame,
    GoodRows,
    Head,
    Progress,
    Task,
    Wanted,
)
from tumira.uploads.csv_file import CsvError
from tumira.uploads.file_kinds import is_workbook
from tumira.uploads.workbooks.convert import ManySheets
from tumira.uploads.workbooks.reader import TableReader

PROCESSES_MAX: Final = 2
# Each holds its file in memory, up to five megabytes.
WAITING_MAX: Final = 10
# How long the page that took the file waits for the verdict before it shows how far the check is.
PATIENCE_S: Final = 8.0
BEAT_S: Final = 1.0

# In a thread: small files, each for a moment, and all together for a twentieth of the time.
BRIEF_BYTES_MAX: Final = 256 * 1024
BRIEF_S: Final = 0.25
BRIEF_SHARE: Final = 0.05
BRIEF_SAVED_S: Final = 2.0

_NOBODY: Final = mark("The check stopped because its page was closed. Check the file again.")
_REPLACED: Final = mark("You have uploaded another file since. That file is checked instead.")
_TOO_LONG: Final = mark("This file takes too long to check. Split it and upload the parts.")
_FAILED: Final = mark("The check failed on our side. Check the file again.")
_SHEETS: Final = mark("Several sheets of this workbook have rows. Choose one of them, then check again.")
_PACKAGE_ROOT: Final = Path(check_rows.__file__).parents[2]

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pending:
    """The file is still being checked."""

    upload_id: UploadId


@dataclass(frozen=True, slots=True)
class Busy:
    """Nothing was checked: the queue of files is full."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The check was aborted, for this reason."""

    problem: str


Outcome = UploadId | BadFile | BadMessage | ManySheets | Unfinished


class BriefTime:
    """A budget of processor time for checks in threads: some at once, little in the long run."""

    def __init__(self, now: float) -> None:
        self._left = BRIEF_SAVED_S
        self._at = now

    def take(self, now: float) -> bool:
        """Reserve the time for one file, if the budget allows it."""
        self._left = min(self._left + (now - self._at) * BRIEF_SHARE, BRIEF_SAVED_S)
        self._at = now
        if self._left < BRIEF_S:
            return False
        self._left -= BRIEF_S
        return True

    def give_back(self, spare_s: float) -> None:
        """Return unused time, or take what was used in excess."""
        self._left += spare_s


class FileChecker:
    def __init__(self, database: Database, patience_s: float | None = PATIENCE_S) -> None:
        self._database = database
        self._patience_s = patience_s
        self._brief_time = BriefTime(time.monotonic())
        self._processes = asyncio.Semaphore(PROCESSES_MAX)
        self._running: dict[AccountId, asyncio.Task[Outcome]] = {}
        # For other pages that read tables.
        self.tables = TableReader()

    async def check(
        self, account_id: AccountId, wanted: Wanted, hung_up: Callable[[], Awaitable[None]] | None = None
    ) -> Outcome | Pending | Busy:
        """Check every row of a file and keep what was found, or say why it cannot be read at all.

        A check that takes longer continues in the background, and `file_checks` tells how far it is. It ends
        when `hung_up` does before that.
        """
        task = await self._new_task(account_id, wanted)
        is_brief = len(wanted.data) <= BRIEF_BYTES_MAX and not is_workbook(wanted.data)
        if is_brief and self._brief_time.take(time.monotonic()):
            findings, spare_s = await asyncio.to_thread(check_rows.check_briefly, task, BRIEF_S)
            self._brief_time.give_back(spare_s)
            if findings is not None:
                return await self._keep_all(findings)
        earlier = self._running.get(account_id)
        if earlier is None and len(self._running) >= WAITING_MAX:
            return Busy()
        running = asyncio.create_task(self._run(task, earlier))
        self._running[account_id] = running
        running.add_done_callback(lambda ended: self._forget(account_id, ended))
        return await self._await(running, task.upload_id, hung_up)

    async def _new_task(self, account_id: AccountId, wanted: Wanted) -> Task:
        async with self._database.connection() as connection:
            tariff = await get_tariff(connection)
            policy = await template_store.get_policy(connection)
            opted_out = await opt_outs.find_all(connection, account_id)
        return Task(
            upload_id=UploadId(new_id(time.time_ns() // 1_000_000)),
            account_id=account_id,
            wanted=wanted,
            tariff_version=tariff.version,
            destinations=tariff.destinations,
            prices=tariff.prices,
            policy_version=policy.version,
            templates=policy.of_account(account_id),
            opted_out=opted_out,
        )

    async def _await(
        self,
        running: asyncio.Task[Outcome],
        upload_id: UploadId,
        hung_up: Callable[[], Awaitable[None]] | None,
    ) -> Outcome | Pending:
        gone = None if hung_up is None else asyncio.ensure_future(hung_up())
        try:
            await asyncio.wait(
                {running} if gone is None else {running, gone},
                timeout=self._patience_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            running.cancel()
            raise
        finally:
            if gone is not None:
                gone.cancel()
        if running.cancelled():
            return Unfinished(_(_REPLACED))
        if running.done():
            return running.result()
        if gone is not None and gone.done():
            running.cancel()
            return Unfinished(_(_NOBODY))
        return Pending(upload_id)

    def _forget(self, account_id: AccountId, running: asyncio.Task[Outcome]) -> None:
        if self._running.get(account_id) is running:
            del self._running[account_id]
        if not running.cancelled() and running.exception() is not None:
            _log.error("file check failed", exc_info=running.exception())

    async def _run(self, task: Task, earlier: asyncio.Task[Outcome] | None) -> Outcome:
        """Check a file in its own process, and record progress every second, while a browser waits."""
        if earlier is not None:
            earlier.cancel()
            await asyncio.wait({earlier})
        async with self._database.transaction() as connection:
            await file_checks.begin(connection, task.account_id, task.upload_id, task.wanted.file_name)
        outside = _Outside(self._database, task, self._processes, self.tables)
        checking = asyncio.create_task(outside.check())
        try:
            while not (await asyncio.wait({checking}, timeout=BEAT_S))[0]:
                # What is being kept is committed or not, whoever waits.
                if not outside.is_keeping and not await self._beat(task.upload_id, outside.progress):
                    return await self._give_up(task.upload_id, _(_NOBODY))
            outcome = checking.result()
        except asyncio.CancelledError:
            raise
        except Exception:
            await self._give_up(task.upload_id, _(_FAILED))
            raise
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)
        if isinstance(outcome, ManySheets):
            await self._ask_for_sheet(task, outcome.names)
        elif isinstance(outcome, BadFile | BadMessage | Unfinished):
            await self._give_up(task.upload_id, outcome.problem)
        return outcome

    async def _beat(self, upload_id: UploadId, progress: Progress) -> bool:
        async with self._database.transaction() as connection:
            beat = await file_checks.beat(connection, upload_id, rows=progress.rows, done=progress.done)
            return bool(beat)

    async def _give_up(self, upload_id: UploadId, problem: str) -> Unfinished:
        async with self._database.transaction() as connection:
            await file_checks.fail(connection, upload_id, problem)
        return Unfinished(problem)

    async def _ask_for_sheet(self, task: Task, names: Sequence[str]) -> None:
        async with self._database.transaction() as connection:
            await kept_files.set_sheets(connection, task.account_id, names)
            await file_checks.fail(connection, task.upload_id, _(_SHEETS))

    async def _keep_all(self, findings: Sequence[Finding]) -> Outcome:
        head, *pieces = findings
        if isinstance(head, BadFile | BadMessage):
            return head
        assert isinstance(head, Head)
        async with self._database.transaction() as connection:
            await uploads.insert(connection, head.upload)
            for piece in pieces:
                await _keep(connection, head.upload.id, piece)
            await uploads.delete_surplus(connection, head.upload.account_id)
        return head.upload.id


class _Outside:
    """One check in its own process; it ends with the task that awaits it."""

    def __init__(
        self, database: Database, task: Task, processes: asyncio.Semaphore, tables: TableReader
    ) -> None:
        self._database = database
        self._task = task
        self._processes = processes
        self._tables = tables
        self.progress = Progress(0, 0)
        self.is_keeping = False

    async def check(self) -> Outcome:
        """Wait for one of the processes, and have the file checked."""
        async with self._processes:
            return await self._read_sheet() or await self._check()

    async def _read_sheet(self) -> BadFile | ManySheets | None:
        """Put a sheet of a workbook in its place as CSV; return why that cannot be done."""
        wanted = self._task.wanted
        if not is_workbook(wanted.data):
            return None
        try:
            found = await self._tables.convert(wanted.data, wanted.sheet)
        except CsvError as error:
            return BadFile(str(error))
        if isinstance(found, ManySheets):
            return found
        wanted = structs.replace(wanted, data=found.data, hidden_rows=found.hidden)
        self._task = structs.replace(self._task, wanted=wanted)
        return None

    async def _check(self) -> Outcome:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Whatever lies in the directory that we were started from is not ours.
            "-P",
            "-m",
            check_rows.__name__,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            # Who reads files of strangers knows no secrets.
            env={"PYTHONPATH": str(_PACKAGE_ROOT)},
        )
        try:
            return await self._talk(process)
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
            status = await process.wait()
            if status in {-signal.SIGKILL, -signal.SIGXCPU}:
                _log.warning("file check took too long")
                return Unfinished(_(_TOO_LONG))
            _log.error("file check died", status=status)
            return Unfinished(_(_FAILED))
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _talk(self, process: Process) -> Outcome:
        assert process.stdin is not None
        process.stdin.write(check_rows.write_task(self._task))
        await process.stdin.drain()
        process.stdin.close()
        while isinstance(frame := await _next_frame(process), Progress):
            self.progress = frame
        if isinstance(frame, BadFile | BadMessage):
            return frame
        assert isinstance(frame, Head)
        self.is_keeping = True
        async with self._database.transaction() as connection:
            if not await file_checks.end(connection, frame.upload.id):
                return Unfinished(_(_NOBODY))
            await uploads.insert(connection, frame.upload)
            while not isinstance(piece := await _next_frame(process), End):
                await _keep(connection, frame.upload.id, piece)
            await uploads.delete_surplus(connection, frame.upload.account_id)
        return frame.upload.id


async def _next_frame(process: Process) -> Frame:
    assert process.stdout is not None
    (size,) = HEADER.unpack(await process.stdout.readexactly(HEADER.size))
    return check_rows.read_frame(await process.stdout.readexactly(size))


async def _keep(connection: Connection, upload_id: UploadId, piece: Frame) -> None:
    match piece:
        case GoodRows():
            await chunks.insert(connection, upload_id, piece.chunk)
        case BadRows():
            await uploads.insert_faults(connection, upload_id, piece.faults)
