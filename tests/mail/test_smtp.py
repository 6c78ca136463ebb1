"""SMTP client against a real server: content, login, TLS, answers and time limits."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import pytest

from tests.support.mail.server import mail_server
from tests.support.webhooks.receivers import Authority, closed_port, deaf_port
from tumira.core.ids import new_id
from tumira.core.settings import Encryption, Smtp, load
from tumira.mail.outbox import Mail
from tumira.mail.smtp import (
    MailDelayedError,
    Mailer,
    MailError,
    MailRefusedError,
    write_mail,
)

ANNA: Final = "anna@example.org"
LOGIN: Final = ("tumira", "s3cret-words")
SUBJECT: Final = "Ihr Schlüssel: 📨 " + "grüßende Wörter " * 20 + "👩‍👩‍👧 Ende"
BODY: Final = (
    "Grüße aus Harare! 📨 👩‍👩‍👧\n\n.\n.. two dots\nFrom here on = and =3D stay\n"
    + "ä" * 3000
    + "\n"
    + "long " * 500
    + "\nnot  two words\t.\n"
)

pytestmark = pytest.mark.usefixtures("nothing_fails_unseen")


def settings(url: str, sender: str = "Tümira GmbH <no-reply@sms.example>") -> Smtp:
    found = load({"TUMIRA_SMTP_URL": url, "TUMIRA_MAIL_FROM": sender}, Path("/nowhere/.env")).smtp
    assert found is not None
    return found


def new_mail(recipient: str = ANNA, subject: str = "Your code", body: str = "493817\n") -> Mail:
    return Mail(new_id(1_790_000_000_000), recipient, subject, body, tries=1, left_s=600)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def test_a_mail_arrives_whole_with_its_headers() -> None:
    sent = new_mail(subject=SUBJECT, body=BODY)
    with mail_server() as server:
        await Mailer(settings(server.url)).send(sent)
        mail = server.wait_for(ANNA)

    assert (mail.recipient, mail.sender) == (ANNA, "no-reply@sms.example")
    assert mail.subject == SUBJECT
    assert mail.body == BODY
    assert mail.headers["From"] == "Tümira GmbH <no-reply@sms.example>"
    assert mail.headers["To"] == ANNA
    assert mail.headers["Message-ID"] == f"<{sent.id}@sms.example>"
    assert mail.headers["Auto-Submitted"] == "auto-generated"
    assert mail.headers["Content-Type"] == 'text/plain; charset="utf-8"'
    assert abs(parsedate_to_datetime(mail.headers["Date"]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert not mail.is_encrypted


async def test_a_file_arrives_with_its_mail() -> None:
    file = bytes(range(256)) * 100
    with mail_server() as server:
        mail = replace(new_mail(body=BODY), attachment=file, attachment_name="statement-2026-10.pdf")
        await Mailer(settings(server.url)).send(mail)
        came = server.wait_for(ANNA)
    assert came.body == BODY
    assert came.attachments == {"statement-2026-10.pdf": file}


def test_a_mail_is_written_in_short_lines_of_ascii() -> None:
    mail = new_mail(subject=SUBJECT, body=BODY)
    written = write_mail(settings("smtp://127.0.0.1"), mail, datetime.now(UTC))
    assert written.isascii()
    lines = written.split(b"\r\n")
    assert max(map(len, lines)) <= 78
    assert not any(b"\r" in line or b"\n" in line for line in lines)


async def test_a_sender_without_a_name_and_one_without_a_domain_of_its_own_can_send() -> None:
    with mail_server() as server:
        await Mailer(settings(server.url, "no-reply@sms.example")).send(new_mail())
        own = load({"TUMIRA_SMTP_URL": server.url}, Path("/nowhere/.env")).smtp
        assert own is not None
        await Mailer(own).send(new_mail())
        first, second = server.wait_for(ANNA), server.wait_for(ANNA, 2)

    assert first.headers["From"] == "no-reply@sms.example"
    assert second.headers["From"] == "Tumira <no-reply@[127.0.0.1]>"
    assert second.sender == "no-reply@[127.0.0.1]"


@pytest.mark.parametrize(
    "recipient",
    [
        "",
        "@example.org",
        "anna@example.org\r\nBcc: eve@example.org",
        "anna@example.org\n",
        "anna@example.org,eve@example.org",
        "anna@example.org eve@example.org",
        "anna@example.org> SIZE=1\r\nRCPT TO:<eve@example.org",
        "Anna <anna@example.org>",
        '"anna\r\n"@example.org',
        "änna@example.org",
        "an..na@example.org",
        "anna@" + "a." * 130 + "org",
    ],
)
def test_a_recipient_that_is_no_single_address_is_refused(recipient: str) -> None:
    with pytest.raises(MailRefusedError, match="recipient"):
        write_mail(settings("smtp://127.0.0.1"), new_mail(recipient), datetime.now(UTC))


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n", "\0", "\x0b", "\x85", "\u2028", "\u2029"])
def test_a_subject_with_a_line_break_is_refused(line_break: str) -> None:
    forged = new_mail(subject=f"Hello{line_break}Bcc: eve@example.org")
    with pytest.raises(MailRefusedError, match="subject"):
        write_mail(settings("smtp://127.0.0.1"), forged, datetime.now(UTC))


async def test_a_body_cannot_end_its_mail_and_begin_another() -> None:
    forged = "\r\n.\r\nMAIL FROM:<eve@example.org>\r\nRCPT TO:<eve@example.org>\r\nDATA\r\nhello\r\n.\r\n"
    with mail_server() as server:
        for line_end in ("\r\n", "\n", "\r"):
            await Mailer(settings(server.url)).send(new_mail(body=forged.replace("\r\n", line_end)))
            assert server.mails[-1].body == forged.replace("\r\n", "\n")
        assert [mail.recipient for mail in server.mails] == [ANNA] * 3


async def test_a_server_that_wants_a_user_gets_one_as_it_was_before_it_was_written_into_the_url() -> None:
    login = ("user@example.org", "p@ss: w/rd?#%")
    with mail_server(login=login) as server:
        url = f"smtp://user%40example.org:p%40ss%3A%20w%2Frd%3F%23%25@127.0.0.1:{server.port}"
        await Mailer(settings(url)).send(new_mail())
        assert server.wait_for(ANNA).user == login[0]
        assert server.logins == [login]


async def test_a_wrong_password_delays_the_mail_until_the_operator_has_put_it_right() -> None:
    with mail_server(login=LOGIN) as server:
        url = server.url.replace("s3cret", "other")
        with pytest.raises(
            MailDelayedError, match=r"answered 535 5\.7\.8 to the user and password of"
        ) as caught:
            await Mailer(settings(url)).send(new_mail())
        assert "other" not in str(caught.value)
        with pytest.raises(MailDelayedError, match=r"answered 530 5\.7\.0 to the sender"):
            await Mailer(settings(f"smtp://127.0.0.1:{server.port}")).send(new_mail())
        assert server.mails == []


@pytest.mark.parametrize("from_start", [False, True])
async def test_tls_is_used_when_it_is_offered_and_when_it_is_asked_for(
    authority: Authority, *, from_start: bool
) -> None:
    trusting = authority.trust(ssl.create_default_context())
    ours = authority.issue("127.0.0.1")
    tls, starttls = (ours, None) if from_start else (None, ours)
    with mail_server(tls=tls, starttls=starttls, login=LOGIN) as server:
        await Mailer(settings(server.url), tls=trusting).send(new_mail(body=BODY))
        mail = server.wait_for(ANNA)
    assert (mail.body, mail.user) == (BODY, LOGIN[0])
    # The server notes STARTTLS alone.
    assert mail.is_encrypted or server.url.startswith("smtps://")


@pytest.mark.parametrize("from_start", [False, True])
async def test_a_certificate_that_is_not_trusted_ends_the_call_before_the_password(
    authority: Authority, *, from_start: bool
) -> None:
    trusting = authority.trust(ssl.create_default_context())
    for theirs in (authority.issue_self_signed("localhost"), authority.issue("mail.example.org")):
        tls, starttls = (theirs, None) if from_start else (None, theirs)
        with mail_server(tls=tls, starttls=starttls, login=LOGIN) as server:
            url = server.url.replace("127.0.0.1", "localhost")
            with pytest.raises(MailDelayedError, match="certificate is not trusted"):
                await Mailer(settings(url), tls=trusting).send(new_mail())
            assert (server.logins, server.asked, server.mails) == ([], [], [])


async def test_a_server_that_lost_its_starttls_on_the_way_gets_neither_password_nor_mail() -> None:
    with mail_server(login=LOGIN) as server:
        smtp = settings(server.url)
        # What a password for another machine makes of it.
        elsewhere = settings(server.url.replace("127.0.0.1", "mail.example.org"))
        assert (smtp.encryption, elsewhere.encryption) == (Encryption.WHEN_OFFERED, Encryption.REQUIRED)
        with pytest.raises(MailDelayedError, match="no way that we know for STARTTLS"):
            await Mailer(replace(smtp, encryption=Encryption.REQUIRED)).send(new_mail())
        assert (server.logins, server.asked) == ([], [])
        await Mailer(smtp).send(new_mail())
        assert server.logins == [LOGIN]


@pytest.mark.parametrize(
    ("what", "answer", "expected"),
    [
        ("sender", "451 4.3.0 Try later", MailDelayedError),
        ("sender", "550 5.7.1 Not from there", MailDelayedError),
        ("recipient", f"450 4.2.1 <{ANNA}>: greylisted", MailDelayedError),
        ("recipient", f"550 5.1.1 <{ANNA}>: no such user", MailRefusedError),
        ("mail", "452 4.3.1 Full", MailDelayedError),
        ("mail", "554 5.6.0 Looks like spam: 493817", MailRefusedError),
    ],
)
async def test_a_refusal_is_told_by_its_numbers_and_only_one_of_the_mail_itself_is_final(
    what: str, answer: str, expected: type[MailError]
) -> None:
    with mail_server() as server:
        answers = {
            "sender": server.sender_answers,
            "recipient": server.recipient_answers,
            "mail": server.text_answers,
        }
        answers[what].append(answer)
        mailer = Mailer(settings(server.url))
        with pytest.raises(MailError) as caught:
            await mailer.send(new_mail())
        assert type(caught.value) is expected
        assert str(caught.value).endswith(f"answered {answer[:9]} to the {what}.")
        # The same mail, once nothing is refused.
        await mailer.send(new_mail())
        assert len(server.mails) == 1


async def test_a_server_that_is_away_delays_a_mail() -> None:
    with (
        closed_port() as port,
        pytest.raises(MailDelayedError, match="cannot be reached: Connection refused"),
    ):
        await Mailer(settings(f"smtp://127.0.0.1:{port}")).send(new_mail())


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_a_server_that_never_says_a_word_holds_nobody_up(scheme: str) -> None:
    with deaf_port() as port, pytest.raises(MailDelayedError, match=r"took longer than 0\.3 seconds"):
        await Mailer(settings(f"{scheme}://127.0.0.1:{port}")).send(new_mail(), 0.3)


@asynccontextmanager
async def scripted(*replies: bytes, then_drip: bytes = b"") -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run a server that answers each command with the next reply, then drips octets or is silent."""
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            for reply in replies:
                writer.write(reply)
                heard.append(await reader.read(65536))
            while then_drip:
                writer.write(then_drip)
                await writer.drain()
                await asyncio.sleep(0.02)
            while await reader.read(65536):
                pass
        writer.close()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        yield f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard


