"""A carrier and a customer's endpoint for webhooks, as processes that can be killed.

Each notes what reached it before it answers. The carrier tells the truth, or one of `LIES` while its control
file has the number of that lie.
"""

import asyncio
import json
import mmap
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import uvloop
from msgspec.structs import replace

from tests.proof.history.record import Recorder
from tumira.simulator.connection import Exchange, SmscConnection
from tumira.simulator.misbehaviours import (
    Answer,
    DuplicateReceipts,
    Ids,
    Misbehaviour,
    OutOfOrderResponses,
    ReceiptBeforeResponse,
    ResponseDelay,
    ResponseLoss,
)
from tumira.simulator.receipts import SimulatedReceipt
from tumira.simulator.smsc import BACKLOG, Smsc

# Long enough that some receipts are owed at any moment under load.
RECEIPT_DELAY_S: Final = 0.2
# And long enough that some submits wait for their answer.
ANSWER_DELAY_MS: Final = 60
LATE_MS: Final = 400
STRANGER: Final = 10**15


class WrongIds(Misbehaviour):
    """The receipt bears an id that no answer had."""

    def identify(self, number: int, ids: Ids) -> Ids:
        return Ids(ids.answered, str(number + STRANGER))


class RepeatedIds(Misbehaviour):
    """Two messages after each other get the same id."""

    def identify(self, number: int, ids: Ids) -> Ids:  # noqa: ARG002 - by its number
        return Ids(str(number // 2 * 2), str(number // 2 * 2))


class StrangeReceipts(Misbehaviour):
    """After each receipt comes another that says the opposite, for an id that nobody knows."""

    def shape(self, receipts: Sequence[SimulatedReceipt]) -> Sequence[SimulatedReceipt]:
        strange = [
            replace(_opposite(one), message_id=str(int(one.message_id) + STRANGER)) for one in receipts
        ]
        return [*receipts, *strange]


class Contradictions(Misbehaviour):
    """After each receipt comes another that says the opposite: success and then failure, or the other way."""

    def shape(self, receipts: Sequence[SimulatedReceipt]) -> Sequence[SimulatedReceipt]:
        return [*receipts, *(_opposite(one) for one in receipts)]


def _opposite(receipt: SimulatedReceipt) -> SimulatedReceipt:
    is_delivered = receipt.state == "DELIVRD"
    return replace(
        receipt, state="UNDELIV" if is_delivered else "DELIVRD", error="001" if is_delivered else "000"
    )


TRUTH: Final = "truth"
LIES: Final = {
    TRUTH: ResponseDelay(ANSWER_DELAY_MS),
    "wrong ids": WrongIds(),
    "repeated ids": RepeatedIds(),
    "receipts for unknown ids": StrangeReceipts(),
    "double receipts": DuplicateReceipts(),
    "receipts before the answer": ReceiptBeforeResponse(LATE_MS),
    "answers out of order": OutOfOrderResponses(),
    "success then failure": Contradictions(),
    "lost answers": ResponseLoss(5),
}


class Liar(Misbehaviour):
    """Notes each message, and tells the lie of the moment."""

    def __init__(self, recorder: Recorder, control: mmap.mmap) -> None:
        super().__init__()
        self._recorder = recorder
        self._control = control
        self._lies = list(LIES.values())

    @property
    def _lie(self) -> Misbehaviour:
        return self._lies[self._control[0]]

    def identify(self, number: int, ids: Ids) -> Ids:
        return self._lie.identify(number, ids)

    def shape(self, receipts: Sequence[SimulatedReceipt]) -> Sequence[SimulatedReceipt]:
        for receipt in receipts:
            number = f"+{receipt.about.destination.removeprefix('+')}"
            self._recorder.note("text", to=number, text=receipt.about.text.decode("ascii"))
        return self._lie.shape(receipts)

    def around(self, exchange: Exchange, answer: Answer) -> Answer:
        return self._lie.around(exchange, answer)


def serve_carrier() -> None:
    """Be a carrier until the end of this process."""
    _serve(_carrier)


async def _carrier(recorder: Recorder, address: str, port: int) -> asyncio.Server:
    smsc = Smsc([Liar(recorder, _open_control())], receipt_delay_s=RECEIPT_DELAY_S, texts_max=0)
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: SmscConnection(smsc), address, port, backlog=BACKLOG)


def _open_control() -> mmap.mmap:
    with Path(os.environ["PROOF_LIE"]).open("rb") as file:
        return mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ)


def serve_endpoint() -> None:
    """Be a customer's endpoint until the end of this process."""
    _serve(_endpoint)


async def _endpoint(recorder: Recorder, address: str, port: int) -> asyncio.Server:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.split("\r\n")[:-2]
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                recorder.note(
                    "event",
                    id=headers["webhook-id"],
                    account=first.split()[1].removeprefix("/"),
                    sequence=body["sequence"],
                    type=body["type"],
                    data=body["data"],
                )
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    return await asyncio.start_server(accept, address, port, backlog=BACKLOG)


def _serve(open_server: Callable[[Recorder, str, int], Awaitable[asyncio.Server]]) -> None:
    recorder = Recorder(Path(os.environ["PROOF_FILE"]))
    address, port = os.environ["PROOF_ADDRESS"], int(os.environ["PROOF_PORT"])

    async def serve() -> None:
        stopped = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
        async with await open_server(recorder, address, port):
            await stopped.wait()

    uvloop.run(serve())
    raise SystemExit(0)
