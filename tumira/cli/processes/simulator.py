"""The command `tumira simulator`."""

from collections.abc import Callable, Sequence
from functools import partial

import click
import uvloop

from tumira.cli.output import load_settings
from tumira.cli.processes.nodes import node_command, quiet_option, say_started, until_stopped
from tumira.core.settings import PORT_MAX, SIMULATOR_PORT, Settings
from tumira.core.shutdown import Stopping
from tumira.runtime import configure_logging
from tumira.simulator import misbehaviours
from tumira.simulator.handsets import HandsetFiles, directory_in
from tumira.simulator.misbehaviours import Misbehaviour, RateLimit
from tumira.simulator.smsc import check_port, run_smsc


@click.command()
@click.option("--port", type=click.IntRange(1, PORT_MAX), help="Where to listen, on 127.0.0.1.")
@click.option("--delay-ms", type=click.IntRange(0), default=0, help="How much later receipts come.")
@click.option("--rate", type=click.IntRange(1), help="Submits a second; those above it are throttled.")
@click.option(
    "--misbehave", multiple=True, metavar="NAME[=VALUE]", help="Misbehave in a way; may be given again."
)
@quiet_option
@node_command
def simulator(
    *,
    port: int | None,
    delay_ms: int,
    rate: int | None,
    misbehave: Sequence[str],
    quiet: bool,
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
    say = partial(say_started, "The simulator", started, quiet=quiet)
    with until_stopped() as stopping:
        uvloop.run(_simulator(settings, port, delay_ms, chosen, stopping, say))


async def _simulator(
    settings: Settings,
    port: int,
    delay_ms: int,
    chosen: Sequence[Misbehaviour],
    stopping: Stopping,
    say_started: Callable[[], None],
) -> None:
    keeper = HandsetFiles(directory_in(settings.data_dir))
    try:
        # The texts are in files: none have to be kept in memory too.
        async with run_smsc(port, chosen, receipt_delay_s=delay_ms / 1000, texts_max=0, arrived=keeper.add):
            say_started()
            await stopping.wait()
    finally:
        keeper.close()
