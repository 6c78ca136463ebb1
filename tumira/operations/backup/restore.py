"""Restore of a backup: checks of the file and the database, the load, and corrections afterwards."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from tumira import audit_log
from tumira.accounts.store import SYSTEM
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.core.ids import MessageId
from tumira.delivery.outcomes import Ended, Outcome
from tumira.delivery.settle import settle
from tumira.delivery.store import settlement
from tumira.operations.backup import dump as backups
from tumira.operations.backup.dump import LONG_S
from tumira.operations.backup.files import Backup, Manifest, Progress, inspect
from tumira.operations.backup.make_backup import check_version
from tumira.operations.backup.programs import ProgramResult, Programs, failed, run
from tumira.postgres import migrate
from tumira.postgres.connection import Connection
from tumira.postgres.pool import Database
from tumira.postgres.statement import Statement

PLACES_LEFT_FREE: Final = 1000

# They stand in `retries`, where no worker ever finds them due. Those under way name their carrier; for the
# others it is the one that would have been asked first, so that a receipt that is still to come can be
# matched by its number.
SQL_PARK: Final = Statement("""
WITH waiting AS MATERIALIZED (
    SELECT message_id, NULL::integer AS carrier_id FROM queue
     UNION ALL
    SELECT message_id, carrier_id FROM in_flight
     UNION ALL
    SELECT message_id, carrier_id FROM retries WHERE due_at < 'infinity'
), parked AS (
    UPDATE messages
       SET status = 'sending'
      FROM waiting
     WHERE messages.id = waiting.message_id
       AND messages.status IN ('queued', 'sending')
 RETURNING messages.id, messages.batch_id, messages.recipient,
           coalesce(waiting.carrier_id,
                    (SELECT carriers.id FROM carriers
                      WHERE removed_at IS NULL
                        AND (countries IS NULL OR messages.country = ANY(countries))
                      ORDER BY priority, carriers.id
                      LIMIT 1)) AS carrier_id
), emptied_queue AS (
    DELETE FROM queue
), emptied_flight AS (
    DELETE FROM in_flight
), started AS (
    UPDATE batches
       SET status = 'processing'
     WHERE id IN (SELECT batch_id FROM parked)
       AND status = 'queued'
), noted AS (
    INSERT INTO incidents (message_id, kind, carrier_id, recipient, detail)
    SELECT id, 'doubt', carrier_id, ltrim(recipient, '+'), %(detail)s
      FROM parked
)
INSERT INTO retries (message_id, due_at, in_doubt, carrier_id)
SELECT id, 'infinity', true, carrier_id
  FROM parked
    ON CONFLICT (message_id) DO UPDATE
   SET due_at = excluded.due_at, in_doubt = true, carrier_id = excluded.carrier_id
""")


SQL_LIST_PARKED: Final = Statement("""
SELECT message_id
  FROM retries
 WHERE due_at = 'infinity'
 ORDER BY message_id
 LIMIT %(count_max)s
""")


SQL_COUNT_PARKED: Final = Statement("SELECT count(*) FROM retries WHERE due_at = 'infinity'")


SQL_UNPARK: Final = Statement("DELETE FROM retries WHERE message_id = ANY(%(ids)s::uuid[])")


# Workers are found dead by the next one that starts, and what they had claimed with them.
SQL_FORGET_PROCESSES: Final = Statement("""
WITH forgotten_binds AS (
    DELETE FROM binds
), forgotten_nodes AS (
    DELETE FROM nodes
), freed AS (
    UPDATE webhook_endpoints SET worker = NULL, leased_until = NULL WHERE worker IS NOT NULL
)
UPDATE workers SET seen_at = timestamptz 'epoch'
""")


# A session that was ended since would be valid again.
SQL_SIGN_OUT: Final = Statement("""
WITH of_customers AS (
    DELETE FROM sessions
), half_way AS (
    DELETE FROM half_sessions
), of_operators AS (
    DELETE FROM operator_sessions
), known_browsers AS (
    DELETE FROM devices
)
DELETE FROM verifications
""")


# Their rest may have been sent since.
SQL_STOP_UPLOADS: Final = Statement("""
UPDATE uploads SET state = 'stopped', problem = %(problem)s WHERE state = 'sending' RETURNING 1
""")


# A provider that bears the mark is asked what became of the top-up, and never for the money again.
SQL_MARK_ASKED: Final = Statement("""
UPDATE top_ups
   SET asked_at = clock_timestamp()
 WHERE asked_at IS NULL
   AND state = 'started'
   AND method <> 'usdt'
