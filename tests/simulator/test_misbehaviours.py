"""Each misbehaviour of the simulator does what its name says."""

import asyncio
import re
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.support.delivery.raw_esme import NUMBER, RawEsme, raw_esme, until
from tests.support.processes.programs import CHECKOUT
from tumira.core.errors import OperatorError
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.pdu import (
    MESSAGE_PAYLOAD,
    MESSAGE_STATE,
    RECEIPTED_MESSAGE_ID,
    BrokenError,
    Command,
    Pdu,
    ShortMessage,
    read_data_sm,
    read_short_message,
    read_text,
)
from tumira.simulator.misbehaviours import BY_NAME, parse
from tumira.simulator.smsc import Smsc, run_smsc

DOCUMENT: Final = CHECKOUT / "docs" / "simulator.md"


def run_misbehaving(*words: str) -> AbstractAsyncContextManager[Smsc]:
    return run_smsc(misbehaviours=[parse(one) for one in words])


async def statuses(esme: RawEsme, count: int) -> Sequence[int]:
    for _ in range(count):
        esme.submit(registered_delivery=0)
    return [pdu.status for pdu in await esme.take(count)]


async def exchange(*misbehaviours: str, number: str = NUMBER, count: int = 2) -> Sequence[Pdu]:
    async with run_misbehaving(*misbehaviours) as smsc, raw_esme(smsc.port) as esme:
        esme.submit(number)
        return await esme.take(count)


def receipt_of(pdu: Pdu) -> ShortMessage:
    return read_data_sm(pdu.body) if pdu.command == Command.DATA_SM else read_short_message(pdu.body)


async def test_response_delay() -> None:
    began = time.monotonic()
    answer, receipt = await exchange("response-delay=100")

    assert time.monotonic() - began >= 0.1
    assert (answer.command, receipt.command) == (Command.SUBMIT_SM_RESP, Command.DELIVER_SM)


@pytest.mark.parametrize(
    ("misbehaviour", "receipts"), [("response-loss=2", 2), ("no-answers=2", 1), ("silence", 0)]
)
async def test_what_is_not_answered(misbehaviour: str, receipts: int) -> None:
    async with run_misbehaving(misbehaviour) as smsc, raw_esme(smsc.port) as esme:
        first, _ = esme.submit(), esme.submit()
        if receipts:
            answer, *following = await esme.take(1 + receipts)
            assert answer.sequence == first
            assert {one.command for one in following} == {Command.DELIVER_SM}
        assert await esme.is_alive()
        assert (smsc.submits.taken, smsc.submits.dropped, len(smsc.texts)) == (
            receipts,
            2 - receipts,
            receipts,
        )


@pytest.mark.parametrize(
    ("misbehaviour", "expected"),
    [
        ("throttle-every=3", [0, 0, CommandStatus.RTHROTTLED] * 2),
        ("system-error-every=2", [0, CommandStatus.RSYSERR] * 2),
        ("queue-full-bursts=2", ([0] * 8 + [CommandStatus.RMSGQFUL] * 2) * 2),
    ],
)
async def test_refusals(misbehaviour: str, expected: Sequence[int]) -> None:
    async with run_misbehaving(misbehaviour) as smsc, raw_esme(smsc.port) as esme:
        assert await statuses(esme, len(expected)) == expected
        assert smsc.submits.taken == len(smsc.texts) == expected.count(0)


async def test_rate_limit() -> None:
    async with run_misbehaving("rate-limit=5") as smsc, raw_esme(smsc.port) as esme:
        assert await statuses(esme, 8) == [0] * 5 + [CommandStatus.RTHROTTLED] * 3
        # A second later there is room again.
        while await statuses(esme, 1) != [0]:
            assert smsc.submits.taken == 5


async def test_receipt_before_response() -> None:
    receipt, answer = await exchange("receipt-before-response=20")

    assert (receipt.command, answer.command) == (Command.DELIVER_SM, Command.SUBMIT_SM_RESP)
    assert read_text(receipt_of(receipt).tlvs[RECEIPTED_MESSAGE_ID]) == read_text(answer.body)


async def test_out_of_order_responses() -> None:
    async with run_misbehaving("out-of-order-responses=3") as smsc, raw_esme(smsc.port) as esme:
        sent = [esme.submit(registered_delivery=0) for _ in range(4)]
        # The fourth is alone, and comes when nobody joins it.
        assert [pdu.sequence for pdu in await esme.take(4)] == [sent[2], sent[1], sent[0], sent[3]]


