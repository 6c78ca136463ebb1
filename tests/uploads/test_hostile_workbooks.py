"""Workbooks made to harm: refused with a clear sentence, within bounds, and never felt by others."""

import io
import os
import random
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.chaos.node import until
from tests.support.identity.customers import words
from tests.support.identity.people import Person, goes_to, run_behind_proxy, sign_up
from tests.support.processes.service import Service
from tests.support.uploads.hostile import HOSTILE, PEOPLE, ROWS, hostile
from tests.support.uploads.workbooks import ods, ods_rows, pack, xlsx, xlsx_parts
from tumira.uploads.csv_file import COLUMNS_MAX, ROWS_MAX, CsvError
from tumira.uploads.workbooks import convert as reader
from tumira.uploads.workbooks.convert import Conversion, Converted, Unreadable, convert

PAGE: Final = "/dashboard/upload"
# What a reader may take of the machine, far below what the kernel would let it.
READER_BYTES_MAX: Final = 96 * 1024**2
READER_CPU_S_MAX: Final = 10
# Made or refused slowly; the others take a few milliseconds each.
SLOW: Final = frozenset(
    {"bomb of cells", "many strings", "quadratic strings", "wide row", "many rows", "nested"}
)


def refused(data: bytes) -> str:
    with pytest.raises(CsvError) as caught:
        convert(data, None)
    return str(caught.value)


@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in SLOW])
def test_a_hostile_workbook_is_refused_and_says_what_to_do(name: str) -> None:
    assert HOSTILE[name][1] in refused(hostile(name))


# Runs the reader, then tells what the kernel counted. What a parent learns of a child includes itself.
MEASURED: Final = f"""
import pathlib, runpy, sys
runpy.run_module({reader.__name__!r}, run_name="__main__")
sys.stderr.write(pathlib.Path("/proc/self/status").read_text())
"""


