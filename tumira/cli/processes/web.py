"""The command `tumira web`."""

from functools import partial

import click
import uvloop

from tumira.cli.output import load_settings, tell
from tumira.cli.processes.nodes import (
    check_keys,
    node_command,
    quiet_option,
    say_started,
    until_stopped,
    warn_of_public_simulator,
)
from tumira.runtime import configure_logging, open_database, wait_until_prepared
from tumira.server import listen
from tumira.web import run_web


@click.command()
@quiet_option
@node_command
def web(*, quiet: bool) -> None:
    """Run the web faces alone: the API and its reference."""
    settings = load_settings()
    check_keys(settings)
    configure_logging(settings.log_level)
    if not quiet:
        warn_of_public_simulator(settings)
    with (
        until_stopped() as stopping,
        listen(settings) as listening,
        open_database(settings, tell, stopping.heed) as url,
    ):
        wait_until_prepared("web", url, tell, stopping)
        started = {"status": "started", "url": settings.public_url, "api": f"{settings.public_url}/api/v1"}
        say = partial(say_started, "The web process", started, quiet=quiet)
        uvloop.run(run_web(settings, url, listening, stopping, say))
