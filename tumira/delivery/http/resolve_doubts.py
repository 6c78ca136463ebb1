"""Resends messages that a carrier says it never got, and puts off those that it could not be asked about."""

from collections.abc import Sequence
from uuid import UUID

from tumira.core.backoff import RESENDS_MAX
from tumira.core.ids import MessageId
from tumira.delivery.outcomes import Ended, Outcome, Resumed
from tumira.delivery.settle import settle
from tumira.delivery.store import queue, settlement
from tumira.delivery.store import waiting as places
from tumira.postgres.connection import Connection
from tumira.sending import fairness


async def resend_unknown(connection: Connection, carrier_id: int, ids: Sequence[UUID]) -> int:
    """Give messages in doubt another turn; those that were resent too often become unconfirmed."""
    locked = await settlement.lock_messages(connection, sorted(ids), skip_locked=True)
    due = await places.claim_due(connection, list(locked)) if locked else []
    if not due:
        return 0
    past = await queue.read_past_attempts(connection, [one.message_id for one in due])
    batches = await places.find_batch_facts(
        connection, sorted({locked[one.message_id].batch_id for one in due})
    )
    outcomes: list[Outcome] = []
    for one in due:
        message_id = MessageId(one.message_id)
        if past[message_id].resends >= RESENDS_MAX:
            outcomes.append(Ended(message_id, "sending", "unconfirmed", None, incident="hold"))
        else:
            # One that is too late is not submitted: the sender finds that out.
            batch = batches[locked[message_id].batch_id]
            lane = fairness.lane(batch.recipients)
            outcomes.append(Resumed(message_id, carrier_id, lane, batch.expires_at, resend=True))
    return await settle(connection, outcomes, locked=locked, worker="")