@pytest.mark.parametrize("drip", [b"2", b"220-more\r\n"])
async def test_a_server_that_drips_is_cut_off(drip: bytes) -> None:
    async with scripted(then_drip=drip) as (url, _):
        with pytest.raises(MailDelayedError, match="took longer"):
            await Mailer(settings(url)).send(new_mail(), 0.5)


@pytest.mark.parametrize(
    "reply", [b"554 no\r\n", b"\x16\x03\x01\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"x" * 20_000]
)
async def test_a_server_that_is_none_delays_a_mail(reply: bytes) -> None:
    async with scripted(reply) as (url, _):
        with pytest.raises(MailDelayedError):
            await Mailer(settings(url)).send(new_mail(), 1)


async def test_a_server_that_is_slow_to_say_goodbye_has_taken_the_mail() -> None:
    hello = (b"220 hello\r\n", b"250 hello\r\n")
    taken = (b"250 ok\r\n", b"250 ok\r\n", b"354 go on\r\n", b"250 taken\r\n")
    async with scripted(*hello, *taken) as (url, heard):
        await Mailer(settings(url)).send(new_mail(), 1)
    assert heard[0] == b"EHLO [127.0.0.1]\r\n"
    assert heard[-1] == b"QUIT\r\n"


async def test_cancelling_ends_the_call() -> None:
    async with scripted(b"220 hello\r\n") as (url, heard):
        sending = asyncio.create_task(Mailer(settings(url)).send(new_mail()))
        async with asyncio.timeout(40):
            while not heard:  # noqa: ASYNC110 - there is nothing to wait for but the list
                await asyncio.sleep(0.01)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(sending, 20)
