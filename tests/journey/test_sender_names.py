"""Messages go out under the name that their account was granted, or under the carrier's own sender (P11)."""

from collections.abc import Sequence
from typing import Final

import pytest

from tests.support.carriers.bulksms import BulkSmsServer
from tests.support.carriers.server import run_carrier
from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.scripted import SWALLOW, Scripted
from tests.support.processes.service import Caller
from tumira.audit_log import OWNER, Actor
from tumira.carriers.manage import list_senders
from tumira.carriers.routes.manage import add_route
from tumira.core.errors import FieldError
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.store import timeline
from tumira.sender_names import manage
from tumira.sender_names.manage import NameRequest
from tumira.sender_names.places import Place
from tumira.sender_names.store import SenderName
from tumira.simulator.smsc import Smsc, run_smsc

OWN: Final = Actor(OWNER)
ADMIN: Final = Actor("operator:Rudo")
ZW: Final = Place("ZW")
DEFAULT: Final = "Tumira"
LONG: Final = "Your statement is ready. " * 8
BRISK: Final = SmppTimeouts(response_s=0.5, enquire_after_s=2.0, enquire_answer_s=2.0, bind_s=3.0)


async def granted(engine: Engine, caller: Caller, name: str, *places: Place) -> SenderName:
    request = NameRequest(name, ["ZW", "ZA"], "We tell customers that their parcels are here.")
    asked = await manage.ask(engine.database, caller.id, request, OWN)
    for place in places or (ZW,):
        asked = await manage.grant(engine.database, asked.id, place, note="", actor=ADMIN)
    return asked


async def revoke(engine: Engine, name: SenderName, place: Place = ZW) -> None:
    await manage.revoke(engine.database, name.id, place, note="Asked by the network", actor=ADMIN)


def senders(smsc: Smsc, to: str) -> Sequence[str]:
    return [text.sender for text in smsc.texts if text.to == to]


async def test_a_message_shows_the_name_of_its_account_where_it_is_granted(engine: Engine) -> None:
    zimbabwe, another, south_africa = *numbers(2), "+27821230001"
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        caller, other = await engine.open_account(), await engine.open_account()
        await granted(engine, caller, "Moyo Stores")
        await engine.send(caller, [zimbabwe, south_africa])
        await engine.send(other, [another])
        await engine.until_all("delivered")
        assert senders(smsc, zimbabwe) == ["Moyo Stores"]
        assert senders(smsc, south_africa) == [DEFAULT]
        assert senders(smsc, another) == [DEFAULT]
        message = await engine.message(zimbabwe)
        async with engine.database.connection() as connection:
            told = await timeline.read_for(connection, caller.id, message["id"])
        assert told is not None
        assert told.senders == ["Moyo Stores"]


@pytest.mark.long
async def test_the_decision_for_a_network_counts_more_than_that_for_its_country(engine: Engine) -> None:
    econet, netone, telecel = "+263771200001", "+263712000001", "+263732000001"
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        name = await granted(engine, caller, "Moyo Stores")
        await granted(engine, caller, "Moyo Farm", Place("ZW", "netone"))
        telecel_place = Place("ZW", "telecel")
        await manage.refuse(engine.database, name.id, telecel_place, note="Codes only there", actor=ADMIN)
        await engine.send(caller, [econet, netone, telecel])
        await engine.until_all("delivered")
        assert senders(smsc, econet) == ["Moyo Stores"]
        assert senders(smsc, netone) == ["Moyo Farm"]
        assert senders(smsc, telecel) == [DEFAULT]
        # With the network's own name gone, that of the country is used again.
        (row,) = await engine.rows("SELECT id FROM sender_names WHERE name = 'Moyo Farm'")
        await manage.revoke(engine.database, row["id"], Place("ZW", "netone"), note="Gone", actor=ADMIN)
        await engine.send(caller, [netone])
        await engine.until_all("delivered")
        assert senders(smsc, netone) == ["Moyo Farm", "Moyo Stores"]


@pytest.mark.long
async def test_a_route_has_a_sender_for_customers_without_a_name(engine: Engine) -> None:
    econet, netone, south_africa = "+263771200001", "+263712000001", "+27821230001"

    async def add(country: str, network: str | None, sender: str) -> None:
        route = {"country": country, "network": network, "carrier": "one", "sender": sender}
        await add_route(engine.database, **route, priority=1, cost=None)  # type: ignore[arg-type]

    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        caller, other = await engine.open_account(), await engine.open_account()
        await granted(engine, caller, "Moyo Stores")
        await add("ZW", "netone", "NetInfo")
        await add("ZW", None, "ZimInfo")
        await add("ZA", None, "27123")
        with pytest.raises(FieldError, match="The sender must have"):
            await add("ZA", None, "Far too long a name")
        shown = {"27123": ["South Africa"], "ZimInfo": ["Zimbabwe"]}
        assert await list_senders(engine.database, other.id) == shown
        engine.start_worker()
        await engine.send(other, [econet, netone, south_africa])
        await engine.until_all("delivered")
        assert senders(smsc, econet) == ["ZimInfo"]
        assert senders(smsc, netone) == ["NetInfo"]
        assert senders(smsc, south_africa) == ["27123"]
        await engine.send(caller, [netone])
        await engine.until_all("delivered")
        assert senders(smsc, netone) == ["NetInfo", "Moyo Stores"]
        rows = await engine.rows("SELECT sender FROM parts")
        assert {row["sender"] for row in rows} == {"ZimInfo", "NetInfo", "27123", "Moyo Stores"}


