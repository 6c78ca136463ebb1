"""Which messages are receipts about? Found by the carrier's id in any spelling, or in doubt by the number."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from tumira.actions.outcomes import Outcome, Reported, Taken
from tumira.ids import first_id
from tumira.rules.receipts import Receipt, key, same_number, spellings
from tumira.store import receipts
from tumira.store.receipts import Doubt, Match, Unmatched
from tumira.store.settlement import NewPart
from tumira.store.sql import Connection

# A message waits at most a day for a carrier, three days for its receipt, and a late one counts for a week.
REACH: Final = timedelta(days=11)

Arrived = tuple[Receipt, datetime]


def bounds(now: datetime) -> tuple[UUID, UUID]:
    """Return the ids between which a receipt of this moment may find its message."""
    low, high = (int(at.timestamp() * 1000) for at in (now - REACH, now + timedelta(hours=1)))
    return first_id(low), first_id(high)


async def match_by_id(
    connection: Connection, carrier_id: int, arrived: Sequence[Arrived]
) -> tuple[Sequence[Reported], Sequence[Arrived]]:
    """Return what receipts say of messages, and those receipts that match none."""
    keys = [
        (place, spelling)
        for place, (receipt, _) in enumerate(arrived)
        if receipt.carrier_ref is not None
        for spelling in spellings(receipt.carrier_ref)
    ]
    if not keys:
        return [], arrived
    found: dict[int, list[Match]] = {}
    for match in await receipts.match(connection, carrier_id, keys, bounds(arrived[0][1])):
        found.setdefault(match.place, []).append(match)
    reported: list[Reported] = []
    unmatched: list[Arrived] = []
    for place, (receipt, received_at) in enumerate(arrived):
        best = next(
            (one for one in found.get(place, []) if same_number(one.recipient, receipt.recipient)), None
        )
        if best is None:
            unmatched.append((receipt, received_at))
        else:
            reported.append(
                Reported(best.message_id, best.number, best.attempt, carrier_id, receipt, received_at)
            )
    return reported, unmatched


async def match_unmatched(
    connection: Connection, unmatched: Sequence[Unmatched]
) -> dict[int, Sequence[Outcome]]:
    """Try kept receipts again, and return for each that found its message what it says."""
    found: dict[int, Sequence[Outcome]] = {}
    numbers: dict[tuple[int, str], list[Unmatched]] = {}
    for one in unmatched:
        numbers.setdefault((one.carrier_id, one.receipt.recipient), []).append(one)
    for (carrier_id, recipient), kept in numbers.items():
        # Before the ids: an answer that is recorded in between is found by its id, and counts for itself.
        doubts = await receipts.list_doubts(connection, carrier_id, recipient, bounds(kept[0].received_at))
        left = []
        for one in kept:
            reported, _ = await match_by_id(connection, carrier_id, [(one.receipt, one.received_at)])
            if reported:
                found[one.id] = reported
            else:
                left.append(one)
        found.update(_match_by_number(left, doubts))
    return found


def _match_by_number(kept: Sequence[Unmatched], doubts: Sequence[Doubt]) -> dict[int, Sequence[Outcome]]:
    """Take receipts to one number, as they came, for those of messages in doubt.

    Which segment one is about it does not say. So a message gets them only when there is one for each segment
    that is open: then it does not matter, and nothing is sent again in part.
    """
    found: dict[int, Sequence[Outcome]] = {}
    left = list(kept)
    for doubt in doubts:
        open_numbers = [number for number in range(1, doubt.segments + 1) if number not in doubt.taken]
        if open_numbers and len(open_numbers) <= len(left):
            for number in open_numbers:
                one = left.pop(0)
                found[one.id] = _learn(one, doubt, number, complete=number == open_numbers[-1])
    return found


def _learn(unmatched: Unmatched, doubt: Doubt, number: int, *, complete: bool) -> Sequence[Outcome]:
    """Take a receipt as the answer that we never got, and as the receipt that it is."""
    carrier_ref = unmatched.receipt.carrier_ref or ""
    part = NewPart(
        message_id=doubt.message_id,
        number=number,
        attempt=doubt.resends,
        carrier_id=unmatched.carrier_id,
        reference=None,
        carrier_ref=carrier_ref,
        carrier_key=key(carrier_ref),
        claimed_at=doubt.doubted_at,
        submitted_at=doubt.doubted_at,
        answered_at=unmatched.received_at,
    )
    taken = Taken(doubt.message_id, part, complete, late=True)
    reported = Reported(
        doubt.message_id,
        number,
        doubt.resends,
        unmatched.carrier_id,
        unmatched.receipt,
        unmatched.received_at,
    )
    return [taken, reported]
