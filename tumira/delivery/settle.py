"""Settles groups of messages, each in one transaction.

Every change of a message's status goes through here: in the same transaction the message is locked, moved
along a legal transition, refunded where the carrier's rule says so, counted off its batch, announced as an
event and counted to the day on which it was accepted. `settle_rules` decides what follows from each outcome.
"""

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

from tumira.carriers.routes.rules import find_cost, list_costs
from tumira.carriers.routes.store import list_routes
from tumira.core.ids import AccountId, BatchId
from tumira.delivery import margin
from tumira.delivery.networks.ported import learn_networks, record_learnt
from tumira.delivery.outcomes import (
    AlreadyTaken,
    CarrierRefused,
    LeftInDoubt,
    Outcome,
    Released,
    Reported,
    RetryLater,
    Taken,
)
from tumira.delivery.settle_rules import (
    NO_RULES,
    REFUND_ALL,
    Consequences,
    Ending,
    is_completed_by,
    refund_notice,
)
from tumira.delivery.store import latency as latencies
from tumira.delivery.store import margins, refunds, settlement
from tumira.delivery.store import waiting as places
from tumira.delivery.store.margins import MarginRow
from tumira.delivery.store.settlement import BatchChange, ClosedBatch, LockedMessage, NewPart
from tumira.delivery.store.waiting import QueuePlace
from tumira.events import NewEvent
from tumira.postgres.connection import Connection
from tumira.pricing.networks import network_of
from tumira.sending.owner_notices import NoticeKind, notify_owners

# What a worker says of a message that it has claimed, and that counts only as long as it has.
CLAIM_OUTCOMES: Final = (CarrierRefused, RetryLater, LeftInDoubt, Released, AlreadyTaken)

_NOTHING: Final = Decimal(0)


class ChangedMeanwhileError(Exception):
    """A message had left the status that the caller remembered; nothing may be committed."""


async def settle(
    connection: Connection,
    outcomes: Sequence[Outcome],
    *,
    worker: str,
    locked: Mapping[UUID, LockedMessage] | None = None,
    remembered: Mapping[UUID, LockedMessage] | None = None,
    refunded: Collection[str] = REFUND_ALL,
    refund_rules: Mapping[int, Collection[str]] = NO_RULES,
    tell_sent: Collection[AccountId] = (),
    before_writing: Callable[[], Awaitable[None]] | None = None,
    again: bool = False,
    endings: list[Ending] | None = None,
) -> int:
    """Settle messages by their outcomes, in order, and return how many of them changed.

    `refunded` are the final statuses that are refunded for this carrier; for receipts of several carriers,
    `refund_rules` has those of each. `tell_sent` are the accounts that receive `message.sent`. `again` is for
    outcomes that may have been settled before. A caller that gives `endings` counts them after its commit;
    else they are counted here. The caller begins and commits the transaction.

    `locked` are the messages if the caller has locked them. `remembered` are all of them as they should be by
    now: they are decided without a look, and locked and compared as they are written. Then the connection has
    the settings `IN_KEY_ORDER`, and ChangedMeanwhileError says that one was not as it should be.

    A transaction settles once: messages are locked before batches, accounts and counters, so a second group
    in the same transaction would lock messages while it holds counters for which others wait.
    """
    if remembered is None and locked is None:
        locked = await settlement.lock_messages(connection, sorted({one.message_id for one in outcomes}))
    messages = remembered if locked is None else locked
    assert messages is not None
    known = [outcome for outcome in outcomes if outcome.message_id in messages]
    if not known:
        if before_writing is not None:
            await before_writing()
        return 0
    now = max(message.held_at for message in messages.values())
    decided = Consequences(
        messages, refunded, now, tell_sent=tell_sent, again=again, refund_rules=refund_rules
    )
    if locked is not None:
        await _read_before(connection, decided, known, locked, worker)
    for outcome in known:
        decided.apply(outcome)
    if before_writing is not None:
        await before_writing()
    await _write(connection, decided, are_locked=locked is not None)
    learnt = learn_networks(known, messages)
    if learnt:
        await record_learnt(connection, learnt)
    if endings is not None:
        endings.extend(decided.endings)
    elif decided.endings:
        await _count(connection, decided)
    return len(decided.changed)


async def _read_before(
    connection: Connection,
    decided: Consequences,
    known: Sequence[Outcome],
    locked: Mapping[UUID, LockedMessage],
    worker: str,
) -> None:
    """Read what the decisions about locked messages depend on besides."""
    long = [one.message_id for one in known if type(one) is Reported and locked[one.message_id].segments > 1]
    if long:
        decided.add_parts_before(await settlement.list_states(connection, long))
    pieced = [one.message_id for one in known if type(one) is Taken and _is_pieced(one, locked)]
    if pieced:
        decided.add_numbers_before(pieced, await settlement.list_numbers(connection, pieced))
    given_back = [one.message_id for one in known if isinstance(one, CLAIM_OUTCOMES)]
    if given_back:
        decided.own = await places.end_flight(connection, given_back, worker)


