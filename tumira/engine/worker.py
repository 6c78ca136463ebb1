"""What does a worker do? It sends files, hands messages over, takes receipts, tells of them, keeps house."""

import asyncio
import os
import secrets
import socket
import ssl

from tumira.carriers.smpp.peer import DEFAULT_TIMING, Timing
from tumira.config import Smtp
from tumira.engine.chores import run_chores
from tumira.engine.notifier import Notifier
from tumira.engine.postman import Postman
from tumira.engine.supervisor import Supervisor
from tumira.engine.uploader import run_uploader
from tumira.outbound.webhook_client import Resolver, default_tls
from tumira.store.database import Database


async def run_worker(
    database: Database,
    *,
    timing: Timing = DEFAULT_TIMING,
    webhooks_allow_private: bool = False,
    smtp: Smtp | None = None,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Work until cancelled; then part from the carriers in good order."""
    # A name that no other process ever has: what a dead one had claimed must not look like ours.
    name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    async with asyncio.TaskGroup() as group:
        group.create_task(run_chores(database))
        group.create_task(run_uploader(database))
        group.create_task(Supervisor(database, name, timing).run())
        notifier = Notifier(
            database, name, allow_private=webhooks_allow_private, resolve=Resolver(), tls=tls or default_tls()
        )
        group.create_task(notifier.run())
        if smtp is not None:
            group.create_task(Postman(database, smtp).run())
