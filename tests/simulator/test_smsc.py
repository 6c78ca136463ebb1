"""The simulator as an SMSC: binds, responses, receipts, long texts."""

from collections.abc import Sequence
from itertools import product
from typing import Final

import pytest

from tests.support.delivery.raw_esme import NUMBER, raw_esme, until
from tests.support.processes.programs import CHECKOUT
from tumira.delivery.receipt_rules import parse_text
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.encoding import encode
from tumira.delivery.smpp.pdu import (
    MESSAGE_PAYLOAD,
    MESSAGE_STATE,
    RECEIPTED_MESSAGE_ID,
    Command,
    Pdu,
    ShortMessage,
    read_short_message,
    read_text,
)
from tumira.simulator import receipt_queue
from tumira.simulator.numbers import OUTCOMES, NumberOutcome
from tumira.simulator.receipts import STATES, SimulatedReceipt, write_body, write_usual_body
from tumira.simulator.smsc import run_smsc

BINDS: Final = (Command.BIND_RECEIVER, Command.BIND_TRANSMITTER, Command.BIND_TRANSCEIVER)


def receipt_id(pdu: Pdu) -> str:
    assert pdu.command == Command.DELIVER_SM
    return read_text(read_short_message(pdu.body).tlvs[RECEIPTED_MESSAGE_ID])


@pytest.mark.parametrize("command", BINDS)
async def test_every_kind_of_bind_is_taken_from_anybody(command: Command) -> None:
    async with run_smsc() as smsc, raw_esme(smsc.port, None) as esme:
        answer = await esme.bind(command, system_id="somebody")

        assert (answer.status, read_text(answer.body)) == (CommandStatus.ROK, "simulator")
        assert await esme.is_alive()
        assert (await esme.bind(command)).status == CommandStatus.RALYBND


@pytest.mark.parametrize("command", [None, Command.BIND_RECEIVER])
async def test_who_has_not_bound_for_it_cannot_submit(command: Command | None) -> None:
    async with run_smsc() as smsc, raw_esme(smsc.port, command) as esme:
        sequence = esme.submit()
        answer = await esme.next()

        assert (answer.command, answer.sequence) == (Command.SUBMIT_SM_RESP, sequence)
        assert answer.status == CommandStatus.RINVBNDSTS
        assert len(smsc.texts) == 0
        # What is no command of ours is refused, and a bind cut short ends the line.
        esme.send(0x21)
        unknown = await esme.next()
        assert (unknown.command, unknown.status) == (Command.GENERIC_NACK, CommandStatus.RINVCMDID)
        esme.send(Command.BIND_TRANSCEIVER, b"tumira")
        refused = await esme.next()
        if command is None:
            assert (refused.status, refused.body) == (CommandStatus.RINVCMDLEN, b"")
            with pytest.raises(ConnectionError):
                await esme.next()
        else:
            assert refused.status == CommandStatus.RALYBND


async def test_a_submit_is_answered_and_then_receipted() -> None:
    async with run_smsc() as smsc, raw_esme(smsc.port) as esme:
        sequence = esme.submit(text=b"Your code is 493817.")
        answer, receipt = await esme.take(2)

        assert (answer.command, answer.status, answer.sequence) == (Command.SUBMIT_SM_RESP, 0, sequence)
        message = read_short_message(receipt.body)
        assert (message.source, message.destination, message.esm_class) == (NUMBER, "Tumira", 0x04)
        assert read_text(message.tlvs[RECEIPTED_MESSAGE_ID]) == read_text(answer.body)
        assert message.tlvs[MESSAGE_STATE] == b"\x02"
        parsed = parse_text(message.text.decode("ascii"))
        assert parsed is not None
        assert (parsed.carrier_ref, parsed.state, parsed.error) == (read_text(answer.body), "DELIVRD", "000")
        assert message.text.endswith(b"text:Your code is 493817.")
        (text,) = smsc.texts
        assert (text.to, text.sender, text.text) == (f"+{NUMBER}", "Tumira", "Your code is 493817.")
        assert text.at.endswith("+00:00")
        assert smsc.submits.taken == smsc.submits.received == 1


@pytest.mark.parametrize(
    ("asked", "ending", "expected"),
    [(0, "0001", False), (2, "0001", False), (2, "9901", True), (3, "9901", False)],
)
async def test_a_receipt_comes_when_it_was_asked_for(asked: int, ending: str, expected: bool) -> None:  # noqa: FBT001 - a column of the table
    async with run_smsc() as smsc, raw_esme(smsc.port) as esme:
        esme.submit(f"26377120{ending}", registered_delivery=asked)
        assert (await esme.next()).status == CommandStatus.ROK
        sequence = esme.send(Command.ENQUIRE_LINK)

        following = await esme.next()
        assert (following.command == Command.DELIVER_SM) == expected
        assert expected or following.sequence == sequence


