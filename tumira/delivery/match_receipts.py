"""Finds the messages that receipts are about: by the carrier's id, or in doubt by the number."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec import Struct

from tumira.core.ids import MessageId, first_id
from tumira.delivery import doubts
from tumira.delivery.doubts import InDoubtSubmission, Sighting
from tumira.delivery.outcomes import WHOLE, Outcome, Reported, Taken
from tumira.delivery.receipt_rules import (
    NUMBER_END,
    Receipt,
    UnmatchedReceipt,
    key,
    same_number,
    spellings,
    whole_numbers,
)
from tumira.delivery.store import receipts
from tumira.delivery.store.receipts import (
    DOUBTS_MAX,
    TO_NUMBER_MAX,
    Doubt,
    KnownPart,
    Match,
)
from tumira.delivery.store.settlement import NewPart
from tumira.postgres.connection import Connection
from tumira.pricing.destinations import Destination
from tumira.pricing.phone_numbers import digits
from tumira.sending.lifecycle import is_final

# A message waits at most a day for a carrier, three days for its receipt, and a late one counts for a week.
REACH: Final = timedelta(days=11)
# Carriers use their ids again, but not so soon. An id tells more than a clock that may have been set back.
REUSED_AFTER: Final = timedelta(hours=1)

Arrived = tuple[Receipt, datetime]


def bounds(now: datetime) -> tuple[UUID, UUID]:
    """Return the ids between which a receipt of this moment may find its message."""
    low, high = (int(at.timestamp() * 1000) for at in (now - REACH, now + timedelta(hours=1)))
    return first_id(low), first_id(high)


def _reach(times: Collection[datetime]) -> tuple[UUID, UUID]:
    return bounds(min(times))[0], bounds(max(times))[1]


async def find_by_id(
    connection: Connection, carrier_id: int, arrived: Sequence[Arrived], as_spelt: Collection[int] = ()
) -> Sequence[Sequence[Match]]:
    """Return for each receipt the segments that it may be about, the likeliest first.

    An id as the carrier spells it comes before another reading of it, then the newest message. Receipts at
    the places `as_spelt` are looked up by their own spelling only.
    """
    keys: dict[tuple[int, str], int] = {}
    for place, (receipt, _) in enumerate(arrived):
        if receipt.carrier_ref is None:
            continue
        if place in as_spelt:
            keys[place, key(receipt.carrier_ref)] = 0
            continue
        for rank, spelling in enumerate(spellings(receipt.carrier_ref)):
            keys[place, spelling] = rank
    found: list[list[Match]] = [[] for _ in arrived]
    if not keys:
        return found
    reach = _reach([received_at for _, received_at in arrived])
    for match in await receipts.find_segments(connection, carrier_id, keys, reach):
        if same_number(match.recipient, arrived[match.place][0].recipient):
            found[match.place].append(match)
    for matches in found:
        matches.sort(key=lambda one: (keys[one.place, one.key], -one.message_id.int))
    return found


class MatchCandidates(Struct, frozen=True):
    """Unmatched receipts of one carrier, and what they may be about."""

    carrier_id: int
    kept: Sequence[UnmatchedReceipt]
    destinations: Sequence[Destination]
    # All messages that may be settled by them.
    message_ids: frozenset[UUID]
    # The numbers to which tries are in doubt.
    doubted: frozenset[str]


async def find_candidates(
    connection: Connection,
    carrier_id: int,
    kept: Sequence[UnmatchedReceipt],
    destinations: Sequence[Destination],
) -> MatchCandidates:
    """Find what unmatched receipts may be about, without locks; `match_kept` decides."""
    found = await _find_kept(connection, carrier_id, kept)
    numbers = {number for one in kept for number in whole_numbers(one.receipt.recipient, destinations)}
    tries = await _list_doubts(connection, carrier_id, numbers, kept)
    messages = frozenset({one.message_id for one in found.values()} | {one.message_id for one in tries})
    doubted = frozenset(f"+{doubt.recipient}" for doubt in tries)
    return MatchCandidates(carrier_id, kept, destinations, messages, doubted)


class MatchResult(Struct, frozen=True):
    """Outcomes by receipt id, and the messages that another transaction is deciding about."""

    found: Mapping[int, Sequence[Outcome]]
    contested: frozenset[UUID]


async def match_kept(connection: Connection, looked: MatchCandidates, held: Collection[UUID]) -> MatchResult:
    """Decide what unmatched receipts are about; the caller has locked as many of the messages as it could.

    The order of reading matters. A receipt is about a message that had been claimed: the message is still
    being submitted, or has become a doubt, or its ids are known by then.
    """
    carrier_id, destinations = looked.carrier_id, looked.destinations
    kept = {one.id: one for one in looked.kept}
    by_number: Mapping[str, Sequence[UnmatchedReceipt]] = {}
    tries: Sequence[Doubt] = ()
    if looked.doubted:
        siblings = await receipts.list_to_numbers(
            connection, carrier_id, {number[-NUMBER_END:] for number in looked.doubted}
        )
        kept = {one.id: one for one in siblings} | kept
        by_number = _sort_by_number(siblings, looked.doubted, destinations)
        numbers = {
            number for one in siblings for number in whole_numbers(one.receipt.recipient, destinations)
        }
        busy = await receipts.list_being_submitted(
            connection, carrier_id, sorted(numbers), _reach([one.received_at for one in kept.values()])
        )
        tries = await _list_doubts(connection, carrier_id, looked.doubted, kept.values())
        by_number = {
            number: own
            for number, own in by_number.items()
            if not any(whole_numbers(one.receipt.recipient, destinations) & busy for one in own)
        }
    known = await _find_kept(connection, carrier_id, list(kept.values()))
    found: dict[int, Sequence[Outcome]] = {
        identifier: [_reported(match, carrier_id, kept[identifier])]
        # In the order in which they came.
        for identifier, match in sorted(known.items())
        if match.message_id in held
    }
    contested: set[UUID] = set()
    for submissions, own in await _evidence(connection, tries, by_number, known.keys()):
        messages = {one.message_id for one in submissions}
        if messages <= set(held):
            for (submission, number), sighting in doubts.assign(submissions, doubts.sight(own)):
                found |= _learn(carrier_id, submission, number, sighting)
        elif own:
            contested |= messages
    free = await receipts.lock_free(connection, list(found)) if found else frozenset()
    # A message is settled by all of its receipts together, or not at all.
    contested |= {
        outcome.message_id
        for identifier, outcomes in found.items()
        if identifier not in free
        for outcome in outcomes
    }
    return MatchResult(
        {
            identifier: outcomes
            for identifier, outcomes in found.items()
            if all(outcome.message_id not in contested for outcome in outcomes)
        },
        frozenset(contested),
    )


async def _find_kept(
    connection: Connection, carrier_id: int, kept: Sequence[UnmatchedReceipt]
) -> Mapping[int, Match]:
    """Find the segments of unmatched receipts by id; none that was claimed long after the receipt came."""
    found = await find_by_id(connection, carrier_id, [(one.receipt, one.received_at) for one in kept])
    best: dict[int, Match] = {}
    for one, matches in zip(kept, found, strict=True):
        own = [match for match in matches if match.claimed_at <= one.received_at + REUSED_AFTER]
        if own:
            best[one.id] = own[0]
    return best


async def _list_doubts(
    connection: Connection, carrier_id: int, numbers: Collection[str], kept: Iterable[UnmatchedReceipt]
) -> Sequence[Doubt]:
    if not numbers:
        return ()
    recipients = sorted(digits(number) for number in numbers)
    reach = _reach([one.received_at for one in kept])
    return await receipts.list_doubts(connection, carrier_id, recipients, reach)


def _sort_by_number(
    kept: Iterable[UnmatchedReceipt], doubted: Collection[str], destinations: Sequence[Destination]
) -> Mapping[str, Sequence[UnmatchedReceipt]]:
    sorted_: dict[str, list[UnmatchedReceipt]] = {}
    for one in kept:
        meant = whole_numbers(one.receipt.recipient, destinations) & frozenset(doubted)
        if len(meant) == 1:
            sorted_.setdefault(next(iter(meant)), []).append(one)
    return {number: own for number, own in sorted_.items() if len(own) < TO_NUMBER_MAX}


async def _evidence(
    connection: Connection,
    tries: Sequence[Doubt],
    by_number: Mapping[str, Sequence[UnmatchedReceipt]],
    known: Collection[int],
) -> Sequence[tuple[Sequence[InDoubtSubmission], Sequence[UnmatchedReceipt]]]:
    """Return for each number the submissions in doubt, and the receipts that no known id explains."""
    if not by_number:
        return ()
    parts: dict[UUID, list[KnownPart]] = {}
    for part in await receipts.list_known_parts(connection, sorted({one.message_id for one in tries})):
        parts.setdefault(part.message_id, []).append(part)
    evidence = []
    for number, own in by_number.items():
        doubted = [one for one in tries if f"+{one.recipient}" == number]
        if not doubted or len(doubted) > DOUBTS_MAX:
            continue
        ids = [part.carrier_ref for one in doubted for part in parts.get(one.message_id, ())]
        unexplained = [
            one
            for one in own
            if one.id not in known
            and not any(doubts.is_alike(one.receipt.carrier_ref, identifier) for identifier in ids)
        ]
        submissions = {
            (one.message_id, one.attempt): _submission(one, parts.get(one.message_id, ())) for one in doubted
        }
        evidence.append((list(submissions.values()), unexplained))
    return evidence


def _submission(doubt: Doubt, parts: Iterable[KnownPart]) -> InDoubtSubmission:
    parts = list(parts)
    numbers = range(1, doubt.segments + 1) or (WHOLE,)
    # Segments that a carrier was known to have were not submitted again.
    known = {
        part.number
        for part in parts
        if part.attempt == doubt.attempt
        or (part.attempt < doubt.attempt and part.answered_at < doubt.claimed_at)
    }
    is_over = is_final(doubt.status) and doubt.status != "unconfirmed"
    taken = {part.number for part in parts}
    return InDoubtSubmission(
        doubt.message_id,
        doubt.attempt,
        doubt.claimed_at,
        doubt.segments,
        [number for number in numbers if number not in known],
        frozenset() if is_over else frozenset(numbers) - taken,
    )


def _learn(
    carrier_id: int, submission: InDoubtSubmission, number: int, sighting: Sighting
) -> dict[int, Sequence[Outcome]]:
    """Take a receipt as the missing response, and as the receipt that it is."""
    message_id = MessageId(submission.message_id)
    first = sighting.receipts[0]
    carrier_ref = first.receipt.carrier_ref or ""
    part = NewPart(
        message_id=message_id,
        number=number,
        attempt=submission.attempt,
        carrier_id=carrier_id,
        reference=None,
        carrier_ref=carrier_ref,
        carrier_key=key(carrier_ref),
        claimed_at=submission.claimed_at,
        submitted_at=submission.claimed_at,
        answered_at=first.received_at,
    )
    learnt: dict[int, Sequence[Outcome]] = {}
    for one in sighting.receipts:
        reported = Reported(message_id, number, submission.attempt, carrier_id, one.receipt, one.received_at)
        taken = Taken(message_id, part, complete=submission.segments <= 1, late=True)
        learnt[one.id] = [taken, reported] if one is first else [reported]
    return learnt


def _reported(match: Match, carrier_id: int, kept: UnmatchedReceipt) -> Reported:
    return Reported(match.message_id, match.number, match.attempt, carrier_id, kept.receipt, kept.received_at)
