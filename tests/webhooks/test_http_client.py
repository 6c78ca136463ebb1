"""Calls and connections of the HTTP client."""

import asyncio

import pytest

from tests.support.webhooks.calls import AT_S, BODY, EVENT_ID, NAME, SIGNATURE, Names, calling, failure, post
from tests.support.webhooks.receivers import (
    Line,
    Request,
    Responder,
    answer,
    close_after,
    close_before,
    close_within,
    continue_first,
    first,
    hang,
    ok,
    reset_before,
    run_receiver,
    say,
    write_answer,
)
from tumira.webhooks.http_client import Outcome, Timeouts, WebhookClient
from tumira.webhooks.http_response import HttpResponse

pytestmark = pytest.mark.usefixtures("nothing_fails_unseen")


# What is sent, and what comes back.


async def test_a_call_sends_exactly_these_headers_and_the_body() -> None:
    async with run_receiver() as receiver, calling(receiver.url_as(NAME, "/hook?key=1")) as client:
        assert await post(client, BODY) == HttpResponse(200, None, b"thanks")
    (request,) = receiver.requests
    assert (request.method, request.path, request.body) == ("POST", "/hook?key=1", BODY)
    assert request.headers == {
        "host": f"{NAME}:{receiver.port}",
        "user-agent": "Tumira-Webhooks/1",
        "content-type": "application/json",
        "accept": "*/*",
        "content-length": str(len(BODY)),
        "webhook-id": EVENT_ID,
        "webhook-timestamp": str(AT_S),
        "webhook-signature": SIGNATURE,
    }


async def test_every_status_is_an_answer_with_the_wait_that_is_asked_for_and_the_start_of_the_body() -> None:
    body = bytes(range(256)) * 8
    async with run_receiver() as receiver, calling(receiver.url) as client:
        for status in (200, 204, 304, 400, 410, 429, 503, 599):
            receiver.respond = answer(status)
            assert await post(client, BODY) == HttpResponse(status, None, b"")
        for _ in range(2):
            receiver.respond = answer(503, {"Retry-After": "7"}, body)
            assert await post(client, BODY) == HttpResponse(503, "7", body[:1024])
    assert receiver.connections == 1


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nth\r\n4\r\nanks\r\n0\r\n\r\n",
            b"thanks",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nretry-after: 5\r\n\r\n", b""),
        (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n", b""),
    ],
)
async def test_all_ways_to_frame_an_answer_are_read_and_leave_the_connection_in_order(
    data: bytes, start: bytes
) -> None:
    async with run_receiver(say(data)) as receiver, calling(receiver.url) as client:
        for _ in range(3):
            assert await post(client, BODY) == HttpResponse(200, None, start)
    assert receiver.connections == 1


async def test_an_answer_is_read_octet_by_octet() -> None:
    async def slowly(_: Request, line: Line) -> None:
        for value in write_answer(200, {"retry-after": "7"}, b"thanks"):
            await line.say(bytes((value,)))
            # Gives the client, in the same loop, its turn to read.
            await asyncio.sleep(0)

    async with run_receiver(slowly) as receiver, calling(receiver.url) as client:
        for _ in range(2):
            assert await post(client, BODY) == HttpResponse(200, "7", b"thanks")
    assert receiver.connections == 1


async def test_a_body_may_end_with_the_connection() -> None:
    async def respond(_: Request, line: Line) -> None:
        await line.say(b"HTTP/1.1 202 Accepted\r\n\r\nthanks")
        line.close()

    async with run_receiver(respond) as receiver, calling(receiver.url) as client:
        for _ in range(2):
            assert await post(client, BODY) == HttpResponse(202, None, b"thanks")
    assert receiver.connections == 2


async def test_interim_answers_are_skipped_with_their_headers_and_have_an_end() -> None:
    async with run_receiver(continue_first) as receiver, calling(receiver.url) as client:
        for _ in range(2):
            assert await post(client, BODY) == HttpResponse(201, None, b"")
        receiver.respond = say(b"HTTP/1.1 100 Continue\r\n\r\n" * 11 + write_answer(200))
        assert await failure(client) == "The server sent too many interim answers."
    assert receiver.connections == 1


# Connections from one call to the next.


async def echo(request: Request, line: Line) -> None:
    await line.say(write_answer(200, body=request.body))


async def test_calls_one_after_the_other_share_a_connection_and_others_have_their_own_answers() -> None:
    async def call(client: WebhookClient, number: int) -> None:
        for turn in range(20):
            body = f"{number} {turn}".encode()
            assert (await post(client, body)).start == body

    names = Names(["127.0.0.1"])
    async with run_receiver(echo) as receiver, calling(receiver.url_as(NAME), names=names) as client:
        await call(client, 0)
        assert receiver.connections == len(names.asked) == 1
        await asyncio.gather(*(call(client, number) for number in range(16)))
    assert receiver.connections <= 16
    assert len(receiver.requests) == 340


