"""A settlement is written as it was decided: each message, segment, batch and event gets its own."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID

from msgspec import structs

from tests.support.delivery.settling import BLOCKED, World
from tumira.core.ids import MessageId
from tumira.delivery.store import settlement
from tumira.delivery.store.margins import MarginRow
from tumira.delivery.store.queue import ClaimedMessage
from tumira.delivery.store.settlement import BatchChange, MessageChange, NewPart, PartReport, Written
from tumira.events import NewEvent
from tumira.postgres.connection import Connection

NOON: Final = datetime(2026, 11, 17, 12, tzinfo=UTC)
LATER: Final = NOON + timedelta(minutes=1)
COST: Final = Decimal("0.04")
NOTHING: Final = Decimal(0)
DAY: Final = date(2026, 11, 17)
LONG: Final = "Your statement is ready. " * 8


async def several(world: World, count: int) -> Sequence[ClaimedMessage]:
    """Send and claim messages, each of a batch of its own, in the order of their ids."""
    for _ in range(count):
        await world.send()
    return sorted(await world.claim(count), key=lambda one: one.id)


async def change(
    connection: Connection, claimed: ClaimedMessage, status: str, reason: str | None = None
) -> MessageChange:
    locked = await settlement.lock_messages(connection, [claimed.id])
    return MessageChange(locked[claimed.id], status, reason=reason)


async def in_flight(connection: Connection) -> Sequence[MessageId]:
    rows = await connection.fetch("SELECT message_id FROM in_flight ORDER BY message_id")
    return [row["message_id"] for row in rows]


def segment(world: World, claimed: ClaimedMessage, number: int = 1, attempt: int = 0) -> NewPart:
    return world.taken(claimed, number, attempt=attempt).part


def report(part: NewPart, state: str) -> PartReport:
    place = (part.message_id, part.number, part.attempt)
    return PartReport(*place, state, "000", f"stat:{state}", LATER)


async def test_all_messages_and_batches_of_a_group_are_locked(world: World) -> None:
    claimed = await several(world, 3)
    async with world.undone() as connection:
        # In any order, and not one more.
        first, second, _ = claimed
        locked = await settlement.lock_messages(connection, [second.id, first.id])
        assert {one: message.batch_id for one, message in locked.items()} == {
            first.id: first.batch_id,
            second.id: second.batch_id,
        }
        await settlement.lock_batches(connection, [second.batch_id, first.batch_id])
        for table in ("messages", "batches"):
            assert len(await world.rows(f"SELECT FROM {table} FOR UPDATE SKIP LOCKED")) == 1


async def test_messages_that_another_holds_are_left_out_by_who_does_not_wait(world: World) -> None:
    held, free = await several(world, 2)
    async with world.undone() as holder, world.undone() as connection:
        await settlement.lock_messages(holder, [held.id])
        found = await settlement.lock_messages(connection, [held.id, free.id], skip_locked=True)
        assert list(found) == [free.id]


async def test_only_segments_with_a_receipt_have_a_state(world: World) -> None:
    first, second, third = [await world.claim_one(LONG) for _ in range(3)]
    for one in (first, second, third):
        await world.settle(world.taken(one, 1, complete=False), world.taken(one, 2))
    reported = [(first, "DELIVRD", 1), (second, "ENROUTE", 2), (third, "DELIVRD", 1)]
    await world.settle(*(world.reported(*one) for one in reported))
    async with world.engine.database.connection() as connection:
        pair = [second.id, first.id]
        states = await settlement.list_states(connection, pair)
        assert sorted(states) == [(first.id, 1, "DELIVRD", "000"), (second.id, 2, "ENROUTE", "000")]
        numbers = await settlement.list_numbers(connection, pair)
        assert sorted(numbers) == [(one.id, number) for one in (first, second) for number in (1, 2)]


async def test_nothing_is_written_where_nothing_was_decided(world: World) -> None:
    async with world.engine.database.connection() as connection:
        assert await settlement.write(connection, [], [], [], [], []) == Written(0, 0)


async def test_each_message_gets_its_own_change_unless_it_has_left_its_status(world: World) -> None:
    first, second, other = await several(world, 3)
    async with world.undone() as connection:
        failed = await change(connection, second, "failed", "NO_ROUTE")
        failed.refunded_at = LATER
        sent = await change(connection, first, "sent")
        sent.sent_at = NOON
        for moved in (2, 0):
            written = await settlement.write(connection, [failed, sent], [], [], [], [])
            assert written == Written(moved, 0)
        rows = await connection.fetch(
            "SELECT id, status, sent_at, delivered_at, refunded_at, failure_reason FROM messages ORDER BY id"
        )
        assert [tuple(row) for row in rows] == [
            (first.id, "sent", NOON, None, None, None),
            (second.id, "failed", None, None, LATER, "NO_ROUTE"),
            (other.id, "sending", None, None, None, None),
        ]


async def test_a_message_keeps_the_times_that_it_has(world: World) -> None:
    (claimed,) = await several(world, 1)
    async with world.undone() as connection:
        for status, at in (("sent", NOON), ("delivered", LATER)):
            moved = await change(connection, claimed, status)
            moved.sent_at = at
            moved.delivered_at = at if status == "delivered" else None
            await settlement.write(connection, [moved], [], [], [], [])
        (row,) = await connection.fetch("SELECT status, sent_at, delivered_at FROM messages")
        assert tuple(row) == ("delivered", NOON, LATER)


async def test_those_that_landed_leave_flight_and_no_others(world: World) -> None:
    claimed = await several(world, 4)
    first, second, third, last = (one.id for one in claimed)
    async with world.undone() as connection:
        # One that stays as it is.
        assert await settlement.write(connection, [], [third], [], [], []) == Written(0, 1)
        assert await in_flight(connection) == [first, second, last]
        # Two that move, of which one was in flight elsewhere.
        both = [await change(connection, one, "sent") for one in claimed[:2]]
        assert await settlement.write(connection, both, [second], [], [], []) == Written(2, 1)
        assert await in_flight(connection) == [first, last]
        # All that move.
        both = [await change(connection, one, "failed") for one in claimed[:2]]
        assert await settlement.write(connection, both, [first, second], [], [], []) == Written(2, 1)
        assert await in_flight(connection) == [last]


async def test_segments_are_recorded_with_all_that_is_known_of_them(world: World) -> None:
    first, second = await several(world, 2)
    priced = segment(world, first)
    priced.cost, priced.sender = (Decimal("0.2"), "ZAR", Decimal("0.011")), "Moyo Stores"
    # An id that comes in another spelling with its receipt.
    priced.carrier_ref, priced.carrier_key = "1F", "31"
    plain = segment(world, second, 2, 1)
    plain.reference, plain.carrier_ref, plain.carrier_key = 77, "a1", "a1"
    plain.state, plain.error, plain.receipt, plain.received_at = "DELIVRD", "000", "stat:DELIVRD", LATER
    for parts in ([priced, plain], [priced], [plain]):
        async with world.undone() as connection:
            # A message that is not complete does not move.
            assert await settlement.write(connection, [], [], parts, [], []) == Written(0, 0)
            rows = await connection.fetch("SELECT * FROM parts ORDER BY message_id")
            found = []
            for row in rows:
                values = dict(row)
                cost = (values.pop("cost"), values.pop("currency"), values.pop("cost_usd"))
                found.append(NewPart(**values, cost=None if cost == (None, None, None) else cost))
            assert found == parts


async def test_a_receipt_is_written_to_its_segment_of_its_try(world: World) -> None:
    first, second = await several(world, 2)
    parts = [
        segment(world, one, number, attempt)
        for one in (first, second)
        for number in (1, 2)
        for attempt in (0, 1)
    ]
    *known, _, _ = parts
    states = ["DELIVRD", "ENROUTE", "UNDELIV", "EXPIRED", "REJECTD", "UNKNOWN"]
    async with world.undone() as connection:
        await settlement.write(connection, [], [], parts, [], [])
        reports = [report(part, state) for part, state in zip(known, states, strict=True)]
        assert await settlement.write(connection, [], [], [], reports[::-1], []) == Written(0, 0)
        rows = await connection.fetch(
            "SELECT state, error, receipt, received_at FROM parts ORDER BY message_id, number, attempt"
        )
        assert [tuple(row) for row in rows] == [
            *((state, "000", f"stat:{state}", LATER) for state in states),
            *[(None, None, None, None)] * 2,
        ]


async def test_new_segments_go_together_with_receipts_or_with_batches(world: World) -> None:
    first, second = await several(world, 2)
    before, after = segment(world, first), segment(world, second)
    async with world.undone() as connection:
        await settlement.write(connection, [], [], [before], [], [])
        written = await settlement.write(connection, [], [], [after], [report(before, "ENROUTE")], [])
        assert written == Written(0, 0)
        rows = await connection.fetch("SELECT message_id, state FROM parts ORDER BY message_id")
        assert [tuple(row) for row in rows] == [(first.id, "ENROUTE"), (second.id, None)]
    async with world.undone() as connection:
        failed = await change(connection, first, "failed")
        settled = BatchChange(first.batch_id, 1, NOTHING)
        written = await settlement.write(connection, [failed], [first.id], [after], [], [settled])
        assert (written.moved, written.landed) == (1, 1)
        assert [(one.id, one.pending) for one in written.batches] == [(first.batch_id, 0)]
        assert len(await connection.fetch("SELECT FROM parts")) == 1


async def test_each_batch_counts_off_its_own_and_is_completed_with_its_last_message(world: World) -> None:
    await world.send(2)
    (half, _), (whole, other) = await world.claim(2), await several(world, 2)
    async with world.undone() as connection:
        failed = [await change(connection, one, "failed") for one in (whole, half)]
        changes = [BatchChange(whole.batch_id, 1, COST / 4), BatchChange(half.batch_id, 1, NOTHING)]
        written = await settlement.write(connection, failed, [], [], [], changes)
        assert {
            one.id: (one.account_id, one.created_at, one.pending, one.total_cost, one.refunded)
            for one in written.batches
        } == {
            half.batch_id: (world.caller.id, half.created_at, 1, 2 * COST, NOTHING),
            whole.batch_id: (world.caller.id, whole.created_at, 0, COST, COST / 4),
        }
        completed = "SELECT completed_at FROM batches WHERE id = $1"
        completed_at = await connection.fetchval(completed, whole.batch_id)
        # A late receipt gives back the rest, and the batch is not completed once more.
        late = await change(connection, whole, "undelivered")
        rest = BatchChange(whole.batch_id, 0, 3 * COST / 4)
        written = await settlement.write(connection, [late], [], [], [], [rest])
        (found,) = written.batches
        assert (found.id, found.pending, found.refunded) == (whole.batch_id, 0, COST)
        assert await connection.fetchval(completed, whole.batch_id) == completed_at
        rows = await connection.fetch(
            "SELECT id, status, pending, refunded, completed_at IS NULL FROM batches"
        )
        assert {tuple(row) for row in rows} == {
            (half.batch_id, "processing", 1, NOTHING, True),
            (whole.batch_id, "completed", 0, COST, False),
            (other.batch_id, "processing", 1, NOTHING, True),
        }


async def test_batches_and_flight_are_left_alone_until_the_messages_are_locked(world: World) -> None:
    """Who holds a message may be about to lock its batch."""
    claimed = await world.claim_one()
    part = segment(world, claimed)
    async with world.undone() as connection:
        failed = await change(connection, claimed, "failed")

    async def write(*parts: NewPart) -> None:
        settled = BatchChange(claimed.batch_id, 1, NOTHING)
        async with world.undone() as connection:
            await connection.execute("SET LOCAL lock_timeout = 0")
            await settlement.write(connection, [failed], [claimed.id], parts, [report(part, "X")], [settled])

    async def blocked() -> bool:
        return bool(await world.rows(BLOCKED))

    for parts in ([], [part]):
        async with asyncio.TaskGroup() as group, world.undone() as holder:
            await holder.execute("SELECT FROM messages FOR UPDATE")
            group.create_task(write(*parts))
            await world.engine.until(blocked, "it does not wait for the message")
            for table in ("batches", "in_flight"):
                assert len(await world.rows(f"SELECT FROM {table} FOR UPDATE SKIP LOCKED")) == 1


async def test_events_are_written_with_and_without_the_totals_of_their_day(world: World) -> None:
    (claimed,) = await several(world, 1)
    account = world.caller.id
    ended = {(account, DAY.toordinal(), "ZW"): {"delivered": 2, "failed": 1}}
    totals = [MarginRow(DAY, world.carrier_id, "ZW", "econet", account, 3, 1, COST, 3 * COST)]
    sent = NewEvent(account, "message.sent", claimed.id, claimed.batch_id)
    delivered = structs.replace(sent, type="message.delivered")
    now = datetime.now(UTC)
    async with world.undone() as connection:
        counted = []
        for new, day, margins in (
            ([sent], {}, ()),
            ([sent, delivered], ended, ()),
            ([delivered], ended, totals),
            ([sent], {}, totals),
        ):
            await settlement.tell(connection, new, now, day, margins)
            (row,) = await connection.fetch(
                "SELECT coalesce(sum(delivered), 0), coalesce(sum(failed), 0),"
                " (SELECT coalesce(sum(charged), 0) FROM margin_days) FROM traffic"
            )
            counted.append(tuple(row))
        assert counted == [(0, 0, 0), (2, 1, 0), (4, 2, 3 * COST), (4, 2, 6 * COST)]
        rows = await connection.fetch("SELECT sequence, type, message_id, at FROM events ORDER BY sequence")
        words = ["sent", "sent", "delivered", "delivered", "sent"]
        assert [tuple(row) for row in rows] == [
            (place, f"message.{word}", claimed.id, now) for place, word in enumerate(words, start=1)
        ]


async def test_a_segment_that_is_recorded_already_is_not_recorded_again(world: World) -> None:
    claimed = await world.claim_one()
    tries = [segment(world, claimed, 1, attempt) for attempt in range(3)]
    by_place: dict[tuple[UUID, int, int], NewPart] = {
        (part.message_id, part.number, part.attempt): part for part in tries
    }
    async with world.undone() as connection:
        await settlement.write(connection, [], [], tries[1:2], [], [])
        added = await settlement.add_parts_once(connection, by_place)
        assert sorted(part.attempt for part in added) == [0, 2]
        assert await settlement.add_parts_once(connection, by_place) == []
        assert len(await connection.fetch("SELECT FROM parts")) == 3
