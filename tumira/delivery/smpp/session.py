"""The client end of an SMPP connection: bind, submit, responses, receipts, unbind.

A session never waits for its user, who limits `outstanding` to the window. A tag whose response is overdue is
kept for `late_s`. At most 50,000 receipts are unacknowledged; further ones are refused with RX_T_APPN, so
that the carrier delivers them again.
"""

import asyncio
import functools
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

from tumira.carriers.url import CarrierSettings
from tumira.delivery import responses as answers
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.replies.parts import ReplyPart
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import DEFAULT_TIMEOUTS, Peer, SmppTimeouts
from tumira.delivery.smpp.deliver_sm import read_receipt, read_reply
from tumira.delivery.smpp.pdu import (
    RESPONSE,
    SEQUENCE_MAX,
    BrokenError,
    Command,
    Pdu,
    ShortMessage,
    bind_body,
    read_data_sm,
    read_short_message,
    read_text,
    write,
)

_UNACKNOWLEDGED_MAX: Final = 50_000
# PDUs that came together are handled in parts, and what a part led to is sent before the next one. The first
# submits after the answers to a whole window would else wait until the last answer is handled.
_PARTS: Final = 16
_PART_MIN: Final = 2

_SUBMIT_SM: Final = int(Command.SUBMIT_SM)
_SUBMIT_SM_RESP: Final = int(Command.SUBMIT_SM_RESP)
_DELIVER_SM: Final = int(Command.DELIVER_SM)
_DATA_SM: Final = int(Command.DATA_SM)
_GENERIC_NACK: Final = int(Command.GENERIC_NACK)
_UNBIND_RESP: Final = int(Command.UNBIND_RESP)
_ENQUIRE_LINK_RESP: Final = int(Command.ENQUIRE_LINK_RESP)

# A tag may be anything, None too.
_MISSING: Final = object()


class SessionListener:
    """The user of a session, which ignores everything; no method may wait."""

    def answered(self, tag: object, status: int, carrier_ref: str) -> None:
        """Take the response to a submit; it may still come after `unanswered`."""

    def unanswered(self, tag: object) -> None:
        """Note that no response came in time; the session goes on."""

    def received(self, receipt: Receipt, token: object) -> None:
        """Take a receipt; its token is for `SmppSession.acknowledge`, once the receipt is on disk."""

    def replied(self, part: ReplyPart, token: object) -> None:
        """Take a reply of a person, or a part of it; acknowledged like a receipt."""

    def settled(self) -> None:
        """Continue after a group of the calls above."""

    def ended(self, unanswered: Sequence[object], problem: str) -> None:
        """Note that the session is gone, and which submits have no response; called once, and last."""


