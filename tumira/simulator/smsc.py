"""A small real SMSC for a first look, for tests and for the benchmark."""

import asyncio
import socket
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tumira.core.errors import port_error
from tumira.delivery.responses import CommandStatus
from tumira.delivery.smpp.pdu import BindRequest, BrokenError, Command, ShortMessage, read_short_message
from tumira.simulator.connection import Exchange, SmscConnection
from tumira.simulator.handsets import ReceivedText, moment
from tumira.simulator.misbehaviours import DROPPED, Ids, Misbehaviour
from tumira.simulator.numbers import EXPIRED, NumberOutcome, outcome_of
from tumira.simulator.reassembly import Reassembler
from tumira.simulator.receipt_queue import QueuedReceipt, ReceiptQueue
from tumira.simulator.receipts import SimulatedReceipt, write_body, write_usual_body
from tumira.simulator.replies import HANDSET, write_reply
from tumira.simulator.validity import read_validity_s

HOST: Final = "127.0.0.1"
BACKLOG: Final = 128
TEXTS_MAX: Final = 200_000
MAILBOXES_MAX: Final = 1_000
TRIES_MAX: Final = 10_000
DELAYED_MAX: Final = 1_000_000
NUMBER_DIGITS: Final = range(3, 21)

_DELIVER_SM: Final = int(Command.DELIVER_SM)
_ASKED: Final = 0x03
_ASKED_ALWAYS: Final = 1
_ASKED_ON_SUCCESS: Final = 3


class Texts(deque[ReceivedText]):
    def to(self, number: str) -> Sequence[str]:
        return [text.text for text in self if text.to == number]

    @property
    def counts(self) -> "Counter[tuple[str, str]]":
        return Counter((text.to, text.text) for text in self)


@dataclass(slots=True)
class Submits:
    received: int = 0
    taken: int = 0
    refused: int = 0
    throttled: int = 0
    # Neither taken nor answered.
    dropped: int = 0


class _Tries:
    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, bytes], int] = OrderedDict()

    def next(self, message: ShortMessage, needed: int) -> int:
        """Count an attempt; after `needed` plus one, a repeated text begins again."""
        key = (message.destination, message.text)
        tries = self._counts.pop(key, 0) + 1
        if tries <= needed:
            self._counts[key] = tries
            if len(self._counts) > TRIES_MAX:
                self._counts.popitem(last=False)
        return tries


