"""The command line `tumira`; each command's module is imported when it is used."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click

from tumira import VERSION

# By the file that holds each. A file is read when one of its commands is called or listed, so that counting
# segments does not wait for the code of the web server: it is half of what a short command would take.
COMMANDS: Final[Mapping[str, str]] = {
    "serve": "processes.serve",
    "web": "processes.web",
    "worker": "processes.worker",
    "simulator": "processes.simulator",
    "migrate": "migrate",
    "account": "accounts",
    "key": "accounts",
    "destination": "tariff",
    "price": "tariff",
    "carrier": "carriers",
    "route": "routes",
    "rate": "routes",
    "margin": "routes",
    "webhook": "webhooks",
    "message": "messages",
    "sender": "senders",
    "optout": "opt_outs",
    "template": "content",
    "refusal": "content",
    "topup": "top_ups",
    "voucher": "vouchers",
    "reconcile": "reconcile",
    "statement": "papers",
    "invoice": "papers",
    "tax": "papers",
    "operator": "operators",
    "erase": "privacy",
    "export": "privacy",
    "backup": "backups",
    "restore": "backups",
    "audit": "tools",
    "doctor": "doctor",
    "segments": "texts",
    "screen": "texts",
    "demo": "tools",
    "mcp": "processes.mcp",
}


class _Commands(click.Group):
    """The commands, in the order in which one meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as click calls it
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        command = getattr(import_module(f"tumira.cli.{COMMANDS[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.command(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(VERSION, prog_name="Tumira")
def main() -> None:
    """Tumira, a prepaid SMS gateway for Zimbabwe and South Africa."""
