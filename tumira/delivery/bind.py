"""One bind of a carrier: it connects, and connects again after every end, until dropped or closed.

Receipts go straight to the recorder, with the session on which they are acknowledged.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

import structlog

from tumira.core import metrics
from tumira.core.backoff import reconnect_wait_s
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.recorder import Recorder
from tumira.delivery.replies.parts import ReplyPart
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.pdu import Command
from tumira.delivery.smpp.session import (
    BindRefusedError,
    SessionListener,
    SmppSession,
    connect,
)
from tumira.delivery.store.carriers import Carrier

STABLE_S: Final = 60.0
# A carrier that does not let us in is not hammered: accounts get locked.
REFUSED_BIND_FAILURES: Final = 4

_log: Final = structlog.get_logger()


class Bind(SessionListener):
    """The connection to a carrier, in one session or in a transmitter and receiver pair.

    A subclass handles the responses.
    """

    def __init__(self, carrier: Carrier, number: int, recorder: Recorder, timing: SmppTimeouts) -> None:
        self.carrier = carrier
        self.name = f"{carrier.name}/{number}"
        # Why it is not bound, once that is known.
        self.problem: str | None = None
        self._recorder = recorder
        self._timing = timing
        # The session that submits, and for a pair also the one that receives.
        self._session: SmppSession | None = None
        self._receiver: SmppSession | None = None
        self._failures = 0
        self._leaving = False
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def is_bound(self) -> bool:
        return self._session is not None

    @property
    def usable(self) -> SmppSession | None:
        """The session to submit on; None while not bound, and once closing."""
        return None if self._leaving else self._session

    @property
    def outstanding(self) -> int:
        return self._session.outstanding if self._session is not None else 0

    def rebind(self, problem: str) -> None:
        """Drop the session because of what the carrier answered, and bind again."""
        if self._session is not None:
            self.problem = problem
            self._session.abort()

    def bound(self) -> None:
        """Continue with a new session."""

    def drop(self) -> None:
        """Stop at once: another worker has the lease."""
        self._leaving = True
        if self._session is not None:
            self._session.abort()
        self._task.cancel()

    async def close(self, wait_s: float) -> None:
        """Disconnect permanently, after waiting up to `wait_s` for outstanding responses."""
        self._leaving = True
        self._task.cancel()
        if self._session is not None:
            await self._session.close(wait_s)
        if self._receiver is not None:
            await self._receiver.close(0)

    # Connecting.

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(reconnect_wait_s(self._failures, random.random()))  # noqa: S311 - spreads, guards nothing
            self._ended.clear()
            try:
                await self._connect()
            except Exception as error:  # noqa: BLE001 - the bind is tried again after every error
                self._note_failure(error)
                continue
            began = self._loop.time()
            self.problem = None
            self._tried("bound")
            if self._failures:
                _log.info("bound again", bind=self.name)
            self.bound()
            await self._ended.wait()
            self._failures = 1 if self._loop.time() - began > STABLE_S else self._failures + 1

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        self.problem = str(error) or type(error).__name__
        match error:
            case BindRefusedError():
                self._failures = max(self._failures, REFUSED_BIND_FAILURES)
                self._tried("refused")
                _log.error("bind refused", bind=self.name, problem=self.problem)
            case OSError():
                self._tried("unreachable")
                _log.warning("carrier cannot be reached", bind=self.name, problem=self.problem)
            case _:
                self.problem = repr(error)
                self._tried("failed")
                _log.error("bind failed", bind=self.name, exc_info=error)

    def _tried(self, result: str) -> None:
        metrics.BINDS_TRIED.labels(self.carrier.name, result).inc()

    async def _connect(self) -> None:
        """Bind; when one half of a pair ends while the other is being bound, both end."""
        settings = self.carrier.settings
        if settings.bind_mode != "pair":
            self._session = await connect(settings, Command.BIND_TRANSCEIVER, self, timing=self._timing)
            return
        receiver_listener = _ReceiverListener(self)
        receiver = receiver_listener.session = await connect(
            settings, Command.BIND_RECEIVER, receiver_listener, timing=self._timing
        )
        try:
            session = await connect(settings, Command.BIND_TRANSMITTER, self, timing=self._timing)
        except BaseException:
            receiver.abort()
            raise
        self._session, self._receiver = session, receiver
        if receiver.ended:
            session.abort()

    # Called by the sessions.

    def received(self, receipt: Receipt, token: object) -> None:
        assert self._session is not None
        self.record_receipt(receipt, self._session, token)

    def replied(self, part: ReplyPart, token: object) -> None:
        assert self._session is not None
        self.record_reply(part, self._session, token)

    def ended(self, unanswered: Sequence[object], problem: str) -> None:
        self._session = None
        if self._receiver is not None:
            self._receiver.abort()
        if not self._leaving:
            # The refusal that made us rebind says more than that the session was dropped.
            self.problem = self.problem or problem
            _log.warning("bind ended", bind=self.name, problem=problem, in_doubt=len(unanswered))
        self._ended.set()

    def record_receipt(self, receipt: Receipt, session: SmppSession, token: object) -> None:
        self._recorder.receive(receipt, self._recorder.clock.now(), session, token)

    def record_reply(self, part: ReplyPart, session: SmppSession, token: object) -> None:
        self._recorder.replies.receive(part, self._recorder.clock.now(), session, token)

    def receiver_ended(self) -> None:
        """Note that the receiving half is gone; both halves are bound again."""
        self._receiver = None
        if self._session is not None and not self._leaving:
            self._session.abort()


class _ReceiverListener(SessionListener):
    def __init__(self, bind: Bind) -> None:
        self._bind = bind
        self.session: SmppSession | None = None

    def received(self, receipt: Receipt, token: object) -> None:
        assert self.session is not None
        self._bind.record_receipt(receipt, self.session, token)

    def replied(self, part: ReplyPart, token: object) -> None:
        assert self.session is not None
        self._bind.record_reply(part, self.session, token)

    def ended(self, unanswered: Sequence[object], problem: str) -> None:
        del unanswered, problem
        self._bind.receiver_ended()
