"""The server end follows SMPP 3.4."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.delivery.smpp_peer import Line, RecordingListener, delivery, pdu
from tests.support.delivery.smpp_session import (
    BODY,
    ENQUIRE,
    ENQUIRE_RESP,
    NACK,
    RECEIPT,
    SUBMIT,
    SUBMIT_RESP,
    at,
)
from tumira.delivery.carrier_url import parse
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.pdu import BindRequest, Command
from tumira.delivery.smpp.server import ServerPeer
from tumira.delivery.smpp.session import BindRefusedError, connect

pytestmark = pytest.mark.usefixtures("nothing_fails_unseen")


class Smsc(ServerPeer):
    """Takes all submits and delivers a receipt for each; lets in who knows the password."""

    system_id = "ours"

    def __init__(self) -> None:
        super().__init__()
        self.acknowledgements: list[tuple[int, int]] = []
        self.events: list[str] = []

    def bound(self, bind: BindRequest, command: Command) -> int:
        self.events.append(f"{command.name} of {bind.system_id}")
        return CommandStatus.ROK if bind.password == "secret" else CommandStatus.RINVPASWD

    def submitted(self, sequence: int, message_body: bytes) -> None:
        assert message_body == BODY
        self.respond(sequence, f"C{sequence}")
        self.deliver(delivery(RECEIPT))

    def acknowledged(self, sequence: int, status: int) -> None:
        self.acknowledgements.append((sequence, status))

    def unbound(self) -> None:
        self.events.append("unbound")

    def line_ended(self, problem: str) -> None:
        self.events.append(problem)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[int, list[Smsc]]]:
    peers: list[Smsc] = []

    def accept() -> Smsc:
        peers.append(Smsc())
        return peers[-1]

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], peers
    finally:
        for peer in peers:
            peer.abort()
        server.close()
        await server.wait_closed()


async def test_both_of_our_ends_understand_each_other() -> None:
    listener = RecordingListener()
    async with serving() as (port, peers):
        session = await connect(at(port), Command.BIND_TRANSCEIVER, listener)
        assert session.peer_system_id == "ours"
        for tag in range(100):
            session.submit(tag, BODY)
        await listener.wait(answers=100, receipts=100)
        assert listener.answers == [(tag, 0, f"C{tag + 2}") for tag in range(100)]
        session.acknowledge(listener.tokens)
        await session.enquire()
        assert peers[0].acknowledgements == [(number, 0) for number in range(1, 101)]
        await session.close(1)
        goodbye = "the other end said goodbye (unbind)"
        assert peers[0].events == ["BIND_TRANSCEIVER of tumira", "unbound", goodbye]


async def test_our_carriers_end_refuses_a_wrong_password_and_closes() -> None:
    async with serving() as (port, peers):
        carrier = parse(f"smpp://tumira:wrong@127.0.0.1:{port}")
        with pytest.raises(BindRefusedError, match="RINVPASWD"):
            await connect(carrier, Command.BIND_TRANSMITTER, RecordingListener())
        assert peers[0].events == ["BIND_TRANSMITTER of tumira", "the bind was refused"]


async def test_our_carriers_end_takes_submits_only_from_who_may_send() -> None:
    bind = b"tumira\0secret\0\0\x34\0\0\0"
    async with serving() as (port, _):
        line = Line(*await asyncio.open_connection("127.0.0.1", port))
        await line.say(pdu(SUBMIT, 1, BODY), pdu(0x01, 2, bind), pdu(SUBMIT, 3, BODY), pdu(0x09, 4, bind))
        await line.say(pdu(0x21, 5), pdu(ENQUIRE, 6), pdu(0x01, 7))
        assert await line.hear_many(7) == [
            (SUBMIT_RESP, 4, 1, b""),
            (0x8000_0001, 0, 2, b"ours\0"),
            (SUBMIT_RESP, 4, 3, b""),
            (0x8000_0009, 5, 4, b""),
            (NACK, 3, 5, b""),
            (ENQUIRE_RESP, 0, 6, b""),
            (0x8000_0001, 5, 7, b""),
        ]
        line.drop()


async def test_our_carriers_end_refuses_a_bind_cut_short() -> None:
    async with serving() as (port, _):
        line = Line(*await asyncio.open_connection("127.0.0.1", port))
        await line.say(pdu(0x09, 1, b"tumira"))
        assert await line.hear() == (0x8000_0009, 2, 1, b"")
        assert await line.hear_end() == b""
        line.drop()
