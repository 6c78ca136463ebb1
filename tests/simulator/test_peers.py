"""Third-party SMPP clients work with the simulator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiosmpplib
import pytest
import rusmppyc

from tests.support.delivery.raw_esme import NUMBER, PATIENCE_S, until
from tumira.simulator.smsc import Smsc, run_smsc

GSM_TEXT: Final = "Prices: @ £ _ € ñ { } [ ~ ] | ^ \\ done. " * 12
UCS2_TEXT: Final = "Mhoro \N{PARTY POPPER} שלום — " * 20
# This client's UCS-2 has no characters of two code units.
UCS2_TEXT_RUST: Final = "Mhoro שלום — " * 20
UDH: Final = 0x40


class Heard(aiosmpplib.AbstractHook):  # type: ignore[misc]  # the library has no types
    """Keeps what the library has read."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def sending(self, smpp_message: Any, pdu: bytes, client_id: str) -> None: ...

    async def received(self, smpp_message: Any, pdu: bytes, client_id: str) -> None:  # noqa: ARG002 - its interface
        self.messages.append(smpp_message)

    async def send_error(self, smpp_message: Any, error: Exception, client_id: str) -> None:  # noqa: ARG002 - its interface
        raise error

    @property
    def receipts(self) -> list[Any]:
        return [one for one in self.messages if isinstance(one, aiosmpplib.DeliverSm)]

    @property
    def answers(self) -> list[Any]:
        return [one for one in self.messages if isinstance(one, aiosmpplib.SubmitSmResp)]


@asynccontextmanager
async def aiosmpplib_client(smsc: Smsc) -> AsyncIterator[tuple[Any, Heard]]:
    heard = Heard()
    client = aiosmpplib.ESME("127.0.0.1", smsc.port, "aiosmpp", "secret", hook=heard, log_level="CRITICAL")
    running = asyncio.create_task(client.start())
    try:
        await until(lambda: bool(heard.messages))
        yield client, heard
    finally:
        # It forgets to close its stream, which would be a warning.
        stream = client._writer
        async with asyncio.timeout(PATIENCE_S):
            await client.stop()
            await running
        stream.close()


def aiosmpplib_submit(number: str, text: str, *, parts: bool) -> Any:
    return aiosmpplib.SubmitSm(
        short_message=text,
        source=aiosmpplib.PhoneNumber("Tumira", aiosmpplib.TON.ALPHANUMERIC, aiosmpplib.NPI.UNKNOWN),
        destination=aiosmpplib.PhoneNumber(number),
        auto_message_payload=not parts,
        esm_class=UDH if parts else 0,
        log_id=text[:10],
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [(GSM_TEXT, True), (UCS2_TEXT, False), ("Your code is 493817.", False)],
    ids=["GSM-7 in parts", "UCS-2 as payload", "short"],
)
async def test_aiosmpplib_sends_a_text_and_reads_its_receipt(text: str, parts: bool) -> None:  # noqa: FBT001 - a row of the table
    async with run_smsc() as smsc, aiosmpplib_client(smsc) as (client, heard):
        await client.broker.enqueue(aiosmpplib_submit(NUMBER, text, parts=parts))
        await until(lambda: bool(heard.receipts) and smsc.receipts_unanswered == 0)

        (arrived,) = smsc.texts
        assert (arrived.to, arrived.sender, arrived.text) == (f"+{NUMBER}", "Tumira", text)
        receipt = heard.receipts[0].parse_receipt()
        assert (receipt["stat"], receipt["err"], receipt["dlvrd"]) == ("DELIVRD", 0, 1)
        assert receipt["id"] == heard.answers[0].message_id


@asynccontextmanager
async def rusmppyc_client(smsc: Smsc) -> AsyncIterator[tuple[rusmppyc.Client, Any]]:
    client, events = await rusmppyc.Client.connect(
        f"smpp://127.0.0.1:{smsc.port}", interface_version_check=False
    )
    try:
        bound = await client.bind_transceiver("rusmppyc", "secret")
        assert bytes(bound.system_id) == b"simulator\0"
        yield client, aiter(events)
    finally:
        await client.close()
        await client.closed()


RECEIPT_WANTED: Final = rusmppyc.RegisteredDelivery(
    mc_delivery_receipt=rusmppyc.MCDeliveryReceipt.McDeliveryReceiptRequestedWhereFinalDeliveryOutcomeIsSuccessOrFailure()
)


@pytest.mark.parametrize(
    ("text", "encoder"),
    [
        (GSM_TEXT, rusmppyc.Encoder.Gsm7BitUnpacked(rusmppyc.Gsm7BitUnpacked.default())),
        (UCS2_TEXT_RUST, rusmppyc.Encoder.Ucs2(rusmppyc.Ucs2.default())),
    ],
    ids=["GSM-7", "UCS-2"],
)
async def test_rusmppyc_sends_a_long_text_and_reads_its_receipts(
    text: str, encoder: rusmppyc.Encoder
) -> None:
    async with run_smsc() as smsc, rusmppyc_client(smsc) as (client, events):
        parts = rusmppyc.Client.submit_sm_multipart(
            text,
            reference=7,
            encoder=encoder,
            source_addr="Tumira",
            destination_addr=NUMBER,
            registered_delivery=RECEIPT_WANTED,
        )
        answers = [await client.submit_sm(part) for part in parts]
        receipts = [(await asyncio.wait_for(anext(events), PATIENCE_S))._0 for _ in answers]
        for receipt in receipts:
            await client.deliver_sm_resp(receipt.sequence_number, "")

        assert len(parts) > 2
        assert smsc.texts.to(f"+{NUMBER}") == [text]
        ids = [bytes(answer.message_id).rstrip(b"\0") for answer in answers]
        texts = [bytes(receipt.pdu._0.short_message) for receipt in receipts]
        for identifier, written in zip(ids, texts, strict=True):
            assert written.startswith(b"id:" + identifier + b" sub:001 dlvrd:001 ")
            assert b" stat:DELIVRD err:000 " in written
        await until(lambda: smsc.receipts_unanswered == 0)
