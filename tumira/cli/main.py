"""Which commands are there?"""

import click

from tumira import VERSION
from tumira.cli.accounts import account, key
from tumira.cli.nodes import migrate, serve, web, worker
from tumira.cli.tariff import destination, price
from tumira.cli.tools import audit, demo, segments


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="Tumira")
def main() -> None:
    """Tumira, a prepaid SMS gateway for Zimbabwe and South Africa."""


for command in (serve, web, worker, migrate, account, key, destination, price, audit, segments, demo):
    main.add_command(command)
