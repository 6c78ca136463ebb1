"""Receipts of a third-party SMSC find their messages, in any form."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

import pytest

from tests.support.delivery.engine import Engine, numbers
from tests.support.delivery.peers.smsc import ForeignSmsc, digits, run_foreign_smsc

SPELLINGS: Final = ("decimal", "hex", "HEX", "padded", "hex_padded")
DATES: Final = "submit date:2611151200 done date:2611151201"
Receipt = Mapping[str, Any]


def words(state: str, error: str = "000") -> Receipt:
    return {"text": f"id:{{id}} sub:001 dlvrd:001 {DATES} stat:{state} err:{error} text:Your code"}


# How each comes, and the status that the message gets from it.
RECEIPTS: Final[Mapping[str, tuple[Sequence[Receipt], str]]] = {
    "as in the standard": ([words("DELIVRD")], "delivered"),
    "dates with seconds": (
        [
            {
                "text": "id:{id} sub:001 dlvrd:001 submit date:261115120059 done date:261115120159 "
                "stat:DELIVRD err:000 text:"
            }
        ],
        "delivered",
    ),
    "small letters": (
        [{"text": f"id:{{id}} sub:001 dlvrd:001 {DATES} stat:delivrd err:000 text:"}],
        "delivered",
    ),
    "large letters": (
        [{"text": f"ID:{{id}} SUB:001 DLVRD:001 {DATES.upper()} STAT:DELIVRD ERR:000 TEXT:"}],
        "delivered",
    ),
    "no more than id and state": ([{"text": "id:{id} stat:DELIVRD"}], "delivered"),
    "another order": ([{"text": f"stat:DELIVRD {DATES} err:000 id:{{id}}"}], "delivered"),
    "an error with letters": ([words("UNDELIV", "0x1B")], "undelivered"),
    "an error of eight letters": ([words("REJECTD", "SPAMBLOC")], "undelivered"),
    "in message_payload": ([{**words("DELIVRD"), "payload": True}], "delivered"),
    "in message_payload as UCS-2": ([{**words("DELIVRD"), "payload": True, "ucs2": True}], "delivered"),
    "as UCS-2": ([{**words("DELIVRD"), "ucs2": True}], "delivered"),
    "with a NUL behind": ([{**words("DELIVRD"), "nul": True}], "delivered"),
    "as UCS-2 with a NUL behind": (
        [{"text": "id:{id} stat:DELIVRD", "ucs2": True, "nul": True}],
        "delivered",
    ),
    "without a text": ([{"text": None, "state": 2}], "delivered"),
    "without a text, expired": ([{"text": None, "state": 3}], "expired"),
    "with an id in the option and none in the text": ([{"text": "stat:DELIVRD", "state": 2}], "delivered"),
    "not marked as a receipt": ([{**words("DELIVRD"), "esm_class": 0}], "delivered"),
    "ahead of the answer": ([{**words("DELIVRD"), "before": True}], "delivered"),
    "ahead of the answer and behind it": (
        [{**words("DELIVRD"), "before": True}, words("DELIVRD")],
        "delivered",
    ),
    "five times": ([{**words("DELIVRD"), "copies": 5}], "delivered"),
    "a failure five times": ([{**words("UNDELIV", "001"), "copies": 5}], "undelivered"),
    "on its way first": ([words("ENROUTE"), words("ACCEPTD"), words("DELIVRD")], "delivered"),
    "a try first": ([{**words("UNDELIV"), "esm_class": 0x20}, words("DELIVRD")], "delivered"),
    "another word afterwards": ([words("DELIVRD"), words("UNDELIV")], "delivered"),
    "a better word afterwards": ([words("EXPIRED"), words("DELIVRD")], "expired"),
    "long words": ([words("UNDELIVERABLE")], "undelivered"),
}


async def check_once(engine: Engine, smsc: ForeignSmsc, texts: int) -> None:
    await smsc.catch_up()
    assert len(smsc.copies()) == texts
    assert set(smsc.copies().values()) == {1}
    assert {one["status"] for one in smsc.told("acknowledged")} <= {0}
    assert await engine.rows("SELECT * FROM incidents WHERE kind <> 'late_receipt'") == []


async def until_acknowledged(engine: Engine, smsc: ForeignSmsc, count: int) -> None:
    async def all_acknowledged() -> bool:
        return len(smsc.told("acknowledged")) == count

    await engine.until(all_acknowledged, "not all receipts are acknowledged")


@pytest.mark.long
async def test_an_id_is_found_in_any_spelling_by_a_worker_that_did_not_send_it(engine: Engine) -> None:
    pairs = list(product(SPELLINGS, SPELLINGS))
    recipients = numbers(len(pairs))
    # The receipts come when the first worker has gone, and wait at the carrier for the next.
    rules = [
        {
            "to": digits(recipient),
            "answer_id": answer,
            "receipt_id": receipt,
            "receipts": [{**words("DELIVRD"), "delay_ms": 1000}],
        }
        for recipient, (answer, receipt) in zip(recipients, pairs, strict=True)
    ]
    async with run_foreign_smsc(*rules) as smsc:
        await engine.add_carrier("foreign", smsc.port)
        first = engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, recipients)
        await engine.until_all("sent", "delivered")
        await engine.stop_worker(first)
        assert set(await engine.statuses()) == {"sent"}
        engine.start_worker()
        await engine.until_all("delivered")
        await check_once(engine, smsc, len(pairs))


@pytest.mark.long
async def test_receipts_of_every_form_are_understood(engine: Engine) -> None:
    recipients = dict(zip(RECEIPTS, numbers(len(RECEIPTS)), strict=True))
    rules = [
        {"to": digits(recipients[name]), "receipts": receipts} for name, (receipts, _) in RECEIPTS.items()
    ]
    async with run_foreign_smsc(*rules) as smsc:
        await engine.add_carrier("foreign", smsc.port)
        engine.start_worker()
        caller = await engine.open_account()
        await engine.send(caller, list(recipients.values()))
        await engine.until_all("delivered", "undelivered", "expired")
        statuses = {
            name: (await engine.message(recipient))["status"] for name, recipient in recipients.items()
        }
        assert statuses == {name: status for name, (_, status) in RECEIPTS.items()}
        # Every copy is acknowledged: what is not would come again and again.
        sent = sum(one.get("copies", 1) for receipts, _ in RECEIPTS.values() for one in receipts)
        await until_acknowledged(engine, smsc, sent)
        await check_once(engine, smsc, len(RECEIPTS))
        late = {
            row["recipient"]
            for row in await engine.rows(
                "SELECT messages.recipient FROM incidents JOIN messages ON messages.id = message_id"
            )
        }
        assert late == {recipients["another word afterwards"], recipients["a better word afterwards"]}
