"""What follows from each outcome of a message: pure decisions over locked rows."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.core.days import local_ordinal, local_time
from tumira.core.ids import AccountId, BatchId, made_at_ms
from tumira.core.translation import _
from tumira.delivery import receipt_rules
from tumira.delivery.margin import Sale
from tumira.delivery.outcomes import (
    WHOLE,
    AlreadyTaken,
    CarrierRefused,
    Ended,
    LeftInDoubt,
    Outcome,
    Released,
    Reported,
    Resumed,
    RetryLater,
    Taken,
)
from tumira.delivery.store.settlement import (
    BatchChange,
    ClosedBatch,
    LockedMessage,
    MessageChange,
    NewPart,
    PartReport,
)
from tumira.delivery.store.waiting import Incident, NewRetry, QueueEntry, QueuePlace
from tumira.events import NewEvent
from tumira.sending import lifecycle
from tumira.sending.daily_totals import DayKey
from tumira.sending.owner_notices import OwnerNotice, write_usd

REFUND_ALL: Final = frozenset({"failed", "expired", "undelivered"})
NO_RULES: Final[Mapping[int, Collection[str]]] = {}
# A refund of a batch is large, and its owner gets a notice, if both are reached: a few failed numbers of a
# large batch are usual, and a few cents are no news.
REFUND_MIN: Final = Decimal(5)
SHARE_MIN: Final = Decimal("0.1")

# In these a message has been counted as sold.
_SOLD: Final = frozenset({"sent", "unconfirmed"})

Segment = tuple[UUID, int, int]


class Ending(Struct, frozen=True, gc=False):
    message_id: UUID
    recipient: str
    country: str
    status: str
    reason: str | None
    # The receipt that ended it, if one did: whose it was, and when it came.
    carrier_id: int | None
    received_at: datetime | None


class Consequences:
    """Decides outcomes one after the other, and collects the changes."""

    def __init__(
        self,
        locked: Mapping[UUID, LockedMessage],
        refunded: Collection[str],
        now: datetime,
        *,
        tell_sent: Collection[AccountId],
        again: bool,
        refund_rules: Mapping[int, Collection[str]] = NO_RULES,
    ) -> None:
        self.messages = locked
        # What each carrier's messages get back, where receipts of several carriers are decided together.
        self._refund_rules = refund_rules
        self._tell_sent = tell_sent
        self._again = again
        self._refunded = refunded
        self.now = now
        # The messages that this worker still had in flight, and when it claimed each.
        self.own: Mapping[UUID, datetime] = {}
        self.changed: dict[UUID, MessageChange] = {}
        self.parts: dict[Segment, NewPart] = {}
        # Segments that may have been recorded before.
        self.doubled: dict[Segment, NewPart] = {}
        self.reports: dict[Segment, PartReport] = {}
        # Of messages of several segments: the state of each segment that has one.
        self._states: dict[UUID, dict[int, tuple[str, str | None]]] = {}
        self.settled: dict[BatchId, int] = {}
        # By account, day of acceptance and country: how many more messages stand in each final status.
        self.ended: dict[DayKey, dict[str, int]] = {}
        self.endings: list[Ending] = []
        self.refunds: list[LockedMessage] = []
        # What was charged and given back for messages that a carrier has.
        self.sales: list[Sale] = []
        self.events: list[NewEvent] = []
        self.entries: list[QueueEntry] = []
        self.delays: list[NewRetry] = []
        self.incidents: list[Incident] = []
        # Of messages that were tried more than once: the segments that a carrier took in any try.
        self._numbers: dict[UUID, set[int]] = {}
        self.landed: list[LockedMessage] = []
        # Messages that may wait somewhere else than in flight, and where those were found that did.
        self.elsewhere: list[LockedMessage] = []
        self.places: dict[UUID, QueuePlace] = {}

    def add_parts_before(self, states: Sequence[tuple[UUID, int, str, str | None]]) -> None:
        for message_id, number, state, error in states:
            self._keep_state(message_id, number, state, error)

    def add_numbers_before(self, ids: Sequence[UUID], numbers: Sequence[tuple[UUID, int]]) -> None:
        self._numbers = {message_id: set() for message_id in ids}
        for message_id, number in numbers:
            self._numbers[message_id].add(number)

    def apply(self, outcome: Outcome) -> None:
        change = self.changed.get(outcome.message_id)
        if change is None:
            message = self.messages[outcome.message_id]
            change = MessageChange(message, message.status)
        match outcome:
            case Taken():
                self._take(change, outcome)
            case Reported():
                self._report(change, outcome)
            case Ended():
                self._end(change, outcome)
            case Resumed():
                self._resume(change, outcome)
            # What a worker says of its claim counts only as long as it has the claim.
            case _ if outcome.message_id not in self.own or change.status not in {"queued", "sending"}:
                return
            case CarrierRefused():
                self._refuse(change, outcome)
            case RetryLater():
                self._put_off(change, outcome)
            case LeftInDoubt():
                self._doubt(change, outcome)
            case AlreadyTaken():
                self._send(change, outcome.submitted_at, outcome.carrier_id)
            case Released():
                self._let_wait(change)
                self.entries.append(outcome.entry)

    def _take(self, change: MessageChange, taken: Taken) -> None:
        part = taken.part
        parts = self.doubled if taken.late or self._again else self.parts
        parts[part.message_id, part.number, part.attempt] = part
        complete = taken.complete
        numbers = self._numbers.get(taken.message_id)
        if numbers is not None:
            numbers.add(part.number)
            complete = WHOLE in numbers or len(numbers) >= change.message.segments
        if complete and change.status in {"queued", "sending"}:
            if taken.late:
                self.elsewhere.append(change.message)
            else:
                self.landed.append(change.message)
            self._send(change, part.submitted_at, part.carrier_id)

    def _send(self, change: MessageChange, at: datetime, carrier_id: int) -> None:
        message = change.message
        change.status, change.sent_at = "sent", at
        self.sales.append(Sale(carrier_id, message, is_refund=False))
        self.changed[message.id] = change
        if message.account_id in self._tell_sent:
            self._tell(message, "message.sent")

    def _report(self, change: MessageChange, report: Reported) -> None:
        outcome = receipt_rules.receipt_result(report.receipt.state, report.receipt.error)
        if lifecycle.is_final(change.status) and change.status != "unconfirmed":
            # Said before is a repetition; anything else is too late to count.
            if outcome.status is not None and outcome.status != change.status:
                self.incidents.append(_late(report))
            return
        if not self._write_receipt(change, report, final=outcome.status is not None):
            return
        status: str | None = outcome.status
        reason = outcome.reason
        if change.message.segments > 1 and report.number != WHOLE:
            status, reason = self._judge_segments(change.message)
        if status is None:
            return
        if change.status in {"queued", "sending"}:
            # The receipt proves the submission, wherever the message was waiting.
            self.elsewhere.append(change.message)
            self._send(change, report.received_at, report.carrier_id)
        if status == "delivered":
            change.delivered_at = report.received_at
        self._move(change, status, reason, self._refund_rules.get(report.carrier_id), report)

    def _write_receipt(self, change: MessageChange, report: Reported, *, final: bool) -> bool:
        """Keep a receipt with its segment; False if the segment had its final one already."""
        receipt = report.receipt
        if change.message.segments > 1 and report.number != WHOLE:
            before = self._states.get(report.message_id, {}).get(report.number)
            if before is not None and receipt_rules.receipt_result(*before).status is not None:
                if final and before[0] != receipt.state:
                    self.incidents.append(_late(report))
                return False
            self._keep_state(report.message_id, report.number, receipt.state, receipt.error)
        place = (report.message_id, report.number, report.attempt)
        new = self.parts.get(place) or self.doubled.get(place)
        if new is not None:
            new.state, new.error = receipt.state, receipt.error
            new.receipt, new.received_at = receipt.text, report.received_at
        # A segment that was recorded before is not inserted again, and gets its receipt there.
        if new is None or place in self.doubled:
            self.reports[place] = PartReport(
                *place, receipt.state, receipt.error, receipt.text, report.received_at
            )
        return True

    def _keep_state(self, message_id: UUID, number: int, state: str, error: str | None) -> None:
        states = self._states.setdefault(message_id, {})
        # Of two tries of a segment the first that came to an end counts.
        if number not in states or receipt_rules.receipt_result(*states[number]).status is None:
            states[number] = (state, error)

    def _judge_segments(self, message: LockedMessage) -> tuple[str | None, str | None]:
        outcomes = [
            receipt_rules.receipt_result(*state) for state in self._states.get(message.id, {}).values()
        ]
        for outcome in outcomes:
            if outcome.status is not None and outcome.status != "delivered":
                return outcome.status, outcome.reason
        delivered = sum(outcome.status == "delivered" for outcome in outcomes)
        return ("delivered", None) if delivered == message.segments else (None, None)

    def _end(self, change: MessageChange, ended: Ended) -> None:
        # It may have been claimed, or answered, since its time was found to be over.
        if change.status != ended.old:
            return
        if change.status == "queued":
            self.elsewhere.append(change.message)
            if ended.place is not None:
                self.places[ended.message_id] = ended.place
        if ended.incident is not None:
            self.incidents.append(Incident(ended.message_id, ended.incident, None))
        self._move(change, ended.status, ended.reason)

    def _resume(self, change: MessageChange, resumed: Resumed) -> None:
        message = change.message
        # It may have been settled while its row in `retries` was still there.
        if change.status != ("sending" if resumed.resend else "queued"):
            return
        self._let_wait(change)
        # At the clock, like a flow that was idle; its old turn is long past.
        avoid = resumed.carrier_id if resumed.avoid else None
        self.entries.append(
            QueueEntry(
                message.id,
                message.country,
                message.network,
                None,
                resumed.lane,
                None,
                again=True,
                expires_at=resumed.expires_at,
                avoid=avoid,
            )
        )
        if resumed.resend:
            self.incidents.append(Incident(message.id, "resend", resumed.carrier_id))

    def _refuse(self, change: MessageChange, refused: CarrierRefused) -> None:
        if refused.doubted:
            self._move(change, "unconfirmed", None)
            return
        if refused.is_untried:
            self._move(change, refused.status, refused.reason, REFUND_ALL)
            return
        self._move(change, refused.status, refused.reason)

    def _put_off(self, change: MessageChange, put_off: RetryLater) -> None:
        self._let_wait(change)
        message_id, carrier_id = put_off.message_id, put_off.carrier_id
        self.delays.append(NewRetry(message_id, put_off.wait_s, in_doubt=False, carrier_id=carrier_id))
        self.incidents.append(
            Incident(message_id, "retry", carrier_id, put_off.number, detail=put_off.detail)
        )

    def _doubt(self, change: MessageChange, doubtful: LeftInDoubt) -> None:
        message_id, carrier_id = doubtful.message_id, doubtful.carrier_id
        self._let_wait(change, "sending")
        self.delays.append(NewRetry(message_id, doubtful.wait_s, in_doubt=True, carrier_id=carrier_id))
        self.incidents.append(
            Incident(
                message_id,
                "doubt",
                carrier_id,
                recipient=change.message.recipient.removeprefix("+"),
                detail=doubtful.detail,
                claimed_at=self.own[message_id],
            )
        )

    def _let_wait(self, change: MessageChange, status: str = "queued") -> None:
        change.status = status
        self.changed[change.message.id] = change

    def _move(
        self,
        change: MessageChange,
        status: str,
        reason: str | None,
        refunded: Collection[str] | None = None,
        report: Reported | None = None,
    ) -> None:
        """Move a message to a final status, with refund, events and counts."""
        message = change.message
        if lifecycle.steps(change.status, status) is None:
            return
        if not lifecycle.is_final(change.status):
            self.settled[message.batch_id] = self.settled.get(message.batch_id, 0) + 1
        carrier_id = None if report is None else report.carrier_id
        is_sold = change.status in _SOLD
        self._count_end(message, change.status, status)
        self.endings.append(
            Ending(
                message.id,
                message.recipient,
                message.country,
                status,
                reason,
                carrier_id,
                None if report is None else report.received_at,
            )
        )
        change.status, change.reason = status, reason
        self.changed[message.id] = change
        self._tell(message, f"message.{status}")
        # Once: no status that is refunded can be left.
        paid_back = self._refunded if refunded is None else refunded
        is_refund = status in paid_back and message.cost > 0
        if is_refund:
            change.refunded_at = self.now
            self.refunds.append(message)
            self._tell(message, "message.refunded")
        # What was charged is given back, or what was not is kept, as where the customer pays for a doubt.
        if is_refund == is_sold:
            self.sales.append(Sale(carrier_id, message, is_refund))

    def _tell(self, message: LockedMessage, type_: str) -> None:
        self.events.append(NewEvent(message.account_id, type_, message.id, message.batch_id))

    def _count_end(self, message: LockedMessage, old: str, new: str) -> None:
        place = (message.account_id, local_ordinal(made_at_ms(message.batch_id)), message.country)
        ends = self.ended.setdefault(place, {})
        ends[new] = ends.get(new, 0) + 1
        if lifecycle.is_final(old):
            # It was counted before, as unconfirmed.
            ends[old] = ends.get(old, 0) - 1


def _late(report: Reported) -> Incident:
    return Incident(
        report.message_id, "late_receipt", report.carrier_id, report.number, detail=report.receipt.text
    )


def is_completed_by(batch: ClosedBatch, change: BatchChange) -> bool:
    """Tell whether this change completed the batch; a late receipt finds it complete."""
    return batch.pending == 0 and change.settled > 0


def refund_notice(batch: ClosedBatch, change: BatchChange) -> OwnerNotice | None:
    """Return the notice about a batch, once: when it is complete and much of its cost was given back.

    A late receipt may still refund more, which leads to a notice only if there was none before.
    """
    refunded = batch.refunded
    if batch.pending > 0 or not _is_large(refunded, batch.total_cost):
        return None
    if change.settled == 0 and _is_large(refunded - change.refunded, batch.total_cost):
        return None
    text = _(
        "{refunded} of {cost} for your batch of {time} was refunded, because messages were not delivered. "
        "See Batches in the dashboard."
    )
    return OwnerNotice(
        batch.account_id,
        _("A refund of {refunded} from Tumira").format(refunded=write_usd(refunded)),
        text.format(
            refunded=write_usd(refunded),
            cost=write_usd(batch.total_cost),
            time=f"{local_time(batch.created_at):%-d %b %H:%M}",
        ),
    )


def _is_large(refunded: Decimal, cost: Decimal) -> bool:
    return refunded >= REFUND_MIN and refunded >= cost * SHARE_MIN
