"""What becomes of messages when carriers answer, receipts come or time runs out? One transaction a group.

Every change of a message's status goes through here: it is held, moved by the one table of legal moves, paid
back where the carrier's rule says so, counted off its batch and told, all in the same transaction.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final
from uuid import UUID

from tumira.actions.outcomes import (
    Doubtful,
    Ended,
    Known,
    Outcome,
    PutOff,
    Refused,
    Reported,
    Resumed,
    Returned,
    Taken,
)
from tumira.ids import AccountId, BatchId, MessageId, new_id
from tumira.rules import lifecycle, receipts
from tumira.store import places, settlement
from tumira.store.places import Delay, Entry, Incident
from tumira.store.settlement import BatchChange, Change, NewEvent, NewPart, PartReport, Refund, Standing
from tumira.store.sql import Connection

REFUND_ALL: Final = frozenset({"failed", "expired", "undelivered"})

# What a worker says of a message that it has claimed, and that counts only as long as it has.
GIVEN_BACK: Final = (Refused, PutOff, Doubtful, Returned, Known)


async def settle(
    connection: Connection,
    outcomes: Sequence[Outcome],
    *,
    worker: str,
    refunded: Collection[str] = REFUND_ALL,
    before_writing: Callable[[], Awaitable[None]] | None = None,
    again: bool = False,
) -> int:
    """Carry out what became of messages, in order, and return how many of them changed.

    `refunded` are the final statuses whose cost this carrier's messages get back. `again` is for outcomes
    that may have been carried out before. The caller has begun a transaction, and commits it.
    """
    held = await settlement.hold(connection, sorted({outcome.message_id for outcome in outcomes}))
    return await settle_held(
        connection,
        held,
        outcomes,
        worker=worker,
        refunded=refunded,
        before_writing=before_writing,
        again=again,
    )


async def settle_held(
    connection: Connection,
    held: Mapping[UUID, Standing],
    outcomes: Sequence[Outcome],
    *,
    worker: str,
    refunded: Collection[str] = REFUND_ALL,
    before_writing: Callable[[], Awaitable[None]] | None = None,
    again: bool = False,
) -> int:
    """Do the same for messages that the caller holds already."""
    known = [outcome for outcome in outcomes if outcome.message_id in held]
    decision = _Settlement(held, refunded, datetime.now(UTC), again=again)
    long = [one.message_id for one in known if type(one) is Reported and held[one.message_id].segments > 1]
    if long:
        decision.add_parts_before(await settlement.list_states(connection, long))
    pieced = [one.message_id for one in known if type(one) is Taken and _is_pieced(one, held)]
    if pieced:
        decision.add_numbers_before(pieced, await settlement.list_numbers(connection, pieced))
    given_back = [one.message_id for one in known if isinstance(one, GIVEN_BACK)]
    if given_back:
        decision.own = await places.land(connection, given_back, worker)
    for outcome in known:
        decision.apply(outcome)
    if before_writing is not None:
        await before_writing()
    await decision.write(connection)
    return len(decision.changed)


@dataclass(slots=True)
class _Message:
    """A message while it is being decided about."""

    standing: Standing
    status: str
    sent_at: datetime | None = None
    delivered_at: datetime | None = None
    refunded_at: datetime | None = None
    reason: str | None = None


class _Settlement:
    """Decides outcomes one after the other, and collects what they change."""

    def __init__(
        self, held: Mapping[UUID, Standing], refunded: Collection[str], now: datetime, *, again: bool
    ) -> None:
        self._held = held
        self._again = again
        self._refunded = refunded
        self._now = now
        self.own: frozenset[UUID] = frozenset()
        self.changed: dict[UUID, _Message] = {}
        self._parts: dict[tuple[UUID, int, int], NewPart] = {}
        # Segments that may have been recorded before.
        self._doubled: dict[tuple[UUID, int, int], NewPart] = {}
        self._reports: dict[tuple[UUID, int, int], PartReport] = {}
        # Of messages of several segments: the state of each segment that has one.
        self._states: dict[UUID, dict[int, tuple[str, str | None]]] = {}
        self._settled: dict[BatchId, int] = {}
        self._refunds: list[Refund] = []
        self._events: list[tuple[Standing, str]] = []
        self._entries: list[Entry] = []
        self._delays: list[Delay] = []
        self._incidents: list[Incident] = []
        # Of messages that were tried more than once: the segments that a carrier took in any try.
        self._numbers: dict[UUID, set[int]] = {}
        self._landed: list[Standing] = []
        # Messages that may wait somewhere else than in flight.
        self._elsewhere: list[Standing] = []

    def add_parts_before(self, states: Sequence[tuple[UUID, int, str, str | None]]) -> None:
        """Take note of the segments that had a receipt before."""
        for message_id, number, state, error in states:
            self._keep_state(message_id, number, state, error)

    def add_numbers_before(self, ids: Sequence[UUID], numbers: Sequence[tuple[UUID, int]]) -> None:
        """Take note of the segments of these messages that were taken before."""
        self._numbers = {message_id: set() for message_id in ids}
        for message_id, number in numbers:
            self._numbers[message_id].add(number)

    def apply(self, outcome: Outcome) -> None:
        """Decide one outcome."""
        message = self.changed.get(outcome.message_id)
        if message is None:
            standing = self._held[outcome.message_id]
            message = _Message(standing, standing.status)
        match outcome:
            case Taken():
                self._take(message, outcome)
            case Reported():
                self._report(message, outcome)
            case Ended():
                self._end(message, outcome)
            case Refused():
                self._refuse(message, outcome)
            case PutOff():
                self._put_off(message, outcome)
            case Doubtful():
                self._doubt(message, outcome)
            case Resumed():
                self._resume(message, outcome)
            case Known():
                self._know(message, outcome)
            case Returned():
                self._return(message, outcome)

    def _know(self, message: _Message, known: Known) -> None:
        if known.message_id in self.own and message.status in {"queued", "sending"}:
            message.status = "sent"
            message.sent_at = known.submitted_at
            self.changed[known.message_id] = message

    def _return(self, message: _Message, returned: Returned) -> None:
        if self._goes_back(message):
            self._entries.append(
                Entry(returned.message_id, returned.country, returned.lane, returned.turn, returned.again)
            )

    def _take(self, message: _Message, taken: Taken) -> None:
        part = taken.part
        parts = self._doubled if taken.late or self._again else self._parts
        parts[part.message_id, part.number, part.attempt] = part
        complete = taken.complete
        numbers = self._numbers.get(taken.message_id)
        if numbers is not None:
            numbers.add(part.number)
            complete = len(numbers) >= message.standing.segments
        if complete and message.status in {"queued", "sending"}:
            if taken.late:
                self._elsewhere.append(message.standing)
            else:
                self._landed.append(message.standing)
            message.status = "sent"
            message.sent_at = part.submitted_at
            self.changed[taken.message_id] = message

    def _report(self, message: _Message, report: Reported) -> None:
        outcome = receipts.outcome(report.receipt.state, report.receipt.error)
        if lifecycle.is_final(message.status) and message.status != "unconfirmed":
            # Said before is a repetition; anything else is too late to count.
            if outcome.status is not None and outcome.status != message.status:
                self._incidents.append(_late(report))
            return
        if not self._write_receipt(message, report, final=outcome.status is not None):
            return
        status: str | None = outcome.status
        reason = outcome.reason
        if message.standing.segments > 1:
            status, reason = self._judge_segments(message.standing)
        if status is None:
            return
        if message.status in {"queued", "sending"}:
            # The receipt proves the hand-over, wherever we had the message waiting.
            self._elsewhere.append(message.standing)
            message.status = "sent"
            message.sent_at = report.received_at
        if status == "delivered":
            message.delivered_at = report.received_at
        self._move(message, status, reason)

    def _write_receipt(self, message: _Message, report: Reported, *, final: bool) -> bool:
        """Keep a receipt with its segment; False if the segment had its last one already."""
        receipt = report.receipt
        if message.standing.segments > 1:
            before = self._states.get(report.message_id, {}).get(report.number)
            if before is not None and receipts.outcome(*before).status is not None:
                if final and before[0] != receipt.state:
                    self._incidents.append(_late(report))
                return False
            self._keep_state(report.message_id, report.number, receipt.state, receipt.error)
        place = (report.message_id, report.number, report.attempt)
        new = self._parts.get(place) or self._doubled.get(place)
        if new is not None:
            new.state, new.error = receipt.state, receipt.error
            new.receipt, new.received_at = receipt.text, report.received_at
        else:
            self._reports[place] = PartReport(
                *place, receipt.state, receipt.error, receipt.text, report.received_at
            )
        return True

    def _keep_state(self, message_id: UUID, number: int, state: str, error: str | None) -> None:
        states = self._states.setdefault(message_id, {})
        # Of two tries of a segment the first that came to an end counts.
        if number not in states or receipts.outcome(*states[number]).status is None:
            states[number] = (state, error)

    def _judge_segments(self, standing: Standing) -> tuple[str | None, str | None]:
        """Tell what the receipts of its segments make of a message: one failure fails the whole."""
        outcomes = [receipts.outcome(*state) for state in self._states.get(standing.id, {}).values()]
        for outcome in outcomes:
            if outcome.status is not None and outcome.status != "delivered":
                return outcome.status, outcome.reason
        delivered = sum(outcome.status == "delivered" for outcome in outcomes)
        return ("delivered", None) if delivered == standing.segments else (None, None)

    def _end(self, message: _Message, ended: Ended) -> None:
        # It may have been claimed, or answered, since somebody decided that its time is over.
        if message.status != ended.old:
            return
        if message.status == "queued":
            self._elsewhere.append(message.standing)
        if ended.incident is not None:
            self._incidents.append(Incident(ended.message_id, ended.incident, None))
        self._move(message, ended.status, ended.reason)

    def _resume(self, message: _Message, resumed: Resumed) -> None:
        standing = message.standing
        # It may have been settled while its row in `retries` was still there.
        if message.status != ("sending" if resumed.resend else "queued"):
            return
        message.status = "queued"
        self.changed[standing.id] = message
        # At the clock, like a flow that was idle; its old turn is long past.
        self._entries.append(Entry(standing.id, standing.country, resumed.lane, None, again=True))
        if resumed.resend:
            self._incidents.append(Incident(standing.id, "resend", resumed.carrier_id))

    def _refuse(self, message: _Message, refused: Refused) -> None:
        if refused.message_id not in self.own or message.status not in {"queued", "sending"}:
            return
        if refused.doubted:
            self._move(message, "unconfirmed", None)
            return
        if refused.status == "expired":
            # No carrier had it, so no carrier's rule keeps the money.
            message.status = "queued"
            self._move(message, "expired", refused.reason, REFUND_ALL)
            return
        self._move(message, refused.status, refused.reason)

    def _put_off(self, message: _Message, put_off: PutOff) -> None:
        if self._goes_back(message):
            self._delays.append(
                Delay(put_off.message_id, put_off.wait_s, in_doubt=False, carrier_id=put_off.carrier_id)
            )
            self._incidents.append(
                Incident(
                    put_off.message_id, "retry", put_off.carrier_id, put_off.number, detail=put_off.detail
                )
            )

    def _doubt(self, message: _Message, doubtful: Doubtful) -> None:
        if doubtful.message_id in self.own and message.status in {"queued", "sending"}:
            message.status = "sending"
            self.changed[doubtful.message_id] = message
            self._delays.append(
                Delay(doubtful.message_id, doubtful.wait_s, in_doubt=True, carrier_id=doubtful.carrier_id)
            )
            self._incidents.append(
                Incident(
                    doubtful.message_id,
                    "doubt",
                    doubtful.carrier_id,
                    recipient=message.standing.recipient.removeprefix("+"),
                    detail=doubtful.detail,
                )
            )

    def _goes_back(self, message: _Message) -> bool:
        """Let a message wait again, if it is still ours and has not been settled."""
        if message.standing.id not in self.own or message.status not in {"queued", "sending"}:
            return False
        message.status = "queued"
        self.changed[message.standing.id] = message
        return True

    def _move(
        self, message: _Message, status: str, reason: str | None, refunded: Collection[str] | None = None
    ) -> None:
        """Move a message to a final status, with all that follows from it."""
        standing = message.standing
        if lifecycle.steps(message.status, status) is None:
            return
        if not lifecycle.is_final(message.status):
            self._settled[standing.batch_id] = self._settled.get(standing.batch_id, 0) + 1
        message.status, message.reason = status, reason
        self.changed[standing.id] = message
        self._events.append((standing, f"message.{status}"))
        if status in (refunded or self._refunded) and standing.cost > 0 and standing.refunded_at is None:
            message.refunded_at = self._now
            self._refunds.append(Refund(standing.account_id, standing.batch_id, standing.id, standing.cost))
            self._events.append((standing, "message.refunded"))

    async def write(self, connection: Connection) -> None:
        """Write all of it."""
        batches = await self._close_batches(connection)
        if self._refunds:
            await settlement.hold_accounts(connection, sorted({one.account_id for one in self._refunds}))
            await settlement.refund(connection, self._refunds)
        events = await self._number_events(connection, [one.id for one in batches if one.completed])
        if self._elsewhere:
            await self._leave(connection, self._elsewhere)
        landed = await settlement.write(
            connection,
            [
                Change(
                    MessageId(message_id),
                    message.status,
                    message.sent_at,
                    message.delivered_at,
                    message.refunded_at,
                    message.reason,
                )
                for message_id, message in self.changed.items()
            ],
            [standing.id for standing in self._landed],
            list(self._reports.values()),
            batches,
        )
        if landed < len(self._landed):
            # Somebody took us for dead meanwhile, and put what we had in flight somewhere else.
            await self._leave(connection, self._landed)
        if self._parts:
            await settlement.add_parts(connection, list(self._parts.values()))
        if self._doubled:
            await settlement.add_parts_once(connection, list(self._doubled.values()))
        if events:
            await settlement.tell(connection, events)
        if self._entries:
            await places.enqueue(connection, self._entries)
        if self._delays:
            await places.put_off(connection, self._delays)
        if self._incidents:
            await places.note(connection, self._incidents)

    async def _leave(self, connection: Connection, left: Sequence[Standing]) -> None:
        """Take messages out of wherever they wait."""
        countries = sorted({standing.country for standing in left})
        await places.leave(connection, [standing.id for standing in left], countries)

    async def _close_batches(self, connection: Connection) -> Sequence[BatchChange]:
        refunded: dict[BatchId, Decimal] = {}
        for refund in self._refunds:
            refunded[refund.batch_id] = refunded.get(refund.batch_id, Decimal(0)) + refund.amount
        touched = sorted(self._settled.keys() | refunded.keys())
        if not touched:
            return []
        pending = await settlement.hold_batches(connection, touched)
        return [
            BatchChange(
                batch_id,
                settled := self._settled.get(batch_id, 0),
                refunded.get(batch_id, Decimal(0)),
                # A batch that was completed before stays so when a late receipt refunds one of its messages.
                completed=settled > 0 and pending[batch_id] == settled,
            )
            for batch_id in touched
        ]

    async def _number_events(
        self, connection: Connection, completed: Sequence[BatchId]
    ) -> Sequence[NewEvent]:
        owners = {standing.batch_id: standing.account_id for standing, _ in self._events}
        told: list[tuple[AccountId, str, MessageId | None, BatchId]] = [
            *((one.account_id, kind, one.id, one.batch_id) for one, kind in self._events),
            *((owners[batch_id], "batch.completed", None, batch_id) for batch_id in completed),
        ]
        if not told:
            return []
        counts: dict[AccountId, int] = {}
        for account_id, *_ in told:
            counts[account_id] = counts.get(account_id, 0) + 1
        last = await settlement.count_events(connection, counts)
        following = {account_id: last[account_id] - count for account_id, count in counts.items()}
        now_ms = int(self._now.timestamp() * 1000)
        events = []
        for account_id, kind, message_id, batch_id in told:
            following[account_id] += 1
            events.append(
                NewEvent(
                    new_id(now_ms), account_id, following[account_id], kind, message_id, batch_id, self._now
                )
            )
        return events


def _is_pieced(taken: Taken, held: Mapping[UUID, Standing]) -> bool:
    """Tell whether a message may be complete with segments of several tries."""
    return (taken.late or taken.part.attempt > 0) and held[taken.message_id].segments > 1


def _late(report: Reported) -> Incident:
    return Incident(
        report.message_id, "late_receipt", report.carrier_id, report.number, detail=report.receipt.text
    )
