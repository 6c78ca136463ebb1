"""Messages through carriers over HTTP: nothing is lost, and nothing is sent twice that could be known."""

import asyncio
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

import pytest

from tests.support.carriers.bulksms import BulkSmsServer
from tests.support.carriers.clickatell import ClickatellServer
from tests.support.carriers.esolutions import ESolutionsServer
from tests.support.carriers.server import Answer, Call, CutError, Misbehaviour, run_carrier
from tests.support.carriers.twilio import TwilioServer
from tests.support.delivery.engine import Engine, numbers
from tests.support.processes.service import Service, run_web
from tests.support.webhooks.receivers import answer, run_receiver
from tumira.delivery.http import link
from tumira.delivery.http.client import HttpTimeouts
from tumira.delivery.store.binds import BindState
from tumira.simulator.smsc import run_smsc
from tumira.webhooks.manage import add_endpoint

NUMBER: Final = numbers(1)[0]
LONG: Final = "Your statement is ready. " * 8
COST: Final = Decimal("0.04")
# An answer that takes long is lost soon, and carriers that stopped are tried again soon.
BRISK: Final = HttpTimeouts(connect_s=1, answer_s=0.5, quiet_s=5, repeat_s=0.05, stop_s=0.3, ask_s=0.1)


@pytest.fixture
def bulksms() -> Iterator[BulkSmsServer]:
    with run_carrier(BulkSmsServer()) as provider:
        yield provider


@pytest.fixture
def web(engine: Engine) -> Iterator[Service]:
    with run_web(engine.url) as service:
        yield service


async def incidents(engine: Engine) -> Sequence[str]:
    return [row["kind"] for row in await engine.rows("SELECT kind FROM incidents ORDER BY at")]


async def test_a_message_goes_from_send_to_receipt_and_webhook(
    engine: Engine, bulksms: BulkSmsServer, web: Service
) -> None:
    async with run_receiver(answer(200)) as receiver:
        await engine.add_http_carrier("bulk", bulksms)
        engine.start_worker(public_url=web.base)
        caller = await engine.open_account("10")
        await add_endpoint(
            engine.database, caller.id, receiver.url, ["message.delivered"], "", allow_private=True
        )
        bulksms.callback_url = await hook(engine, web)
        await engine.send(caller, [NUMBER], LONG)
        await engine.until_status(NUMBER, "delivered")
        await receiver.wait(requests=1)
    (sent,) = bulksms.sent
    assert (sent.text, sent.recipient.lstrip("+")) == (LONG, NUMBER.lstrip("+"))
    # The provider cuts the text; one receipt is for all of it.
    (part,) = await engine.rows("SELECT number, carrier_ref, state FROM parts")
    assert (part["number"], part["carrier_ref"], part["state"]) == (0, sent.id, "DELIVRD")
    assert await incidents(engine) == []


async def hook(engine: Engine, web: Service) -> str:
    (row,) = await engine.rows("SELECT hook_token FROM http_carriers")
    return f"{web.base}/hooks/carriers/{row['hook_token']}"


@pytest.mark.long
async def test_a_failure_that_anybody_could_report_is_confirmed_and_paid_back(
    engine: Engine, bulksms: BulkSmsServer, web: Service
) -> None:
    bulksms.outcome = "undelivered"
    await engine.add_http_carrier("bulk", bulksms)
    engine.start_worker(public_url=web.base)
    bulksms.callback_url = await hook(engine, web)
    caller = await engine.open_account("10")
    await engine.send(caller, [NUMBER])
    await engine.until_status(NUMBER, "undelivered")
    assert any(call.method == "GET" and "messages" in call.path for call in bulksms.calls)
    message = await engine.message(NUMBER)
    assert message["refunded_at"] is not None
    rows = await engine.rows("SELECT balance FROM accounts WHERE id = $1", caller.id)
    assert rows[0]["balance"] == 10


