"""The HTTP client is not led to private addresses, proxies or servers without a valid certificate."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.webhooks.calls import BODY, NAME, Names, calling, calling_tls, failure, post
from tests.support.webhooks.receivers import WAIT_S, Authority, answer, deaf_port, run_receiver
from tumira.core.dns import Resolver
from tumira.webhooks.http_client import CallFailedError, Timeouts, WebhookClient, default_tls
from tumira.webhooks.http_response import HttpResponse
from tumira.webhooks.url import parse

pytestmark = pytest.mark.usefixtures("nothing_fails_unseen")


def guarded(url: str, names: Names) -> WebhookClient:
    return WebhookClient(parse(url, allow_private=False), allow_private=False, resolve=names, tls=None)


# Where it may call.


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "10.0.0.1"],
        ["2001:4860:4860::8888", "8.8.8.8", "::ffff:127.0.0.1"],
        ["64:ff9b::a9fe:a9fe"],
        ["fe80::1%eth0"],
        ["nonsense"],
        ["8.8.8.8"] * 20 + ["127.0.0.1"],
    ],
)
async def test_a_name_with_any_address_that_is_not_public_is_not_called(addresses: list[str]) -> None:
    async with run_receiver() as receiver:
        client = guarded(f"https://{NAME}:{receiver.port}/", Names(addresses))
        assert await failure(client) == f"{NAME} resolves to an address that is not public."
    assert receiver.connections == 0


class Redirected(WebhookClient):
    """A client for which public addresses lie on the loopback, as no test may call the real ones."""

    dialled: list[str]

    async def _connect(self, address: str) -> Any:
        self.dialled.append(address)
        return await super()._connect("127.0.0.1")


async def test_a_name_that_moves_inside_after_its_first_call_is_refused_from_then_on(
    authority: Authority,
) -> None:
    names = Names(["8.8.8.8"], ["127.0.0.1"])
    async with run_receiver(tls=authority.issue(NAME)) as receiver:
        client = Redirected(
            parse(receiver.url_as(NAME), allow_private=False),
            allow_private=False,
            resolve=names,
            tls=authority.trust(default_tls()),
        )
        client.dialled = []
        # One connection is resolved once: both calls go where the first one was allowed to.
        assert (await post(client, BODY)).status == 200
        assert (await post(client, BODY)).status == 200
        assert names.asked == [(NAME, receiver.port)]
        await receiver.close_lines()
        assert await failure(client) == f"{NAME} resolves to an address that is not public."
        assert len(names.asked) == 2
        assert client.dialled == ["8.8.8.8"]
        client.close()
    assert receiver.connections == 1


async def test_an_address_in_place_of_a_name_is_judged_without_resolving_it() -> None:
    names = Names(["8.8.8.8"])
    target = parse("https://127.0.0.1/", allow_private=True)
    client = WebhookClient(target, allow_private=False, resolve=names, tls=None)
    with pytest.raises(CallFailedError, match="is an address that is not public"):
        await post(client, BODY)
    assert names.asked == []


async def test_the_next_address_is_tried_when_one_refuses() -> None:
    names = Names(["127.0.0.2", "127.0.0.1"])
    async with run_receiver() as receiver, calling(receiver.url_as(NAME), names=names) as client:
        assert (await post(client, BODY)).status == 200


async def test_a_name_that_does_not_resolve_is_said_to_be_so() -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    for found in (unknown, OSError("anything"), ()):
        async with calling(f"http://{NAME}:8080/", names=Names(found)) as client:
            assert await failure(client) == f"{NAME} does not resolve to an address."

    async def never(_: str, __: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    target = parse(f"http://{NAME}:8080/", allow_private=True)
    timeouts = Timeouts(resolve_s=0.05)
    client = WebhookClient(target, allow_private=True, resolve=never, tls=None, timeouts=timeouts)
    assert await failure(client) == f"{NAME} did not resolve within 0.05 seconds."


async def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async with (
        run_receiver() as other,
        run_receiver(answer(307, {"location": other.url})) as receiver,
        calling(receiver.url) as client,
    ):
        for _ in range(2):
            assert (await post(client, BODY)).status == 307
    assert (other.connections, receiver.connections) == (0, 1)


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_receiver() as proxy, run_receiver() as receiver, calling(receiver.url) as client:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert (await post(client, BODY)).status == 200
    assert proxy.connections == 0


# TLS.


async def test_tls_asks_for_the_name_and_checks_the_certificate_against_it(authority: Authority) -> None:
    async with calling_tls(authority.issue(NAME), authority) as (receiver, client):
        for _ in range(3):
            assert await post(client, BODY) == HttpResponse(200, None, b"thanks")
    assert receiver.names == [NAME]
    assert receiver.connections == 1


async def test_a_certificate_that_is_not_valid_for_the_name_is_refused(authority: Authority) -> None:
    for context, words in (
        (authority.issue("other.example.com"), f"The certificate does not fit {NAME}."),
        # One for the address does not do for the name.
        (authority.issue("127.0.0.1"), f"The certificate does not fit {NAME}."),
        (authority.issue_self_signed(NAME), f"The certificate of {NAME} is self-signed."),
    ):
        async with calling_tls(context, authority) as (receiver, client):
            assert await failure(client) == words
        assert receiver.requests == []
    # An authority that the system does not know.
    async with run_receiver(tls=authority.issue(NAME)) as receiver, calling(receiver.url_as(NAME)) as client:
        assert await failure(client) == (
            f"The certificate of {NAME} comes without those that join it to a trusted authority."
        )
    assert default_tls().minimum_version.name == "TLSv1_2"


async def test_a_server_without_tls_is_refused(authority: Authority) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, calling(f"https://{NAME}:{port}/", authority=authority) as client:
        words = await failure(client)
    assert words.startswith(("The TLS handshake failed", "The connection was closed"))


async def test_a_server_that_never_begins_tls_is_not_waited_for(authority: Authority) -> None:
    with deaf_port() as port:
        url = f"https://{NAME}:{port}/"
        async with calling(url, authority=authority, timeouts=Timeouts(connect_s=0.1)) as client:
            assert await failure(client) == "No connection within 0.1 seconds."


# Resolving.


async def test_the_resolver_finds_the_loopback_and_says_what_it_cannot_find() -> None:
    assert "127.0.0.1" in await Resolver()("localhost", 443)
    for name in ("nothing.invalid", "a" * 64 + ".example.com"):
        with pytest.raises(OSError, match=r"."):
            await Resolver()(name, 443)


async def test_those_who_ask_for_a_name_at_the_same_time_share_one_lookup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookups = count_lookups(monkeypatch)
    resolver = Resolver()
    found = await asyncio.gather(*(resolver("localhost", 443) for _ in range(20)))
    assert len(lookups) == 1
    assert len({tuple(addresses) for addresses in found}) == 1
    await resolver("localhost", 443)
    assert len(lookups) == 2


async def test_names_wait_their_turn_when_many_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = count_lookups(monkeypatch)
    resolver = Resolver(lookups_max=1)
    names = ["localhost", "127.0.0.1", "127.0.0.2", "::1"]
    found = await asyncio.gather(*(resolver(name, 443) for name in names))
    assert [list(addresses) for addresses in found[1:]] == [["127.0.0.1"], ["127.0.0.2"], ["::1"]]
    assert sorted(lookups) == sorted(names)


def count_lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    system = socket.getaddrinfo

    def noting(host: str, *arguments: Any, **options: Any) -> Any:
        asked.append(host)
        return system(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", noting)
    return asked


STUCK = """
import asyncio, socket, threading
from tumira.core.dns import Resolver
socket.getaddrinfo = lambda *_, **__: threading.Event().wait()
async def ask(resolver, name):
    try:
        await resolver(name, 443)
    except OSError as error:
        print(type(error).__name__, error)
async def main():
    resolver = Resolver(lookup_s=0.05, lookups_max=2)
    for name in ("a.example.com", "a.example.com", "b.example.com", "c.example.com"):
        await ask(resolver, name)
    print(threading.active_count())
asyncio.run(main())
"""


def test_a_lookup_that_is_stuck_holds_up_neither_callers_nor_the_end_of_the_process() -> None:
    folder = Path(__file__).parents[2]
    command = [sys.executable, "-c", STUCK]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert done.stdout.splitlines() == [
        "TimeoutError a.example.com did not resolve within 0.05 s",
        "TimeoutError a.example.com did not resolve within 0.05 s",
        "TimeoutError b.example.com did not resolve within 0.05 s",
        "TimeoutError c.example.com did not resolve within 0.05 s",
        "3",
    ]
