"""Files of the texts that reached a handset, so that another process can read them.

JSON lines under `DATA_DIR/simulator`, appended in groups; a new file every few megabytes, the oldest removed.
What was appended survives a crash. A line that was cut short is skipped.
"""

import asyncio
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
import structlog

from tumira.core.errors import OperatorError

FILE_BYTES_MAX: Final = 4 * 1024 * 1024
FILES_MAX: Final = 8
LATEST_MAX: Final = 1000
GROUP_S: Final = 0.05
# Lines that wait to be written; at the most a busy core can bring in some seconds.
WAITING_MAX: Final = 200_000

_NAME: Final = re.compile(r"texts-([0-9]{9})\.jsonl")
# Both ends of a line as we write it. Inside a text the quotes are escaped, so neither can occur there.
_BEGIN: Final = b'{"to":"'
_END: Final = b'+00:00"}'

_log: Final = structlog.get_logger()


class ReceivedText(msgspec.Struct, frozen=True):
    to: str
    sender: str = msgspec.field(name="from")
    text: str
    at: str


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(ReceivedText).decode


def moment(now_s: float) -> str:
    """Format a time in UTC with milliseconds and `+00:00`."""
    return _moment(int(now_s * 1000))


@lru_cache(maxsize=16)
def _moment(now_ms: int) -> str:
    # Texts come in crowds: many arrive in the same millisecond.
    seconds, milliseconds = divmod(now_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}+00:00"


def directory_in(data_dir: Path) -> Path:
    return data_dir / "simulator"


def make_directory(directory: Path) -> None:
    """Create the directory for its user alone: texts hold passcodes."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)


def empty(directory: Path) -> None:
    """Delete all texts, also while a simulator adds to them."""
    numbers = _numbers(directory)
    for number in numbers[:-1]:
        (directory / f"texts-{number:09}.jsonl").unlink(missing_ok=True)
    for number in numbers[-1:]:
        # It may be open: truncated it is still the file that is appended to, deleted it would not be.
        with suppress(FileNotFoundError):
            os.truncate(directory / f"texts-{number:09}.jsonl", 0)


class HandsetFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # A bound for a disk that hangs; the oldest give way.
        self._waiting: deque[ReceivedText] = deque(maxlen=WAITING_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._failed = False
        self._number = self._size = 0
        self._torn = False
        try:
            make_directory(directory)
            self._open(max(_numbers(directory), default=1))
        except OSError as error:
            raise OperatorError(
                f"The simulator cannot keep its texts in {directory} ({error.strerror or error}): put that "
                "right, or set TUMIRA_DATA_DIR to a directory that it may write to."
            ) from error

    def add(self, text: ReceivedText) -> None:
        """Keep a text; it is in the file 50 ms later."""
        self._waiting.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(GROUP_S, self._write)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._write()
        os.close(self._file)

    def _write(self) -> None:
        self._timer = None
        lines = b"".join([_encode(text) + b"\n" for text in self._waiting])
        self._waiting.clear()
        try:
            if self._torn:
                lines = b"\n" + lines
            written = os.write(self._file, lines)
            self._torn = written < len(lines)
            self._size += written
            if self._size >= FILE_BYTES_MAX:
                self._begin_another()
            self._failed = self._torn
        except OSError as error:
            # The handsets are for looking at; a full disk must not hold up the messages.
            if not self._failed:
                _log.error("texts were not kept", problem=error.strerror)
            self._failed = self._torn = True

    def _open(self, number: int) -> None:
        self._number = number
        self._file = os.open(
            self._directory / f"texts-{number:09}.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600
        )
        self._size = os.fstat(self._file).st_size
        # The last writer may have been killed in the middle of a line.
        self._torn = self._size > 0 and os.pread(self._file, 1, self._size - 1) != b"\n"

    def _begin_another(self) -> None:
        full = self._file
        self._open(self._number + 1)
        os.close(full)
        for number in _numbers(self._directory):
            if number <= self._number - FILES_MAX:
                (self._directory / f"texts-{number:09}.jsonl").unlink(missing_ok=True)


def read_of(directory: Path, number: str) -> bytes:
    wanted = _BEGIN + _encode(number)[1:]
    return _array([line for content in _contents(directory) for line in _lines_with(content, wanted)])


def read_latest(directory: Path) -> bytes:
    return _array(_latest(directory))


def list_latest(directory: Path) -> Sequence[ReceivedText]:
    return [_decode(line) for line in reversed(_latest(directory))]


def state(directory: Path) -> str:
    """Return a tag that changes with every new text."""
    numbers = _numbers(directory)
    if not numbers:
        return "0-0"
    try:
        return f"{numbers[-1]}-{(directory / f'texts-{numbers[-1]:09}.jsonl').stat().st_size}"
    except FileNotFoundError:
        return f"{numbers[-1]}-0"


def _latest(directory: Path) -> Sequence[bytes]:
    found: list[bytes] = []
    for content in _contents(directory, newest_first=True):
        # One more than is missing, for the rest before the first line that was cut off here.
        lines = content.rsplit(b"\n", LATEST_MAX - len(found) + 1)
        whole = [line for line in lines if _is_whole(line)]
        found = whole[-(LATEST_MAX - len(found)) :] + found
        if len(found) >= LATEST_MAX:
            break
    return found


def _lines_with(content: bytes, beginning: bytes) -> Iterator[bytes]:
    """Yield the lines with this beginning; searching is far cheaper than splitting into lines."""
    at = content.find(beginning)
    while at >= 0:
        end = content.find(b"\n", at)
        line = content[at : end if end >= 0 else len(content)]
        if _is_whole(line):
            yield line
        at = content.find(beginning, at + len(line))


def _is_whole(line: bytes) -> bool:
    return line.startswith(_BEGIN) and line.endswith(_END)


def _array(lines: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(lines) + b"]"


def _contents(directory: Path, *, newest_first: bool = False) -> Iterator[bytes]:
    numbers = _numbers(directory)
    for number in reversed(numbers) if newest_first else numbers:
        try:
            yield (directory / f"texts-{number:09}.jsonl").read_bytes()
        except FileNotFoundError:
            # The oldest may be removed while we read.
            continue


def _numbers(directory: Path) -> Sequence[int]:
    try:
        names = [entry.name for entry in directory.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))
