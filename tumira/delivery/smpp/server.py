"""How does the carrier's end of a line speak, before anybody decides what it says?

A subclass overrides the hooks; it may answer at once, later, twice, wrongly or not at all. Bounds are those
of `peer`; how many messages it delivers ahead of their acknowledgements is for the subclass to limit.
"""

from collections.abc import Sequence
from typing import ClassVar, Final

from tumira.delivery.smpp.connection import Peer
from tumira.delivery.smpp.pdu import (
    RESPONSE,
    BindRequest,
    BrokenError,
    Command,
    CommandStatus,
    Pdu,
    read_bind,
    write,
)

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
    """The carrier's end of one line; `bound_as` is the bind's command, None before it."""

    system_id: ClassVar[str] = "tumira"

    bound_as: Command | None = None
    _may_submit = False

    # Hooks.

    def bound(self, bind: BindRequest, command: Command) -> int:
        """Say with a status whether somebody is let in."""
        del bind, command
        return CommandStatus.ROK

    def submitted(self, sequence: int, message_body: bytes) -> None:
        """Take a submit_sm, whose answer is `respond`, now or later."""

    def acknowledged(self, sequence: int, status: int) -> None:
        """Note the answer to what `deliver` sent under this sequence number."""

    def settled(self) -> None:
        """Do what is due after a lot of PDUs that came together."""

    def unbound(self) -> None:
        """Note that the other end says goodbye; it is answered, and the line ends."""

    def line_ended(self, problem: str) -> None:
        """Note that the line is gone; called once, and last."""

    # What hooks use.

    def respond(self, sequence: int, carrier_ref: str = "", status: int = 0) -> None:
        """Answer a submit_sm; an error has no body, as the standard allows."""
        body = b"" if status else carrier_ref.encode("latin-1") + b"\0"
        self.send(write(_SUBMIT_SM_RESP, sequence, body, status))

    def deliver(self, body: bytes, command: int = _DELIVER_SM) -> int:
        """Send a deliver_sm, or a data_sm, and return its sequence number."""
        sequence = self.next_sequence()
        self.send(write(command, sequence, body))
        return sequence

    def write_raw(self, data: bytes) -> None:
        """Send any octets, in order with all else."""
        self.send(data)

    def close(self, problem: str = "closed by us") -> None:
        """Let what was written leave, and end the line."""
        self.end(problem)

    def abort(self) -> None:
        """Drop the line as it is."""
        self.end("dropped by us", at_once=True)

    def take(self, pdus: Sequence[Pdu]) -> None:
        """Handle what came together from the other end."""
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

    def sweep(self, now: float) -> None:
        """Do nothing: this end waits for no answer."""

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
