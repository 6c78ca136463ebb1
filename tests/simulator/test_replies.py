"""Handsets answer: by the box on their page, and by a call on this machine."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx
import pytest

from tests.support.delivery.raw_esme import raw_esme
from tests.support.postgres.embedded import wait_for
from tests.support.processes.programs import Node, new_home, running
from tests.support.processes.service import NO_TLS
from tumira.core.errors import OperatorError
from tumira.delivery.smpp.deliver_sm import read_reply
from tumira.delivery.smpp.pdu import Command, read_short_message
from tumira.simulator.replies import send_reply
from tumira.simulator.smsc import run_smsc

NUMBER: Final = "+263771200031"
LONG: Final = "Thank you, I will send my brother to collect it tomorrow morning. " * 5


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with new_home() as home, running(home) as one:
        yield one


def post(node: Node, headers: Mapping[str, str] | None = None, **body: Any) -> httpx.Response:
    return httpx.post(
        f"{node.base}/simulator/replies", trust_env=False, verify=NO_TLS, timeout=40, headers=headers, **body
    )


async def test_a_reply_goes_to_the_gateway_that_is_bound() -> None:
    async with run_smsc() as smsc:
        with pytest.raises(OperatorError, match="No worker"):
            await send_reply(smsc.port, NUMBER, "Tumira", "Yes")
        async with raw_esme(smsc.port) as esme:
            assert await send_reply(smsc.port, NUMBER, "Tumira", LONG) == 3
            parts = []
            for _ in range(3):
                delivered = await esme.next()
                assert delivered.command == Command.DELIVER_SM
                part = read_reply(read_short_message(delivered.body))
                assert part is not None
                parts.append(part)
            assert {(one.number, one.destination, one.total) for one in parts} == {(NUMBER[1:], "Tumira", 3)}
            assert b"".join(one.payload for one in parts).decode() == LONG
        # Nothing of it counts as a text to a phone.
        assert list(smsc.texts) == []


@pytest.mark.long
def test_a_program_replies_and_the_worker_stores_it(node: Node) -> None:
    def answer() -> int:
        return post(node, json={"from": NUMBER, "to": "Tumira", "text": LONG}).status_code

    # The worker may still be on its way to the simulator.
    wait_for(lambda: answer() == 202)
    done = post(node, json={"from": NUMBER, "to": "Tumira", "text": LONG})
    assert (done.status_code, done.json()) == (202, {"parts": 3})


def test_the_form_of_the_page_leads_back_to_it(node: Node) -> None:
    fields = {"from": NUMBER, "to": "Tumira", "text": "Yes"}
    wait_for(lambda: post(node, data=fields).status_code == 303)
    assert post(node, data=fields).headers["location"] == "/simulator?sent=1"


def test_what_is_no_reply_or_comes_from_elsewhere_is_refused(node: Node) -> None:
    good = {"from": NUMBER, "to": "Tumira", "text": "Yes"}
    for wrong in ({"text": " "}, {"text": "x" * 1001}, {"from": "Tumira"}, {"to": ""}, {"text": 5}):
        assert post(node, json={**good, **wrong}).status_code == 400
    assert post(node, content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
    assert post(node, json=good, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert post(node, json=good, headers={"X-Forwarded-For": "203.0.113.9"}).status_code == 403


def test_nobody_listens_at_another_port() -> None:
    async def ask() -> None:
        await send_reply(1, NUMBER, "Tumira", "Yes")

    with pytest.raises(OperatorError, match="does not answer"):
        asyncio.run(ask())