class Smsc:
    def __init__(
        self,
        misbehaviours: Iterable[Misbehaviour] = (),
        *,
        receipt_delay_s: float = 0.0,
        texts_max: int = TEXTS_MAX,
        arrived: Callable[[ReceivedText], None] | None = None,
    ) -> None:
        self.port = 0
        self.texts = Texts(maxlen=texts_max)
        self.submits = Submits()
        self.lines: set[SmscConnection] = set()
        self._arrived = arrived
        self._receipt_delay_s = receipt_delay_s
        self._misbehaviours = list(misbehaviours)
        self._mailboxes: OrderedDict[str, ReceiptQueue] = OrderedDict()
        self._joiner = Reassembler()
        self._tries = _Tries()
        # No id comes twice, not even after a restart: they go on from the time of the start.
        self._last_id = time.time_ns() // 1000
        self._delayed: deque[tuple[float, SmscConnection, Sequence[QueuedReceipt]]] = deque(
            maxlen=DELAYED_MAX
        )
        self._timer: asyncio.TimerHandle | None = None

    @property
    def receipts_unanswered(self) -> int:
        return sum(mailbox.unanswered for mailbox in self._mailboxes.values()) + sum(
            len(letters) for _, _, letters in self._delayed
        )

    def connected(self, line: SmscConnection) -> None:
        self.lines.add(line)
        for each in self._misbehaviours:
            each.connected(line)

    def binding(self, line: SmscConnection, bind: BindRequest) -> int | None:
        for each in self._misbehaviours:
            status = each.binding(line, bind)
            if status != CommandStatus.ROK:
                return status
        return CommandStatus.ROK

    def joined(self, line: SmscConnection) -> None:
        self._mailbox(line).join(line)

    def ended(self, line: SmscConnection) -> None:
        self.lines.discard(line)
        self.retired(line)

    def retired(self, line: SmscConnection) -> None:
        mailbox = self._mailboxes.get(line.client)
        if mailbox is not None:
            mailbox.leave(line)
            if mailbox.is_empty:
                self._mailboxes.pop(line.client)

    def acknowledged(self, line: SmscConnection, sequence: int, status: int) -> None:
        self._mailbox(line).answered(line, sequence, status)

    def submitted(self, line: SmscConnection, sequence: int, body: bytes) -> None:
        self.submits.received += 1
        exchange = Exchange(line, sequence, self._post)
        try:
            message = read_short_message(body)
        except BrokenError:
            self._refuse(exchange, CommandStatus.RINVMSGLEN)
            return
        if line.client == HANDSET:
            exchange.status = CommandStatus.ROK if self._pass_on(body) else CommandStatus.RSUBMITFAIL
            exchange.answer()
            return
        status = self._disturbed(line) or _fault(message)
        if status == DROPPED:
            self.submits.dropped += 1
            return
        if status:
            self._refuse(exchange, status)
            return
        outcome = outcome_of(message.destination)
        if not outcome.is_plain:
            tries = self._tries.next(message, max(outcome.refusals, outcome.dropped))
            if tries <= outcome.dropped:
                self.submits.dropped += 1
                return
            if outcome.refusal and (outcome.refusals == 0 or tries <= outcome.refusals):
                self._refuse(exchange, outcome.refusal)
                return
        self._take(exchange, message, outcome)

    def reply(self, number: str, to: str, text: str) -> bool:
        """Send a text from a handset to the gateway; False if no gateway is bound."""
        return all(self._pass_on(body) for body in write_reply(number, to, text))

    def _pass_on(self, body: bytes) -> bool:
        """Deliver what a handset sends to the client that bound last."""
        if not self._mailboxes:
            return False
        self._mailboxes[next(reversed(self._mailboxes))].post([(_DELIVER_SM, body)])
        return True

    def _disturbed(self, line: SmscConnection) -> int:
        for each in self._misbehaviours:
            status = each.judge(line)
            if status:
                return status
        return CommandStatus.ROK

    def _refuse(self, exchange: Exchange, status: int) -> None:
        if status in {CommandStatus.RTHROTTLED, CommandStatus.RMSGQFUL}:
            self.submits.throttled += 1
        else:
            self.submits.refused += 1
        exchange.status = status
        self._conduct(exchange)

    def _take(self, exchange: Exchange, message: ShortMessage, outcome: NumberOutcome) -> None:
        self.submits.taken += 1
        now_s = time.time()
        late_s = max(self._receipt_delay_s, outcome.absent_s)
        if late_s:
            valid_s = read_validity_s(message.validity, now_s)
            if valid_s is not None and valid_s < late_s:
                outcome = EXPIRED
        if outcome.arrives:
            text = self._joiner.add(message, now_s)
            if text is not None:
                self._arrive(message, text, now_s)
        self._last_id += 1
        ids = Ids(str(self._last_id), str(self._last_id))
        for each in self._misbehaviours:
            ids = each.identify(self._last_id, ids)
        exchange.body = ids.answered.encode("ascii") + b"\0"
        if _is_asked(message.registered_delivery, outcome):
            exchange.letters = self._receipts(ids.receipted, message, outcome, now_s)
        self._conduct(exchange)

    def _receipts(
        self, message_id: str, message: ShortMessage, outcome: NumberOutcome, now_s: float
    ) -> Sequence[QueuedReceipt]:
        assert outcome.state is not None
        facts = (message_id, message, outcome.state, outcome.error, now_s, now_s + self._receipt_delay_s)
        if not self._misbehaviours:
            return ((_DELIVER_SM, write_usual_body(*facts)),)
        receipts: Sequence[SimulatedReceipt] = [SimulatedReceipt(*facts)]
        for each in self._misbehaviours:
            receipts = each.shape(receipts)
        return [(receipt.command, write_body(receipt)) for receipt in receipts]

    def _arrive(self, message: ShortMessage, text: str, now_s: float) -> None:
        number = f"+{message.destination.removeprefix('+')}"
        arrived = ReceivedText(number, message.source, text, moment(now_s))
        self.texts.append(arrived)
        if self._arrived is not None:
            self._arrived(arrived)

    def _conduct(self, exchange: Exchange) -> None:
        answer = exchange.answer
        for each in self._misbehaviours:
            answer = each.around(exchange, answer)
        answer()

    def _post(self, line: SmscConnection, letters: Sequence[QueuedReceipt]) -> None:
        if self._receipt_delay_s > 0:
            # In order of time, for the delay is the same for all: one timer is enough.
            loop = asyncio.get_running_loop()
            self._delayed.append((loop.time() + self._receipt_delay_s, line, letters))
            if self._timer is None:
                self._timer = loop.call_later(self._receipt_delay_s, self._post_delayed)
        elif (mailbox := self._mailbox(line)).is_only(line):
            mailbox.post(letters)
        else:
            # By another connection than the answer, which shall leave first.
            asyncio.get_running_loop().call_soon(self._post_now, line, letters)

    def _post_now(self, line: SmscConnection, letters: Sequence[QueuedReceipt]) -> None:
        # Looked up now: an unused queue was dropped meanwhile, and there may be another.
        self._mailbox(line).post(letters)

    def _post_delayed(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._delayed and self._delayed[0][0] <= loop.time():
            _, line, letters = self._delayed.popleft()
            self._post_now(line, letters)
        if self._delayed:
            self._timer = loop.call_at(self._delayed[0][0], self._post_delayed)

    def _mailbox(self, line: SmscConnection) -> ReceiptQueue:
        mailbox = self._mailboxes.get(line.client)
        if mailbox is None:
            mailbox = self._mailboxes[line.client] = ReceiptQueue()
            if len(self._mailboxes) > MAILBOXES_MAX:
                self._mailboxes.popitem(last=False)
        return mailbox

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for line in list(self.lines):
            line.abort()


def _fault(message: ShortMessage) -> int:
    digits = message.destination.removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) in NUMBER_DIGITS):
        return CommandStatus.RINVDSTADR
    return CommandStatus.ROK


