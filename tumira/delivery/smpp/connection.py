"""The common part of both ends of an SMPP connection.

It splits the stream into PDUs, writes what one turn of the event loop produced at once, sends and answers
enquire_link, and ends the connection once.

Bounds: an incomplete PDU is at most 64 kB (`pdu.Splitter`); what the other end does not read is at most
16 MB, then the connection ends.
"""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.pdu import RESPONSE, SEQUENCE_MAX, BrokenError, Command, Pdu, Splitter, write

_UNREAD_OCTETS_MAX: Final = 16 * 1024 * 1024

# Plain numbers: comparing with a member of an enum costs several times as much.
_UNBIND: Final = int(Command.UNBIND)
_ENQUIRE_LINK: Final = int(Command.ENQUIRE_LINK)

# The longest tick, and how many ticks may be missed before this process counts as having slept.
_TICK_MAX_S: Final = 1.0
_TICKS_IN_A_WAIT: Final = 5
_TICKS_MISSED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class SmppTimeouts:
    # To connect, and to be answered the bind.
    bind_s: float = 10
    # For the answer to a submit; then it is in doubt.
    response_s: float = 30
    # Without any answer while submits wait for one; then nothing more is submitted until one comes.
    quiet_s: float = 10
    # Without a PDU from the other end, before it is asked whether it is there; and for its answer.
    enquire_after_s: float = 15
    enquire_answer_s: float = 10
    # How long an answer that comes too late is still known.
    late_s: float = 600
    # For the answer to an unbind, and for the last octets to leave.
    unbind_s: float = 2


DEFAULT_TIMEOUTS: Final = SmppTimeouts()


class Peer(asyncio.Protocol, ABC):
    def __init__(self, timing: SmppTimeouts = DEFAULT_TIMEOUTS) -> None:
        self.timing = timing
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._splitter = Splitter()
        self._out: list[bytes] = []
        self._flush_due = False
        self._issued = 0
        self._heard_at = self._loop.time()
        self._asked_at: float | None = None
        self._parting: str | None = None
        shortest_s = min(timing.response_s, timing.enquire_after_s, timing.enquire_answer_s)
        self._tick_s = min(_TICK_MAX_S, shortest_s / _TICKS_IN_A_WAIT)
        self._ticked_at = self._heard_at
        self._ticking: asyncio.TimerHandle | None = None

    # What a subclass says.

    @abstractmethod
    def take(self, pdus: Sequence[Pdu]) -> None:
        """Handle PDUs that came together; those that both ends treat alike go to `take_common`."""

    @abstractmethod
    def line_ended(self, problem: str) -> None: ...

    @abstractmethod
    def sweep(self, now: float) -> None:
        """Look for timeouts; called with every tick."""

    # What a subclass uses.

    def next_sequence(self) -> int:
        issued = self._issued
        self._issued = issued + 1
        return issued % SEQUENCE_MAX + 1

    def send(self, data: bytes) -> None:
        """Write at the end of this turn of the event loop, with everything else written in it."""
        self._out.append(data)
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._finish_turn)

    def send_all(self, pieces: Iterable[bytes]) -> None:
        self._out.extend(pieces)
        self.send(b"")

    def end(self, problem: str, *, at_once: bool = False) -> None:
        """End the connection; pending output still leaves, unless `at_once`."""
        if self.ended:
            return
        if not at_once:
            self._flush()
        self.ended = True
        if self._ticking is not None:
            self._ticking.cancel()
        transport = self._transport
        if transport is not None and at_once:
            transport.abort()
        elif transport is not None:
            transport.close()
            # An other end that does not read would keep the connection open for ever.
            self._loop.call_later(self.timing.unbind_s, transport.abort)
        self.line_ended(problem)

    def part_if_due(self) -> None:
        """End the connection if the other end has sent unbind."""
        if self._parting is not None:
            self.end(self._parting)

    def take_common(self, pdu: Pdu) -> None:
        """Answer what both ends answer alike, and refuse unknown commands."""
        command, _, sequence, _ = pdu
        if command == _ENQUIRE_LINK:
            self.send(write(_ENQUIRE_LINK | RESPONSE, sequence))
        elif command == _UNBIND:
            self.send(write(_UNBIND | RESPONSE, sequence))
            # Responses that came together with the unbind still count; the connection ends after them.
            self._parting = "the other end said goodbye (unbind)"
        elif not command & RESPONSE:
            self.send(write(Command.GENERIC_NACK, sequence, status=CommandStatus.RINVCMDID))

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in {socket.AF_INET, socket.AF_INET6}:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._heard_at = self._ticked_at = self._loop.time()
        self._ticking = self._loop.call_later(self._tick_s, self._tick)

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return
        try:
            pdus = self._splitter.feed(data)
        except BrokenError as error:
            self.end(str(error), at_once=True)
            return
        if pdus:
            # Only whole PDUs are a sign of life: octets that never become one are not.
            self._heard_at = self._loop.time()
            self.take(pdus)
        if self._splitter.broken is not None:
            self.end(str(self._splitter.broken), at_once=True)
        self.part_if_due()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(
            f"the connection broke: {exc}" if exc else "the other end closed the connection", at_once=True
        )

    def _finish_turn(self) -> None:
        self._flush_due = False
        if self.ended or self._transport is None:
            return
        self._flush()
        if self._transport.get_write_buffer_size() > _UNREAD_OCTETS_MAX:
            self.end("the other end does not read what it is sent", at_once=True)

    def _flush(self) -> None:
        if self._transport is not None and self._out:
            data = b"".join(self._out)
            self._out.clear()
            self._transport.write(data)

    def _tick(self) -> None:
        if self.ended:
            return
        now = self._loop.time()
        missed = now - self._ticked_at > _TICKS_MISSED_MAX * self._tick_s
        self._ticked_at = now
        self._ticking = self._loop.call_later(self._tick_s, self._tick)
        # After a sleep of this process, pending input is read before any timeout is declared.
        if not missed:
            self._ask_whether_there(now)
        if not missed and not self.ended:
            self.sweep(now)

    def _ask_whether_there(self, now: float) -> None:
        if now - self._heard_at < self.timing.enquire_after_s:
            self._asked_at = None
        elif self._asked_at is None:
            self._asked_at = now
            self.send(write(_ENQUIRE_LINK, self.next_sequence()))
        elif now - self._asked_at >= self.timing.enquire_answer_s:
            self.end(f"silent: enquire_link not answered in {self.timing.enquire_answer_s:g} s", at_once=True)
