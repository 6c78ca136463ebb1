"""The link to a carrier over HTTP: one call for each message, at most a window of them at a time.

There is no connection to keep, so the link is up until the carrier cannot be reached or refuses our account.
Then it is down for a while, and a single message shows whether the carrier takes messages again.
"""

import asyncio
import random
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import structlog

from tumira.carriers.http.access import poll_ages
from tumira.carriers.http.carrier import HttpCarrier
from tumira.carriers.http.values import OutgoingMessage, SubmitAnswer, SubmitVerdict
from tumira.carriers.store import Carrier
from tumira.core import metrics
from tumira.core.backoff import reconnect_wait_s
from tumira.delivery.http.client import (
    AccessDeniedError,
    CarrierClient,
    HttpTimeouts,
)
from tumira.delivery.http.connections import AnswerLostError, RequestNotSentError
from tumira.delivery.http.follower import HttpFollower
from tumira.delivery.link import LinkListener, References
from tumira.delivery.responses import Action, ResponseRule
from tumira.delivery.store import references
from tumira.delivery.store.queue import ClaimedMessage, PastAttempts
from tumira.delivery.store.references import NewReference, SubmissionReference
from tumira.delivery.submission import Submission
from tumira.postgres.connection import Connection
from tumira.pricing.segments import Encoding, measure

# How often a call is repeated whose answer was lost, and for how long after the first one.
REPEATS_MAX: Final = 2
REPEATS_S: Final = 30.0
# For so long a provider knows a call that is repeated; the shortest time known is twelve hours.
REFERENCE_S: Final = 11 * 3600.0

_LETTERS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
# One letter for each random octet.
_REFERENCE_LETTERS: Final = bytes(_LETTERS[octet % len(_LETTERS)] for octet in range(256))
_REFERENCE_LENGTH: Final = 20
_LOST: Final = SubmitAnswer(SubmitVerdict.DOUBT)

# Stopped counts as a fault of the link: the message is untouched.
_ACTIONS: Final[Mapping[SubmitVerdict, Action]] = {
    SubmitVerdict.TAKEN: Action.TAKEN,
    SubmitVerdict.REFUSED: Action.REFUSED,
    SubmitVerdict.THROTTLED: Action.THROTTLED,
    SubmitVerdict.TEMPORARY: Action.TEMPORARY,
    SubmitVerdict.UNKNOWN: Action.UNKNOWN,
    SubmitVerdict.STOPPED: Action.LINK,
}
_NOT_SENT: Final = ResponseRule(Action.LINK)
_REJECTED: Final = "CARRIER_REJECTED"

_log: Final = structlog.get_logger()


def new_reference() -> str:
    return secrets.token_bytes(_REFERENCE_LENGTH).translate(_REFERENCE_LETTERS).decode()


