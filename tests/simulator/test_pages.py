"""The page of the simulator, and its process."""

import asyncio
import json
import os
import re
import signal
import socket
from collections.abc import Iterator, Sequence
from functools import partial
from html.parser import HTMLParser
from typing import Any, Final

import httpx
import pytest

from tests.support.delivery.raw_esme import raw_esme
from tests.support.postgres.embedded import wait_for
from tests.support.processes.ports import free_port
from tests.support.processes.programs import Node, finish, new_home, one_line, running, start, tumira
from tests.support.processes.service import NO_TLS, Service
from tumira.core.errors import OPERATOR_EXIT_CODE
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.encoding import encode

PAGES: Final = (
    "/simulator",
    "/simulator/messages.json",
    "/simulator/handsets.css",
    "/simulator/handsets.js",
)
NASTY: Final = "<script>alert('x')</script> & \"quotes\" <b>"
RIGHT_TO_LEFT: Final = "שלום! הקוד שלך הוא 493817 \N{PARTY POPPER}"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with new_home() as home, running(home) as one:
        yield one


def get(node: Node, path: str, **options: Any) -> httpx.Response:
    return httpx.get(f"{node.base}{path}", trust_env=False, verify=NO_TLS, timeout=40, **options)


def text_to(node: Node, number: str, *texts: str) -> None:
    asyncio.run(_text_to(node.simulator_port, number, texts))


async def _text_to(port: int, number: str, texts: Sequence[str]) -> None:
    async with raw_esme(port) as esme:
        for reference, text in enumerate(texts):
            encoded = encode(text, reference)
            for payload in encoded.payloads:
                esme.submit(
                    number,
                    payload,
                    esm_class=encoded.esm_class,
                    data_coding=encoded.data_coding,
                    registered_delivery=0,
                )
                assert (await esme.next()).status == CommandStatus.ROK


def messages(node: Node, number: str) -> Any:
    return get(node, f"/simulator/messages.json?to=+{number}").json()