async def test_bodiless_errors() -> None:
    (usual,) = await exchange(number="263771209905", count=1)
    (bare,) = await exchange("bodiless-errors", number="263771209905", count=1)
    taken, _ = await exchange("bodiless-errors")

    assert (usual.status, usual.body) == (CommandStatus.RINVDSTADR, b"\0")
    assert (bare.status, bare.body) == (CommandStatus.RINVDSTADR, b"")
    assert taken.body != b""


@pytest.mark.parametrize("name", ["unbind-mid-window", "line-drop"])
async def test_unbind_mid_window_and_line_drop(name: str) -> None:
    async with run_misbehaving(f"{name}=2") as smsc:
        async with raw_esme(smsc.port) as esme:
            first = esme.submit(registered_delivery=0)
            assert (await esme.next()).sequence == first
            esme.submit()
            if name == "unbind-mid-window":
                goodbye = await esme.next()
                assert goodbye.command == Command.UNBIND
                esme.acknowledge(goodbye)
            with pytest.raises(ConnectionError):
                await esme.next()
        async with raw_esme(smsc.port) as esme:
            assert (await esme.next()).command == Command.DELIVER_SM


async def test_silent_death() -> None:
    async with run_misbehaving("silent-death=1") as smsc, raw_esme(smsc.port) as esme:
        esme.submit()
        esme.send(Command.ENQUIRE_LINK)
        async with raw_esme(smsc.port) as other:
            # The receipt comes by the new line: all that was due to come by the first has come by now.
            assert (await other.next()).command == Command.DELIVER_SM
            assert await other.is_alive()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(esme.reader.read(1), 0.05)


@pytest.mark.parametrize("name", ["oversized-pdu", "garbage"])
async def test_oversized_pdu_and_garbage(name: str) -> None:
    async with run_misbehaving(f"{name}=2") as smsc, raw_esme(smsc.port) as esme:
        assert await statuses(esme, 2) == [0, 0]
        with pytest.raises(BrokenError):
            await esme.next()


async def test_one_byte_writes() -> None:
    async with run_misbehaving("one-byte-writes") as smsc, raw_esme(smsc.port) as esme:
        esme.submit()
        answer, receipt = await esme.take(2)

        assert (answer.status, receipt.command) == (0, Command.DELIVER_SM)
        assert len(esme.chunks) > 20


async def test_binds_that_are_refused_or_not_answered() -> None:
    async with run_misbehaving("refuse-bind=1") as smsc:
        async with raw_esme(smsc.port, None) as esme:
            refused = await esme.bind()
            assert (refused.status, refused.body) == (CommandStatus.RBINDFAIL, b"")
        async with raw_esme(smsc.port, None) as esme:
            assert (await esme.bind()).status == CommandStatus.ROK
    async with run_misbehaving("refuse-bind") as smsc:
        for _ in range(3):
            async with raw_esme(smsc.port, None) as esme:
                assert (await esme.bind()).status == CommandStatus.RBINDFAIL
    async with run_misbehaving("wrong-password") as smsc, raw_esme(smsc.port, None) as esme:
        assert (await esme.bind()).status == CommandStatus.RINVPASWD
    async with run_misbehaving("no-bind-answer") as smsc, raw_esme(smsc.port, None) as esme:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(esme.bind(), 0.05)
        assert len(smsc.lines) == 1


@pytest.mark.parametrize(
    ("misbehaviours", "answered", "receipted"),
    [
        (["hex-ids"], "hex", "hex"),
        (["decimal-receipt-ids"], "hex", "decimal"),
        (["hex-receipt-ids"], "decimal", "hex"),
        (["padded-receipt-ids"], "decimal", "padded"),
        (["hex-ids", "padded-receipt-ids"], "hex", "padded"),
    ],
)
async def test_ids(misbehaviours: Sequence[str], answered: str, receipted: str) -> None:
    shapes = {"hex": r"[0-9A-F]{13,14}", "decimal": "[0-9]{16}", "padded": "0{4,7}[0-9a-f]+"}
    answer, receipt = await exchange(*misbehaviours)
    message = receipt_of(receipt)

    ids = read_text(answer.body), read_text(message.tlvs[RECEIPTED_MESSAGE_ID])
    assert re.fullmatch(shapes[answered], ids[0])
    assert re.fullmatch(shapes[receipted], ids[1])
    assert message.text.startswith(f"id:{ids[1]} ".encode())
    number = int(ids[0], 16) if answered == "hex" else int(ids[0])
    assert number in {int(ids[1], 16), int(ids[1]) if ids[1].isdecimal() else None}