class HttpLink:
    """The link to a carrier over HTTP; `callback_url` is where it reports outcomes."""

    def __init__(
        self,
        carrier: Carrier,
        number: int,
        http: HttpCarrier,
        client: CarrierClient,
        timing: HttpTimeouts,
        callback_url: str,
        follower: HttpFollower | None,
        listener: LinkListener,
    ) -> None:
        self.name = f"{carrier.name}/{number}"
        self.problem: str | None = None
        self.response_s = timing.connect_s + timing.answer_s + REPEATS_S
        self.quiet_s = timing.quiet_s
        self._carrier = carrier
        self._http = http
        self._client = client
        self._timing = timing
        self._callback_url = callback_url
        self._follower = follower
        self._listener = listener
        self._poll_s = next(iter(poll_ages(http)), None)
        self._calls: dict[asyncio.Task[None], object] = {}
        self._is_up = False
        self._is_leaving = False
        # How often in a row the carrier was not reached or refused our account; and whether it refused it.
        self._failures = 0
        self._is_stopped = False
        self._is_miscounted = False
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.TimerHandle | None = self._loop.call_later(0, self._connect)
        self._drained = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        return self._is_up

    @property
    def is_usable(self) -> bool:
        return self._is_up and not self._is_leaving

    @property
    def is_on_trial(self) -> bool:
        return self._failures > 0

    @property
    def outstanding(self) -> int:
        return len(self._calls)

    def _connect(self) -> None:
        self._connecting = None
        self._is_up = True
        self._tried("bound")
        self._listener.linked()

    def _tried(self, result: str) -> None:
        metrics.BINDS_TRIED.labels(self._carrier.name, result).inc()

    async def register(
        self, connection: Connection, claimed: Sequence[ClaimedMessage], past: Mapping[UUID, PastAttempts]
    ) -> References:
        """Store a reference for each message, the one under which it is in doubt if a repeat is safe."""
        attempts: dict[UUID, int] = {one.id: past[one.id].resends if one.id in past else 0 for one in claimed}
        kept: References = {}
        resent = {message_id: attempt for message_id, attempt in attempts.items() if attempt}
        if resent and self._http.safe_repeat:
            kept = await references.reuse(connection, self._carrier.id, resent, REFERENCE_S)
        new = [
            NewReference(one.id, new_reference(), attempts[one.id]) for one in claimed if one.id not in kept
        ]
        stored = await references.insert(connection, self._carrier.id, new, self._poll_s) if new else {}
        return {**kept, **stored}

    def prepare(
        self, claimed: ClaimedMessage, past: PastAttempts | None, reference: SubmissionReference | None
    ) -> Submission:
        return Submission(claimed, None, None, past, reference)

    def submit(self, tag: object, submission: Submission, number: int, left_s: int) -> None:
        del number
        assert submission.handle is not None
        claimed, handle = submission.claimed, submission.handle
        most_s = self._http.max_validity_s
        message = OutgoingMessage(
            recipient=claimed.recipient,
            text=claimed.body,
            sender=self._carrier.settings.source if submission.sender is None else submission.sender,
            reference=handle.reference,
            sequence=handle.sequence,
            unicode=measure(claimed.body).encoding is not Encoding.GSM_7,
            validity_s=left_s if most_s is None else min(left_s, most_s),
            callback_url=self._callback_url,
            at=datetime.now(UTC),
        )
        task = self._loop.create_task(self._submit_one(tag, submission, message))
        self._calls[task] = tag
        task.add_done_callback(self._forget)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self._calls.pop(task, None)
        if not self._calls:
            self._drained.set()

    async def _submit_one(self, tag: object, submission: Submission, message: OutgoingMessage) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            answer = await self._call(message)
        except RequestNotSentError as error:
            self._forget(task)
            self._listener.answered(tag, _NOT_SENT, str(error), "")
        except AccessDeniedError as error:
            self._forget(task)
            self._stop(str(error))
            self._listener.answered(tag, _NOT_SENT, str(error), "")
        except AnswerLostError as error:
            self._forget(task)
            self._listener.unanswered(tag, str(error))
        except Exception as error:  # noqa: BLE001 - a fault of a profile must not leave a message open
            self._forget(task)
            _log.error("could not submit a message", carrier=self._carrier.name, exc_info=error)
            self._listener.unanswered(tag, "its answer could not be read")
        else:
            self._forget(task)
            self._note(answer, submission)
            self._answered(tag, answer)
        self._listener.settled()

    def _note(self, answer: SubmitAnswer, submission: Submission) -> None:
        segments = submission.claimed.segments
        if answer.cost is not None:
            submission.told_cost = (answer.cost, answer.currency)
        if answer.balance is not None and self._follower is not None:
            self._follower.note_balance(answer.balance)
        if answer.segments not in {None, 0, segments} and not self._is_miscounted:
            # Once, not for every message: it costs money, and an operator has to look at it.
            self._is_miscounted = True
            _log.error(
                "carrier counts other segments than we",
                carrier=self._carrier.name,
                theirs=answer.segments,
                ours=segments,
            )

    def _answered(self, tag: object, answer: SubmitAnswer) -> None:
        if answer.verdict is SubmitVerdict.DOUBT:
            if answer.alarm:
                _log.error("answer not understood", carrier=self._carrier.name, answer=answer.detail)
            self._listener.unanswered(tag, answer.detail or "its answer could not be read")
            return
        if answer.verdict is SubmitVerdict.STOPPED:
            self._stop(answer.detail or str(answer.stop))
        elif self._is_up:
            # It answers and knows us.
            self._failures = 0
            self._is_stopped = False
            self.problem = None
        rule = ResponseRule(
            _ACTIONS[answer.verdict],
            None if answer.verdict is SubmitVerdict.TAKEN else answer.reason or _REJECTED,
            answer.alarm,
            answer.retry_after_s or 0.0,
        )
        detail = "" if answer.verdict is SubmitVerdict.TAKEN else answer.detail or answer.verdict.value
        self._listener.answered(tag, rule, detail, answer.carrier_ref)

    def _stop(self, problem: str) -> None:
        """Note that the carrier refuses our account: only an operator can put that right."""
        if not self._is_stopped:
            _log.error("carrier refuses our account", carrier=self._carrier.name, problem=problem)
        self._is_stopped = True

    async def _call(self, message: OutgoingMessage) -> SubmitAnswer:
        """Submit a message; repeat that after a lost answer, where the carrier recognises the repetition."""
        began = self._loop.time()
        repeats = 0
        while True:
            try:
                answer = await self._submit(message)
            except (RequestNotSentError, AccessDeniedError):
                if not repeats:
                    raise
                answer = _LOST
            except AnswerLostError:
                if not self._http.safe_repeat or repeats >= REPEATS_MAX:
                    raise
                answer = _LOST
            # After a lost answer only an acceptance says whether the carrier has the message.
            if answer.verdict is SubmitVerdict.TAKEN or (
                not repeats and answer.verdict is not SubmitVerdict.DOUBT
            ):
                return answer
            over = repeats >= REPEATS_MAX or self._loop.time() - began > REPEATS_S
            if not self._http.safe_repeat or over:
                if answer.verdict is SubmitVerdict.DOUBT and answer is not _LOST:
                    return answer
                raise AnswerLostError("the answer was lost, and repeating the call did not help")
            repeats += 1
            await asyncio.sleep(self._timing.repeat_s)

    async def _submit(self, message: OutgoingMessage) -> SubmitAnswer:
        answer = await self._client.call(lambda token: self._http.submit_request(message, token))
        return self._http.read_submit(answer, message)

    def reset(self, problem: str) -> None:
        """Submit nothing for a while; calls under way are not cut off."""
        self.problem = problem
        if not self._is_up:
            self._listener.ended([], problem)
            return
        self._is_up = False
        self._failures += 1
        chance = random.random()  # noqa: S311 - spreads, guards nothing
        if self._is_stopped:
            self._tried("refused")
            wait_s = min(self._timing.stop_max_s, self._timing.stop_s * 2.0 ** min(self._failures - 1, 10))
        else:
            self._tried("unreachable")
            wait_s = reconnect_wait_s(self._failures, chance)
            _log.warning("carrier cannot be reached", bind=self.name, problem=problem)
        if not self._is_leaving:
            self._connecting = self._loop.call_later(wait_s, self._connect)
        self._listener.ended([], problem)

    def drop(self) -> None:
        unanswered = self._leave()
        self._ending = self._loop.create_task(self._disconnect())
        self._listener.ended(unanswered, "dropped by us")

    async def close(self, wait_s: float) -> None:
        self._is_leaving = True
        if self._calls:
            self._drained.clear()
            with_calls = asyncio.create_task(self._drained.wait())
            await asyncio.wait({with_calls}, timeout=wait_s)
            with_calls.cancel()
        self._listener.ended(self._leave(), "closed by us")
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._follower is not None:
            await self._follower.close()
        await self._client.close()

    def _leave(self) -> Sequence[object]:
        """Cut off all calls, and return the tags of those without an answer."""
        self._is_leaving = True
        self._is_up = False
        if self._connecting is not None:
            self._connecting.cancel()
        unanswered = list(self._calls.values())
        for task in self._calls:
            task.cancel()
        self._calls.clear()
        return unanswered
