"""When a refund is large enough for a notice to the owner, and what the notice says."""

from decimal import Decimal
from typing import Final

from tumira.core.days import local_time
from tumira.core.translation import _
from tumira.delivery.store.settlement import BatchChange, LockedBatch
from tumira.sending.owner_notices import OwnerNotice, write_usd

# Both are needed: a few failed numbers of a large batch are usual, and a few cents are no news.
REFUND_MIN: Final = Decimal(5)
SHARE_MIN: Final = Decimal("0.1")


def refund_notice(batch: LockedBatch, change: BatchChange) -> OwnerNotice | None:
    """Return the notice about a batch, once: when it is complete and much of its cost was given back.

    A late receipt may still refund more, which leads to a notice only if there was none before.
    """
    was_complete = batch.pending == 0
    refunded = batch.refunded + change.refunded
    if not (was_complete or change.completed) or not _is_large(refunded, batch.total_cost):
        return None
    if was_complete and _is_large(batch.refunded, batch.total_cost):
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