def run_reader(data: bytes) -> tuple[reader.Answer, int, float]:
    """Have a file read by a process as the web process would; return its peak of memory and its time."""
    task = reader.encode(Conversion(data, None))
    with subprocess.Popen(
        [sys.executable, "-P", "-c", MEASURED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(Path(reader.__file__).parents[3])},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(task)
        process.stdin.close()
        answer = process.stdout.read()
        peak = _kilobytes(process.stderr.read().decode(), "VmHWM")
        _pid, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return reader.read_answer(answer), peak * 1024, used.ru_utime + used.ru_stime


def _kilobytes(status: str, name: str) -> int:
    return int(status.partition(f"{name}:")[2].split()[0])


@pytest.mark.long
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_workbook_takes_little_memory_and_time(name: str) -> None:
    answer, peak, cpu_s = run_reader(hostile(name))
    print(f"{name}: {len(hostile(name)):,} bytes, peak {peak // 1024**2} MiB, {cpu_s:.2f} s")
    assert isinstance(answer, Unreadable)
    assert HOSTILE[name][1] in answer.problem
    assert peak < READER_BYTES_MAX
    assert cpu_s < READER_CPU_S_MAX


@pytest.mark.long
def test_a_million_blank_rows_below_the_table_are_passed_over() -> None:
    blank = "".join(f'<row r="{line}" spans="1:3" ht="{line % 977}"/>' for line in range(4, 1_000_000))
    answer, peak, _cpu_s = run_reader(xlsx(ROWS + blank))
    assert isinstance(answer, Converted)
    assert answer.data.count(b"\r\n") == 1 + len(PEOPLE)
    assert peak < READER_BYTES_MAX


def largest_xlsx() -> bytes:
    noise = random.Random(1)
    cells = [f'<c s="1"><v>{noise.randrange(100_000)}</v></c>' for _ in range(ROWS_MAX * COLUMNS_MAX)]
    starts = range(0, len(cells), COLUMNS_MAX)
    rows = "".join(f"<row>{''.join(cells[start : start + COLUMNS_MAX])}</row>" for start in starts)
    return xlsx(rows, formats=["#,##0.00"])


def largest_ods() -> bytes:
    noise = random.Random(1)
    return ods(
        ods_rows(*([str(noise.randrange(10**8)) for _ in range(COLUMNS_MAX)] for _ in range(ROWS_MAX)))
    )


@pytest.mark.long
@pytest.mark.parametrize("write", [largest_xlsx, largest_ods])
def test_the_largest_table_that_is_allowed_is_read(write: Callable[[], bytes]) -> None:
    answer, peak, cpu_s = run_reader(write())
    print(f"{write.__name__}: peak {peak // 1024**2} MiB, {cpu_s:.2f} s")
    assert isinstance(answer, Converted)
    assert answer.data.count(b"\r\n") == 1 + ROWS_MAX
    assert peak < READER_BYTES_MAX


def mutate(data: bytes, noise: random.Random) -> bytes:
    """Change some bytes of an archive, or of a part of it that is then packed as it should be."""
    if noise.random() < 0.5:
        return _change(data, noise)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
    name = noise.choice(list(parts))
    content = parts[name]
    assert isinstance(content, bytes)
    return pack({**parts, name: _change(content, noise)})


def _change(data: bytes, noise: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(noise.randint(1, 8)):
        place = noise.randrange(len(changed))
        match noise.randrange(4):
            case 0:
                changed[place] = noise.randrange(256)
            case 1:
                del changed[place : place + noise.randint(1, 20)]
            case 2:
                changed[place:place] = changed[place : place + noise.randint(1, 40)]
            case 3:
                changed[place:place] = noise.choice(
                    [b"999999999", b"-1", b"<", b"</", b"&#0;", b"&amp;", b'"', b"\xff\xff\xff\xff", b"1e999"]
                )
        if not changed:
            return b"PK\x03\x04"
    return bytes(changed)


def seeds() -> list[bytes]:
    strings = "<si><t>Anna</t></si><si><r><t>B</t></r></si>"
    rows = (
        '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" s="1"><v>46329.5</v></c></row>'
        '<row r="2"><c r="A2"><v>263771200001</v></c><c r="B2" t="b"><v>1</v></c></row>'
    )
    return [
        pack(xlsx_parts({"A": rows, "B": ROWS}, strings=strings, formats=["d mmm yyyy h:mm"])),
        xlsx(rows, strings=strings, formats=["#,##0.00;[Red]-0"]),
        ods(ods_rows(*PEOPLE)),
    ]


@pytest.mark.parametrize("count", [60, pytest.param(20_000, marks=pytest.mark.long)])
def test_a_mutated_workbook_is_read_or_refused(count: int) -> None:
    for data in seeds():
        noise = random.Random(len(data))
        for _ in range(count):
            with suppress(CsvError):
                convert(mutate(data, noise), None)


@pytest.fixture(scope="module")
def service(server_url: str) -> Iterator[Service]:
    with run_behind_proxy(server_url) as service:
        yield service


def memory(service: Service) -> int:
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return _kilobytes(status, "VmRSS") * 1024


def post(person: Person, data: bytes) -> httpx.Response:
    return person.browser.post(
        PAGE, data={"message": "Dear {name}, hello."}, files={"file": ("people.xlsx", data)}
    )


def refusal(person: Person, data: bytes) -> httpx.Response:
    """Return the page that refuses a file; on a busy machine that is the page of its check."""
    answer = post(person, data)
    path = goes_to(answer)
    if path is None:
        assert answer.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        return answer
    until(lambda: "Not checked" in person.browser.get(path).text, "the check did not end")
    return person.browser.get(path)


@pytest.mark.long
def test_hostile_workbooks_delay_no_other_call_and_leave_no_memory_behind(service: Service) -> None:
    attacker = sign_up(service)
    other = service.open_account(rate=6000)
    post(attacker, hostile("bomb"))
    before = memory(service)
    slowest_s = 0.0
    for name, (_make, problem) in HOSTILE.items():
        assert problem in words(refusal(attacker, hostile(name)).text), name
        begun = time.monotonic()
        assert service.call(other, "GET", "/balance").status_code == httpx.codes.OK
        slowest_s = max(slowest_s, time.monotonic() - begun)
    grown = memory(service) - before
    print(f"web process: {before // 1024**2} MiB, {grown // 1024**2} MiB more; {slowest_s:.3f} s")
    assert grown < 48 * 1024**2
    assert slowest_s < 2


def readers(service: Service) -> list[int]:
    found = []
    for children in Path(f"/proc/{service.process.pid}/task").glob("*/children"):
        for pid in children.read_text().split():
            with suppress(OSError):
                if reader.__name__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    ("sign", "said"), [(signal.SIGKILL, "takes too long to read"), (signal.SIGSEGV, "cannot be read")]
)
def test_a_reader_that_dies_is_told_on_the_page(service: Service, sign: signal.Signals, said: str) -> None:
    person = sign_up(service)
    with ThreadPoolExecutor(1) as pool:
        posted = pool.submit(refusal, person, hostile("bomb of cells"))
        until(lambda: readers(service), "no process began to read")
        for pid in readers(service):
            os.kill(pid, sign)
        page = words(posted.result().text)
    assert f"{said}. Save the sheet as CSV and upload that." in page
    assert person.browser.get(PAGE).status_code == httpx.codes.OK


@pytest.mark.long
def test_mutated_workbooks_never_end_the_web_process(service: Service) -> None:
    person = sign_up(service)
    noise = random.Random(3)
    for data in seeds():
        for _ in range(15):
            answer = post(person, mutate(data, noise))
            assert answer.status_code in {httpx.codes.SEE_OTHER, httpx.codes.UNPROCESSABLE_ENTITY}
    assert person.browser.get(PAGE).status_code == httpx.codes.OK
