"""The database: durability, connections, migrations, nodes, and the age of the last backup."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from tumira.carriers import store as carriers
from tumira.core.errors import OperatorError
from tumira.operations.doctor import store
from tumira.operations.doctor.clock import check_against_database
from tumira.operations.doctor.diagnosis import Diagnosis, ok, problem, warning, write_size
from tumira.operations.doctor.machine import check_disk
from tumira.operations.doctor.store import BackupAge, ServerFacts
from tumira.operations.doctor.threads import in_thread
from tumira.postgres import migrate, nodes, partitions
from tumira.postgres.connection import Connection

# By docs/scaling.md.
WEB_CONNECTIONS: Final = 14
WORKER_CONNECTIONS: Final = 16
WEBHOOK_CONNECTIONS: Final = 11
CARRIER_CONNECTIONS: Final = 2
CONNECTIONS_FULL: Final = 0.9
NODE_LATE: Final = timedelta(seconds=90)
NODES_MAX: Final = 200
# By docs/backup.md: a backup each night, which may take its time.
BACKUP_MAX: Final = timedelta(hours=26)


async def check_server(connection: Connection, *, with_disk: bool) -> Sequence[Diagnosis]:
    """Check what the server promises, and its disk if it is a disk of this machine."""
    facts = await store.get_server(connection)
    size = f"PostgreSQL {facts.version} answers; the database has {write_size(facts.bytes)}."
    found = [ok("database", size), *judge_durability(facts)]
    if with_disk and facts.data_directory is not None:
        found.append(await in_thread(partial(check_disk, Path(facts.data_directory), "the database")))
    found.append(judge_connections(facts, await _count_wanted(connection)))
    return found


def judge_durability(facts: ServerFacts) -> Sequence[Diagnosis]:
    found = []
    if not facts.fsync:
        words = "fsync is off: a power cut can destroy the database."
        found.append(problem("database", words, "Set fsync = on in postgresql.conf and restart PostgreSQL."))
    if not facts.full_page_writes:
        words = "full_page_writes is off: a power cut can destroy pages of the database."
        found.append(problem("database", words, "Set full_page_writes = on in postgresql.conf, then reload."))
    if facts.synchronous_commit == "off":
        words = "synchronous_commit is off: a crash loses what was answered as accepted."
        found.append(problem("database", words, "Set synchronous_commit = on for the server and the user."))
    elif facts.synchronous_commit == "local" and facts.has_standby_names:
        words = "synchronous_commit is local: commits do not wait for the synchronous standby."
        found.append(warning("database", words, "Set synchronous_commit = on; see high-availability.md."))
    return found or [ok("database", "Commits are on disk before they are answered.")]


async def _count_wanted(connection: Connection) -> int:
    """Return how many connections the processes that run now may use."""
    webs = await nodes.list_role(connection, "web", NODE_LATE, NODES_MAX)
    webhooks = await nodes.list_role(connection, "webhooks", NODE_LATE, NODES_MAX)
    workers = await nodes.list_workers(connection, NODE_LATE, NODES_MAX)
    active = await carriers.list_active(connection)
    each = WORKER_CONNECTIONS + CARRIER_CONNECTIONS * len(active)
    return (
        WEB_CONNECTIONS * sum(not one.is_late for one in webs)
        + WEBHOOK_CONNECTIONS * sum(not one.is_late for one in webhooks)
        + each * sum(not one.is_late for one in workers)
        + sum(one.settings.binds for one in active)
    )


def judge_connections(facts: ServerFacts, wanted: int) -> Diagnosis:
    words = f"{facts.connections} of {facts.connections_max} connections are in use"
    advice = "Raise max_connections in postgresql.conf, or run fewer processes; see scaling.md."
    if facts.connections >= CONNECTIONS_FULL * facts.connections_max:
        return problem("database", f"{words}.", advice)
    if wanted > facts.connections_max:
        return warning("database", f"{words}, and the nodes that run may need {wanted}.", advice)
    return ok("database", f"{words}; the nodes that run need {wanted} at most.")


async def check_schema(connection: Connection) -> Sequence[Diagnosis]:
    try:
        if not await migrate.is_current(connection):
            advice = "Run `tumira migrate`, or start a node: it does the same."
            return [problem("migrations", "Migrations are missing.", advice)]
        waiting = await migrate.list_waiting(connection)
    except OperatorError as error:
        return [problem("migrations", str(error), "Start the right version of Tumira.")]
    found = [await _check_weeks(connection)]
    if waiting:
        advice = "Run `tumira migrate --finish` once no older node runs; see upgrades.md."
        found.append(warning("migrations", f"{len(waiting)} migrations wait: {', '.join(waiting)}.", advice))
    return found


async def _check_weeks(connection: Connection) -> Diagnosis:
    weeks = await partitions.weeks_left(connection)
    if weeks < partitions.WEEKS_AHEAD_MIN:
        words = f"All migrations are applied, but the tables are ready for {weeks} weeks only."
        return problem("migrations", words, "Start a worker: it makes the tables of the next weeks.")
    return ok("migrations", f"All migrations are applied; tables are ready for {weeks} weeks.")


async def check_clock(connection: Connection) -> Sequence[Diagnosis]:
    return [await check_against_database(connection)]


async def check_backup(connection: Connection) -> Sequence[Diagnosis]:
    return [judge_backup(await store.get_backup_age(connection))]


def judge_backup(age: BackupAge) -> Diagnosis:
    advice = (
        "Run `tumira backup` every night, as tumira-backup.timer does. "
        "Ignore this if you keep base backups or copies made by other programs."
    )
    if age.backup is not None and age.backup <= BACKUP_MAX:
        return ok("backup", f"The last backup is {_write(age.backup)} old.")
    if age.backup is not None:
        return warning("backup", f"The last backup is {_write(age.backup)} old.", advice)
    if age.database <= BACKUP_MAX:
        return ok("backup", "There is no backup yet; the database is not a day old.")
    return warning("backup", "There is no record of any backup.", advice)


def _write(age: timedelta) -> str:
    hours = int(age.total_seconds() // 3600)
    return f"{age.days} days" if age.days > 1 else f"{hours} hours" if hours > 1 else "less than two hours"
