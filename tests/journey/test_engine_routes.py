"""Messages go to the carrier of their network, fall back when it dies, and cost what their route says."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Final

import pytest

from tests.support.carriers.africastalking import AfricasTalkingServer
from tests.support.carriers.server import Callback, SentText, run_carrier
from tests.support.carriers.smsportal import SmsPortalServer
from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.margins import check_margins
from tests.support.processes.ports import free_port
from tests.support.processes.service import Caller, run_web
from tumira.carriers.routes import manage
from tumira.delivery import margin
from tumira.delivery.margin import MarginBy
from tumira.delivery.store.binds import BindState
from tumira.simulator.smsc import Smsc, run_smsc

NETONE: Final = [f"+2637120000{place:02}" for place in range(40)]
TELECEL: Final = [f"+2637320000{place:02}" for place in range(40)]


async def add_route(engine: Engine, network: str | None, carrier: str, cost: str, priority: int = 10) -> None:
    await manage.add_route(
        engine.database,
        country="ZW",
        network=network,
        carrier=carrier,
        priority=priority,
        cost=Decimal(cost),
    )


async def until_empty(engine: Engine) -> None:
    async def empty() -> bool:
        return not await engine.rows("SELECT FROM queue")

    await engine.until(empty, "still waiting")


def texts(smsc: Smsc) -> set[str]:
    return {to for to, _ in smsc.texts.counts}


async def test_each_network_goes_to_its_own_carrier_and_falls_back_when_that_dies(engine: Engine) -> None:
    port = free_port()
    async with AsyncExitStack() as stack:
        netone, whole = [await stack.enter_async_context(run_smsc()) for _ in range(2)]
        await engine.add_carrier("econet", port, ["ZW"])
        await engine.add_carrier("netone", netone.port, ["ZW"])
        await engine.add_carrier("whole", whole.port, ["ZW"])
        await add_route(engine, "econet", "econet", "0.011")
        await add_route(engine, "netone", "netone", "0.012")
        await add_route(engine, None, "whole", "0.03")
        caller = await engine.open_account()
        async with run_smsc(port) as econet:
            # Two nodes, which share the binds of one carrier each.
            engine.start_worker()
            engine.start_worker()
            await engine.until_bound("econet", "netone", "whole")
            await engine.send(caller, [*numbers(20), *NETONE[:20], *TELECEL[:20]])
            await engine.send(caller, [numbers(1, start=20)[0]])
            await engine.until_all("delivered")
            assert texts(econet) == set(numbers(21))
            assert texts(netone) == set(NETONE[:20])
            assert texts(whole) == set(TELECEL[:20])
            expected = (
                61 * Decimal("0.04") - 21 * Decimal("0.011") - 20 * Decimal("0.012") - 20 * Decimal("0.03")
            )
            assert await check_margins(engine) == expected
        await engine.until_state("econet", BindState.DOWN)
        await engine.send(caller, [*numbers(10, start=100), *NETONE[20:30]])
        await engine.until_all("delivered")
        # Its own carrier is away, so the country's takes it, at its own cost; the other network stays.
        assert set(numbers(10, start=100)) <= texts(whole)
        assert set(NETONE[20:30]) <= texts(netone)
        assert await check_margins(engine) == expected + Decimal("0.8") - 10 * Decimal("0.03") - 10 * Decimal(
            "0.012"
        )
        async with engine.database.connection() as connection:
            rows = await margin.read(connection, *await today(engine), MarginBy.CARRIER)
        assert {one.name: one.segments for one in rows} == {"econet": 21, "netone": 30, "whole": 30}
        assert set((netone.texts.counts + whole.texts.counts).values()) == {1}


async def today(engine: Engine) -> tuple[date, date]:
    (row,) = await engine.rows("SELECT min(day), max(day) FROM margin_days")
    return row[0], row[1]


@pytest.mark.long
async def test_a_slow_network_delays_no_other_that_the_same_call_wrote_to(engine: Engine) -> None:
    async with run_smsc() as slow, run_smsc() as fast:
        await engine.add_carrier("slow", slow.port, ["ZW"], tps=1)
        await engine.add_carrier("fast", fast.port, ["ZW"])
        await add_route(engine, "econet", "slow", "0.01")
        await add_route(engine, "netone", "fast", "0.01")
        engine.start_worker()
        await engine.until_bound("slow", "fast")
        caller = await engine.open_account()
        await engine.send(caller, [*numbers(20), *NETONE[:20]])
        # One passcode after the other passes the network that does not move.
        for number in NETONE[20:25]:
            await engine.send(caller, [number])
            await engine.until_status(number, "delivered")
        assert texts(fast) >= set(NETONE[20:25])
        assert texts(slow) <= set(numbers(20))
        assert len(slow.texts) < 20


async def send_while(engine: Engine, caller: Caller, stop: asyncio.Event) -> int:
    sent = 0
    while not stop.is_set():
        await engine.send(caller, [*numbers(5, start=sent * 5), NETONE[sent % len(NETONE)]])
        sent += 1
        await asyncio.sleep(0.01)
    return sent


@pytest.mark.long
async def test_routes_that_come_and_go_under_traffic_strand_and_double_nothing(engine: Engine) -> None:
    async with run_smsc() as one, run_smsc() as other:
        await engine.add_carrier("one", one.port, ["ZW"])
        await engine.add_carrier("other", other.port, ["ZW"])
        engine.start_worker()
        engine.start_worker()
        await engine.until_bound("one", "other")
        caller, stop = await engine.open_account(), asyncio.Event()
        sending = asyncio.create_task(send_while(engine, caller, stop))
        for _ in range(3):
            await add_route(engine, "econet", "one", "0.011")
            await add_route(engine, "netone", "other", "0.012")
            await asyncio.sleep(0.3)
            for network, carrier in (("econet", "one"), ("netone", "other")):
                await manage.remove_route(engine.database, country="ZW", network=network, carrier=carrier)
            await asyncio.sleep(0.3)
        stop.set()
        sent = await sending
        await until_empty(engine)
        await engine.until_all("delivered")
        counts = one.texts.counts + other.texts.counts
        assert sum(counts.values()) == 6 * sent
        assert await engine.rows("SELECT FROM incidents") == []
        await check_margins(engine)


class PortedServer(SmsPortalServer):
    """Says that every number is in another network than its prefix says."""

    def report(self, text: SentText, state: str, *, forged: bool) -> Callback:
        told = super().report(text, state, forged=forged)
        return replace(told, body=told.body.replace(b'"Mnc": "01"', b'"Mnc": "10"'))


@pytest.mark.long
async def test_a_provider_over_http_names_its_cost_and_the_network(engine: Engine) -> None:
    with run_carrier(AfricasTalkingServer()) as talking, run_carrier(PortedServer()) as portal:
        for name, provider in (("talking", talking), ("portal", portal)):
            country = "ZW" if provider is talking else "ZA"
            await engine.add_http_carrier(name, provider, [country])
        await manage.set_rate(engine.database, "KES", Decimal("0.01"))
        await manage.add_route(
            engine.database,
            country="ZW",
            network=None,
            carrier="talking",
            priority=1,
            cost=Decimal(1),
            currency="KES",
        )
        await manage.add_route(
            engine.database, country="ZA", network=None, carrier="portal", priority=1, cost=Decimal("0.01")
        )
        with run_web(engine.url) as web:
            engine.start_worker(public_url=web.base)
            for name, provider in (("talking", talking), ("portal", portal)):
                (row,) = await engine.rows(
                    "SELECT hook_token FROM http_carriers JOIN carriers ON id = carrier_id WHERE name = $1",
                    name,
                )
                provider.callback_url = f"{web.base}/hooks/carriers/{row['hook_token']}"
            caller = await engine.open_account()
            await engine.send(caller, [numbers(1)[0], "+27821230001"])
            await engine.until_all("delivered")
            await engine.send(caller, ["+27821230001"])
            await engine.until_all("delivered")
    rows = await engine.rows(
        "SELECT country, network, p.cost, currency, cost_usd"
        "  FROM parts p JOIN messages m ON m.id = message_id ORDER BY m.id, country DESC"
    )
    dollar = Decimal("0.01")
    # It says KES 0.80, and the other a price without a currency, which is not believed.
    assert [tuple(row) for row in rows] == [
        ("ZW", "econet", Decimal("0.8"), "KES", Decimal("0.008")),
        ("ZA", "vodacom", dollar, "USD", dollar),
        ("ZA", "mtn", dollar, "USD", dollar),
    ]
    await check_margins(engine)


@pytest.mark.long
async def test_equal_routes_share_and_the_cheapest_takes_all(engine: Engine) -> None:
    async with run_smsc() as one, run_smsc() as other:
        await engine.add_carrier("one", one.port, ["ZW"], window=10)
        await engine.add_carrier("other", other.port, ["ZW"], window=10)
        await add_route(engine, "econet", "one", "0.011")
        await add_route(engine, "econet", "other", "0.011")
        engine.start_worker()
        await engine.until_bound("one", "other")
        caller = await engine.open_account()
        await engine.send(caller, numbers(300))
        await engine.until_all("delivered")
        assert len(one.texts) > 0
        assert len(other.texts) > 0
        before = len(other.texts)
        await add_route(engine, "econet", "one", "0.010")

        async def is_cheapest() -> bool:
            number = numbers(1, start=1000 + len(one.texts) + len(other.texts))[0]
            await engine.send(caller, [number])
            await engine.until_status(number, "delivered")
            return bool(one.texts.to(number))

        await engine.until(is_cheapest, "the cheapest is not used")
        await engine.send(caller, numbers(100, start=5000))
        await engine.until_all("delivered")
        assert len(other.texts) - before < 100
        await check_margins(engine)
