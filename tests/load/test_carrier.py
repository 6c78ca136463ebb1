"""The carrier of the benchmark answers late, counts what exceeds its window, and sends receipts."""

from collections.abc import Iterator

import pytest

from tests.load.carrier import RECEIPTS_MAX, Manners
from tests.load.peers import CarrierPeer, run_carrier_peer
from tests.support.delivery.raw_esme import raw_esme, until
from tumira.delivery.smpp.deliver_sm import read_receipt
from tumira.delivery.smpp.pdu import Command, read_short_message, read_text


@pytest.fixture
def carrier() -> Iterator[CarrierPeer]:
    with run_carrier_peer() as running:
        yield running


async def test_an_answer_comes_after_its_time_and_its_receipt_after_it(carrier: CarrierPeer) -> None:
    carrier.behave(Manners(answer_ms=20, receipt_ms=5, window=2))
    async with raw_esme(carrier.port) as esme:
        sequences = [esme.submit(), esme.submit()]
        answers = await esme.take(2)
        receipts = await esme.take(2)
        for receipt in receipts:
            esme.acknowledge(receipt)
        await until(lambda: carrier.counts()["acknowledged"] == 2)
    assert [(pdu.command, pdu.sequence) for pdu in answers] == [
        (Command.SUBMIT_SM_RESP, sequence) for sequence in sequences
    ]
    read = [read_receipt(read_short_message(pdu.body)) for pdu in receipts]
    assert [
        (receipt.carrier_ref, receipt.state, receipt.recipient) for receipt in read if receipt is not None
    ] == [(read_text(pdu.body), "DELIVRD", "263771200001") for pdu in answers]
    counts = carrier.counts()
    assert counts["answer_ms"] >= 20
    assert (counts["binds"], counts["count"], counts["receipts"]) == (1, 2, 2)
    assert (counts["outstanding_max"], counts["exceeding"]) == (2, 0)


async def test_submits_beyond_the_window_are_counted_and_answered(carrier: CarrierPeer) -> None:
    carrier.behave(Manners(answer_ms=20, window=2))
    async with raw_esme(carrier.port) as esme:
        for _ in range(3):
            esme.submit(registered_delivery=0)
        answers = await esme.take(3)
    assert {pdu.status for pdu in answers} == {0}
    counts = carrier.counts()
    assert (counts["outstanding_max"], counts["exceeding"], counts["receipts"]) == (3, 1, 0)


async def test_no_client_that_keeps_to_the_window_is_measured_above_the_limit(carrier: CarrierPeer) -> None:
    carrier.behave(Manners(answer_ms=10, window=2))
    async with raw_esme(carrier.port) as esme:
        for _ in range(4):
            esme.submit(registered_delivery=0)
            esme.submit(registered_delivery=0)
            await esme.take(2)
    assert 0 < carrier.pace(8) <= 2 / 0.010


async def test_receipts_wait_for_acknowledgements(carrier: CarrierPeer) -> None:
    async with raw_esme(carrier.port) as esme:
        for _ in range(RECEIPTS_MAX + 1):
            esme.submit()
        pdus = await esme.take(2 * RECEIPTS_MAX + 1)
        receipts = [pdu for pdu in pdus if pdu.command == Command.DELIVER_SM]
        assert len(receipts) == carrier.counts()["receipts"] == RECEIPTS_MAX
        esme.acknowledge(receipts[0])
        assert (await esme.next()).command == Command.DELIVER_SM


async def test_the_time_of_a_passcode_is_kept(carrier: CarrierPeer) -> None:
    async with raw_esme(carrier.port) as esme:
        esme.submit(text=b"Passcode 1")
        esme.submit(text=b"Your code is 493817.")
        await esme.take(2)
        assert list(carrier.passcodes()) == ["Passcode 1"]
