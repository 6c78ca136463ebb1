"""SMTP client: hands a mail to the operator's mail server, within a time limit."""

import asyncio
import os
import re
import socket
import ssl
import unicodedata
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime
from typing import Final

import aiosmtplib

from tumira.core.dns import Resolver
from tumira.core.mail_addresses import MAIL_ADDRESS
from tumira.core.settings import Encryption, Smtp
from tumira.mail.outbox import Mail

MAIL_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0

_ADDRESSES_MAX: Final = 8
_PERMANENT: Final = 500
# RFC 3463: the detailed status after the three digits. The rest of the answer may repeat the address.
_DETAIL: Final = re.compile(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}(?![0-9.])")
# Every character that Python or a mail server takes for the end of a line is in these categories.
_BREAKS: Final = frozenset({"Cc", "Zl", "Zp"})


class MailError(Exception):
    """A mail was not sent; the message is for the operator and names neither recipient nor text."""


class MailDelayedError(MailError):
    """The mail may be sent later: the server was unreachable or refused it for now."""


class MailRefusedError(MailError):
    """The mail can never be sent: its recipient or its text was refused."""


class Mailer:
    """Sends mails through one server, each over its own connection."""

    def __init__(self, smtp: Smtp, *, tls: ssl.SSLContext | None = None) -> None:
        self._smtp = smtp
        self._tls = tls or ssl.create_default_context()
        self._resolve = Resolver()

    async def send(self, mail: Mail, timeout_s: float = MAIL_TIMEOUT_S) -> None:
        """Send a mail within this time; a MailError says why it was not sent."""
        content = write_mail(self._smtp, mail, datetime.now(UTC))

        async def hand_over(client: aiosmtplib.SMTP) -> None:
            with _explained("the mail"):
                await client.sendmail(self._smtp.sender_address, mail.recipient, content)

        await self._talk(hand_over, timeout_s)

    async def check(self, timeout_s: float = MAIL_TIMEOUT_S) -> None:
        """Connect, encrypt and log in as for a mail, and send none; a MailError says what failed."""

        async def send_nothing(_client: aiosmtplib.SMTP) -> None:
            return

        await self._talk(send_nothing, timeout_s)

    async def _talk(self, work: Callable[[aiosmtplib.SMTP], Awaitable[None]], timeout_s: float) -> None:
        is_done = False
        try:
            async with asyncio.timeout(timeout_s):
                client = await self._connect()
                try:
                    await self._greet(client)
                    await work(client)
                    is_done = True
                    with suppress(aiosmtplib.SMTPException, OSError):
                        await client.quit()
                finally:
                    client.close()
        except TimeoutError:
            # An accepted mail is sent, even when the server is slow to answer QUIT.
            if not is_done:
                raise MailDelayedError(f"The mail server took longer than {timeout_s:.3g} seconds.") from None

    async def _connect(self) -> aiosmtplib.SMTP:
        try:
            connected = await self._connect_socket()
        except OSError as error:
            raise MailDelayedError(f"The mail server cannot be reached: {_reason(error)}.") from error
        # RFC 5321, section 4.1.3: an address literal, because looking up our own name may take long.
        own = connected.getsockname()[0]
        client = aiosmtplib.SMTP(
            hostname=self._smtp.host,
            local_hostname=f"[IPv6:{own}]" if ":" in own else f"[{own}]",
            sock=connected,
            use_tls=self._smtp.encryption is Encryption.FROM_START,
            # After EHLO, so that an error names the step that failed.
            start_tls=False,
            tls_context=self._tls,
            # `send` limits the time of all steps together.
            timeout=None,
        )
        with _explained("its greeting"):
            await client.connect()
        return client

    async def _connect_socket(self) -> socket.socket:
        addresses = await self._resolve(self._smtp.host, self._smtp.port)
        problem: OSError = OSError("its name has no address")
        for address in addresses[:_ADDRESSES_MAX]:
            connected = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            try:
                connected.settimeout(0)
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    await asyncio.get_running_loop().sock_connect(connected, (address, self._smtp.port))
            except OSError as error:
                connected.close()
                problem = error
            except BaseException:
                connected.close()
                raise
            else:
                return connected
        raise problem

    async def _greet(self, client: aiosmtplib.SMTP) -> None:
        smtp = self._smtp
        with _explained("its greeting"):
            await client.ehlo()
        if smtp.encryption is Encryption.REQUIRED or (
            smtp.encryption is Encryption.WHEN_OFFERED and client.supports_extension("starttls")
        ):
            with _explained("STARTTLS"):
                await client.starttls()
        if smtp.user is not None and smtp.password is not None:
            with _explained("the user and password of TUMIRA_SMTP_URL"):
                await client.login(smtp.user, smtp.password)


