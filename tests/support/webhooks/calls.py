"""Calls of webhooks as tests make them: to the loopback, by names that only the test resolves."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext

import pytest

from tests.support.webhooks.receivers import Authority, Receiver, Responder, ok, run_receiver
from tumira.webhooks.http_client import CallFailedError, Outcome, Timeouts, WebhookClient, default_tls
from tumira.webhooks.http_response import HttpResponse
from tumira.webhooks.url import parse

EVENT_ID = "evt_1"
AT_S = 1794708000
SIGNATURE = "v1,abc="
BODY = b'{"type":"message.delivered"}'
NAME = "hooks.example.com"


class Names:
    """A resolver that gives the answers of a test, one after the other and the last one for ever."""

    def __init__(self, *answers: Sequence[str] | OSError) -> None:
        self.asked: list[tuple[str, int]] = []
        self._answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append((host, port))
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(found, OSError):
            raise found
        return found


@asynccontextmanager
async def calling(
    url: str,
    *,
    names: Names | None = None,
    timeouts: Timeouts | None = None,
    authority: Authority | None = None,
) -> AsyncIterator[WebhookClient]:
    """Give a client that may call the loopback, and close it at the end."""
    client = WebhookClient(
        parse(url, allow_private=True),
        allow_private=True,
        resolve=names or Names(["127.0.0.1"]),
        tls=authority.trust(default_tls()) if authority else None,
        timeouts=timeouts or Timeouts(),
    )
    try:
        yield client
    finally:
        client.close()


@asynccontextmanager
async def calling_tls(
    context: SSLContext, authority: Authority, respond: Responder = ok
) -> AsyncIterator[tuple[Receiver, WebhookClient]]:
    """Give a receiver with TLS, and a client that knows it by its name and trusts the authority."""
    async with (
        run_receiver(respond, tls=context) as receiver,
        calling(receiver.url_as(NAME), authority=authority) as client,
    ):
        yield receiver, client


async def post(client: WebhookClient, body: bytes) -> HttpResponse:
    """Post a body and return the response; raises CallFailedError if there is none."""
    outcomes: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    client.post(EVENT_ID, AT_S, SIGNATURE, body, outcomes.set_result)
    outcome = await outcomes
    if isinstance(outcome, str):
        raise CallFailedError(outcome)
    return outcome


async def failure(client: WebhookClient) -> str:
    with pytest.raises(CallFailedError) as caught:
        await post(client, BODY)
    words = str(caught.value)
    assert words.endswith(".")
    assert "127.0.0.1" not in words
    return words