async def test_a_forged_failure_changes_nothing(engine: Engine, bulksms: BulkSmsServer, web: Service) -> None:
    bulksms.tells = False
    await engine.add_http_carrier("bulk", bulksms)
    engine.start_worker(public_url=web.base)
    bulksms.callback_url = await hook(engine, web)
    await engine.send(await engine.open_account("10"), [NUMBER])
    await engine.until_status(NUMBER, "sent")
    # It knows the address and the id, but the message is on its way.
    asked = len(bulksms.calls)
    assert await asyncio.to_thread(bulksms.tell, bulksms.sent[0], "undelivered") == 200

    async def is_asked() -> bool:
        return len(bulksms.calls) > asked

    await engine.until(is_asked, "the provider is not asked")
    bulksms.sent[0].state = "delivered"
    assert await asyncio.to_thread(bulksms.tell, bulksms.sent[0], "delivered") == 200
    await engine.until_status(NUMBER, "delivered")
    assert (await engine.message(NUMBER))["refunded_at"] is None


@pytest.mark.long
@pytest.mark.parametrize(
    "behaviour",
    [
        Misbehaviour.ANSWER_LOST,
        pytest.param(Misbehaviour.ANSWER_CUT, marks=pytest.mark.long),
        pytest.param(Misbehaviour.GARBAGE, marks=pytest.mark.long),
        pytest.param(Misbehaviour.HTML_5XX_AFTER_TAKING, marks=pytest.mark.long),
    ],
)
async def test_a_lost_answer_is_asked_for_again_where_the_provider_recognises_the_call(
    engine: Engine, bulksms: BulkSmsServer, behaviour: Misbehaviour
) -> None:
    bulksms.tells = False
    bulksms.misbehave(behaviour, times=1)
    await engine.add_http_carrier("bulk", bulksms)
    engine.start_worker()
    await engine.send(await engine.open_account(), [NUMBER])
    await engine.until_status(NUMBER, "sent")
    assert len(bulksms.sent) == 1
    assert sum(call.method == "POST" for call in bulksms.calls) == 2
    assert await incidents(engine) == []