@pytest.mark.parametrize(
    ("misbehaviour", "esm_class", "text"),
    [
        ("dates-with-seconds", 0x04, rb"submit date:\d{12} done date:\d{12} "),
        ("wordy-errors", 0x04, rb" err:E001A "),
        ("unmarked-receipts", 0x00, rb" stat:UNDELIV "),
        ("payload-receipts", 0x04, rb" stat:UNDELIV "),
    ],
)
async def test_receipt_texts(misbehaviour: str, esm_class: int, text: bytes) -> None:
    _, receipt = await exchange(misbehaviour, number="263771209901")
    message = receipt_of(receipt)
    assert message.esm_class == esm_class
    assert re.search(text, message.text)
    assert (MESSAGE_PAYLOAD in message.tlvs) == (misbehaviour == "payload-receipts")


async def test_duplicate_missing_and_early_receipts() -> None:
    _, *receipts = await exchange("duplicate-receipts=3", count=4)
    assert len({receipt.body for receipt in receipts}) == 1
    assert all(one.sequence < other.sequence for one, other in pairwise(receipts))
    async with run_misbehaving("no-receipts") as smsc, raw_esme(smsc.port) as esme:
        esme.submit()
        sequence = esme.send(Command.ENQUIRE_LINK)
        assert [pdu.sequence for pdu in await esme.take(2)] == [sequence - 1, sequence]
    _, *receipts = await exchange("enroute-first", count=3)
    messages = [receipt_of(receipt) for receipt in receipts]
    assert [message.esm_class for message in messages] == [0x20, 0x04]
    assert [message.tlvs[MESSAGE_STATE] for message in messages] == [b"\x01", b"\x02"]


async def test_ucs2_tlv_and_text_receipts() -> None:
    _, receipt = await exchange("ucs2-receipts")
    message = receipt_of(receipt)
    assert message.data_coding == 8
    assert " stat:DELIVRD err:000 " in message.text.decode("utf-16-be")

    answer, receipt = await exchange("tlv-receipts")
    message = receipt_of(receipt)
    assert message.text == b""
    assert message.tlvs == {RECEIPTED_MESSAGE_ID: answer.body, MESSAGE_STATE: b"\x02"}

    answer, receipt = await exchange("text-receipts")
    message = receipt_of(receipt)
    assert message.tlvs == {}
    assert message.text.startswith(f"id:{read_text(answer.body)} sub:001 dlvrd:001 ".encode())


async def test_data_sm_receipts() -> None:
    async with run_misbehaving("data-sm-receipts") as smsc, raw_esme(smsc.port) as esme:
        esme.submit()
        answer, receipt = await esme.take(2)
        message = read_data_sm(receipt.body)

        assert receipt.command == Command.DATA_SM
        assert (message.source, message.destination, message.esm_class) == (NUMBER, "Tumira", 0x04)
        assert message.tlvs[RECEIPTED_MESSAGE_ID] == answer.body
        assert b" stat:DELIVRD " in message.text
        esme.acknowledge(receipt)
        await until(lambda: smsc.receipts_unanswered == 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nonsense", "There is no misbehaviour 'nonsense'; use one of bodiless-errors, "),
        ("hex-ids=3", "The misbehaviour hex-ids has no value: leave out '=3'."),
        ("throttle-every=0", "it must be a number from 1 to 1000000."),
        ("throttle-every=", "it must be a number from 1 to 1000000."),
        ("refuse-bind=x", "it must be a number from 0 to 1000000."),
    ],
)
def test_a_misbehaviour_that_is_none_is_refused(words: str, said: str) -> None:
    with pytest.raises(OperatorError) as refused:
        parse(words)
    assert said in str(refused.value)


def test_each_misbehaviour_has_a_test_and_a_line_in_the_manual() -> None:
    tests = Path(__file__).read_text()
    manual = DOCUMENT.read_text()
    for name, kind in BY_NAME.items():
        assert re.search(rf'"{name}["=]', tests), name
        assert f"| `{name}" in manual, name
        assert " ".join((kind.__doc__ or "").split()) in manual, name
    assert parse("throttle-every").value == 10
    assert parse("throttle-every=7").value == 7
