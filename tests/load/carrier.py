"""A carrier for the benchmark that answers after a set time and counts submits beyond its window.

It behaves as carriers do that are written for benchmarks in C: an answer leaves when it is due, receipts
follow it at once or later, at most 200 of them without their acknowledgement, and each packet that comes is
acknowledged at once. It waits with select and without an event loop: that takes a third of the processor
time, which the gateway needs, and wakes within a tenth of a millisecond, where epoll and uvloop count whole
ones.
"""

import gc
import json
import select
import socket
import sys
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from tumira.delivery.smpp.pdu import RESPONSE, Command, Splitter, write

PASSCODE: Final = "Passcode "
RECEIPTS_MAX: Final = 200
READ_MAX: Final = 65_536

_PASSCODE: Final = PASSCODE.encode("ascii")
_SUBMIT_SM: Final = int(Command.SUBMIT_SM)
_DELIVER_SM: Final = int(Command.DELIVER_SM)
_BINDS: Final = frozenset(
    {int(Command.BIND_RECEIVER), int(Command.BIND_TRANSMITTER), int(Command.BIND_TRANSCEIVER)}
)
_RECEIPT_ASKED: Final = 0x03
# A deliver_sm with esm_class 4: the addresses and the text, and as optional parameters the id and the state.
_RECEIPT: Final = b"\0%b\x04\0\0\0\0\0\0\0\0%c%b\0\x1e\0%c%b\0\x04\x27\0\x01\x02"
_TEXT: Final = b"id:%b sub:001 dlvrd:001 submit date:%b done date:%b stat:DELIVRD err:000 text:bench"


class Manners(Struct, frozen=True):
    """How long an answer and the receipt after it take, and how many answers may be due (0: any)."""

    answer_ms: float = 0.0
    receipt_ms: float = 0.0
    window: int = 0