class BindRefusedError(Exception):
    """The carrier refused the bind; `words` is the status by name and number."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"the carrier refused the bind: {words}")
        self.status = status
        self.words = words


async def connect(
    carrier: CarrierSettings,
    command: Command,
    listener: SessionListener,
    *,
    timing: SmppTimeouts = DEFAULT_TIMEOUTS,
    ssl_context: ssl.SSLContext | None = None,
) -> "SmppSession":
    """Connect and bind; `ended` is called only for a session that was returned from here.

    Raises BindRefusedError, or OSError, which includes TimeoutError and TLS errors.
    """
    loop = asyncio.get_running_loop()
    context = (ssl_context or _verifying_context()) if carrier.tls else None
    try:
        async with asyncio.timeout(timing.bind_s):
            _, session = await loop.create_connection(
                lambda: SmppSession(listener, timing), carrier.host, carrier.port, ssl=context
            )
            await session.bind(command, carrier)
    except TimeoutError:
        raise TimeoutError(
            f"{carrier.host}:{carrier.port} did not answer in {timing.bind_s:g} s; check host and port"
        ) from None
    return session


@functools.cache
def _verifying_context() -> ssl.SSLContext:
    return ssl.create_default_context()


class _Overdue:
    def __init__(self, age_s: float) -> None:
        self._age_s = age_s
        # How many had been given out at which time, one entry for a tick.
        self._marks: deque[tuple[float, int]] = deque()
        self._told = 0

    def since_last(self, now: float, issued: int) -> range:
        marks = self._marks
        if issued > (marks[-1][1] if marks else self._told):
            marks.append((now, issued))
        first = self._told
        while marks and marks[0][0] <= now - self._age_s:
            self._told = marks.popleft()[1]
        return range(first, self._told)


class SmppSession(Peer):
    """A bound session with a carrier; made by `connect`."""

    def __init__(self, listener: SessionListener, timing: SmppTimeouts) -> None:
        super().__init__(timing)
        self.peer_system_id = ""
        self._listener = listener
        # Tags by sequence number: those that wait for an answer, and those that were called unanswered.
        self._waiting: dict[int, object] = {}
        self._late: dict[int, object] = {}
        self._overdue = _Overdue(timing.response_s)
        self._forgotten = _Overdue(timing.response_s + timing.late_s)
        self._unacknowledged = 0
        self._bind_response = 0
        self._binding: asyncio.Future[None] | None = None
        self._bound = False
        # Whether the caller of `connect` has it, and its listener hears of its end; else why it ended.
        self._given = False
        self._problem = ""
        # PDUs that wait for the next turn of the event loop.
        self._held: deque[Pdu] | None = None
        self._part = _PART_MIN
        self._is_taking = False
        self._closing = False
        self._drained: asyncio.Future[None] | None = None
        self._unbound: asyncio.Future[None] | None = None
        self._enquiries: dict[int, asyncio.Future[None]] = {}
        self._readers: dict[int, Callable[[bytes], ShortMessage]] = {
            _DELIVER_SM: read_short_message,
            _DATA_SM: read_data_sm,
        }

    @property
    def outstanding(self) -> int:
        return len(self._waiting)

    async def bind(self, command: Command, carrier: CarrierSettings) -> None:
        self._bind_response = command | RESPONSE
        self._binding = self._loop.create_future()
        self.send(write(command, self.next_sequence(), bind_body(carrier.system_id, carrier.password)))
        try:
            await self._binding
        except BaseException:
            # The caller of `connect` gets the error, the listener nothing.
            self.end("not bound", at_once=True)
            raise
        if self.ended:
            # Ended by a PDU in the same packet as the response to the bind.
            raise ConnectionError(self._problem)
        self._given = True

    def submit(self, tag: object, body: bytes) -> None:
        """Send a submit_sm; its response comes to the listener with the tag."""
        if self.ended or self._closing:
            raise ConnectionError("the line to the carrier has ended")
        issued = self._issued
        self._issued = issued + 1
        sequence = issued % SEQUENCE_MAX + 1
        self._waiting[sequence] = tag
        self.send(write(_SUBMIT_SM, sequence, body))

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """Acknowledge receipts; those of an ended session are delivered again."""
        if self.ended or not tokens:
            return
        self._unacknowledged -= len(tokens)
        # A token is the answer itself, made when the receipt came.
        self.send_all(cast("Sequence[bytes]", tokens))

    async def enquire(self) -> float:
        """Send enquire_link, and return how many seconds its response took."""
        if self.ended:
            raise ConnectionError("the line to the carrier has ended")
        sequence = self.next_sequence()
        answer = self._enquiries[sequence] = self._loop.create_future()
        asked_at = self._loop.time()
        self.send(write(Command.ENQUIRE_LINK, sequence))
        try:
            async with asyncio.timeout(self.timing.enquire_answer_s):
                await answer
        finally:
            self._enquiries.pop(sequence, None)
        return self._loop.time() - asked_at

    async def close(self, wait_s: float) -> None:
        """Wait for outstanding responses, at most `wait_s`; unbind, wait for its response, close."""
        if self.ended:
            return
        self._closing = True
        try:
            if self._waiting and wait_s > 0:
                self._drained = self._loop.create_future()
                await asyncio.wait({self._drained}, timeout=wait_s)
            if not self.ended:
                self._unbound = self._loop.create_future()
                self.send(write(Command.UNBIND, self.next_sequence()))
                await asyncio.wait({self._unbound}, timeout=self.timing.unbind_s)
        finally:
            self.end("closed by us")

    def abort(self) -> None:
        self.end("dropped by us", at_once=True)

    def take(self, pdus: Sequence[Pdu]) -> None:
        if self._held is not None:
            self._held.extend(pdus)
        elif self._bound:
            self._hold(pdus)
            self._release()
        elif self._binding is not None:
            self._take_binding(self._binding, pdus)

    def _take_binding(self, binding: "asyncio.Future[None]", pdus: Sequence[Pdu]) -> None:
        for index, pdu in enumerate(pdus):
            if pdu.command not in {self._bind_response, _GENERIC_NACK}:
                self.take_common(pdu)
                continue
            if binding.done():
                return
            if pdu.status != CommandStatus.ROK or pdu.command == _GENERIC_NACK:
                binding.set_exception(BindRefusedError(pdu.status, answers.name(pdu.status)))
                return
            self.peer_system_id = read_text(pdu.body)
            self._bound = True
            binding.set_result(None)
            # Receipts may come in the same packet. The caller of `connect` runs next, and then these.
            self._hold(pdus[index + 1 :])
            self._loop.call_soon(self._release)
            return

    def _hold(self, pdus: Sequence[Pdu]) -> None:
        self._held = deque(pdus)
        self._part = max(_PART_MIN, len(pdus) // _PARTS)

    def _release(self) -> None:
        held = self._held
        if held is None or self.ended:
            return
        pdus = [held.popleft() for _ in range(min(self._part, len(held)))]
        if held:
            self._loop.call_soon(self._release)
        else:
            self._held = None
        if pdus:
            self._is_taking = True
            self._take_bound(pdus)
            self._is_taking = False
            self.part_if_due()

    def end(self, problem: str, *, at_once: bool = False) -> None:
        """End the connection; what has come before counts, unless our user ends it."""
        held, self._held = self._held, None
        if held and self._given and not self.ended and not self._is_taking:
            self._take_bound(held)
        super().end(problem, at_once=at_once)

    def _take_bound(self, pdus: Sequence[Pdu]) -> None:
        waiting = self._waiting
        answered = self._listener.answered
        for pdu in pdus:
            command, status, sequence, body = pdu
            if command == _SUBMIT_SM_RESP:
                tag = waiting.pop(sequence, _MISSING)
                if tag is _MISSING:
                    tag = self._late.pop(sequence, _MISSING)
                if tag is not _MISSING:
                    answered(tag, status, read_text(body))
            elif command in self._readers:
                self._take_delivery(command, sequence, body)
            else:
                self._take_rare(pdu)
            # The listener may have ended the session.
            if self.ended:
                return
        self._listener.settled()
        self._note_drained()

    def _take_delivery(self, command: int, sequence: int, body: bytes) -> None:
        response = command | RESPONSE
        try:
            message = self._readers[command](body)
            receipt = read_receipt(message)
            reply = read_reply(message) if receipt is None else None
        except BrokenError:
            # Delivered again, it would be no better, and ending the session would only repeat it.
            self.send(write(response, sequence, b"\0", CommandStatus.RX_P_APPN))
            return
        if receipt is None and reply is None:
            self.send(write(response, sequence, b"\0"))
        elif self._unacknowledged >= _UNACKNOWLEDGED_MAX:
            self.send(write(response, sequence, b"\0", CommandStatus.RX_T_APPN))
        else:
            self._unacknowledged += 1
            token = write(response, sequence, b"\0")
            if receipt is not None:
                self._listener.received(receipt, token)
            elif reply is not None:
                self._listener.replied(reply, token)

    def _take_rare(self, pdu: Pdu) -> None:
        command, status, sequence, _ = pdu
        if command == _GENERIC_NACK:
            tag = self._waiting.pop(sequence, _MISSING)
            if tag is _MISSING:
                tag = self._late.pop(sequence, _MISSING)
            if tag is not _MISSING:
                # A refusal that calls itself fine is still a refusal.
                self._listener.answered(tag, status or CommandStatus.RUNKNOWNERR, "")
        if command in {_ENQUIRE_LINK_RESP, _GENERIC_NACK} and sequence in self._enquiries:
            _resolve(self._enquiries[sequence])
        elif command == _UNBIND_RESP:
            _resolve(self._unbound)
        else:
            self.take_common(pdu)

    def sweep(self, now: float) -> None:
        """Report submits whose response is overdue, and forget those that are too old for a late one."""
        overdue = False
        for issued in self._overdue.since_last(now, self._issued):
            sequence = issued % SEQUENCE_MAX + 1
            tag = self._waiting.pop(sequence, _MISSING)
            if tag is not _MISSING:
                self._late[sequence] = tag
                self._listener.unanswered(tag)
                overdue = True
        forgotten = self._forgotten.since_last(now, self._issued)
        if self._late:
            for issued in forgotten:
                self._late.pop(issued % SEQUENCE_MAX + 1, None)
        if overdue and not self.ended:
            self._listener.settled()
            self._note_drained()

    def _note_drained(self) -> None:
        if self._drained is not None and not self._waiting:
            _resolve(self._drained)

    def line_ended(self, problem: str) -> None:
        for waiter in (self._drained, self._unbound):
            _resolve(waiter)
        for waiter in (self._binding, *self._enquiries.values()):
            if waiter is not None and not waiter.done():
                waiter.set_exception(ConnectionError(problem))
        self._problem = problem
        unanswered = list(self._waiting.values())
        self._waiting.clear()
        self._late.clear()
        if self._given:
            self._listener.ended(unanswered, problem)


def _resolve(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
