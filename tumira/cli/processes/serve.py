"""The command `tumira serve`: everything on one machine."""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import click

from tumira import VERSION
from tumira import serve as node_processes
from tumira.cli.output import load_settings, show, tell, wants_json
from tumira.cli.processes.nodes import (
    check_keys,
    node_command,
    until_stopped,
    warn_of_private_webhooks,
    warn_of_public_simulator,
)
from tumira.cli.tools import own_command
from tumira.core.errors import OperatorError, TemporaryOperatorError
from tumira.core.settings import Settings
from tumira.core.shutdown import LOOK_S, Stopping
from tumira.postgres.embedded import server as embedded
from tumira.runtime import configure_logging
from tumira.server import listen
from tumira.simulator.smsc import check_port

# The processes of a `serve` that was killed let go of their ports as soon as they notice.
PORT_WAIT_S: Final = 5.0


@click.command()
@node_command
def serve() -> None:
    """Run everything on this machine: PostgreSQL, web, worker and simulator."""
    settings = load_settings()
    check_keys(settings)
    configure_logging(settings.log_level)
    with until_stopped() as stopping:
        _check_ports(settings, stopping)
        warn_of_private_webhooks(settings)
        warn_of_public_simulator(settings)
        node_processes.serve(settings, stopping, tell, lambda: _welcome(settings))
    tell("Stopped.")


def _check_ports(settings: Settings, stopping: Stopping) -> None:
    """Refuse ports that are in use before anything is started, and say whether Tumira uses them."""
    patience_s = PORT_WAIT_S + settings.drain_wait_s
    _wait_for_port(lambda: _check_web_port(settings, stopping), patience_s, stopping)
    if settings.simulator_port is not None:
        _wait_for_port(partial(check_port, settings.simulator_port), patience_s, stopping)


def _wait_for_port(check: Callable[[], None], patience_s: float, stopping: Stopping) -> None:
    until = time.monotonic() + patience_s
    while True:
        try:
            check()
        except TemporaryOperatorError as error:
            if time.monotonic() >= until:
                # Nobody is served yet who would miss us: the operator shall know at once.
                raise OperatorError(str(error)) from None
        else:
            return
        stopping.heed()
        time.sleep(LOOK_S)


def _check_web_port(settings: Settings, stopping: Stopping) -> None:
    try:
        listen(settings).close()
    except TemporaryOperatorError:
        if settings.database_url is None and embedded.attach(settings.data_dir, stopping.heed) is not None:
            raise OperatorError(
                f"Tumira already runs on {settings.data_dir}, at {settings.local_url}: stop that one first, "
                "or set TUMIRA_DATA_DIR, TUMIRA_PORT and TUMIRA_SIMULATOR_PORT."
            ) from None
        raise


def _welcome(settings: Settings) -> None:
    url = settings.public_url
    # The page is for callers on this machine, whatever stands in front of it for the others.
    shown_at = url if settings.simulator_public else settings.local_url
    simulator_url = None if settings.simulator_port is None else f"{shown_at}/simulator"
    if wants_json():
        ready = {"status": "ready", "version": VERSION, "url": url, "api": f"{url}/api/v1"}
        show(ready | {"simulator": simulator_url})
        return
    where = "from TUMIRA_DATABASE_URL" if settings.database_url else f"embedded, in {settings.data_dir}"
    click.echo(f"""
Tumira {VERSION} is ready.

  Dashboard  {url}/dashboard
  Console    {url}/operator
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
