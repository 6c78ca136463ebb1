"""Backup files: their format, and the check that one is complete and undamaged.

    an archive as pg_dump writes it, which pg_restore alone can read
    the manifest, as JSON
    the end: a line with the manifest's length and the SHA-256 of all before it

The end is written last, so that a file without it was cut off.
"""

import errno
import fcntl
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Struct

from tumira.core.errors import OperatorError
from tumira.operations.backup.programs import disk_full
from tumira.postgres.embedded.files import sync_directory

Progress = Callable[[int], None]

FORMAT: Final = 1
CHUNK_BYTES: Final = 1024 * 1024
MANIFEST_BYTES_MAX: Final = 1024 * 1024
PARTIAL: Final = ".partial"

_END: Final = re.compile(rb"\nTUMIRA BACKUP ([0-9]{10}) ([0-9a-f]{64})\n")
_END_BYTES: Final = len("\nTUMIRA BACKUP ") + 10 + 1 + 64 + 1
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
# File systems without hard links say so in one of these ways.
_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EXDEV)


class AppliedMigration(Struct, frozen=True):
    """An applied migration."""

    number: int
    name: str
    checksum: bytes
    applied_at: datetime


class Manifest(Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    tumira: str
    started_at: datetime
    postgresql: str
    database_schema: str
    accounts: int
    messages: int
    archive_bytes: int
    steps: Sequence[AppliedMigration]

    @property
    def schema(self) -> str:
        """The name of the last migration."""
        return max(self.steps, key=lambda step: step.number).name


@dataclass(frozen=True, slots=True)
class Backup:
    """A file that was read and checked from its first to its last byte."""

    manifest: Manifest
    size: int
    sha256: str


def end_of(manifest: Manifest, digest: "hashlib._Hash") -> bytes:
    """Return what follows the archive; the digest has seen the archive, and gets the manifest now."""
    written = msgspec.json.encode(manifest)
    assert len(written) <= MANIFEST_BYTES_MAX
    digest.update(written)
    return written + b"\nTUMIRA BACKUP %010d %s\n" % (len(written), digest.hexdigest().encode())


def partial_of(target: Path) -> Path:
    return target.with_name(target.name + PARTIAL)


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Yield a private file, and give it its name when all went well: never an existing one.

    A killed process leaves a file whose name ends in `.partial`; the next backup of that name overwrites it.
    """
    partial = partial_of(target)
    try:
        if os.path.lexists(target):
            raise _exists(target)
        with _open_partial(partial) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                _give_name(partial, target)
            except BaseException:
                with suppress(OSError):
                    partial.unlink()
                raise
    except OSError as error:
        if error.errno in _FULL:
            raise disk_full(target.parent) from error
        raise OperatorError(f"{target} cannot be written: {error.strerror or error}.") from error


def _exists(target: Path) -> OperatorError:
    return OperatorError(
        f"{target} exists, and a backup overwrites nothing: choose another name, or move it away."
    )


@contextmanager
def _open_partial(partial: Path) -> Iterator[BinaryIO]:
    handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    with os.fdopen(handle, "r+b") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise OperatorError(f"{partial} is not a file of ours: move it away, then try again.")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OperatorError(
                f"Another backup is writing {partial}: wait for it, or choose another name."
            ) from None
        os.fchmod(handle, 0o600)
        os.ftruncate(handle, 0)
        yield file


def _give_name(partial: Path, target: Path) -> None:
    try:
        # Unlike a rename it fails when somebody else took the name meanwhile.
        target.hardlink_to(partial)
        partial.unlink()
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        partial.rename(target)
    sync_directory(target.parent)


def digest_of(file: BinaryIO, size: int, progress: Progress) -> "hashlib._Hash":
    """Read the first bytes of a file, from the disk and not from memory."""
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    digest = sha256()
    file.seek(0)
    left = size
    while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
        digest.update(chunk)
        left -= len(chunk)
        progress(size - left)
    return digest


def inspect(path: Path, progress: Progress) -> Backup:
    """Read a whole backup, and refuse a file that is none, is cut off or was changed."""
    try:
        with path.open("rb") as file:
            return _inspect(file, path, progress)
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {error.strerror or error}.") from error


def _inspect(file: BinaryIO, path: Path, progress: Progress) -> Backup:
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode):
        raise OperatorError(f"{path} is not a file: name the backup's file.")
    size = found.st_size
    file.seek(max(0, size - _END_BYTES))
    end = _END.fullmatch(file.read(_END_BYTES))
    if end is None:
        raise OperatorError(
            f"{path} is not a whole backup of Tumira: it was cut off, or is a file of another kind. "
            "Use another one."
        )
    covered = size - _END_BYTES
    digest = digest_of(file, covered, progress).hexdigest()
    if digest != end[2].decode():
        raise OperatorError(
            f"{path} is damaged, its checksum is not that of its content: use another backup."
        )
    length = int(end[1])
    file.seek(covered - length)
    return Backup(_read_manifest(file.read(length), path), size, digest)


def _read_manifest(written: bytes, path: Path) -> Manifest:
    try:
        return msgspec.json.decode(written, type=Manifest)
    except (msgspec.DecodeError, ValueError) as error:
        raise OperatorError(
            f"{path} was made by a Tumira whose backups this one cannot read ({error}): use a newer one."
        ) from error
