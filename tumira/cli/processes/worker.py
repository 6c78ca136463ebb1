"""The command `tumira worker`."""

from collections.abc import Callable
from functools import partial

import click
import uvloop

from tumira.cli.output import load_settings, tell
from tumira.cli.processes.nodes import (
    node_command,
    quiet_option,
    say_started,
    until_stopped,
    warn_of_private_webhooks,
)
from tumira.core.settings import Settings
from tumira.core.shutdown import Stopping
from tumira.delivery.supervisor import CarrierTerms
from tumira.postgres.pool import KEY_LOOKUPS, Database
from tumira.runtime import configure_logging, open_database, wait_until_prepared
from tumira.worker import WebhookWork, run_worker


@click.command()
@quiet_option
@click.option(
    "--webhooks",
    type=click.Choice([one.value for one in WebhookWork]),
    default=WebhookWork.ON.value,
    show_default=True,
    help="Send webhooks too, leave them to another worker, or do nothing else.",
)
@node_command
def worker(*, quiet: bool, webhooks: str) -> None:
    """Run the worker alone: it hands messages over, takes receipts, sends webhooks and mails, takes money."""
    settings = load_settings()
    configure_logging(settings.log_level)
    if not quiet:
        warn_of_private_webhooks(settings)
    with until_stopped() as stopping, open_database(settings, tell, stopping.heed) as url:
        wait_until_prepared("worker", url, tell, stopping)
        say = partial(say_started, "The worker", {"status": "started"}, quiet=quiet)
        uvloop.run(_worker(settings, url, WebhookWork(webhooks), stopping, say))


async def _worker(
    settings: Settings,
    url: str,
    webhooks: WebhookWork,
    stopping: Stopping,
    say_started: Callable[[], None],
) -> None:
    database = Database(url, settings=KEY_LOOKUPS)
    say_started()
    work = run_worker(
        database,
        webhooks=webhooks,
        carriers=CarrierTerms(public_url=settings.public_url, proxy=settings.carrier_proxy),
        webhooks_allow_private=settings.webhooks_allow_private,
        smtp=settings.smtp,
        payments=settings.payments,
        public_url=settings.public_url,
        metrics_at=(settings.host, settings.worker_metrics_port),
        traces=settings.tracing,
        keep_weeks=settings.keep_weeks,
        network_lookup=settings.network_lookup,
        seller=settings.seller,
        data_dir=settings.data_dir,
    )
    await stopping.cancel(work)
    await database.close()
