"""A carrier over SMPP that does what its mood and the seed say; it shares no code with ours.

It takes, refuses and throttles, answers late or never, breaks connections, reports before the answer, twice,
with two endings and about messages that are not ours. A receipt that is not acknowledged comes again.
"""

import asyncio
import struct
from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Final, cast

from tests.proof.simulation.loop import VirtualLoop
from tests.proof.simulation.network import Address, End, SimulatedNetwork
from tests.support.delivery.smpp_peer import pdu

_RESPONSE: Final = 0x8000_0000
_DELIVER_SM: Final = 5
_SUBMIT_SM: Final = 4
_UNBIND: Final = 6
_ENQUIRE_LINK: Final = 0x15
_BINDS: Final = frozenset({1, 2, 9})
_TRANSMITTER: Final = 2

THROTTLED: Final = (0x58, 0x14)
TEMPORARY: Final = (0x08, 0x64, 0x45)
PERMANENT: Final = (0x0B, 0x45 | 0x20, 0x01)
REPEAT_RECEIPT_S: Final = 6.0


@dataclass(slots=True)
class Mood:
    """How likely each misbehaviour is."""

    answer_s: tuple[float, float] = (0.005, 0.2)
    throttles: float = 0.0
    fails: float = 0.0
    refuses: float = 0.0
    # It takes the message and does not say so; or too late; or breaks the connection instead.
    silent: float = 0.0
    late: float = 0.0
    breaks: float = 0.0
    # It loses the message and does not say so.
    loses: float = 0.0
    answers_twice: float = 0.0
    reports_first: float = 0.0
    reports_twice: float = 0.0
    contradicts: float = 0.0
    reports_strangers: float = 0.0
    undelivered: float = 0.15
    never_reports: float = 0.0
    refuses_binds: float = 0.0
    report_s: tuple[float, float] = (0.05, 3.0)


@dataclass(slots=True)
class Submit:
    """A segment that reached the carrier, and what it did with it."""

    at: float
    written_at: float
    carrier: str
    session: int
    to: str
    part: int
    parts: int
    # Whether the message will be delivered or reported: the carrier has it.
    is_taken: bool = False
    # The status of the answer, if there was one, and when it was given.
    status: int | None = None
    answered_at: float | None = None
    # Answered so that the engine cannot have known.
    is_doubtful: bool = False
    reference: str = ""
    # What the receipt says; None while there is none and none will come.
    state: str | None = None


@dataclass(slots=True)
class Receipt:
    """A receipt; `submit` is the segment that it is about, None for a message of others."""

    to: str
    state: str
    text: str
    submit: "Submit | None"
    is_done: bool = False
    tries: int = 0


@dataclass(slots=True)
class Carrier:
    name: str
    address: Address
    network: SimulatedNetwork
    chance: Random
    window: int
    tps: int
    mood: Mood = field(default_factory=Mood)
    submits: list[Submit] = field(default_factory=list)
    sessions: list["_Session"] = field(default_factory=list)
    receipts: list["Receipt"] = field(default_factory=list)
    waiting: deque["Receipt"] = field(default_factory=deque)
    problems: list[str] = field(default_factory=list)
    count: int = 0
    # How long answers may take before the engine gives them up.
    response_s: float = 0.0

    @property
    def loop(self) -> VirtualLoop:
        return self.network.loop

    def open(self) -> None:
        self.network.listen(self.address, lambda: _Session(self))

    def close(self) -> None:
        """Go away: nobody can connect, and all sessions end."""
        self.network.stop_listening(self.address)
        for session in tuple(self.sessions):
            session.transport.abort()

    def note(self, what: str) -> None:
        self.loop.trace.note(self.loop.now_s, f"{self.name} {what}")

    def happens(self, likely: float) -> bool:
        return likely > 0 and self.chance.random() < likely

    def between(self, bounds: tuple[float, float]) -> float:
        return self.chance.uniform(*bounds)

    def plan_receipt(self, submit: Submit, delay_s: float) -> None:
        mood = self.mood
        if self.happens(mood.never_reports):
            return
        ends = ("UNDELIV", "EXPIRED", "REJECTD")
        submit.state = self.chance.choice(ends) if self.happens(mood.undelivered) else "DELIVRD"
        self._report_later(delay_s, submit, submit.state)
        if self.happens(mood.reports_twice):
            self._report_later(delay_s + self.between((0.0, 4.0)), submit, submit.state)
        if self.happens(mood.contradicts):
            other = "UNDELIV" if submit.state == "DELIVRD" else "DELIVRD"
            self._report_later(delay_s + self.between((0.5, 5.0)), submit, other)
        if self.happens(mood.reports_strangers):
            stranger = f"{self.chance.randrange(10**9):09}"
            self._report(delay_s, "+27821230999", stranger, self.chance.choice(ends), None)

    def _report_later(self, delay_s: float, submit: Submit, state: str) -> None:
        self._report(delay_s, submit.to, submit.reference, state, submit)

    def _report(self, delay_s: float, to: str, reference: str, state: str, submit: "Submit | None") -> None:
        receipt = Receipt(to, state, _receipt_text(reference, state), submit)
        self.receipts.append(receipt)
        self.loop.at(delay_s, self._put, receipt)

    def _put(self, receipt: Receipt) -> None:
        self.waiting.append(receipt)
        self.flush()

    def flush(self) -> None:
        """Send the receipts that wait on a connection that takes them."""
        able = [session for session in self.sessions if session.receives]
        while self.waiting and able:
            self.chance.choice(able).deliver(self.waiting.popleft())