@pytest.fixture
def unrepeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a message in doubt at the first lost answer, also where the call could be repeated."""
    monkeypatch.setattr(link, "REPEATS_MAX", 0)


@pytest.mark.long
@pytest.mark.usefixtures("unrepeated")
async def test_a_resend_in_doubt_has_the_reference_of_the_first_try(
    engine: Engine, bulksms: BulkSmsServer
) -> None:
    bulksms.tells = False
    bulksms.misbehave(Misbehaviour.ANSWER_LOST, times=1)
    await engine.add_http_carrier("bulk", bulksms)
    engine.start_worker(http=BRISK)
    await engine.send(await engine.open_account(), [NUMBER])
    await engine.until_status(NUMBER, "sent")
    assert len(bulksms.sent) == 1
    assert await incidents(engine) == ["doubt", "resend"]
    (row,) = await engine.rows("SELECT reference, attempt FROM submission_references")
    assert (row["reference"], row["attempt"]) == (bulksms.sent[0].reference, 1)


class Loser(BulkSmsServer):
    """Ends the first connection before it has taken anything."""

    def answer(self, call: Call) -> Answer:
        if call.method == "POST" and len([one for one in self.calls if one.method == "POST"]) == 1:
            raise CutError
        return super().answer(call)


@pytest.mark.long
@pytest.mark.usefixtures("unrepeated")
@pytest.mark.parametrize(
    ("server", "expected"),
    [(BulkSmsServer, ["doubt"]), (Loser, ["doubt", "resend"])],
    ids=["taken", "not taken"],
)
async def test_a_message_in_doubt_is_asked_for_and_sent_again_only_if_it_never_arrived(
    engine: Engine, server: type[BulkSmsServer], expected: Sequence[str]
) -> None:
    with run_carrier(server()) as provider:
        provider.tells = False
        provider.misbehave(
            Misbehaviour.ANSWER_LOST if server is BulkSmsServer else Misbehaviour.NONE, times=1
        )
        await engine.add_http_carrier("bulk", provider, in_doubt="look")
        engine.start_worker(http=BRISK)
        await engine.send(await engine.open_account(), [NUMBER])
        await engine.until_status(NUMBER, "sent")
        assert len(provider.sent) == 1
        assert await incidents(engine) == expected
        assert any(call.method == "GET" and "filter" in call.query for call in provider.calls)


@pytest.mark.long
@pytest.mark.parametrize("behaviour", [Misbehaviour.ANSWER_LOST, Misbehaviour.SLOW])
async def test_what_cannot_be_asked_is_held_and_settled_by_a_late_receipt(
    engine: Engine, web: Service, behaviour: Misbehaviour
) -> None:
    with run_carrier(ClickatellServer()) as provider:
        provider.tells = False
        # Longer than the answer is waited for, and it is taken all the same.
        provider.slow_s = 1.0
        provider.misbehave(behaviour, times=1)
        await engine.add_http_carrier("click", provider)
        engine.start_worker(public_url=web.base, http=BRISK)
        provider.callback_url = await hook(engine, web)
        await engine.send(await engine.open_account(), [NUMBER])
        await engine.until_status(NUMBER, "unconfirmed")
        assert await incidents(engine) == ["doubt", "hold"]
        assert await asyncio.to_thread(provider.tell, provider.sent[0], "delivered") == 200
        await engine.until_status(NUMBER, "delivered")
        assert len(provider.sent) == 1


@pytest.mark.long
async def test_a_receipt_that_comes_before_the_answer_counts(
    engine: Engine, bulksms: BulkSmsServer, web: Service
) -> None:
    bulksms.misbehave(Misbehaviour.CALLBACK_BEFORE_ANSWER, times=1)
    await engine.add_http_carrier("bulk", bulksms)
    engine.start_worker(public_url=web.base)
    bulksms.callback_url = await hook(engine, web)
    await engine.send(await engine.open_account(), [NUMBER])
    await engine.until_status(NUMBER, "delivered")

    async def is_recorded() -> bool:
        rows = await engine.rows("SELECT FROM in_flight")
        return not rows

    await engine.until(is_recorded, "it stays in flight")
    assert len(await engine.rows("SELECT FROM parts")) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "behaviour", [Misbehaviour.NO_CREDIT, Misbehaviour.BAD_CREDENTIALS, Misbehaviour.REDIRECT]
)
async def test_a_carrier_that_refuses_our_account_touches_no_message(
    engine: Engine, bulksms: BulkSmsServer, behaviour: Misbehaviour
) -> None:
    bulksms.tells = False
    bulksms.misbehave(behaviour)
    async with run_smsc() as smsc:
        await engine.add_http_carrier("bulk", bulksms, priority=1)
        await engine.add_carrier("other", smsc.port, priority=2)
        worker = engine.start_worker(http=BRISK)
        await engine.until_bound("bulk")
        caller = await engine.open_account()
        await engine.send(caller, numbers(20))
        # The other carrier takes over.
        await engine.until_all("delivered")
        assert await engine.until_state("bulk", BindState.DOWN, BindState.FAILING)
        assert bulksms.sent == []
        assert await incidents(engine) == []
        # One message after the other shows when it works again.
        bulksms.misbehave(Misbehaviour.NONE)
        place = 100

        async def is_used_again() -> bool:
            nonlocal place
            place += 1
            await engine.send(caller, numbers(1, start=place))
            return bool(bulksms.sent)

        await engine.until(is_used_again, "the carrier is not tried again")
        await engine.until_all("sent", "delivered")
        await engine.stop_worker(worker)
        assert max(bulksms.texts.values()) == 1


@pytest.mark.long
async def test_a_throttled_message_waits_in_front(engine: Engine, bulksms: BulkSmsServer) -> None:
    bulksms.tells = False
    bulksms.misbehave(Misbehaviour.THROTTLED, times=1)
    await engine.add_http_carrier("bulk", bulksms)
    engine.start_worker()
    await engine.send(await engine.open_account(), [NUMBER])
    await engine.until_status(NUMBER, "sent")
    assert await incidents(engine) == []
    assert len(bulksms.sent) == 1


@pytest.mark.long
async def test_a_refused_message_is_paid_back(engine: Engine, bulksms: BulkSmsServer) -> None:
    bulksms.misbehave(Misbehaviour.REFUSED_NUMBER)
    await engine.add_http_carrier("bulk", bulksms)
    engine.start_worker()
    await engine.send(await engine.open_account("10"), [NUMBER])
    await engine.until_status(NUMBER, "failed")
    assert (await engine.message(NUMBER))["refunded_at"] is not None


@pytest.mark.long
async def test_a_provider_without_callbacks_is_polled(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tumira.delivery.http.link.poll_ages", lambda _: (1, 2, 3, 4, 5, 6))
    monkeypatch.setattr("tumira.delivery.http.follower.poll_ages", lambda _: (1, 2, 3, 4, 5, 6))
    with run_carrier(ESolutionsServer()) as provider:
        await engine.add_http_carrier("local", provider)
        engine.start_worker()
        await engine.send(await engine.open_account(), [NUMBER])
        await engine.until_status(NUMBER, "sent")
        provider.sent[0].state = "delivered"
        await engine.until_status(NUMBER, "delivered")

        async def is_over() -> bool:
            (row,) = await engine.rows("SELECT poll_at FROM submission_references")
            return row["poll_at"] is None

        await engine.until(is_over, "it is polled on")


@pytest.mark.long
async def test_a_carrier_that_cannot_be_reached_leaves_nothing_in_doubt(
    engine: Engine, bulksms: BulkSmsServer
) -> None:
    bulksms.tells = False
    port, bulksms.port = bulksms.port, 1
    await engine.add_http_carrier("bulk", bulksms)
    engine.start_worker(http=BRISK)
    await engine.send(await engine.open_account(), numbers(3))
    assert "not reached" in str(await engine.until_state("bulk", BindState.DOWN))
    bulksms.port = port
    await engine.add_http_carrier("bulk", bulksms)
    await engine.until_all("sent")
    assert await incidents(engine) == []
    assert sorted(bulksms.texts.values()) == [1, 1, 1]


@pytest.mark.long
async def test_a_signed_failure_is_believed(engine: Engine, web: Service) -> None:
    with run_carrier(TwilioServer()) as provider:
        provider.outcome = "undelivered"
        provider.misbehave(Misbehaviour.FORGED_CALLBACK, times=1)
        await engine.add_http_carrier("twilio", provider, source="Shop")
        engine.start_worker(public_url=web.base)
        await engine.send(await engine.open_account(), [NUMBER])
        await engine.until_status(NUMBER, "undelivered")
        assert any(state.startswith("forged") and status >= 400 for state, status in provider.told)


@pytest.mark.long
async def test_a_worker_that_is_cut_off_loses_nothing(engine: Engine, bulksms: BulkSmsServer) -> None:
    bulksms.tells = False
    bulksms.slow_s = 0.2
    bulksms.misbehave(Misbehaviour.SLOW)
    await engine.add_http_carrier("bulk", bulksms, window=4)
    worker = engine.start_worker()
    await engine.send(await engine.open_account(), numbers(30))

    async def is_busy() -> bool:
        return len(bulksms.sent) >= 6

    await engine.until(is_busy, "nothing is handed over")
    await engine.stop_worker(worker)
    assert await engine.rows("SELECT FROM in_flight") == []
    engine.start_worker()
    await engine.until_all("sent")
    assert set(bulksms.texts_by_recipient.values()) == {1}