async def test_what_is_no_number_and_no_message_is_refused() -> None:
    async with run_smsc() as smsc, raw_esme(smsc.port) as esme:
        for number in ("", "Tumira", "26", "26377120000100000000001", "263 771"):
            esme.submit(number)
            assert (await esme.next()).status == CommandStatus.RINVDSTADR
        esme.send(Command.SUBMIT_SM, b"\0\1\1")
        assert (await esme.next()).status == CommandStatus.RINVMSGLEN
        assert await esme.is_alive()


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.ending)
async def test_a_number_chooses_what_happens(outcome: NumberOutcome) -> None:
    expected: dict[str, tuple[Sequence[int | None], str | None, str, bool]] = {
        # Answers to one try after the other (None for none), the receipt's state and error, arrival.
        "9901": ([0], "UNDELIV", "001", False),
        "9902": ([0], "UNDELIV", "027", False),
        "9903": ([0], "EXPIRED", "000", False),
        "9904": ([0], "REJECTD", "011", False),
        "9905": ([CommandStatus.RINVDSTADR] * 2, None, "", False),
        "9906": ([CommandStatus.RINVSRCADR] * 2, None, "", False),
        "9907": ([CommandStatus.RSYSERR, CommandStatus.RSYSERR, 0], "DELIVRD", "000", True),
        "9908": ([0], None, "", True),
        "9909": ([None, 0], "DELIVRD", "000", True),
        # It is submitted without a validity period, which leaves it to the carrier.
        "9910": ([0], "DELIVRD", "000", True),
    }
    statuses, state, error, arrives = expected[outcome.ending]
    async with run_smsc() as smsc, raw_esme(smsc.port) as esme:
        # Twice: a text that is sent again later behaves as it did the first time.
        for times in (1, 2):
            for status in statuses:
                sequence = esme.submit(f"26377120{outcome.ending}")
                if status is None:
                    assert (esme.send(Command.ENQUIRE_LINK), 0) == (sequence + 1, (await esme.next()).status)
                else:
                    answer = await esme.next()
                    assert (answer.sequence, answer.status) == (sequence, status)
            if state is not None:
                text = read_short_message((await esme.next()).body).text.decode("ascii")
                assert f"stat:{state} err:{error} " in text
            assert len(smsc.texts) == (times if arrives else 0)
        sequence = esme.send(Command.ENQUIRE_LINK)
        assert (await esme.next()).sequence == sequence


async def test_receipts_go_to_the_receivers_of_the_same_system_in_turn() -> None:
    async with (
        run_smsc() as smsc,
        raw_esme(smsc.port, Command.BIND_TRANSMITTER, "pair") as transmitter,
        raw_esme(smsc.port, Command.BIND_RECEIVER, "pair") as first,
        raw_esme(smsc.port, Command.BIND_RECEIVER, "pair") as second,
        raw_esme(smsc.port, Command.BIND_TRANSCEIVER, "stranger") as stranger,
    ):
        for _ in range(4):
            transmitter.submit()
        ids = {read_text(answer.body) for answer in await transmitter.take(4)}
        receipts = [*await first.take(2), *await second.take(2)]

        assert {receipt_id(receipt) for receipt in receipts} == ids
        for one in (transmitter, stranger):
            sequence = one.send(Command.ENQUIRE_LINK)
            assert (await one.next()).sequence == sequence


async def test_receipts_that_were_not_answered_come_again_after_a_reconnect() -> None:
    async with run_smsc() as smsc:
        async with raw_esme(smsc.port, Command.BIND_TRANSMITTER) as transmitter:
            transmitter.submit()
            await transmitter.next()
        async with raw_esme(smsc.port) as esme:
            waited = await esme.next()
            esme.submit()
            esme.submit()
            pdus = await esme.take(4)
            first, second = (pdu for pdu in pdus if pdu.command == Command.DELIVER_SM)
            esme.acknowledge(first)
            await until(lambda: smsc.receipts_unanswered == 2)
        await until(lambda: not smsc.lines)
        async with raw_esme(smsc.port) as esme:
            again = await esme.take(2)

            assert [receipt_id(pdu) for pdu in again] == [receipt_id(waited), receipt_id(second)]
            for pdu in again:
                esme.acknowledge(pdu)
            await until(lambda: smsc.receipts_unanswered == 0)


async def test_a_receipt_that_is_refused_for_now_comes_again() -> None:
    async with run_smsc() as smsc, raw_esme(smsc.port) as esme:
        esme.submit()
        _, receipt = await esme.take(2)
        esme.acknowledge(receipt, CommandStatus.RX_T_APPN)
        again = await esme.next()

        assert again.body == receipt.body
        esme.acknowledge(again, CommandStatus.RX_P_APPN)
        await until(lambda: smsc.receipts_unanswered == 0)


