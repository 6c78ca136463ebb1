"""How is a send to many recipients written without holding up anybody else?

On a connection of its own, the thousand rows first and the account's row last, so that the account is
locked only for the moment in which its balance is lowered.
"""

from typing import Final

from tumira.accounts import store as accounts
from tumira.core.errors import AccountSuspended, IdempotencyInProgress, InsufficientBalance, Refusal
from tumira.postgres.connection import Connection
from tumira.postgres.pool import BUSY, Database
from tumira.sending import insert as acceptance
from tumira.sending import lookups as calls
from tumira.sending.decide import debit_of, local_day, over_limit, replay, spend
from tumira.sending.lookups import Standing, Surroundings
from tumira.sending.low_balance import tell_low_balances
from tumira.sending.types import Answered, Large, Refused, Render, Sent

SAME_KEY_WAIT_MS: Final = 2_000
ACCOUNT_WAIT_MS: Final = 5_000


async def send_large(database: Database, large: Large, render: Render) -> Answered | Refused:
    """Write an admitted send in one transaction; all of it is on disk when this returns, or none."""
    try:
        async with database.transaction() as connection:
            return await _send(connection, large, render)
    except _AnsweredBeforeError as earlier:
        return earlier.answer
    except Refusal as refusal:
        return Refused(refusal, large.quota)


class _AnsweredBeforeError(Exception):
    """The same send was accepted before; raised so that what this one inserted is undone."""

    def __init__(self, answer: Answered) -> None:
        super().__init__()
        self.answer = answer


async def _send(connection: Connection, large: Large, render: Render) -> Answered:
    send, batch = large.call.send, large.batch
    assert send is not None
    assert not isinstance(send.idempotency_key, Refusal)
    if send.idempotency_key is not None:
        await _wait_for_same_key(connection, large, send.idempotency_key)
        _give_earlier_answer(large, (await _read(connection, large, send.idempotency_key))[0])
    await acceptance.store(connection, batch)
    await connection.execute(f"SET LOCAL lock_timeout = {ACCOUNT_WAIT_MS}")
    account = await accounts.lock(connection, batch.account_id)
    # Read again now that the account is ours: another call may have used the key or the money meanwhile.
    standing, surroundings = await _read(connection, large, send.idempotency_key)
    _give_earlier_answer(large, standing)
    cost = batch.quote.total_cost
    if account.suspended:
        raise AccountSuspended
    limit = over_limit(account, cost, surroundings)
    if limit is not None:
        raise limit
    if cost > account.balance:
        raise InsufficientBalance.of(cost, account.balance)
    spend(account, cost, local_day(surroundings))
    debit = debit_of(batch, send, render(Sent(batch.id, batch.quote, account.balance)))
    await acceptance.pay(connection, account, debit)
    if account.fell_low:
        await tell_low_balances(connection, [account], surroundings.now)
    return Answered(large.quota, debit.response, replayed=False)


async def _wait_for_same_key(connection: Connection, large: Large, key: str) -> None:
    """Wait for a large send with the same Idempotency-Key; only those take this lock."""
    await connection.execute(f"SET LOCAL lock_timeout = {SAME_KEY_WAIT_MS}")
    try:
        await calls.lock_idempotency_key(connection, large.batch.account_id, key)
    except BUSY as error:
        raise IdempotencyInProgress(retry_after_s=1) from error


async def _read(connection: Connection, large: Large, key: str | None) -> tuple[Standing, Surroundings]:
    standings, surroundings = await calls.read(
        connection, [(large.call.account_id, large.call.key_id, key)], []
    )
    return standings[0], surroundings


def _give_earlier_answer(large: Large, standing: Standing) -> None:
    if standing.response is None:
        return
    assert large.call.send is not None
    answer = replay(large.quota, large.call.send, standing.fingerprint, standing.response)
    raise answer if isinstance(answer, Refusal) else _AnsweredBeforeError(answer)
