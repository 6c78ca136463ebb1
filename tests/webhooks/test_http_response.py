"""Responses that are slow, endless or not HTTP."""

import asyncio
import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.webhooks.calls import BODY, NAME, calling, calling_tls, failure, post
from tests.support.webhooks.receivers import (
    WAIT_S,
    Authority,
    Line,
    Request,
    Responder,
    close_before,
    close_within,
    closed_port,
    deaf_port,
    drip,
    drip_body,
    garbage,
    hang,
    huge,
    reset_before,
    run_receiver,
    say,
)
from tumira.webhooks.http_client import CallFailedError, Timeouts
from tumira.webhooks.http_response import HttpResponse

pytestmark = pytest.mark.usefixtures("nothing_fails_unseen")

QUICK = Timeouts(call_s=0.5)


async def test_a_port_that_nobody_serves_is_said_to_refuse() -> None:
    with closed_port() as port:
        async with calling(f"http://127.0.0.1:{port}/") as client:
            assert await failure(client) == "Connection refused."


@pytest.mark.parametrize("respond", [hang, drip, drip_body], ids=["hang", "drip", "drip_body"])
async def test_an_answer_that_is_not_complete_in_time_is_none(respond: Responder) -> None:
    async with run_receiver(respond) as receiver, calling(receiver.url, timeouts=QUICK) as client:
        assert await failure(client) == "No complete answer within 0.5 seconds."
        await receiver.wait_open(0)


async def test_a_server_that_does_not_read_is_not_waited_for() -> None:
    with deaf_port() as port:
        async with calling(f"http://127.0.0.1:{port}/", timeouts=Timeouts(call_s=1)) as client:
            outcomes = await asyncio.gather(
                *(post(client, b"x" * 65536) for _ in range(3)), return_exceptions=True
            )
    assert {str(outcome) for outcome in outcomes} == {"No complete answer within 1 seconds."}


async def test_of_ten_megabytes_the_status_counts_and_the_rest_is_cut(authority: Authority) -> None:
    async with run_receiver(huge) as receiver, calling(receiver.url) as client:
        assert await post(client, BODY) == HttpResponse(200, None, b"x" * 1024)
        await receiver.wait_open(0)
        assert (await post(client, BODY)).status == 200
    assert receiver.connections == 2
    async with calling_tls(authority.issue(NAME), authority, huge) as (receiver, client):
        assert await post(client, BODY) == HttpResponse(200, None, b"x" * 1024)
        await receiver.wait_open(0)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-trailer: " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 20_000,
    ],
    ids=["many chunks", "long trailer", "no length"],
)
async def test_a_body_without_end_is_cut_however_it_is_framed(data: bytes) -> None:
    async with run_receiver(say(data)) as receiver, calling(receiver.url) as client:
        assert (await post(client, BODY)).status == 200
        await receiver.wait_open(0)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nx-long: " + b"x" * 17_000,
        b"HTTP/1.1 200 OK\r\nx-long: " + b"x" * 17_000 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 10_000 + b"\r\n",
        b"\r\n" * 20_000,
    ],
    ids=["no end", "one long", "many", "empty lines"],
)
async def test_headers_without_end_are_cut(data: bytes) -> None:
    async with run_receiver(say(data)) as receiver, calling(receiver.url) as client:
        assert await failure(client) == "The headers of the answer are too large."
        await receiver.wait_open(0)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"HTTP/1.1 99 Low\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 600 High\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"220 mail.example.com ESMTP\r\n",
    ],
)
async def test_what_is_no_answer_fails_the_call_and_ends_the_connection(data: bytes) -> None:
    async with run_receiver(say(data)) as receiver, calling(receiver.url) as client:
        assert await failure(client) == "The answer is not valid HTTP/1.1."
        await receiver.wait_open(0)


@pytest.mark.parametrize(
    ("respond", "words"),
    [
        (close_before, "The connection was closed before an answer came."),
        (reset_before, "The connection was closed before an answer came."),
        (close_within, "The connection was closed before the answer was complete."),
        (garbage, "The answer is not valid HTTP/1.1."),
    ],
    ids=["close_before", "reset_before", "close_within", "garbage"],
)
async def test_a_new_connection_that_breaks_is_a_failure_and_is_tried_once(
    respond: Responder, words: str
) -> None:
    async with run_receiver(respond) as receiver, calling(receiver.url) as client:
        assert await failure(client) == words
    assert receiver.connections == 1


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.lists(
        st.binary(max_size=40)
        | st.sampled_from(
            [
                b"HTTP/1.1 200 OK\r\n",
                b"HTTP/1.0 200 OK\r\n",
                b"HTTP/1.1 100 Continue\r\n\r\n",
                b"content-length: 3\r\n",
                b"transfer-encoding: chunked\r\n",
                b"connection: close\r\n",
                b"\r\n",
                b"3\r\nabc\r\n",
                b"0\r\n\r\n",
                b"abc",
            ]
        ),
        max_size=12,
    )
)
def test_random_octets_end_in_an_answer_or_in_words(pieces: list[bytes]) -> None:
    async def respond(_: Request, line: Line) -> None:
        for piece in pieces:
            await line.say(piece)
            await asyncio.sleep(0)
        line.close()

    async def run() -> None:
        async with run_receiver(respond) as receiver, calling(receiver.url) as client:
            for _ in range(2):
                with contextlib.suppress(CallFailedError):
                    assert 200 <= (await post(client, BODY)).status <= 599

    # A loop of its own: hypothesis calls a plain function, and the session's loop does not run meanwhile.
    asyncio.run(asyncio.wait_for(run(), WAIT_S))
