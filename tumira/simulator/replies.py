"""Replies from the handsets: written as a phone would, and passed on to the simulator by SMPP."""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Final

from tumira.carriers import url as carrier_url
from tumira.core.errors import OperatorError
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.encoding import encode
from tumira.delivery.smpp.pdu import Command, ShortMessage, short_message_body
from tumira.delivery.smpp.session import BindRefusedError, SessionListener, connect

# Who binds under this name is a handset: what it submits goes to the gateway, as a reply.
HANDSET: Final = "handset"
TEXT_MAX: Final = 1_000
ANSWER_S: Final = 5.0

_TIMING: Final = SmppTimeouts(response_s=ANSWER_S, bind_s=ANSWER_S)
# Parts of different texts from one handset must not be joined.
_references: Final = itertools.cycle(range(256))


def write_reply(number: str, to: str, text: str) -> Sequence[bytes]:
    """Write a text from a handset: a body for each part, of submit_sm as well as of deliver_sm."""
    encoded = encode(text, next(_references))
    digits = to.removeprefix("+").isdecimal()
    return [
        short_message_body(
            ShortMessage(
                source_ton=1,
                source_npi=1,
                source=number.removeprefix("+"),
                destination_ton=1 if digits else 5,
                destination_npi=1 if digits else 0,
                destination=to.removeprefix("+"),
                esm_class=encoded.esm_class,
                data_coding=encoded.data_coding,
                text=payload,
            )
        )
        for payload in encoded.payloads
    ]


class _Answers(SessionListener):
    def __init__(self) -> None:
        self.statuses: asyncio.Queue[int] = asyncio.Queue()

    def answered(self, tag: object, status: int, carrier_ref: str) -> None:
        del tag, carrier_ref
        self.statuses.put_nowait(status)

    def ended(self, unanswered: Sequence[object], problem: str) -> None:
        del problem
        for _ in unanswered:
            self.statuses.put_nowait(CommandStatus.RSYSERR)


async def send_reply(port: int, number: str, to: str, text: str) -> int:
    """Send a text from a handset to the gateway, and return of how many parts it was.

    OperatorError says why it could not be sent.
    """
    answers = _Answers()
    bodies = write_reply(number, to, text)
    settings = carrier_url.parse(f"smpp://{HANDSET}:{HANDSET}@127.0.0.1:{port}")
    try:
        session = await connect(settings, Command.BIND_TRANSMITTER, answers, timing=_TIMING)
        try:
            for body in bodies:
                session.submit(None, body)
            async with asyncio.timeout(ANSWER_S):
                statuses = [await answers.statuses.get() for _ in bodies]
        finally:
            await session.close(0)
    except (BindRefusedError, OSError) as error:
        raise OperatorError("The simulator does not answer.") from error
    if any(status != CommandStatus.ROK for status in statuses):
        raise OperatorError("No worker is connected to the simulator, so nobody takes the reply.")
    return len(bodies)
