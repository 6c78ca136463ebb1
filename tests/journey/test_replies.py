"""Replies and opt-outs over SMPP, from the phone to the account and back to the next send."""

import asyncio
import json
import struct
from collections.abc import Sequence
from typing import Any, Final

import asyncpg
import pytest

from tests.support.carriers.bulksms import BulkSmsServer
from tests.support.carriers.server import run_carrier
from tests.support.delivery.engine import WAIT_S, Engine, numbers
from tests.support.delivery.peers.smsc import digits, run_foreign_smsc
from tests.support.delivery.smpp_peer import Carrier, Line, pdu
from tests.support.processes.service import run_web
from tests.support.webhooks.receivers import answer, run_receiver
from tumira.core.ids import MESSAGE, write_id
from tumira.delivery.smpp.session import SmppSession
from tumira.simulator.smsc import run_smsc
from tumira.webhooks.manage import add_endpoint

NUMBER: Final = numbers(1)[0]
TEXT: Final = "Your parcel 1042 is ready at our counter."
LONG: Final = "Thank you. I will send my brother to collect it tomorrow morning. " * 6

SUBMIT_SM, DELIVER_SM, DELIVER_SM_RESP = 0x04, 0x05, 0x8000_0005
ENQUIRE_LINK: Final = 0x15


async def replies_of(engine: Engine, count: int) -> Sequence[asyncpg.Record]:
    """Wait for `count` replies, and return them."""
    found: list[asyncpg.Record] = []

    async def all_there() -> bool:
        found[:] = await engine.rows("SELECT * FROM replies ORDER BY id")
        return len(found) >= count

    await engine.until(all_there, f"not {count} replies")
    assert len(found) == count
    return found


def rejected(answer: dict[str, Any]) -> Sequence[tuple[str, str]]:
    return [(one["to"], one["code"]) for one in answer["rejected"]]


async def test_a_handset_answers_opts_out_and_in_again(engine: Engine) -> None:
    async with run_smsc() as smsc:
        await engine.add_carrier("one", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, [NUMBER], TEXT)
        await engine.until_all("delivered")
        assert smsc.reply(NUMBER, "Tumira", LONG)
        (first,) = await replies_of(engine, 1)
        assert (first["account_id"], first["text"]) == (caller.id, LONG.strip())
        assert first["total"] == 3
        smsc.reply(NUMBER, "Tumira", "Stop!")
        await replies_of(engine, 2)

        answer = await engine.send(caller, [NUMBER, "+263771200001"], TEXT)
        assert rejected(answer) == [(NUMBER, "RECIPIENT_OPTED_OUT")]
        assert answer["total_cost"] == "0.0400"
        # The recipient has just asked for it.
        assert rejected(await engine.send(caller, [NUMBER], "Your code is 493817.")) == []
        other = await engine.open_account()
        assert rejected(await engine.send(other, [NUMBER], TEXT)) == []
        await engine.until_all("delivered")
        # To the account that wrote last, so the opt-out above is not changed by it.
        smsc.reply(NUMBER, "Tumira", "start")
        assert (await replies_of(engine, 3))[2]["account_id"] == other.id
        await engine.send(caller, [NUMBER], "Your code is 593817.")
        await engine.until_all("delivered")
        smsc.reply(NUMBER, "Tumira", "START")
        await replies_of(engine, 4)
        assert rejected(await engine.send(caller, [NUMBER], TEXT)) == []
        await engine.until_all("delivered")
        assert smsc.receipts_unanswered == 0
    rows = await engine.rows(
        "SELECT type FROM events WHERE account_id = $1 AND data IS NOT NULL ORDER BY sequence", caller.id
    )
    assert [row["type"] for row in rows] == [
        "reply.received",
        "reply.received",
        "recipient.opted_out",
        "reply.received",
        "recipient.opted_in",
    ]


@pytest.mark.long
async def test_a_foreign_carrier_delivers_replies_in_many_forms(engine: Engine) -> None:
    texts = ["Yes, please.", "Ndiri kuuya mangwana", "no {thanks} €5"]
    forms: Sequence[dict[str, Any]] = (
        {"text": texts[0], "esm_class": 0, "delay_ms": 300},
        {"text": texts[1], "esm_class": 0, "ucs2": True, "payload": True, "delay_ms": 300},
        {"text": texts[0].upper(), "esm_class": 0, "copies": 3, "delay_ms": 300},
    )
    async with run_foreign_smsc(
        {"to": digits(NUMBER), "receipts": [{"text": "id:{id} stat:DELIVRD"}, *forms]}
    ) as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, [NUMBER], TEXT)
        found = await replies_of(engine, 3)
        assert {row["text"] for row in found} == {texts[0], texts[1], texts[0].upper()}
        assert {(row["account_id"], row["number"]) for row in found} == {(caller.id, NUMBER)}

        async def all_acknowledged() -> bool:
            await smsc.catch_up()
            return len(smsc.told("acknowledged")) == 6

        await engine.until(all_acknowledged, "not all deliveries are acknowledged")
        assert {one["status"] for one in smsc.told("acknowledged")} == {0}


def reply(text: bytes, sequence: int, esm_class: int = 0, tlvs: bytes = b"") -> bytes:
    addresses = b"\0\x01\x01" + digits(NUMBER).encode() + b"\0\x03\x0033123\0"
    head = bytes((esm_class, 0, 0, 0, 0, 0, 0, 0, 0, len(text)))
    return pdu(DELIVER_SM, sequence, addresses + head + text + tlvs)


def sar(reference: int, total: int, number: int) -> bytes:
    return struct.pack(">HHH", 0x020C, 2, reference) + struct.pack(
        ">HHBHHB", 0x020E, 1, total, 0x020F, 1, number
    )


