"""Webhooks from the command line to a receiver, with real processes."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from tests.support.postgres.databases import clone, execute
from tests.support.postgres.embedded import wait_for
from tests.support.processes.programs import Cli, Node, new_home, running
from tests.support.processes.service import Caller, new_caller
from tests.support.webhooks.commands import (
    ATTEMPT_COLUMNS,
    ATTEMPT_KEYS,
    WARNING,
    Allowing,
    add,
    listed,
)
from tests.support.webhooks.receivers import Receiver, Request, answer, run_receiver
from tests.support.webhooks.world import signatures_of
from tumira.core.ids import ENDPOINT, read_id


@pytest.fixture(scope="module")
def node(server_url: str) -> Iterator[Node]:
    settings = {"webhooks_allow_private": 1}
    with clone(server_url) as url, new_home() as home, running(home, database_url=url, **settings) as made:
        yield made


@pytest.fixture(scope="module")
def operator(node: Node) -> Allowing:
    return Allowing(node.settings["database_url"])


async def run(cli: Cli, *words: str) -> str:
    return await asyncio.to_thread(cli.text, *words)


async def run_json(cli: Cli, *words: str) -> Any:
    return await asyncio.to_thread(cli.json, *words)


async def try_in_vain(cli: Cli, endpoint_id: str, *words: str) -> str:
    done = await asyncio.to_thread(cli.run, "webhook", "test", endpoint_id, *words)
    assert (done.returncode, done.stderr) == (1, ""), done
    return done.stdout


async def send(node: Node, caller: Caller, count: int = 1) -> None:
    to = [f"+2637712{place:05}" for place in range(count)]
    async with httpx.AsyncClient(trust_env=False) as client:
        answered = await client.post(
            f"{node.base}/api/v1/messages",
            headers={"Authorization": f"Bearer {caller.key}"},
            json={"channel": "sms", "to": to, "body": "Your code is 493817."},
        )
    assert answered.status_code == 202, answered.text


async def new_endpoint(operator: Cli, node: Node, receiver: Receiver, *words: str) -> tuple[Caller, Any]:
    caller = await new_caller(node.settings["database_url"])
    added = await asyncio.to_thread(add, operator, caller, receiver.url, *words)
    return caller, added


async def until_it_is(url: str, endpoint_id: str, so: str) -> None:
    sql = f"SELECT FROM webhook_endpoints WHERE id = $1 AND {so}"
    identifier = read_id(ENDPOINT, endpoint_id)
    await asyncio.to_thread(wait_for, lambda: bool(execute(url, sql, identifier)))


def bodies(requests: Sequence[Request]) -> Sequence[Any]:
    return [json.loads(request.body) for request in requests]


@pytest.mark.long
async def test_what_happens_arrives_signed_and_the_operator_sees_and_replays_it(
    operator: Allowing, node: Node
) -> None:
    assert node.said().count(WARNING) == 1
    assert node.said().index(WARNING) < node.said().index("is ready")
    async with run_receiver() as receiver:
        words = ("--events", "message.delivered,batch.completed")
        caller, added = await new_endpoint(operator, node, receiver, *words)
        await send(node, caller, 2)
        await receiver.wait(requests=3)
        await until_it_is(node.settings["database_url"], added["endpoint_id"], "position = 3")
        (shown,) = await asyncio.to_thread(listed, operator, caller)
        attempts = await run_json(operator, "webhook", "attempts", added["endpoint_id"])
        text = await run(operator, "webhook", "attempts", added["endpoint_id"], "--limit", "2")
        first = {request.headers["webhook-id"]: request.body for request in receiver.requests}
        replay = ("webhook", "replay", added["endpoint_id"])
        counts = [
            await run_json(operator, *replay, "--event", attempts[0]["event_id"]),
            await run_json(operator, *replay, "--after", "1"),
            await run_json(operator, *replay, "--from", "2026-01-01", "--until", "2026-01-02T08:30"),
        ]
        await receiver.wait(requests=6)

    types = {body["sequence"]: body["type"] for body in bodies(receiver.requests)}
    assert types == {1: "message.delivered", 2: "message.delivered", 3: "batch.completed"}
    for request in receiver.requests:
        assert request.headers["webhook-signature"] == signatures_of(request, added["secret"])
        assert request.body == first[request.headers["webhook-id"]]
    assert [one["events"] for one in counts] == [1, 2, 0]
    assert (shown["waiting"], shown["failures"], shown["warning"]) == (0, 0, None)
    assert shown["last_delivery_at"] is not None
    assert [list(attempt) for attempt in attempts] == [ATTEMPT_KEYS] * 3
    assert {attempt["sequence"]: attempt["type"] for attempt in attempts} == types
    assert [attempt["at"] for attempt in attempts] == sorted((a["at"] for a in attempts), reverse=True)
    for attempt in attempts:
        assert (attempt["attempt"], attempt["delivered"], attempt["status"]) == (1, True, 200)
        assert (attempt["next_at"], attempt["answer"]) == (None, "thanks")
    header, *lines = text.splitlines()
    assert " ".join(header.split()) == ATTEMPT_COLUMNS
    assert [line.split()[2] for line in lines] == [attempt["event_id"] for attempt in attempts[:2]]


@pytest.mark.long
async def test_a_test_shows_what_the_endpoint_answered(operator: Allowing, node: Node) -> None:
    async with run_receiver() as receiver:
        # A test comes whatever the endpoint takes.
        _, added = await new_endpoint(operator, node, receiver, "--events", "message.failed")
        endpoint_id = added["endpoint_id"]
        delivered = await run_json(operator, "webhook", "test", endpoint_id)
        receiver.respond = answer(503, body=b"closed\nfor \x1b[31mtoday\0")
        said = await try_in_vain(operator, endpoint_id)
        refused = json.loads(await try_in_vain(operator, endpoint_id, "--json"))

    assert list(delivered) == ATTEMPT_KEYS
    assert (delivered["delivered"], delivered["status"], delivered["answer"]) == (True, 200, "thanks")
    assert (delivered["type"], delivered["sequence"]) == ("webhook.test", 0)
    assert said.startswith("Not delivered.\n")
    assert "  status       503\n" in said
    assert "  answer       closed\\x0afor \\x1b[31mtoday" in said
    # A test is tried once.
    assert (refused["delivered"], refused["attempt"], refused["next_at"]) == (False, 1, None)
    assert len(receiver.requests) == 3
