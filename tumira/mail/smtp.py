"""How is a mail handed to the operator's mail server, so that it can neither be led astray nor hold us up?

Bounds: a mail takes at most the time it is given, with all that belongs to it. The server is spoken to in a
thread, over a connection that is made outside of it and cut when the time is over, which ends the thread too.
"""

import asyncio
import os
import re
import smtplib
import socket
import ssl
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Final, assert_never
from uuid import UUID

from tumira.core.dns import Resolver
from tumira.core.settings import MAIL_ADDRESS, Encryption, Smtp

# How long a mail may take at most.
MAIL_S: Final = 30.0
CONNECT_S: Final = 5.0

_ADDRESSES_MAX: Final = 8
_PERMANENT: Final = 500
# RFC 3463: what a server adds to its three digits. The rest of its words may repeat the address.
_DETAIL: Final = re.compile(rb"[245]\.[0-9]{1,3}\.[0-9]{1,3}(?![0-9.])")
# What ends a line, for Python or for a mail server, is among these.
_BREAKS: Final = frozenset({"Cc", "Zl", "Zp"})


@dataclass(frozen=True, slots=True)
class Letter:
    """A mail to be sent; the id makes its Message-ID, which is the same for every try."""

    id: UUID
    recipient: str = field(repr=False)
    subject: str = field(repr=False)
    body: str = field(repr=False)


class MailError(Exception):
    """A mail was not sent; the words are for the operator, and name no recipient and nothing of its text."""


class MailDelayedError(MailError):
    """The mail may go another time: nobody answered, or the server does not want any of ours just now."""


class MailRefusedError(MailError):
    """The mail never will go: the server, or we, refuse its recipient or its text."""


def default_tls() -> ssl.SSLContext:
    """Return a context that trusts whom the system trusts."""
    return ssl.create_default_context()


class Mailer:
    """Sends mails through one server, each over a connection of its own."""

    def __init__(self, smtp: Smtp, *, tls: ssl.SSLContext | None = None) -> None:
        self._smtp = smtp
        self._tls = tls or default_tls()
        self._resolve = Resolver()

    async def send(self, letter: Letter, time_s: float = MAIL_S) -> None:
        """Send a mail within this time; a MailError says why it was not sent."""
        content = write_letter(self._smtp, letter, datetime.now(UTC))
        deadline = asyncio.get_running_loop().time() + time_s
        try:
            async with asyncio.timeout_at(deadline):
                connected = await self._connect()
        except OSError as error:
            raise MailDelayedError(f"The mail server cannot be reached: {_why(error)}.") from error
        conversation = _Conversation(self._smtp, self._tls, connected)
        try:
            async with asyncio.timeout_at(deadline):
                await conversation.hold(letter.recipient, content)
        except TimeoutError:
            # Taken is taken, even when the server is slow to say goodbye.
            if not conversation.is_taken:
                raise MailDelayedError(f"The mail server took longer than {time_s:.3g} seconds.") from None

    async def _connect(self) -> socket.socket:
        addresses = await self._resolve(self._smtp.host, self._smtp.port)
        problem: OSError = OSError("its name has no address")
        for address in addresses[:_ADDRESSES_MAX]:
            try:
                return await _connect(address, self._smtp.port)
            except OSError as error:
                problem = error
        raise problem