class Texts(HTMLParser):
    """Reads the texts of a page, by the class of the element that they stand in."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append(dict(attrs).get("src") or "")
        self._inside = ("class", "text") in attrs
        if self._inside:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[-1] += data


def test_texts_appear_as_json_oldest_first(node: Node) -> None:
    long = "Your appointment is on Tuesday at 10:30. " * 10
    text_to(node, "263771200011", "first", long, RIGHT_TO_LEFT)
    wait_for(lambda: len(messages(node, "263771200011")) == 3)

    found = messages(node, "263771200011")
    assert [list(one) for one in found] == [["to", "from", "text", "at"]] * 3
    assert [one["text"] for one in found] == ["first", long, RIGHT_TO_LEFT]
    assert {(one["to"], one["from"]) for one in found} == {("+263771200011", "Tumira")}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}\+00:00", one["at"]) for one in found)
    answer = get(node, "/simulator/messages.json", params={"to": "+263771200011"})
    assert answer.json() == found
    assert answer.headers["content-type"] == "application/json"
    assert get(node, "/simulator/messages.json").json()[-3:] == found
    assert messages(node, "26377120001") == []


@pytest.mark.parametrize("number", ["", "+", "abc", "+26377x", "1" * 30])
def test_what_is_no_number_is_said(node: Node, number: str) -> None:
    assert get(node, "/simulator/messages.json", params={"to": number}).status_code == 400


def test_the_page_shows_texts_escaped_and_can_be_read_without_scripts(node: Node) -> None:
    text_to(node, "263771200012", NASTY, RIGHT_TO_LEFT, "two\nlines")
    wait_for(lambda: len(messages(node, "263771200012")) == 3)

    answer = get(node, "/simulator")

    page = Texts(answer.text)
    assert page.found[:3] == ["two\nlines", RIGHT_TO_LEFT, NASTY]
    assert page.scripts == ["/simulator/handsets.js"]
    assert "Nothing leaves this machine." in answer.text
    assert all(f"<code>{ending}</code>" in answer.text for ending in range(9901, 9910))
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\bstyle=|\bon[a-z]+=|https?://", answer.text.replace(NASTY, ""))


def test_an_unchanged_page_is_not_sent_again(node: Node) -> None:
    text_to(node, "263771200013", "one")
    wait_for(lambda: len(messages(node, "263771200013")) == 1)
    tag = {"If-None-Match": get(node, "/simulator").headers["etag"]}

    assert get(node, "/simulator", headers=tag).status_code == 304
    text_to(node, "263771200013", "two")
    wait_for(lambda: len(messages(node, "263771200013")) == 2)
    assert get(node, "/simulator", headers=tag).status_code == 200


def test_style_and_script_are_served_with_their_types(node: Node) -> None:
    types = [get(node, path).headers["content-type"] for path in PAGES[2:]]
    assert types == ["text/css; charset=utf-8", "text/javascript; charset=utf-8"]


def test_the_welcome_says_where_the_page_is(node: Node) -> None:
    assert f"  Simulator  {node.base}/simulator\n" in node.said()
    assert "queued" not in node.said()


@pytest.mark.long
def test_a_simulator_that_was_killed_comes_back_with_its_texts(node: Node) -> None:
    text_to(node, "263771200014", "before")
    wait_for(lambda: len(messages(node, "263771200014")) == 1)
    killed = node.part("simulator")
    assert killed is not None
    os.kill(killed.pid, signal.SIGKILL)
    node.wait_for_words("simulator ended with code -9; starting it again.")

    wait_for(partial(_listens, node.simulator_port))
    text_to(node, "263771200014", "after")
    wait_for(lambda: [one["text"] for one in messages(node, "263771200014")] == ["before", "after"])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_a_gateway_without_a_simulator_knows_no_such_pages(service: Service) -> None:
    for path in PAGES:
        answer = httpx.get(f"{service.base}{path}", trust_env=False, verify=NO_TLS)
        unknown = httpx.get(f"{service.base}/nothing", trust_env=False, verify=NO_TLS)
        # Each answer has an id of its own.
        said, expected = (re.sub(r"req_\w+", "", one.text) for one in (answer, unknown))
        assert (answer.status_code, said) == (404, expected)


@pytest.mark.long
def test_a_taken_simulator_port_is_said_before_anything_is_made() -> None:
    with new_home() as home, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = Node(home, simulator_port=port)
        ends = {"serve": OPERATOR_EXIT_CODE, "simulator": 1}
        lines = [one_line(tumira(command, **node.settings), code) for command, code in ends.items()]

        expected = (
            f"Error: Port {port} on 127.0.0.1 cannot be used for the simulator (Address already in use): "
            "stop what uses it, or set TUMIRA_SIMULATOR_PORT."
        )
        assert lines == [expected] * 2
        assert not (home / "data").exists()


@pytest.mark.long
def test_the_simulator_runs_alone_and_misbehaves_as_told() -> None:
    with new_home() as home:
        port = free_port()
        process = start(
            *("simulator", "--json", "--port", str(port), "--delay-ms", "1", "--rate", "3"),
            *("--misbehave", "hex-ids", "--misbehave", "throttle-every=2"),
            data_dir=home / "data",
        )
        try:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())
            assert started == {"status": "started", "url": f"smpp://127.0.0.1:{port}"}
            statuses = asyncio.run(_statuses(port))
        finally:
            process.send_signal(signal.SIGTERM)
        done = finish(process)

        assert statuses == [0, CommandStatus.RTHROTTLED, 0, CommandStatus.RTHROTTLED]
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        (file,) = (home / "data" / "simulator").iterdir()
        assert len(file.read_text().splitlines()) == 2


async def _statuses(port: int) -> Sequence[int]:
    async with raw_esme(port) as esme:
        for _ in range(4):
            esme.submit(registered_delivery=0)
        return [pdu.status for pdu in await esme.take(4)]
