"""Commands for backups and restores."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click

from tumira.cli.output import actor, connected, fail, load_settings, plain_command, show, tell, wants_json
from tumira.core.errors import OperatorError
from tumira.core.settings import Settings
from tumira.operations.audit import runs
from tumira.operations.audit.checks import CHECKS
from tumira.operations.audit.runs import Finding
from tumira.operations.backup import base as base_backups
from tumira.operations.backup import make_backup
from tumira.operations.backup import restore as restore_backup
from tumira.operations.backup.files import Manifest
from tumira.operations.backup.programs import complaint, find_programs
from tumira.operations.backup.restore import Restored, RestoreOptions
from tumira.postgres.embedded import server as embedded
from tumira.postgres.pool import Database, check
from tumira.runtime import open_database, prepare

TERMINAL_EVERY_S: Final = 1.0
FILE_EVERY_S: Final = 30.0
JOBS_MAX: Final = 16
MEGABYTE: Final = 1_000_000

STREAM: Final = Path("-")

path_type: Final = click.Path(path_type=Path)


class _Progress:
    """Says how far it is, once a second to a person and periodically to a log."""

    def __init__(self, words: str, unit: int = 1) -> None:
        self._words = words
        self._unit = unit
        self._every_s = TERMINAL_EVERY_S if sys.stderr.isatty() else FILE_EVERY_S
        self._began = self._told_at = time.monotonic()

    def __call__(self, amount: int = 0) -> None:
        """Hear how far it is."""
        now = time.monotonic()
        if now - self._told_at >= self._every_s:
            self._told_at = now
            tell(self._words.format(amount=amount // self._unit, seconds=int(now - self._began)))


@click.command()
@click.argument("file", type=path_type, required=False)
@click.option(
    "--base", type=path_type, metavar="DIRECTORY", help="Copy PostgreSQL itself, for a point in time."
)
@click.option("--wal", type=path_type, metavar="DIRECTORY", help="Keep its log there, until stopped.")
@plain_command
def backup(*, file: Path | None, base: Path | None, wal: Path | None) -> None:
    """Write the whole database to FILE while everything runs, or to standard output (-).

    The file holds numbers, texts and the passwords of carriers: keep it where nobody else can read it.
    """
    if sum(one is not None for one in (file, base, wal)) != 1:
        raise click.UsageError("Name a FILE, or --base, or --wal: one of them.")
    _heed_signals()
    settings = load_settings()
    if file == STREAM and sys.stdout.isatty():
        raise click.UsageError(
            "Nobody can read a backup at a terminal: name a file, or send it through a pipe."
        )
    with open_database(settings, tell) as url:
        if base is not None:
            asyncio.run(_copy_base(settings, url, base.absolute()))
        elif wal is not None:
            _keep_log(settings, url, wal.absolute())
        else:
            assert file is not None
            asyncio.run(_back_up(settings, url, file if file == STREAM else file.absolute()))


def _heed_signals() -> None:
    """Undo what is half done on Ctrl-C, also where a shell had us ignore it, and on SIGTERM."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


async def _back_up(settings: Settings, url: str, file: Path) -> None:
    await check(url)
    programs = find_programs(settings.data_dir, url, tell)
    writing = _Progress("Writing the backup: {amount} MB in {seconds} s …", MEGABYTE)
    async with connected(url) as database:
        if file != STREAM:
            reading = _Progress("Reading it again: {amount} MB …", MEGABYTE)
            made = await make_backup.to_file(
                database, programs, file, actor=actor(), writing=writing, reading=reading
            )
            show(made.shown(), title="Backed up, and read again.")
            return
        output = sys.stdout.buffer
        made = await make_backup.to_stream(database, programs, output, actor=actor(), writing=writing)
    # Standard output is the backup's.
    if wants_json():
        started_at = made.manifest.started_at.isoformat(timespec="milliseconds")
        tell(json.dumps({**made.shown(), "started_at": started_at}))


