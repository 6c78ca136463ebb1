"""Costs and margins are exactly those of the hand-overs."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import UUID, uuid4

import pytest

from tests.support.delivery.engine import numbers
from tests.support.delivery.margins import check_margins
from tests.support.delivery.settling import WORKER, World
from tumira.carriers.routes import manage
from tumira.carriers.routes.rules import SegmentCost
from tumira.core.ids import AccountId, BatchId, MessageId
from tumira.delivery import margin
from tumira.delivery.lanes import BOTTOM, Room
from tumira.delivery.margin import (
    NO_CARRIER,
    Margin,
    MarginBy,
    Sale,
    end_of_month,
    month_of,
    set_cost,
    write_name,
)
from tumira.delivery.outcomes import WHOLE, Taken
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest
from tumira.delivery.store.settlement import LockedMessage, NewPart

COST: Final = Decimal("0.011")
LONG: Final = "Your statement is ready. " * 8
EVER: Final = (date(2026, 1, 1), date(2099, 12, 31))


def taken(world: World, claimed: ClaimedMessage, number: int = 1, **options: bool | int) -> Taken:
    one = world.taken(claimed, number, **options)  # type: ignore[arg-type]
    one.part.cost = (COST, "USD", COST)
    return one


async def total(world: World) -> Margin:
    async with world.engine.database.connection() as connection:
        return await margin.read_total(connection, *EVER)


async def test_a_delivered_message_earns_its_price_less_its_cost(world: World) -> None:
    claimed = await world.claim_one()
    assert (await total(world)).segments == 0
    await world.settle(taken(world, claimed))
    assert await check_margins(world.engine) == Decimal("0.04") - COST
    await world.settle(world.reported(claimed))
    found = await total(world)
    assert (found.segments, found.unpriced, found.revenue) == (1, 0, Decimal("0.04"))
    assert found.margin == await check_margins(world.engine) == Decimal("0.029")
    (row,) = await world.rows("SELECT cost, currency, cost_usd FROM parts")
    assert tuple(row) == (COST, "USD", COST)


async def test_a_refund_leaves_the_cost(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(taken(world, claimed), world.reported(claimed, "UNDELIV"))
    found = await total(world)
    assert (found.charged, found.refunded, found.margin) == (Decimal("0.04"), Decimal("0.04"), -COST)
    assert await check_margins(world.engine) == -COST


async def test_a_message_that_no_carrier_took_neither_costs_nor_earns(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(world.refused(claimed))
    assert await check_margins(world.engine) == 0
    assert (await total(world)).segments == 0


async def test_a_refused_message_that_is_not_refunded_earns_its_price(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(world.refused(claimed), refunded=())
    assert await check_margins(world.engine) == Decimal("0.04")


async def test_a_message_that_was_sent_twice_costs_twice_and_earns_once(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(world.doubtful(claimed))
    await world.resume_due()
    (again,) = await world.claim()
    await world.settle(taken(world, again, attempt=1))
    # The first answer comes after all, and once more.
    late = taken(world, claimed, late=True)
    await world.settle(late)
    await world.settle(late)
    found = await total(world)
    assert (found.segments, found.cost_usd, found.revenue) == (2, 2 * COST, Decimal("0.04"))
    assert await check_margins(world.engine) == Decimal("0.018")


async def test_segments_are_counted_one_by_one(world: World) -> None:
    claimed = await world.claim_one(LONG)
    await world.settle(taken(world, claimed, 1, complete=False), world.put_off(claimed, 2))
    found = await total(world)
    assert (found.segments, found.cost_usd, found.revenue) == (1, COST, Decimal(0))
    await world.resume_due()
    (again,) = await world.claim()
    await world.settle(taken(world, again, 2))
    assert await check_margins(world.engine) == Decimal("0.08") - 2 * COST


async def test_a_doubt_that_is_held_is_paid_for_until_a_receipt_says_otherwise(world: World) -> None:
    claimed = await world.claim_one()
    await world.settle(world.doubtful(claimed))
    world.settings[world.carrier_id] = replace(world.settings[world.carrier_id], in_doubt="hold")
    await world.resume_due()
    assert await world.status(claimed.id) == "unconfirmed"
    assert await check_margins(world.engine) == Decimal("0.04")
    await world.settle(world.taken(claimed, late=True), world.reported(claimed, "UNDELIV"))
    found = await total(world)
    # Its cost was never learnt, and that is said.
    assert (found.segments, found.unpriced, found.revenue) == (1, 1, Decimal(0))
    assert await check_margins(world.engine) == 0


async def test_a_segment_that_only_a_receipt_proves_has_the_cost_of_its_route(world: World) -> None:
    await manage.add_route(
        world.engine.database, country="ZW", network="econet", carrier="one", priority=1, cost=COST
    )
    await world.send()
    wanted = ClaimRequest("ZW-econet", 1, 0, 1, BOTTOM, BOTTOM)
    async with world.engine.database.transaction() as connection:
        claimed = await queue.claim(
            connection, [wanted], Room(1, 0, 1), worker=WORKER, bind="one/1", carrier_id=world.carrier_id
        )
    assert claimed is not None
    await world.settle(world.doubtful(claimed[0]))
    await world.settle(world.taken(claimed[0], late=True), world.reported(claimed[0]))
    assert (await total(world)).unpriced == 0
    assert await check_margins(world.engine) == Decimal("0.04") - COST


async def test_a_message_that_the_carrier_cuts_costs_as_many_segments_as_it_has(world: World) -> None:
    claimed = await world.claim_one(LONG)
    whole = taken(world, claimed, WHOLE)
    set_cost(whole.part, SegmentCost(COST, "USD", Decimal(1)), claimed.segments)
    await world.settle(whole)
    found = await total(world)
    assert (found.segments, found.cost_usd) == (2, 2 * COST)
    assert await check_margins(world.engine) == Decimal("0.08") - 2 * COST


async def test_a_month_is_shown_by_carrier_network_and_account(world: World) -> None:
    await world.send(to=[*numbers(2), "+263712000001"])
    for one in await world.claim(3):
        await world.settle(taken(world, one), world.reported(one))
    async with world.engine.database.connection() as connection:
        found = {by: await margin.read(connection, *EVER, by) for by in MarginBy}
    assert [write_name(one, MarginBy.CARRIER) for one in found[MarginBy.CARRIER]] == ["one"]
    # The lowest margin first.
    assert [(write_name(one, MarginBy.NETWORK), one.segments) for one in found[MarginBy.NETWORK]] == [
        ("ZW NetOne", 1),
        ("ZW Econet", 2),
    ]
    (account,) = found[MarginBy.ACCOUNT]
    assert margin.account_of(account) == world.caller.id
    whole = await total(world)
    for rows in found.values():
        assert sum(one.margin for one in rows) == whole.margin
        assert sum(one.segments for one in rows) == whole.segments
    async with world.engine.database.connection() as connection:
        before = await margin.read_total(connection, EVER[0], EVER[0])
    assert before.margin == 0


@pytest.mark.parametrize(
    ("text", "first_day"),
    [
        ("2027-01", date(2027, 1, 1)),
        ("2027-12", date(2027, 12, 1)),
        ("2027-13", None),
        ("27-1", None),
        ("", None),
    ],
)
def test_a_month_is_read_as_it_is_written(text: str, first_day: date | None) -> None:
    assert month_of(text) == first_day
    if first_day is not None:
        assert (end_of_month(first_day) + timedelta(days=1)).day == 1
        assert end_of_month(first_day).month == first_day.month


def sold(country: str, network: str | None, cost: str, segments: int = 2) -> LockedMessage:
    made = datetime(2026, 11, 17, 12, tzinfo=UTC)
    ids = MessageId(uuid4()), BatchId(UUID(int=1)), AccountId(UUID(int=2))
    return LockedMessage(*ids, country, "+263771200001", "sending", segments, Decimal(cost), made, network)


def part_of(message: LockedMessage, number: int, carrier_id: int, cost_usd: str | None) -> NewPart:
    now = message.held_at
    part = NewPart(message.id, number, 0, carrier_id, None, "x", "x", now, now, now)
    part.cost = None if cost_usd is None else (Decimal(1), "ZAR", Decimal(cost_usd))
    return part


def test_totals_are_added_up_by_carrier_country_network_and_account_in_the_order_of_their_keys() -> None:
    """All writers lock the rows of a day in this order."""
    econet, unknown, african = (
        sold("ZW", "econet", "0.08"),
        sold("ZW", None, "0.04"),
        sold("ZA", "mtn", "0.03"),
    )
    parts = [
        part_of(econet, 1, 9, "0.01"),
        part_of(econet, 2, 9, "0.02"),
        part_of(unknown, WHOLE, 3, None),
        part_of(african, 1, 3, None),
    ]
    sales = [
        Sale(9, econet, is_refund=False),
        Sale(None, econet, is_refund=True),
        Sale(3, unknown, is_refund=False),
        Sale(3, african, is_refund=False),
        Sale(3, african, is_refund=True),
    ]
    # Half past eleven at night in UTC is the next day in Harare.
    now = datetime(2026, 11, 17, 23, 30, tzinfo=UTC)
    messages: dict[UUID, LockedMessage] = {one.id: one for one in (econet, unknown, african)}
    rows = margin.add_up(parts, messages, sales, now)
    assert {row.day for row in rows} == {date(2026, 11, 18)}
    found = [
        (
            (row.carrier_id, row.country, row.network),
            (row.segments, row.unpriced),
            (row.cost_usd, row.charged, row.refunded),
        )
        for row in rows
    ]
    assert found == [
        ((NO_CARRIER, "ZW", "econet"), (0, 0), (0, 0, Decimal("0.08"))),
        ((3, "ZA", "mtn"), (1, 1), (0, Decimal("0.03"), Decimal("0.03"))),
        ((3, "ZW", "other"), (2, 2), (0, Decimal("0.04"), 0)),
        ((9, "ZW", "econet"), (2, 0), (Decimal("0.03"), Decimal("0.08"), 0)),
    ]


async def test_the_lowest_margin_comes_first_refunds_and_costs_taken_off(world: World) -> None:
    rows = [(1, "9", "5", "1"), (2, "9", "0", "7"), (3, "9", "6", "0"), (4, "1", "0", "0.5")]
    for carrier_id, charged, refunded, cost in rows:
        await world.rows(
            "INSERT INTO margin_days (day, carrier_id, country, network, account_id, segments, unpriced,"
            " charged, refunded, cost_usd) VALUES ('2027-01-15', $1, 'ZW', 'econet', $2, 1, 0, $3, $4, $5)",
            carrier_id,
            world.caller.id,
            *map(Decimal, (charged, refunded, cost)),
        )
    month = (date(2027, 1, 1), date(2027, 1, 31))
    async with world.engine.database.connection() as connection:
        found = await margin.read(connection, *month, MarginBy.CARRIER)
        assert [(one.key, one.margin) for one in found] == [
            ("4", Decimal("0.5")),
            ("2", Decimal(2)),
            ("1", Decimal(3)),
            ("3", Decimal(3)),
        ]
        assert len(await margin.read(connection, *month, MarginBy.CARRIER, rows_max=2)) == 2
        (total_,) = await margin.read(connection, *month, MarginBy.ACCOUNT)
        assert [total_.charged, total_.refunded, total_.cost_usd] == [28, 11, Decimal("8.5")]
        assert await margin.read(connection, date(2027, 1, 16), date(2027, 1, 31), MarginBy.NETWORK) == []
