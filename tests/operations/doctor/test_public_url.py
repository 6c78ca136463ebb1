"""The public address, asked through proxies that treat headers in different ways."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.chaos.balancers import run_balancer
from tests.support.postgres.databases import clone
from tests.support.processes.service import Service, run_web
from tests.support.webhooks.receivers import Authority, closed_port, run_receiver, write_answer
from tumira.core.settings import Settings, load
from tumira.operations.doctor.diagnosis import Diagnosis, Level
from tumira.operations.doctor.mirror import HEADER, SeenRequest, new_token, write_token
from tumira.operations.doctor.public_url import FORGED, check_public_url, judge_seen, judge_trusted
from tumira.postgres.pool import Database

# The proxy's own address: Linux has all of 127.0.0.0/8.
PROXY: Final = "127.0.0.2"
CALLER: Final = "198.51.100.7"

Change = Callable[[list[str]], list[str]]


@pytest.fixture(scope="module")
def url(server_url: str) -> Iterator[str]:
    with clone(server_url) as made:
        yield made


@pytest.fixture(scope="module")
def plain(url: str) -> Iterator[Service]:
    with run_web(url) as running:
        yield running


@pytest.fixture(scope="module")
def trusting(url: str) -> Iterator[Service]:
    with run_web(url, TUMIRA_TRUSTED_PROXIES=PROXY) as running:
        yield running


def settings_of(url: str, public_url: str, trusted: str = "") -> Settings:
    given = {"TUMIRA_DATABASE_URL": url, "TUMIRA_PUBLIC_URL": public_url, "TUMIRA_TRUSTED_PROXIES": trusted}
    return load(given, Path("/nowhere/.env"))


async def look(url: str, public_url: str, trusted: str = "") -> dict[str, Diagnosis]:
    database = Database(url, connections_max=1)
    try:
        return {
            one.subject: one
            for one in await check_public_url(settings_of(url, public_url, trusted), database)
        }
    finally:
        await database.close()


def keep(lines: list[str]) -> list[str]:
    return lines


def strip(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.lower().startswith("x-forwarded-")]


def replace_all(lines: list[str]) -> list[str]:
    return [*strip(lines), f"x-forwarded-for: {CALLER}", "x-forwarded-proto: http"]


def append(lines: list[str]) -> list[str]:
    return [*lines, f"x-forwarded-for: {CALLER}"]


def wrong_scheme(lines: list[str]) -> list[str]:
    return [*strip(lines), f"x-forwarded-for: {CALLER}", "x-forwarded-proto: https"]


@asynccontextmanager
async def proxy(service: Service, change: Change) -> AsyncIterator[str]:
    """Run a proxy that passes each request on with changed headers, over a connection of its own."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
            lines = [line for line in lines if not line.lower().startswith("connection:")]
            port = int(service.base.rpartition(":")[2])
            there, onward = await asyncio.open_connection("127.0.0.1", port, local_addr=(PROXY, 0))
            onward.write("\r\n".join([first, *change(lines), "connection: close", "", ""]).encode("latin-1"))
            while data := await there.read(65_536):
                writer.write(data)
            onward.close()
        writer.close()

    server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_without_a_proxy_a_node_knows_its_callers(url: str, plain: Service) -> None:
    found = await look(url, plain.base)
    assert {name: one.level for name, one in found.items()} == {
        "public URL": Level.OK,
        "proxy": Level.OK,
        "clock": Level.OK,
    }
    assert f":{plain.process.pid}." in found["public URL"].found


CASES: Final = [
    ("plain", "", keep, Level.WARNING, "without the caller's address"),
    ("plain", "", strip, Level.WARNING, "without the caller's address"),
    ("plain", "", append, Level.PROBLEM, f"TUMIRA_TRUSTED_PROXIES={PROXY}"),
    ("trusting", PROXY, keep, Level.PROBLEM, "can forge their address"),
    ("trusting", PROXY, strip, Level.PROBLEM, "without the caller's address"),
    ("trusting", PROXY, append, Level.OK, "passes on the callers' addresses"),
    ("trusting", PROXY, replace_all, Level.OK, "passes on the callers' addresses"),
    ("trusting", PROXY, wrong_scheme, Level.PROBLEM, "sees https where callers use http"),
]


