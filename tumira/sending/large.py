"""Sends to many recipients, written without delaying other calls of the account.

Each has its own connection. The rows are written first and the account's row is locked last, so that the
account is locked only for the moment in which it is charged.
"""

from typing import Final

from tumira.accounts import store as accounts
from tumira.core.errors import IdempotencyInProgress, Refusal
from tumira.postgres.connection import Connection
from tumira.postgres.pinned_connection import write_nothing
from tumira.postgres.pool import BUSY, Database
from tumira.sending import insert, lookups
from tumira.sending.charge import Charges
from tumira.sending.decide import replay
from tumira.sending.limits import refuse_charge
from tumira.sending.lookups import GroupFacts
from tumira.sending.types import Answered, IdempotencyKey, Large, Refused, Render

SAME_KEY_WAIT_MS: Final = 2_000
ACCOUNT_WAIT_MS: Final = 5_000


async def send_large(database: Database, large: Large, render: Render) -> Answered | Refused:
    """Write an admitted send in one transaction; all of it is on disk when this returns, or nothing."""
    try:
        async with database.transaction() as connection:
            try:
                async with connection.transaction():
                    return await write_large(connection, large, render)
            except AnsweredBeforeError as earlier:
                # What it repeats may not be durable yet.
                await write_nothing(connection)
                return earlier.answer
    except Refusal as refusal:
        return Refused(refusal, large.quota)


class AnsweredBeforeError(Exception):
    """The same send was accepted before; raised to roll back the rows of this one."""

    def __init__(self, answer: Answered) -> None:
        super().__init__()
        self.answer = answer


async def write_large(connection: Connection, large: Large, render: Render) -> Answered:
    """Write and charge an admitted send in the caller's transaction; raise its refusal."""
    batch, idempotency = large.batch, large.send.idempotency
    if idempotency is not None:
        await _wait_for_same_key(connection, large, idempotency)
        await _read(connection, large)
    await insert.insert_batch(connection, batch)
    await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
    account = await accounts.lock(connection, batch.account_id)
    # Read again under the account's lock: another call may have used the key or the money meanwhile.
    facts = await _read(connection, large)
    refusal = refuse_charge(account, batch.quote.total_cost, facts.now)
    if refusal is not None:
        raise refusal
    charges = Charges(facts)
    response = charges.charge(account, batch, idempotency, render, stored=True, by=large.send.by)
    await charges.write(connection)
    return Answered(large.quota, response, replayed=False, marked=large.marked)


async def _wait_for_same_key(connection: Connection, large: Large, idempotency: IdempotencyKey) -> None:
    """Wait for a large send with the same Idempotency-Key; no other code takes this lock."""
    await connection.execute(f"SET LOCAL lock_timeout = {SAME_KEY_WAIT_MS}")
    try:
        await lookups.lock_idempotency_key(connection, large.batch.account_id, idempotency.key)
    except BUSY as error:
        raise IdempotencyInProgress(retry_after_s=1) from error


async def _read(connection: Connection, large: Large) -> GroupFacts:
    """Read what the charge needs; raise the earlier answer if the Idempotency-Key has one."""
    idempotency = large.send.idempotency
    key = None if idempotency is None else idempotency.key
    (call,), facts = await lookups.read(connection, [(large.batch.account_id, None, key)], [])
    if idempotency is not None and call.earlier_answer is not None:
        answer = replay(large.quota, idempotency, *call.earlier_answer)
        raise answer if isinstance(answer, Refusal) else AnsweredBeforeError(answer)
    return facts
