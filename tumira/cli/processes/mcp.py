"""The command `mcp`, which lets an assistant send messages within limits."""

import os
import sys
from contextlib import closing
from decimal import Decimal
from functools import partial

import click

from tumira.cli.output import AmountType, plain_command
from tumira.core.errors import OperatorError
from tumira.mcp.api import ApiClient
from tumira.mcp.protocol import LINE_MAX, serve
from tumira.mcp.tools import Tools


@click.command()
@click.option("--ceiling", type=AmountType(), help="Send, and spend at most this in US dollars.")
@plain_command
def mcp(*, ceiling: Decimal | None) -> None:
    """Let an assistant price, send and look up messages, over the Model Context Protocol.

    Reads requests from standard input. TUMIRA_URL and TUMIRA_API_KEY name the service and the account.
    Without a ceiling nothing is sent.
    """
    try:
        api = ApiClient(os.environ["TUMIRA_URL"], os.environ["TUMIRA_API_KEY"])
    except KeyError as missing:
        raise OperatorError(
            f"Set {missing.args[0]}: the address of the service, and an API key."
        ) from missing
    lines = iter(partial(sys.stdin.buffer.readline, LINE_MAX + 1), b"")
    with closing(api):
        serve(lines, _write, Tools(api, ceiling))


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
