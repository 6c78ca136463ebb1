"""Webhooks from the command line to a receiver, with real processes."""

import asyncio
import hmac
import json
import signal
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest

from tests.support.postgres.databases import clone, execute
from tests.support.postgres.embedded import wait_for
from tests.support.processes.programs import Cli, Node, finish, new_home, running, start
from tests.support.processes.service import Caller, new_caller
from tests.support.webhooks.commands import (
    ATTEMPT_COLUMNS,
    ATTEMPT_KEYS,
    UNKNOWN_EVENT,
    WARNING,
    Allowing,
    add,
    add_events,
    listed,
)
from tests.support.webhooks.receivers import Receiver, Request, answer, run_receiver
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


def signature(secret: str, request: Request) -> str:
    headers = request.headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
    key = b64decode(secret.removeprefix("whsec_"))
    return "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()


def bodies(requests: Sequence[Request]) -> Sequence[Any]:
    return [json.loads(request.body) for request in requests]


async def test_serve_says_once_that_private_addresses_are_allowed(node: Node) -> None:
    assert node.said().count(WARNING) == 1
    assert node.said().index(WARNING) < node.said().index("is ready")


async def test_what_happens_arrives_signed_and_the_operator_sees_it(operator: Allowing, node: Node) -> None:
    async with run_receiver() as receiver:
        words = ("--events", "message.delivered,batch.completed")
        caller, added = await new_endpoint(operator, node, receiver, *words)
        await send(node, caller, 2)
        await receiver.wait(requests=3)
        await until_it_is(node.settings["database_url"], added["endpoint_id"], "position = 3")
        (shown,) = await asyncio.to_thread(listed, operator, caller)
        attempts = await run_json(operator, "webhook", "attempts", added["endpoint_id"])
        text = await run(operator, "webhook", "attempts", added["endpoint_id"], "--limit", "2")
        one = await run_json(
            operator, "webhook", "attempts", added["endpoint_id"], "--event", attempts[0]["event_id"]
        )

    types = {body["sequence"]: body["type"] for body in bodies(receiver.requests)}
    assert types == {1: "message.delivered", 2: "message.delivered", 3: "batch.completed"}
    for request in receiver.requests:
        assert request.headers["webhook-signature"] == signature(added["secret"], request)
    assert (shown["waiting"], shown["failures"], shown["warning"]) == (0, 0, None)
    assert shown["last_delivery_at"] is not None
    assert [list(attempt) for attempt in attempts] == [ATTEMPT_KEYS] * 3
    assert {attempt["sequence"]: attempt["type"] for attempt in attempts} == types
    assert [attempt["at"] for attempt in attempts] == sorted((a["at"] for a in attempts), reverse=True)
    assert {attempt["event_id"] for attempt in attempts} == {
        request.headers["webhook-id"] for request in receiver.requests
    }
    for attempt in attempts:
        assert (attempt["attempt"], attempt["delivered"], attempt["status"]) == (1, True, 200)
        assert (attempt["next_at"], attempt["answer"]) == (None, "thanks")
    header, *lines = text.splitlines()
    assert " ".join(header.split()) == ATTEMPT_COLUMNS
    assert [line.split()[2] for line in lines] == [attempt["event_id"] for attempt in attempts[:2]]
    assert one == attempts[:1]


async def test_a_test_shows_what_the_endpoint_answered(operator: Allowing, node: Node) -> None:
    async with run_receiver() as receiver:
        # A test comes whatever the endpoint takes.
        _, added = await new_endpoint(operator, node, receiver, "--events", "message.failed")
        endpoint_id = added["endpoint_id"]
        delivered = await run_json(operator, "webhook", "test", endpoint_id)
        receiver.respond = answer(503, body=b"closed\nfor \x1b[31mtoday\0")
        said = await try_in_vain(operator, endpoint_id)
        refused = json.loads(await try_in_vain(operator, endpoint_id, "--json"))
        attempts = await run_json(operator, "webhook", "attempts", endpoint_id)
        (shown,) = await run_json(operator, "webhook", "list", "--account", added["account_id"])
        event_id = attempts[0]["event_id"]
        line = await asyncio.to_thread(
            operator.refused, "webhook", "replay", endpoint_id, "--event", event_id
        )

    assert list(delivered) == ATTEMPT_KEYS
    assert (delivered["delivered"], delivered["status"], delivered["answer"]) == (True, 200, "thanks")
    assert (delivered["type"], delivered["sequence"]) == ("webhook.test", 0)
    assert said.startswith("Not delivered.\n")
    assert "  status       503\n" in said
    assert "  answer       closed\\x0afor \\x1b[31mtoday" in said
    # A test is tried once.
    assert (refused["delivered"], refused["attempt"], refused["next_at"]) == (False, 1, None)
    assert len(receiver.requests) == len(attempts) == 3
    for request, attempt in zip(receiver.requests, reversed(attempts), strict=True):
        assert request.headers["webhook-id"] == attempt["event_id"]
        assert request.headers["webhook-signature"] == signature(added["secret"], request)
    assert bodies(receiver.requests[:1])[0]["type"] == "webhook.test"
    assert (shown["sequence"], shown["waiting"]) == (0, 0)
    assert line == "Error: A test is not sent twice; `tumira webhook test` sends another."


