"""Binds to a carrier, with and without TLS, and the reasons when they fail."""

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.support.delivery.smpp_peer import Carrier, RecordingListener, delivery, pdu
from tests.support.delivery.smpp_session import (
    BODY,
    DELIVER,
    DELIVER_RESP,
    ENQUIRE,
    ENQUIRE_RESP,
    NACK,
    RECEIPT,
    SUBMIT_RESP,
    UNBIND,
    UNBIND_RESP,
    at,
)
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.pdu import Command
from tumira.delivery.smpp.session import BindRefusedError, SmppSession, connect

pytestmark = pytest.mark.usefixtures("nothing_fails_unseen")


@pytest.mark.parametrize(
    "command", [Command.BIND_RECEIVER, Command.BIND_TRANSMITTER, Command.BIND_TRANSCEIVER]
)
async def test_a_bind_says_who_we_are_and_hears_who_they_are(carrier: Carrier, command: Command) -> None:
    task = asyncio.create_task(connect(at(carrier.port), command, RecordingListener()))
    line = await carrier.line()
    heard = await line.let_in()
    assert heard == (command, 0, 1, b"tumira\0secret\0\0\x34\0\0\0")
    session = await task
    assert session.peer_system_id == "smsc"
    assert session.outstanding == 0
    session.abort()


@pytest.mark.parametrize(
    ("command", "status", "body", "words"),
    [
        (0x8000_0009, 0x0F, b"smsc\0", "RINVSYSID (0x0F)"),
        (NACK, 0x03, b"", "RINVCMDID (0x03)"),
    ],
)
async def test_a_refused_bind_is_raised_with_its_status(
    carrier: Carrier, command: int, status: int, body: bytes, words: str
) -> None:
    listener = RecordingListener()
    task = asyncio.create_task(connect(at(carrier.port), Command.BIND_TRANSCEIVER, listener))
    line = await carrier.line()
    bind = await line.hear()
    await line.say(pdu(command, bind.sequence, body, status))
    with pytest.raises(BindRefusedError) as refused:
        await task
    assert (refused.value.status, refused.value.words) == (status, words)
    assert await line.hear_end() == b""
    assert listener.ends == []


async def test_a_bind_that_is_never_answered_is_given_up(carrier: Carrier) -> None:
    listener = RecordingListener()
    opening = connect(at(carrier.port), Command.BIND_TRANSCEIVER, listener, timing=SmppTimeouts(bind_s=0.5))
    with pytest.raises(TimeoutError, match="did not answer"):
        await opening
    line = await carrier.line()
    assert (await line.hear()).command == Command.BIND_TRANSCEIVER
    assert await line.hear_end() == b""
    assert listener.ends == []


GARBAGE = b"HTTP/1.1 400 Bad Request\r\n\r\n"


@pytest.mark.parametrize("octets", [b"", GARBAGE, pdu(0x8000_0009, 1, b"smsc\0") + GARBAGE])
async def test_a_line_that_ends_before_or_with_the_bind_is_raised_and_never_told(
    carrier: Carrier, octets: bytes
) -> None:
    listener = RecordingListener()
    task = asyncio.create_task(connect(at(carrier.port), Command.BIND_TRANSCEIVER, listener))
    line = await carrier.line()
    await line.hear()
    await line.say(octets)
    line.writer.close()
    with pytest.raises(ConnectionError):
        await task
    assert listener.ends == []


async def test_giving_up_a_bind_closes_its_connection(carrier: Carrier) -> None:
    listener = RecordingListener()
    task = asyncio.create_task(connect(at(carrier.port), Command.BIND_TRANSCEIVER, listener))
    line = await carrier.line()
    await line.hear()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await line.hear_end() == b""
    assert listener.ends == []


async def test_a_bind_given_up_at_the_moment_of_its_answer_is_not_told_as_a_line_that_ended(
    carrier: Carrier,
) -> None:
    listener = RecordingListener()
    loop = asyncio.get_running_loop()
    _, session = await loop.create_connection(
        lambda: SmppSession(listener, SmppTimeouts()), "127.0.0.1", carrier.port
    )
    binding = asyncio.create_task(session.bind(Command.BIND_TRANSCEIVER, at(carrier.port)))
    line = await carrier.line()
    bind = await line.hear()
    session.data_received(pdu(0x8000_0009, bind.sequence, b"smsc\0"))
    binding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await binding
    assert await line.hear_end() == b""
    assert listener.ends == []


async def test_receipts_that_come_with_the_bind_are_heard_once_the_session_is_known(carrier: Carrier) -> None:
    class Eager(RecordingListener):
        session: SmppSession | None = None

        def settled(self) -> None:
            super().settled()
            assert self.session is not None
            self.session.acknowledge(self.tokens)

    listener = Eager()

    async def open_line() -> None:
        listener.session = await connect(at(carrier.port), Command.BIND_TRANSCEIVER, listener)

    task = asyncio.create_task(open_line())
    line = await carrier.line()
    await line.let_in(pdu(DELIVER, 900, delivery(RECEIPT)), pdu(ENQUIRE, 901), pdu(UNBIND, 902))
    await task
    await listener.wait(receipts=1, ends=1)
    heard = {(each.command, each.sequence) for each in await line.hear_many(3)}
    assert heard == {(DELIVER_RESP, 900), (ENQUIRE_RESP, 901), (UNBIND_RESP, 902)}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed; it makes the certificate of this test")
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    kind = ("-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    files = ("-keyout", str(key), "-out", str(chain))
    subprocess.run([program, "req", *kind, *names, *files], check=True, capture_output=True, timeout=60)
    return key, chain


async def test_tls_carries_a_session_when_the_certificate_is_trusted(certificate: tuple[Path, Path]) -> None:
    key, chain = certificate
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(chain, key)
    ours = ssl.create_default_context(cafile=str(chain))
    async with Carrier().listening(theirs) as carrier:
        listener = RecordingListener()
        opening = connect(at(carrier.port, tls=True), Command.BIND_TRANSCEIVER, listener, ssl_context=ours)
        task = asyncio.create_task(opening)
        line = await carrier.line()
        await line.let_in()
        session = await task
        session.submit("one", BODY)
        one = await line.hear()
        await line.say(pdu(SUBMIT_RESP, one.sequence, b"C1\0"))
        await listener.wait(answers=1)
        closing = asyncio.create_task(session.close(1))
        goodbye = await line.hear()
        await line.say(pdu(UNBIND_RESP, goodbye.sequence))
        await closing
        assert listener.ends == [([], "closed by us")]


async def test_tls_refuses_a_certificate_that_nobody_vouches_for(certificate: tuple[Path, Path]) -> None:
    key, chain = certificate
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(chain, key)
    async with Carrier().listening(theirs) as carrier:
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(at(carrier.port, tls=True), Command.BIND_TRANSCEIVER, RecordingListener())
