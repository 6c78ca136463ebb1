"""Runs all checks at the same time, each within a limit."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from tumira.core.errors import OperatorError
from tumira.core.settings import Settings
from tumira.mail.smtp import Mailer, MailError
from tumira.operations.doctor import database as database_checks
from tumira.operations.doctor.carriers import check_carriers, list_carriers
from tumira.operations.doctor.clock import check_synchronised
from tumira.operations.doctor.diagnosis import Diagnosis, ok, problem, warning
from tumira.operations.doctor.files import check_data_directory, check_secrets
from tumira.operations.doctor.machine import (
    check_disk,
    check_memory,
    check_shared_memory,
    judge_limits,
    judge_user,
    read_limits,
)
from tumira.operations.doctor.ports import check_port, find_holder
from tumira.operations.doctor.public_url import check_public_url
from tumira.operations.doctor.threads import in_thread
from tumira.postgres.connection import Connection
from tumira.postgres.embedded import server as embedded
from tumira.postgres.pool import Database, check

CHECK_S: Final = 12.0
ATTACH_S: Final = 5.0
SIMULATOR_HOST: Final = "127.0.0.1"

Diagnoses = Sequence[Diagnosis]


async def examine(settings: Settings) -> Diagnoses:
    """Check this machine; nothing is changed, started, bound or sent."""
    found = await asyncio.gather(
        _bounded("machine", in_thread(lambda: _check_machine(settings))),
        _bounded("ports", in_thread(lambda: _check_ports(settings))),
        _bounded("permissions", in_thread(lambda: _check_files(settings))),
        _check_with_database(settings),
        _bounded("mail", _check_mail(settings)),
    )
    return [one for each in found for one in each]


def _check_machine(settings: Settings) -> Diagnoses:
    is_embedded = settings.database_url is None
    holder = find_holder(settings.port)
    limits = read_limits(holder.pid if holder is not None and holder.is_tumira else None)
    return [
        *([check_disk(settings.data_dir, "the data directory")] if is_embedded else []),
        check_memory(with_postgres=is_embedded),
        *judge_limits(limits),
        *([check_shared_memory()] if is_embedded else []),
        judge_user(limits),
        check_synchronised(),
    ]


def _check_ports(settings: Settings) -> Diagnoses:
    found = [check_port(settings.host, settings.port, "TUMIRA_PORT")]
    if settings.simulator_port is not None:
        found.append(check_port(SIMULATOR_HOST, settings.simulator_port, "TUMIRA_SIMULATOR_PORT"))
    if settings.worker_metrics_port is not None:
        found.append(check_port(settings.host, settings.worker_metrics_port, "TUMIRA_WORKER_METRICS_PORT"))
    return found


def _check_files(settings: Settings) -> Diagnoses:
    is_embedded = settings.database_url is None
    return [check_data_directory(settings.data_dir, is_embedded=is_embedded), *check_secrets()]


async def _check_with_database(settings: Settings) -> Diagnoses:
    """Reach the database first; without it, say what could not be checked."""
    try:
        async with asyncio.timeout(CHECK_S):
            url = settings.database_url or await in_thread(lambda: _find_embedded(settings))
            if url is not None:
                await check(url)
    except (OperatorError, OSError) as error:
        reason = str(error) or "There was no answer in time."
        unreached = problem(
            "database", reason, "Carriers, migrations and backups were not checked without it."
        )
        return [unreached, *await _bounded("public URL", check_public_url(settings, None))]
    if url is None:
        words = "Tumira does not run here, so the database, carriers and backups were not checked."
        stopped = warning("database", words, "Run `tumira doctor` again while `tumira serve` runs.")
        return [stopped, *await _bounded("public URL", check_public_url(settings, None))]
    database = Database(url, connections_max=4)
    # The embedded server has the disk of the data directory, which is looked at without it.
    look_at_server = partial(database_checks.check_server, with_disk=settings.database_url is not None)
    try:
        found = await asyncio.gather(
            _bounded("database", _on(database, look_at_server)),
            _bounded("migrations", _on(database, database_checks.check_schema)),
            _bounded("clock", _on(database, database_checks.check_clock)),
            _bounded("carriers", _check_carriers(settings, database)),
            _bounded("backup", _on(database, database_checks.check_backup)),
            _bounded("public URL", check_public_url(settings, database)),
        )
    finally:
        await database.close()
    return [one for each in found for one in each]


async def _on(database: Database, look: Callable[[Connection], Awaitable[Diagnoses]]) -> Diagnoses:
    async with database.connection() as connection:
        return await look(connection)


async def _check_carriers(settings: Settings, database: Database) -> Diagnoses:
    async with database.connection() as connection:
        active = await list_carriers(connection)
    return await check_carriers(active, settings.carrier_proxy)


async def _check_mail(settings: Settings) -> Diagnoses:
    if settings.smtp is None:
        return [ok("mail", "TUMIRA_SMTP_URL is not set, so no mails are sent.")]
    where = f"The mail server {settings.smtp.host}:{settings.smtp.port}"
    try:
        await Mailer(settings.smtp).check(CHECK_S / 2)
    except MailError as error:
        advice = "Check TUMIRA_SMTP_URL, and that the server takes mails from this machine."
        return [problem("mail", f"{where}: {error}", advice)]
    login = "" if settings.smtp.user is None else " and takes our login"
    return [ok("mail", f"{where} answers{login}. Nothing was sent.")]


def _find_embedded(settings: Settings) -> str | None:
    """Return the address of the embedded server, or None where none runs; wait only shortly for a start."""
    until = time.monotonic() + ATTACH_S

    def heed() -> None:
        if time.monotonic() > until:
            raise OperatorError("PostgreSQL is starting or stopping: try again in a minute.")

    return embedded.attach(settings.data_dir, heed)


async def _bounded(subject: str, work: Awaitable[Diagnoses]) -> Diagnoses:
    """Wait for a check as long as it may take; a failure of one hides none of the others."""
    try:
        async with asyncio.timeout(CHECK_S):
            return await work
    except TimeoutError:
        words = f"The check took longer than {CHECK_S:.0f} s."
        return [problem(subject, words, "Check the disk, the database and the network of this machine.")]
    except Exception as error:  # noqa: BLE001 - whatever it is, the other checks shall be shown
        words = f"The check failed ({type(error).__name__}: {' '.join(str(error).split())})."
        return [problem(subject, words, "If the reason is not clear, report this line.")]
