"""How is a node started?"""

import asyncio
import contextlib
import signal
import socket

import click
import uvloop

from tumira import VERSION, parts
from tumira.cli.output import json_option, load_settings, plainly, show, tell
from tumira.cli.tools import own_command
from tumira.config import Settings
from tumira.engine.worker import run_worker
from tumira.runtime import configure_logging, open_database, prepare
from tumira.store import migrate as migrations
from tumira.store.database import Database
from tumira.web import listen, run_web


@click.command()
@json_option
@plainly
def serve(*, as_json: bool) -> None:
    """Run everything on this machine: PostgreSQL, web and worker."""
    settings = load_settings()
    configure_logging(settings.log_level)
    with listen(settings):
        pass  # A taken port is said before anything is started.
    parts.serve(settings, tell, lambda: _welcome(settings, as_json=as_json))


def _welcome(settings: Settings, *, as_json: bool) -> None:
    url = settings.public_url
    if as_json:
        show({"status": "ready", "version": VERSION, "url": url, "api": f"{url}/api/v1"}, as_json=True)
        return
    where = "from TUMIRA_DATABASE_URL" if settings.database_url else f"embedded, in {settings.data_dir}"
    click.echo(f"""
Tumira {VERSION} is ready.

  API        {url}/api/v1
  Reference  {url}/docs
  Database   {where}
""")
    if settings.database_url is None:
        click.echo(f"Run `{own_command()} demo` in another terminal: it prints a first message to send.")
    click.echo("No carrier can be connected in this version: messages are accepted and wait as `queued`.")
    click.echo("Press Ctrl-C to stop.")


@click.command()
@json_option
@plainly
def web(*, as_json: bool) -> None:
    """Run the web faces alone: the API and its reference."""
    settings = load_settings()
    configure_logging(settings.log_level)
    listening = listen(settings)
    with open_database(settings, tell) as url:
        if as_json:
            show({"status": "starting", "url": settings.public_url}, as_json=True)
        uvloop.run(_web(settings, url, listening))


async def _web(settings: Settings, url: str, listening: socket.socket) -> None:
    await prepare(url, tell)
    await run_web(settings, url, listening)


@click.command()
@json_option
@plainly
def worker(*, as_json: bool) -> None:
    """Run the worker alone: it keeps the tables in order."""
    settings = load_settings()
    configure_logging(settings.log_level)
    with open_database(settings, tell) as url:
        if as_json:
            show({"status": "starting"}, as_json=True)
        uvloop.run(_worker(url))


async def _worker(url: str) -> None:
    await prepare(url, tell)
    database = Database(url)
    work = asyncio.create_task(run_worker(database))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await work
    await database.close()


@click.command()
@json_option
@plainly
def migrate(*, as_json: bool) -> None:
    """Bring the database to this version's schema."""
    settings = load_settings()
    with open_database(settings, tell) as url:
        applied = asyncio.run(_migrate(url))
    if as_json:
        show({"applied": applied}, as_json=True)
    else:
        click.echo("\n".join(f"Applied {name}." for name in applied) or "Nothing to do.")


async def _migrate(url: str) -> list[str]:
    database = Database(url, connections_max=1)
    try:
        return list(await migrations.migrate(database))
    finally:
        await database.close()
