"""What is done about messages when time has passed and nothing came? Each function works in one transaction.

They look for candidates without locks, then hold the messages and decide again by what they find.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from tumira.actions.match_receipts import match_unmatched
from tumira.actions.outcomes import Doubtful, Ended, Outcome, Resumed
from tumira.actions.settle_messages import settle, settle_held
from tumira.ids import MessageId, first_id, made_at_ms
from tumira.rules import turns, validity
from tumira.rules.backoff import RESENDS_MAX
from tumira.rules.carrier_urls import CarrierSettings
from tumira.store import carriers, places, queue, receipts, settlement
from tumira.store.places import Due
from tumira.store.queue import Past
from tumira.store.settlement import Standing
from tumira.store.sql import Connection

GROUP_MAX: Final = 500
DOUBT_WAIT_S: Final = 30


async def resume_due(
    connection: Connection, settings: Mapping[int, CarrierSettings], now: datetime, well: Collection[str]
) -> int:
    """Give messages whose wait is over another turn, or end them; return how many there were."""
    candidates = await places.list_due(connection, GROUP_MAX)
    if not candidates:
        return 0
    held = await settlement.hold_free(connection, sorted(one.message_id for one in candidates))
    due = await places.take_due(connection, list(held)) if held else []
    if not due:
        return 0
    ids = [one.message_id for one in due]
    past = await queue.read_past(connection, ids)
    recipients = await places.count_recipients(
        connection, sorted({held[identifier].batch_id for identifier in ids})
    )
    outcomes: list[Outcome] = []
    for one in due:
        standing = held[one.message_id]
        lane = turns.lane(recipients[standing.batch_id])
        carrier = settings.get(one.carrier_id) if one.carrier_id is not None else None
        if one.in_doubt:
            outcomes.append(_after_doubt(one, lane, carrier, past[one.message_id], now))
        elif _is_stale(one.message_id, now):
            outcomes.append(_expired(standing, past[one.message_id], well))
        else:
            outcomes.append(Resumed(one.message_id, one.carrier_id, lane, resend=False))
    await settle_held(connection, held, outcomes, worker="")
    return len(due)


def _after_doubt(due: Due, lane: int, carrier: CarrierSettings | None, past: Past, now: datetime) -> Outcome:
    """Send a message again that may not have arrived, as the carrier's setting says, or leave it open."""
    held_back = carrier is not None and carrier.in_doubt == "hold"
    if held_back or past.resends >= RESENDS_MAX or _is_stale(due.message_id, now):
        return Ended(due.message_id, "sending", "unconfirmed", None, incident="hold")
    # A handset joins segments of one sender only, so what one carrier has begun it should end.
    return Resumed(due.message_id, due.carrier_id, lane, resend=True, avoid=not past.taken)


def _is_stale(message_id: UUID, now: datetime) -> bool:
    return made_at_ms(message_id) < int((now - validity.VALIDITY).timestamp() * 1000)


def _expired(standing: Standing, past: Past, well: Collection[str]) -> Ended:
    reason = "QUEUE_EXPIRED" if standing.country in well else "CARRIER_UNAVAILABLE"
    return _ended(standing.id, past, "expired", reason)


def _ended(message_id: MessageId, past: Past, status: str, reason: str) -> Ended:
    """End a message that waits; one that was in doubt may have reached its carrier, so it stays open."""
    if past.resends:
        return Ended(message_id, "queued", "unconfirmed", None)
    return Ended(message_id, "queued", status, reason)


async def expire_waiting(connection: Connection, now: datetime, well: Collection[str]) -> int:
    """End messages that have waited past their validity; `well` are the countries with a working carrier."""
    before = first_id(int((now - validity.VALIDITY).timestamp() * 1000))
    ids = await places.list_older(connection, before, GROUP_MAX)
    if not ids:
        return 0
    held = await settlement.hold_free(connection, sorted(ids))
    if not held:
        return 0
    past = await queue.read_past(connection, list(held))
    outcomes = [_expired(standing, past[standing.id], well) for standing in held.values()]
    return await settle_held(connection, held, outcomes, worker="")


async def fail_unroutable(connection: Connection, covered: Collection[str] | None) -> int:
    """Fail messages to countries that no carrier covers; None if some carrier covers them all."""
    if covered is None:
        return 0
    failed = 0
    for country in await queue.waiting_countries(connection):
        if country not in covered:
            ids = await places.list_of_country(connection, country, GROUP_MAX)
            if not ids:
                continue
            past = await queue.read_past(connection, ids)
            outcomes = [_ended(MessageId(one), past[one], "failed", "NO_ROUTE") for one in ids]
            failed += await settle(connection, outcomes, worker="")
    return failed


async def give_up_receipts(connection: Connection, now: datetime) -> int:
    """Stop waiting for receipts that have not come in 72 hours."""
    # However old: a worker may not have run for weeks.
    low, high = first_id(0), first_id(int((now - validity.RECEIPT_WAIT).timestamp() * 1000))
    ids = await places.list_unconfirmed(connection, low, high, now - validity.RECEIPT_WAIT, GROUP_MAX)
    if not ids:
        return 0
    outcomes = [Ended(MessageId(one), "sent", "unconfirmed", None) for one in ids]
    return await settle(connection, outcomes, worker="")


async def try_unmatched_receipts(connection: Connection) -> int:
    """Try receipts again that matched nothing when they came, and return how many found their message."""
    due = await receipts.take_due(connection, GROUP_MAX)
    if not due:
        return 0
    found = await match_unmatched(connection, due)
    if found:
        refunded = await settlement.list_refund_rules(connection)
        for carrier_id in {one.carrier_id for one in due if one.id in found}:
            outcomes = [
                outcome for one in due if one.carrier_id == carrier_id for outcome in found.get(one.id, ())
            ]
            await settle(connection, outcomes, worker="", refunded=refunded[carrier_id])
        await receipts.delete(connection, list(found))
    return len(found)


async def take_over_from_dead(
    connection: Connection, settings: Mapping[int, CarrierSettings], lease_s: float
) -> int:
    """Put in doubt what workers had claimed that are not alive any more, and give back their binds."""
    doubted = 0
    for worker in await carriers.bury_dead(connection, lease_s):
        in_flight = await places.list_in_flight(connection, worker, GROUP_MAX)
        if in_flight:
            outcomes = [
                Doubtful(
                    MessageId(message_id),
                    carrier_id,
                    settings[carrier_id].doubt_wait_s if carrier_id in settings else DOUBT_WAIT_S,
                    "its worker died",
                )
                for message_id, carrier_id in in_flight.items()
            ]
            doubted += await settle(connection, outcomes, worker=worker)
        if len(in_flight) < GROUP_MAX:
            await carriers.forget_worker(connection, worker)
    return doubted
