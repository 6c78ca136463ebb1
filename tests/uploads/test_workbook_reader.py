"""The process that reads workbooks: bounded, and no loss for the web process when it dies."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest

from tests.support.chaos.node import first_true
from tests.support.uploads.hostile import hostile
from tests.support.uploads.workbooks import pack, text_rows, xlsx, xlsx_parts
from tumira.core.ids import AccountId
from tumira.uploads.csv_file import CsvError, CsvFile
from tumira.uploads.workbooks import convert, reader
from tumira.uploads.workbooks.convert import ManySheets
from tumira.uploads.workbooks.reader import ReaderBusy, TableReader

ACCOUNT: Final = AccountId(uuid4())
PEOPLE: Final = text_rows(("to", "name"), ("+263771200001", "Anna"))


def processes() -> list[int]:
    """Return the processes of ours that read workbooks."""
    found = []
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(OSError):
                if convert.__name__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


async def started() -> bool:
    return bool(processes())


async def problem_of(reading: asyncio.Task[CsvFile | ManySheets]) -> str:
    with pytest.raises(CsvError) as caught:
        await reading
    assert not processes()
    return str(caught.value)


async def test_tables_of_all_kinds_are_read_by_one_call() -> None:
    tables = TableReader()
    for data in (xlsx(PEOPLE), b"to,name\n+263771200001,Anna"):
        table = await tables.read(ACCOUNT, data)
        assert isinstance(table, CsvFile)
        assert [row.cells for row in table.rows] == [("+263771200001", "Anna")]
    several = pack(xlsx_parts({"A": PEOPLE, "B": PEOPLE}))
    assert await tables.read(ACCOUNT, several) == ManySheets(["A", "B"])
    assert isinstance(await tables.read(ACCOUNT, several, "B"), CsvFile)
    with pytest.raises(CsvError, match="damaged"):
        await tables.read(ACCOUNT, b"PK\x03\x04")


def stop_reading(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Have another program run in place of the reader, with the same name in its command line."""
    monkeypatch.setattr(reader, "READER", ("-c", program, convert.__name__))


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os.abort()", "cannot be read"),
        ("raise SystemExit(1)", "cannot be read"),
        ("print('nonsense')", "cannot be read"),
        ("import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write(bytes(64 * 1024**2))", "too long"),
    ],
)
async def test_a_reader_that_crashes_is_said_so(
    monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    stop_reading(monkeypatch, program)
    assert said in await problem_of(asyncio.create_task(TableReader().read(ACCOUNT, xlsx(PEOPLE))))


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGXCPU, signal.SIGSEGV])
async def test_a_reader_that_is_killed_is_said_so(
    monkeypatch: pytest.MonkeyPatch, sign: signal.Signals
) -> None:
    stop_reading(monkeypatch, "import time; time.sleep(600)")
    reading = asyncio.create_task(TableReader().read(ACCOUNT, xlsx(PEOPLE)))
    await first_true(started, "no process began to read")
    for pid in processes():
        os.kill(pid, sign)
    assert ("cannot be read" if sign is signal.SIGSEGV else "too long") in await problem_of(reading)


async def test_a_reader_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_reading(monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(reader, "WALL_S_MAX", 0.3)
    assert "too long" in await problem_of(asyncio.create_task(TableReader().read(ACCOUNT, xlsx(PEOPLE))))


async def test_a_reader_that_takes_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = convert.encode(convert.TooMuchMemory())
    stop_reading(monkeypatch, f"import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write({answer!r})")
    problem = await problem_of(asyncio.create_task(TableReader().read(ACCOUNT, xlsx(PEOPLE))))
    assert "too much memory" in problem


@pytest.mark.long
@pytest.mark.parametrize(
    ("limit", "said"), [("MEMORY_MAX = 48 * 1024**2", "too much memory"), ("CPU_S_MAX = 1", "too long")]
)
async def test_the_kernel_holds_a_reader_to_its_limits(
    monkeypatch: pytest.MonkeyPatch, limit: str, said: str
) -> None:
    program = (
        f"import sys; from tumira.uploads.workbooks import convert; convert.{limit}; "
        "convert._main(sys.stdin.buffer, sys.stdout.buffer)"
    )
    stop_reading(monkeypatch, program)
    data = hostile("many strings" if "MEMORY" in limit else "bomb of cells")
    assert said in await problem_of(asyncio.create_task(TableReader().read(ACCOUNT, data)))


async def test_few_workbooks_are_read_at_once_and_one_of_each_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_reading(monkeypatch, "import time; time.sleep(600)")
    tables = TableReader()
    readings = [
        asyncio.create_task(tables.read(AccountId(uuid4()), xlsx(PEOPLE)))
        for _ in range(reader.WAITING_MAX - 1)
    ]
    readings.append(asyncio.create_task(tables.read(ACCOUNT, xlsx(PEOPLE))))
    await first_true(started, "no process began to read")
    for account_id in (ACCOUNT, AccountId(uuid4())):
        with pytest.raises(ReaderBusy):
            await tables.read(account_id, xlsx(PEOPLE))
    assert len(processes()) <= reader.PROCESSES_MAX
    for reading in readings:
        reading.cancel()
    await asyncio.gather(*readings, return_exceptions=True)
    assert not processes()