@pytest.mark.long
async def test_a_carrier_over_http_gets_the_name_too(engine: Engine) -> None:
    named, plain = numbers(2)
    with run_carrier(BulkSmsServer()) as provider:
        await engine.add_http_carrier("bulk", provider)
        engine.start_worker()
        caller, other = await engine.open_account(), await engine.open_account()
        await granted(engine, caller, "Moyo Stores")
        await engine.send(caller, [named], LONG)
        await engine.send(other, [plain])
        await engine.until_all("sent", "delivered")
        sent = {f"+{one.recipient.lstrip('+')}": one.sender for one in provider.sent}
        assert sent == {named: "Moyo Stores", plain: ""}
        rows = await engine.rows("SELECT sender FROM parts ORDER BY sender")
        # Whatever the provider chose is not known.
        assert [row["sender"] for row in rows] == ["Moyo Stores", None]


@pytest.mark.long
async def test_a_message_in_doubt_is_sent_again_under_what_is_granted_then(engine: Engine) -> None:
    (number,) = numbers(1)
    async with run_smsc(misbehaviours=[Scripted(SWALLOW)]) as smsc:
        await engine.add_carrier("one", smsc.port, doubt_wait=1)
        caller = await engine.open_account()
        name = await granted(engine, caller, "Moyo Stores")
        engine.start_worker(BRISK)
        await engine.send(caller, [number])

        async def in_doubt() -> bool:
            return bool(await engine.rows("SELECT FROM incidents WHERE kind = 'doubt'"))

        await engine.until(in_doubt, "not in doubt")
        await revoke(engine, name)
        await engine.until_status(number, "delivered")
        assert senders(smsc, number) == ["Moyo Stores", DEFAULT]


async def refused(engine: Engine, text: str, *statuses: int, fallback: int) -> Sequence[str]:
    """Send a text under a name to a carrier that refuses some submits; return the senders that arrived."""
    (number,) = numbers(1)
    async with run_smsc(misbehaviours=[Scripted(*statuses)]) as smsc:
        await engine.add_carrier("one", smsc.port, sender_fallback=fallback)
        caller = await engine.open_account()
        await granted(engine, caller, "Moyo Stores")
        engine.start_worker()
        await engine.send(caller, [number], text)
        await engine.until_all("delivered", "failed")

        async def is_told() -> bool:
            rows = await engine.rows("SELECT sender, country FROM sender_refusals")
            return [tuple(row) for row in rows] == [("Moyo Stores", "ZW")]

        await engine.until(is_told, "the refusal is not shown to operators")
        return senders(smsc, number)


@pytest.mark.long
async def test_a_refused_name_ends_the_message_and_alarms(engine: Engine) -> None:
    assert await refused(engine, "Your code is 493817.", CommandStatus.RINVSRCADR, fallback=0) == []
    message = await engine.message(numbers(1)[0])
    assert (message["status"], message["failure_reason"]) == ("failed", "SENDER_NOT_ALLOWED")
    assert message["refunded_at"] is not None


@pytest.mark.long
async def test_a_refused_name_falls_back_once_if_the_operator_chose_so(engine: Engine) -> None:
    assert await refused(engine, "Your code is 493817.", CommandStatus.RINVSRCADR, fallback=1) == [DEFAULT]
    (part,) = await engine.rows("SELECT sender FROM parts")
    assert part["sender"] == DEFAULT


@pytest.mark.long
async def test_all_segments_fall_back_together(engine: Engine) -> None:
    twice = [CommandStatus.RINVSRCADR] * 2
    # One text: the segments were joined, so they came from one sender.
    assert await refused(engine, LONG, *twice, fallback=1) == [DEFAULT]


@pytest.mark.long
async def test_the_carriers_own_sender_does_not_fall_back(engine: Engine) -> None:
    (number,) = numbers(1)
    async with run_smsc(misbehaviours=[Scripted(CommandStatus.RINVSRCADR)]) as smsc:
        await engine.add_carrier("one", smsc.port, sender_fallback=1)
        engine.start_worker()
        await engine.send(await engine.open_account(), [number])
        await engine.until_status(number, "failed")
        assert senders(smsc, number) == []
