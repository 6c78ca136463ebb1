"""How long is a message worth sending, its receipt worth awaiting, and its text worth keeping?"""

from datetime import datetime, timedelta
from typing import Final

# From the moment it was accepted. A message that waits longer is not sent any more.
VALIDITY: Final = timedelta(hours=24)
# From the hand-over; after it the message counts as unconfirmed, and a late receipt still as a receipt.
RECEIPT_WAIT: Final = timedelta(hours=72)
LATE_RECEIPT_WAIT: Final = timedelta(days=7)
# From the completion of its batch.
TEXT_KEPT: Final = timedelta(days=7)


def left_s(accepted_at: datetime, now: datetime) -> int:
    """Return for how many seconds a message is still worth sending; none or fewer when it is not."""
    return int((accepted_at + VALIDITY - now).total_seconds())