class Line:
    """A connection of a gateway."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.splitter = Splitter()
        self.out: list[bytes] = []
        self.outstanding = 0
        self.unacknowledged = 0
        self.delivered = 0


class Submit(Struct, frozen=True, gc=False):
    line: Line
    sequence: int
    came_at: float
    message_id: bytes
    # Recipient and sender as a receipt names them; empty if none was asked for.
    addresses: bytes


class TimedCarrier:
    def __init__(self) -> None:
        self._binds = 0
        self._last_id = time.time_ns() // 1000
        # Each with the time when it is due, which does not go down.
        self._answers: deque[tuple[float, Submit]] = deque()
        self._receipts: deque[tuple[float, Submit]] = deque()
        self.behave(Manners())

    def behave(self, manners: Manners) -> None:
        """Forget all counts, and behave like this from the next submit_sm on."""
        self.manners = manners
        self.passcodes: dict[str, float] = {}
        self._times = array("d")
        self._outstanding_max = 0
        self._exceeding = 0
        self._answered = 0
        self._answered_after_s = 0.0
        self._receipts_sent = 0
        self._receipts_acknowledged = 0

    def counts(self) -> Mapping[str, Any]:
        times = self._times
        return {
            "count": len(times),
            "first_at": times[0] if times else 0.0,
            "last_at": times[-1] if times else 0.0,
            "binds": self._binds,
            "outstanding_max": self._outstanding_max,
            "exceeding": self._exceeding,
            "answer_ms": self._answered_after_s * 1000 / max(1, self._answered),
            "receipts": self._receipts_sent,
            "acknowledged": self._receipts_acknowledged,
        }

    def pace(self, count: int) -> float:
        """Return the submits a second from the last one of the first window to the last one of `count`.

        The submits of a window may come together. So the time is that between the ends of two windows, and if
        `count` is a multiple of the window, nobody who keeps to it gets above window ÷ answer time.
        """
        first = max(1, self.manners.window)
        return (count - first) / (self._times[count - 1] - self._times[first - 1])

    def received(self, line: Line, data: bytes, now: float) -> None:
        """Note what came; nothing is answered before `hand_out`, so all that came together counts."""
        for command, _, sequence, body in line.splitter.feed(data):
            if command == _SUBMIT_SM:
                self._submitted(line, sequence, body, now)
            elif command == _DELIVER_SM | RESPONSE:
                line.unacknowledged -= 1
                self._receipts_acknowledged += 1
            elif not command & RESPONSE:
                is_bind = command in _BINDS
                self._binds += is_bind
                line.out.append(write(command | RESPONSE, sequence, b"bench\0" if is_bind else b""))

    def note_submit(self, outstanding: int, now: float) -> None:
        """Count a submit, and how many wait for their answers with it."""
        self._times.append(now)
        self._outstanding_max = max(self._outstanding_max, outstanding)
        if 0 < self.manners.window < outstanding:
            self._exceeding += 1

    def write_answer(self, submit: Submit) -> bytes:
        return write(_SUBMIT_SM | RESPONSE, submit.sequence, submit.message_id + b"\0")

    def _submitted(self, line: Line, sequence: int, body: bytes, now: float) -> None:
        line.outstanding += 1
        self.note_submit(line.outstanding, now)
        source = body.index(0) + 1
        destination = body.index(0, source + 2) + 1
        fields = body.index(0, destination + 2) + 1
        validity = body.index(0, fields + 3) + 1
        asked = body.index(0, validity) + 1
        if body.startswith(_PASSCODE, asked + 5):
            self.passcodes[body[asked + 5 :].decode("ascii")] = now
        self._last_id += 1
        addresses = b""
        if body[asked] & _RECEIPT_ASKED:
            addresses = body[destination:fields] + body[source:destination]
        submit = Submit(line, sequence, now, b"%d" % self._last_id, addresses)
        self._answers.append((now + self.manners.answer_ms / 1000, submit))

    def hand_out(self, now: float) -> float | None:
        """Write the answers and receipts that are due; return the seconds until the next ones are, if any."""
        answers, receipts = self._answers, self._receipts
        while answers and answers[0][0] <= now:
            self._answer(answers.popleft()[1], now)
        while receipts and receipts[0][0] <= now:
            # Its connection takes more when it has acknowledged some.
            if receipts[0][1].line.unacknowledged >= RECEIPTS_MAX:
                return answers[0][0] - now if answers else None
            self._send_receipt(receipts.popleft()[1], now)
        due = [queue[0][0] - now for queue in (answers, receipts) if queue]
        return min(due) if due else None

    def ended(self, line: Line) -> None:
        self._answers = deque(each for each in self._answers if each[1].line is not line)
        self._receipts = deque(each for each in self._receipts if each[1].line is not line)

    def _answer(self, submit: Submit, now: float) -> None:
        line = submit.line
        line.outstanding -= 1
        line.out.append(self.write_answer(submit))
        self._answered += 1
        self._answered_after_s += now - submit.came_at
        if submit.addresses:
            self._receipts.append((now + self.manners.receipt_ms / 1000, submit))

    def _send_receipt(self, submit: Submit, now: float) -> None:
        line, message_id = submit.line, submit.message_id
        line.unacknowledged += 1
        line.delivered += 1
        self._receipts_sent += 1
        text = _TEXT % (message_id, _date(int(submit.came_at)), _date(int(now)))
        body = _RECEIPT % (submit.addresses, len(text), text, len(message_id) + 1, message_id)
        line.out.append(write(_DELIVER_SM, line.delivered, body))


@lru_cache(maxsize=16)
def _date(second: int) -> bytes:
    return time.strftime("%y%m%d%H%M", time.gmtime(second)).encode("ascii")


def run_carrier(carrier: TimedCarrier) -> None:
    """Print the port of a new carrier, and work until standard input ends; answer each line of it."""
    gc.disable()
    questions: Mapping[str, Callable[[Any], Any]] = {
        "counts": lambda _: carrier.counts(),
        "passcodes": lambda _: carrier.passcodes,
        "behave": lambda manners: carrier.behave(msgspec.convert(manners, Manners)),
        "pace": carrier.pace,
    }
    lines: dict[int, Line] = {}
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        timeout_s = None
        standard_input, connections = sys.stdin.fileno(), listening.fileno()
        while True:
            ready, _, _ = select.select((standard_input, connections, *lines), (), (), timeout_s)
            for each in ready:
                if each == standard_input:
                    question = sys.stdin.readline()
                    if not question:
                        return
                    word, value = json.loads(question)
                    print(json.dumps(questions[word](value)), flush=True)
                elif each == connections:
                    connection, _ = listening.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    lines[connection.fileno()] = Line(connection)
                elif not _read(carrier, lines[each]):
                    carrier.ended(lines[each])
                    lines.pop(each).connection.close()
            timeout_s = carrier.hand_out(time.time())
            for line in lines.values():
                _flush(line)


def _read(carrier: TimedCarrier, line: Line) -> bool:
    """Read what a connection has; return whether it is still open."""
    try:
        data = line.connection.recv(READ_MAX)
        # A gateway that lets the kernel collect small packets would otherwise wait 40 ms each time.
        line.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    except OSError:
        return False
    if data:
        carrier.received(line, data, time.time())
    return bool(data)


def _flush(line: Line) -> None:
    if line.out:
        data = b"".join(line.out)
        line.out.clear()
        # One that has gone is noticed when it is read.
        with suppress(OSError):
            line.connection.sendall(data)
