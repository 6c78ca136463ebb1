"""What a worker remembers of a message is compared with the message as it is written."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Final, cast

import pytest
from msgspec import structs

from tests.support.delivery.settling import BLOCKED, REFUND_ALL, WORKER, Owner, Phone, World
from tumira.delivery import recent
from tumira.delivery.observer import Observer
from tumira.delivery.recent import RecentSegments, as_sent
from tumira.delivery.recorder import Recorder
from tumira.delivery.settle import ChangedMeanwhileError, settle
from tumira.delivery.smpp.session import SmppSession
from tumira.delivery.store.queue import ClaimedMessage
from tumira.postgres.pool import IN_KEY_ORDER

DRAIN_S: Final = 20.0
THREE_DAYS: Final = timedelta(hours=73)
COST: Final = Decimal("0.04")
ENDS: Final = [("DELIVRD", "delivered", Decimal(0)), ("UNDELIV", "undelivered", COST)]


@asynccontextmanager
async def recording(world: World) -> AsyncIterator[Recorder]:
    database = world.engine.database
    recorder = Recorder(database, world.carrier_id, WORKER, Observer(database))
    recorder.refunded = REFUND_ALL
    try:
        yield recorder
    finally:
        await recorder.close()


async def take(world: World, recorder: Recorder, claimed: ClaimedMessage) -> None:
    recorder.put(world.taken(claimed), claimed.recipient, Owner())
    await recorder.drain(DRAIN_S)


async def report(world: World, recorder: Recorder, claimed: ClaimedMessage, *, states: Sequence[str]) -> None:
    phone = Phone()
    for token, state in enumerate(states):
        receipt = phone.unacknowledged[token] = world.receipt(claimed, state)
        recorder.receive(receipt, datetime.now(UTC), cast("SmppSession", phone), token)
    await recorder.drain(DRAIN_S)
    assert phone.unacknowledged == {}


async def test_what_a_carrier_says_is_decided_without_a_look(world: World) -> None:
    claimed = await world.claim_one()
    blocked = f"SELECT query {BLOCKED.removeprefix('SELECT')}"

    async def is_blocked() -> bool:
        return bool(await world.rows(blocked))

    async with recording(world) as recorder:
        for saying in (take, partial(report, states=["DELIVRD"])):
            async with world.engine.database.transaction() as holder:
                await holder.fetch("SELECT FROM messages FOR UPDATE")
                told = asyncio.create_task(saying(world, recorder, claimed))
                await world.engine.until(is_blocked, "it does not wait for the message")
                (waiting,) = await world.rows(blocked)
                assert "UPDATE messages" in waiting["query"]
            await told
    assert await world.ending(claimed.id) == ("delivered", None, Decimal(0))
    assert await world.events() == ["message.delivered", "batch.completed"]


@pytest.mark.parametrize(("state", "status", "refund"), ENDS)
async def test_a_receipt_in_the_group_of_its_answer_and_later_counts_once(
    world: World, state: str, status: str, refund: Decimal
) -> None:
    claimed = await world.claim_one()
    async with recording(world) as recorder:
        recorder.put(world.taken(claimed), claimed.recipient, Owner())
        await report(world, recorder, claimed, states=["ENROUTE", state, state])
        assert await world.incidents() == {}
        await report(world, recorder, claimed, states=[state, "EXPIRED"])
    assert (await world.ending(claimed.id))[::2] == (status, refund)
    assert await world.incidents() == {"late_receipt": 1}
    assert not await world.rows("SELECT FROM unmatched_receipts")


@pytest.mark.parametrize(("state", "status", "refund"), ENDS)
async def test_a_message_that_changed_meanwhile_is_settled_as_it_is(
    world: World, state: str, status: str, refund: Decimal
) -> None:
    claimed, other = await world.claim_one(), await world.claim_one()
    async with recording(world) as recorder:
        await take(world, recorder, claimed)
        await take(world, recorder, other)
        await world.give_up_receipts(THREE_DAYS)
        await report(world, recorder, claimed, states=[state])
        assert await world.status(other.id) == "unconfirmed"
        # An answer that comes after the claim was given up by somebody else.
        third = await world.claim_one()
        await world.settle(world.refused(third))
        await take(world, recorder, third)
    assert (await world.ending(claimed.id))[::2] == (status, refund)
    assert (await world.events()).count(f"message.{status}") == 1
    assert await world.ending(third.id) == ("failed", "CARRIER_REJECTED", COST)


async def test_nothing_is_written_about_a_message_that_is_not_as_remembered(world: World) -> None:
    claimed = await world.claim_one()
    segments = RecentSegments()
    message = segments.add(world.taken(claimed), claimed.recipient, datetime.now(UTC))
    assert message is not None
    connection = await world.engine.database.connect(IN_KEY_ORDER)
    with pytest.raises(ChangedMeanwhileError):
        async with connection.transaction():
            await settle(
                connection,
                [world.reported(claimed)],
                worker=WORKER,
                remembered={claimed.id: as_sent(message, datetime.now(UTC))},
            )
    await connection.close()
    assert await world.status(claimed.id) == "sending"
    assert await world.events() == []


async def test_a_segment_of_long_ago_is_looked_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "RECENT_MAX", 1)
    claimed = [await world.claim_one() for _ in range(3)]
    async with recording(world) as recorder:
        for one in claimed:
            await take(world, recorder, one)
        for one in claimed:
            await report(world, recorder, one, states=["DELIVRD"])
    assert await world.engine.statuses() == {"delivered": 3}


async def test_so_many_segments_are_remembered_and_the_oldest_goes_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent, "RECENT_MAX", 2)
    claimed = [await world.claim_one() for _ in range(3)]
    segments = RecentSegments()
    for one in claimed[:2]:
        segments.add(world.taken(one), one.recipient, datetime.now(UTC))
    assert None not in [segments.find(world.receipt(one)) for one in claimed[:2]]
    segments.add(world.taken(claimed[2]), claimed[2].recipient, datetime.now(UTC))
    found = [segments.find(world.receipt(one)) for one in claimed]
    assert [one is None for one in found] == [True, False, False]


async def test_a_receipt_with_the_id_of_a_message_to_another_number_is_not_about_it(world: World) -> None:
    """Carriers use their ids again: the number has to be the same, in memory and in the database."""
    claimed = await world.claim_one()
    foreign = structs.replace(world.receipt(claimed, "UNDELIV"), recipient="263771299999")
    segments = RecentSegments()
    segments.add(world.taken(claimed), claimed.recipient, datetime.now(UTC))
    assert segments.find(foreign) is None
    assert segments.find(world.receipt(claimed)) is not None
    async with recording(world) as recorder:
        await take(world, recorder, claimed)
        recorder.receive(foreign, datetime.now(UTC), cast("SmppSession", Phone({0: foreign})), 0)
        await recorder.drain(DRAIN_S)
    async with recording(world) as another:
        another.receive(foreign, datetime.now(UTC), cast("SmppSession", Phone({0: foreign})), 0)
        await another.drain(DRAIN_S)
    assert await world.status(claimed.id) == "sent"
    assert len(await world.rows("SELECT FROM unmatched_receipts")) == 2
    assert await world.try_unmatched() == 0