@pytest.mark.long
async def test_what_a_proxy_does_to_the_headers_is_seen(url: str, plain: Service, trusting: Service) -> None:
    services = {"plain": plain, "trusting": trusting}
    for name, trusted, change, level, words in CASES:
        async with proxy(services[name], change) as public_url:
            found = await look(url, public_url, trusted)
        told = f"{found['proxy'].found} {found['proxy'].advice}"
        assert (found["public URL"].level, found["proxy"].level) == (Level.OK, level), (name, change, told)
        assert words in told


@pytest.mark.parametrize("name", [pytest.param("haproxy", marks=pytest.mark.long), "nginx"])
async def test_our_examples_pass_on_what_is_needed(url: str, name: str, tmp_path: Path) -> None:
    with run_web(url, TUMIRA_TRUSTED_PROXIES="127.0.0.1") as service:
        port = int(service.base.rpartition(":")[2])
        with run_balancer(name, [port, port], tmp_path) as balancer:
            balancer.wait_until_used(2)
            found = await look(url, balancer.base, "127.0.0.1")
    # The example for HAProxy says https, which this test does not use.
    https = "The node sees https where callers use http."
    assert found["proxy"].found == https if name == "haproxy" else found["proxy"].level is Level.OK


async def test_an_address_that_leads_elsewhere_is_a_problem(url: str) -> None:
    alive = b'{"status":"alive"}'
    answers = {
        "not as a web node of this database": write_answer(200, body=alive),
        "redirects to 'https://sms.example/healthz'": write_answer(
            301, {"location": "https://sms.example/healthz"}
        ),
        "/healthz answers 502": write_answer(502),
    }
    for words, said in answers.items():
        async with saying(said) as public_url:
            found = (await look(url, public_url))["public URL"]
        assert (found.level, words in found.found) == (Level.PROBLEM, True), found
    with closed_port() as closed:
        away = await look(url, f"http://127.0.0.1:{closed}")
    assert (away["public URL"].level, "does not answer" in away["public URL"].found) == (Level.PROBLEM, True)
    assert "proxy" not in away


@asynccontextmanager
async def saying(answer: bytes) -> AsyncIterator[str]:
    """Run a server that gives every request the same answer."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def test_a_token_is_genuine_only_while_its_lock_is_held(plain: Service) -> None:
    for token in (write_token(new_token()), "0" * 16, "x"):
        told = httpx.get(f"{plain.base}/healthz", headers={HEADER: token}, trust_env=False)
        assert told.json() == {"status": "alive"}


async def test_a_certificate_that_is_not_trusted_is_named(url: str, tmp_path: Path) -> None:
    async with run_receiver(tls=Authority(tmp_path).issue("127.0.0.1")) as receiver:
        found = await look(url, f"https://127.0.0.1:{receiver.port}")
    assert "certificate" in found["public URL"].found


@pytest.mark.parametrize(
    ("trusted", "count"),
    [
        ("", 0),
        ("10.0.0.5, 10.1.0.0/16", 0),
        ("*", 1),
        ("10.0.0.5,0.0.0.0/0", 1),
        ("proxy", 1),
        ("10.0.0.5/8", 1),
    ],
)
def test_proxies_are_named_one_by_one(trusted: str, count: int) -> None:
    found: Sequence[Diagnosis] = judge_trusted(trusted)
    assert [one.level for one in found] == [Level.PROBLEM] * count


def test_a_machine_that_is_itself_trusted_is_rightly_believed() -> None:
    settings = settings_of("postgresql://a@b/c", "http://sms.example", "127.0.0.1")
    seen = SeenRequest("node:1", FORGED, 0, "http", f"{FORGED}, 127.0.0.1")
    assert judge_seen(settings, seen, ("127.0.0.1", 5)).level is Level.OK
    forged = SeenRequest("node:1", FORGED, 0, "http", f"{FORGED}, 198.51.100.9")
    assert judge_seen(settings, forged, ("198.51.100.9", 5)).level is Level.PROBLEM