async def _copy_base(settings: Settings, url: str, target: Path) -> None:
    await check(url)
    programs = find_programs(settings.data_dir, url, tell)
    started_at = datetime.now(UTC)
    copying = _Progress("Copying PostgreSQL, {seconds} s so far …")
    size = await base_backups.copy_to(programs, target, copying)
    shown = {"directory": str(target), "bytes": size, "started_at": started_at}
    show(shown, title="Copied, and every file compared with its checksum.")


def _keep_log(settings: Settings, url: str, target: Path) -> None:
    programs = find_programs(settings.data_dir, url, tell)
    target.mkdir(mode=0o700, exist_ok=True)
    tell(f"Keeping the log in {target}. Press Ctrl-C to stop.")
    with suppress(KeyboardInterrupt):
        done = asyncio.run(base_backups.keep_log(programs, target, lambda: None))
        raise OperatorError(f"The log is not kept any more: {complaint(done)}")


@click.command()
@click.argument("file", type=path_type, required=False)
@click.option("--replace", metavar="NAME", help="Delete first what this database or data directory holds.")
@click.option("--base", type=path_type, metavar="DIRECTORY", help="From a base backup, for a point in time.")
@click.option("--wal", type=path_type, metavar="DIRECTORY", help="The log that was kept since then.")
@click.option("--until", metavar="TIME", help="The point in time, such as 2026-11-16T09:30:00+02:00.")
@click.option("--in-place", is_flag=True, help="The database is restored already: do only what follows.")
@click.option(
    "--nothing-since", is_flag=True, help="Nothing was sent since the backup: let everything go on."
)
@click.option("--jobs", type=click.IntRange(1, JOBS_MAX), help="Processes that restore at once.")
@plain_command
def restore(
    *,
    file: Path | None,
    replace: str | None,
    base: Path | None,
    wal: Path | None,
    until: str | None,
    in_place: bool,
    nothing_since: bool,
    jobs: int | None,
) -> None:
    """Bring everything back from FILE, into an empty database, then migrate and audit it.

    What waited when the backup was made may have been sent since. It is not sent again, and ends as
    unconfirmed, unless you say --nothing-since.
    """
    _heed_signals()
    if sum((file is not None, base is not None, in_place)) != 1:
        raise click.UsageError("Name a FILE, or --base, or --in-place: one of them.")
    if base is None and (wal is not None or until is not None):
        raise click.UsageError("--wal and --until belong to --base.")
    if until is not None and wal is None:
        raise click.UsageError("--until needs the log that was kept: name it with --wal.")
    settings = load_settings()
    moment = None if until is None else _read_moment(until)
    options = RestoreOptions(
        actor(),
        nothing_since=nothing_since,
        replace=replace,
        name=_name(settings),
        jobs=jobs or min(JOBS_MAX, os.cpu_count() or 1),
    )
    if base is not None:
        found, findings = _restore_base(settings, base.absolute(), wal, moment, options)
        source = str(base.absolute())
    else:
        _refuse_running(settings)
        source = _name(settings) if file is None else str(file.absolute())
        with open_database(settings, tell) as url:
            found, findings = asyncio.run(_restore(settings, url, file and file.absolute(), options))
    _show_restored(source, found, findings, nothing_since=nothing_since)


def _read_moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time such as 2026-11-16T09:30:00+02:00.") from None
    if moment.tzinfo is None:
        raise click.BadParameter(f"{text!r} does not say which zone: write {text}+02:00, or {text}Z for UTC.")
    return moment


def _name(settings: Settings) -> str:
    """Return how the operator calls what is restored into, to delete it by that name."""
    if settings.database_url is None:
        return str(settings.data_dir.absolute())
    return urlsplit(settings.database_url).path.removeprefix("/") or "the database"