async def test_no_more_receipts_are_sent_than_the_window_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_queue, "WINDOW", 50)
    async with run_smsc() as smsc, raw_esme(smsc.port) as esme:
        for _ in range(60):
            esme.submit()
        pdus = await esme.take(110)
        assert sum(pdu.command == Command.DELIVER_SM for pdu in pdus) == 50
        sequence = esme.send(Command.ENQUIRE_LINK)
        assert (await esme.next()).sequence == sequence

        receipts = [pdu for pdu in pdus if pdu.command == Command.DELIVER_SM]
        for receipt in receipts[:10]:
            esme.acknowledge(receipt)
        assert {pdu.command for pdu in await esme.take(10)} == {Command.DELIVER_SM}


async def test_a_late_receipt_finds_its_system_after_a_reconnect() -> None:
    async with run_smsc(receipt_delay_s=0.1) as smsc:
        async with raw_esme(smsc.port) as esme:
            esme.submit()
            answer = await esme.next()
            assert smsc.receipts_unanswered == 1
        await until(lambda: not smsc.lines)
        async with raw_esme(smsc.port) as esme:
            assert receipt_id(await esme.next()) == read_text(answer.body)


UCS2_TEXT: Final = "Mhoro \N{PARTY POPPER} שלום — " * 20
GSM_TEXT: Final = "Prices: @ £ _ € ñ { } [ ~ ] | ^ \\ done. " * 12


@pytest.mark.parametrize("text", [GSM_TEXT, UCS2_TEXT], ids=["GSM-7", "UCS-2"])
@pytest.mark.parametrize("how", ["udh8", "udh16", "sar", "payload"])
async def test_a_long_text_arrives_whole_in_whatever_order_its_parts_come(text: str, how: str) -> None:
    encoded = encode(text, 7)
    bare = [payload[6:] for payload in encoded.payloads]
    total = len(bare)
    async with run_smsc() as smsc, raw_esme(smsc.port) as esme:
        coding = encoded.data_coding
        if how == "payload":
            esme.submit(data_coding=coding, text=b"".join(bare), tlvs={MESSAGE_PAYLOAD: b""})
        for number, payload in reversed(list(enumerate(bare, 1))):
            place = bytes((total, number))
            if how == "udh8":
                esme.submit(esm_class=0x40, data_coding=coding, text=b"\x05\0\x03\x07" + place + payload)
            elif how == "udh16":
                esme.submit(esm_class=0x40, data_coding=coding, text=b"\x06\x08\x04\1\7" + place + payload)
            elif how == "sar":
                tlvs = {0x020C: b"\1\7", 0x020E: place[:1], 0x020F: place[1:]}
                esme.submit(data_coding=coding, text=payload, tlvs=tlvs)
        submits = 1 if how == "payload" else total
        pdus = await esme.take(2 * submits)

        assert [one.text for one in smsc.texts] == [text]
        assert sum(pdu.command == Command.DELIVER_SM for pdu in pdus) == submits


async def test_parts_of_different_texts_are_kept_apart() -> None:
    first, second = encode("a" * 200, 1).payloads, encode("b" * 200, 2).payloads
    async with run_smsc() as smsc, raw_esme(smsc.port) as esme:
        for payload in (first[0], second[0], second[1], second[1], first[1]):
            esme.submit(esm_class=0x40, text=payload)
        esme.submit("263771200002", esm_class=0x40, text=first[1])
        await esme.take(12)

        assert [text.text for text in smsc.texts] == ["b" * 200, "a" * 200]
        assert smsc.texts.counts == {(f"+{NUMBER}", "a" * 200): 1, (f"+{NUMBER}", "b" * 200): 1}


def test_the_manual_tells_of_every_number() -> None:
    manual = (CHECKOUT / "docs" / "simulator.md").read_text()
    for outcome in OUTCOMES:
        assert f"| `{outcome.ending}` | {outcome.what_happens} | {outcome.status} |" in manual


def test_the_quick_way_to_write_a_receipt_writes_the_same() -> None:
    texts = (b"Your code is 493817.", b"@ in GSM-7 is \0", b"\0H\0i", b"")
    for state, error, text in product(STATES, ("000", "001", "255"), texts):
        coding = 8 if text[:1] == b"\0" else 0
        about = ShortMessage("", 5, 0, "Tumira", 1, 1, NUMBER, text=text, data_coding=coding)
        facts = ("1794777262998105", about, state, error, 1_900_000_000.5, 1_900_000_090.5)
        assert write_usual_body(*facts) == write_body(SimulatedReceipt(*facts))
