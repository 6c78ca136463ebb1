"""One bind of a carrier: it connects, and connects again after every end, until dropped or closed.

Receipts go straight to the recorder, with the session on which they are acknowledged.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import structlog

from tumira.carriers.store import Carrier
from tumira.core import metrics
from tumira.core.backoff import reconnect_wait_s
from tumira.delivery import responses
from tumira.delivery.link import NO_REFERENCES, LinkListener, References
from tumira.delivery.receipt_rules import Receipt
from tumira.delivery.recorder import Recorder
from tumira.delivery.replies.parts import ReplyPart
from tumira.delivery.responses import Action
from tumira.delivery.smpp.connection import SmppTimeouts
from tumira.delivery.smpp.pdu import Command
from tumira.delivery.smpp.session import (
    BindRefusedError,
    SessionListener,
    SmppSession,
    connect,
)
from tumira.delivery.store.queue import ClaimedMessage, PastAttempts
from tumira.delivery.store.references import SubmissionReference
from tumira.delivery.submission import Submission, SubmissionWriter
from tumira.postgres.connection import Connection

STABLE_S: Final = 60.0
# A carrier that does not let us in is not hammered: accounts get locked.
REFUSED_BIND_FAILURES: Final = 4

_log: Final = structlog.get_logger()


class SmppLink(SessionListener):
    """The link to a carrier over SMPP, in one session or in a transmitter and receiver pair."""

    is_on_trial = False

    def __init__(
        self, carrier: Carrier, number: int, recorder: Recorder, timing: SmppTimeouts, listener: LinkListener
    ) -> None:
        self.name = f"{carrier.name}/{number}"
        self.problem: str | None = None
        self.response_s = timing.response_s
        self.quiet_s = timing.quiet_s
        self._carrier = carrier
        self._listener = listener
        self._writer = SubmissionWriter(carrier.settings.source, carrier.settings.alphabet)
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
    def is_up(self) -> bool:
        return self._session is not None

    @property
    def is_usable(self) -> bool:
        return self._session is not None and not self._leaving

    @property
    def outstanding(self) -> int:
        return self._session.outstanding if self._session is not None else 0

    async def register(
        self, connection: Connection, claimed: Sequence[ClaimedMessage], past: Mapping[UUID, PastAttempts]
    ) -> References:
        """Store nothing: the carrier names each segment in its response."""
        del connection, claimed, past
        return NO_REFERENCES

    def prepare(
        self, claimed: ClaimedMessage, past: PastAttempts | None, reference: SubmissionReference | None
    ) -> Submission:
        del reference
        return self._writer.prepare(claimed, past)

    def submit(self, tag: object, submission: Submission, number: int, left_s: int) -> None:
        assert self._session is not None
        self._session.submit(tag, self._writer.body(submission, number, left_s))

    def reset(self, problem: str) -> None:
        """Drop the session because of what the carrier answered, and bind again."""
        if self._session is not None:
            self.problem = problem
            self._session.abort()

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
            self._listener.linked()
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
        metrics.BINDS_TRIED.labels(self._carrier.name, result).inc()

    async def _connect(self) -> None:
        """Bind; when one half of a pair ends while the other is being bound, both end."""
        settings = self._carrier.settings
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

    def answered(self, tag: object, status: int, carrier_ref: str) -> None:
        rule = responses.judge(status)
        detail = "" if rule.action is Action.TAKEN else responses.name(status)
        self._listener.answered(tag, rule, detail, carrier_ref)

    def unanswered(self, tag: object) -> None:
        self._listener.unanswered(tag)

    def settled(self) -> None:
        self._listener.settled()

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
        self._listener.ended(unanswered, problem)
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
    def __init__(self, link: SmppLink) -> None:
        self._link = link
        self.session: SmppSession | None = None

    def received(self, receipt: Receipt, token: object) -> None:
        assert self.session is not None
        self._link.record_receipt(receipt, self.session, token)

    def replied(self, part: ReplyPart, token: object) -> None:
        assert self.session is not None
        self._link.record_reply(part, self.session, token)

    def ended(self, unanswered: Sequence[object], problem: str) -> None:
        del unanswered, problem
        self._link.receiver_ended()
