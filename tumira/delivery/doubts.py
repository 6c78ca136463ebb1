"""Proof of the outcome of submissions in doubt: receipts to their number, where the carrier's id was lost.

Nothing here is guessed. A receipt to the number that matches no known id may be about any submission to it
that is in doubt and was claimed before the receipt came. It counts only where no other reading is left.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from tumira.delivery import receipt_rules as receipts
from tumira.delivery.receipt_rules import ReceiptResult, UnmatchedReceipt, id_condition


class InDoubtSubmission(Struct, frozen=True):
    """A submission that ended in doubt, and its segments whose carrier id is unknown."""

    message_id: UUID
    attempt: int
    claimed_at: datetime
    segments: int
    open_numbers: Sequence[int]
    # The segments that the message still needs: no try of theirs is known to have been taken.
    needed: frozenset[int]


class Sighting(Struct):
    """All receipts with one carrier id, in any spelling; however many there are, it is one segment."""

    receipts: list[UnmatchedReceipt]

    @property
    def received_at(self) -> datetime:
        return self.receipts[0].received_at

    def outcomes(self) -> frozenset[ReceiptResult]:
        """Return the results it reports: none yet, one, or several that contradict."""
        found = (receipts.receipt_result(one.receipt.state, one.receipt.error) for one in self.receipts)
        return frozenset(outcome for outcome in found if outcome.status is not None)


Slot = tuple[InDoubtSubmission, int]


def is_alike(a: str | None, b: str | None) -> bool:
    """Tell whether two ids may be the same; a missing id may be any.

    More spellings count here than where a message is found by its id: a repetition that is taken for a
    second receipt would prove a segment that the carrier never had.
    """
    return a is None or b is None or id_condition(a, b) is not None


def sight(kept: Iterable[UnmatchedReceipt]) -> Sequence[Sighting]:
    sightings: list[Sighting] = []
    for one in sorted(kept, key=lambda one: (one.received_at, one.id)):
        reference = one.receipt.carrier_ref
        for sighting in sightings:
            if any(is_alike(reference, other.receipt.carrier_ref) for other in sighting.receipts):
                sighting.receipts.append(one)
                break
        else:
            sightings.append(Sighting([one]))
    return sightings


def assign(
    submissions: Collection[InDoubtSubmission], sightings: Collection[Sighting]
) -> Sequence[tuple[Slot, Sighting]]:
    """Return which segments of the submissions to one number its receipts are certainly about.

    A receipt that came before a submission was claimed is not about it. So submissions are added one by one
    in the order of their claims, and each time only receipts that came before the next claim are used.
    """
    found: list[tuple[Slot, Sighting]] = []
    pool: list[Slot] = []
    left = list(sightings)
    ordered = sorted(submissions, key=lambda one: (one.claimed_at, one.message_id, one.attempt))
    for place, submission in enumerate(ordered):
        pool.extend((submission, number) for number in submission.open_numbers)
        following = ordered[place + 1].claimed_at if place + 1 < len(ordered) else None
        at_hand = [
            one
            for one in left
            if (following is None or one.received_at < following)
            and any(slot[0].claimed_at <= one.received_at for slot in pool)
        ]
        for slot, sighting in _share(pool, at_hand):
            found.append((slot, sighting))
            pool.remove(slot)
            left.remove(sighting)
    return found


def _share(pool: Sequence[Slot], at_hand: Sequence[Sighting]) -> Sequence[tuple[Slot, Sighting]]:
    """Divide receipts among the segments that they may be about; nothing if that is not certain."""
    if not pool or not at_hand or any(len(one.outcomes()) > 1 for one in at_hand):
        return ()
    if len({submission.message_id for submission, _ in pool}) == 1:
        return _pair(pool, at_hand) if _proves(pool, at_hand) else ()
    # Which of several messages each is about does not matter when there is one for each of their segments,
    # and all say the same.
    said = {one.outcomes() for one in at_hand}
    if len(at_hand) != len(pool) or len(said) > 1 or said == {frozenset()}:
        return ()
    pairs = _pair(pool, at_hand)
    return pairs if len(pairs) == len(pool) else ()


def _proves(pool: Sequence[Slot], at_hand: Sequence[Sighting]) -> bool:
    """Tell whether the carrier has every segment that one message needs.

    It has a segment when there are more receipts than all others could have caused, over all attempts.
    """
    if len(at_hand) > len(pool) and len({one.outcomes() for one in at_hand}) > 1:
        return False
    needed = pool[0][0].needed
    return all(len(at_hand) > sum(number != other for _, other in pool) for number in needed)


def _pair(pool: Sequence[Slot], at_hand: Sequence[Sighting]) -> Sequence[tuple[Slot, Sighting]]:
    """Give each receipt a segment of a submission that was claimed before it, needed segments first."""
    free = list(pool)
    missing = {(submission.message_id, number) for submission, number in pool if number in submission.needed}
    pairs: list[tuple[Slot, Sighting]] = []
    for sighting in at_hand:
        slots = [slot for slot in free if slot[0].claimed_at <= sighting.received_at]
        if not slots:
            continue
        slot = next((one for one in slots if (one[0].message_id, one[1]) in missing), slots[0])
        free.remove(slot)
        missing.discard((slot[0].message_id, slot[1]))
        pairs.append((slot, sighting))
    return () if missing else pairs
