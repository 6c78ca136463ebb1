"""The handsets are shown to local callers only, and emptied when the simulator is removed."""

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.chaos.balancers import run_balancer
from tests.support.postgres.databases import clone
from tests.support.postgres.embedded import wait_for
from tests.support.processes.ports import free_port
from tests.support.processes.service import NO_TLS, Service, run_web
from tumira.carriers import store as carriers
from tumira.carriers.manage import add_carrier, keep_simulator, remove_carrier
from tumira.delivery.store import binds
from tumira.postgres.pool import Database
from tumira.simulator.handsets import HandsetFiles, ReceivedText, directory_in, moment

PAGES: Final = (
    "/simulator",
    "/simulator/messages.json",
    "/simulator/messages.json?to=%2B263771200001",
    "/simulator/handsets.css",
    "/simulator/handsets.js",
)
NUMBER: Final = "+263771200001"
CODE: Final = "Your code is 493817."
ELSEWHERE: Final = "203.0.113.9"


def receive(data_dir: Path, text: str = CODE) -> None:
    async def simulate() -> None:
        keeper = HandsetFiles(directory_in(data_dir))
        keeper.add(ReceivedText(NUMBER, "Tumira", text, moment(1_900_000_000)))
        keeper.close()

    asyncio.run(simulate())


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def gateway(server_url: str, data_dir: Path) -> Iterator[Service]:
    port = free_port()
    with (
        clone(server_url) as url,
        run_web(
            url,
            TUMIRA_HOST="0.0.0.0",  # noqa: S104 - to be reached at both of our addresses
            TUMIRA_DATA_DIR=str(data_dir),
            TUMIRA_SIMULATOR_PORT=str(port),
            TUMIRA_TRUSTED_PROXIES="127.0.0.1",
        ) as web,
    ):
        wait_for((directory_in(data_dir) / "emptied").exists)
        web.run(keep_simulator, port)
        receive(data_dir)
        yield web


def get(service: Service, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
    return httpx.get(service.base + path, headers=headers, trust_env=False, verify=NO_TLS, timeout=40)


def test_a_caller_on_this_machine_sees_the_handsets(gateway: Service) -> None:
    assert [get(gateway, path).status_code for path in PAGES] == [200] * len(PAGES)
    assert [one["text"] for one in get(gateway, PAGES[2]).json()] == [CODE]
    assert get(gateway, PAGES[2], {"Host": "localhost"}).json()[0]["text"] == CODE


def test_what_came_through_a_proxy_or_by_another_name_is_refused(gateway: Service) -> None:
    for name, value in (
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=127.0.0.1"),
        ("Via", "1.1 proxy"),
        ("X-Real-IP", "127.0.0.1"),
        # A site whose name was pointed at this machine.
        ("Host", "rebound.example"),
    ):
        answers = [get(gateway, path, {name: value}) for path in PAGES]
        assert [answer.status_code for answer in answers] == [403] * len(PAGES), name
        assert not [answer for answer in answers if "493817" in answer.text]


def test_who_connects_from_another_address_is_refused(gateway: Service) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: it only asks which address we would have.
            probe.connect((ELSEWHERE, 9))
        except OSError:
            pytest.skip("this machine has no address but its loopback one")
        own = probe.getsockname()[0]
    port = urlsplit(gateway.base).port

    def status(to: str, source: str) -> int:
        connection = http.client.HTTPConnection(to, port, timeout=40, source_address=(source, 0))
        try:
            connection.request("GET", PAGES[2])
            return connection.getresponse().status
        finally:
            connection.close()

    assert status("127.0.0.1", own) == 403
    # From this machine to its own address is no other machine.
    assert status(own, own) == 200


def test_the_setting_shows_them_to_everybody(gateway: Service, data_dir: Path) -> None:
    with run_web(
        gateway.url, TUMIRA_DATA_DIR=str(data_dir), TUMIRA_SIMULATOR_PORT="2775", TUMIRA_SIMULATOR_PUBLIC="1"
    ) as web:
        answer = get(web, PAGES[2], {"X-Forwarded-For": ELSEWHERE, "Host": "sms.example"})
    assert [one["text"] for one in answer.json()] == [CODE]


@pytest.mark.parametrize("name", ["haproxy", "nginx"])
def test_our_examples_of_balancers_pass_no_handsets(gateway: Service, name: str, tmp_path: Path) -> None:
    port = urlsplit(gateway.base).port
    assert port is not None
    with run_balancer(name, [port, port], tmp_path) as balancer:
        balancer.wait_until_used(2)
        refused = {"haproxy": 403, "nginx": 404}[name]
        with httpx.Client(base_url=balancer.base, trust_env=False, timeout=40) as client:
            assert client.get("/healthz").status_code == 200
            for path in (*PAGES, "/%73imulator", "/simulator%2Fmessages.json", "/simulator/"):
                answer = client.get(path)
                assert (path, answer.status_code) == (path, refused)
                # The web process says something else.
                assert "Tumira" not in answer.text


async def lease(database: Database, lease_s: float) -> None:
    async with database.connection() as connection:
        found = await carriers.find(connection, "simulator")
        assert found is not None
        await binds.lease(connection, found.id, "worker", [1], lease_s)


@pytest.mark.long
def test_the_handsets_are_emptied_when_the_simulator_goes(server_url: str, tmp_path: Path) -> None:
    port = free_port()
    settings = {"TUMIRA_DATA_DIR": str(tmp_path), "TUMIRA_SIMULATOR_PORT": str(port)}
    texts = directory_in(tmp_path)

    def kept() -> list[str]:
        lines = [line for file in texts.glob("*.jsonl") for line in file.read_text().splitlines()]
        return [json.loads(line)["text"] for line in lines]

    with clone(server_url) as url:
        with run_web(url, **settings) as web:
            wait_for((texts / "emptied").exists)
            web.run(keep_simulator, port)
            web.run(lease, 600)
            receive(tmp_path)
            assert [one["text"] for one in get(web, PAGES[2]).json()] == [CODE]

            web.run(remove_carrier, "simulator")
            assert get(web, PAGES[2]).json() == []
            assert kept() == []

            # What a worker had claimed before still arrives, and goes too, whether somebody looks or not.
            receive(tmp_path, "late")
            wait_for(lambda: kept() == [])
            web.sql("UPDATE binds SET leased_until = now()")
            wait_for((texts / "emptied").exists)

            # What comes now is from a simulator that the operator runs by hand.
            receive(tmp_path, "by hand")
            assert [one["text"] for one in get(web, PAGES[2]).json()] == ["by hand"]
        with run_web(url, **settings) as web:
            assert [one["text"] for one in get(web, PAGES[2]).json()] == ["by hand"]

            web.run(add_carrier, "trial", f"smpp://simulator:simulate@localhost:{port}", None, 100)
            assert [one["text"] for one in get(web, PAGES[2]).json()] == ["by hand"]
            web.run(remove_carrier, "trial")
            assert get(web, PAGES[2]).json() == []


def test_what_was_left_over_while_no_web_process_ran_is_emptied_at_its_start(
    server_url: str, tmp_path: Path
) -> None:
    receive(tmp_path)
    with (
        clone(server_url) as url,
        run_web(url, TUMIRA_DATA_DIR=str(tmp_path), TUMIRA_SIMULATOR_PORT=str(free_port())) as web,
    ):
        assert get(web, PAGES[2]).json() == []
