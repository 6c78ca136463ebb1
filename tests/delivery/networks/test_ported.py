"""The networks of ported numbers are learnt from receipts and lookups, and correct the next message."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import pytest
from msgspec import structs

from tests.support.delivery.settling import World
from tests.support.delivery.smpp_peer import delivery
from tumira.carriers.routes import manage
from tumira.core.settings.networks import NetworkLookup
from tumira.delivery.lanes import BOTTOM, Room
from tumira.delivery.networks import lookup, ported
from tumira.delivery.networks.lookup import LookupWorker, read_answer
from tumira.delivery.smpp.deliver_sm import read_receipt
from tumira.delivery.smpp.pdu import read_short_message
from tumira.delivery.store import queue
from tumira.delivery.store.queue import ClaimedMessage, ClaimRequest

# Issued to Vodacom.
NUMBER: Final = "+27821230001"
OTHER: Final = "+27821230002"


async def claim(world: World, name: str = "ZA") -> ClaimedMessage:
    async with world.engine.database.transaction() as connection:
        claimed = await queue.claim(
            connection,
            [ClaimRequest(name, 1, 0, 1, BOTTOM, BOTTOM)],
            Room(1, 0, 1),
            worker="one",
            bind="one/1",
            carrier_id=world.carrier_id,
        )
    assert claimed is not None
    return claimed[0]


async def deliver(world: World, code: str | None, number: str = NUMBER, name: str = "ZA") -> ClaimedMessage:
    await world.send(to=[number])
    claimed = await claim(world, name)
    reported = world.reported(claimed)
    receipt = structs.replace(reported.receipt, network=code)
    await world.settle(world.taken(claimed), structs.replace(reported, receipt=receipt))
    return claimed


async def known(world: World) -> dict[int, tuple[str, str]]:
    rows = await world.rows("SELECT number, network, source FROM number_networks")
    return {row["number"]: (row["network"], row["source"]) for row in rows}


async def test_a_receipt_corrects_the_network_of_the_next_message(world: World) -> None:
    await manage.add_route(
        world.engine.database, country="ZA", network="mtn", carrier="one", priority=1, cost=None
    )
    await manage.add_route(
        world.engine.database, country="ZA", network=None, carrier="one", priority=1, cost=None
    )
    first = await deliver(world, "65510")
    assert (first.network, first.queue) == ("vodacom", "ZA")
    assert await known(world) == {27821230001: ("mtn", "receipt")}
    second = await deliver(world, "65510", name="ZA-mtn")
    assert (second.network, second.queue) == ("mtn", "ZA-mtn")
    # It comes back to the network that issued it.
    await deliver(world, "65501", name="ZA-mtn")
    assert (await deliver(world, None)).network == "vodacom"


async def test_large_and_single_sends_are_corrected_alike(world: World) -> None:
    await deliver(world, "65510")
    await world.send(to=[f"  {NUMBER} ", OTHER])
    await world.send(to=[NUMBER, *(f"+2782123{place:04}" for place in range(100, 160))])
    rows = await world.rows("SELECT network, count(*) FROM messages WHERE recipient = $1 GROUP BY 1", NUMBER)
    assert dict(map(tuple, rows)) == {"vodacom": 1, "mtn": 2}
    rows = await world.rows("SELECT DISTINCT network FROM messages WHERE recipient <> $1", NUMBER)
    assert [row["network"] for row in rows] == ["vodacom"]


@pytest.mark.parametrize("code", [None, "65501", "99999", "64804", "nonsense"])
async def test_a_receipt_that_says_nothing_new_or_nothing_sensible_is_not_kept(
    world: World, code: str | None
) -> None:
    await deliver(world, code)
    assert await known(world) == {}


async def test_in_zimbabwe_the_prefix_is_the_network(world: World) -> None:
    await world.send()
    claimed = await claim(world, "ZW")
    reported = world.reported(claimed)
    wrong = structs.replace(reported, receipt=structs.replace(reported.receipt, network="64801"))
    await world.settle(world.taken(claimed), wrong)
    assert await known(world) == {}


async def test_what_was_learnt_is_forgotten_with_age_and_by_erasure(world: World) -> None:
    await deliver(world, "65510")
    await deliver(world, "65510", OTHER)
    await world.rows(
        "UPDATE number_networks SET learnt_at = now() - $1::interval WHERE number = 27821230001",
        ported.AGE_MAX + timedelta(hours=1),
    )
    async with world.engine.database.transaction() as connection:
        assert await ported.delete_old(connection, 10) == 1
        assert await ported.delete_old(connection, 10) == 0
        await ported.delete_number(connection, "+263771200001")
        await ported.delete_number(connection, OTHER)
    assert await known(world) == {}


@pytest.mark.parametrize(
    ("tlvs", "network"),
    [
        (b"\x15\x03\x00\x03655\x15\x04\x00\x0210", "65510"),
        (b"\x15\x03\x00\x04655\0\x15\x04\x00\x0310\0", "65510"),
        (b"\x06\x0e\x00\x0565507", "65507"),
        # A cost centre of a carrier that uses the tag for it.
        (b"\x15\x03\x00\x06office", None),
        (b"\x06\x0e\x00\x07Vodacom", None),
        (b"", None),
    ],
)
def test_a_receipt_over_smpp_may_name_the_network(tlvs: bytes, network: str | None) -> None:
    text = b"id:1 sub:001 dlvrd:001 submit date:2611161200 done date:2611161200 stat:DELIVRD err:000 text:"
    receipt = read_receipt(read_short_message(delivery(text, tlvs=tlvs)))
    assert receipt is not None
    assert receipt.network == network


@pytest.mark.parametrize(
    ("body", "network"),
    [
        (b"OK 655 10 0.0450", "mtn"),
        (b"ERR 4003", None),
        (b'{"mccmnc": "65507", "is_ported": true}', "cellc"),
        (b'{"results": [{"mcc": 655, "mnc": 1}]}', "vodacom"),
        (b'{"data": {"current_carrier": {"network_code": "65519"}}}', "rain"),
        (b'{"mobile_country_code": "655", "mobile_network_code": "02"}', "telkom"),
        (b'{"mccmnc": null, "network": "unknown"}', None),
        (b"[" * 50 + b"]" * 50, None),
        (b"\xff\xfe", None),
        (b"", None),
    ],
)
def test_the_answer_of_a_lookup_is_read_in_the_forms_that_providers_use(
    body: bytes, network: str | None
) -> None:
    found = read_answer(body)
    assert (None if found is None else found.key) == network


@asynccontextmanager
async def provider(answers: dict[str, bytes], asked: list[str]) -> AsyncIterator[str]:
    """Answer lookups over HTTP; a number without an answer gets 500."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        number = head.split()[1].rpartition("/")[2]
        assert "x-key: secret" in head.lower()
        asked.append(number)
        body = answers.get(number)
        status = b"200 OK" if body is not None else b"500 Oops"
        body = body or b""
        writer.write(
            b"HTTP/1.1 " + status + b"\r\nContent-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/{{number}}"


async def test_numbers_are_looked_up_once_after_their_message_was_accepted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "BEHIND_MS", -60_000)
    monkeypatch.setattr(lookup, "EVERY_S", 0.05)
    await world.send(to=[NUMBER, OTHER, "+263771200001"])
    asked: list[str] = []
    async with provider({"27821230001": b"OK 655 10 0.0450"}, asked) as url:
        settings = NetworkLookup(url, ("X-Key", "secret"))
        workers = [asyncio.create_task(LookupWorker(world.engine.database, settings).run()) for _ in range(2)]

        async def is_known() -> bool:
            return (await known(world)).get(27821230001) == ("mtn", "lookup")

        await world.engine.until(is_known, "not looked up")
        await world.send(to=[NUMBER])

        async def is_asked() -> bool:
            return len(asked) >= 2

        await world.engine.until(is_asked, "the other number was not asked for")
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    # Two nodes, and each number once; the one that failed is forgotten soon.
    assert sorted(asked) == ["27821230001", "27821230002"]
    rows = await world.rows("SELECT network FROM messages WHERE recipient = $1 ORDER BY id", NUMBER)
    assert [row["network"] for row in rows] == ["vodacom", "mtn"]
    (row,) = await world.rows(
        "SELECT learnt_at < now() - interval '80 days' FROM number_networks WHERE number = 27821230002"
    )
    assert row[0]


async def test_a_lookup_does_not_overrule_a_receipt(world: World) -> None:
    await deliver(world, "65510")
    async with world.engine.database.transaction() as connection:
        assert await ported.claim_lookups(connection, [NUMBER, OTHER]) == [27821230002]
        await ported.store_lookup(connection, 27821230001, "cellc")
        await ported.store_lookup(connection, 27821230002, "cellc")
    assert await known(world) == {27821230001: ("mtn", "receipt"), 27821230002: ("cellc", "lookup")}
