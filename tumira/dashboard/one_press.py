"""How does one press start one top-up? The form is shown with the id that its top-up will have.

However often the form comes, the second one finds the top-up of the first.
"""

import time
from typing import Final

from tumira.core.ids import TOP_UP, AccountId, TopUpId, made_at_ms, new_id, read_id, write_id
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups

# A page that was left open for longer may show a price or a rate that has changed.
OPEN_FOR_MS: Final = 24 * 3600 * 1000
# The form may have been shown by a machine whose clock is a little ahead of ours.
AHEAD_MS: Final = 60_000
STALE: Final = "This page was open for very long. Check it, and press again."

_VERSION: Final = 7


def new_form_id() -> str:
    """Make the id of a top-up that somebody may start."""
    return write_id(TOP_UP, new_id(_now_ms()))


def read_form_id(text: str) -> TopUpId | None:
    """Read the id that a form was shown with; None for one that is too old, or that we would not make."""
    identifier = read_id(TOP_UP, text)
    if identifier is None or identifier.version != _VERSION:
        return None
    age_ms = _now_ms() - made_at_ms(identifier)
    return TopUpId(identifier) if -AHEAD_MS <= age_ms <= OPEN_FOR_MS else None


async def was_started(database: Database, account_id: AccountId, top_up_id: TopUpId) -> bool:
    """Tell whether the form came before: what is wrong with it now was not wrong then."""
    async with database.connection() as connection:
        return await top_ups.find(connection, account_id, top_up_id) is not None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