class _Session(asyncio.Protocol):
    """The carrier's end of a connection."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._data = bytearray()
        self._bound = 0
        self._number = 0
        self._sequence = 0
        self._unacknowledged: dict[int, Receipt] = {}
        self._unanswered: list[Submit] = []
        self.transport: End

    @property
    def receives(self) -> bool:
        return self._bound not in {0, _TRANSMITTER} and not self.transport.is_closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("End", transport)
        self._carrier.count += 1
        self._number = self._carrier.count
        self._carrier.sessions.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._bound = 0
        if self in self._carrier.sessions:
            self._carrier.sessions.remove(self)
        for receipt in self._unacknowledged.values():
            self._again(receipt)
        self._unacknowledged.clear()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 16:
            length, command, status, sequence = struct.unpack_from(">IIII", self._data)
            if len(self._data) < length:
                return
            body = bytes(self._data[16:length])
            del self._data[:length]
            self._take(command, status, sequence, body)

    def _take(self, command: int, status: int, sequence: int, body: bytes) -> None:
        if command in _BINDS:
            self._bind(command, sequence)
        elif command == _SUBMIT_SM:
            self._submit(sequence, body)
        elif command == _DELIVER_SM | _RESPONSE:
            receipt = self._unacknowledged.pop(sequence, None)
            if receipt is not None and status == 0:
                receipt.is_done = True
            elif receipt is not None:
                self._again(receipt)
        elif command in {_ENQUIRE_LINK, _UNBIND}:
            self._send(pdu(command | _RESPONSE, sequence))

    def _send(self, data: bytes) -> None:
        if not self.transport.is_closed:
            self.transport.write(data)

    def _bind(self, command: int, sequence: int) -> None:
        carrier = self._carrier
        if carrier.happens(carrier.mood.refuses_binds):
            carrier.note("refuses the bind")
            self._send(pdu(command | _RESPONSE, sequence, b"", status=0x0D))
            return
        carrier.note(f"session {self._number} bound")
        self._bound = command
        self._send(pdu(command | _RESPONSE, sequence, b"smsc\0"))
        carrier.loop.at(0.01, carrier.flush)

    def _submit(self, sequence: int, body: bytes) -> None:
        carrier, mood, loop = self._carrier, self._carrier.mood, self._carrier.loop
        to, part, parts = _read_submit(body)
        submit = Submit(loop.now_s, self.transport.written_at, carrier.name, self._number, to, part, parts)
        carrier.submits.append(submit)
        self._check_window(submit)
        submit.reference = f"{len(carrier.submits):06}{carrier.chance.randrange(1000):03}"
        delay_s = carrier.between(mood.answer_s)
        status = 0
        if carrier.happens(mood.throttles):
            status = carrier.chance.choice(THROTTLED)
        elif carrier.happens(mood.fails):
            status = carrier.chance.choice(TEMPORARY)
        elif carrier.happens(mood.refuses):
            status = carrier.chance.choice(PERMANENT)
        carrier.note(f"session {self._number} submit {to} {part}/{parts} status {status:#x}")
        if status == 0:
            submit.is_taken = not carrier.happens(mood.loses)
            if submit.is_taken:
                first = carrier.happens(mood.reports_first)
                carrier.plan_receipt(submit, 0.0 if first else delay_s + carrier.between(mood.report_s))
            if not submit.is_taken or carrier.happens(mood.silent):
                submit.is_doubtful = True
                return
            if carrier.happens(mood.breaks):
                submit.is_doubtful = True
                loop.at(0.02, self.transport.abort)
                return
            if carrier.happens(mood.late):
                delay_s = carrier.response_s * carrier.between((0.9, 3.0))
        answer = pdu(_SUBMIT_SM | _RESPONSE, sequence, submit.reference.encode() + b"\0", status=status)
        if status:
            answer = pdu(_SUBMIT_SM | _RESPONSE, sequence, b"", status=status)
        loop.at(delay_s, self._answer, submit, answer, status)
        if carrier.happens(mood.answers_twice):
            loop.at(delay_s + 0.05, self._send, answer)

    def _answer(self, submit: Submit, answer: bytes, status: int) -> None:
        if submit in self._unanswered:
            self._unanswered.remove(submit)
        if not self.transport.is_closed:
            submit.status, submit.answered_at = status, self._carrier.loop.now_s
            self.transport.write(answer)

    def _check_window(self, submit: Submit) -> None:
        """Count the submits that wait for an answer; those given up long ago do not count."""
        self._unanswered.append(submit)
        oldest = submit.at - self._carrier.response_s
        self._unanswered = [one for one in self._unanswered if one.at > oldest]
        if len(self._unanswered) > self._carrier.window:
            self._carrier.problems.append(
                f"{self._carrier.name} has {len(self._unanswered)} submits to answer on one session, "
                f"and allows {self._carrier.window}"
            )

    def deliver(self, receipt: Receipt) -> None:
        carrier = self._carrier
        self._sequence += 1
        self._unacknowledged[self._sequence] = receipt
        receipt.tries += 1
        carrier.note(f"session {self._number} receipt {receipt.to} {receipt.text[:14]} try {receipt.tries}")
        text = receipt.text.encode()
        addresses = b"\0\x01\x01" + receipt.to.lstrip("+").encode() + b"\0\x05\x00Tumira\0"
        body = b"".join((addresses, bytes((4, 0, 0, 0, 0, 0, 0, 0, 0, len(text))), text))
        self._send(pdu(_DELIVER_SM, self._sequence, body))
        carrier.loop.at(REPEAT_RECEIPT_S, self._look_after, self._sequence)

    def _look_after(self, sequence: int) -> None:
        receipt = self._unacknowledged.pop(sequence, None)
        if receipt is not None:
            self._again(receipt)

    def _again(self, receipt: Receipt) -> None:
        self._carrier.loop.at(0.5, self._carrier._put, receipt)


def _receipt_text(reference: str, state: str) -> str:
    delivered = "001" if state == "DELIVRD" else "000"
    return (
        f"id:{reference} sub:001 dlvrd:{delivered} submit date:2601071000 done date:2601071001 "
        f"stat:{state} err:000 text:"
    )


def _read_submit(body: bytes) -> tuple[str, int, int]:
    """Return the number, and which part of how many this is."""
    place = body.index(b"\0") + 3
    place = body.index(b"\0", place) + 3
    end = body.index(b"\0", place)
    to = "+" + body[place:end].decode()
    esm_class = body[end + 1]
    place = end + 4
    place = body.index(b"\0", place) + 1
    place = body.index(b"\0", place) + 1
    text = body[place + 5 : place + 5 + body[place + 4]]
    if not esm_class & 0x40:
        return to, 1, 1
    # The header of a joined text, with a reference of one or two octets.
    return to, text[text[0]], text[text[0] - 1]
