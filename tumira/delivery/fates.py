"""What became of a message that was handed over, in the words that the recorder writes down?"""

import random
from datetime import datetime

from tumira.core.backoff import retry_wait_s
from tumira.delivery.outcomes import Doubtful, Outcome, PutOff, Refused, Returned, Taken
from tumira.delivery.receipt_rules import key
from tumira.delivery.store.carriers import Carrier
from tumira.delivery.store.settlement import NewPart
from tumira.delivery.submission import Handover


def of_segment(
    handover: Handover, number: int, carrier: Carrier, times: tuple[datetime, datetime], carrier_ref: str
) -> Taken:
    """Return that a carrier took a segment, submitted and answered at these times; it is counted already."""
    claimed = handover.claimed
    part = NewPart(
        claimed.id,
        number,
        handover.attempt,
        carrier.id,
        handover.reference,
        carrier_ref,
        key(carrier_ref),
        claimed.claimed_at,
        *times,
    )
    return Taken(claimed.id, part, handover.complete, late=handover.closed)


def of_message(handover: Handover, carrier: Carrier, doubt: str) -> Outcome | None:
    """Return how the hand-over ended; None when all segments were taken, which was told one by one."""
    claimed = handover.claimed
    if handover.refusal == "QUEUE_EXPIRED":
        return Refused(claimed.id, handover.refusal, "expired", doubted=handover.attempt > 0)
    if handover.refusal is not None:
        return Refused(claimed.id, handover.refusal, doubted=handover.attempt > 0)
    if handover.overdue:
        return Doubtful(claimed.id, carrier.id, carrier.settings.doubt_wait_s, doubt)
    if handover.retry is not None:
        number, detail = handover.retry
        wait_s = retry_wait_s(handover.retries + 1, random.random())  # noqa: S311 - spreads, guards nothing
        return PutOff(claimed.id, carrier.id, number, wait_s, detail)
    if not handover.complete:
        return Returned(
            claimed.id, claimed.country, claimed.lane, claimed.turn, handover.again, claimed.avoid
        )
    return None
