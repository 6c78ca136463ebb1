"""A carrier for the benchmark that answers after a set time and counts submits beyond its window.

It behaves as carriers do that are written for benchmarks in C: an answer leaves when it is due, receipts
follow it at once or later, at most 200 of them without their acknowledgement, and each packet that comes is
acknowledged at once.
"""

import asyncio
import selectors
import socket
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from msgspec import Struct

from tumira.delivery.smpp.pdu import BindRequest, Command, ShortMessage, read_short_message
from tumira.delivery.smpp.server import ServerPeer
from tumira.simulator.receipts import write_usual_body

PASSCODE: Final = "Passcode "
RECEIPTS_MAX: Final = 200
_PASSCODE: Final = PASSCODE.encode("ascii")
_RECEIPT_ASKED: Final = 0x03


class Manners(Struct, frozen=True):
    """How long an answer and the receipt after it take, and how many answers may be due (0: any)."""

    answer_ms: float = 0.0
    receipt_ms: float = 0.0
    window: int = 0


class _Submit(Struct, frozen=True, gc=False):
    line: "_Line"
    sequence: int
    came_at: float
    carrier_ref: str
    message: ShortMessage


class _Schedule:
    """Hands out submits when they are due, in order; a refused submit waits for the next `hand_out`."""

    def __init__(self, take: Callable[[_Submit, float], bool]) -> None:
        self._take = take
        self._waiting: deque[tuple[float, _Submit]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, due: float, submit: _Submit) -> None:
        self._waiting.append((due, submit))

    def hand_out(self) -> None:
        if self._timer is None:
            self._hand_out()

    def _hand_out(self) -> None:
        self._timer = None
        now = time.time()
        while self._waiting:
            due, submit = self._waiting[0]
            if due > now:
                self._timer = asyncio.get_running_loop().call_later(due - now, self._hand_out)
                return
            if not self._take(submit, now):
                return
            self._waiting.popleft()


class TimedCarrier:
    def __init__(self) -> None:
        self.port = 0
        self.binds = 0
        self._last_id = time.time_ns() // 1000
        self._answers = _Schedule(self._answer)
        self._receipts = _Schedule(self._send_receipt)
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
            "binds": self.binds,
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

    def submitted(self, line: "_Line", sequence: int, message: ShortMessage) -> None:
        manners, now = self.manners, line.heard_at
        self._times.append(now)
        line.outstanding += 1
        self._outstanding_max = max(self._outstanding_max, line.outstanding)
        if manners.window and line.outstanding > manners.window:
            self._exceeding += 1
        if message.text.startswith(_PASSCODE):
            self.passcodes[message.text.decode("ascii")] = now
        self._last_id += 1
        submit = _Submit(line, sequence, now, str(self._last_id), message)
        self._answers.add(now + manners.answer_ms / 1000, submit)

    def settled(self) -> None:
        """Answer what came together only now, so that all of it counts as unanswered."""
        self._answers.hand_out()

    def acknowledged(self) -> None:
        self._receipts_acknowledged += 1
        self._receipts.hand_out()

    def _answer(self, submit: _Submit, now: float) -> bool:
        line = submit.line
        line.outstanding -= 1
        if not line.ended:
            line.respond(submit.sequence, submit.carrier_ref)
            self._answered += 1
            self._answered_after_s += now - submit.came_at
            if submit.message.registered_delivery & _RECEIPT_ASKED:
                self._receipts.add(now + self.manners.receipt_ms / 1000, submit)
                self._receipts.hand_out()
        return True

    def _send_receipt(self, submit: _Submit, now: float) -> bool:
        line = submit.line
        if line.ended:
            return True
        if line.unacknowledged >= RECEIPTS_MAX:
            return False
        line.unacknowledged += 1
        self._receipts_sent += 1
        line.deliver(
            write_usual_body(submit.carrier_ref, submit.message, "DELIVRD", "000", submit.came_at, now)
        )
        return True


class _Line(ServerPeer):
    system_id = "bench"

    def __init__(self, carrier: TimedCarrier) -> None:
        super().__init__()
        self.heard_at = 0.0
        self.outstanding = 0
        self.unacknowledged = 0
        self._carrier = carrier

    def data_received(self, data: bytes) -> None:
        self.heard_at = time.time()
        super().data_received(data)
        if self._transport is not None and not self.ended:
            # A gateway that lets the kernel collect small packets would otherwise wait 40 ms each time.
            connection = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def bound(self, bind: BindRequest, command: Command) -> int:
        self._carrier.binds += 1
        return super().bound(bind, command)

    def submitted(self, sequence: int, message_body: bytes) -> None:
        self._carrier.submitted(self, sequence, read_short_message(message_body))

    def acknowledged(self, sequence: int, status: int) -> None:
        del sequence, status
        self.unacknowledged -= 1
        self._carrier.acknowledged()

    def settled(self) -> None:
        self._carrier.settled()


def precise_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that wakes within a tenth of a millisecond; epoll and uvloop count whole ones."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


@asynccontextmanager
async def run_carrier() -> AsyncIterator[TimedCarrier]:
    """Run a carrier on a free port of this machine."""
    carrier = TimedCarrier()
    server = await asyncio.get_running_loop().create_server(lambda: _Line(carrier), "127.0.0.1", 0)
    carrier.port = server.sockets[0].getsockname()[1]
    async with server:
        yield carrier
