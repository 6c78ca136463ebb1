"""How is a node started?"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import click
import uvloop

from tumira import VERSION, parts
from tumira.cli.output import json_option, load_settings, plainly, show, tell
from tumira.cli.tools import own_command
from tumira.config import PORT_MAX, SIMULATOR_PORT, Settings
from tumira.engine.worker import run_worker
from tumira.errors import Trouble
from tumira.rules.deposit_addresses import read_xpub
from tumira.runtime import (
    collect_rarely,
    configure_logging,
    open_database,
    prepare,
)
from tumira.server import listen
from tumira.simulator import misbehaviours
from tumira.simulator.handsets import Keeper, directory_in
from tumira.simulator.misbehaviours import Misbehaviour, RateLimit
from tumira.simulator.pages import PAGE_PATH
from tumira.simulator.smsc import check_port, run_smsc
from tumira.stopping import Stopping
from tumira.store import embedded
from tumira.store import migrate as migrations
from tumira.store.database import KEY_LOOKUPS, Database
from tumira.web import run_web

quiet_option = click.option("--quiet", is_flag=True, help="Say nothing at the start.")


@contextmanager
def _until_stopped() -> Iterator[Stopping]:
    """End well on Ctrl-C and on SIGTERM, however early they come."""
    stopping = Stopping()
    collect_rarely()
    with suppress(KeyboardInterrupt):
        yield stopping


@click.command()
@json_option
@plainly
def serve(*, as_json: bool) -> None:
    """Run everything on this machine: PostgreSQL, web, worker and simulator."""
    settings = load_settings()
    _check_keys(settings)
    configure_logging(settings.log_level)
    _check_port(settings)
    _warn_of_private_webhooks(settings)
    with _until_stopped() as stopping:
        parts.serve(settings, stopping, tell, lambda: _welcome(settings, as_json=as_json))
    tell("Stopped.")


def _check_keys(settings: Settings) -> None:
    """Refuse a key from which no address can be derived, before a customer wants one."""
    if settings.payments.usdt is not None:
        read_xpub(settings.payments.usdt.xpub)


def _check_port(settings: Settings) -> None:
    """Say that the port is taken before anything is started, and by whom if it is our like."""
    try:
        listen(settings).close()
    except Trouble:
        if settings.database_url is None and embedded.attach(settings.data_dir) is not None:
            raise Trouble(
                f"Tumira already runs on {settings.data_dir}, at {settings.local_url}: stop that one first, "
                "or set TUMIRA_DATA_DIR, TUMIRA_PORT and TUMIRA_SIMULATOR_PORT."
            ) from None
        raise
    if settings.simulator_port is not None:
        check_port(settings.simulator_port)


def _welcome(settings: Settings, *, as_json: bool) -> None:
    url = settings.public_url
    simulator_url = None if settings.simulator_port is None else f"{url}{PAGE_PATH}"
    if as_json:
        ready = {"status": "ready", "version": VERSION, "url": url, "api": f"{url}/api/v1"}
        show(ready | {"simulator": simulator_url}, as_json=True)
        return
    where = "from TUMIRA_DATABASE_URL" if settings.database_url else f"embedded, in {settings.data_dir}"
    click.echo(f"""
