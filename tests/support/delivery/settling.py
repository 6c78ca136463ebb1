"""A worker without carriers, of which only the settlement is real."""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

import asyncpg

from tests.support.delivery.engine import Engine, numbers, open_engine
from tests.support.processes.service import Caller
from tumira.carriers import store as carriers
from tumira.carriers.url import CarrierSettings
from tumira.delivery import follow_up
from tumira.delivery.lanes import Room
from tumira.delivery.outcomes import (
    CarrierRefused,
    LeftInDoubt,
    Outcome,
    Released,
    Reported,
    RetryLater,
    Taken,
)
from tumira.delivery.receipt_rules import Receipt, key
from tumira.delivery.settle import settle
from tumira.delivery.store import queue, receipts
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest
from tumira.delivery.store.settlement import NewPart
from tumira.delivery.store.waiting import QueueEntry
from tumira.postgres.connection import Connection

WORKER: Final = "one"
BLOCKED: Final = (
    "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
REFUND_ALL: Final = frozenset({"failed", "expired", "undelivered"})


@dataclass(frozen=True, slots=True)
class World:
    """A database with a carrier, and a worker of which only the writing is real."""

    engine: Engine
    caller: Caller
    carrier_id: int
    settings: dict[int, CarrierSettings]

    async def send(
        self, count: int = 1, body: str = "Your code is 493817.", to: Sequence[str] | None = None
    ) -> None:
        await self.engine.send(self.caller, numbers(count) if to is None else to, body)

    async def claim(self, count: int = 1, worker: str = WORKER) -> Sequence[ClaimedMessage]:
        async with self.engine.database.transaction() as connection:
            wanted = ClaimRequest("ZW", count, 0, count, 0, 0)
            claimed = await queue.claim(
                connection,
                [wanted],
                Room(count, 0, count),
                worker=worker,
                bind="one/1",
                carrier_id=self.carrier_id,
            )
        assert claimed is not None
        assert len(claimed) == count
        return claimed

    async def claim_one(self, body: str = "Your code is 493817.") -> ClaimedMessage:
        await self.send(body=body)
        (claimed,) = await self.claim()
        return claimed

    async def settle(
        self, *outcomes: Outcome, worker: str = WORKER, refunded: Collection[str] = REFUND_ALL
    ) -> int:
        async with self.engine.database.transaction() as connection:
            return await settle(connection, outcomes, worker=worker, refunded=refunded)

    async def resume_due(self, later: timedelta = timedelta()) -> int:
        await self.rows("UPDATE retries SET due_at = clock_timestamp() - interval '1 second'")
        async with self.engine.database.transaction() as connection:
            return await follow_up.resume_due(connection, self.settings, datetime.now(UTC) + later, {"ZW"})

    async def expire_waiting(self, later: timedelta, well: Collection[str] = ("ZW",)) -> int:
        async with self.engine.database.transaction() as connection:
            found = await follow_up.list_expired(connection, datetime.now(UTC) + later)
            return await follow_up.expire(connection, found, well)

    async def fail_unroutable(self, covered: Collection[str] = ()) -> int:
        async with self.engine.database.transaction() as connection:
            return await follow_up.fail_unroutable(connection, covered)

    async def give_up_receipts(self, later: timedelta) -> int:
        async with self.engine.database.transaction() as connection:
            return await follow_up.give_up_receipts(connection, datetime.now(UTC) + later)

    async def keep(self, *kept: Receipt) -> None:
        async with self.engine.database.transaction() as connection:
            for receipt in kept:
                await receipts.insert_unmatched(connection, self.carrier_id, [(receipt, datetime.now(UTC))])

    async def try_unmatched(self) -> int:
        await self.rows("UPDATE unmatched_receipts SET next_try_at = clock_timestamp()")
        async with self.engine.database.transaction() as connection:
            return (await follow_up.retry_unmatched_receipts(connection)).found

    async def rows(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        return await self.engine.rows(statement, *arguments)

    @asynccontextmanager
    async def impatient(self) -> AsyncIterator[Connection]:
        """Give a transaction that fails rather than wait for the lock of another."""
        async with self.engine.database.transaction() as connection:
            await connection.execute("SET LOCAL lock_timeout = '2s'")
            yield connection

    @asynccontextmanager
    async def undone(self) -> AsyncIterator[Connection]:
        """Give a transaction as impatient, which is rolled back."""
        async with self.engine.database.connection() as connection:
            await connection.execute("BEGIN; SET LOCAL lock_timeout = '2s'")
            try:
                yield connection
            finally:
                await connection.execute("ROLLBACK")

    async def status(self, message_id: UUID) -> str:
        rows = await self.rows("SELECT status FROM messages WHERE id = $1", message_id)
        return str(rows[0]["status"])

    async def ending(self, message_id: UUID) -> tuple[str, str | None, Decimal]:
        (row,) = await self.rows(
            "SELECT status, failure_reason, (SELECT coalesce(sum(amount), 0) FROM transfers"
            " WHERE message_id = messages.id) AS refund FROM messages WHERE id = $1",
            message_id,
        )
        return row["status"], row["failure_reason"], row["refund"]

    async def events(self) -> Sequence[str]:
        rows = await self.rows(
            "SELECT sequence, type FROM events WHERE account_id = $1 ORDER BY sequence", self.caller.id
        )
        assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
        return [row["type"] for row in rows]

    async def incidents(self) -> Counter[str]:
        return Counter(row["kind"] for row in await self.rows("SELECT kind FROM incidents"))

    def taken(
        self,
        claimed: ClaimedMessage,
        number: int = 1,
        *,
        attempt: int = 0,
        complete: bool = True,
        late: bool = False,
    ) -> Taken:
        now = datetime.now(UTC)
        reference = f"{claimed.id.hex[-12:]}-{number}-{attempt}"
        part = NewPart(
            message_id=claimed.id,
            number=number,
            attempt=attempt,
            carrier_id=self.carrier_id,
            reference=None,
            carrier_ref=reference,
            carrier_key=key(reference),
            claimed_at=claimed.claimed_at,
            submitted_at=now,
            answered_at=now,
        )
        return Taken(claimed.id, part, complete, late, claimed if claimed.segments == 1 else None)

    def receipt(
        self, claimed: ClaimedMessage, state: str = "DELIVRD", number: int = 1, attempt: int = 0
    ) -> Receipt:
        reference = f"{claimed.id.hex[-12:]}-{number}-{attempt}"
        return Receipt(reference, claimed.recipient[1:], state, "000", f"stat:{state} text:Your secret")

    def reported(
        self, claimed: ClaimedMessage, state: str = "DELIVRD", number: int = 1, attempt: int = 0
    ) -> Reported:
        receipt = self.receipt(claimed, state, number, attempt)
        return Reported(claimed.id, number, attempt, self.carrier_id, receipt, datetime.now(UTC))

    def doubtful(self, claimed: ClaimedMessage) -> LeftInDoubt:
        return LeftInDoubt(claimed.id, self.carrier_id, 30, "no answer came in time")

    def put_off(self, claimed: ClaimedMessage, number: int = 1) -> RetryLater:
        return RetryLater(claimed.id, self.carrier_id, number, 2.0, "RSYSERR (0x08)")

    def refused(self, claimed: ClaimedMessage, *, doubted: bool = False) -> CarrierRefused:
        return CarrierRefused(claimed.id, "CARRIER_REJECTED", doubted=doubted)

    def returned(self, claimed: ClaimedMessage, *, again: bool = False) -> Released:
        return Released(
            claimed.id,
            QueueEntry(
                claimed.id,
                claimed.country,
                claimed.network,
                claimed.queue,
                claimed.lane,
                claimed.turn,
                again,
                claimed.expires_at,
                claimed.avoid,
            ),
        )


class Owner:
    """Ignores that its outcomes are recorded."""

    def recorded(self, count: int) -> None: ...


class Phone:
    """The carrier's end of a line: receipts that are not acknowledged are sent again."""

    def __init__(self, sent: Mapping[int, Receipt] | None = None) -> None:
        self.unacknowledged: dict[int, Receipt] = dict(sent or {})

    def acknowledge(self, tokens: Sequence[object]) -> None:
        for token in tokens:
            del self.unacknowledged[cast("int", token)]


@asynccontextmanager
async def open_world(url: str) -> AsyncIterator[World]:
    async with open_engine(url) as engine:
        await engine.add_carrier("one", 2775)
        async with engine.database.connection() as connection:
            carrier = (await carriers.list_active(connection))[0]
        caller = await engine.open_account()
        yield World(engine, caller, carrier.id, {carrier.id: carrier.settings})
