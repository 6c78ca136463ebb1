"""How is everything started on one machine?"""

import click

from tumira import VERSION, parts
from tumira.cli.nodes import check_keys, until_stopped, warn_of_private_webhooks
from tumira.cli.output import json_option, load_settings, plainly, show, tell
from tumira.cli.tools import own_command
from tumira.config import Settings
from tumira.errors import Trouble
from tumira.runtime import configure_logging
from tumira.server import listen
from tumira.simulator.smsc import check_port
from tumira.store import embedded


@click.command()
@json_option
@plainly
def serve(*, as_json: bool) -> None:
    """Run everything on this machine: PostgreSQL, web, worker and simulator."""
    settings = load_settings()
    check_keys(settings)
    configure_logging(settings.log_level)
    _check_port(settings)
    warn_of_private_webhooks(settings)
    with until_stopped() as stopping:
        parts.serve(settings, stopping, tell, lambda: _welcome(settings, as_json=as_json))
    tell("Stopped.")


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
    simulator_url = None if settings.simulator_port is None else f"{url}/simulator"
    if as_json:
        ready = {"status": "ready", "version": VERSION, "url": url, "api": f"{url}/api/v1"}
        show(ready | {"simulator": simulator_url}, as_json=True)
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