async def _count(connection: Connection, decided: Consequences) -> None:
    """Count how messages ended. It comes last, because all workers count in the same few rows."""
    counts: Counter[latencies.OutcomeKey] = Counter()
    for ending in decided.endings:
        network = network_of(ending.recipient, ending.country)
        carrier_id = latencies.NO_CARRIER if ending.carrier_id is None else ending.carrier_id
        counts[carrier_id, network, ending.country, ending.status] += 1
        if ending.reason is not None:
            counts[carrier_id, network, ending.country, ending.reason] += 1
    await latencies.add_outcomes(connection, latencies.slot_of(decided.now), counts)


async def _write(connection: Connection, decided: Consequences, *, are_locked: bool) -> None:
    """Write the decisions; locks are taken in the order of the statements.

    That is: batches, accounts, event counters, daily totals, notices, margins. The margins are added with the
    last statement that locks anything else.

    Accounts come as late as that allows, because an account's calls wait while its row is locked.
    """
    changes = _batch_changes(decided)
    if are_locked and changes:
        await settlement.lock_batches(connection, [one.id for one in changes])
    if decided.parts and not (changes or decided.events or decided.reports or decided.doubled):
        # Answers of which no customer is told, as most are.
        await _write_messages(connection, decided, changes, _margins(decided, decided.parts.values()))
        return
    batches, parts = await _write_messages(connection, decided, changes)
    if decided.refunds:
        await refunds.lock_accounts(connection, sorted({one.account_id for one in decided.refunds}))
        await refunds.refund(connection, decided.refunds)
    new = decided.events
    new.extend(
        NewEvent(batch.account_id, "batch.completed", None, batch.id)
        for batch, change in batches
        if is_completed_by(batch, change)
    )
    notices = [notice for notice in itertools.starmap(refund_notice, batches) if notice is not None]
    totals = _margins(decided, parts)
    with_events = totals if new and not notices else ()
    await settlement.tell(connection, new, decided.now, decided.ended, with_events)
    if notices:
        await notify_owners(connection, NoticeKind.REFUND, notices, decided.now)
    if totals and not with_events:
        await margins.add(connection, totals)


def _margins(decided: Consequences, parts: Iterable[NewPart]) -> Sequence[MarginRow]:
    return margin.add_up(parts, decided.messages, decided.sales, decided.now)


def _batch_changes(decided: Consequences) -> Sequence[BatchChange]:
    refunded: dict[BatchId, Decimal] = {}
    for refund in decided.refunds:
        refunded[refund.batch_id] = refunded.get(refund.batch_id, _NOTHING) + refund.cost
    return [
        BatchChange(batch_id, decided.settled.get(batch_id, 0), refunded.get(batch_id, _NOTHING))
        for batch_id in sorted(decided.settled.keys() | refunded.keys())
    ]


async def _write_messages(
    connection: Connection,
    decided: Consequences,
    batches: Sequence[BatchChange],
    totals: Sequence[MarginRow] = (),
) -> tuple[Sequence[tuple[ClosedBatch, BatchChange]], Sequence[NewPart]]:
    """Write messages, segments, batches, places and margins; return the batches and the new segments."""
    if decided.elsewhere:
        await _leave(connection, decided.elsewhere, decided.places)
    written = await settlement.write(
        connection,
        decided.changed.values(),
        [message.id for message in decided.landed],
        decided.parts.values(),
        decided.reports.values(),
        batches,
        totals,
    )
    if written.moved < len(decided.changed):
        raise ChangedMeanwhileError
    if written.landed < len(decided.landed):
        # Another worker declared us dead meanwhile, and moved our messages out of flight.
        await _leave(connection, decided.landed, {})
    parts = list(decided.parts.values())
    if decided.doubled:
        await _price(connection, decided)
        parts += await settlement.add_parts_once(connection, decided.doubled)
    # A later outcome of the same group may have settled what an earlier one had sent back to wait.
    entries = [one for one in decided.entries if decided.changed[one.message_id].status == "queued"]
    if entries:
        await places.enqueue(connection, entries)
    delays = [
        one
        for one in decided.delays
        if decided.changed[one.message_id].status == ("sending" if one.in_doubt else "queued")
    ]
    if delays:
        await places.insert_retries(connection, delays)
    if decided.incidents:
        await places.insert_incidents(connection, decided.incidents)
    changes = {change.id: change for change in batches}
    return [(batch, changes[batch.id]) for batch in written.batches], parts


async def _price(connection: Connection, decided: Consequences) -> None:
    """Give segments their costs that became known by a receipt instead of an answer."""
    costs = list_costs(await list_routes(connection))
    for part in decided.doubled.values():
        message = decided.messages[part.message_id]
        cost = find_cost(costs, part.carrier_id, message.country, message.network)
        if cost is not None and part.cost is None:
            margin.set_cost(part, cost, message.segments)


async def _leave(
    connection: Connection, left: Sequence[LockedMessage], known: Mapping[UUID, QueuePlace]
) -> None:
    await places.delete_waiting(connection, {message.id: message.country for message in left}, known)


def _is_pieced(taken: Taken, locked: Mapping[UUID, LockedMessage]) -> bool:
    """Tell whether a message may be complete with segments of several attempts."""
    return (taken.late or taken.part.attempt > 0) and locked[taken.message_id].segments > 1
