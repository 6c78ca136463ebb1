"""Credits final deposits: all of an account at once, in one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Final

from tumira.core.ids import AccountId, TopUpId, first_id
from tumira.postgres import clock
from tumira.postgres.pool import Database
from tumira.topups import store as top_ups
from tumira.topups.settle import Settled, settle
from tumira.topups.start import open_top_up
from tumira.topups.states import TOP_UP_MIN, Expired, Method, TopUpState, may_move, to_usd
from tumira.topups.store import TopUpUpdate
from tumira.topups.usdt import deposits
from tumira.topups.usdt import store as usdt_store
from tumira.topups.usdt.deposit_rules import to_usdt

# How long a top-up waits for its first deposit. The address stays valid, and a later deposit
# starts a new top-up.
UNPAID_FOR: Final = timedelta(days=7)
# A USDT counts as a dollar.
PAR: Final = Decimal(1)

_EXPIRED_PER_TURN_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Credited:
    top_up_id: TopUpId
    amount: Decimal
    deposits: int


async def credit_deposits(database: Database, chain_id: int, account_id: AccountId) -> Credited | None:
    """Credit an account's final deposits, unless they are below the smallest top-up."""
    async with database.transaction() as connection:
        await usdt_store.lock_addresses(connection, account_id)
        final = [one.facts for one in await deposits.lock_final(connection, chain_id, account_id)]
        paid = to_usdt(sum(one.units for one in final))
        if paid < TOP_UP_MIN:
            return None
        top_up_id = await open_top_up(connection, account_id)
        assert may_move(TopUpState.PENDING, TopUpState.CREDITED)
        amount = to_usd(paid, PAR)
        last = final[-1]
        step = TopUpUpdate(
            TopUpState.CREDITED,
            paid=paid,
            amount=amount,
            provider_reference=f"{chain_id}:{last.tx_hash}:{last.log_index}",
        )
        await top_ups.mark(connection, top_up_id, step)
        await top_ups.credit(connection, account_id, top_up_id, Method.USDT, amount)
        marked = await deposits.mark_credited(connection, chain_id, final, top_up_id)
        assert marked == len(final), "they are held"
    return Credited(top_up_id, amount, len(final))


async def expire_unpaid(database: Database) -> Sequence[Settled]:
    """Expire top-ups without a deposit in a week; deposits that are only seen keep theirs open."""
    async with database.connection() as connection:
        begun = await clock.read_now(connection) - UNPAID_FOR
        unpaid = await usdt_store.list_unpaid_top_ups(
            connection, TopUpId(first_id(int(begun.timestamp() * 1000))), _EXPIRED_PER_TURN_MAX
        )
    return [await settle(database, top_up_id, Expired()) for top_up_id in unpaid]
