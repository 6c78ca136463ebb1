"""Queues receipts for the connections of a client until they are acknowledged."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from tumira.delivery.responses import CommandStatus

# Receipts without an answer on one connection; the others wait for their turn.
WINDOW: Final = 5_000
# Receipts without a connection that takes them; the oldest are dropped.
WAITING_MAX: Final = 100_000
AGAIN_S: Final = 1.0

# The command and the body.
QueuedReceipt = tuple[int, bytes]


class Receiver(Protocol):
    def deliver(self, body: bytes, command: int) -> int: ...


class ReceiptQueue:
    """The receipts for one system_id over all its connections; a receipt stays until it is answered."""

    def __init__(self) -> None:
        self._receivers: list[Receiver] = []
        self._unanswered: dict[Receiver, dict[int, QueuedReceipt]] = {}
        self._waiting: deque[QueuedReceipt] = deque(maxlen=WAITING_MAX)
        self._again: deque[QueuedReceipt] = deque(maxlen=WAITING_MAX)
        self._next = 0

    @property
    def is_empty(self) -> bool:
        return not (self._receivers or self._waiting or self._again)

    @property
    def unanswered(self) -> int:
        return (
            len(self._waiting) + len(self._again) + sum(len(letters) for letters in self._unanswered.values())
        )

    def is_only(self, receiver: Receiver) -> bool:
        return len(self._receivers) == 1 and self._receivers[0] is receiver

    def join(self, receiver: Receiver) -> None:
        self._receivers.append(receiver)
        self._unanswered[receiver] = {}
        self._pump()

    def leave(self, receiver: Receiver) -> None:
        if receiver in self._unanswered:
            self._receivers.remove(receiver)
            self._waiting.extendleft(reversed(self._unanswered.pop(receiver).values()))
            self._pump()

    def post(self, letters: Sequence[QueuedReceipt]) -> None:
        self._waiting.extend(letters)
        self._pump()

    def answered(self, receiver: Receiver, sequence: int, status: int) -> None:
        """Drop a receipt that was taken or refused permanently; send one again that was refused for now."""
        letter = self._unanswered.get(receiver, {}).pop(sequence, None)
        if letter is not None and status == CommandStatus.RX_T_APPN:
            if not self._again:
                asyncio.get_running_loop().call_later(AGAIN_S, self._send_again)
            self._again.append(letter)
        if self._waiting:
            self._pump()

    def _send_again(self) -> None:
        letters = list(self._again)
        self._again.clear()
        self.post(letters)

    def _pump(self) -> None:
        while self._waiting:
            receiver = self._with_room()
            if receiver is None:
                return
            command, body = letter = self._waiting.popleft()
            self._unanswered[receiver][receiver.deliver(body, command)] = letter

    def _with_room(self) -> Receiver | None:
        for _ in self._receivers:
            self._next = (self._next + 1) % len(self._receivers)
            receiver = self._receivers[self._next]
            if len(self._unanswered[receiver]) < WINDOW:
                return receiver
        return None