async def _connect(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connected = socket.socket(family, socket.SOCK_STREAM)
    try:
        connected.settimeout(0)
        async with asyncio.timeout(CONNECT_S):
            await asyncio.get_running_loop().sock_connect(connected, (address, port))
        connected.settimeout(MAIL_S)
    except BaseException:
        connected.close()
        raise
    return connected


def write_letter(smtp: Smtp, letter: Letter, at: datetime) -> bytes:
    """Write a mail as it goes over the line; what could forge a header or another recipient is refused."""
    # Nothing in such an address can end a line, close the angle brackets or begin another address.
    if not MAIL_ADDRESS.fullmatch(letter.recipient):
        raise MailRefusedError("The recipient is no address that mails can be sent to.")
    if any(unicodedata.category(character) in _BREAKS for character in letter.subject):
        raise MailRefusedError("The subject has a line break or another control character.")
    domain = smtp.sender_address.rpartition("@")[2]
    message = EmailMessage(policy=SMTP)
    try:
        message["From"] = Address(smtp.sender_name, addr_spec=smtp.sender_address)
        message["To"] = Address(addr_spec=letter.recipient)
        message["Subject"] = letter.subject
        message["Date"] = format_datetime(at)
        message["Message-ID"] = f"<{letter.id}@{domain}>"
        # RFC 3834: nobody's holiday notice shall answer.
        message["Auto-Submitted"] = "auto-generated"
        # Goes through every server, whatever it thinks of eight bits and long lines.
        message.set_content(letter.body, charset="utf-8", cte="quoted-printable")
        return message.as_bytes()
    except (ValueError, MessageError) as error:
        raise MailRefusedError(f"The mail cannot be written ({type(error).__name__}).") from None


class _Client(smtplib.SMTP):
    """The standard library's client, on a connection that is there already."""

    def __init__(self, smtp: Smtp, connected: socket.socket) -> None:
        self._connected = connected
        # RFC 5321, section 4.1.3. To ask for our own name may take long, and it is often none.
        own = connected.getsockname()[0]
        own_name = f"[IPv6:{own}]" if ":" in own else f"[{own}]"
        super().__init__(smtp.host, smtp.port, local_hostname=own_name, timeout=MAIL_S)

    def _get_socket(self, _host: str, _port: int, _timeout: float) -> socket.socket:
        return self._connected


class _Conversation:
    """Hands one mail over in a thread that ends when the connection is cut."""

    def __init__(self, smtp: Smtp, tls: ssl.SSLContext, connected: socket.socket) -> None:
        self.is_taken = False
        self._smtp = smtp
        self._tls = tls
        self._connected = connected
        # TLS takes the connection over; a second handle on it stays ours to cut it by.
        self._handle = connected.dup()
        self._handle_free = threading.Lock()

    async def hold(self, recipient: str, content: bytes) -> None:
        """Hand the mail over, or cut the connection when cancelled."""
        work = asyncio.ensure_future(asyncio.to_thread(self._talk, recipient, content))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self._cut()
            # The thread ends at once; waiting for it keeps its number bounded, and hears its complaint.
            await asyncio.wait([work])
            work.exception()
            raise

    def _cut(self) -> None:
        with self._handle_free, suppress(OSError):
            self._handle.shutdown(socket.SHUT_RDWR)

    def _talk(self, recipient: str, content: bytes) -> None:
        try:
            with _explained("its greeting"):
                client = self._greet()
            try:
                self._hand_over(client, recipient, content)
                self.is_taken = True
                with suppress(smtplib.SMTPException, OSError):
                    client.quit()
            finally:
                client.close()
        finally:
            self._connected.close()
            with self._handle_free:
                self._handle.close()

    def _greet(self) -> smtplib.SMTP:
        if self._smtp.encryption is Encryption.FROM_START:
            self._connected = self._tls.wrap_socket(self._connected, server_hostname=self._smtp.host)
        return _Client(self._smtp, self._connected)

    def _hand_over(self, client: smtplib.SMTP, recipient: str, content: bytes) -> None:
        with _explained("its greeting"):
            client.ehlo_or_helo_if_needed()
        with _explained("STARTTLS"):
            self._encrypt(client)
        if self._smtp.user is not None and self._smtp.password is not None:
            with _explained("the user and password of TUMIRA_SMTP_URL"):
                client.login(self._smtp.user, self._smtp.password)
        with _explained("the mail"):
            client.sendmail(self._smtp.sender_address, [recipient], content)

    def _encrypt(self, client: smtplib.SMTP) -> None:
        match self._smtp.encryption:
            case Encryption.FROM_START:
                pass
            case Encryption.REQUIRED:
                client.starttls(context=self._tls)
            case Encryption.WHEN_OFFERED:
                if client.has_extn("starttls"):
                    client.starttls(context=self._tls)
            case _:
                assert_never(self._smtp.encryption)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what a server answers, and what happens on the line, into a MailError.

    Only what is answered to the recipient or to the text is final: a user or a sender that is refused is the
    operator's to put right, and mails wait for that as long as they are of use.
    """
    try:
        yield
    except smtplib.SMTPRecipientsRefused as error:
        ((code, words),) = error.recipients.values()
        raise _answered(code, words, "the recipient", may_be_final=True) from None
    except smtplib.SMTPSenderRefused as error:
        raise _answered(error.smtp_code, error.smtp_error, "the sender") from None
    except smtplib.SMTPResponseException as error:
        may_be_final = isinstance(error, smtplib.SMTPDataError)
        raise _answered(error.smtp_code, error.smtp_error, what, may_be_final=may_be_final) from None
    except smtplib.SMTPServerDisconnected:
        raise MailDelayedError(f"The mail server closed the connection at {what}.") from None
    except smtplib.SMTPException:
        raise MailDelayedError(f"The mail server has no way that we know for {what}.") from None
    except (OSError, ValueError) as error:
        raise MailDelayedError(
            f"The connection to the mail server failed at {what}: {_why(error)}."
        ) from None


def _answered(code: int, words: bytes | str, what: str, *, may_be_final: bool = False) -> MailError:
    kind = MailRefusedError if may_be_final and code >= _PERMANENT else MailDelayedError
    detail = _DETAIL.match(words if isinstance(words, bytes) else words.encode())
    shown = f"{code} {detail[0].decode()}" if detail else str(code)
    return kind(f"The mail server answered {shown} to {what}.")


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return error.reason or type(error).__name__
    if isinstance(error, ConnectionError) and error.errno:
        # The event loop's own words name the address instead of the reason.
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
