"""The worker process: delivery, webhooks, mails, files, schedules, top-ups, chores; or webhooks alone."""

import asyncio
import os
import secrets
import socket
import ssl
from contextlib import nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from tumira.core.dns import Resolver
from tumira.core.loops import forever
from tumira.core.settings import Smtp
from tumira.core.settings.networks import NetworkLookup
from tumira.core.settings.payments import Payments
from tumira.core.settings.seller import NO_SELLER, Seller
from tumira.core.settings.tracing import Tracing
from tumira.core.tracing import tracing
from tumira.delivery.networks.lookup import LookupWorker
from tumira.delivery.replies.handle import EVERY_S, handle_replies
from tumira.delivery.supervisor import DEFAULT_TERMS, CarrierTerms, Supervisor
from tumira.mail.worker import MailWorker
from tumira.operations.maintenance import run_maintenance
from tumira.operations.metrics_server import show_metrics
from tumira.papers.issue import ISSUE_EVERY_S, PAPERS_AT_ONCE, PaperIssuer, issue_due
from tumira.papers.monthly_mail import MAIL_EVERY_S, mail_statements
from tumira.postgres.pool import Database
from tumira.runtime import heartbeat
from tumira.schedules.worker import run_scheduler
from tumira.topups.providers.registry import open_providers
from tumira.topups.usdt.watcher import ChainWatcher
from tumira.topups.worker import TopUpWorker
from tumira.uploads.worker import run_uploader
from tumira.webhooks.http_client import default_tls
from tumira.webhooks.worker import WebhookWorker

NO_PAYMENTS: Final = Payments()
# Alerts expect to hear of a worker at least every 30 seconds.
HEARTBEAT_S: Final = 5


class WebhookWork(StrEnum):
    """Whether a worker sends webhooks, and whether it does anything else."""

    ON = "on"
    OFF = "off"
    ONLY = "only"


async def run_worker(
    database: Database,
    *,
    webhooks: WebhookWork = WebhookWork.ON,
    carriers: CarrierTerms = DEFAULT_TERMS,
    webhooks_allow_private: bool = False,
    smtp: Smtp | None = None,
    tls: ssl.SSLContext | None = None,
    payments: Payments = NO_PAYMENTS,
    public_url: str = "",
    metrics_at: tuple[str, int | None] = ("127.0.0.1", None),
    traces: Tracing | None = None,
    keep_weeks: int | None = None,
    network_lookup: NetworkLookup | None = None,
    seller: Seller = NO_SELLER,
    data_dir: Path | None = None,
) -> None:
    """Work until cancelled; then unbind from the carriers in good order."""
    # A name that no other process ever has: what a dead one had claimed must not look like ours.
    name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    database.name_sessions(name)
    async with (
        show_metrics(*metrics_at),
        tracing(traces, "worker") as tracer,
        # The supervisor sends the heartbeat of a worker with carriers.
        heartbeat(database, "webhooks", HEARTBEAT_S) if webhooks is WebhookWork.ONLY else nullcontext(),
        asyncio.TaskGroup() as group,
    ):
        if webhooks is not WebhookWork.OFF:
            notifier = WebhookWorker(
                database,
                name,
                allow_private=webhooks_allow_private,
                resolve=Resolver(),
                tls=tls or default_tls(),
                clock=database.clock.now,
                tracer=tracer,
            )
            group.create_task(notifier.run())
        if webhooks is WebhookWork.ONLY:
            return
        group.create_task(run_maintenance(database, keep_weeks))
        group.create_task(run_uploader(database))
        group.create_task(run_scheduler(database))
        group.create_task(Supervisor(database, name, carriers, tracer, data_dir).run())
        group.create_task(forever("handle replies", partial(handle_replies, database), EVERY_S))
        if network_lookup is not None:
            group.create_task(LookupWorker(database, network_lookup).run())
        issuer = PaperIssuer(seller, public_url)
        group.create_task(forever("issue papers", partial(_issue_papers, database, issuer), ISSUE_EVERY_S))
        if smtp is not None:
            group.create_task(MailWorker(database, smtp).run())
            mailing = partial(mail_statements, database, issuer)
            group.create_task(forever("mail statements", mailing, MAIL_EVERY_S))
        # Also with nobody to ask: what was started while there was somebody has to end.
        group.create_task(TopUpWorker(database, open_providers(payments, public_url)).run())
        if payments.usdt is not None:
            group.create_task(ChainWatcher(database, payments.usdt).run())


async def _issue_papers(database: Database, issuer: PaperIssuer) -> float | None:
    return 0.0 if await issue_due(database, issuer) == PAPERS_AT_ONCE else None