@pytest.mark.long
async def test_what_fails_waits_is_shown_and_comes_when_the_endpoint_is_moved(
    operator: Allowing, node: Node
) -> None:
    async with run_receiver(answer(503, body=b"no")) as broken, run_receiver() as receiver:
        caller, added = await new_endpoint(operator, node, broken, "--events", "batch.completed")
        await send(node, caller)
        await broken.wait(requests=1)
        await until_it_is(node.settings["database_url"], added["endpoint_id"], "failures > 0")
        (failing,) = await asyncio.to_thread(listed, operator, caller)
        attempts = await run_json(operator, "webhook", "attempts", added["endpoint_id"])
        moved = await run_json(operator, "webhook", "change", added["endpoint_id"], "--url", receiver.url)
        await receiver.wait(requests=1)

    assert (failing["waiting"], failing["last_delivery_at"]) == (1, None)
    assert failing["failing_since"] is not None
    first = attempts[-1]
    assert (first["delivered"], first["status"], first["answer"]) == (False, 503, "no")
    assert first["next_at"] > first["at"]
    assert (moved["failures"], moved["failing_since"]) == (0, None)
    assert receiver.requests[0].headers["webhook-id"] == broken.requests[0].headers["webhook-id"]
    assert receiver.requests[0].body == broken.requests[0].body


async def test_each_kind_of_replay_sends_the_same_again(operator: Allowing, node: Node) -> None:
    async with run_receiver() as receiver:
        caller, added = await new_endpoint(
            operator, node, receiver, "--events", "message.delivered,batch.completed"
        )
        await send(node, caller)
        await receiver.wait(requests=2)
        await until_it_is(node.settings["database_url"], added["endpoint_id"], "position = 2")
        delivered, completed = sorted(receiver.requests, key=lambda one: bodies([one])[0]["sequence"])
        replay = ("webhook", "replay", added["endpoint_id"])

        counts = [
            await run_json(operator, *replay, "--event", completed.headers["webhook-id"]),
            await run_json(operator, *replay, "--after", "1"),
            await run_json(operator, *replay, "--from", "2026-01-01"),
            await run_json(operator, *replay, "--from", "2026-01-01", "--until", "2026-01-02T08:30"),
        ]
        await receiver.wait(requests=6)
        unknown = await asyncio.to_thread(operator.refused, *replay, "--event", UNKNOWN_EVENT)

    assert [one["events"] for one in counts] == [1, 1, 2, 0]
    again = receiver.requests[2:]
    assert sorted(one.headers["webhook-id"] for one in again) == sorted(
        [completed.headers["webhook-id"]] * 3 + [delivered.headers["webhook-id"]]
    )
    for one in again:
        first = delivered if one.headers["webhook-id"] == delivered.headers["webhook-id"] else completed
        assert one.body == first.body
        assert one.headers["webhook-signature"] == signature(added["secret"], one)
    assert unknown == "Error: There is no such event; `tumira webhook attempts` shows those that were sent."


@pytest.fixture
def forbidding_url(database_url: str) -> Iterator[str]:
    worker = start("worker", "--json", database_url=database_url, webhooks_allow_private=0)
    assert worker.stdout is not None
    assert worker.stdout.readline()
    yield database_url
    worker.send_signal(signal.SIGTERM)
    done = finish(worker)
    assert (done.returncode, done.stderr) == (0, "")


async def test_when_private_addresses_are_forbidden_again_nothing_is_called_and_each_try_says_why(
    forbidding_url: str,
) -> None:
    url = forbidding_url
    allowing, plain = Allowing(url), Cli(url)
    async with run_receiver() as receiver:
        caller = await new_caller(url)
        added = await asyncio.to_thread(add, allowing, caller, receiver.url)
        tried = json.loads(await try_in_vain(plain, added["endpoint_id"], "--json"))
        await add_events(url, caller, 2)
        await until_it_is(url, added["endpoint_id"], "failures >= 3")
        attempts = await run_json(plain, "webhook", "attempts", added["endpoint_id"])
        (shown,) = await asyncio.to_thread(listed, plain, caller)

    assert receiver.connections == 0
    why = "The URL must begin with https://, as in https://hooks.example.com/tumira."
    assert (tried["delivered"], tried["status"], tried["answer"]) == (False, None, why)
    assert {(one["status"], one["answer"]) for one in attempts} == {(None, why)}
    assert (shown["state"], shown["waiting"]) == ("active", 2)
