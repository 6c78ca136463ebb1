"""Every message ends as its carrier says, with the events and refunds that follow."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import asyncpg
import pytest

from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.scripted import Scripted
from tests.support.processes.service import Caller
from tumira.core.ids import first_id
from tumira.delivery import follow_up
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.postgres import clock, partitions
from tumira.simulator.connection import Exchange
from tumira.simulator.misbehaviours import Misbehaviour
from tumira.simulator.numbers import OUTCOMES
from tumira.simulator.smsc import run_smsc

# Doubts come and go in a second.
BRISK: Final = SmppTimeouts(response_s=0.5, enquire_after_s=2.0, enquire_answer_s=2.0, bind_s=3.0)
NUMBER: Final = numbers(1)[0]
LONG: Final = "Your statement is ready. " * 8
COST: Final = Decimal("0.04")
SENT: Final = "sent"

# How the message to a number that ends so ends, and why.
ENDINGS: Final = {
    "9901": ("undelivered", "UNKNOWN_SUBSCRIBER"),
    "9902": ("undelivered", "ABSENT_SUBSCRIBER"),
    "9903": ("expired", "VALIDITY_EXPIRED"),
    "9904": ("undelivered", "SUBSCRIBER_BARRED"),
    "9905": ("failed", "UNKNOWN_SUBSCRIBER"),
    "9906": ("failed", "SENDER_NOT_ALLOWED"),
    "9907": ("delivered", None),
    "9908": (SENT, None),
    "9909": ("delivered", None),
    "9910": ("expired", "VALIDITY_EXPIRED"),
}
REFUNDED: Final = {"undelivered", "expired", "failed"}


async def events(engine: Engine, caller: Caller, message: asyncpg.Record) -> Sequence[str]:
    rows = await engine.rows(
        "SELECT type FROM events WHERE account_id = $1 AND batch_id = $2 ORDER BY sequence",
        caller.id,
        message["batch_id"],
    )
    return [row["type"] for row in rows]


async def balance(engine: Engine, caller: Caller) -> Decimal:
    (row,) = await engine.rows("SELECT balance FROM accounts WHERE id = $1", caller.id)
    assert isinstance(row["balance"], Decimal)
    return row["balance"]


async def test_every_number_of_the_simulator_ends_as_its_page_says(engine: Engine) -> None:
    assert [outcome.ending for outcome in OUTCOMES] == list(ENDINGS)
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=1)
        engine.start_worker(BRISK)
        caller = await engine.open_account("10")
        for ending in ENDINGS:
            await engine.send(caller, [f"+26377120{ending}"])
        for ending, (status, _) in ENDINGS.items():
            await engine.until_status(f"+26377120{ending}", status)

        for outcome in OUTCOMES:
            status, reason = ENDINGS[outcome.ending]
            message = await engine.message(f"+26377120{outcome.ending}")
            assert status in (*outcome.status.split(" or "), SENT)
            assert message["failure_reason"] == reason
            assert (message["refunded_at"] is not None) == (status in REFUNDED)
            told = [f"message.{status}", *(["message.refunded"] if status in REFUNDED else [])]
            expected = [] if status == SENT else [*told, "batch.completed"]
            assert await events(engine, caller, message) == expected
            assert len(smsc.texts.to(message["recipient"])) == (outcome.arrives and status != "expired")
        assert await balance(engine, caller) == Decimal(10) - 3 * COST
        assert await engine.audit() == []

        async with engine.database.transaction() as connection:
            assert await follow_up.give_up_receipts(connection, datetime.now(UTC) + timedelta(hours=73)) == 1
        message = await engine.message("+263771209908")
        assert message["status"] == "unconfirmed"
        assert await events(engine, caller, message) == ["message.unconfirmed", "batch.completed"]
        assert await balance(engine, caller) == Decimal(10) - 3 * COST


@pytest.mark.parametrize(
    "statuses",
    [
        (CommandStatus.RSYSERR, CommandStatus.ROK, CommandStatus.RSYSERR),
        (CommandStatus.ROK, CommandStatus.RTHROTTLED),
    ],
    ids=lambda statuses: " ".join(status.name for status in statuses),
)
async def test_the_segment_that_was_refused_goes_again_alone_with_the_same_reference(
    engine: Engine, statuses: Sequence[CommandStatus]
) -> None:
    async with run_smsc(misbehaviours=[Scripted(*statuses)]) as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        await engine.send(await engine.open_account(), [NUMBER], LONG)
        await engine.until_status(NUMBER, "delivered")
        # The handset joins only segments that have the same reference.
        assert smsc.texts.to(NUMBER) == [LONG]
        assert smsc.submits.taken == 2
        parts = await engine.rows("SELECT number, attempt, reference FROM parts ORDER BY number")
        assert [(part["number"], part["attempt"]) for part in parts] == [(1, 0), (2, 0)]
        assert parts[0]["reference"] == parts[1]["reference"] is not None


class SlowToTake(Misbehaviour):
    """What is taken is answered after so much time, what is refused at once."""

    def around(self, exchange: Exchange, answer: Callable[[], None]) -> Callable[[], None]:
        if exchange.status:
            return answer

        def answer_later() -> None:
            asyncio.get_running_loop().call_later(self.value / 1000, answer)

        return answer_later


@pytest.mark.long
async def test_nothing_more_of_a_message_is_submitted_once_a_segment_was_refused(engine: Engine) -> None:
    async with run_smsc(misbehaviours=[Scripted(CommandStatus.RINVDSTADR), SlowToTake(200)]) as smsc:
        await engine.add_carrier("one", smsc.port, window=2)
        engine.start_worker()
        caller = await engine.open_account("10")
        await engine.send(caller, [NUMBER], LONG * 3)
        await engine.until_status(NUMBER, "failed")
        assert smsc.submits.received == 2
        assert await balance(engine, caller) == 10


@pytest.mark.long
async def test_answers_wait_for_a_partition_that_is_missing(engine: Engine) -> None:
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, numbers(1))
        await engine.until_all("delivered")
        async with engine.database.connection() as connection:
            now = await clock.read_now(connection)
            weeks = await partitions.list_weeks(connection, "events")
            at = first_id(int(now.timestamp() * 1000))
            week = next(one for one in weeks if one.low <= at < one.high)
            await connection.execute(f"ALTER TABLE events DETACH PARTITION {week.name}")
        undone = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ((before,),) = await engine.rows(undone)
        await engine.send(caller, numbers(5))

        async def tried_in_vain() -> bool:
            return bool((await engine.rows(undone))[0][0] >= before + 3)

        await engine.until(tried_in_vain, "nobody tries to record")
        await engine.rows(
            f"ALTER TABLE events ATTACH PARTITION {week.name}"
            f" FOR VALUES FROM ('{week.low}') TO ('{week.high}')"
        )
        await engine.until_all("delivered")
        assert len(smsc.texts) == 6
