"""One connection to the simulator."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tumira.delivery.smpp.pdu import BindRequest, Command, Pdu, write
from tumira.delivery.smpp.server import ServerPeer
from tumira.simulator.receipt_queue import QueuedReceipt

GOODBYE_S: Final = 1.0

_SUBMIT_SM_RESP: Final = int(Command.SUBMIT_SM_RESP)


class ConnectionOwner(Protocol):
    def connected(self, line: "SmscConnection") -> None: ...

    def binding(self, line: "SmscConnection", bind: BindRequest) -> int | None: ...

    def joined(self, line: "SmscConnection") -> None: ...

    def submitted(self, line: "SmscConnection", sequence: int, body: bytes) -> None: ...

    def acknowledged(self, line: "SmscConnection", sequence: int, status: int) -> None: ...

    def retired(self, line: "SmscConnection") -> None: ...

    def ended(self, line: "SmscConnection") -> None: ...


class SmscConnection(ServerPeer):
    system_id = "simulator"

    def __init__(self, host: ConnectionOwner) -> None:
        super().__init__()
        self.client = ""
        # Set by those who misbehave: what leaves does so octet by octet.
        self.piecemeal = False
        self._mute = False
        self._host = host
        self._octets: deque[int] = deque()
        host.connected(self)

    def answer(self, sequence: int, status: int, body: bytes) -> None:
        self.send(write(_SUBMIT_SM_RESP, sequence, body, status))

    def say_goodbye(self) -> None:
        """Unbind, and close when that is answered or a second has passed."""
        self._host.retired(self)
        self.send(write(Command.UNBIND, self.next_sequence()))
        self._loop.call_later(GOODBYE_S, self.end, "unbound by us")

    def fall_silent(self) -> None:
        """Ignore all input and send nothing from now on, and leave the connection open."""
        self._host.retired(self)
        self._mute = True
        if self._ticking is not None:
            self._ticking.cancel()

    def drop(self) -> None:
        """Cut the connection."""
        self._host.retired(self)
        self.abort()

    def bound(self, bind: BindRequest, command: Command) -> int:
        status = self._host.binding(self, bind)
        if status is None:
            self.fall_silent()
            return 0
        if status == 0:
            self.client = bind.system_id
            if command != Command.BIND_TRANSMITTER:
                # After the answer to the bind, which is yet to be written.
                self._loop.call_soon(self._join)
        return status

    def _join(self) -> None:
        if not self.ended:
            self._host.joined(self)

    def submitted(self, sequence: int, message_body: bytes) -> None:
        self._host.submitted(self, sequence, message_body)

    def acknowledged(self, sequence: int, status: int) -> None:
        self._host.acknowledged(self, sequence, status)

    def take_common(self, pdu: Pdu) -> None:
        """Handle everything that is neither a message nor the response to one."""
        if pdu.command == Command.UNBIND_RESP:
            self.end("unbound by us")
        elif pdu.command == Command.GENERIC_NACK:
            self.acknowledged(pdu.sequence, pdu.status)
        else:
            super().take_common(pdu)

    def line_ended(self, problem: str) -> None:  # noqa: ARG002 - as the base class calls it
        self._host.ended(self)

    def send(self, data: bytes) -> None:
        if not self._mute:
            super().send(data)

    def data_received(self, data: bytes) -> None:
        if not self._mute:
            super().data_received(data)

    def _flush(self) -> None:
        if not self.piecemeal:
            super()._flush()
            return
        trickles = bool(self._octets)
        self._octets.extend(b"".join(self._out))
        self._out.clear()
        if not trickles:
            self._trickle()

    def _trickle(self) -> None:
        if self._octets and self._transport is not None and not self.ended:
            self._transport.write(bytes((self._octets.popleft(),)))
            # In another turn of the event loop, or the kernel would get them together.
            self._loop.call_soon(self._trickle)


class Exchange:
    __slots__ = ("_post", "body", "letters", "line", "sequence", "status")

    def __init__(
        self,
        line: SmscConnection,
        sequence: int,
        post: Callable[[SmscConnection, Sequence[QueuedReceipt]], None],
    ) -> None:
        self.line = line
        self.sequence = sequence
        self.status = 0
        self.body = b"\0"
        self.letters: Sequence[QueuedReceipt] = ()
        self._post = post

    def answer(self) -> None:
        self.line.answer(self.sequence, self.status, self.body)
        self.deliver()

    def deliver(self) -> None:
        if self.letters:
            letters, self.letters = self.letters, ()
            self._post(self.line, letters)
