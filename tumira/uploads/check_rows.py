"""The check of every row of a file: in a thread if it is quick, else in its own process.

The process is this module, run by `uploads/check_file`. It gets the file and all that the check depends on
through its standard input, and answers with frames: how far it is, then what was found, in pieces that are
small enough to be read and stored without holding anybody up. It has no database, no secrets, a bounded share
of the machine, and may be killed at any moment.
"""

import os
import resource
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct, structs

from tumira.content.check import check_text, is_near_line
from tumira.content.classifier import classify
from tumira.content.passcodes import is_passcode
from tumira.content.templates import Policy, TemplateVerdict
from tumira.content.verdict import Label
from tumira.core.errors import RecipientCode, Refusal
from tumira.core.ids import AccountId, ScheduleId, UploadId
from tumira.pricing.destinations import Destination, Price, Tariff
from tumira.replies.opt_outs import OptedOut
from tumira.sending.fairness import SMALL_MAX
from tumira.uploads.chunks import CHUNK_MAX, Chunk
from tumira.uploads.csv_file import CsvError, CsvFile, read_csv
from tumira.uploads.places import MessageError
from tumira.uploads.rows import Checked, Good, RowFault, check
from tumira.uploads.store import NewUpload

# The largest file with the dearest texts takes about half of it.
CPU_S_MAX: Final = 120
MEMORY_MAX: Final = 2 * 1024**3
# Behind all that answers calls or hands messages over.
NICENESS: Final = 10

PROGRESS_S: Final = 0.25
FAULTS_BYTES_MAX: Final = 256 * 1024
HEADER: Final = struct.Struct(">I")
_NUL: Final = "\x00"


class Wanted(Struct, frozen=True):
    """An uploaded file, and the message to send."""

    file_name: str
    data: bytes
    message: str
    country: str | None
    reference: str | None
    # Of a workbook: the sheet that was chosen, and how many of its rows are hidden, once it was read.
    sheet: str | None = None
    hidden_rows: int = 0
    # When it shall be sent, if that was chosen before, and the scheduled send that it changes.
    start_at: datetime | None = None
    replaces: ScheduleId | None = None


class Task(Struct, frozen=True):
    """A file with its message, and everything that the verdict on a row depends on."""

    upload_id: UploadId
    account_id: AccountId
    wanted: Wanted
    tariff_version: int
    destinations: Sequence[Destination]
    prices: Sequence[Price]
    policy_version: int
    templates: Sequence[tuple[AccountId | None, TemplateVerdict, str]]
    opted_out: OptedOut


class Progress(Struct, frozen=True, tag=True):
    """How many rows the file has, and how many of them were checked."""

    rows: int
    done: int


class BadFile(Struct, frozen=True, tag=True):
    """The file cannot be read."""

    problem: str


class BadMessage(Struct, frozen=True, tag=True):
    """The message does not fit the file."""

    problem: str


class Head(Struct, frozen=True, tag=True):
    """The totals; the rows follow."""

    upload: NewUpload


class GoodRows(Struct, frozen=True, tag=True):
    """A chunk of the rows that can be sent."""

    chunk: Chunk


class BadRows(Struct, frozen=True, tag=True):
    """Some of the rows that cannot be sent."""

    faults: Sequence[RowFault]


class End(Struct, frozen=True, tag=True):
    """Nothing follows."""


Finding = BadFile | BadMessage | Head | GoodRows | BadRows | End
Frame = Progress | Finding

write_task: Final = msgspec.msgpack.Encoder().encode
read_frame: Final[Callable[[bytes], Frame]] = msgspec.msgpack.Decoder(Frame).decode


def check_rows(task: Task, progress: Callable[[int, int], None]) -> Iterator[Finding]:
    """Check every row, report the counts to `progress`, then yield the findings."""
    wanted = task.wanted
    screening = _Screening(Policy(task.policy_version, task.templates), task.account_id)
    tariff = Tariff(task.tariff_version, task.destinations, task.prices)
    barred, barred_codes = (
        task.opted_out.bar(task.account_id, is_passcode=is_code) for is_code in (False, True)
    )
    try:
        file = read_csv(wanted.data)
        rows = len(file.rows)

        def bar(number: str, text: str) -> RecipientCode | None:
            return (barred_codes if rows <= SMALL_MAX and is_passcode(text) else barred).get(number)

        checked = check(
            tariff, file, wanted.message, wanted.country, screening, lambda done: progress(rows, done), bar
        )
    except CsvError as error:
        yield BadFile(str(error))
    except MessageError as error:
        yield BadMessage(str(error))
    else:
        yield from _findings(task, file, checked, screening)


