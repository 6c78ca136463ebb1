"""Takes back what a power cut would have lost: writes without a flush, by the records of `machine.c`."""

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

_HEAD: Final = struct.Struct("4q")
SECTOR: Final = 512


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    old: bytes
    new: bytes
    old_size: int


def take_back(directory: Path, undo: Path, chance: random.Random) -> int:
    """Undo the writes below a directory that were not flushed, and return how many are lost.

    A disk keeps some of them, in any order and some in part: here each by chance, by whole sectors.
    """
    files = {path.stat().st_ino: path for path in directory.rglob("*") if path.is_file()}
    lost = 0
    for record in sorted(undo.iterdir()):
        path = files.get(int(record.name))
        writes = list(read_record(record.read_bytes()))
        if path is not None and writes:
            with path.open("r+b") as file:
                lost += _take_back(file, writes, chance)
        record.unlink()
    return lost


def read_record(data: bytes) -> Iterator[Write]:
    """Read the writes of a file since its last flush; the last may be cut off, and was not made then."""
    place = 0
    while place + _HEAD.size <= len(data):
        offset, length, old_length, old_size = _HEAD.unpack_from(data, place)
        middle = place + _HEAD.size + old_length
        end = middle + length
        if end > len(data):
            return
        yield Write(offset, data[place + _HEAD.size : middle], data[middle:end], old_size)
        place = end


def _take_back(file: BinaryIO, writes: Sequence[Write], chance: random.Random) -> int:
    for write in reversed(writes):
        file.seek(write.offset)
        file.write(write.old)
        if write.offset + len(write.new) > write.old_size:
            file.truncate(write.old_size)
    lost = 0
    for write in writes:
        kept = chance.choice([0, len(write.new), chance.randrange(0, len(write.new) + 1, SECTOR)])
        lost += kept < len(write.new)
        if kept:
            file.seek(write.offset)
            file.write(write.new[:kept])
    return lost
