"""From send to receipt, webhook and refund through each provider over HTTP."""

import json
import threading
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import pytest

from tests.support.carriers.bulksms import BulkSmsServer
from tests.support.carriers.catalogue import SERVERS
from tests.support.carriers.example import ExampleServer
from tests.support.carriers.server import (
    Answer,
    Call,
    CarrierServer,
    Misbehaviour,
    SentText,
    run_carrier,
)
from tests.support.carriers.smsportal import TokenServer
from tests.support.carriers.vonage import VonageServer
from tests.support.delivery.engine import Engine, numbers
from tests.support.processes.service import Service, run_web
from tests.support.webhooks.receivers import run_receiver
from tumira.delivery.http.client import HttpTimeouts
from tumira.webhooks.manage import add_endpoint

PROVIDERS: Final[Mapping[str, type[CarrierServer]]] = {**SERVERS, "example": ExampleServer}
# One that signs callbacks and names our reference in them is enough for every change.
SHORT: Final = "twilio"
EACH: Final = [
    pytest.param(name, id=name, marks=() if name == SHORT else pytest.mark.long) for name in PROVIDERS
]
ONE, TWO, THREE, FOUR = numbers(4)


# An answer that takes long is lost soon, and a carrier that stopped is tried again soon.
BRISK: Final = HttpTimeouts(connect_s=1, answer_s=2, quiet_s=5, repeat_s=0.05, stop_s=0.3, ask_s=0.1)


def poll_soon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "esolutions":
        for module in ("link", "follower"):
            monkeypatch.setattr(f"tumira.delivery.http.{module}.poll_ages", lambda _: tuple(range(1, 40)))


async def hook(engine: Engine, web: Service) -> str:
    (row,) = await engine.rows("SELECT hook_token FROM http_carriers")
    return f"{web.base}/hooks/carriers/{row['hook_token']}"