def write_mail(smtp: Smtp, mail: Mail, at: datetime) -> bytes:
    """Write a mail as it is transmitted; refuse text that could forge a header or another recipient."""
    # Nothing in such an address can end a line, close the angle brackets or begin another address.
    if not MAIL_ADDRESS.fullmatch(mail.recipient):
        raise MailRefusedError("The recipient is no address that mails can be sent to.")
    if any(unicodedata.category(character) in _BREAKS for character in mail.subject):
        raise MailRefusedError("The subject has a line break or another control character.")
    domain = smtp.sender_address.rpartition("@")[2]
    message = EmailMessage(policy=SMTP_POLICY)
    try:
        message["From"] = Address(smtp.sender_name, addr_spec=smtp.sender_address)
        message["To"] = Address(addr_spec=mail.recipient)
        message["Subject"] = mail.subject
        message["Date"] = format_datetime(at)
        # The same for every attempt, so that a mail client can recognise a repetition.
        message["Message-ID"] = f"<{mail.id}@{domain}>"
        # RFC 3834: suppresses automatic replies.
        message["Auto-Submitted"] = "auto-generated"
        # Passes every server, whether or not it accepts eight bits and long lines.
        message.set_content(mail.body, charset="utf-8", cte="quoted-printable")
        if mail.attachment is not None:
            name = mail.attachment_name
            message.add_attachment(mail.attachment, maintype="application", subtype="pdf", filename=name)
        return message.as_bytes()
    except (ValueError, MessageError) as error:
        raise MailRefusedError(f"The mail cannot be written ({type(error).__name__}).") from None


@contextmanager
def _explained(step: str) -> Iterator[None]:
    """Turn the server's answers and connection errors of a step into a MailError.

    Only an answer to the recipient or to the text is permanent: the operator can correct a user or a sender
    that is refused, and mails wait for that until they expire.
    """
    try:
        yield
    except aiosmtplib.SMTPRecipientsRefused as error:
        (refused,) = error.recipients
        raise _answered(refused, "the recipient", may_be_permanent=True) from None
    except aiosmtplib.SMTPSenderRefused as error:
        raise _answered(error, "the sender") from None
    except aiosmtplib.SMTPResponseException as error:
        may_be_permanent = isinstance(error, aiosmtplib.SMTPDataError)
        raise _answered(error, step, may_be_permanent=may_be_permanent) from None
    except (aiosmtplib.SMTPException, OSError, ValueError) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if isinstance(cause, aiosmtplib.SMTPServerDisconnected):
            raise MailDelayedError(f"The mail server closed the connection at {step}.") from None
        if isinstance(cause, OSError | ValueError):
            problem = f"The connection to the mail server failed at {step}: {_reason(cause)}."
            raise MailDelayedError(problem) from None
        raise MailDelayedError(f"The mail server has no way that we know for {step}.") from None


def _answered(
    error: aiosmtplib.SMTPResponseException, step: str, *, may_be_permanent: bool = False
) -> MailError:
    kind = MailRefusedError if may_be_permanent and error.code >= _PERMANENT else MailDelayedError
    detail = _DETAIL.match(error.message)
    shown = f"{error.code} {detail[0]}" if detail else str(error.code)
    return kind(f"The mail server answered {shown} to {step}.")


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return error.reason or type(error).__name__
    if isinstance(error, ConnectionError) and error.errno:
        # The event loop's own message names the address instead of the reason.
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
