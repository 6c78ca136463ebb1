"""Does every message end once, whatever carriers, receipts and clocks say about it, and in whatever order?"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest_asyncio

from tests.support.engine import Engine, numbers, open_engine
from tests.support.service import Caller
from tumira.actions import follow_up
from tumira.actions.outcomes import Doubtful, Ended, Outcome, Refused, Reported, Returned, Taken
from tumira.actions.settle_messages import settle
from tumira.ids import MessageId
from tumira.rules.carrier_urls import CarrierSettings
from tumira.rules.receipts import Receipt
from tumira.store import carriers, queue
from tumira.store.queue import Claimed, Wanted
from tumira.store.settlement import NewPart

WORKER: Final = "one"
BLOCKED: Final = (
    "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


@dataclass(frozen=True, slots=True)
class World:
    """A database with a carrier, and a worker of which only the writing is real."""

    engine: Engine
    caller: Caller
    carrier_id: int
    settings: dict[int, CarrierSettings]

    async def send(self, count: int = 1, body: str = "Your code is 493817.") -> None:
        """Let messages wait in the queue."""
        await self.engine.send(self.caller, numbers(count), body)

    async def claim(self, count: int = 1, worker: str = WORKER) -> Sequence[Claimed]:
        """Claim messages, as a worker does."""
        async with self.engine.database.transaction() as connection:
            wanted = Wanted("ZW", count, 0, count, 0, 0)
            claimed = await queue.claim(
                connection, [wanted], count, worker=worker, bind="one/1", carrier_id=self.carrier_id
            )
        assert claimed is not None
        assert len(claimed) == count
        return claimed

    async def settle(self, *outcomes: Outcome, worker: str = WORKER) -> int:
        """Write down what became of messages."""
        async with self.engine.database.transaction() as connection:
            return await settle(connection, outcomes, worker=worker)

    async def resume_due(self) -> int:
        """Do the chore that gives messages another turn, as if every wait were over."""
        await self.rows("UPDATE retries SET due_at = clock_timestamp() - interval '1 second'")
        async with self.engine.database.transaction() as connection:
            return await follow_up.resume_due(connection, self.settings, datetime.now(UTC), {"ZW"})

    async def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement."""
        return await self.engine.rows(statement, *arguments)

    async def status(self, message_id: UUID) -> str:
        """Return where a message stands."""
        rows = await self.rows("SELECT status FROM messages WHERE id = $1", message_id)
        return str(rows[0]["status"])

    def taken(self, claimed: Claimed, number: int = 1, *, attempt: int = 0, complete: bool = True) -> Taken:
        """Say that the carrier took a segment."""
        now = datetime.now(UTC)
        reference = f"{claimed.id.hex[-12:]}-{number}-{attempt}"
        part = NewPart(
            message_id=claimed.id,
            number=number,
            attempt=attempt,
            carrier_id=self.carrier_id,
            reference=None,
            carrier_ref=reference,
            carrier_key=reference,
            claimed_at=now,
            submitted_at=now,
            answered_at=now,
        )
        return Taken(claimed.id, part, complete)

    def reported(
        self, claimed: Claimed, state: str = "DELIVRD", number: int = 1, attempt: int = 0
    ) -> Reported:
        """Say that a receipt came."""
        receipt = Receipt(None, claimed.recipient[1:], state, "000", f"stat:{state}")
        return Reported(claimed.id, number, attempt, self.carrier_id, receipt, datetime.now(UTC))

    def doubtful(self, claimed: Claimed) -> Doubtful:
        """Say that nobody knows whether the carrier took it."""
        return Doubtful(claimed.id, self.carrier_id, 30, "no answer came in time")


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """Give a database with a carrier and an account."""
    async with open_engine(database_url) as engine:
        await engine.add_carrier("one", 2775)
        async with engine.database.connection() as connection:
            carrier = (await carriers.list_active(connection))[0]
        caller = await engine.open_account()
        yield World(engine, caller, carrier.id, {carrier.id: carrier.settings})


async def test_an_answer_counts_that_is_recorded_after_its_worker_was_taken_for_dead(world: World) -> None:
    await world.send()
    (claimed,) = await world.claim()
    await world.settle(world.doubtful(claimed))

    await world.settle(world.taken(claimed))

    assert await world.status(claimed.id) == "sent"
    assert await world.rows("SELECT FROM retries") == []
    assert await world.engine.audit() == []


async def test_an_answer_counts_that_is_recorded_when_its_message_waits_to_be_sent_again(
    world: World,
) -> None:
    await world.send()
    (claimed,) = await world.claim()
    await world.settle(world.doubtful(claimed))
    await world.resume_due()

    await world.settle(world.taken(claimed))

    assert await world.status(claimed.id) == "sent"
    assert await world.rows("SELECT FROM queue") == []
    assert await world.engine.audit() == []


async def test_a_message_that_was_delivered_is_not_sent_again_when_its_doubt_is_over(world: World) -> None:
    await world.send()
    (claimed,) = await world.claim()
    await world.settle(world.doubtful(claimed))
    await world.settle(world.taken(claimed), world.reported(claimed))
    assert await world.status(claimed.id) == "delivered"

    await world.resume_due()

    assert await world.status(claimed.id) == "delivered"
    assert await world.engine.audit() == []


async def test_a_claim_that_finds_only_settled_messages_leaves_none_of_them_waiting(world: World) -> None:
    """A message is settled between the two statements of a claim, which holds its place in the queue."""
    await world.send()
    async with world.engine.database.connection() as claiming, world.engine.database.connection() as ending:
        await ending.execute("BEGIN")
        rows = await ending.fetch("SELECT id FROM messages FOR NO KEY UPDATE")
        await claiming.execute("BEGIN")
        wanted = Wanted("ZW", 1, 0, 1, 0, 0)
        claim = asyncio.create_task(
            queue.claim(claiming, [wanted], 1, worker=WORKER, bind="one/1", carrier_id=world.carrier_id)
        )

        async def blocked() -> bool:
            return bool(await world.rows(BLOCKED))

        await world.engine.until(blocked, "the claim does not wait for the message")
        ended = Ended(MessageId(rows[0]["id"]), "queued", "failed", "NO_ROUTE")
        await settle(ending, [ended], worker="")
        await ending.execute("COMMIT")
        assert await claim == []
        await claiming.execute("COMMIT")
    assert await world.engine.audit() == []


async def test_a_refusal_and_a_return_of_somebody_elses_claim_change_nothing(world: World) -> None:
    await world.send()
    (claimed,) = await world.claim()
    assert await world.settle(Refused(claimed.id, "UNKNOWN"), worker="another") == 0
    again = Returned(claimed.id, claimed.country, claimed.lane, claimed.turn, again=False)
    assert await world.settle(again, worker="another") == 0
    assert await world.status(claimed.id) == "sending"
    assert await world.engine.audit() == []
