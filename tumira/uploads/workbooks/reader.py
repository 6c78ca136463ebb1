"""Reads tables of all kinds for the web process: CSV, XLSX and ODS.

A workbook is converted to CSV by a process of its own (`uploads/workbooks/convert`), a few at a time, which
is killed when it takes too long or its reader leaves. Whatever happens to it, the web process goes on.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path
from typing import Final

import msgspec
import structlog

from tumira.core.ids import AccountId
from tumira.core.translation import _, mark
from tumira.uploads.csv_file import BYTES_MAX, CsvError, CsvFile, read_csv
from tumira.uploads.file_kinds import is_workbook
from tumira.uploads.workbooks import convert
from tumira.uploads.workbooks.convert import (
    Conversion,
    Converted,
    ManySheets,
    TooMuchMemory,
    Unreadable,
)

PROCESSES_MAX: Final = 2
# Each holds its file in memory, up to five megabytes.
WAITING_MAX: Final = 10
WALL_S_MAX: Final = 90
# A sheet as CSV, and its frame.
ANSWER_BYTES_MAX: Final = BYTES_MAX + 64 * 1024

# Whatever lies in the directory that we were started from is not ours.
READER: Final = ("-P", "-m", convert.__name__)

_TOO_LONG: Final = mark("This workbook takes too long to read. Save the sheet as CSV and upload that.")
_FAILED: Final = mark("This workbook cannot be read. Save the sheet as CSV and upload that.")
_TOO_LARGE: Final = mark(
    "This workbook needs too much memory to read. Copy the rows that you need to a new workbook, or save the "
    "sheet as CSV."
)
_PACKAGE_ROOT: Final = Path(convert.__file__).parents[3]

_log: Final = structlog.get_logger()


class ReaderBusy(Exception):  # noqa: N818 - not an error of ours: the caller tries again later.
    """Nothing was read: too many files wait, or another one of the account."""


class TableReader:
    def __init__(self) -> None:
        self._processes = asyncio.Semaphore(PROCESSES_MAX)
        self._accounts: set[AccountId] = set()

    async def read(
        self, account_id: AccountId, data: bytes, sheet: str | None = None
    ) -> CsvFile | ManySheets:
        """Read a table of any kind; a CsvError says what is wrong with it.

        A workbook of which several sheets have rows needs to know which: it is read again with one of them.
        """
        if is_workbook(data):
            if account_id in self._accounts or len(self._accounts) >= WAITING_MAX:
                raise ReaderBusy
            self._accounts.add(account_id)
            try:
                found = await self.convert(data, sheet)
            finally:
                self._accounts.discard(account_id)
            if isinstance(found, ManySheets):
                return found
            data = found.data
        return await asyncio.to_thread(read_csv, data)

    async def convert(self, data: bytes, sheet: str | None) -> Converted | ManySheets:
        """Convert a sheet of a workbook to CSV; a CsvError says what is wrong with it."""
        async with self._processes:
            try:
                async with asyncio.timeout(WALL_S_MAX):
                    answer = await _run(convert.encode(Conversion(data, sheet)))
            except TimeoutError:
                _log.warning("workbook took too long to read")
                raise CsvError(_(_TOO_LONG)) from None
        match answer:
            case Unreadable():
                raise CsvError(answer.problem)
            case TooMuchMemory():
                raise CsvError(_(_TOO_LARGE))
        return answer


async def _run(task: bytes) -> convert.Answer:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *READER,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        # Who reads files of strangers knows no secrets.
        env={"PYTHONPATH": str(_PACKAGE_ROOT)},
    )
    try:
        return await _talk(process, task)
    except (BrokenPipeError, ConnectionResetError, msgspec.DecodeError):
        status = await process.wait()
        _log.error("workbook reader died", status=status)
        said = _TOO_LONG if status in {-signal.SIGKILL, -signal.SIGXCPU} else _FAILED
        raise CsvError(_(said)) from None
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _talk(process: Process, task: bytes) -> convert.Answer:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(task)
    await process.stdin.drain()
    process.stdin.close()
    answer = bytearray()
    while piece := await process.stdout.read(64 * 1024):
        answer += piece
        if len(answer) > ANSWER_BYTES_MAX:
            process.kill()
            break
    return convert.read_answer(answer)
