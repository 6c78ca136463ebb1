"""Misbehaviours of a carrier: small classes with a name, which can be combined."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from tumira.core.errors import OperatorError
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.pdu import BindRequest, Command
from tumira.simulator.connection import Exchange, SmscConnection
from tumira.simulator.receipts import DATA_CODING_UCS2, DATE_WITH_SECONDS, ESM_INTERMEDIATE, SimulatedReceipt

VALUE_MAX: Final = 1_000_000
# A judge's word for a submit that is neither taken nor answered.
DROPPED: Final = -1

Answer = Callable[[], None]


class Ids(Struct, frozen=True):
    answered: str
    receipted: str


class Misbehaviour:
    """A carrier that behaves. Each subclass changes one thing, by how much its `value` says."""

    # What the value counts, for those who have one.
    unit: ClassVar[str] = ""
    default: ClassVar[int] = 0
    # The answer to binds (None for none), the answer to every n-th submit, and a changed field of receipts.
    bind_answer: ClassVar[int | None] = CommandStatus.ROK
    refusal: ClassVar[int] = CommandStatus.ROK
    receipt_change: ClassVar[tuple[str, Any] | None] = None
    # The formats of ids in answers and in receipts.
    id_formats: ClassVar[tuple[str, str] | None] = None
    # What becomes of the connection at every n-th submit, and what is sent after every n-th answer.
    line_end: ClassVar["staticmethod[[SmscConnection], None] | None"] = None
    junk: ClassVar[bytes] = b""

    def __init__(self, value: int | None = None) -> None:
        self.value = self.default if value is None else value
        self._count = 0

    def connected(self, line: SmscConnection) -> None: ...

    def binding(self, line: SmscConnection, bind: BindRequest) -> int | None:  # noqa: ARG002 - for those who misbehave
        return self.bind_answer

    def judge(self, line: SmscConnection) -> int:  # noqa: ARG002 - as above
        return self.refusal if self.refusal and self.is_turn() else CommandStatus.ROK

    def identify(self, number: int, ids: Ids) -> Ids:
        if self.id_formats is None:
            return ids
        answered, receipted = self.id_formats
        return Ids(format(number, answered), format(number, receipted))

    def shape(self, receipts: Sequence[SimulatedReceipt]) -> Sequence[SimulatedReceipt]:
        if self.receipt_change is None:
            return receipts
        name, value = self.receipt_change
        return [replace(receipt, **{name: value}) for receipt in receipts]

    def around(self, exchange: Exchange, answer: Answer) -> Answer:
        """Return what is done instead of responding."""
        end = self.line_end
        if (end is None and not self.junk) or not self.is_turn():
            return answer

        def end_and_keep() -> None:
            if end is None:
                answer()
                exchange.line.send(self.junk)
            else:
                end(exchange.line)
                exchange.deliver()

        return end_and_keep

    def is_turn(self) -> bool:
        self._count += 1
        return self._count % self.value == 0


class ResponseDelay(Misbehaviour):
    """Every answer to a submit comes so much later."""

    unit = "milliseconds"
    default = 200

    def around(self, exchange: Exchange, answer: Answer) -> Answer:  # noqa: ARG002 - all are late
        return lambda: _later(self.value, answer)


class ResponseLoss(Misbehaviour):
    """Every n-th submit is taken and its receipt sent, but its answer is lost."""

    unit = "every n-th"
    default = 10

    def around(self, exchange: Exchange, answer: Answer) -> Answer:
        return exchange.deliver if self.is_turn() else answer


class NoAnswers(Misbehaviour):
    """Every n-th submit is neither taken nor answered; the line stays, and enquire_link is answered."""

    unit = "every n-th"
    default = 1
    refusal = DROPPED


class ThrottleEvery(Misbehaviour):
    """Every n-th submit is refused with RTHROTTLED."""

    unit = "every n-th"
    default = 10
    refusal = CommandStatus.RTHROTTLED


class RateLimit(Misbehaviour):
    """Submits above n in a second are refused with RTHROTTLED."""

    unit = "a second"
    default = 100

    def __init__(self, value: int | None = None) -> None:
        super().__init__(value)
        self._second_began = float("-inf")

    def judge(self, line: SmscConnection) -> int:  # noqa: ARG002 - all together
        now = asyncio.get_running_loop().time()
        if now - self._second_began >= 1:
            self._second_began = now
            self._count = 0
        self._count += 1
        return CommandStatus.RTHROTTLED if self._count > self.value else CommandStatus.ROK


class QueueFullBursts(Misbehaviour):
    """After every four times n submits the next n are refused with RMSGQFUL."""

    unit = "in a row"
    default = 20

    def judge(self, line: SmscConnection) -> int:  # noqa: ARG002 - whoever sent it
        place = self._count % (5 * self.value)
        self._count += 1
        return CommandStatus.RMSGQFUL if place >= 4 * self.value else CommandStatus.ROK


class SystemErrorEvery(Misbehaviour):
    """Every n-th submit is refused with RSYSERR."""

    unit = "every n-th"
    default = 10
    refusal = CommandStatus.RSYSERR


class Silence(Misbehaviour):
    """No submit is taken or answered, while enquire_link is."""

    default = 1
    refusal = DROPPED


class ReceiptBeforeResponse(Misbehaviour):
    """The receipt comes first, and the answer so much later."""

    unit = "milliseconds"
    default = 50

    def around(self, exchange: Exchange, answer: Answer) -> Answer:
        def deliver_first() -> None:
            exchange.deliver()
            _later(self.value, answer)

        return deliver_first


class OutOfOrderResponses(Misbehaviour):
    """Answers are held until there are n, and then given last one first."""

    unit = "together"
    default = 5

    def __init__(self, value: int | None = None) -> None:
        super().__init__(value)
        self._held: list[Answer] = []

    def around(self, exchange: Exchange, answer: Answer) -> Answer:  # noqa: ARG002 - whatever it is
        return lambda: self._hold(answer)

    def _hold(self, answer: Answer) -> None:
        self._held.append(answer)
        if len(self._held) >= self.value:
            self._release()
        elif len(self._held) == 1:
            _later(100, self._release)

    def _release(self) -> None:
        held, self._held = self._held, []
        for answer in reversed(held):
            answer()


class BodilessErrors(Misbehaviour):
    """An answer that refuses has no body."""

    def around(self, exchange: Exchange, answer: Answer) -> Answer:
        if exchange.status:
            exchange.body = b""
        return answer


class UnbindMidWindow(Misbehaviour):
    """At every n-th submit, instead of its answer, the carrier unbinds; receipts come after the next bind."""

    unit = "every n-th"
    default = 100

    line_end = staticmethod(SmscConnection.say_goodbye)


class LineDrop(Misbehaviour):
    """At every n-th submit, instead of its answer, the line is cut; receipts come after the next bind."""

    unit = "every n-th"
    default = 100

    line_end = staticmethod(SmscConnection.drop)


class SilentDeath(Misbehaviour):
    """At every n-th submit its connection dies: it stays open, and nothing on it is heard or answered."""

    unit = "every n-th"
    default = 100

    line_end = staticmethod(SmscConnection.fall_silent)


class OversizedPdu(Misbehaviour):
    """After every n-th answer comes a PDU that says it has a megabyte."""

    unit = "every n-th"
    default = 100

    junk = (1024 * 1024).to_bytes(4) + bytes(1020)


class Garbage(Misbehaviour):
    """After every n-th answer comes something that is no SMPP at all."""

    unit = "every n-th"
    default = 100

    # What a client finds who speaks SMPP to a port where something else listens.
    junk = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


class OneByteWrites(Misbehaviour):
    """Everything leaves octet by octet."""

    def connected(self, line: SmscConnection) -> None:
        line.piecemeal = True


class RefuseBind(Misbehaviour):
    """The first n binds, or all, are refused with RBINDFAIL and no body."""

    unit = "binds, 0 for all"

    def binding(self, line: SmscConnection, bind: BindRequest) -> int | None:  # noqa: ARG002 - whoever it is
        self._count += 1
        return CommandStatus.RBINDFAIL if self.value == 0 or self._count <= self.value else CommandStatus.ROK


class WrongPassword(Misbehaviour):
    """Every bind is refused with RINVPASWD."""

    bind_answer = CommandStatus.RINVPASWD


class NoBindAnswer(Misbehaviour):
    """No bind is answered."""

    bind_answer = None


class HexIds(Misbehaviour):
    """Ids are hexadecimal, in the answer and in the receipt."""

    id_formats = ("X", "X")


class DecimalReceiptIds(Misbehaviour):
    """Ids are hexadecimal in the answer and decimal in the receipt."""

    id_formats = ("X", "d")


class HexReceiptIds(Misbehaviour):
    """Ids are decimal in the answer and hexadecimal in the receipt."""

    id_formats = ("d", "X")


class PaddedReceiptIds(Misbehaviour):
    """Ids in receipts have zeros in front and small letters."""

    def identify(self, number: int, ids: Ids) -> Ids:  # noqa: ARG002 - as others have written it
        return Ids(ids.answered, ids.receipted.lower().zfill(20))


class DatesWithSeconds(Misbehaviour):
    """Dates in receipts have twelve digits."""

    receipt_change = ("date_format", DATE_WITH_SECONDS)


class WordyErrors(Misbehaviour):
    """The error in a receipt is no number."""

    def shape(self, receipts: Sequence[SimulatedReceipt]) -> Sequence[SimulatedReceipt]:
        return [replace(receipt, error=f"E{receipt.error}A") for receipt in receipts]


class UnmarkedReceipts(Misbehaviour):
    """Receipts have an esm_class of 0, as if a person had written them."""

    receipt_change = ("esm_class", 0)


class DuplicateReceipts(Misbehaviour):
    """Every receipt comes n times."""

    unit = "times"
    default = 2

    def shape(self, receipts: Sequence[SimulatedReceipt]) -> Sequence[SimulatedReceipt]:
        return [receipt for receipt in receipts for _ in range(self.value)]


class EnrouteFirst(Misbehaviour):
    """Before the final receipt comes another: the message is on its way."""

    def shape(self, receipts: Sequence[SimulatedReceipt]) -> Sequence[SimulatedReceipt]:
        return [
            one
            for receipt in receipts
            for one in (replace(receipt, state="ENROUTE", esm_class=ESM_INTERMEDIATE), receipt)
        ]


class NoReceipts(Misbehaviour):
    """No receipt is ever sent."""

    def shape(self, receipts: Sequence[SimulatedReceipt]) -> Sequence[SimulatedReceipt]:  # noqa: ARG002 - none of them
        return []


class Ucs2Receipts(Misbehaviour):
    """The text of a receipt is written in UCS-2."""

    receipt_change = ("data_coding", DATA_CODING_UCS2)


class TlvReceipts(Misbehaviour):
    """Receipts have their facts in optional parameters only, and no text."""

    receipt_change = ("has_text", False)


class TextReceipts(Misbehaviour):
    """Receipts have their facts in the text only, and no optional parameters."""

    receipt_change = ("has_tlvs", False)


class PayloadReceipts(Misbehaviour):
    """The text of a receipt is in message_payload."""

    receipt_change = ("in_payload", True)


class DataSmReceipts(Misbehaviour):
    """Receipts come as data_sm."""

    receipt_change = ("command", Command.DATA_SM)


def _later(milliseconds: int, answer: Answer) -> None:
    asyncio.get_running_loop().call_later(milliseconds / 1000, answer)


def _name(kind: type[Misbehaviour]) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


BY_NAME: Final[Mapping[str, type[Misbehaviour]]] = {
    _name(kind): kind for kind in Misbehaviour.__subclasses__()
}


def parse(words: str) -> Misbehaviour:
    """Read an option of an operator, such as `throttle-every=10`."""
    name, equals, value = words.partition("=")
    kind = BY_NAME.get(name)
    if kind is None:
        raise OperatorError(f"There is no misbehaviour {name!r}; use one of {', '.join(sorted(BY_NAME))}.")
    if not equals:
        return kind()
    least = 0 if kind.default == 0 else 1
    if not kind.unit:
        raise OperatorError(f"The misbehaviour {name} has no value: leave out {equals + value!r}.")
    if not (value.isascii() and value.isdigit() and least <= int(value) <= VALUE_MAX):
        raise OperatorError(
            f"The value of {name} ({kind.unit}) is {value!r}; "
            f"it must be a number from {least} to {VALUE_MAX}."
        )
    return kind(int(value))