def _refuse_running(settings: Settings) -> None:
    if settings.database_url is None and embedded.attach(settings.data_dir) is not None:
        raise OperatorError(
            f"Tumira runs on {settings.data_dir}: stop it first, or set TUMIRA_DATA_DIR to another directory."
        )


async def _restore(
    settings: Settings,
    url: str,
    file: Path | None,
    options: RestoreOptions,
    moment: datetime | None = None,
) -> tuple[Restored, list[Finding]]:
    await check(url)
    async with connected(url) as database:
        if file is None:
            found = await restore_backup.in_place(database, options, moment)
        else:
            found = await _fill(settings, database, file, options)
        return found, await _finish(database)


async def _fill(settings: Settings, database: Database, path: Path, options: RestoreOptions) -> Restored:
    programs = find_programs(settings.data_dir, database.url, tell)
    reading = _Progress("Reading the backup: {amount} MB …", MEGABYTE)
    filling = _Progress("Restoring, {seconds} s so far …")
    found = await restore_backup.look(path, programs, reading)
    return await restore_backup.from_file(
        database, programs, path, found, options, begin=_announce, watch=filling
    )


def _announce(manifest: Manifest) -> None:
    tell(
        f"Restoring {manifest.messages} messages of {manifest.accounts} accounts as they were at "
        f"{manifest.started_at:%Y-%m-%d %H:%M:%S} UTC (Tumira {manifest.tumira}, "
        f"PostgreSQL {manifest.postgresql}) …"
    )


def _restore_base(
    settings: Settings, base: Path, wal: Path | None, until: datetime | None, options: RestoreOptions
) -> tuple[Restored, list[Finding]]:
    if settings.database_url is not None:
        raise OperatorError(
            "A base backup is restored by whoever runs the PostgreSQL of TUMIRA_DATABASE_URL; then run "
            "`tumira restore --in-place`. Unset TUMIRA_DATABASE_URL to restore Tumira's own PostgreSQL."
        )
    base_backups.verify(base)
    with base_backups.brought_back(settings.data_dir, base, wal, until, tell) as url:
        return asyncio.run(_restore(settings, url, None, options, until))


async def _finish(database: Database) -> list[Finding]:
    """Bring the database to today's schema, end what is in doubt, and prove that all adds up."""
    await prepare(database.url, tell)
    holding = _Progress("{amount} messages that waited are held …")
    await restore_backup.end_parked(database, holding)
    auditing = _Progress("Auditing, {seconds} s so far …")
    started_at = datetime.now(UTC)
    findings = []
    async with runs.snapshot(database) as connection:
        for one in CHECKS:
            findings.append(await runs.run_check(connection, one))
            auditing()
    await runs.record(database, actor().name, started_at, findings)
    return findings


def _show_restored(source: str, found: Restored, findings: list[Finding], *, nothing_since: bool) -> None:
    broken = [finding.check.name for finding in findings if finding.rows]
    shown: Mapping[str, Any] = {
        "restored": source,
        "as_of": found.moment,
        "messages_held": found.held,
        "files_stopped": found.uploads,
        "top_ups_to_look_at": found.top_ups,
        "audit": "broken" if broken else "ok",
        "broken": broken,
    }
    show(shown, title="Restored.")
    if not wants_json():
        _advise(found, nothing_since=nothing_since)
    if broken:
        fail(f"{len(broken)} of {len(findings)} promises are broken: `tumira audit` shows where.")


def _advise(found: Restored, *, nothing_since: bool) -> None:
    if nothing_since:
        click.echo("Everything goes on as it stood: start `tumira serve`.")
        return
    if found.held:
        click.echo(
            "The messages held are unconfirmed: they may have been sent since, and are not sent again."
        )
    click.echo("Everybody has to sign in again. Run `tumira reconcile` to find payments that came in since,")
    click.echo(
        "and repeat what was revoked or erased since: keys, endpoints, numbers. Then start `tumira serve`."
    )
