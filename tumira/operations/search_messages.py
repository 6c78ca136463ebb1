"""Search for the messages of all accounts to a number, on an operator's order.

A recipient's number is personal: every search is recorded, with the number shortened as everywhere else. The
newest message found names it exactly for as long as that message does.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import asyncpg

from tumira import audit_log
from tumira.audit_log import Actor
from tumira.core.errors import OperatorError
from tumira.core.ids import MESSAGE, write_id
from tumira.delivery.place_receipts import mask
from tumira.delivery.store import found_messages
from tumira.delivery.store.found_messages import FoundMessage
from tumira.postgres.pool import Database

TOO_SLOW: Final = "The search took too long. Try again in a minute, or search by message ID."


async def search_numbers(
    database: Database, actor: Actor, numbers: Sequence[str], before: UUID, count_max: int
) -> Sequence[FoundMessage]:
    """Return the newest messages to these numbers with ids below `before`; record who searched."""
    found: Sequence[FoundMessage] | None
    try:
        async with database.transaction() as connection:
            found = await found_messages.list_to_numbers(connection, numbers, before, count_max)
    except asyncpg.QueryCanceledError:
        found = None
    result = "too slow" if found is None else _write_result(found)
    async with database.transaction() as connection:
        searched = " or ".join(mask(number) for number in numbers)
        await audit_log.record_by_operator(connection, actor, "number searched", f"{searched}: {result}")
    if found is None:
        raise OperatorError(TOO_SLOW)
    return found


def _write_result(found: Sequence[FoundMessage]) -> str:
    return f"newest {write_id(MESSAGE, found[0].id)}" if found else "nothing found"
