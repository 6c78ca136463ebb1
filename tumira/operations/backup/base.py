"""Base backups: a copy of the whole PostgreSQL, its log of changes, and point-in-time restore from both.

A base backup is a copy of PostgreSQL's own files; the log (WAL) holds every change since. The copy and the
log up to a moment are the database as it was then. The copy is restored in a directory of its own,
`restoring`, and renamed when it is complete.
"""

import asyncio
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tumira.core.errors import OperatorError
from tumira.operations.backup.programs import ProgramResult, Programs, failed, run
from tumira.postgres.embedded import server as embedded
from tumira.postgres.embedded.files import (
    Place,
    ServerUser,
    Tell,
    make_root,
    place_at,
    private_directory,
    said_plainly,
    server_user,
    sync_directory,
)

RESTORING: Final = "restoring"
PARTIAL: Final = ".partial"
MANIFEST: Final = "backup_manifest"
SETTINGS: Final = "postgresql.auto.conf"
KEPT_LOG: Final = "kept-wal"

_TOO_SHORT: Final = "recovery ended before configured recovery target was reached"
_COPY: Final = (
    "--format=plain",
    "--wal-method=stream",
    "--checkpoint=fast",
    "--no-password",
    "--manifest-checksums=SHA256",
)


async def copy_to(programs: Programs, target: Path, watch: Callable[[], None]) -> int:
    """Copy the whole PostgreSQL to a new directory while it runs, and return the number of bytes."""
    with _new_directory(target) as partial:
        done = await run(programs, "pg_basebackup", *_COPY, f"--pgdata={partial}", watch=watch)
        if not done.ok:
            raise failed(done, "The base backup failed", target.parent)
        await asyncio.to_thread(verify, partial)
    return _size(target)


@contextmanager
def _new_directory(target: Path) -> Iterator[Path]:
    """Yield the name of a directory that does not exist, and rename it when all went well."""
    if os.path.lexists(target):
        raise OperatorError(
            f"{target} exists, and a backup overwrites nothing: choose another name, or move it away."
        )
    partial = target.with_name(target.name + PARTIAL)
    # What a copy left that was killed; it never had the name of a whole one.
    shutil.rmtree(partial, ignore_errors=True)
    try:
        yield partial
        partial.rename(target)
        sync_directory(target.parent)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def verify(base: Path) -> None:
    """Compare every file of a base backup with its checksum.

    Not by PostgreSQL's pg_verifybackup: the wheel's breaks down over a manifest of this size.
    """
    try:
        written = (base / MANIFEST).read_bytes()
        listed = json.loads(written)
        for file in listed["Files"]:
            _compare(base, file)
        covered = written[: written.rindex(b'"Manifest-Checksum"')]
        if sha256(covered).hexdigest() != listed["Manifest-Checksum"]:
            raise _damaged(base, MANIFEST)
    except FileNotFoundError as error:
        raise _damaged(base, str(error.filename)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(base, MANIFEST) from error


def _compare(base: Path, file: Mapping[str, Any]) -> None:
    path = base / (file["Path"] if "Path" in file else os.fsdecode(bytes.fromhex(file["Encoded-Path"])))
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if path.stat().st_size != file["Size"] or found != file["Checksum"]:
        raise _damaged(base, str(path))


def _damaged(base: Path, what: str) -> OperatorError:
    return OperatorError(f"{base} is no base backup, or is damaged, at {what}: use another one.")


async def keep_log(programs: Programs, target: Path, watch: Callable[[], None]) -> ProgramResult:
    """Write the log of changes to a directory, as it comes, until we are stopped or the server goes."""
    arguments = [f"--directory={target}", "--no-loop", "--synchronous", "--no-password"]
    return await run(programs, "pg_receivewal", *arguments, watch=watch)


@contextmanager
def brought_back(
    data_dir: Path, base: Path, log: Path | None, until: datetime | None, tell: Tell
) -> Iterator[str]:
    """Yield the URL of the restored database; it takes its place in the data directory when all went well."""
    place = place_at(data_dir)
    inner = place_at(place.root / RESTORING)
    with said_plainly(place):
        user = server_user()
        _check_free(place)
        make_root(place, user)
        shutil.rmtree(inner.root, ignore_errors=True)
        before = _lay_out(inner, user, base, log, until, tell)
    try:
        with embedded.start(inner.root, tell) as url:
            yield url
        with said_plainly(place):
            (inner.cluster / SETTINGS).write_bytes(before)
            for name in ("backup_label.old", MANIFEST):
                (inner.cluster / name).unlink(missing_ok=True)
            os.sync()
            inner.cluster.rename(place.cluster)
            sync_directory(place.root)
    except OperatorError as error:
        if _TOO_SHORT not in str(error):
            raise
        raise OperatorError(
            f"The log ends before {until}: choose an earlier --until, or leave it out for the last moment "
            "that the log knows."
        ) from error
    finally:
        shutil.rmtree(inner.root, ignore_errors=True)


def _check_free(place: Place) -> None:
    if embedded.attach(place.root) is not None:
        raise OperatorError(
            f"Tumira runs on {place.root}: stop it first, or set TUMIRA_DATA_DIR to another directory."
        )
    if place.cluster.exists():
        raise OperatorError(
            f"{place.cluster} holds a database: move it away, so that it can be looked at later, or set "
            "TUMIRA_DATA_DIR to another directory."
        )


def _lay_out(
    inner: Place, user: ServerUser, base: Path, log: Path | None, until: datetime | None, tell: Tell
) -> bytes:
    """Copy the files to where the server can read them, and return the settings as they were."""
    tell(f"Copying {base} …")
    make_root(inner, user)
    private_directory(inner.root, user)
    shutil.copytree(base, inner.cluster, symlinks=True)
    # Nobody is let in before it is where it shall be: a server that takes readers before calls itself ready.
    lines = ["hot_standby = off", "recovery_target_action = 'promote'"]
    if log is not None:
        _copy_log(log, inner.root / KEPT_LOG)
        kept = shlex.quote(str(inner.root / KEPT_LOG)).replace("%", "%%").replace("'", "''")
        # Asked for what is not there too, such as the end of the log; that is no fault to complain of.
        lines.append(f"restore_command = 'test -f {kept}/%f && cp {kept}/%f %p'")
    else:
        lines.append("restore_command = 'false'")
    if until is not None:
        lines.append(f"recovery_target_time = '{until.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00'")
    settings = inner.cluster / SETTINGS
    before = settings.read_bytes()
    settings.write_bytes(before + "".join(f"{line}\n" for line in lines).encode())
    (inner.cluster / "recovery.signal").touch(mode=0o600)
    inner.cluster.chmod(0o700)
    if user.switched:
        for path in (inner.cluster, *inner.root.rglob("*")):
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
    return before


def _copy_log(log: Path, target: Path) -> None:
    """Copy the log; its last segment, which was still being written, under its final name."""
    target.mkdir(mode=0o700)
    pieces = {path.name: path for path in log.iterdir() if path.is_file()}
    for name, path in pieces.items():
        whole = name.removesuffix(PARTIAL)
        if whole == name or whole not in pieces:
            with suppress(FileNotFoundError):
                shutil.copyfile(path, target / whole)