class _Screening:
    """Checks texts, and remembers which of them only a template allows, and which are near the line."""

    def __init__(self, policy: Policy, account_id: AccountId) -> None:
        self._policy = policy
        self._account_id = account_id
        self.by_template: set[str] = set()
        self.near_line: set[str] = set()

    def __call__(self, text: str) -> Refusal | None:
        verdict = classify(text)
        refusal = check_text(self._policy, self._account_id, text, verdict)
        if refusal is None and verdict.label is Label.PROMOTIONAL:
            self.by_template.add(text)
        if refusal is None and is_near_line(self._policy, self._account_id, text, verdict):
            self.near_line.add(text)
        return refusal


def _findings(task: Task, file: CsvFile, checked: Checked, screening: _Screening) -> Iterator[Finding]:
    # One text for all stands once, also where its places were filled with the same in every row.
    is_one_text = checked.texts == 1
    yield Head(
        NewUpload(
            id=task.upload_id,
            account_id=task.account_id,
            file_name=task.wanted.file_name,
            columns=[_storable(name) for name in file.columns],
            message=checked.good[0].text if is_one_text and checked.good else task.wanted.message,
            reference=task.wanted.reference,
            rows=len(file.rows),
            recipients=len(checked.good),
            total_cost=sum((one.cost for one in checked.good), Decimal(0)),
            policy_version=task.policy_version,
            hidden_rows=min(task.wanted.hidden_rows, len(file.rows)),
            start_at=task.wanted.start_at,
            replaces=task.wanted.replaces,
        )
    )
    for number, start in enumerate(range(0, len(checked.good), CHUNK_MAX)):
        good = checked.good[start : start + CHUNK_MAX]
        yield GoodRows(_chunk(number, good, screening, own_texts=not is_one_text))
    yield from _faults(checked)
    yield End()


def _chunk(number: int, good: Sequence[Good], screening: _Screening, *, own_texts: bool) -> Chunk:
    legs = Counter((one.country, one.segments) for one in good)
    return Chunk(
        number=number,
        lines=[one.line for one in good],
        recipients=[one.number for one in good],
        bodies=[one.text for one in good] if own_texts else None,
        cost=sum((one.cost for one in good), Decimal(0)),
        by_template=[one.line for one in good if one.text in screening.by_template],
        near_line=[one.line for one in good if one.text in screening.near_line],
        leg_countries=[country for country, _ in legs],
        leg_segments=[segments for _, segments in legs],
        leg_counts=list(legs.values()),
    )


def _faults(checked: Checked) -> Iterator[BadRows]:
    faults: list[RowFault] = []
    size = 0
    for bad in checked.bad:
        cells = [_storable(cell) for cell in bad.cells]
        faults.append(structs.replace(bad, cells=cells, reason=_storable(bad.reason)))
        size += sum(map(len, cells)) + len(bad.reason)
        if size > FAULTS_BYTES_MAX or len(faults) == CHUNK_MAX:
            yield BadRows(faults)
            faults, size = [], 0
    if faults:
        yield BadRows(faults)


def _storable(text: str) -> str:
    return text.replace(_NUL, "")


def check_briefly(task: Task, cpu_s: float) -> tuple[Sequence[Finding] | None, float]:
    """Check a file in this thread; return None if that takes longer, and the unused processor time."""
    end = time.thread_time() + cpu_s

    def look_at_clock(_rows: int, _done: int) -> None:
        if time.thread_time() > end:
            raise TimeoutError

    try:
        findings = list(check_rows(task, look_at_clock))
    except TimeoutError:
        return None, 0.0
    return findings, end - time.thread_time()


def _main(given: BinaryIO, answer: BinaryIO) -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S_MAX, CPU_S_MAX))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    task = msgspec.msgpack.decode(given.read(), type=Task)
    encode = msgspec.msgpack.Encoder().encode
    due = time.monotonic()

    def write(frame: Frame) -> None:
        # Whoever started us and died has closed the other end, and that ends us too.
        packed = encode(frame)
        answer.write(HEADER.pack(len(packed)))
        answer.write(packed)
        answer.flush()

    def progress(rows: int, done: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            write(Progress(rows, done))
            due = time.monotonic() + PROGRESS_S

    for finding in check_rows(task, progress):
        write(finding)


if __name__ == "__main__":
    _main(sys.stdin.buffer, sys.stdout.buffer)