async def answer_submit(line: Line) -> None:
    """Take the message, and say enquire_link's answer while waiting for it."""
    while True:
        heard = await line.hear()
        if heard.command == SUBMIT_SM:
            await line.say(pdu(SUBMIT_SM | 0x8000_0000, heard.sequence, b"m-1\0"))
            return
        assert heard.command == ENQUIRE_LINK
        await line.say(pdu(ENQUIRE_LINK | 0x8000_0000, heard.sequence))


async def acknowledgements(line: Line, count: int) -> Sequence[int]:
    """Return the sequence numbers of the next acknowledgements, which are all fine."""
    found: list[int] = []
    while len(found) < count:
        heard = await line.hear()
        if heard.command == ENQUIRE_LINK:
            await line.say(pdu(ENQUIRE_LINK | 0x8000_0000, heard.sequence))
            continue
        assert (heard.command, heard.status) == (DELIVER_SM_RESP, 0)
        found.append(heard.sequence)
    return found


@pytest.mark.long
async def test_parts_come_over_two_connections_out_of_order_and_twice(
    engine: Engine, carrier: Carrier
) -> None:
    await engine.add_carrier("odd", carrier.port, binds=2)
    engine.start_worker()
    one, two = await carrier.line(), await carrier.line()
    for line in (one, two):
        await line.let_in()
    caller = await engine.open_account()
    await engine.send(caller, [NUMBER], TEXT)
    # Either connection may get it.
    takers = [asyncio.create_task(answer_submit(line)) for line in (one, two)]
    async with asyncio.timeout(WAIT_S):
        done, rest = await asyncio.wait(takers, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    assert len(done) == 1
    await engine.until_all("sent")

    header = b"\x06\x08\x04\x12\x34"
    await one.say(reply(header + b"\x03\x03is fine.", 1, esm_class=0x40))
    assert await acknowledgements(one, 1) == [1]
    await two.say(
        reply(header + b"\x03\x01Tomorrow ", 1, esm_class=0x40),
        reply(b"second. ", 2, tlvs=sar(9, 2, 2)),
        reply(header + b"\x03\x01Tomorrow ", 3, esm_class=0x40),
    )
    assert sorted(await acknowledgements(two, 3)) == [1, 2, 3]
    await one.say(
        reply(b"The ", 2, tlvs=sar(9, 2, 1)),
        reply(header + b"\x03\x02morning ", 3, esm_class=0x40),
        reply(header + b"\x03\x01Tomorrow ", 4, esm_class=0x40),
    )
    assert sorted(await acknowledgements(one, 3)) == [2, 3, 4]
    found = await replies_of(engine, 2)
    assert {row["text"] for row in found} == {"Tomorrow morning is fine.", "The second."}
    assert {row["account_id"] for row in found} == {caller.id}


@pytest.mark.long
async def test_a_death_between_storing_and_acknowledging_leaves_one_reply(
    engine: Engine, carrier: Carrier, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledge = SmppSession.acknowledge
    deaths: list[int] = []

    def die_once(session: SmppSession, tokens: Sequence[object]) -> None:
        if not deaths:
            deaths.append(1)
            session.abort()
        acknowledge(session, tokens)

    monkeypatch.setattr(SmppSession, "acknowledge", die_once)
    await engine.add_carrier("odd", carrier.port)
    engine.start_worker()
    line = await carrier.line()
    await line.let_in()
    await line.say(reply(b"STOP", 1))
    # It was stored and never acknowledged, so the carrier delivers it to the next connection.
    assert await line.hear_end() == b""
    assert len(await engine.rows("SELECT FROM reply_parts")) == 1
    again = await carrier.line()
    await again.let_in()
    await again.say(reply(b"STOP", 7))
    assert await acknowledgements(again, 1) == [7]
    (found,) = await replies_of(engine, 1)
    assert (found["text"], found["account_id"]) == ("STOP", None)
    assert len(await engine.rows("SELECT FROM reply_parts")) == 1


@pytest.mark.long
async def test_a_reply_over_http_reaches_the_webhook_and_stops_further_messages(engine: Engine) -> None:
    with run_carrier(BulkSmsServer()) as bulksms, run_web(engine.url) as web:
        async with run_receiver(answer(200)) as receiver:
            await engine.add_http_carrier("bulk", bulksms)
            engine.start_worker(public_url=web.base)
            (row,) = await engine.rows("SELECT hook_token FROM http_carriers")
            bulksms.callback_url = f"{web.base}/hooks/carriers/{row['hook_token']}"
            caller = await engine.open_account()
            types = ["reply.received", "recipient.opted_out"]
            await add_endpoint(engine.database, caller.id, receiver.url, types, "", allow_private=True)
            await engine.send(caller, [NUMBER], TEXT)
            await engine.until_status(NUMBER, "delivered")
            # The provider did not get our answer to the first, and calls again with the same id.
            for _ in range(2):
                assert await asyncio.to_thread(bulksms.tell_reply, NUMBER, "32100", "Stop, asseblief.") == 200
            await receiver.wait(requests=2)
    told = {one["type"]: one["data"] for one in (json.loads(request.body) for request in receiver.requests)}
    assert set(told) == set(types)
    (found,) = await replies_of(engine, 1)
    assert told["reply.received"] == told["recipient.opted_out"]
    assert {name: told["reply.received"][name] for name in ("from", "to", "text", "complete")} == {
        "from": NUMBER,
        "to": "32100",
        "text": "Stop, asseblief.",
        "complete": True,
    }
    assert told["reply.received"]["message_id"] == write_id(MESSAGE, found["message_id"])
    assert rejected(await engine.send(caller, [NUMBER], TEXT)) == [(NUMBER, "RECIPIENT_OPTED_OUT")]