RETURNING 1
""")


# Addresses are derived one after the other. Those that were given away since the backup must not be given to
# somebody else, so a row of our own account, whose address is nobody's, stands some places further on.
SQL_SKIP_PLACES: Final = Statement("""
INSERT INTO usdt_addresses (address, account_id, key_sha256, place)
SELECT '0x' || left(encode(sha256(key_sha256 || convert_to('skipped', 'UTF8')), 'hex'), 40), %(account_id)s,
       key_sha256, max(place) + %(places)s
  FROM usdt_addresses
 GROUP BY key_sha256
    ON CONFLICT (account_id, key_sha256) DO UPDATE SET place = excluded.place
""")


# A provider takes a number that it has seen for a repetition, and sends nothing. A backup of an older version
# has no such numbers.
SQL_SKIP_NUMBERS: Final = Statement("""
SELECT setval(oid::regclass, (coalesce(pg_sequence_last_value(oid), 0) + %(numbers)s) % 2147483647 + 1)
  FROM pg_class
 WHERE relkind = 'S'
   AND relname = 'submission_sequence'
   AND relnamespace = current_schema()::regnamespace
""")
NUMBERS_LEFT_FREE: Final = 100_000_000


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
class RestoreOptions:
    """The operator's choices: `nothing_since` when nothing was sent since the backup."""

    actor: Actor
    nothing_since: bool = False
    # The name of what may be deleted, as the operator typed it, and as it is called.
    replace: str | None = None
    name: str = ""
    jobs: int = 1


@dataclass(frozen=True, slots=True)
class Restored:
    """What happened to messages and payments under way."""

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
    options: RestoreOptions,
    *,
    begin: Callable[[Manifest], None],
    watch: Callable[[], None],
) -> Restored:
    """Fill the database from a checked backup; until the end no node can use it."""
    manifest = backup.manifest
    async with database.own_connection(backups.PATIENT) as connection:
        await backups.close_to_others(connection)
        version = await backups.SQL_VERSION.value(connection)
        check_version(version)
        await _check_empty(connection, manifest, options)
        begin(manifest)
        await backups.clear(connection)
        done = await run(
            programs, "pg_restore", *_arguments(programs, manifest, version, options, path), watch=watch
        )
        if not _succeeded(done, version):
            raise failed(done, "The restore failed, and the database is not usable until one succeeds", path)
        await connection.execute("ANALYZE", timeout=LONG_S)
        if await backups.count(connection) != (manifest.accounts, manifest.messages):
            raise OperatorError(f"The restored database does not hold what {path} says: use another backup.")
        async with connection.transaction():
            await backups.open_history(connection, manifest.steps)
            found = await _calm(connection, manifest.started_at, options)
    return found


async def in_place(database: Database, options: RestoreOptions, moment: datetime | None = None) -> Restored:
    """Do the corrections of a restore in a database that was restored by other means."""
    async with database.own_connection(backups.PATIENT) as connection:
        await backups.close_to_others(connection)
        await backups.check_whole(connection)
        moment = moment or await backups.SQL_REPLAYED.value(connection)
        async with connection.transaction():
            return await _calm(connection, moment, options)


