"""Actions on messages when time has passed: retries, expiry, missing receipts, dead workers.

Each works in one transaction: it finds candidates without locks, locks the messages and decides again.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.carriers import http_store as http_carriers
from tumira.carriers import store as carriers
from tumira.carriers.url import CarrierSettings
from tumira.core.backoff import RESENDS_MAX
from tumira.core.ids import MessageId, first_id
from tumira.delivery.match_receipts import MatchCandidates, find_candidates, match_kept
from tumira.delivery.outcomes import Ended, LeftInDoubt, Outcome, Released, Resumed
from tumira.delivery.receipt_rules import NUMBER_END
from tumira.delivery.settle import settle
from tumira.delivery.settle_rules import NO_RULES
from tumira.delivery.store import binds, queue, receipts, settlement
from tumira.delivery.store import waiting as places
from tumira.delivery.store.queue import PastAttempts
from tumira.delivery.store.settlement import LockedMessage
from tumira.delivery.store.waiting import BatchFacts, DueRetry, QueueEntry, QueuePlace
from tumira.postgres.connection import Connection
from tumira.pricing.networks import OTHER, list_queues, queue_of
from tumira.pricing.store import get_tariff
from tumira.sending import fairness, lifecycle
from tumira.sending.lifecycle import remaining_s

GROUP_MAX: Final = 500
# Unmatched receipts of each carrier that are tried at a time.
RECEIPTS_MAX: Final = 200
DOUBT_WAIT_S: Final = 30


async def resume_due(
    connection: Connection, settings: Mapping[int, CarrierSettings], now: datetime, well: Collection[str]
) -> int:
    fresh = first_id(int((now - lifecycle.VALIDITY).timestamp() * 1000))
    candidates = await places.list_due(connection, fresh, GROUP_MAX)
    if not candidates:
        return 0
    locked = await settlement.lock_messages(
        connection, sorted(one.message_id for one in candidates), skip_locked=True
    )
    # A message is not sent again, nor given up, before its own receipt was looked for.
    evidence = await _look_for_receipts(connection, candidates, locked)
    found = [outcome for outcomes in evidence.found.values() for outcome in outcomes]
    locked = {**locked, **evidence.locked}
    free = [one.message_id for one in candidates if one.message_id in locked.keys() - evidence.contested]
    due = await places.claim_due(connection, free) if free else []
    if not due:
        return 0
    ids = [one.message_id for one in due]
    past = await queue.read_past_attempts(connection, ids)
    batches = await places.find_batch_facts(
        connection, sorted({locked[identifier].batch_id for identifier in ids})
    )
    safe = await http_carriers.list_safe(connection) if any(one.in_doubt for one in due) else frozenset()
    # What a receipt settles is left alone by what follows: it is not `sending` any more.
    outcomes: list[Outcome] = list(found)
    for one in due:
        message = locked[one.message_id]
        batch = batches[message.batch_id]
        carrier = settings.get(one.carrier_id) if one.carrier_id is not None else None
        if one.in_doubt:
            stays = one.carrier_id in safe
            outcomes.append(_after_doubt(one, batch, carrier, past[one.message_id], now, stays=stays))
        elif remaining_s(batch.expires_at, now) is None:
            outcomes.append(_expired(message, past[one.message_id], well))
        else:
            outcomes.append(_resumed(one, batch, resend=False))
    refund_rules = await carriers.list_refund_rules(connection) if found else NO_RULES
    await settle(connection, outcomes, locked=locked, worker="", refund_rules=refund_rules)
    if evidence.found:
        await receipts.delete(connection, list(evidence.found))
    return len(due)


class _Evidence(Struct, frozen=True):
    """What unmatched receipts say of messages in doubt, with the messages locked for it."""

    found: Mapping[int, Sequence[Outcome]]
    locked: Mapping[UUID, LockedMessage]
    # Another transaction is deciding about these, and they wait for it.
    contested: frozenset[UUID]


async def _look_for_receipts(
    connection: Connection, candidates: Sequence[DueRetry], locked: Mapping[UUID, LockedMessage]
) -> _Evidence:
    """Find receipts that settle messages in doubt, however many others are kept."""
    ends: dict[int, set[str]] = {}
    for one in candidates:
        if one.in_doubt and one.carrier_id is not None and one.message_id in locked:
            ends.setdefault(one.carrier_id, set()).add(locked[one.message_id].recipient[-NUMBER_END:])
    looks: list[MatchCandidates] = []
    for carrier_id, own in sorted(ends.items()):
        kept = await receipts.list_to_numbers(connection, carrier_id, own)
        if kept:
            destinations = (await get_tariff(connection)).destinations
            looks.append(await find_candidates(connection, carrier_id, kept, destinations))
    others = sorted({identifier for one in looks for identifier in one.message_ids} - locked.keys())
    more = await settlement.lock_messages(connection, others, skip_locked=True) if others else {}
    matchings = [await match_kept(connection, one, locked.keys() | more.keys()) for one in looks]
    return _Evidence(
        {identifier: outcomes for one in matchings for identifier, outcomes in one.found.items()},
        more,
        frozenset().union(*(one.contested for one in matchings)),
    )


def _after_doubt(
    due: DueRetry,
    batch: BatchFacts,
    carrier: CarrierSettings | None,
    past: PastAttempts,
    now: datetime,
    *,
    stays: bool,
) -> Outcome:
    """Resend a message in doubt, or leave it unconfirmed, as the carrier's setting says.

    With `stays` the same carrier may take it again: it recognises a message that it has.
    """
    # Of a carrier that could be asked nobody asks once it is removed.
    held_back = carrier is not None and carrier.in_doubt != "resend"
    if held_back or past.resends >= RESENDS_MAX or remaining_s(batch.expires_at, now) is None:
        return Ended(due.message_id, "sending", "unconfirmed", None, incident="hold")
    # A handset joins segments of one sender only, so the carrier that has begun a message should finish it.
    return _resumed(due, batch, resend=True, avoid=not (past.taken or stays))


def _resumed(due: DueRetry, batch: BatchFacts, *, resend: bool, avoid: bool = False) -> Resumed:
    lane = fairness.lane(batch.recipients)
    return Resumed(due.message_id, due.carrier_id, lane, batch.expires_at, resend, avoid)


def _expired(
    message: LockedMessage, past: PastAttempts, well: Collection[str], place: QueuePlace | None = None
) -> Ended:
    reason = "QUEUE_EXPIRED" if message.country in well else "CARRIER_UNAVAILABLE"
    return _ended(message.id, past, "expired", reason, place)


def _ended(
    message_id: MessageId, past: PastAttempts, status: str, reason: str, place: QueuePlace | None
) -> Ended:
    """End a waiting message; after a doubt it may have reached a carrier, so it becomes unconfirmed."""
    if past.resends:
        return Ended(message_id, "queued", "unconfirmed", None, place=place)
    return Ended(message_id, "queued", status, reason, place=place)


async def list_expired(
    connection: Connection, now: datetime, count_max: int = GROUP_MAX
) -> Mapping[UUID, QueuePlace]:
    """Return messages that may not be submitted any more, with their places; may read the whole queue."""
    by = now + lifecycle.HAND_OVER_MIN
    first = first_id(int((by - lifecycle.VALIDITY).timestamp() * 1000))
    return await places.list_expired(connection, by, first, count_max)


async def expire(connection: Connection, found: Mapping[UUID, QueuePlace], well: Collection[str]) -> int:
    """End those of these messages that still wait; `well` are the countries with a working carrier."""
    locked = await settlement.lock_messages(connection, sorted(found), skip_locked=True) if found else {}
    if not locked:
        return 0
    past = await queue.read_past_attempts(connection, list(locked))
    outcomes = [_expired(one, past[one.id], well, found[one.id]) for one in locked.values()]
    return await settle(connection, outcomes, locked=locked, worker="")


async def fail_unroutable(connection: Connection, covered: Collection[str]) -> int:
    """Fail messages in queues that no carrier covers, and return how many were failed or moved.

    A message whose network has got a queue of its own since it was accepted, or lost it, is moved to the
    queue where it belongs now.
    """
    tariff = await get_tariff(connection)
    names = [name for one in tariff.destinations for name in list_queues(one.country) if name not in covered]
    found: dict[UUID, QueuePlace] = {}
    for name in await queue.list_waiting_queues(connection, names):
        if len(found) < GROUP_MAX:
            found.update(await places.list_in_queue(connection, name, GROUP_MAX - len(found)))
    locked = await settlement.lock_messages(connection, sorted(found)) if found else {}
    targets: dict[UUID, str] = {
        one.id: queue_of(one.country, one.network or OTHER, tariff.routed) for one in locked.values()
    }
    misplaced = {one: name for one, name in targets.items() if name != found[one][0]}
    moved = await places.move(connection, found, misplaced) if misplaced else 0
    lost = {one: message for one, message in locked.items() if one not in misplaced}
    if not lost:
        return moved
    past = await queue.read_past_attempts(connection, list(lost))
    outcomes = [_ended(MessageId(one), past[one], "failed", "NO_ROUTE", found[one]) for one in lost]
    return moved + await settle(connection, outcomes, locked=lost, worker="")


async def give_up_receipts(connection: Connection, now: datetime) -> int:
    # However old: a worker may not have run for weeks.
    low, high = first_id(0), first_id(int((now - lifecycle.RECEIPT_WAIT).timestamp() * 1000))
    ids = await places.list_unconfirmed(connection, low, high, now - lifecycle.RECEIPT_WAIT, GROUP_MAX)
    if not ids:
        return 0
    outcomes = [Ended(MessageId(one), "sent", "unconfirmed", None) for one in ids]
    return await settle(connection, outcomes, worker="")


class RetriedReceipts(Struct, frozen=True):
    found: int
    is_more_due: bool


async def retry_unmatched_receipts(connection: Connection) -> RetriedReceipts:
    """Try to match receipts again that matched nothing when they came, for every carrier in turn."""
    due = await receipts.claim_due(connection, RECEIPTS_MAX)
    if not due:
        return RetriedReceipts(0, is_more_due=False)
    destinations = (await get_tariff(connection)).destinations
    looks = [
        await find_candidates(connection, carrier_id, kept, destinations) for carrier_id, kept in due.items()
    ]
    ids = sorted({identifier for one in looks for identifier in one.message_ids})
    found: dict[int, Sequence[Outcome]] = {}
    if ids:
        locked = await settlement.lock_messages(connection, ids)
        for one in looks:
            found |= (await match_kept(connection, one, locked.keys())).found
    if found:
        outcomes = [outcome for own in found.values() for outcome in own]
        refund_rules = await carriers.list_refund_rules(connection)
        await settle(connection, outcomes, locked=locked, worker="", refund_rules=refund_rules)
        await receipts.delete(connection, list(found))
    return RetriedReceipts(len(found), is_more_due=any(len(kept) >= RECEIPTS_MAX for kept in due.values()))


async def give_back_claims(connection: Connection, ids: Collection[UUID], worker: str) -> int:
    """Give messages to the queue that a worker has claimed and certainly not submitted."""
    locked = await settlement.lock_messages(connection, sorted(ids))
    if not locked:
        return 0
    batches = await places.find_batch_facts(connection, sorted({one.batch_id for one in locked.values()}))
    outcomes = [
        Released(
            one.id,
            QueueEntry(
                one.id,
                one.country,
                one.network,
                None,
                fairness.lane(batches[one.batch_id].recipients),
                None,
                again=False,
                expires_at=batches[one.batch_id].expires_at,
            ),
        )
        for one in locked.values()
    ]
    return await settle(connection, outcomes, locked=locked, worker=worker)


async def take_over_from_dead(
    connection: Connection, settings: Mapping[int, CarrierSettings], lease_s: float
) -> int:
    """Put messages claimed by dead workers in doubt, and release their binds."""
    claims: dict[str, Mapping[UUID, int]] = {}
    room = GROUP_MAX
    for worker in await binds.lock_dead_workers(connection, lease_s):
        # With a full group, the last of them may have more, and is found dead once more.
        if room == 0:
            break
        claims[worker] = await places.list_in_flight(connection, worker, room)
        room -= len(claims[worker])
    # All at once and by id, whichever worker had them: receipts for them may be settled just now.
    ids = sorted(message_id for in_flight in claims.values() for message_id in in_flight)
    locked = await settlement.lock_messages(connection, ids) if ids else {}
    doubted = 0
    for worker, in_flight in claims.items():
        outcomes = [
            LeftInDoubt(
                MessageId(message_id),
                carrier_id,
                settings[carrier_id].doubt_wait_s if carrier_id in settings else DOUBT_WAIT_S,
                "its worker died",
            )
            for message_id, carrier_id in in_flight.items()
        ]
        if outcomes:
            doubted += await settle(connection, outcomes, locked=locked, worker=worker)
    emptied = list(claims) if room else list(claims)[:-1]
    if emptied:
        await binds.delete_workers(connection, emptied)
    return doubted
