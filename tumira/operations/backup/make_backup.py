"""Backup of the database to one file, while everything runs."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

import asyncpg

from tumira import VERSION, audit_log
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.operations.backup import files as backup_files
from tumira.operations.backup.dump import PATIENT, Moment, read_moment
from tumira.operations.backup.files import (
    CHUNK_BYTES,
    Manifest,
    Progress,
    end_of,
    inspect,
    new_file,
    partial_of,
)
from tumira.operations.backup.programs import ProgramResult, Programs, failed, finish, run, start
from tumira.postgres.embedded.server import MAJOR_VERSION
from tumira.postgres.pool import Database

Say = Progress

# Rows alone: who owns them is for the database into which they are restored. Which migrations were taken
# stands in the manifest, and is written last by a restore. The slower compressions gain little.
DUMP: Final = (
    "--format=custom",
    "--compress=gzip:1",
    "--no-owner",
    "--no-privileges",
    "--no-publications",
    "--no-subscriptions",
    "--no-statistics",
    "--exclude-table-data=schema_migrations",
    "--no-password",
)


@dataclass(frozen=True, slots=True)
class Made:
    """A backup that was written and verified."""

    file: str
    bytes: int
    manifest: Manifest
    sha256: str

    def shown(self) -> Mapping[str, Any]:
        return {
            "file": self.file,
            "bytes": self.bytes,
            "started_at": self.manifest.started_at,
            "messages": self.manifest.messages,
            "accounts": self.manifest.accounts,
            "schema": self.manifest.schema,
            "postgresql": self.manifest.postgresql,
            "sha256": self.sha256,
        }


async def to_file(
    database: Database, programs: Programs, target: Path, *, actor: Actor, writing: Say, reading: Say
) -> Made:
    """Write a backup to a new file and verify it; the file gets its name only when it is complete."""
    with new_file(target) as file:
        async with _moment(database) as moment:
            # It opens the file itself, and notes in it where each table begins: a restore by several
            # processes at once needs that.
            done = await run(
                programs,
                "pg_dump",
                *_arguments(moment),
                f"--file={partial_of(target)}",
                watch=lambda: writing(_size(file)),
            )
        _check(done, target)
        size = _size(file)
        digest = await asyncio.to_thread(backup_files.digest_of, file, size, reading)
        file.seek(size)
        manifest = _manifest(moment, size)
        file.write(end_of(manifest, digest))
        file.flush()
        await _prove(programs, target, reading)
        made = Made(str(target), _size(file), manifest, digest.hexdigest())
    await _note(database, actor, made)
    return made


async def to_stream(
    database: Database, programs: Programs, output: BinaryIO, *, actor: Actor, writing: Say
) -> Made:
    """Write a backup to standard output."""
    digest = sha256()
    size = 0
    async with _moment(database) as moment:
        process = await start(programs, "pg_dump", *_arguments(moment), output=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        hearing = asyncio.create_task(finish(process, "pg_dump", lambda: writing(size)))
        try:
            while chunk := await process.stdout.read(CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                await asyncio.to_thread(output.write, chunk)
            _check(await hearing, Path("standard output"))
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
    manifest = _manifest(moment, size)
    end = end_of(manifest, digest)
    output.write(end)
    output.flush()
    made = Made("-", size + len(end), manifest, digest.hexdigest())
    await _note(database, actor, made)
    return made


@asynccontextmanager
async def _moment(database: Database) -> AsyncIterator[Moment]:
    """Hold one snapshot of the database open, for the counts and for the dump."""
    async with (
        database.own_connection(PATIENT) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        moment = await read_moment(connection)
        check_version(moment.version)
        yield moment


def check_version(found: int) -> None:
    """Refuse a server that is newer than our programs; their own message helps less."""
    if found > int(MAJOR_VERSION):
        raise OperatorError(
            f"The database is PostgreSQL {found}, and Tumira brings the programs of {MAJOR_VERSION}, which "
            f"cannot read it: use pg_dump {found} until a newer Tumira brings its own."
        )


def _arguments(moment: Moment) -> list[str]:
    quoted = moment.database_schema.replace('"', '""')
    return [*DUMP, f"--snapshot={moment.snapshot}", f'--schema="{quoted}"']


def _check(done: ProgramResult, target: Path) -> None:
    if not done.ok:
        raise failed(done, "The backup failed", target.parent)


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


async def _prove(programs: Programs, target: Path, reading: Say) -> None:
    """Read what was written, from its first byte to its last, as a restore will."""
    partial = partial_of(target)
    await asyncio.to_thread(inspect, partial, reading)
    done = await run(programs, "pg_restore", "--file=/dev/null", str(partial), watch=lambda: None)
    if not done.ok:
        raise failed(done, "The backup was written but cannot be read again", target.parent)


def _manifest(moment: Moment, size: int) -> Manifest:
    return Manifest(
        tumira=VERSION,
        started_at=moment.at,
        postgresql=moment.postgresql,
        database_schema=moment.database_schema,
        accounts=moment.accounts,
        messages=moment.messages,
        archive_bytes=size,
        steps=moment.steps,
    )


async def _note(database: Database, actor: Actor, made: Made) -> None:
    """Record the backup in the operators' audit log, unless the database is read-only."""
    try:
        async with database.transaction() as connection:
            await audit_log.record_by_operator(
                connection, actor, "backup made", f"{made.file}, {made.bytes} bytes"
            )
    except (asyncpg.ReadOnlySQLTransactionError, asyncpg.UndefinedTableError):
        # A standby, or a schema from before there was a trail.
        return