def _arguments(
    programs: Programs, manifest: Manifest, version: int, options: RestoreOptions, path: Path
) -> Sequence[str]:
    at_once = ["--exit-on-error"] if version >= _KNOWS_SETTING else []
    # The schema's own objects, not the schema itself, which every database has.
    where = [
        f"--dbname={programs.database}",
        f"--schema={manifest.database_schema}",
        f"--jobs={options.jobs}",
    ]
    return [*_WITHOUT_OWNER, *at_once, *where, str(path)]


def _succeeded(done: ProgramResult, version: int) -> bool:
    if done.ok or version >= _KNOWS_SETTING:
        return done.ok
    errors = [line for line in done.said if "error:" in line]
    return done.code == 1 and bool(errors) and all(_UNKNOWN_SETTING in line for line in errors)


async def _check_empty(connection: Connection, manifest: Manifest, options: RestoreOptions) -> None:
    schema = await backups.SQL_SCHEMA.value(connection)
    if schema is None:
        raise OperatorError(
            "The database has no schema for new tables: create one, or check its search_path."
        )
    if schema != manifest.database_schema:
        raise OperatorError(
            f"The backup's tables are in the schema {manifest.database_schema}, and this database makes its "
            f"own in {schema}: set search_path={manifest.database_schema} for it."
        )
    holdings = await backups.read_holdings(connection)
    if holdings.nothing or options.replace == options.name:
        return
    asked = "" if options.replace is None else f" (not {options.replace})"
    raise OperatorError(
        f"{options.name} holds {holdings.accounts} accounts and {holdings.messages} messages: restore into "
        f"an empty database, or say `--replace {options.name}`{asked} to have all of that deleted first."
    )


async def _calm(connection: Connection, moment: datetime, options: RestoreOptions) -> Restored:
    """Keep work from continuing that may have continued elsewhere."""
    await SQL_FORGET_PROCESSES.rows(connection)
    if options.nothing_since:
        await audit_log.record_by_operator(
            connection, options.actor, "backup restored", f"of {moment:%Y-%m-%d %H:%M:%S} UTC"
        )
        return Restored(moment, 0, 0, 0)
    detail = f"restored as it was at {moment:%Y-%m-%d %H:%M:%S} UTC; it may have been handed over since"
    await connection.execute(SQL_PARK.text, detail, timeout=LONG_S)
    await SQL_SIGN_OUT.rows(connection)
    await SQL_SKIP_PLACES.rows(connection, account_id=SYSTEM, places=PLACES_LEFT_FREE)
    await SQL_SKIP_NUMBERS.rows(connection, numbers=NUMBERS_LEFT_FREE)
    found = Restored(
        moment,
        held=await SQL_COUNT_PARKED.value(connection),
        uploads=len(await SQL_STOP_UPLOADS.rows(connection, problem=UPLOAD_PROBLEM)),
        top_ups=len(await SQL_MARK_ASKED.rows(connection)),
    )
    said = f"of {moment:%Y-%m-%d %H:%M:%S} UTC; {found.held} messages held, {found.uploads} files stopped"
    await audit_log.record_by_operator(connection, options.actor, "backup restored", said)
    return found


async def end_parked(database: Database, progress: Progress) -> int:
    """End the parked messages as `unconfirmed`, in groups, and return how many; it can be repeated."""
    ended = 0
    while True:
        async with database.transaction() as connection:
            rows = await SQL_LIST_PARKED.rows(connection, count_max=GROUP_MAX)
            ids = [row["message_id"] for row in rows]
            if not ids:
                return ended
            held = await settlement.lock_messages(connection, ids)
            await SQL_UNPARK.rows(connection, ids=ids)
            outcomes: list[Outcome] = [
                Ended(MessageId(one), "sending", "unconfirmed", None, incident="hold") for one in ids
            ]
            await settle(connection, outcomes, locked=held, worker="")
        ended += len(ids)
        progress(ended)


def _watch_nothing() -> None:
    return
