"""A mail server that keeps what it is sent and refuses what a test says.

    with mail_server() as server:
        ...  # a process with TUMIRA_SMTP_URL=server.url
        mail = server.wait_for("anna@example.org")
        assert mail.subject == "Your code"

It runs in a thread of its own and speaks real SMTP. `wait_for` blocks: inside an event loop in which
something else has to go on, use `await server.arrival(...)`.
"""

import asyncio
import socket
import ssl
import threading
from collections import deque
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from typing import Any, Final

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

WAIT_S: Final = 40.0
_TAKEN: Final = "250 2.0.0 Taken"


@dataclass(frozen=True, slots=True)
class ReceivedMail:
    """A mail as it came: for whom and from whom by the envelope, the rest as a reader would show it."""

    recipient: str
    sender: str
    subject: str
    body: str
    headers: Mapping[str, str]
    is_encrypted: bool
    user: str | None
    # The content of each, by the name of its file.
    attachments: Mapping[str, bytes]


@dataclass(slots=True)
class MailServer:
    """What a test sees of the server; each answer is given once, then every mail is accepted."""

    port: int
    scheme: str
    login: tuple[str, str] | None
    mails: list[ReceivedMail] = field(default_factory=list)
    # Every user and password that came, right or wrong.
    logins: list[tuple[str, str]] = field(default_factory=list)
    # Every recipient that was named, accepted or not.
    asked: list[str] = field(default_factory=list)
    sender_answers: deque[str] = field(default_factory=deque)
    recipient_answers: deque[str] = field(default_factory=deque)
    text_answers: deque[str] = field(default_factory=deque)
    changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        """Return the server's address, with the user and password that it wants."""
        credentials = "" if self.login is None else f"{self.login[0]}:{self.login[1]}@"
        return f"{self.scheme}://{credentials}127.0.0.1:{self.port}"

    def wait_for(self, recipient: str, count: int = 1, timeout_s: float = WAIT_S) -> ReceivedMail:
        """Wait until a recipient has `count` mails, and return the last of them."""
        with self.changed:
            came = self.changed.wait_for(lambda: len(self.mails_to(recipient)) >= count, timeout_s)
            assert came, f"{len(self.mails_to(recipient))} of {count} mails came to {recipient}"
            return self.mails_to(recipient)[count - 1]

    async def arrival(self, recipient: str, count: int = 1, timeout_s: float = WAIT_S) -> ReceivedMail:
        return await asyncio.to_thread(self.wait_for, recipient, count, timeout_s)

    async def asking(self, recipient: str, count: int = 1, timeout_s: float = WAIT_S) -> None:
        """Wait until this recipient was named `count` times."""

        def wait() -> bool:
            with self.changed:
                return self.changed.wait_for(lambda: self.asked.count(recipient) >= count, timeout_s)

        assert await asyncio.to_thread(wait), f"nobody wanted to send to {recipient} {count} times"

    def mails_to(self, recipient: str) -> list[ReceivedMail]:
        return [mail for mail in self.mails if mail.recipient == recipient]


class _Handler:
    """Takes mails for a MailServer; its methods are called by aiosmtpd, in the server's thread."""

    def __init__(self, server: MailServer) -> None:
        self._server = server

    async def handle_MAIL(  # noqa: N802 - aiosmtpd looks for this name
        self, _smtp: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        # aiosmtpd can ask for a login by itself, but warns when it is to do so without TLS.
        if self._server.login is not None and not session.authenticated:
            return "530 5.7.0 Authentication required"
        if self._server.sender_answers:
            return self._server.sender_answers.popleft()
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return _TAKEN

    async def handle_RCPT(  # noqa: N802 - aiosmtpd looks for this name
        self, _smtp: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        with self._server.changed:
            self._server.asked.append(address)
            self._server.changed.notify_all()
        if self._server.recipient_answers:
            return self._server.recipient_answers.popleft()
        envelope.rcpt_tos.append(address)
        envelope.rcpt_options.extend(options)
        return _TAKEN

    async def handle_DATA(  # noqa: N802 - aiosmtpd looks for this name
        self, _smtp: SMTP, session: Session, envelope: Envelope
    ) -> str:
        if self._server.text_answers:
            return self._server.text_answers.popleft()
        with self._server.changed:
            for recipient in envelope.rcpt_tos:
                self._server.mails.append(_read(recipient, session, envelope))
            self._server.changed.notify_all()
        return _TAKEN

    def authenticate(
        self, _smtp: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        given = (data.login.decode(), data.password.decode())
        self._server.logins.append(given)
        return AuthResult(success=given == self._server.login, handled=False, auth_data=given[0])


def _read(recipient: str, session: Session, envelope: Envelope) -> ReceivedMail:
    assert isinstance(envelope.content, bytes)
    message = message_from_bytes(envelope.content, policy=policy.default)
    assert not message.defects
    text = message.get_body(("plain",))
    assert text is not None
    return ReceivedMail(
        recipient=recipient,
        sender=envelope.mail_from or "",
        subject=str(message["Subject"]),
        body=text.get_content().replace("\r\n", "\n"),
        headers={name: str(value) for name, value in message.items()},
        is_encrypted=session.ssl is not None,
        user=session.auth_data if session.authenticated else None,
        attachments={part.get_filename() or "": part.get_content() for part in message.iter_attachments()},
    )


class _Controller(Controller):
    """Listens on a socket that is bound already: aiosmtpd cannot tell which port the system chose."""

    def __init__(self, handler: _Handler, listening: socket.socket, **options: Any) -> None:
        self._listening = listening
        super().__init__(handler, *listening.getsockname()[:2], server_hostname="localhost", **options)

    def _create_server(self) -> Awaitable[asyncio.AbstractServer]:
        return self.loop.create_server(self._factory_invoker, sock=self._listening, ssl=self.ssl_context)


@contextmanager
def mail_server(
    *,
    bound: socket.socket | None = None,
    login: tuple[str, str] | None = None,
    starttls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[MailServer]:
    """Run a mail server on this machine, with STARTTLS or with TLS from the start if a context is given.

    A socket that is `bound` refuses connections until the server listens on it: so one is away, and comes.
    """
    listening = bound or socket.create_server(("127.0.0.1", 0))
    server = MailServer(listening.getsockname()[1], "smtp" if tls is None else "smtps", login)
    handler = _Handler(server)
    controller = _Controller(
        handler,
        listening,
        ssl_context=tls,
        tls_context=starttls,
        authenticator=handler.authenticate,
        auth_require_tls=False,
    )
    controller.start()
    try:
        yield server
    finally:
        controller.stop()
