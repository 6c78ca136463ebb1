"""A session with a carrier that does exactly what the test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.delivery.smpp_peer import Carrier, Line, RecordingListener
from tumira.carriers.url import CarrierSettings, parse
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.pdu import Command, SubmitBodies
from tumira.delivery.smpp.session import SmppSession, connect

SUBMIT, SUBMIT_RESP = 0x04, 0x8000_0004
DELIVER, DELIVER_RESP = 0x05, 0x8000_0005
DATA, DATA_RESP = 0x103, 0x8000_0103
UNBIND, UNBIND_RESP = 0x06, 0x8000_0006
ENQUIRE, ENQUIRE_RESP = 0x15, 0x8000_0015
NACK = 0x8000_0000

BODY = SubmitBodies("Tumira").body("263771200001", b"hello", 0, 0, "")
RECEIPT = b"id:10001 sub:001 dlvrd:001 submit date:2611151200 done date:2611151201 stat:DELIVRD err:000 text:"


def at(port: int, *, tls: bool = False) -> CarrierSettings:
    return parse(f"smpp{'s' if tls else ''}://tumira:secret@127.0.0.1:{port}")


@asynccontextmanager
async def bound(
    carrier: Carrier,
    listener: RecordingListener | None = None,
    *following: bytes,
    timing: SmppTimeouts | None = None,
) -> AsyncIterator[tuple[SmppSession, Line, RecordingListener]]:
    listener = listener or RecordingListener()
    opening = connect(at(carrier.port), Command.BIND_TRANSCEIVER, listener, timing=timing or SmppTimeouts())
    task = asyncio.create_task(opening)
    line = await carrier.line()
    await line.let_in(*following)
    session = await task
    try:
        yield session, line, listener
    finally:
        session.abort()
    assert len(listener.ends) == 1
