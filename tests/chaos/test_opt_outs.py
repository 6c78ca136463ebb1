"""P13: nothing more goes to a recipient who opted out, on several nodes: queue, retry and doubt too."""

import asyncio
import random
from collections import Counter
from decimal import Decimal
from typing import Any, Final

import msgspec
import pytest

from tests.support.delivery.engine import Engine, numbers
from tests.support.sending.batchers import open_batchers, send_call
from tumira.audit_log import Actor
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.store import queue
from tumira.postgres.statement import Statement
from tumira.replies import manage
from tumira.replies.opt_outs import OptOutSettings, OptOutSource
from tumira.sending import batcher, large
from tumira.sending.types import Answered, Refused
from tumira.simulator.smsc import run_smsc

TEXT: Final = "Your parcel 1042 is ready at our counter."
CODE: Final = "Your code is 493817."
ACTOR: Final = Actor("test")
COST: Final = Decimal("0.04")
BRISK: Final = SmppTimeouts(response_s=0.5, enquire_after_s=2.0, enquire_answer_s=2.0, bind_s=3.0)


async def opt_out(engine: Engine, account_id: object, *given: str) -> None:
    added = await manage.opt_out(
        engine.database,
        account_id,  # type: ignore[arg-type]
        given,
        None,
        source=OptOutSource.PAGE,
        actor=ACTOR,
    )
    assert added.added == len(given)


async def endings(engine: Engine) -> Counter[tuple[str, str | None, bool]]:
    rows = await engine.rows(
        "SELECT status, failure_reason, refunded_at IS NOT NULL AS refunded FROM messages"
    )
    return Counter((row["status"], row["failure_reason"], row["refunded"]) for row in rows)


async def test_no_node_accepts_after_the_opt_out_however_calls_race(engine: Engine) -> None:
    caller = await engine.open_account()
    given = numbers(12)
    gone: set[str] = set()
    chance = random.Random(20261117)

    async def leave(number: str) -> None:
        await asyncio.sleep(chance.random() * 0.3)
        await opt_out(engine, caller.id, number)
        gone.add(number)

    async with open_batchers(engine.url, 2) as batchers:

        async def send(place: int) -> None:
            for _ in range(25):
                out = frozenset(gone)
                to = chance.sample(given, 4)
                decision = await batchers.batchers[place % 2].ask(send_call(caller, to, TEXT))
                assert isinstance(decision, Answered), decision
                answer = msgspec.json.decode(decision.response)
                refused = {one["to"] for one in answer["rejected"]}
                assert out & set(to) <= refused
                assert {one["code"] for one in answer["rejected"]} <= {"RECIPIENT_OPTED_OUT"}
                accepted = 4 - len(refused)
                assert Decimal(answer["total_cost"]) == accepted * COST

        await asyncio.gather(*(leave(number) for number in given[:9]), *(send(place) for place in range(6)))
        decision = await batchers.batchers[1].ask(send_call(caller, given, TEXT))
        assert isinstance(decision, Answered)
        answer = msgspec.json.decode(decision.response)
        assert [one["to"] for one in answer["rejected"]] == list(given[:9])


async def hand_over_after_opt_outs(engine: Engine) -> Counter[tuple[str, str | None, bool]]:
    """Let messages wait, opt half of their recipients out, and start two workers."""
    caller = await engine.open_account()
    given = numbers(40)
    for number in given:
        await engine.send(caller, [number], TEXT)
    await engine.send(caller, [given[0]], CODE)
    await opt_out(engine, caller.id, *given[:20])
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port, binds=2)
        engine.start_worker()
        engine.start_worker()
        await engine.until_all("delivered", "failed")
        texts = Counter((one.to, one.text) for one in smsc.texts)
        expected = {(number, TEXT): 1 for number in given[20:]} | {(given[0], CODE): 1}
        assert all(texts[one] == 1 for one in expected)
    return await endings(engine)