def _is_asked(registered_delivery: int, outcome: NumberOutcome) -> bool:
    asked = registered_delivery & _ASKED
    if outcome.state is None or not asked:
        return False
    if asked == _ASKED_ALWAYS:
        return True
    return (outcome.state == "DELIVRD") == (asked == _ASKED_ON_SUCCESS)


def check_port(port: int) -> None:
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        # Python adds the address to the system's message, and ours has it already.
        reason = str(error.strerror or error).partition(" (while ")[0]
        raise port_error(
            error,
            f"Port {port} on {HOST} cannot be used for the simulator ({reason}): stop what uses it, "
            "or set TUMIRA_SIMULATOR_PORT.",
        ) from error


@asynccontextmanager
async def run_smsc(
    port: int = 0,
    misbehaviours: Iterable[Misbehaviour] = (),
    *,
    receipt_delay_s: float = 0.0,
    texts_max: int = TEXTS_MAX,
    arrived: Callable[[ReceivedText], None] | None = None,
) -> AsyncIterator[Smsc]:
    """Run an SMSC on loopback; port 0 takes a free one.

    ```python
    async with run_smsc(misbehaviours=[ThrottleEvery(10), ResponseDelay(200)]) as smsc:
        await send_something(f"smpp://anyone:secret@127.0.0.1:{smsc.port}")
        assert smsc.texts.to("+263771200001") == ["Your code is 493817."]
        assert smsc.submits.throttled == 0
    ```
    """
    smsc = Smsc(misbehaviours, receipt_delay_s=receipt_delay_s, texts_max=texts_max, arrived=arrived)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SmscConnection(smsc), HOST, port, backlog=BACKLOG)
    smsc.port = server.sockets[0].getsockname()[1]
    try:
        yield smsc
    finally:
        server.close()
        smsc.close()
        await server.wait_closed()
