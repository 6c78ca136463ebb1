"""The server end of an SMPP connection.

A subclass overrides the hooks; it may answer at once, later, twice, wrongly or not at all. It also limits how
many messages it delivers ahead of their acknowledgements.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.connection import Peer
from tumira.delivery.smpp.pdu import RESPONSE, BindRequest, BrokenError, Command, Pdu, read_bind, write

_SUBMIT_SM: Final = int(Command.SUBMIT_SM)
_SUBMIT_SM_RESP: Final = int(Command.SUBMIT_SM_RESP)
_DELIVER_SM: Final = int(Command.DELIVER_SM)
_UNBIND: Final = int(Command.UNBIND)
_ACKNOWLEDGEMENTS: Final = frozenset({int(Command.DELIVER_SM_RESP), int(Command.DATA_SM_RESP)})
_BINDS: Final = frozenset(
    {
        int(Command.BIND_RECEIVER),
        int(Command.BIND_TRANSMITTER),
        int(Command.BIND_TRANSCEIVER),
    }
)


class ServerPeer(Peer):
    system_id: ClassVar[str] = "tumira"

    bound_as: Command | None = None
    _may_submit = False

    # Hooks.

    def bound(self, bind: BindRequest, command: Command) -> int:
        del bind, command
        return CommandStatus.ROK

    def submitted(self, sequence: int, message_body: bytes) -> None:
        """Take a submit_sm; answer it with `respond`, now or later."""

    def acknowledged(self, sequence: int, status: int) -> None:
        """Note the response to what `deliver` sent under this sequence number."""

    def settled(self) -> None:
        """Continue after a group of PDUs."""

    def unbound(self) -> None:
        """Note that the other end sent unbind; it is answered, and the connection ends."""

    def line_ended(self, problem: str) -> None: ...

    # What hooks use.

    def respond(self, sequence: int, carrier_ref: str = "", status: int = 0) -> None:
        body = b"" if status else carrier_ref.encode("latin-1") + b"\0"
        self.send(write(_SUBMIT_SM_RESP, sequence, body, status))

    def deliver(self, body: bytes, command: int = _DELIVER_SM) -> int:
        sequence = self.next_sequence()
        self.send(write(command, sequence, body))
        return sequence

    def abort(self) -> None:
        self.end("dropped by us", at_once=True)

    def take(self, pdus: Sequence[Pdu]) -> None:
        for pdu in pdus:
            command, status, sequence, body = pdu
            if command == _SUBMIT_SM:
                if self._may_submit:
                    self.submitted(sequence, body)
                else:
                    self.respond(sequence, status=CommandStatus.RINVBNDSTS)
            elif command in _ACKNOWLEDGEMENTS:
                self.acknowledged(sequence, status)
            elif command in _BINDS:
                self._take_bind(Command(command), sequence, body)
            else:
                if command == _UNBIND:
                    self.unbound()
                self.take_common(pdu)
            if self.ended:
                return
        self.settled()

    def sweep(self, now: float) -> None: ...

    def _take_bind(self, command: Command, sequence: int, body: bytes) -> None:
        response = command | RESPONSE
        if self.bound_as is not None:
            self.send(write(response, sequence, status=CommandStatus.RALYBND))
            return
        try:
            status = self.bound(read_bind(body), command)
        except BrokenError:
            status = CommandStatus.RINVCMDLEN
        if status:
            self.send(write(response, sequence, status=status))
            self.end("the bind was refused")
            return
        self.bound_as = command
        self._may_submit = command != Command.BIND_RECEIVER
        self.send(write(response, sequence, self.system_id.encode("latin-1") + b"\0"))