@pytest.mark.parametrize(
    "data",
    [
        write_answer(200, {"connection": "close"}),
        b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        write_answer(200) + b"x",
        write_answer(200) + write_answer(500),
    ],
    ids=["said so", "HTTP/1.0", "octets behind", "two answers"],
)
async def test_a_connection_that_cannot_go_on_is_not_used_again(data: bytes) -> None:
    async with run_receiver(say(data)) as receiver, calling(receiver.url) as client:
        for _ in range(3):
            assert (await post(client, BODY)).status == 200
    assert receiver.connections == 3


async def test_a_connection_that_was_closed_meanwhile_costs_no_call() -> None:
    async with run_receiver(close_after) as receiver, calling(receiver.url) as client:
        for _ in range(10):
            assert (await post(client, BODY)).status == 200
    assert receiver.connections == len(receiver.requests) == 10


@pytest.mark.parametrize("breaking", [close_before, reset_before], ids=["close_before", "reset_before"])
async def test_a_kept_connection_that_breaks_without_an_answer_is_replaced_once(breaking: Responder) -> None:
    async with run_receiver() as receiver, calling(receiver.url) as client:
        await post(client, BODY)
        receiver.respond = first(1, breaking, ok)
        assert (await post(client, BODY)).status == 200
        assert (receiver.connections, len(receiver.requests)) == (2, 3)
        receiver.respond = breaking
        assert await failure(client) == "The connection was closed before an answer came."
        assert (receiver.connections, len(receiver.requests)) == (3, 5)
        # Within an answer it is not asked again.
        receiver.respond = first(1, ok, close_within)
        await post(client, BODY)
        assert await failure(client) == "The connection was closed before the answer was complete."
        assert (receiver.connections, len(receiver.requests)) == (4, 7)


async def test_octets_that_nobody_asked_for_end_a_kept_connection() -> None:
    async def twice(_: Request, line: Line) -> None:
        await line.say(write_answer(200))
        later.append(line)

    later: list[Line] = []
    async with run_receiver(twice) as receiver, calling(receiver.url) as client:
        assert (await post(client, BODY)).status == 200
        await later[0].say(write_answer(500))
        await receiver.wait_open(0)
        assert (await post(client, BODY)).status == 200
    assert receiver.connections == 2


async def test_a_connection_that_nobody_uses_or_that_is_old_is_given_up() -> None:
    async with run_receiver() as receiver, calling(receiver.url, timeouts=Timeouts(idle_s=0.05)) as client:
        await asyncio.gather(*(post(client, BODY) for _ in range(4)))
        await receiver.wait_open(0)
        assert (await post(client, BODY)).status == 200
        await receiver.wait_open(0)
    async with run_receiver() as receiver, calling(receiver.url, timeouts=Timeouts(lifetime_s=0)) as client:
        for _ in range(3):
            assert (await post(client, BODY)).status == 200
    assert receiver.connections == 3


async def test_closing_drops_what_is_idle_at_once_and_the_rest_after_its_call() -> None:
    async with run_receiver() as receiver, calling(receiver.url) as client:
        await asyncio.gather(*(post(client, BODY) for _ in range(3)))
        assert receiver.open_lines == 3
        answering = asyncio.Event()

        async def wait(request: Request, line: Line) -> None:
            await answering.wait()
            await ok(request, line)

        receiver.respond = wait
        call = asyncio.create_task(post(client, BODY))
        await receiver.wait(requests=4)
        client.close()
        client.close()
        await receiver.wait_open(1)
        answering.set()
        assert (await call).status == 200
        await receiver.wait_open(0)


# Giving up.


async def test_giving_up_ends_every_connection_and_tells_nothing_of_the_calls() -> None:
    # The deadline must not be what ends them.
    async with run_receiver() as receiver, calling(receiver.url, timeouts=Timeouts(call_s=600)) as client:
        await asyncio.gather(*(post(client, BODY) for _ in range(2)))
        receiver.respond = hang
        call = asyncio.create_task(post(client, BODY))
        await receiver.wait(requests=3)
        client.abort()
        await receiver.wait_open(0)
        assert not call.done()
        call.cancel()


async def test_a_client_may_give_up_at_any_moment() -> None:
    async with run_receiver(echo) as receiver:
        for turns in range(40):
            async with calling(receiver.url) as client:
                outcomes: list[Outcome] = []
                client.post(EVENT_ID, AT_S, SIGNATURE, BODY, outcomes.append)
                for _ in range(turns):
                    await asyncio.sleep(0)
                client.abort()
                before = len(outcomes)
                await receiver.wait_open(0)
                assert len(outcomes) == before


async def test_calls_that_began_one_after_the_other_end_each_at_its_deadline() -> None:
    async with run_receiver(hang) as receiver, calling(receiver.url, timeouts=Timeouts(call_s=0.3)) as client:
        calls = []
        for number in range(3):
            calls.append(asyncio.create_task(failure(client)))
            await receiver.wait(requests=number + 1)
        receiver.respond = ok
        assert (await post(client, BODY)).status == 200
        assert set(await asyncio.gather(*calls)) == {"No complete answer within 0.3 seconds."}
        await receiver.wait_open(1)
