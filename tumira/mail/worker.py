"""Mail worker: claims due mails and sends them until they expire.

A mail is sent at least once: when a worker dies between sending a mail and deleting it, another worker
sends it again after the lease, with the same Message-ID.
"""

import asyncio
import ssl
from typing import Final

import structlog

from tumira.core import metrics
from tumira.core.loops import forever, log_failure
from tumira.core.settings import Smtp
from tumira.mail import outbox
from tumira.mail.outbox import Mail
from tumira.mail.smtp import MAIL_TIMEOUT_S, MailDelayedError, Mailer, MailRefusedError
from tumira.postgres.pool import Database

CLAIM_EVERY_S: Final = 1.0
SENDING_MAX: Final = 4
# Longer than sending and recording a mail may take, so that no other worker sends it meanwhile.
LEASE_S: Final = 2 * MAIL_TIMEOUT_S
DRAIN_S: Final = 5.0

_RECORD_TRIES_MAX: Final = 20
_RECORD_PAUSE_S: Final = 1.0
_WAIT_FIRST_S: Final = 5.0
_WAIT_GROWTH: Final = 3
_WAIT_MAX_S: Final = 900.0
# Three to this power exceeds the longest wait; more tries must not make the number grow.
_GROWTHS_MAX: Final = 5

_log: Final = structlog.get_logger()


def wait_s(tries: int) -> float:
    """Return the wait after this many tries: 5, 15, 45 … seconds, at most a quarter of an hour."""
    assert tries >= 1
    return min(_WAIT_MAX_S, _WAIT_FIRST_S * _WAIT_GROWTH ** float(min(tries - 1, _GROWTHS_MAX)))


def masked(address: str) -> str:
    """Return a mail address as it may be logged: `a…@example.org`."""
    name, _, domain = address.rpartition("@")
    return f"{name[:1]}…@{domain}" if name else "…"


class MailWorker:
    """Sends up to SENDING_MAX mails at a time."""

    def __init__(self, database: Database, smtp: Smtp, *, tls: ssl.SSLContext | None = None) -> None:
        self._database = database
        self._mailer = Mailer(smtp, tls=tls)
        self._sending: set[asyncio.Task[None]] = set()
        self._slot_free = asyncio.Event()

    async def run(self) -> None:
        """Send until cancelled; mails under way then get a moment to finish."""
        try:
            await forever("claim due mails", self._claim, CLAIM_EVERY_S, wake=self._slot_free)
        finally:
            await self._stop()

    async def _claim(self) -> None:
        free = SENDING_MAX - len(self._sending)
        if free == 0:
            return
        async with self._database.transaction() as connection:
            claimed = await outbox.claim_due(connection, free, LEASE_S)
        for mail in claimed:
            task = asyncio.create_task(self._handle(mail))
            self._sending.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._slot_free.set()

    async def _handle(self, mail: Mail) -> None:
        try:
            retry_after_s = await self._send(mail)
        except Exception as error:  # noqa: BLE001 - a bug; one mail must not end the worker
            _log.error("mail failed", recipient=masked(mail.recipient), exc_info=error)
            retry_after_s = wait_s(mail.tries)
        await self._record(mail, retry_after_s)

    async def _send(self, mail: Mail) -> float | None:
        """Try to send, and return the wait before the next try, or None when there is none."""
        recipient = masked(mail.recipient)
        try:
            await self._mailer.send(mail, min(MAIL_TIMEOUT_S, mail.left_s))
        except MailRefusedError as error:
            metrics.MAILS.labels("given_up").inc()
            _log.warning("mail given up", recipient=recipient, tries=mail.tries, problem=str(error))
            return None
        except MailDelayedError as error:
            metrics.MAILS.labels("put_off").inc()
            _log.warning("mail put off", recipient=recipient, tries=mail.tries, problem=str(error))
            return wait_s(mail.tries)
        metrics.MAILS.labels("sent").inc()
        _log.info("mail sent", recipient=recipient, tries=mail.tries)
        return None

    async def _record(self, mail: Mail, retry_after_s: float | None) -> None:
        """Record the outcome; while the database is away, try as long as the lease lasts."""
        for _ in range(_RECORD_TRIES_MAX):
            try:
                async with self._database.connection() as connection:
                    if retry_after_s is None:
                        await outbox.delete(connection, mail.id)
                    else:
                        await outbox.put_off(connection, mail.id, retry_after_s)
            except Exception as error:  # noqa: BLE001 - at worst the mail is sent again after the lease
                log_failure("could not record a mail's outcome", error)
                await asyncio.sleep(_RECORD_PAUSE_S)
            else:
                return

    async def _stop(self) -> None:
        sending = list(self._sending)
        if sending:
            await asyncio.wait(sending, timeout=DRAIN_S)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
