"""P13: nothing more goes to a recipient who opted out, from any node: no retry and no doubt either."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import pytest

from tests.support.chaos.two_nodes import TwoNodes, run_two_nodes
from tests.support.delivery.engine import Engine, numbers
from tests.support.processes.service import Caller
from tumira.audit_log import Actor
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.pdu import Command
from tumira.replies import manage
from tumira.replies.opt_outs import OptOutSettings, OptOutSource
from tumira.sending import batcher, large
from tumira.sending.types import Answered, Refused
from tumira.simulator.replies import write_reply
from tumira.simulator.smsc import Smsc, run_smsc

TEXT: Final = "Your parcel 1042 is ready at our counter."
CODE: Final = "Your code is 493817."
ACTOR: Final = Actor("test")
COST: Final = Decimal("0.04")
# Slow enough that messages wait while recipients leave.
TPS: Final = 12
STEP: Final = 2
DELIVER_SM: Final = int(Command.DELIVER_SM)
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


class Leaving:
    """Recipients who reply STOP one after the other, while the workers of two nodes hand messages over."""

    def __init__(self, nodes: TwoNodes, smsc: Smsc, caller: Caller) -> None:
        self.nodes = nodes
        self.smsc = smsc
        self.caller = caller
        # When each had opted out for certain, by the clock of the database.
        self.gone: dict[str, datetime] = {}
        self.accepted_late = 0
        # As many messages are taken in any case.
        self.taken_min = 0
        self.each = 0

    async def fill(self, given: Sequence[str], each: int) -> None:
        """Write to everybody, so that their replies are ours, and let more messages wait."""
        await self.nodes.send(0, self.caller, given, TEXT)
        await self.nodes.until_taken(len(given))
        for turn in range(each):
            await self.nodes.send(turn % 2, self.caller, given, f"{TEXT} Counter {turn}.")
        self.taken_min = len(given) * (1 + each)
        self.each = each

    async def leave(self, number: str, node: int) -> None:
        """Opt out by a reply over one of the two connections; then ask both nodes for another message."""
        await self.nodes.until_taken(min(self.taken_min, await self.nodes.taken() + STEP))
        self.taken_min -= self.each
        (body,) = write_reply(number, "Tumira", "Stop.")
        sorted(self.smsc.lines, key=id)[node].deliver(body, DELIVER_SM)

        async def is_stored() -> bool:
            rows = await self.nodes.engine.rows("SELECT FROM opt_outs WHERE number = $1", number)
            return bool(rows)

        await self.nodes.engine.until(is_stored, "the reply did not opt out")
        answers = await asyncio.gather(
            *(self.nodes.send(one, self.caller, [number], f"{TEXT} Too late.") for one in range(2))
        )
        self.accepted_late += sum(one["accepted"] for one in answers)
        self.gone[number] = await self.nodes.statements_ended()

    async def handed_over_late(self) -> int:
        """Return how many messages were claimed after their recipients had left, but for one-time codes."""
        parts = await self.nodes.engine.rows(
            "SELECT m.recipient, p.claimed_at FROM parts p JOIN messages m ON m.id = p.message_id"
            " JOIN batches b ON b.id = m.batch_id WHERE b.body <> $1",
            CODE,
        )
        return sum(
            part["recipient"] in self.gone and part["claimed_at"] > self.gone[part["recipient"]]
            for part in parts
        )


async def send_while_recipients_leave(
    engine: Engine, count: int, *, web: str = "", worker: str = ""
) -> tuple[int, int]:
    """Return how many messages were accepted, and how many submitted, to recipients who had left."""
    async with run_smsc() as smsc, run_two_nodes(engine, *filter(None, [web])) as nodes:
        await engine.add_carrier("one", smsc.port, binds=2, tps=TPS, window=4)
        await nodes.start_workers(*filter(None, [worker]))
        leaving = Leaving(nodes, smsc, await engine.open_account())
        given = numbers(2 * count)
        await leaving.fill(given, each=3 * count)
        for place, number in enumerate(given[:count]):
            await leaving.leave(number, place % 2)
        # The recipient has just asked for it.
        await nodes.send(0, leaving.caller, [given[0]], CODE)
        await engine.until_all("delivered", "failed", wait_s=150)
        assert smsc.texts.to(given[0])[-1] == CODE
        assert Counter(len(smsc.texts.to(one)) for one in given[count:]) == {3 * count + 1: count}
        return leaving.accepted_late, await leaving.handed_over_late()


@pytest.mark.long
@pytest.mark.parametrize("count", [4, 10])
async def test_who_opts_out_at_one_node_gets_nothing_more_from_any(engine: Engine, count: int) -> None:
    assert await send_while_recipients_leave(engine, count) == (0, 0)
    found = await endings(engine)
    assert set(found) == {("delivered", None, False), ("failed", "RECIPIENT_BLOCKED", True)}


@pytest.mark.long
async def test_nodes_that_forget_opt_outs_are_found_out(engine: Engine) -> None:
    accepted, _ = await send_while_recipients_leave(engine, 4, web="accept_for_all")
    assert accepted == 2 * 4


@pytest.mark.long
async def test_workers_that_forget_opt_outs_are_found_out(engine: Engine) -> None:
    accepted, handed_over = await send_while_recipients_leave(engine, 4, worker="submit_to_all")
    assert accepted == 0
    assert handed_over > 0


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


@pytest.mark.long
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


@pytest.mark.long
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