@pytest.mark.parametrize("name", EACH)
async def test_from_send_to_receipt_webhook_and_refund(
    engine: Engine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll_soon(name, monkeypatch)
    with run_carrier(PROVIDERS[name]()) as provider, run_web(engine.url) as web:
        async with run_receiver() as receiver:
            await engine.add_http_carrier(name, provider, source="Shop")
            engine.start_worker(public_url=web.base)
            provider.callback_url = await hook(engine, web)
            caller = await engine.open_account("10")
            await add_endpoint(engine.database, caller.id, receiver.url, None, "", allow_private=True)

            await engine.send(caller, [ONE])
            await engine.until_status(ONE, "delivered")
            provider.misbehave(Misbehaviour.CALLBACK_TWICE, times=1)
            provider.outcome = "undelivered"
            await engine.send(caller, [TWO])
            await engine.until_status(TWO, "undelivered")
            provider.misbehave(Misbehaviour.CALLBACK_OUT_OF_ORDER, times=1)
            provider.outcome = "delivered"
            await engine.send(caller, [THREE])
            await engine.until_status(THREE, "delivered")
            provider.misbehave(Misbehaviour.REFUSED_NUMBER)
            await engine.send(caller, [FOUR])
            await engine.until_status(FOUR, "failed")

            kinds = {"message.delivered": 2, "message.undelivered": 1, "message.failed": 1}

            async def are_told() -> bool:
                told = Counter(json.loads(one.body)["type"] for one in receiver.requests)
                return all(told[kind] == count for kind, count in kinds.items())

            await engine.until(are_told, "the webhooks do not come")
    assert set(provider.texts_by_recipient.values()) == {1}
    assert len(provider.sent) == 3
    rows = await engine.rows("SELECT recipient, cost, refunded_at FROM messages")
    spent = sum((row["cost"] for row in rows if row["refunded_at"] is None), Decimal(0))
    assert {row["recipient"] for row in rows if row["refunded_at"]} == {TWO, FOUR}
    (account,) = await engine.rows("SELECT balance FROM accounts WHERE id = $1", caller.id)
    assert account["balance"] == 10 - spent


M: Final = Misbehaviour
# Answered with an error in their own words, which some of them leave open to doubt.
UNSURE: Final = ("esolutions", "smsportal", "twilio")


def expected(name: str, behaviour: Misbehaviour) -> tuple[str, int]:
    """Return how a message ends, and how many texts arrive."""
    match behaviour:
        case M.ERROR_5XX if name in UNSURE:
            return "unconfirmed", 0
        case M.REFUSED_NUMBER if name != "esolutions":
            return "failed", 0
        case M.UNKNOWN_STATUS:
            return "sent", 1
        case _:
            return "delivered", 1


@pytest.mark.long
@pytest.mark.parametrize("name", list(PROVIDERS))
async def test_no_misbehaviour_loses_or_doubles_a_text(
    engine: Engine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll_soon(name, monkeypatch)
    with run_carrier(PROVIDERS[name]()) as provider, run_web(engine.url) as web:
        provider.slow_s = 0.3
        await engine.add_http_carrier(name, provider, source="Shop")
        engine.start_worker(public_url=web.base, http=BRISK)
        provider.callback_url = await hook(engine, web)
        caller = await engine.open_account("100")
        for number, behaviour in zip(numbers(len(M)), M, strict=True):
            provider.misbehave(behaviour, times=1)
            await engine.send(caller, [number], f"Your order is {behaviour}.")
            status, count = expected(name, behaviour)
            await engine.until_status(number, status)
            texts = [one for one in provider.sent if one.recipient == number.removeprefix("+")]
            assert (behaviour, len(texts)) == (behaviour, count)


class AskedBeforeItAnswers(BulkSmsServer):
    """Reports a failure, and answers only after it was asked whether that is true."""

    def tell(self, text: SentText, state: str, *, forged: bool = False) -> int:
        status = super().tell(text, state, forged=forged)
        self.asked.wait(5)
        return status

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def answer(self, call: Call) -> Answer:
        answer = super().answer(call)
        if call.method == "GET" and call.path.startswith("/messages"):
            self.asked.set()
        return answer


@pytest.mark.long
async def test_a_failure_reported_before_the_answer_is_confirmed_at_once(engine: Engine) -> None:
    with run_carrier(AskedBeforeItAnswers()) as provider, run_web(engine.url) as web:
        provider.outcome = "undelivered"
        provider.misbehave(Misbehaviour.CALLBACK_BEFORE_ANSWER, times=1)
        await engine.add_http_carrier("bulk", provider)
        engine.start_worker(public_url=web.base, http=HttpTimeouts(answer_s=20, ask_s=0.1))
        provider.callback_url = await hook(engine, web)
        await engine.send(await engine.open_account("10"), [ONE])
        await engine.until_status(ONE, "undelivered")
        assert provider.asked.is_set()
        assert len(provider.sent) == 1


@pytest.mark.long
async def test_a_token_that_expired_is_renewed_and_costs_no_message(engine: Engine) -> None:
    with run_carrier(TokenServer()) as provider:
        await engine.add_http_carrier("token", provider)
        engine.start_worker()
        caller = await engine.open_account("10")
        await engine.send(caller, [ONE])
        await engine.until_status(ONE, "sent")
        provider.misbehave(Misbehaviour.EXPIRED_TOKEN, times=1)
        await engine.send(caller, [TWO, THREE])
        await engine.until_all("sent")
    assert sum(call.path == "/Authentication" for call in provider.calls) == 2
    assert sorted(provider.texts.values()) == [1, 1, 1]


@pytest.mark.long
async def test_a_long_text_over_vonage_is_one_message(engine: Engine) -> None:
    with run_carrier(VonageServer()) as provider, run_web(engine.url) as web:
        provider.tells = False
        await engine.add_http_carrier("vonage", provider)
        engine.start_worker(public_url=web.base)
        await engine.send(await engine.open_account("10"), [ONE], "Your statement is ready. " * 14)
        await engine.until_status(ONE, "sent")
        [sent] = provider.sent
        assert sent.parts == 3
        for part in (1, 0, 2):
            assert provider.tell_part(sent, "delivered", part) == 200
        await engine.until_status(ONE, "delivered")
        assert await engine.rows("SELECT FROM unmatched_receipts") == []


@pytest.mark.long
async def test_a_long_reply_over_vonage_is_one_text(engine: Engine) -> None:
    with run_carrier(VonageServer()) as provider, run_web(engine.url) as web:
        await engine.add_http_carrier("vonage", provider)
        engine.start_worker(public_url=web.base)
        provider.callback_url = await hook(engine, web)
        assert set(provider.tell_long_reply(ONE, "32100", "Ndatenda, ", "mari yasvika ", "🎉")) == {200}

        async def is_joined() -> bool:
            return [row["text"] for row in await engine.rows("SELECT text FROM replies")] == [
                "Ndatenda, mari yasvika 🎉"
            ]

        await engine.until(is_joined, "the reply is not joined")
