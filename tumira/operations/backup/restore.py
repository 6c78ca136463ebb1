"""How does a database get back to an earlier moment, without sending again what was sent since?

look at the file → close the database to others → empty it → fill it → in one transaction: put in doubt what
waited, and say that it is whole → migrate it → end what is in doubt → audit
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.core.ids import MessageId
from tumira.delivery.outcomes import Ended, Outcome
from tumira.delivery.settle import settle
from tumira.delivery.store import settlement
from tumira.operations.backup import dump as backups
from tumira.operations.backup import restored
from tumira.operations.backup.files import Backup, Manifest, Progress, inspect
from tumira.operations.backup.make_backup import check_version
from tumira.operations.backup.programs import Finished, Programs, failed, run
from tumira.postgres import migrate
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database

GROUP_MAX: Final = 500
UPLOAD_PROBLEM: Final = (
    "The service was restored from a backup while this file was being sent. Some of the messages that are "
    "shown as not sent may have been sent: check before you send the rest."
)
# pg_restore sets it, and servers before 17 do not know it. Nothing else may go wrong.
_UNKNOWN_SETTING: Final = 'unrecognized configuration parameter "transaction_timeout"'
_KNOWS_SETTING: Final = 17
_WITHOUT_OWNER: Final = ("--no-owner", "--no-privileges", "--no-password")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator wants besides: `nothing_since` when nobody has sent anything since the backup."""

    actor: Actor
    nothing_since: bool = False
    # The name of what may be deleted, as the operator typed it, and as it is called.
    replace: str | None = None
    name: str = ""
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of what was under way."""

    moment: datetime
    held: int
    uploads: int
    top_ups: int


async def look(path: Path, programs: Programs, reading: Progress) -> Backup:
    """Refuse a file that cannot be restored, before anything is touched."""
    backup = await asyncio.to_thread(inspect, path, reading)
    _check_schema(backup.manifest, path)
    done = await run(programs, "pg_restore", "--list", str(path), watch=_watch_nothing)
    if not done.ok:
        raise failed(done, f"{path} cannot be restored by this Tumira", path)
    return backup


def _check_schema(manifest: Manifest, path: Path) -> None:
    known = {one.number: one.checksum for one in migrate.known()}
    for step in manifest.steps:
        if known.get(step.number) != step.checksum:
            raise OperatorError(
                f"{path} was made by Tumira {manifest.tumira} with a step in its schema ({step.name}) that "
                "this Tumira does not know: restore it with that version, or a newer one."
            )


async def from_file(
    database: Database,
    programs: Programs,
    path: Path,
    backup: Backup,
    wish: Wish,
    *,
    begin: Callable[[Manifest], None],
    watch: Callable[[], None],
) -> Restored:
    """Fill the database from a backup that was looked at; until the last moment it is of no use to a node."""
    manifest = backup.manifest
    async with backups.patient_connection(database) as connection:
        await backups.close_to_others(connection)
        version = await backups.server_version(connection)
        check_version(version)
        await _check_empty(connection, manifest, wish)
        begin(manifest)
        await backups.clear(connection)
        done = await run(
            programs, "pg_restore", *_arguments(programs, manifest, version, wish, path), watch=watch
        )
        if not _succeeded(done, version):
            raise failed(done, "The restore failed, and the database is not usable until one succeeds", path)
        await backups.analyse(connection)
        if await backups.count(connection) != (manifest.accounts, manifest.messages):
            raise OperatorError(f"The restored database does not hold what {path} says: use another backup.")
        async with connection.transaction():
            await backups.open_history(connection, manifest.steps)
            found = await _calm(connection, manifest.started_at, wish)
    return found


async def in_place(database: Database, wish: Wish, moment: datetime | None = None) -> Restored:
    """Do what follows a restore in a database that was brought back by other means."""
    async with backups.patient_connection(database) as connection:
        await backups.close_to_others(connection)
        await backups.check_whole(connection)
        moment = moment or await backups.last_moment(connection)
        async with connection.transaction():
            return await _calm(connection, moment, wish)


def _arguments(programs: Programs, manifest: Manifest, version: int, wish: Wish, path: Path) -> Sequence[str]:
    at_once = ["--exit-on-error"] if version >= _KNOWS_SETTING else []
    # The schema's own objects, not the schema itself, which every database has.
    where = [f"--dbname={programs.database}", f"--schema={manifest.database_schema}", f"--jobs={wish.jobs}"]
    return [*_WITHOUT_OWNER, *at_once, *where, str(path)]


def _succeeded(done: Finished, version: int) -> bool:
    if done.ok or version >= _KNOWS_SETTING:
        return done.ok
    errors = [line for line in done.said if "error:" in line]
    return done.code == 1 and bool(errors) and all(_UNKNOWN_SETTING in line for line in errors)


async def _check_empty(connection: Connection, manifest: Manifest, wish: Wish) -> None:
    if (schema := await backups.schema_name(connection)) != manifest.database_schema:
        raise OperatorError(
            f"The backup's tables are in the schema {manifest.database_schema}, and this database makes its "
            f"own in {schema}: set search_path={manifest.database_schema} for it."
        )
    holdings = await backups.read_holdings(connection)
    if holdings.nothing or wish.replace == wish.name:
        return
    asked = "" if wish.replace is None else f" (not {wish.replace})"
    raise OperatorError(
        f"{wish.name} holds {holdings.accounts} accounts and {holdings.messages} messages: restore into an "
        f"empty database, or say `--replace {wish.name}`{asked} to have all of that deleted first."
    )


async def _calm(connection: Connection, moment: datetime, wish: Wish) -> Restored:
    """Keep from going on what may have gone on elsewhere."""
    await restored.forget_processes(connection)
    if wish.nothing_since:
        await audit_log.record_by_operator(
            connection, wish.actor, "backup restored", f"of {moment:%Y-%m-%d %H:%M:%S} UTC"
        )
        return Restored(moment, 0, 0, 0)
    detail = f"restored as it was at {moment:%Y-%m-%d %H:%M:%S} UTC; it may have been handed over since"
    await restored.park_waiting(connection, detail)
    await restored.sign_everybody_out(connection)
    await restored.skip_places(connection)
    found = Restored(
        moment,
        await restored.count_parked(connection),
        await restored.stop_uploads(connection, UPLOAD_PROBLEM),
        await restored.mark_top_ups_asked(connection),
    )
    said = f"of {moment:%Y-%m-%d %H:%M:%S} UTC; {found.held} messages held, {found.uploads} files stopped"
    await audit_log.record_by_operator(connection, wish.actor, "backup restored", said)
    return found


async def end_parked(database: Database, progress: Progress) -> int:
    """End what was put in doubt as `unconfirmed`, in groups, and return how many; it can be repeated."""
    ended = 0
    while True:
        async with database.transaction() as connection:
            ids = await restored.list_parked(connection, GROUP_MAX)
            if not ids:
                return ended
            held = await settlement.lock_messages(connection, ids)
            await restored.unpark(connection, ids)
            outcomes: list[Outcome] = [
                Ended(MessageId(one), "sending", "unconfirmed", None, incident="hold") for one in ids
            ]
            await settle(connection, outcomes, locked=held, worker="")
        ended += len(ids)
        progress(ended)


def _watch_nothing() -> None:
    return