Tumira {VERSION} is ready.

  Dashboard  {url}/dashboard
  API        {url}/api/v1
  Reference  {url}/docs
  Database   {where}""")
    if simulator_url is not None:
        click.echo(f"  Simulator  {simulator_url}")
    click.echo()
    if settings.database_url is None:
        click.echo(f"Run `{own_command()} demo` in another terminal: it prints a first message to send.")
    if simulator_url is not None:
        click.echo("The carrier `simulator` delivers to the handsets on its page, and to no real phone.")
    else:
        click.echo(f"Run `{own_command()} carrier add` to connect a carrier; `carrier list` shows them.")
    click.echo("Press Ctrl-C to stop.")


@click.command()
@quiet_option
@json_option
@plainly
def web(*, quiet: bool, as_json: bool) -> None:
    """Run the web faces alone: the API and its reference."""
    settings = load_settings()
    _check_keys(settings)
    configure_logging(settings.log_level)
    with (
        _until_stopped() as stopping,
        listen(settings) as listening,
        open_database(settings, tell, stopping.heed) as url,
    ):
        asyncio.run(stopping.cancel(prepare(url, tell)))
        stopping.heed()
        started = {"status": "started", "url": settings.public_url, "api": f"{settings.public_url}/api/v1"}
        say = partial(_say_started, "The web process", started, quiet=quiet, as_json=as_json)
        uvloop.run(run_web(settings, url, listening, stopping, say))


@click.command()
@quiet_option
@json_option
@plainly
def worker(*, quiet: bool, as_json: bool) -> None:
    """Run the worker alone: it hands messages over, takes receipts, sends webhooks and mails, takes money."""
    settings = load_settings()
    configure_logging(settings.log_level)
    if not quiet:
        _warn_of_private_webhooks(settings)
    with _until_stopped() as stopping, open_database(settings, tell, stopping.heed) as url:
        asyncio.run(stopping.cancel(prepare(url, tell)))
        stopping.heed()
        say = partial(_say_started, "The worker", {"status": "started"}, quiet=quiet, as_json=as_json)
        uvloop.run(_worker(settings, url, stopping, say))


@click.command()
@click.option("--port", type=click.IntRange(1, PORT_MAX), help="Where to listen, on 127.0.0.1.")
@click.option("--delay-ms", type=click.IntRange(0), default=0, help="How much later receipts come.")
@click.option("--rate", type=click.IntRange(1), help="Submits a second; those above it are throttled.")
@click.option(
    "--misbehave", multiple=True, metavar="NAME[=VALUE]", help="Misbehave in a way; may be given again."
)
@quiet_option
@json_option
@plainly
def simulator(
    *,
    port: int | None,
    delay_ms: int,
    rate: int | None,
    misbehave: Sequence[str],
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the simulator alone: a carrier that speaks SMPP and delivers to the handsets on its page."""
    settings = load_settings()
    configure_logging(settings.log_level)
    chosen = [misbehaviours.parse(words) for words in misbehave]
    if rate is not None:
        chosen.append(RateLimit(rate))
    port = port or settings.simulator_port or SIMULATOR_PORT
    check_port(port)
    started = {"status": "started", "url": f"smpp://127.0.0.1:{port}"}
    say = partial(_say_started, "The simulator", started, quiet=quiet, as_json=as_json)
    with _until_stopped() as stopping:
        uvloop.run(_simulator(settings, port, delay_ms, chosen, stopping, say))


async def _simulator(
    settings: Settings,
    port: int,
    delay_ms: int,
    chosen: Sequence[Misbehaviour],
    stopping: Stopping,
    say_started: Callable[[], None],
) -> None:
    keeper = Keeper(directory_in(settings.data_dir))
    try:
        # The texts are in files: none have to be kept in memory too.
        async with run_smsc(port, chosen, receipt_delay_s=delay_ms / 1000, texts_max=0, arrived=keeper.add):
            say_started()
            await stopping.wait()
    finally:
        keeper.close()


def _warn_of_private_webhooks(settings: Settings) -> None:
    if settings.webhooks_allow_private:
        tell(
            "TUMIRA_WEBHOOKS_ALLOW_PRIVATE=1: webhooks may go to private addresses and without TLS. "
            "Do not let strangers have accounts here."
        )


def _say_started(who: str, started: Mapping[str, str], *, quiet: bool, as_json: bool) -> None:
    if as_json:
        show(started, as_json=True)
    elif not quiet:
        where = f" on {started['url']}" if "url" in started else ""
        click.echo(f"{who} runs{where}. Press Ctrl-C to stop.")


async def _worker(settings: Settings, url: str, stopping: Stopping, say_started: Callable[[], None]) -> None:
    database = Database(url, settings=KEY_LOOKUPS)
    say_started()
    work = run_worker(
        database,
        webhooks_allow_private=settings.webhooks_allow_private,
        smtp=settings.smtp,
        payments=settings.payments,
        public_url=settings.public_url,
        metrics_at=(settings.host, settings.worker_metrics_port),
        traces=settings.tracing,
    )
    await stopping.cancel(work)
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
