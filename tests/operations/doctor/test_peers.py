"""Carriers and mail servers: real ones, dead ones, silent ones, and those with a wrong certificate."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.support.mail.server import mail_server
from tests.support.webhooks.receivers import Authority, closed_port, deaf_port, run_receiver
from tumira.carriers import url as carrier_url
from tumira.carriers.store import Carrier, HttpAccess
from tumira.core.dns import Resolver
from tumira.core.settings import load
from tumira.operations.doctor import carriers, examine
from tumira.operations.doctor.carriers import CarrierPlace, check_carrier, place_of
from tumira.operations.doctor.diagnosis import Diagnosis, Level

LOGIN: Final = ("tumira", "s3cret-words")
HOST: Final = "127.0.0.1"


async def look(port: int, *, tls: bool = False, host: str = HOST) -> Diagnosis:
    return await check_carrier("econet", CarrierPlace(host, port, tls), Resolver())


@contextmanager
def black_hole() -> Iterator[int]:
    """Give a port whose packets get no answer: its queue of connections is full."""
    with socket.socket() as listening, socket.socket() as first, socket.socket() as second:
        listening.bind((HOST, 0))
        listening.listen(0)
        for one in (first, second):
            one.settimeout(0)
            one.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


async def test_a_carrier_is_connected_to_and_neither_bound_nor_asked() -> None:
    heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.set_result(await reader.read())
        writer.close()

    async with await asyncio.start_server(listen, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await look(port)
        assert await heard == b""
    assert (found.level, found.found) == (Level.OK, f"econet: {HOST}:{port} takes connections, without TLS.")


async def test_a_carrier_that_is_away_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carriers, "CONNECT_S", 0.5)
    with closed_port() as closed, black_hole() as hole, deaf_port() as deaf:
        refused, silent, deaf_to_tls, nameless = await asyncio.gather(
            look(closed), look(hole), look(deaf, tls=True), look(closed, host="no.such.host.invalid")
        )
    assert {one.level for one in (refused, silent, deaf_to_tls, nameless)} == {Level.PROBLEM}
    assert "(Connection refused)" in refused.found
    assert "does not answer within" in silent.found
    assert "allows the IP address" in silent.advice
    assert "does not answer within" in deaf_to_tls.found
    assert "tumira carrier show econet" in nameless.advice


async def test_a_certificate_has_to_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    async with run_receiver(tls=authority.issue(HOST)) as receiver:
        untrusted = await look(receiver.port, tls=True)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        trusted = await look(receiver.port, tls=True)
        assert receiver.requests == []
    assert (untrusted.level, "unable to get local issuer" in untrusted.found) == (Level.PROBLEM, True)
    assert (trusted.level, trusted.found.endswith("with TLS.")) == (Level.OK, True)


def test_a_carrier_over_http_is_reached_by_its_address_or_through_the_proxy() -> None:
    access = HttpAccess("twilio", None, "https://api.example/2010", {}, {}, "token")
    settings = carrier_url.parse("smpps://user:password@smpp.example:3550")
    smpp = Carrier(1, "econet", settings, None, 1, None)  # type: ignore[arg-type]
    http = replace(smpp, http=access)
    proxy = "http://user:password@proxy.example:3128"
    assert place_of(smpp, proxy) == CarrierPlace("smpp.example", 3550, tls=True)
    assert place_of(http, None) == CarrierPlace("api.example", 443, tls=True)
    assert str(place_of(http, proxy)) == "the proxy proxy.example:3128"


async def test_without_carriers_messages_wait() -> None:
    (found,) = await carriers.check_carriers([], None)
    assert found.level is Level.WARNING


async def look_at_mail(url: str | None) -> Diagnosis:
    given = {} if url is None else {"TUMIRA_SMTP_URL": url}
    (found,) = await examine._check_mail(load(given, Path("/nowhere/.env")))
    return found


async def test_a_mail_server_is_greeted_and_gets_no_mail() -> None:
    with mail_server(login=LOGIN) as server:
        taken = await look_at_mail(server.url)
        refused = await look_at_mail(server.url.replace(LOGIN[1], "wrong"))
        assert (server.mails, server.asked) == ([], [])
        assert set(server.logins) == {LOGIN, (LOGIN[0], "wrong")}
    away = await look_at_mail(server.url)
    assert (taken.level, "takes our login" in taken.found) == (Level.OK, True)
    assert (refused.level, "the user and password of TUMIRA_SMTP_URL" in refused.found) == (
        Level.PROBLEM,
        True,
    )
    assert (away.level, "Connection refused" in away.found) == (Level.PROBLEM, True)
    assert "s3cret" not in f"{taken}{refused}{away}"
    assert (await look_at_mail(None)).level is Level.OK


async def test_a_mail_server_with_tls_is_encrypted_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with mail_server(tls=authority.issue(HOST)) as server:
        untrusted = await look_at_mail(server.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
        trusted = await look_at_mail(server.url)
    assert (untrusted.level, "certificate is not trusted" in untrusted.found) == (Level.PROBLEM, True)
    assert trusted.level is Level.OK
