"""What all commands share that run a process of a node.

Each is in a module of its own, which imports only what its process needs: a worker has no use for the code of
the pages, nor a web process for that of the engine.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import ParamSpec

import click

from tumira.cli.output import fail, plain_command, show, tell, wants_json
from tumira.core.errors import OPERATOR_EXIT_CODE, OperatorError, TemporaryOperatorError
from tumira.core.settings import Settings
from tumira.core.shutdown import Stopping
from tumira.runtime import collect_rarely

Parameters = ParamSpec("Parameters")

quiet_option = click.option("--quiet", is_flag=True, help="Say nothing at the start.")


def node_command(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """End with one line; the exit code tells problems for the operator from those that may pass."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except TemporaryOperatorError:
            raise
        except OperatorError as error:
            fail(str(error), OPERATOR_EXIT_CODE)

    return plain_command(run)


@contextmanager
def until_stopped() -> Iterator[Stopping]:
    """End well on Ctrl-C and on SIGTERM, however early they come."""
    stopping = Stopping()
    collect_rarely()
    with suppress(KeyboardInterrupt):
        yield stopping


def check_keys(settings: Settings) -> None:
    """Refuse a key from which no address can be derived, before a customer needs one."""
    if settings.payments.usdt is not None:
        # The mathematics of keys takes longer to load than all the rest, and few gateways take USDT.
        from tumira.topups.usdt.addresses import read_xpub  # noqa: PLC0415

        read_xpub(settings.payments.usdt.xpub)


def warn_of_private_webhooks(settings: Settings) -> None:
    if settings.webhooks_allow_private:
        tell(
            "TUMIRA_WEBHOOKS_ALLOW_PRIVATE=1: webhooks may go to private addresses and without TLS. "
            "Do not let strangers have accounts here."
        )


def warn_of_public_simulator(settings: Settings) -> None:
    if settings.simulator_public and settings.simulator_port is not None:
        tell(
            "TUMIRA_SIMULATOR_PUBLIC=1: everybody who reaches this address can read the texts on "
            "/simulator, passcodes included. Do not let real customers have accounts here."
        )


def say_started(who: str, started: Mapping[str, str], *, quiet: bool) -> None:
    if wants_json():
        show(started)
    elif not quiet:
        where = f" on {started['url']}" if "url" in started else ""
        click.echo(f"{who} runs{where}. Press Ctrl-C to stop.")
