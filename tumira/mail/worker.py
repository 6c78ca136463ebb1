"""Who sends the mails that wait? Each worker takes some that are due, and tries until they expire.

A mail is sent at least once: when a worker dies between sending and writing that down, another sends it
again, with the same Message-ID, once the lease has ended.
"""

import asyncio
import ssl
from typing import Final

import structlog

from tumira.core import metrics
from tumira.core.database_errors import is_unavailable
from tumira.core.loops import say_unavailable
from tumira.core.settings import Smtp
from tumira.mail import outbox
from tumira.mail.outbox import Mail
from tumira.mail.smtp import MAIL_S, Letter, MailDelayedError, Mailer, MailRefusedError
from tumira.postgres.pool import Database

LOOK_S: Final = 1.0
SENDING_MAX: Final = 4
# Longer than a mail may take and its end to be written down, so that nobody sends what we are still sending.
LEASE_S: Final = 2 * MAIL_S
DRAIN_S: Final = 5.0

_RECORD_TRIES_MAX: Final = 20
_RECORD_PAUSE_S: Final = 1.0
_WAIT_FIRST_S: Final = 5.0
_WAIT_GROWTH: Final = 3
_WAIT_MAX_S: Final = 900.0
# Three to this power is more than the longest wait; a server that is away for days must not make it grow.
_GROWTHS_MAX: Final = 5

_log: Final = structlog.get_logger()


def wait_s(tries: int) -> float:
    """Return how long a mail waits after so many tries: 5, 15, 45 … seconds, at most a quarter of an hour."""
    assert tries >= 1
    return min(_WAIT_MAX_S, _WAIT_FIRST_S * _WAIT_GROWTH ** float(min(tries - 1, _GROWTHS_MAX)))


def masked(address: str) -> str:
    """Return a mail address as it may stand in a log: `a…@example.org`."""
    name, _, domain = address.rpartition("@")
    return f"{name[:1]}…@{domain}" if name else "…"


class Postman:
    """Sends the mails of one worker."""

    def __init__(
        self,
        database: Database,
        smtp: Smtp,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._database = database
        self._mailer = Mailer(smtp, tls=tls)
        self._sending: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Send until cancelled; what is under way then is given a moment to end."""
        try:
            while True:
                await self._pause(may_have_more=await self._look())
        finally:
            await self._stop()

    async def _look(self) -> bool:
        """Begin to send what is due, and tell whether more may be due than there was room for."""
        room = SENDING_MAX - len(self._sending)
        if room == 0:
            return True
        try:
            async with self._database.transaction() as connection:
                claimed = await outbox.claim_due(connection, room, LEASE_S)
        except Exception as error:  # noqa: BLE001 - looked for again in a second
            if is_unavailable(error):
                say_unavailable("mails not looked for", error)
            else:
                _log.error("mails not looked for", exc_info=error)
            return False
        for mail in claimed:
            task = asyncio.create_task(self._handle(mail))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return len(claimed) == room

    async def _pause(self, *, may_have_more: bool) -> None:
        """Wait for the next look, and only until one is sent when others may wait for its place."""
        if may_have_more and self._sending:
            await asyncio.wait(self._sending, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(LOOK_S)

    async def _handle(self, mail: Mail) -> None:
        try:
            again_after_s = await self._send(mail)
        except Exception as error:  # noqa: BLE001 - a fault of ours; one mail must not end the worker
            _log.error("mail failed", recipient=masked(mail.recipient), exc_info=error)
            again_after_s = wait_s(mail.tries)
        await self._record(mail, again_after_s)

    async def _send(self, mail: Mail) -> float | None:
        """Try to send, and return after how long to try again, or None when that is not needed."""
        recipient = masked(mail.recipient)
        letter = Letter(mail.id, mail.recipient, mail.subject, mail.body)
        try:
            # What is too old by then would only puzzle whoever gets it.
            await self._mailer.send(letter, min(MAIL_S, mail.left_s))
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

    async def _record(self, mail: Mail, again_after_s: float | None) -> None:
        """Write down what became of a mail; while the database is away, try as long as it is ours."""
        for _ in range(_RECORD_TRIES_MAX):
            try:
                async with self._database.connection() as connection:
                    if again_after_s is None:
                        await outbox.delete(connection, mail.id)
                    else:
                        await outbox.put_off(connection, mail.id, again_after_s)
            except Exception as error:  # noqa: BLE001 - at worst the mail is sent again after the lease
                if is_unavailable(error):
                    say_unavailable("mail not recorded yet", error)
                else:
                    _log.error("mail not recorded yet", exc_info=error)
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