async def test_what_waits_in_the_queue_fails_and_is_refunded(engine: Engine) -> None:
    found = await hand_over_after_opt_outs(engine)
    assert found == {("delivered", None, False): 21, ("failed", "RECIPIENT_BLOCKED", True): 20}


@pytest.mark.long
async def test_without_the_check_at_the_claim_all_of_them_would_arrive(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    careless = Statement(queue.SQL_CLAIM.text.replace("opt_out.number IS NOT NULL AS", "false AS"))
    careless.names = queue.SQL_CLAIM.names
    assert careless.text != queue.SQL_CLAIM.text
    monkeypatch.setattr(queue, "SQL_CLAIM", careless)
    assert await hand_over_after_opt_outs(engine) == {("delivered", None, False): 41}


async def test_neither_a_retry_nor_a_resend_in_doubt_reaches_who_has_left(engine: Engine) -> None:
    # The first is refused for now twice, the second gets no answer at first.
    retried, doubted = "+263771209907", "+263771209909"
    caller = await engine.open_account()
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=1)
        worker = engine.start_worker(BRISK)
        await engine.send(caller, [retried], TEXT)
        await engine.send(caller, [doubted], TEXT)

        async def both_wait() -> bool:
            rows = await engine.rows("SELECT DISTINCT message_id FROM incidents")
            return len(rows) == 2

        await engine.until(both_wait, "not tried")
        await opt_out(engine, caller.id, retried, doubted)
        await engine.until_all("failed", "unconfirmed", "delivered")
        await engine.stop_worker(worker)
        # The carrier may have the second; it was not sent again.
        assert (await engine.message(doubted))["status"] in {"unconfirmed", "delivered"}
        assert smsc.texts.to(doubted) == []
        if (await engine.message(retried))["status"] == "failed":
            assert (await engine.message(retried))["failure_reason"] == "RECIPIENT_BLOCKED"
            assert smsc.texts.to(retried) == []


async def test_the_operator_may_cover_one_time_codes_too(engine: Engine) -> None:
    caller = await engine.open_account()
    waiting, later = numbers(2)
    await engine.send(caller, [waiting], CODE)
    await opt_out(engine, caller.id, waiting, later)
    answer = await engine.send(caller, [later], CODE)
    assert answer["rejected"] == []
    # What goes to many is no code that a person asked for.
    answer = await engine.send(caller, [later, *(f"+27821230{place:03}" for place in range(10))], CODE)
    assert [one["to"] for one in answer["rejected"]] == [later]
    await manage.save_settings(
        engine.database, OptOutSettings(covers_passcodes=True, confirmation=None), actor=ACTOR
    )
    answer = await engine.send(caller, [later], "Your code is 593817.")
    assert [one["code"] for one in answer["rejected"]] == ["RECIPIENT_OPTED_OUT"]
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        await engine.until_all("failed", "delivered")
        assert smsc.texts.to(waiting) == smsc.texts.to(later) == []
    assert await endings(engine) == {
        ("failed", "RECIPIENT_BLOCKED", True): 2,
        ("delivered", None, False): 10,
    }


async def test_a_large_send_is_rejected_in_part_and_what_slips_by_is_stopped(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await engine.open_account()
    given = numbers(1000)
    await opt_out(engine, caller.id, *given[::10])

    async def opt_out_and_send(*arguments: Any) -> Answered | Refused:
        # The call is decided, and its rows are not written yet.
        await opt_out(engine, caller.id, given[1])
        return await large.send_large(*arguments)

    monkeypatch.setattr(batcher, "send_large", opt_out_and_send)
    answer = await engine.send(caller, given, TEXT)
    assert [one["to"] for one in answer["rejected"]] == list(given[::10])
    assert Decimal(answer["total_cost"]) == 900 * COST
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        await engine.until_all("delivered", "failed")
        assert smsc.texts.to(given[1]) == []
        assert len(smsc.texts) == 899
    assert await endings(engine) == {
        ("delivered", None, False): 899,
        ("failed", "RECIPIENT_BLOCKED", True): 1,
    }
